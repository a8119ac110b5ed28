"""What `fit` does with data that are not in memory: files, memory-mapped arrays, Dask collections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dplangevin.data import ArrayDataset, ArrowSource, Dataset, ScratchDataset, Source
from dplangevin.data.dask import DaskDataset, connected, is_dask
from dplangevin.data.sources import Records, row_weights, source_of
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema
from dplangevin.problem import Problem

Encode = Callable[[Any], NDArray[np.float64]]
MAPPED_BYTES = 1 << 28


@final
class EncodedSource(Source):
    """The tables of files, encoded by a public schema as they are read: a row's code depends on that row only."""

    def __init__(self, source: Source, schema: Any) -> None:
        if not isinstance(source, ArrowSource):
            raise InvalidParameter(
                "a schema encodes columns by name: give Parquet, Arrow or text files, not arrays."
            )
        self._columns = list(as_schema(schema).names)
        as_schema(schema).validate(source.features)
        self._source, self._encoder = source, SchemaEncoder(schema)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._source), len(self._encoder.get_feature_names_out())

    @property
    def dtype(self) -> type[np.floating[Any]]:
        return np.float64

    @property
    def weighted(self) -> bool:
        return self._source.weighted

    def records(self) -> Iterator[Records]:
        for table, targets, weights in self._source.batches(self._columns):
            yield Records(self._encoder.transform(table), targets, weights)


@final
class LargeData:
    """Features and targets with the shape of an array; no record is read before the run is planned.

    Parameters
    ----------
    given : what `fit` was given as X. source : the records, or None when they are on Dask.
    y, weights : Dask collections, or names of columns. schema : encodes the tables of a Dask DataFrame.
    """

    def __init__(
        self, given: Any, source: Source | None = None, y: Any = None, weights: Any = None, schema: Any = None
    ) -> None:
        self.given, self._source, self._y, self._weights = given, source, y, weights
        self._encode_rows: Callable[[Any], Any] | None = None
        self.weighted = weights is not None if source is None else source.weighted
        if source is not None:
            self.shape = source.shape
            return
        connected(None)
        if schema is not None:
            as_schema(schema).validate(map(str, getattr(given, "columns", ())))
            encoder = SchemaEncoder(schema)
            self._encode_rows, columns = encoder.transform, len(encoder.get_feature_names_out())
        elif hasattr(given, "columns"):
            columns = len(given.columns) - isinstance(y, str) - isinstance(weights, str)
        else:
            columns = int(given.shape[1])
        self.shape = len(given), columns

    def __len__(self) -> int:
        return self.shape[0]

    def dataset(self, problem: Problem, encode: Encode) -> Dataset:
        """The records, clipped to the problem's bounds."""
        if self._source is not None:
            return ScratchDataset(self._source, problem, encode)
        return DaskDataset(
            self.given, self._y, problem, self._weights, encode=encode, encode_rows=self._encode_rows
        )


def large(X: Any, y: Any, weights: Any = None, schema: Any = None) -> LargeData | None:
    """The data when they are not to be read into memory; y and weights are then columns' names, or as X is.

    A memory-mapped array of moderate size is read like any other; the result is the same.
    """
    if is_dask(X):
        return LargeData(X, None, y, weights, schema)
    if isinstance(X, np.ndarray) and X.nbytes < MAPPED_BYTES:
        return None
    source = source_of(X, y, weights)
    if source is None:
        return None
    return LargeData(X, source if schema is None else EncodedSource(source, schema))


def dataset_of(
    X: Any, y: Any, problem: Problem, encode: Encode, weights: NDArray[np.float64] | None = None
) -> Dataset:
    """The records wherever they are, targets encoded, clipped to the problem's bounds."""
    if isinstance(X, LargeData):
        return X.dataset(problem, encode)
    labels = encode(y)
    return ArrayDataset(X, labels, problem, row_weights(encode, labels, weights))
