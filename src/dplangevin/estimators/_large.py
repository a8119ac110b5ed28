"""What `fit` does with data that are not in memory: files, memory-mapped arrays, Dask collections."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from dplangevin.data import Dataset, ScratchDataset, Source
from dplangevin.data.dask import DaskDataset, connected, is_dask
from dplangevin.data.sources import source_of
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._public import Encode
from dplangevin.problem import Problem

MAPPED_BYTES = 1 << 28


@final
class LargeData:
    """Features and targets with the shape of an array; no record is read before the run is planned."""

    def __init__(self, X: Any, y: Any) -> None:
        self._X, self._y = X, y
        if is_dask(X):
            connected(None)
            columns = len(X.columns) - isinstance(y, str) if hasattr(X, "columns") else X.shape[1]
            self.shape = len(X), int(columns)
        else:
            self.shape = X.shape

    def __len__(self) -> int:
        return self.shape[0]

    def dataset(self, problem: Problem, encode: Encode) -> Dataset:
        """The records, clipped to the problem's bounds."""
        if isinstance(self._X, Source):
            return ScratchDataset(self._X, problem, encode)
        return DaskDataset(self._X, self._y, problem, encode=encode)


def large(X: Any, y: Any) -> LargeData | None:
    """The data when they are not to be read into memory; y is then a column's name, or as X is.

    A memory-mapped array of moderate size is read like any other; the result is the same.
    """
    if is_dask(X):
        return LargeData(X, y)
    if isinstance(X, np.ndarray) and X.nbytes < MAPPED_BYTES:
        return None
    source = source_of(X, y)
    return None if source is None else LargeData(source, y)


def check_plain(model: Any, sample_weight: Any) -> None:
    """What needs arrays is refused before anything is read."""
    if model.schema is not None:
        raise InvalidParameter(
            "files and Dask collections must hold numbers; encode them, and give data_norm."
        )
    if model.public_data is not None:
        raise InvalidParameter("public_data needs the private data in memory; give arrays.")
    if sample_weight is not None:
        raise InvalidParameter(
            "sample_weight needs arrays; for files name a column: ArrowSource(files, target, weight=...)."
        )
