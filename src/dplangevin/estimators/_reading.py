"""What `fit` and `predict` do with tables in memory: everything is read in the reading room, record by record."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_array, validate_data

from dplangevin.data.dask import is_dask
from dplangevin.errors import InvalidParameter
from dplangevin.tables import Cells, Table, cells_of, matrix_of, table_of

if TYPE_CHECKING:
    from dplangevin.estimators._base import DPLinearModel


class BadCells(InvalidParameter, TypeError):
    """Some cell of X is no number, and bad_rows is "refuse"."""


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
        raise InvalidParameter(
            "bad_rows='zero' (which a strict data set implies) needs a public number of columns, and a list leaves it "
            "to its rows: give an array or a DataFrame, e.g. numpy.array(X, dtype=object), or state a schema."
        )
    X = X.matrix() if isinstance(X, Table) else X
    X = dense(X) if issparse(X) else X
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind == "c" and not total:
        raise InvalidParameter("Complex data not supported: X must hold real numbers.")
    numbers = finite_rows(matrix_of(X), total)
    if getattr(numbers, "ndim", 2) == 1:  # scikit-learn's own words would show the cells
        raise InvalidParameter(
            "Expected 2D array, got 1D array instead: X needs a row for each record. Reshape your data with "
            "X.reshape(-1, 1) if there is a single feature, X.reshape(1, -1) if there is a single record."
        )
    loose = isinstance(numbers, np.ndarray) and numbers.dtype.kind == "f" and kind in "OUS" and not total
    if loose and not np.isfinite(numbers).all():
        raise BadCells(
            "X holds NaN, infinity or a cell that is no number: every argument must be a string of a number or a "
            "real number. bad_rows='zero' reads such a row as the zero row."
        )
    least = (
        0 if total and reset and model.n is not None else 1
    )  # how many are left of a private number is private
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


def finite_rows(numbers: Any, total: bool) -> Any:
    """The rows, those with a cell that is no finite number as zero rows."""
    if (
        not total
        or not isinstance(numbers, np.ndarray)
        or numbers.ndim != 2
        or numbers.dtype.kind not in "biuf"
    ):
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
            f"Input {what} contains NaN, infinity or a value too large for dtype('float64'); it is refused before "
            "anything is charged or released."
        )
    return found
