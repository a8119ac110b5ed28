"""What `fit` and `predict` do with data: everything in memory is read record by record, in the reading room.

Files, memory-mapped arrays and Dask collections stay where they are until a run is planned.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_array, validate_data

from dplangevin._arrays import Floats
from dplangevin.data import ArrayDataset, ArrowSource, Dataset, ScratchDataset, Source
from dplangevin.data.dask import DaskDataset, connected, is_dask
from dplangevin.data.dataset import check_size
from dplangevin.data.sources import Records, source_of
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema
from dplangevin.problem import Problem
from dplangevin.tables import Cells, Table, cells_of, matrix_of, number, shortest, table_of
from dplangevin.tables.room import refuse_masks, unique_names

if TYPE_CHECKING:
    from dplangevin.estimators._base import DPLinearModel

MAPPED_BYTES = 1 << 28
UNBOUNDED_WEIGHTS = (
    "sample_weight is given without weight_bound: weights above 1 are clipped to 1. State weight_bound, from public "
    "knowledge."
)


class BadCells(InvalidParameter, TypeError):
    """Some cell of X is no number, and bad_rows is "refuse"."""


LIST_WITHOUT_WIDTH = (
    "bad_rows='zero' (which a strict data set implies) needs a public number of columns, and a list leaves it to its "
    "rows: give an array or a DataFrame, e.g. numpy.array(X, dtype=object), or state a schema."
)
COMPLEX_DATA = "Complex data not supported: X must hold real numbers."
TWO_DIMENSIONS = (
    "Expected 2D array, got {}D array instead: X needs a row for each record. Reshape your data with X.reshape(-1, 1) "
    "if there is a single feature, X.reshape(1, -1) if there is a single record."
)
NO_TABLE = "X must be a table of numbers (every cell a string of a number or a real number), got {}."


def is_table(X: Any) -> bool:
    """Whether X has columns by name and is in memory."""
    named = hasattr(X, "columns") or hasattr(X, "column_names") or isinstance(X, Table)
    return named and not is_dask(X)


def by_name(X: Any, y: Any, weights: Any) -> tuple[Any, Any, Any]:
    """A table in memory without the columns that y and the weights name, and those columns."""
    if not isinstance(y, str) and not isinstance(weights, str):
        return X, y, weights
    table = table_of(X)
    targets = table.column(y) if isinstance(y, str) else y
    loads = table.column(weights) if isinstance(weights, str) else weights
    names = [name for name in (y, weights) if isinstance(name, str)]
    return table.without(*names), targets, loads


def features(model: DPLinearModel, X: Any, reset: bool) -> NDArray[Any]:
    """Rows of finite numbers, without a schema. A cell that is none is refused, or makes its row the zero row."""
    total = model._bad_rows() == "zero"
    if total and reset and isinstance(X, list | tuple):
        raise InvalidParameter(LIST_WITHOUT_WIDTH)
    X = X.matrix() if isinstance(X, Table) else X
    X = dense(X) if issparse(X) else X
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind == "c" and not total:
        raise InvalidParameter(COMPLEX_DATA)
    width = model.n_features_in_ if total and not reset and isinstance(X, list | tuple) else None
    try:
        numbers = finite_rows(matrix_of(X, width)) if total else matrix_of(X)
    except InvalidParameter:
        raise
    except Exception:  # of a container of one's own, which may quote a cell
        raise BadCells(NO_TABLE.format(type(X).__name__)) from None
    if getattr(numbers, "ndim", 2) != 2:  # scikit-learn's own words would show the cells
        raise InvalidParameter(TWO_DIMENSIONS.format(numbers.ndim))
    if isinstance(numbers, bytes):
        raise BadCells(NO_TABLE.format("bytes"))
    loose = isinstance(numbers, np.ndarray) and numbers.dtype.kind == "f" and kind in "OUS" and not total
    if loose and not np.isfinite(numbers).all():
        raise BadCells(
            "X holds NaN, infinity or a cell that is no number: every argument must be a string of a number or a "
            "real number. bad_rows='zero' reads such a row as the zero row; what a ledger was charged stays charged."
        )
    # how many are left of a private number is private
    least = 0 if total and reset and model.n is not None else 1
    rows = check_array(
        numbers,
        dtype=[np.float64, np.float32],
        estimator=model,
        input_name="X",
        ensure_all_finite=not total,
        ensure_min_samples=least,
    )
    validate_data(model, X, reset=reset, skip_check_array=True)
    return np.asarray(rows)


def dense(X: Any) -> NDArray[Any]:
    """A sparse matrix as an array: entries of one place are added up, and every row is read by itself.

    An entry outside the columns, which SciPy does not look for, would fall into another record's row: it makes its own
    row no row of numbers.
    """
    if X.ndim != 2 or X.dtype.kind not in "biufc":
        raise InvalidParameter("a sparse X must be a matrix of numbers.")
    if X.format == "csr":
        row, column, data = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices, X.data
    else:
        entries = X.tocoo()
        row, column, data = entries.row, entries.col, entries.data
    good = (column >= 0) & (column < X.shape[1])
    wide: Any = np.complex128 if X.dtype.kind == "c" else np.float64
    rows = np.zeros(X.shape, np.float32 if X.dtype == np.float32 else wide)
    with np.errstate(all="ignore"):
        np.add.at(rows, (row[good], column[good]), data[good])
    rows[row[~good]] = np.nan
    return rows


def finite_rows(numbers: Any) -> Any:
    """The rows, those with a cell that is no finite number as zero rows."""
    if not isinstance(numbers, np.ndarray) or numbers.ndim != 2 or numbers.dtype.kind not in "biuf":
        return numbers
    bad = ~np.isfinite(numbers).all(axis=1)
    if not bad.any():
        return numbers
    kept = numbers.copy()
    kept[bad] = 0
    return kept


def column(given: Any, rows: int, what: str) -> Cells:
    """Targets or weights, one for each row."""
    if given is None:
        raise InvalidParameter(f"this estimator requires {what} to be passed, but the target {what} is None.")
    if isinstance(given, np.ndarray) and given.ndim == 2 and given.shape[1] == 1:
        warnings.warn(
            f"A column-vector {what} was passed when a 1d array was expected.",
            DataConversionWarning,
            stacklevel=2,
        )
    found = cells_of(given, what)
    if len(found) != rows:
        raise InvalidParameter(
            f"X and {what} have inconsistent numbers of samples: {what} must have one entry per row of X."
        )
    return found


def numbers_of(cells: Cells, what: str, total: bool) -> NDArray[np.float64]:
    """The cells as numbers; what is none is refused unless `total`."""
    found = np.asarray(cells.numbers(), np.float64)
    if not total and not np.isfinite(found).all():
        raise InvalidParameter(
            f"Input {what} contains NaN, infinity or a value too large for dtype('float64'); nothing is released, and "
            "what a ledger was charged stays charged. bad_rows='zero' has a rule for such rows."
        )
    return found


def check_label_type(numeric: bool, labels: Iterable[str]) -> None:
    """Refuse a column whose type (public, as its name is) holds numbers only, where no class is a number.

    A list or a column of objects states no type, and its cells are private: nothing is said about them.
    """
    labels = list(labels)
    if numeric and not any(shortest(number(word)) == word for word in labels):
        shown = ", ".join(map(repr, labels[:2]))
        raise InvalidParameter(
            f"no label of y can be one of the classes ({shown}{', ...' if len(labels) > 2 else ''}): y is a column of "
            "numbers, so that every record would count as the first class; state the classes as y holds them, e.g. "
            "classes=[0, 1]. Nothing was charged."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Outline:
    """What is public of the records that a fit was given; their cells are read after the charge.

    Parameters
    ----------
    X, y, weights : as they were given; large data stay away. shape : number of rows and of encoded columns.
    weighted : whether records have weights. labels : those of y where the classes are not stated, which is a condition.
    """

    X: Any
    y: Any
    weights: Any
    shape: tuple[int, int]
    weighted: bool
    labels: Any = None

    def check(self, problem: Problem, encode: TargetEncoder) -> None:
        """Refuse what is publicly wrong about these records for this problem."""
        check_size(self.shape, problem)
        if isinstance(self.X, LargeData) and isinstance(encode, LabelEncoder):
            check_label_type(self.X.numeric_targets(), encode.labels)


def public_shape(X: Any) -> tuple[int, int]:
    """Rows and columns of a table without a schema, from its container: no cell is read.

    A list states its columns by the length of its first row; a container that states no shape is made an array first.
    """
    refuse_masks(X)
    if isinstance(X, Table):
        return len(X), len(X.names)
    names = getattr(X, "column_names", getattr(X, "columns", None))  # Arrow's columns are cells
    if names is not None:
        unique_names(names)
        rows = len(X) if hasattr(X, "__len__") else len(table_of(X))
        return rows, len(names)
    plain = isinstance(X, str | bytes | Mapping) and not issparse(X)  # a dictionary of keys is both
    if plain or not (hasattr(X, "__len__") or hasattr(X, "__array__") or issparse(X)):
        raise BadCells(NO_TABLE.format(type(X).__name__))
    shape: Any = getattr(X, "shape", None)
    if shape is None and not isinstance(X, list | tuple) and hasattr(X, "__array__"):
        shape = np.shape(matrix_of(X))
    if shape is None:
        widths = (
            len(row) for row in X if hasattr(row, "__len__") and not isinstance(row, str | bytes | Mapping)
        )
        width = next(widths, None)
        shape = (len(X),) if width is None else (len(X), width)
    if len(shape) != 2:  # scikit-learn's own words would show the cells
        raise InvalidParameter(TWO_DIMENSIONS.format(len(shape)))
    return int(shape[0]), int(shape[1])


def outline_features(model: DPLinearModel, X: Any) -> tuple[int, int]:
    """The shape of rows of numbers, without a schema; what is publicly wrong with their container is refused."""
    total = model._bad_rows() == "zero"
    if total and isinstance(X, list | tuple):
        raise InvalidParameter(LIST_WITHOUT_WIDTH)
    if getattr(getattr(X, "dtype", None), "kind", "") == "c" and not total:
        raise InvalidParameter(COMPLEX_DATA)
    shape = public_shape(X)
    check_array(  # zeros of this shape: too few rows or columns in scikit-learn's words
        np.broadcast_to(np.float64(0.0), shape),
        estimator=model,
        input_name="X",
        ensure_all_finite=False,
        ensure_min_samples=0 if total and model.n is not None else 1,
    )
    named = np.broadcast_to(np.float64(0.0), shape) if isinstance(X, Table) else X
    validate_data(model, named, reset=True, skip_check_array=True)
    return shape


def check_column(given: Any, rows: int, what: str) -> None:
    """Refuse targets or weights that are not one for each row, from their container: no cell is read."""
    if given is None or isinstance(given, str) or not hasattr(given, "__len__"):
        column(given, rows, what)
        return
    found = cells_of(given, what) if isinstance(given, np.ndarray) else given
    if len(found) != rows:
        column(given, rows, what)


class TargetEncoder(ABC):
    """Turns targets, private and public ones, into what the problem sees, each by itself; it travels to the records."""

    n_classes: int | None
    class_weights: tuple[float, ...] | None = None

    @abstractmethod
    def __call__(self, values: Any) -> Floats:
        """The targets of these cells."""

    def row_weights(self, labels: Floats, weights: Any) -> Any:
        """The weight of each record, times that of its class where classes have some."""
        return weights


@dataclass(frozen=True, kw_only=True)
class LabelEncoder(TargetEncoder):
    """Indices of the labels; those outside the list, and missing ones, count as the first class.

    classes : the labels as they were stated, in order. labels : the index of each by its one reading.
    """

    classes: NDArray[Any] = field(compare=False)
    labels: Any
    text: bool
    n_classes: int
    class_weights: tuple[float, ...] | None = None
    weight_bound: float = 1.0

    def __call__(self, values: Any) -> Floats:
        codes = cells_of(values, "y").codes(self.labels, text=self.text)
        return np.maximum(codes, 0).astype(float)

    def row_weights(self, labels: Floats, weights: Any) -> Any:
        """The weight of each record, at most weight_bound, times that of its class."""
        if self.class_weights is None:
            return weights
        own = np.asarray(self.class_weights)[labels.astype(int)]
        if weights is None:
            return own * min(self.weight_bound, 1.0)
        return own * np.clip(np.asarray(weights, float), 0.0, self.weight_bound)


@dataclass(frozen=True, kw_only=True)
class RangeEncoder(TargetEncoder):
    """(y - centre) / half for targets in their range; where `total`, a missing one is the middle."""

    low: float
    high: float
    centre: float
    half: float
    total: bool
    n_classes: None = field(default=None, init=False)

    def __call__(self, values: Any) -> Floats:
        numbers = np.asarray(cells_of(values, "y").numbers(), np.float64)
        if self.total:
            numbers = np.where(np.isnan(numbers), (self.low + self.high) / 2, numbers)
        return np.asarray((np.clip(numbers, self.low, self.high) - self.centre) / self.half)


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

    @property
    def numeric_targets(self) -> bool:
        return self._source.numeric_targets

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

    def dataset(self, problem: Problem, encode: TargetEncoder) -> Dataset:
        """The records, clipped to the problem's bounds."""
        if isinstance(encode, LabelEncoder):
            check_label_type(self.numeric_targets(), encode.labels)
        if self._source is not None:
            return ScratchDataset(self._source, problem, encode)
        return DaskDataset(
            self.given, self._y, problem, self._weights, encode=encode, encode_rows=self._encode_rows
        )

    def numeric_targets(self) -> bool:
        """Whether the files, or the collection, state a type of numbers for the targets."""
        if self._source is not None:
            return self._source.numeric_targets
        kinds = self.given.dtypes[self._y] if isinstance(self._y, str) else getattr(self._y, "dtype", None)
        return getattr(kinds, "kind", "O") in "biuf"


def large(X: Any, y: Any, weights: Any = None, schema: Any = None) -> LargeData | None:
    """The data when they are not to be read into memory; y and weights are then columns' names, or as X is.

    A memory-mapped array of moderate size is read like any other; the result is the same.
    """
    if isinstance(X, np.ndarray) and X.nbytes < MAPPED_BYTES:
        return None
    if is_dask(X):
        return LargeData(X, None, y, weights, schema)
    source = source_of(X, y, weights)
    if source is None:
        return None
    return LargeData(X, source if schema is None else EncodedSource(source, schema))


def dataset_of(
    X: Any, y: Any, problem: Problem, encode: TargetEncoder, weights: Floats | None = None
) -> Dataset:
    """The records wherever they are, targets encoded, clipped to the problem's bounds."""
    if isinstance(X, LargeData):
        return X.dataset(problem, encode)
    labels = encode(y)
    if encode.class_weights is not None:
        weights = encode.row_weights(labels, weights)
    return ArrayDataset(X, labels, problem, weights)
