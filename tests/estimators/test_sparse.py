"""Sparse rows are read as the dense ones they stand for, each by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix

from dplangevin import DPLogisticRegression, DPModelSearch, InvalidParameter
from dplangevin.estimators._reading import to_dense
from dplangevin.estimators.model_search import read_outlined_records

STATED: dict[str, Any] = {"epsilon": 2.0, "data_norm": 1.0, "classes": [False, True], "random_state": 0}


def rows(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.random((300, 5)) * (rng.random((300, 5)) < 0.3)


def twice(table: np.ndarray) -> csr_array:
    """Every entry in two parts, in the wrong order."""
    places, values, ends = [], [], [0]
    for row in table:
        for column in np.flatnonzero(row)[::-1]:
            places += [column, column]
            values += [0.25 * row[column], 0.75 * row[column]]
        ends.append(len(places))
    return csr_array((np.array(values), np.array(places), np.array(ends)), shape=table.shape)


def test_any_form_of_the_same_rows_gives_the_same_fit() -> None:
    table = rows()
    y = table.sum(axis=1) > 0.5
    wanted = DPLogisticRegression(**STATED).fit(table, y)
    for form in (csr_array, csr_matrix, csc_array, coo_array, twice):
        found = DPLogisticRegression(**STATED).fit(form(table), y)
        np.testing.assert_array_equal(found.coef_, wanted.coef_)
        np.testing.assert_array_equal(found.predict_proba(form(table)), wanted.predict_proba(table))


@pytest.mark.parametrize("dtype", [np.int8, np.int64, bool, np.float32])
def test_types(dtype: Any) -> None:
    table = (rows() > 0).astype(dtype)
    np.testing.assert_array_equal(to_dense(csr_array(table)), table)
    small = coo_array((np.full(4, 100, np.int8), ([0] * 4, [0] * 4)), shape=(1, 1))
    assert to_dense(small)[0, 0] == 400.0  # in eight bits the sum would wrap around


def test_an_entry_outside_the_columns_touches_its_own_row_only() -> None:
    """Written where its index says it would be a number of another record."""
    table = rows()
    y = table.sum(axis=1) > 0.5
    odd = csr_array(table)
    odd.indices[odd.indptr[7]] = 9
    if odd.indptr[7] == odd.indptr[8]:
        pytest.fail("row 7 must hold an entry")
    read = to_dense(odd)
    assert np.isnan(read[7]).all()
    np.testing.assert_array_equal(np.delete(read, 7, axis=0), np.delete(table, 7, axis=0))
    zeroed = table.copy()
    zeroed[7] = 0.0
    found, wanted = (DPLogisticRegression(**STATED, bad_rows="zero").fit(X, y).coef_ for X in (odd, zeroed))
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(ValueError, match="NaN"):
        DPLogisticRegression(**STATED).fit(odd, y)


def test_missing_cells_and_empty_rows() -> None:
    table = rows()
    table[3] = 0.0
    table[5, 1] = np.nan
    y = np.nan_to_num(table).sum(axis=1) > 0.5
    found, wanted = (
        DPLogisticRegression(**STATED, bad_rows="zero").fit(X, y).coef_ for X in (csr_array(table), table)
    )
    np.testing.assert_array_equal(found, wanted)


def test_cells_are_not_shown_when_the_shape_is_wrong() -> None:
    with pytest.raises(InvalidParameter, match="Expected 2D array") as error:
        DPLogisticRegression(**STATED).fit(np.array([0.123456, 0.2]), [True, False])
    assert "0.123" not in str(error.value)


def test_a_search_reads_sparse_rows_each_by_itself() -> None:
    """An index beyond the columns would fall into the next record's row."""
    table = rows() + 0.1
    odd = csr_array(table)
    odd.indices[odd.indptr[7]] = 5
    search = DPModelSearch(DPLogisticRegression(**STATED), {"alpha": [None]}, epsilon=1.0, delta=1e-6)
    labels = table.sum(axis=1) > 1
    records = read_outlined_records(search._outline_records(odd, labels, None, [{}]), odd, labels, None)
    read = np.column_stack([records.data.column(name).numbers() for name in records.feature_names])
    others = np.arange(300) != 7
    np.testing.assert_array_equal(read[others], table[others])
    assert np.isnan(read[7]).all()
