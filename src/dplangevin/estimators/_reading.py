"""Reading of the arguments of `fit` and `predict`, record by record, so that no record changes how another is read.

Files, large memory-mapped arrays and Dask collections are not read before a run is planned.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_array, validate_data

from dplangevin._arrays import Floats
from dplangevin.accounting.guarantee import Condition
from dplangevin.data import ArrayDataset, ArrowSource, Dataset, RecordSource, ScratchDataset
from dplangevin.data.dask import DaskDataset, connect_client, is_dask
from dplangevin.data.dataset import check_shape
from dplangevin.data.integer_grids import RowGrid
from dplangevin.data.sources import RecordBatch, make_source
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.call_context import in_pipeline
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema
from dplangevin.problem import Problem
from dplangevin.tables import (
    CellColumn,
    Table,
    TableFiles,
    as_column,
    as_matrix,
    as_table,
    is_frame,
    is_streamed,
    read_number,
    shortest_text,
)
from dplangevin.tables.frames import check_unique_names, refuse_masked_array
from dplangevin.tables.lazy import copy_lazy_table, is_lazy_table, query_condition

if TYPE_CHECKING:
    from dplangevin.estimators._base import DPLinearModel

MIN_OUT_OF_MEMORY_BYTES = 1 << 28
UNBOUNDED_WEIGHTS_MESSAGE = (
    "sample_weight is given without weight_bound: weights above 1 are clipped to 1. State weight_bound, from public "
    "knowledge."
)


class BadCells(InvalidParameter, TypeError):
    """Raised when a cell of X is not a number and bad_rows is "refuse"."""


LIST_WITHOUT_WIDTH_MESSAGE = (
    "bad_rows='zero' (which a strict data set implies) needs a public number of columns, which in a list depends on "
    "the rows: pass an array or a DataFrame, e.g. numpy.array(X, dtype=object), or state a schema."
)
COMPLEX_DATA_MESSAGE = "Complex data not supported: X must hold real numbers."
TWO_DIMENSIONS_MESSAGE = (
    "Expected 2D array, got {}D array instead: X needs a row for each record. Reshape your data with X.reshape(-1, "
    "1) if there is a single feature, X.reshape(1, -1) if there is a single record."
)
NOT_A_TABLE_MESSAGE = (
    "X must be a table of numbers (every cell a string of a number or a real number), got {}."
)


def is_table(X: Any) -> bool:
    """Whether X is a table in memory with named columns."""
    return is_frame(X) and not is_dask(X) and not is_streamed(X)


@contextmanager
def open_computed_records(model: Any, X: Any, y: Any) -> Iterator[Any]:
    """Yield X for a fit: a query or a lazy frame as a copy of its rows, a dictionary of columns as a table.

    While the model fits, it has the condition that the query computes each row from one record.
    """
    if isinstance(X, Mapping) and is_frame(X):
        yield as_table(X)
        return
    text = query_condition(X) if is_lazy_table(X) else getattr(X, "condition", None)
    conditions = () if text is None else (Condition(kind="upstream-steps", text=text),)
    if conditions and model._has_strict_ledger():  # before the query is computed
        raise InvalidParameter(
            f"this data set is strict, and the guarantee would be {conditions[0]}. Name a stored table instead. "
            "Nothing was charged."
        )
    if is_lazy_table(X):
        X = copy_lazy_table(X)
        if isinstance(X, TableFiles) and not isinstance(y, str):
            X = X.read_table()  # targets in memory belong to rows in memory
    with in_pipeline(model, conditions) if conditions else nullcontext():
        yield X


def split_named_columns(X: Any, y: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return a table in memory without the columns that y and the weights name, and those columns."""
    if not isinstance(y, str) and not isinstance(weights, str):
        return X, y, weights
    table = as_table(X)
    targets = table.column(y) if isinstance(y, str) else y
    row_weights = table.column(weights) if isinstance(weights, str) else weights
    names = [name for name in (y, weights) if isinstance(name, str)]
    return table.drop_columns(*names), targets, row_weights


def read_features(model: DPLinearModel, X: Any, reset: bool) -> NDArray[Any]:
    """Return rows of finite numbers, without a schema; a bad cell raises, or makes its row the zero row."""
    zeroes_bad_rows = model._bad_row_rule() == "zero"
    if zeroes_bad_rows and reset and isinstance(X, list | tuple):
        raise InvalidParameter(LIST_WITHOUT_WIDTH_MESSAGE)
    if is_lazy_table(X) or (isinstance(X, Mapping) and is_frame(X)):
        X = _select_fitted_columns(model, as_table(X), reset)
    X = X.to_matrix() if isinstance(X, Table) else X
    X = to_dense(X) if issparse(X) else X
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind == "c" and not zeroes_bad_rows:
        raise InvalidParameter(COMPLEX_DATA_MESSAGE)
    width = model.n_features_in_ if zeroes_bad_rows and not reset and isinstance(X, list | tuple) else None
    try:
        numbers = zero_nonfinite_rows(as_matrix(X, width)) if zeroes_bad_rows else as_matrix(X)
    except InvalidParameter:
        raise
    except Exception:  # raised by a user's container; its message may quote a private value
        raise BadCells(NOT_A_TABLE_MESSAGE.format(type(X).__name__)) from None
    if getattr(numbers, "ndim", 2) != 2:  # scikit-learn's own message would show cells
        raise InvalidParameter(TWO_DIMENSIONS_MESSAGE.format(numbers.ndim))
    if isinstance(numbers, bytes):
        raise BadCells(NOT_A_TABLE_MESSAGE.format("bytes"))
    is_from_text = isinstance(numbers, np.ndarray) and numbers.dtype.kind == "f" and kind in "OUS"
    if is_from_text and not zeroes_bad_rows and not np.isfinite(numbers).all():
        raise BadCells(
            "X holds NaN, infinity or a cell that is not a number: every argument must be a string of a number or a "
            "real number. bad_rows='zero' reads such a row as the zero row; what a ledger was charged stays charged."
        )
    # With n_public the number of rows is private, so that even an empty table must not raise.
    min_samples = 0 if reset and model.n_public is not None else 1
    rows = check_array(
        numbers,
        dtype=[np.float64, np.float32],
        estimator=model,
        input_name="X",
        ensure_all_finite=not zeroes_bad_rows,
        ensure_min_samples=min_samples,
    )
    validate_data(model, X, reset=reset, skip_check_array=True)
    return np.asarray(rows)


def _select_fitted_columns(model: DPLinearModel, table: Table, reset: bool) -> Table:
    """Return the columns on which the model was fitted, in that order, where their names are known."""
    names = None if reset else getattr(model, "feature_names_in_", None)
    return table if names is None else table.select_columns(*map(str, names))


def to_dense(X: Any) -> NDArray[Any]:
    """Return a sparse matrix as an array: duplicate entries are summed, and every row is read by itself.

    An entry outside the columns, which SciPy does not check, would fall into another record's row; instead its own
    row becomes NaN.
    """
    if X.ndim != 2 or X.dtype.kind not in "biufc":
        raise InvalidParameter("a sparse X must be a matrix of numbers.")
    if X.format == "csr":
        row, column, data = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices, X.data
    else:
        entries = X.tocoo()
        row, column, data = entries.row, entries.col, entries.data
    is_inside = (column >= 0) & (column < X.shape[1])
    wide: Any = np.complex128 if X.dtype.kind == "c" else np.float64
    rows = np.zeros(X.shape, np.float32 if X.dtype == np.float32 else wide)
    with np.errstate(all="ignore"):
        np.add.at(rows, (row[is_inside], column[is_inside]), data[is_inside])
    rows[row[~is_inside]] = np.nan
    return rows


def zero_nonfinite_rows(numbers: Any) -> Any:
    """Return the rows, with those that have a nonfinite cell set to zero."""
    if not isinstance(numbers, np.ndarray) or numbers.ndim != 2 or numbers.dtype.kind not in "biuf":
        return numbers
    bad = ~np.isfinite(numbers).all(axis=1)
    if not bad.any():
        return numbers
    cleaned = numbers.copy()
    cleaned[bad] = 0
    return cleaned


def read_column(argument: Any, rows: int, name: str) -> CellColumn:
    """Return targets or weights as a column with one cell for each row; raise for another length."""
    if argument is None:
        raise InvalidParameter(f"this estimator requires {name} to be passed, but the target {name} is None.")
    if isinstance(argument, np.ndarray) and argument.ndim == 2 and argument.shape[1] == 1:
        warnings.warn(
            f"A column-vector {name} was passed when a 1d array was expected.",
            DataConversionWarning,
            stacklevel=2,
        )
    cells = as_column(argument, name)
    if len(cells) != rows:
        raise InvalidParameter(
            f"X and {name} have inconsistent numbers of samples: {name} must have one entry per row of X."
        )
    return cells


def read_numbers(cells: CellColumn, name: str, accept_nonfinite: bool) -> NDArray[np.float64]:
    """Return the cells as numbers; raise for a nonfinite one unless `accept_nonfinite`."""
    numbers = np.asarray(cells.numbers(), np.float64)
    if not accept_nonfinite and not np.isfinite(numbers).all():
        raise InvalidParameter(
            f"Input {name} contains NaN, infinity or a value too large for dtype('float64'); nothing is released, "
            "and what a ledger was charged stays charged. bad_rows='zero' has a rule for such rows."
        )
    return numbers


def check_label_type(numeric: bool, labels: Iterable[str]) -> None:
    """Raise if the declared type of a column (public, like its name) is numeric and no class is a number.

    A list or a column of objects declares no type, and its cells are private, so nothing is checked there.
    """
    labels = list(labels)
    if numeric and not any(shortest_text(read_number(label)) == label for label in labels):
        shown = ", ".join(map(repr, labels[:2]))
        raise InvalidParameter(
            f"no label of y can be one of the classes ({shown}{', ...' if len(labels) > 2 else ''}): y is a column "
            "of numbers, so that every record would count as the first class; state the classes as they are in y, "
            "e.g. classes=[0, 1]. Nothing was charged."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Outline:
    """Public description of the records passed to `fit`; their cells are read after the charge.

    Parameters
    ----------
    X, y, weights : the arguments of `fit`, unread.
    shape : number of rows and of encoded columns.
    weighted : whether records have weights.
    labels : those of y where the classes are not stated, which is a condition of the guarantee.
    """

    X: Any
    y: Any
    weights: Any
    shape: tuple[int, int]
    weighted: bool
    labels: Any = None

    def check(self, problem: Problem, encode: TargetEncoder) -> None:
        """Raise if these records publicly do not match the problem."""
        check_shape(self.shape, problem)
        if isinstance(self.X, OutOfMemoryData) and isinstance(encode, LabelEncoder):
            check_label_type(self.X.numeric_targets(), encode.labels)


def public_shape(X: Any) -> tuple[int, int]:
    """Return the numbers of rows and columns of a table without a schema, from its container; no cell is read.

    The number of columns of a list is the length of its first row; a container without a shape is converted first.
    """
    refuse_masked_array(X)
    if isinstance(X, Table):
        return len(X), len(X.names)
    names = getattr(X, "column_names", getattr(X, "columns", None))  # Arrow's columns are cells
    if names is not None:
        check_unique_names(names)
        rows = len(X) if hasattr(X, "__len__") else len(as_table(X))
        return rows, len(names)
    # SciPy's sparse dictionary of keys is a Mapping too.
    is_not_table = isinstance(X, str | bytes | Mapping) and not issparse(X)
    if is_not_table or not (hasattr(X, "__len__") or hasattr(X, "__array__") or issparse(X)):
        raise BadCells(NOT_A_TABLE_MESSAGE.format(type(X).__name__))
    shape: Any = getattr(X, "shape", None)
    if shape is None and not isinstance(X, list | tuple) and hasattr(X, "__array__"):
        shape = np.shape(as_matrix(X))
    if shape is None:
        widths = (
            len(row) for row in X if hasattr(row, "__len__") and not isinstance(row, str | bytes | Mapping)
        )
        width = next(widths, None)
        shape = (len(X),) if width is None else (len(X), width)
    if len(shape) != 2:  # scikit-learn's own message would show cells
        raise InvalidParameter(TWO_DIMENSIONS_MESSAGE.format(len(shape)))
    return int(shape[0]), int(shape[1])


def outline_features(model: DPLinearModel, X: Any) -> tuple[int, int]:
    """Return the shape of rows of numbers, without a schema; raise if their container is publicly invalid."""
    zeroes_bad_rows = model._bad_row_rule() == "zero"
    if zeroes_bad_rows and isinstance(X, list | tuple):
        raise InvalidParameter(LIST_WITHOUT_WIDTH_MESSAGE)
    if getattr(getattr(X, "dtype", None), "kind", "") == "c" and not zeroes_bad_rows:
        raise InvalidParameter(COMPLEX_DATA_MESSAGE)
    shape = public_shape(X)
    check_array(  # zeros of this shape, for scikit-learn's own errors about too few rows or columns
        np.broadcast_to(np.float64(0.0), shape),
        estimator=model,
        input_name="X",
        ensure_all_finite=False,
        ensure_min_samples=0 if model.n_public is not None else 1,
    )
    features = np.broadcast_to(np.float64(0.0), shape) if isinstance(X, Table) else X
    validate_data(model, features, reset=True, skip_check_array=True)
    return shape


def check_column(column: Any, rows: int, what: str) -> None:
    """Raise unless targets or weights are one for each row, from their container; no cell is read."""
    if column is None or isinstance(column, str) or not hasattr(column, "__len__"):
        read_column(column, rows, what)
        return
    cells = as_column(column, what) if isinstance(column, np.ndarray) else column
    if len(cells) != rows:
        read_column(column, rows, what)


class TargetEncoder(ABC):
    """Encoder from targets to the labels of the problem, each by itself; picklable, so that workers can apply it."""

    n_classes: int | None
    class_weights: tuple[float, ...] | None = None

    @abstractmethod
    def __call__(self, values: Any) -> Floats:
        """Return the labels of these cells."""

    def row_weights(self, labels: Floats, weights: Any) -> Any:
        """Return the weight of each record, times its class weight where there are class weights."""
        return weights


@dataclass(frozen=True, kw_only=True)
class LabelEncoder(TargetEncoder):
    """Encoder from labels to class indices; unlisted and missing labels count as the first class.

    Parameters
    ----------
    classes : the stated labels, in order.
    labels : index of each class by its canonical label.
    text : whether labels are compared character by character.
    n_classes : number of classes.
    class_weights : in the order of the classes, or None.
    weight_bound : bound to which sample weights are clipped before they are multiplied by class weights.
    """

    classes: NDArray[Any] = field(compare=False)
    labels: Any
    text: bool
    n_classes: int
    class_weights: tuple[float, ...] | None = None
    weight_bound: float = 1.0

    def __call__(self, values: Any) -> Floats:
        codes = as_column(values, "y").codes(self.labels, text=self.text)
        return np.maximum(codes, 0).astype(float)

    def row_weights(self, labels: Floats, weights: Any) -> Any:
        """Return the weight of each record, clipped to weight_bound, times its class weight."""
        if self.class_weights is None:
            return weights
        class_weights = np.asarray(self.class_weights)[labels.astype(int)]
        if weights is None:
            return class_weights * min(self.weight_bound, 1.0)
        return class_weights * np.clip(np.asarray(weights, float), 0.0, self.weight_bound)


@dataclass(frozen=True, kw_only=True)
class RangeEncoder(TargetEncoder):
    """Encoder (y - center) / half_range for targets clipped to [low, high].

    With `accepts_missing`, a missing target is read as the middle of the range.
    """

    low: float
    high: float
    center: float
    half_range: float
    accepts_missing: bool
    n_classes: None = field(default=None, init=False)

    def __call__(self, values: Any) -> Floats:
        numbers = np.asarray(as_column(values, "y").numbers(), np.float64)
        if self.accepts_missing:
            numbers = np.where(np.isnan(numbers), (self.low + self.high) / 2, numbers)
        return np.asarray((np.clip(numbers, self.low, self.high) - self.center) / self.half_range)


@final
class EncodedSource(RecordSource):
    """Records of files, encoded by a public schema as they are read; each row's encoding depends on that row only."""

    def __init__(self, source: RecordSource, schema: Any) -> None:
        if not isinstance(source, ArrowSource):
            raise InvalidParameter(
                "a schema encodes columns by name: pass Parquet, Arrow or text files, not arrays."
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
    def has_weights(self) -> bool:
        return self._source.has_weights

    @property
    def has_numeric_targets(self) -> bool:
        return self._source.has_numeric_targets

    def records(self) -> Iterator[RecordBatch]:
        for table, targets, weights in self._source.batches(self._columns):
            yield RecordBatch(self._encoder.transform(table), targets, weights)


@final
class OutOfMemoryData:
    """Features and targets outside memory, with a public shape; no record is read before the run is planned.

    Parameters
    ----------
    original : the argument X of `fit`.
    source : of the records, or None when they are on Dask.
    y, weights : Dask collections, or names of columns.
    schema : encodes the tables of a Dask DataFrame.
    """

    def __init__(
        self,
        original: Any,
        source: RecordSource | None = None,
        y: Any = None,
        weights: Any = None,
        schema: Any = None,
    ) -> None:
        self.original, self._source, self._y, self._weights = original, source, y, weights
        self._encode_rows: Callable[[Any], Any] | None = None
        self.has_weights = weights is not None if source is None else source.has_weights
        if source is not None:
            self.shape = source.shape
            return
        connect_client(None)
        if schema is not None:
            as_schema(schema).validate(map(str, getattr(original, "columns", ())))
            encoder = SchemaEncoder(schema)
            self._encode_rows, columns = encoder.transform, len(encoder.get_feature_names_out())
        elif hasattr(original, "columns"):
            columns = len(original.columns) - isinstance(y, str) - isinstance(weights, str)
        else:
            columns = int(original.shape[1])
        self.shape = len(original), columns

    def __len__(self) -> int:
        return self.shape[0]

    def build_dataset(
        self, problem: Problem, target_encoder: TargetEncoder, grid: RowGrid | None = None
    ) -> Dataset:
        """Return the records, clipped to the problem's bounds; those of files on the grid, if one is given."""
        if isinstance(target_encoder, LabelEncoder):
            check_label_type(self.numeric_targets(), target_encoder.labels)
        if self._source is not None:
            return ScratchDataset(self._source, problem, target_encoder, grid=grid)
        return DaskDataset(
            self.original,
            self._y,
            problem,
            self._weights,
            encode=target_encoder,
            encode_rows=self._encode_rows,
        )

    def numeric_targets(self) -> bool:
        """Whether the files, or the collection, declare a numeric type for the targets."""
        if self._source is not None:
            return self._source.has_numeric_targets
        kinds = self.original.dtypes[self._y] if isinstance(self._y, str) else getattr(self._y, "dtype", None)
        return getattr(kinds, "kind", "O") in "biuf"


def open_large_data(X: Any, y: Any, weights: Any = None, schema: Any = None) -> OutOfMemoryData | None:
    """Return the data if they should not be read into memory, else None.

    y and weights are then column names, or collections like X. A memory-mapped array of moderate size is read like
    any other; the result is the same.
    """
    if isinstance(X, np.ndarray) and X.nbytes < MIN_OUT_OF_MEMORY_BYTES:
        return None
    if is_dask(X):
        return OutOfMemoryData(X, None, y, weights, schema)
    source = make_source(X, y, weights)
    if source is None:
        return None
    return OutOfMemoryData(X, source if schema is None else EncodedSource(source, schema))


def build_dataset(
    X: Any,
    y: Any,
    problem: Problem,
    target_encoder: TargetEncoder,
    weights: Floats | None = None,
    grid: RowGrid | None = None,
) -> Dataset:
    """Return the records, wherever they are, with encoded targets, clipped to the problem's bounds.

    grid : rows of arrays and files are rounded to it at once; others stay as they are.
    """
    if isinstance(X, OutOfMemoryData):
        return X.build_dataset(problem, target_encoder, grid)
    labels = target_encoder(y)
    if target_encoder.class_weights is not None:
        weights = target_encoder.row_weights(labels, weights)
    return ArrayDataset(X, labels, problem, weights, grid=grid)
