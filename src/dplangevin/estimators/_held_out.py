"""Records that models are scored on: arrays and tables, files read in batches, Dask collections on their workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, final

import numpy as np
from scipy.sparse import issparse

from dplangevin._arrays import Floats
from dplangevin.data import ArrowSource
from dplangevin.data.dask import LOST, RETRIES, connected, delayed_parts, failures, is_dask
from dplangevin.data.sources import source_of
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._reading import by_name, dense, finite_rows, is_table
from dplangevin.estimators.schema_encoder import schema_of
from dplangevin.tables import Cells, Table, cells_of, matrix_of, table_of

View = Callable[[Any], Any]  # the features as a model takes them
Task = Callable[[View, Cells], Sequence[Floats]]
Part = tuple[Sequence[Floats], int]


class HeldOut(ABC):
    """Features and labels, perhaps in parts. Sums of whole numbers do not depend on the parts."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of records; private under add-remove adjacency."""

    @abstractmethod
    def _parts(self, task: Task) -> Iterable[Part]:
        """The task's sums over each part, and the number of records in it."""

    def summed(self, task: Task) -> list[Floats]:
        """The arrays task(view, labels), added over the parts; view(model) are the features for a model."""
        total: list[Floats] = []
        seen = 0
        for sums, count in self._parts(task):
            seen += count
            if count:
                total = [a + b for a, b in zip(total, sums, strict=True)] if total else list(sums)
        if seen != len(self):
            raise InvalidParameter(
                "the number of records changed while they were read; make the source read-only. What was charged "
                "stays charged, and nothing was released."
            )
        return total


def held_out(X: Any, y: Any, *, counted: bool = False) -> HeldOut:
    """X and y as `fit` takes them: arrays or a table; files and the name of a column; Dask collections.

    counted : their number is public, and none is refused.
    """
    found = _held_out(X, y)
    if counted and not len(found):
        raise InvalidParameter("y must have one entry per row of X, and there must be at least one.")
    return found


def _held_out(X: Any, y: Any) -> HeldOut:
    if is_dask(X):
        return _OnDask(X, y)
    source = None if isinstance(X, np.ndarray) else source_of(X, y)
    if source is None:
        return _InMemory(X, y)
    if not isinstance(source, ArrowSource):
        raise InvalidParameter("models are scored on files of named columns; give arrays as they are.")
    return _InFiles(source)


@final
class _InMemory(HeldOut):
    def __init__(self, X: Any, y: Any) -> None:
        if is_table(X):
            X, y, _ = by_name(X, y, None)
        # the cells of a list are not looked at before the charge; other containers give theirs unread
        self._X, self._y = X, y if isinstance(y, list) else cells_of(y, "y")
        rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if len(self._y) != rows:
            raise InvalidParameter("y must have one entry per row of X.")

    def __len__(self) -> int:
        return len(self._y)

    def _parts(self, task: Task) -> Iterable[Part]:
        yield _applied(self._X, self._y, task, whole=True)


@final
class _InFiles(HeldOut):
    def __init__(self, source: ArrowSource) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def _parts(self, task: Task) -> Iterable[Part]:
        for table, labels, _ in self._source.batches():
            yield _applied(table, labels, task)


@final
class _OnDask(HeldOut):
    def __init__(self, X: Any, y: Any) -> None:
        self._client, self._size = connected(None), len(X)
        self._collections = delayed_parts(X, y, None)

    def __len__(self) -> int:
        return self._size

    def _parts(self, task: Task) -> Iterable[Part]:
        import dask

        work = dask.delayed(_applied, pure=False)
        try:
            futures = self._client.compute(
                [work(X, y, task) for X, y, _ in self._collections], retries=RETRIES
            )
            parts: list[Part] = self._client.gather(futures)
        except failures() as error:
            raise DplangevinError(LOST.format(type(error).__name__)) from error
        return parts


def _applied(X: Any, y: Any, task: Task, whole: bool = False) -> Part:
    labels = cells_of(y, "y")
    view = partial(_whole if whole else _rows, X)
    sums = task(view, labels) if len(labels) else ()  # models refuse a part without records
    return sums, len(labels)


def _whole(rows: Any, model: Any) -> Any:
    """A table in memory: read record by record for a model of this library, as it is for any other."""
    return _read(rows, model) if isinstance(model, DPLinearModel) else rows


def _rows(rows: Any, model: Any) -> Any:
    """Rows of a part as the model was fitted: the columns it knows by name, or numbers without names."""
    if isinstance(model, DPLinearModel):
        return _read(rows, model)
    if isinstance(rows, Table):
        rows = _frame(rows)
    names = getattr(model, "feature_names_in_", None)
    if not hasattr(rows, "columns"):
        return rows
    if names is not None:
        return rows[list(names)]
    return rows.to_numpy() if hasattr(model, "n_features_in_") else rows


def _read(rows: Any, model: DPLinearModel) -> Any:
    """Encoded rows, or rows of numbers in which a record that is not finite is the zero row: nothing raises."""
    if schema_of(model) is not None:
        return rows
    names = getattr(model, "feature_names_in_", None)
    if names is not None and is_table(rows):
        table = table_of(rows)
        rows = Table({str(name): table.column(str(name)) for name in names}, len(table))
    rows = dense(rows) if issparse(rows) else rows
    return finite_rows(matrix_of(rows, model.n_features_in_))


def _frame(table: Table) -> Any:
    """A DataFrame for a model of another library: typed numbers as doubles, other cells one by one."""
    import pandas as pd

    columns = {name: table.column(name) for name in table.names}
    return pd.DataFrame(
        {
            name: cells.numbers() if cells.numeric else pd.Series(cells.plain(), dtype=object)
            for name, cells in columns.items()
        }
    )
