"""Where records come from when they do not fit in memory: files and memory-mapped arrays, read in order, once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.tables import Cells, Dialect, Files, Table, cells_of, is_path
from dplangevin.tables.files import READ_ROWS

UNSPENT = "Nothing was released; what a ledger was charged for this stays charged."


def row_weights(encode: Any, labels: NDArray[Any], weights: Any) -> Any:
    """The records' weights, times those of their classes where the encoding of targets has some."""
    by_class = getattr(encode, "row_weights", None)
    return weights if by_class is None else by_class(labels, weights)


class Records(NamedTuple):
    """A few records: features [rows, columns], targets, unread, and weights (None when all are 1)."""

    features: NDArray[Any]
    targets: Cells
    weights: NDArray[Any] | None


class Source(ABC):
    """Records in a fixed order."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of records and of feature columns."""

    @property
    @abstractmethod
    def dtype(self) -> type[np.floating[Any]]:
        """float32 when every feature is stored so, else float64."""

    @property
    def weighted(self) -> bool:
        """Whether records have weights."""
        return False

    @property
    def numeric_targets(self) -> bool:
        """Whether the stated type of the targets holds numbers only; False where no type is stated."""
        return False

    @abstractmethod
    def records(self) -> Iterator[Records]:
        """All records, some at a time."""

    def __len__(self) -> int:
        return self.shape[0]


@final
class ArraySource(Source):
    """Arrays, memory-mapped ones above all: features [n, columns] and targets [n], perhaps weights [n]."""

    def __init__(self, features: Any, targets: Any, weights: Any = None) -> None:
        if getattr(features, "ndim", 0) != 2 or len(targets) != features.shape[0]:
            raise InvalidParameter("features must have shape [n, columns] and targets shape [n].")
        if weights is not None and len(weights) != len(targets):
            raise InvalidParameter("weights must have one entry per record.")
        self._features, self._targets = features, cells_of(targets, "targets")
        self._weights = None if weights is None else cells_of(weights, "weights")

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self._features.shape
        return int(rows), int(columns)

    @property
    def dtype(self) -> type[np.floating[Any]]:
        return np.float32 if self._features.dtype == np.float32 else np.float64

    @property
    def weighted(self) -> bool:
        return self._weights is not None

    @property
    def numeric_targets(self) -> bool:
        return self._targets.numeric

    def records(self) -> Iterator[Records]:
        for start in range(0, len(self), READ_ROWS):
            part = slice(start, min(start + READ_ROWS, len(self)))
            weights = None if self._weights is None else self._weights.part(part).numbers()
            yield Records(np.asarray(self._features[part]), self._targets.part(part), weights)


@final
class ArrowSource(Source):
    """Parquet, Arrow, Feather or text files (a path, a folder, or several), or an Arrow table, read in batches.

    Every cell is read by itself (see `dplangevin.tables`), so files may store a column in different types.

    Parameters
    ----------
    files : in the order in which they are read; or `Files` that were looked at before and must not have changed.
    target : name of the target's column.
    features : names of the feature columns; None takes every other column, in the order of the first file.
    weight : name of the weights' column, or None.
    dialect : of text files; None is comma (tab for .tsv) and the double quote.
    kept : which rows are read at all, a truth value for each; None reads all.
    """

    def __init__(
        self,
        files: Any,
        target: str,
        features: Sequence[str] | None = None,
        weight: str | None = None,
        dialect: Dialect | None = None,
        kept: NDArray[np.bool_] | None = None,
    ) -> None:
        self._files = files if isinstance(files, Files) else Files(files, dialect)
        self._kept = kept
        used = [n for n in self._files.names if n not in (target, weight)] if features is None else features
        self.target, self.features, self.weight = target, [str(n) for n in used], weight
        self._files.require(self._names)
        self._rows = self._files.count_rows() if kept is None else int(kept.sum())

    @property
    def _names(self) -> list[str]:
        return [*self.features, self.target, *([] if self.weight is None else [self.weight])]

    @property
    def shape(self) -> tuple[int, int]:
        return self._rows, len(self.features)

    @property
    def dtype(self) -> type[np.floating[Any]]:
        return np.float32 if self._files.single(self.features) else np.float64

    @property
    def weighted(self) -> bool:
        return self.weight is not None

    @property
    def numeric_targets(self) -> bool:
        return self._files.numeric(self.target)

    def records(self) -> Iterator[Records]:
        for features, targets, weights in self.batches(self.features):
            yield Records(features.matrix().astype(self.dtype, copy=False), targets, weights)

    def batches(
        self, features: Sequence[str] | None = None
    ) -> Iterator[tuple[Table, Cells, NDArray[Any] | None]]:
        """Tables of these columns (None: the features), with the targets, unread, and the weights."""
        wanted = self.features if features is None else list(features)
        beside = [self.target, *([] if self.weight is None else [self.weight])]
        first = 0
        for batch in self._files.batches(list(dict.fromkeys([*wanted, *beside]))):
            if self._kept is not None:
                first, here = first + len(batch), self._kept[first : first + len(batch)]
                batch = batch.take(np.flatnonzero(here))
            weights = None if self.weight is None else batch.column(self.weight).numbers()
            kept = batch if self.target in wanted else batch.without(*beside)
            yield kept, batch.column(self.target), weights


def source_of(data: Any, target: Any, weight: Any = None) -> Source | None:
    """The source for files (target and weight are columns' names) or memory-mapped arrays; None for anything else."""
    if isinstance(data, Source):
        if weight is not None:
            raise InvalidParameter(
                "a source states its weights itself, e.g. ArrowSource(files, target, weight='w')."
            )
        return data
    if is_path(data):
        if not isinstance(target, str):
            raise InvalidParameter("with files, y must be the name of the target's column.")
        if not isinstance(weight, str | None):
            raise InvalidParameter("with files, sample_weight must be the name of the weights' column.")
        return ArrowSource(data, target, weight=weight)
    if isinstance(data, np.memmap) or (isinstance(data, np.ndarray) and isinstance(_root(data), np.memmap)):
        return ArraySource(data, target, weight)
    return None


def _root(array: Any) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        if isinstance(array, np.memmap):
            return array
        array = array.base
    return array
