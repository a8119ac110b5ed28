"""One odd record in a list, a sparse matrix or an array of objects raises nothing, and moves nobody else."""

from __future__ import annotations

import gzip
import itertools
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pytest
import scipy.sparse as sp

from dplangevin import DPLogisticRegression, DPRidge, private_score, private_selection
from dplangevin.data import ArrayDataset, ArrowSource
from dplangevin.errors import InvalidParameter
from dplangevin.estimators import _raw_table
from dplangevin.estimators._raw_table import PersonCodes, select_dask_rows, select_file_rows
from dplangevin.ledger import Ledger
from dplangevin.problem import DataBounds, Huber, Problem
from dplangevin.tables import TableFiles, as_column, as_matrix, as_table, read_number

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (60, 2))
Y = (X[:, 0] > 0).astype(int)
PLACE = 4


class Loud(float):
    """A number that quotes itself."""

    def __float__(self) -> float:
        raise RuntimeError(f"SECRET {float.__repr__(self)}")


def with_row(row: Any) -> list[Any]:
    rows: list[Any] = X.tolist()
    rows[PLACE] = row
    return rows


def sparse(kind: Any = float, **changes: Any) -> Any:
    matrix = sp.csr_array(X.astype(kind))
    matrix.indices, matrix.data = matrix.indices.copy(), matrix.data.copy()
    for name, (place, value) in changes.items():
        getattr(matrix, name)[place] = value
    return matrix


def twice(value: float, other: float) -> Any:
    """The record's two entries in one place."""
    matrix = sparse(indices=(2 * PLACE + 1, 0))
    matrix.data[2 * PLACE : 2 * PLACE + 2] = value, other
    return matrix


def with_cell(cell: Any) -> Any:
    table = X.astype(object)
    table[PLACE, 1] = cell
    return table


ODD = {
    "short row": lambda: with_row([0.5]),
    "no row": lambda: with_row(7.0),
    "text for a row": lambda: with_row("SECRET"),
    "sparse NaN": lambda: sparse(data=(2 * PLACE, np.nan)),
    "sparse beyond": lambda: sparse(indices=(2 * PLACE, 9)),
    "complex beyond": lambda: sparse(complex, indices=(2 * PLACE, 2)),
    "sparse overflow": lambda: twice(1.7e308, 1.7e308),
    "sparse infinities": lambda: twice(np.inf, -np.inf),
    "loud number": lambda: with_cell(Loud(3.0)),
    "wider than a double": lambda: np.where(
        np.arange(60)[:, None] == PLACE, np.longdouble(10) ** 400, X.astype(np.longdouble)
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_one_odd_record_moves_a_score_by_its_share_and_tells_nothing(name: str, tmp_path: Path) -> None:
    """A strict data set's guarantee is about every data set."""
    model = DPLogisticRegression(epsilon=20.0, data_norm=2.0, classes=[0, 1], random_state=0).fit(X, Y)
    strict = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("s", epsilon=1e5, delta=1e-2, strict=True)
    plain = private_score(model, X, Y, epsilon=1e4, random_state=0).value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        odd = private_score(model, ODD[name](), Y, epsilon=1e4, random_state=0, ledger=strict).value
    assert abs(odd - plain) <= 1.01 / 60


@pytest.mark.parametrize("name", [name for name in ODD if "row" not in name])
def test_one_odd_record_is_the_zero_row_of_a_fit(name: str) -> None:
    zeroed = X.copy()
    zeroed[PLACE] = 0.0
    model = DPRidge(data_norm=2.0, target_bounds=(-1, 1), bad_rows="zero", random_state=0)
    expected = model.fit(zeroed, X[:, 0]).coef_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model.fit(ODD[name](), X[:, 0]).coef_, expected)


def test_a_list_of_rows_states_no_number_of_columns() -> None:
    """Where no record may raise, its rows cannot say how many columns there are; refused whatever they hold."""
    model = DPRidge(data_norm=2.0, target_bounds=(-1, 1), bad_rows="zero", random_state=0)
    for rows in (X.tolist(), with_row([0.5])):
        with pytest.raises(InvalidParameter, match="public number of columns"):
            model.fit(rows, X[:, 0])
    model.fit(X, X[:, 0])
    np.testing.assert_array_equal(model.predict(X.tolist()), model.predict(X))


def test_records_in_lists_keep_their_type_whatever_one_of_them_is() -> None:
    problem = Problem(
        loss=Huber(transition=0.5),
        n=60,
        n_features=2,
        bounds=DataBounds(data_norm=2.0, target=(-1, 1), bad_rows="zero"),
    )
    zeroed = X.copy()
    zeroed[PLACE] = 0.0
    targets: list[Any] = X[:, 0].tolist()
    labels = X[:, 0].copy()
    labels[PLACE] = 0.0
    at = np.zeros((3, 1))
    expected = ArrayDataset(zeroed, labels, problem).gradient_sum(problem.loss, at)
    for row in ([None, 1.0], ["?", "?"], [0.5], 7.0, [Loud(1.0), 0.0]):
        data = ArrayDataset(with_row(row), targets, problem)
        np.testing.assert_array_equal(data.gradient_sum(problem.loss, at), expected)
    weights: list[Any] = [1.0] * 60
    weights[PLACE] = "?"
    data = ArrayDataset(X, targets, problem, weights)
    assert np.isfinite(data.gradient_sum(problem.loss, at)).all()


def test_precision_of_a_list_does_not_depend_on_one_record() -> None:
    single = [np.float32(row) for row in X]
    assert as_matrix(single).dtype == as_matrix([*single[:-1], X[-1]]).dtype == np.float64
    assert as_matrix(X.astype(np.float32)).dtype == np.float32


def test_an_index_beyond_the_dictionary_is_its_own_cell_s(tmp_path: Path) -> None:
    """Neither Arrow nor its files look for one; it raised, or took the word of somebody else."""
    words = pa.array(["x", "5"])
    cells = pa.DictionaryArray.from_arrays(pa.array([0, 1, 7, -2], pa.int8()), words, safe=False)
    feather.write_feather(pa.table({"a": cells}), tmp_path / "t.feather", compression="uncompressed")
    for table in (as_table(pa.table({"a": cells})), TableFiles(tmp_path / "t.feather").read_table()):
        assert table.column("a").texts().tolist() == ["x", "5", None, None]
        np.testing.assert_array_equal(table.column("a").numbers(), [np.nan, 5, np.nan, np.nan])
        assert table.column("a").persons()[0].tolist()[2:] == [-1, -1]


def test_what_a_mask_hides_is_not_read() -> None:
    hidden = np.ma.array(X, mask=X > 0.5)
    model = DPRidge(data_norm=2.0, target_bounds=(-1, 1))
    for rows, targets in ((hidden, X[:, 0]), (X, hidden[:, 0])):
        with pytest.raises(InvalidParameter, match="masked"):
            model.fit(rows, targets)
    with pytest.raises(InvalidParameter, match="masked"):
        as_table(hidden, ["a", "b"])


@pytest.mark.parametrize(
    "cells",
    [
        [Decimal("1.00000000000000000001"), Decimal("1.00000000000000000002"), Decimal("2.5")],
        [Fraction(1, 3), Fraction(1, 3) + Fraction(1, 10**30), Fraction(5, 2)],
        np.array([1, 2, 2.5], np.longdouble) + np.array([1e-18, 1e-18, 0], np.longdouble),
    ],
)
def test_two_persons_never_share_a_double(cells: Any) -> None:
    """Who shares a code with somebody else takes places from their rows: then one person moves another's."""
    codes = PersonCodes().codes_of(as_column(cells, "person"))
    assert codes[0] == codes[1] == -1
    assert codes[2] >= 0
    assert PersonCodes().codes_of(as_column([Decimal("0.1"), "0.1", 0.1], "person")).tolist() == [0, 0, 0]


@pytest.mark.parametrize("first", ["1,2", '"1",2', "1", ""])
def test_a_mark_of_byte_order_inside_a_file_belongs_to_its_cell(first: str, tmp_path: Path) -> None:
    """Arrow takes such a mark from the first line it is given: which line that is depends on the others."""
    (tmp_path / "t.csv").write_text(f"a,b\n{first}\n\ufeff5,6\n", encoding="utf-8")
    table = TableFiles(tmp_path / "t.csv").read_table()
    assert [table.column(name).texts()[1] for name in "ab"] == ["\ufeff5", "6"]


def test_no_record_at_all_is_scored_where_their_number_is_private(tmp_path: Path) -> None:
    """The one record of a table may leave it; under replace-one that is a public mistake."""
    model = DPLogisticRegression(data_norm=2.0, classes=[0, 1], random_state=0).fit(X, Y)
    (tmp_path / "t.csv").write_text("x0,x1,y\n")
    strict = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare(
        "s", epsilon=1e3, delta=1e-2, strict=True, adjacency="add-remove"
    )
    options: dict[str, Any] = {"epsilon": 1.0, "adjacency": "add-remove", "ledger": strict}
    for rows, labels in ((X[:0], Y[:0]), (tmp_path / "t.csv", "y")):
        for metric in ("accuracy", "log-loss", "auc", "calibration"):
            assert 0 <= private_score(model, rows, labels, metric=metric, **options).value <= 5
        assert private_selection([model, model], rows, labels, **options).index in (0, 1)
        with pytest.raises(InvalidParameter, match="at least one"):
            private_score(model, rows, labels, epsilon=1.0)


class Speaking:
    """A container that quotes what it holds."""

    def __len__(self) -> int:
        return 2

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ValueError("SECRET")


@pytest.mark.parametrize("bad_rows", ["refuse", "zero"])
@pytest.mark.parametrize(
    "given",
    [
        np.full((2, 1, 1), "SECRET"),
        np.full((2, 1, 1), "SECRET", object),
        np.array("SECRET"),
        b"SECRET",
        Speaking(),
    ],
)
def test_errors_about_containers_quote_no_cell(given: Any, bad_rows: str) -> None:
    model = DPRidge(data_norm=2.0, target_bounds=(-1, 1), bad_rows=bad_rows)
    for rows, targets in ((given, [0.5, 0.5]), (X[:2], given)):
        with pytest.raises(InvalidParameter) as error:
            model.fit(rows, targets)
        assert "SECRET" not in str(error.value)
        assert error.value.__suppress_context__ or error.value.__context__ is None


LABELS: dict[str, Any] = {
    "array": Y,
    "booleans": Y > 0,
    "Series": pd.Series(Y),
    "nullable": pd.Series(Y, dtype="Int64"),
    "Arrow": pa.array(Y),
}


@pytest.mark.parametrize("name", LABELS)
def test_classes_that_a_column_of_numbers_cannot_hold_are_refused(name: str, tmp_path: Path) -> None:
    """The type of the column is public, as its name is; every record would have counted as the first class."""
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("s", epsilon=1e3, delta=1e-2)
    model = DPLogisticRegression(data_norm=2.0, classes=["fail", "pass"], ledger=budget, random_state=0)
    with pytest.raises(InvalidParameter, match=r"'fail', 'pass'.*column of numbers.*Nothing was charged"):
        model.fit(X, LABELS[name])
    pd.DataFrame({"x": X[:, 0], "y": Y}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InvalidParameter, match="column of numbers"):
        model.fit(tmp_path / "t.parquet", "y")
    assert budget.history() == ()
    model.set_params(ledger=None).fit(X, Y.tolist())  # a list states no type, and its cells are private


def test_a_strict_data_set_learns_nothing_from_the_type_of_labels_in_memory(tmp_path: Path) -> None:
    """One label among numbers may have made another type of the column: no error may depend on it."""
    strict = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("s", epsilon=1e3, delta=1e-2, strict=True)
    model = DPLogisticRegression(
        data_norm=2.0, classes=["fail", "pass"], bad_rows="zero", mechanism="noisy-gd", ledger=strict
    )
    for labels in (pd.Series(Y), pd.Series([*Y[:-1], "pass"], dtype=object)):
        model.fit(X, labels)


def test_a_number_that_quotes_itself_is_missing() -> None:
    assert np.isnan(read_number(Loud(3.0)))


TIMES = np.array(
    ["2026-01-01T00:00:00.000000001", "2026-01-01T00:00:00.000000002", "NaT", "2026-01-01"], "M8[ns]"
)
SPANS = np.array([5, 7, "NaT"], "m8[ns]")


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_persons_of_nanoseconds_stay_apart_in_every_container(zone: str | None) -> None:
    """Arrow's were cut to microseconds: two persons within one shared their rows."""
    end = "" if zone is None else "Z"
    expected = [*(f"2026-01-01 00:00:00.00000000{i}{end}" for i in (1, 2)), None, f"2026-01-01{end}"]
    arrow = pa.array(TIMES, pa.timestamp("ns", zone))
    frame = pd.Series(TIMES).dt.tz_localize(zone)
    written = [str(time) + end if time == time else None for time in TIMES]
    for container in (arrow, arrow.dictionary_encode(), pa.chunked_array([arrow]), frame, written, arrow[:0]):
        cells = as_column(container, "person")
        places, words = cells.persons()
        assert [None if place < 0 else words[place] for place in places] == expected[: len(cells)]
        assert cells.texts().tolist() == expected[: len(cells)]
        assert np.isnan(cells.numbers()).all()


def test_spans_of_time_are_missing_in_every_container() -> None:
    """To NumPy nanoseconds are integers, to others they are not."""
    for container in (SPANS, pd.Series(SPANS), list(SPANS), pa.array(SPANS)):
        cells = as_column(container, "y")
        assert cells.texts().tolist() == [None] * 3
        assert np.isnan(cells.numbers()).all()
        assert (cells.persons()[0] == -1).all()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_that_changes_between_two_passes_is_refused(kind: str, tmp_path: Path) -> None:
    """Whose a row is was read before: the choice of rows would be applied to other persons' rows."""
    path = tmp_path / f"t.{kind}"
    frame = pd.DataFrame({"who": [1, 1, 1, 2, 3, 4], "x": 0.5, "y": 1})

    def write(table: pd.DataFrame) -> None:
        if kind == "csv":
            table.to_csv(path, index=False)
        else:
            table.to_parquet(path)

    write(frame)
    files = TableFiles(path)
    mask = select_file_rows(files, "who", 1, np.random.default_rng(0))
    source = ArrowSource(files, "y", row_mask=mask)
    assert sum(len(records.targets) for records in source.records()) == 4
    write(frame[::-1])
    with pytest.raises(InvalidParameter, match="a file changed"):
        list(source.records())
    path.unlink()
    with pytest.raises((InvalidParameter, OSError)):
        list(source.records())


def test_a_fit_by_person_looks_at_one_state_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    frame = pd.DataFrame({"who": np.arange(60) // 3, "x": X[:, 0], "y": Y})
    frame.to_csv(path, index=False)
    plain = _raw_table.select_file_rows

    def meanwhile(*given: Any) -> Any:
        found = plain(*given)
        frame[::-1].to_csv(path, index=False)
        return found

    monkeypatch.setattr(_raw_table, "select_file_rows", meanwhile)
    model = DPLogisticRegression(
        data_norm=1.0, classes=[0, 1], bad_rows="zero", person="who", n_public=60, random_state=0
    )
    with pytest.raises(InvalidParameter, match="a file changed"):
        model.fit(path, "y")


def test_a_partition_that_is_computed_anew_in_another_order_is_refused() -> None:
    dask = pytest.importorskip("dask")
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"who": [1, 1, 1, 2, 3, 4], "x": 0.5})
    turn = itertools.count()

    def part() -> Any:
        return frame if next(turn) < 1 else frame[::-1]

    table = dd.from_delayed([dask.delayed(part, pure=False)()], meta=frame.iloc[:0], verify_meta=False)
    with dask.config.set(scheduler="synchronous"):
        kept = select_dask_rows(table, "who", 1, np.random.default_rng(0))
        with pytest.raises(InvalidParameter, match="when it was recomputed"):
            kept.compute()


@pytest.mark.parametrize("damage", ["cut", "turned"])
def test_a_damaged_packed_file_is_said_in_words(damage: str, tmp_path: Path) -> None:
    text = pd.DataFrame({"x": X[:, 0], "y": Y}).to_csv(index=False).encode()
    packed = bytearray(gzip.compress(text))
    if damage == "cut":
        packed = packed[:-200]
    else:
        packed[100] ^= 255
    (tmp_path / "t.csv.gz").write_bytes(packed)
    with pytest.raises(InvalidParameter, match="damaged"):
        DPLogisticRegression(data_norm=1.0, classes=[0, 1]).fit(tmp_path / "t.csv.gz", "y")
