"""Held-out records on which models are scored: in memory, in files read by batches, or on Dask workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dplangevin._arrays import Floats
from dplangevin.data import ArrowSource
from dplangevin.data.cluster import LOST_WORKERS_MESSAGE
from dplangevin.data.dask import (
    RETRIES,
    connect_client,
    dask_failures,
    delayed_partitions,
    is_dask,
)
from dplangevin.data.sources import make_source
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._reading import is_table, split_named_columns, to_dense, zero_nonfinite_rows
from dplangevin.estimators.schema_encoder import as_schema, encoding_schema
from dplangevin.tables import (
    CellColumn,
    Table,
    TableFiles,
    as_column,
    as_matrix,
    as_table,
    is_frame,
    is_streamed,
)
from dplangevin.tables.lazy import open_stored_table


def check_model_matches_table(model: Any, X: Any, y: Any = None) -> None:
    """Raise if the model is not fitted, or was fitted on other columns than X has; no record is read."""
    if isinstance(model, BaseEstimator):
        try:
            check_is_fitted(model)
        except NotFittedError:
            raise InvalidParameter(f"the {type(model).__name__} is not fitted yet; fit it first.") from None
    columns = None
    if not is_streamed(X):
        named = X.keys() if isinstance(X, Mapping) and is_frame(X) else getattr(X, "columns", None)
        columns = None if named is None else [str(name) for name in named]
    schema = getattr(model, "schema_", getattr(model, "schema", None))
    if schema is not None:
        if columns is not None:
            as_schema(schema).validate(columns)
        return
    names = getattr(model, "feature_names_in_", None)
    if names is not None and columns is not None:
        absent = [str(name) for name in names if str(name) not in columns]
        if absent:
            raise InvalidParameter(
                f"the {type(model).__name__} was fitted on {', '.join(map(repr, absent))}, and the table has no such "
                "column."
            )
    n_expected: int | None = getattr(model, "n_features_in_", None)
    shape: tuple[int, ...] = getattr(X, "shape", ())
    has_no_target = not isinstance(y, str)  # otherwise the table holds the target too
    if (
        names is None
        and has_no_target
        and n_expected is not None
        and len(shape) == 2
        and shape[1] != n_expected
    ):
        raise InvalidParameter(
            f"the {type(model).__name__} was fitted on {n_expected} columns, and X has {shape[1]}; pass the same "
            "columns."
        )


class TableColumn(NamedTuple):
    """In place of a model in a FeatureView: the cells of the column of this name."""

    name: str


FeatureView = Callable[
    [Any], Any
]  # from a model to the features in the form it expects, or from a TableColumn
SumTask = Callable[[FeatureView, CellColumn], Sequence[Floats]]
PartSums = tuple[Sequence[Floats], int]


class HeldOutRecords(ABC):
    """Features and labels, possibly in parts; sums of integers do not depend on the partition."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of records; private under add-remove adjacency."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """Names of the columns beside the target; none where columns have no names."""

    @abstractmethod
    def _sums_by_part(self, task: SumTask) -> Iterable[PartSums]:
        """Yield the task's sums over each part, and the number of records in it."""

    def sum_over_parts(self, task: SumTask) -> list[Floats]:
        """Return the arrays task(view, labels), summed over the parts; view(model) are the features for a model."""
        total: list[Floats] = []
        n_read = 0
        for sums, count in self._sums_by_part(task):
            n_read += count
            if count:
                total = [a + b for a, b in zip(total, sums, strict=True)] if total else list(sums)
        if n_read != len(self):
            raise InvalidParameter(
                "the number of records changed while they were read; make the source read-only. What was charged "
                "stays charged, and nothing was released."
            )
        return total


def open_held_out(X: Any, y: Any, *, count_is_public: bool = False) -> HeldOutRecords:
    """Return the records of X and y: arrays or a table, files and the name of a column, or Dask collections.

    With `count_is_public`, raise if there are no records; otherwise even that would depend on the data.
    """
    records = _open_records(X, y)
    if count_is_public and not len(records):
        raise InvalidParameter("y must have one entry per row of X, and there must be at least one.")
    return records


def _open_records(X: Any, y: Any) -> HeldOutRecords:
    if is_dask(X):
        return _DaskRecords(X, y)
    X = open_stored_table(X)
    if (isinstance(X, TableFiles) and not isinstance(y, str)) or (isinstance(X, Mapping) and is_frame(X)):
        X = as_table(X)
    source = None if isinstance(X, np.ndarray) else make_source(X, y)
    if source is None:
        return _InMemoryRecords(X, y)
    if not isinstance(source, ArrowSource):
        raise InvalidParameter(
            "models are scored on files with named columns; pass an array itself, not as a source."
        )
    return _FileRecords(source)


@final
class _InMemoryRecords(HeldOutRecords):
    """Records in arrays, lists or tables in memory."""

    def __init__(self, X: Any, y: Any) -> None:
        if is_table(X):
            X, y, _ = split_named_columns(X, y, None)
        # The cells of a list are not read before the charge; other containers become columns of unread cells.
        self._X, self._y = X, y if isinstance(y, list) else as_column(y, "y")
        rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if len(self._y) != rows:
            raise InvalidParameter("y must have one entry per row of X.")

    def __len__(self) -> int:
        return len(self._y)

    @property
    def names(self) -> Sequence[str]:
        return as_table(self._X).names if is_table(self._X) else ()

    def _sums_by_part(self, task: SumTask) -> Iterable[PartSums]:
        yield _apply_task(self._X, self._y, task, in_memory=True)


@final
class _FileRecords(HeldOutRecords):
    """Records in files, read by batches."""

    def __init__(self, source: ArrowSource) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    @property
    def names(self) -> Sequence[str]:
        return self._source.features

    def _sums_by_part(self, task: SumTask) -> Iterable[PartSums]:
        for table, labels, _ in self._source.batches():
            yield _apply_task(table, labels, task)


@final
class _DaskRecords(HeldOutRecords):
    """Records of Dask collections, summed on the workers."""

    def __init__(self, X: Any, y: Any) -> None:
        self._client, self._size = connect_client(None), len(X)
        self._collections = delayed_partitions(X, y, None)
        target = y if isinstance(y, str) else None
        self._names = tuple(str(name) for name in getattr(X, "columns", ()) if name != target)

    def __len__(self) -> int:
        return self._size

    @property
    def names(self) -> Sequence[str]:
        return self._names

    def _sums_by_part(self, task: SumTask) -> Iterable[PartSums]:
        import dask

        delayed_task = dask.delayed(_apply_task, pure=False)
        try:
            futures = self._client.compute(
                [delayed_task(X, y, task) for X, y, _ in self._collections], retries=RETRIES
            )
            parts: list[PartSums] = self._client.gather(futures)
        except dask_failures() as error:
            raise DplangevinError(LOST_WORKERS_MESSAGE.format(type(error).__name__)) from error
        return parts


def _apply_task(X: Any, y: Any, task: SumTask, in_memory: bool = False) -> PartSums:
    labels = as_column(y, "y")
    view = partial(_features_in_memory if in_memory else _features_of_part, X)
    sums = task(view, labels) if len(labels) else ()  # models raise for a part without records
    return sums, len(labels)


def _features_in_memory(rows: Any, model: Any) -> Any:
    """Return a table in memory: read record by record for a model of this library, unchanged for any other.

    A model of another library that was fitted on fewer columns of a DataFrame than it has gets those alone.
    """
    if isinstance(model, TableColumn):
        return as_table(rows).column(model.name)
    if isinstance(model, DPLinearModel):
        return _features_for_dp_model(rows, model)
    names = getattr(model, "feature_names_in_", None)
    return rows[list(names)] if names is not None and hasattr(rows, "loc") else rows


def _features_of_part(rows: Any, model: Any) -> Any:
    """Return the rows of a part in the form in which the model was fitted: named columns, or a matrix of numbers."""
    if isinstance(model, TableColumn):
        return as_table(rows).column(model.name)
    if isinstance(model, DPLinearModel):
        return _features_for_dp_model(rows, model)
    if isinstance(rows, Table):
        rows = _to_pandas(rows)
    names = getattr(model, "feature_names_in_", None)
    if not hasattr(rows, "columns"):
        return rows
    if names is not None:
        return rows[list(names)]
    return rows.to_numpy() if hasattr(model, "n_features_in_") else rows


def _features_for_dp_model(rows: Any, model: DPLinearModel) -> Any:
    """Return rows for which nothing raises: the table if there is a schema, else numbers with bad rows set to zero."""
    if encoding_schema(model) is not None:
        return rows
    names = getattr(model, "feature_names_in_", None)
    if names is not None and is_table(rows):
        table = as_table(rows)
        rows = Table({str(name): table.column(str(name)) for name in names}, len(table))
    rows = to_dense(rows) if issparse(rows) else rows
    return zero_nonfinite_rows(as_matrix(rows, model.n_features_in_))


def _to_pandas(table: Table) -> Any:
    """Return a DataFrame for a model of another library: numeric columns as doubles, other cells read one by one."""
    import pandas as pd

    columns = {name: table.column(name) for name in table.names}
    return pd.DataFrame(
        {
            name: cells.numbers() if cells.is_numeric else pd.Series(cells.plain_values(), dtype=object)
            for name, cells in columns.items()
        }
    )
