"""Records that do not fit in memory: the same sums, a private scratch file, and clear errors."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dplangevin.data import (
    ArrayDataset,
    ArraySource,
    ArrowSource,
    RecordSource,
    ScratchDataset,
    sources,
)
from dplangevin.data.sources import RecordBatch, make_source
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.problem import DataBounds, Logistic, Problem

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet")

N = 150_000
PROBLEM = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=N, n_features=3)
THETA = np.random.default_rng(1).normal(size=(4, 1))


def records(n: int = N, dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 3)).astype(dtype), rng.integers(0, 2, n)


def table(X: np.ndarray, y: np.ndarray, **more: object) -> object:
    return pa.table({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y, **more})


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    X, y = records()
    paths = [tmp_path / f"part{i}.parquet" for i in range(3)]
    for path, part in zip(paths, np.array_split(np.arange(N), 3), strict=True):
        pq.write_table(table(X[part], y[part]), path, row_group_size=20_000)
    return paths


def test_files_give_the_sums_of_arrays_bit_for_bit(files: list[Path]) -> None:
    data = ScratchDataset(ArrowSource(files, "y"), PROBLEM)
    memory = ArrayDataset(*records(), PROBLEM)
    assert data.n_samples == N
    assert data._rows.dtype == np.float32
    for k in (1, 3):
        theta = np.random.default_rng(k).normal(size=(4, k))
        np.testing.assert_array_equal(
            data.gradient_sum(Logistic(), theta), memory.gradient_sum(Logistic(), theta)
        )
    np.testing.assert_array_equal(data.loss_sum(Logistic(), THETA), memory.loss_sum(Logistic(), THETA))
    batch = np.random.default_rng(2).choice(N, 500, replace=False)
    np.testing.assert_array_equal(
        data.gradient_sum(Logistic(), THETA, batch), memory.gradient_sum(Logistic(), THETA, batch)
    )
    data.check_row_count()


def test_tables_folders_memory_maps_and_weights(files: list[Path], tmp_path: Path) -> None:
    X, y = records()
    expected = ArrayDataset(X, y, PROBLEM).gradient_sum(Logistic(), THETA)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for source in (
        make_source(files[0].parent, "y"),
        make_source([str(path) for path in files], "y"),
        ArrowSource(table(X, y), "y"),
        make_source(mapped, y),
        make_source(mapped[:], y),
    ):
        assert isinstance(source, RecordSource)
        np.testing.assert_array_equal(
            ScratchDataset(source, PROBLEM).gradient_sum(Logistic(), THETA), expected
        )
    assert make_source(X, y) is None
    weights = np.random.default_rng(3).random(N)
    weighted = replace(PROBLEM, bounds=replace(PROBLEM.bounds, weight_bound=0.5))
    wanted = ArrayDataset(X, y, weighted, weights).gradient_sum(Logistic(), THETA)
    for source in (ArraySource(X, y, weights), ArrowSource(table(X, y, w=weights), "y", weight="w")):
        np.testing.assert_array_equal(
            ScratchDataset(source, weighted).gradient_sum(Logistic(), THETA), wanted
        )
    plain = ArrayDataset(X, y, weighted).gradient_sum(Logistic(), THETA)
    np.testing.assert_array_equal(
        ScratchDataset(ArraySource(X, y), weighted).gradient_sum(Logistic(), THETA), plain
    )


def test_targets_are_encoded_and_other_types_become_doubles(tmp_path: Path) -> None:
    X, y = records(1000, float)
    words = np.where(y == 1, "yes", "no")
    pq.write_table(table(X, words), tmp_path / "a.parquet")
    problem = replace(PROBLEM, n=1000)
    data = ScratchDataset(
        ArrowSource(tmp_path / "a.parquet", "y", ["x2", "x0", "x1"]),
        problem,
        encode=lambda cells: np.maximum(cells.codes({"no": 0, "yes": 1}), 0).astype(float),
    )
    memory = ArrayDataset(X[:, [2, 0, 1]], y, problem)
    np.testing.assert_array_equal(
        data.gradient_sum(Logistic(), THETA), memory.gradient_sum(Logistic(), THETA)
    )


def test_the_scratch_file_is_private_and_nameless(tmp_path: Path, monkeypatch) -> None:
    seen: list[os.stat_result] = []
    write = ScratchDataset._write
    monkeypatch.setattr(
        ScratchDataset,
        "_write",
        lambda self, source, encode, file: (
            seen.append(os.fstat(file.fileno())),
            write(self, source, encode, file),
        ),
    )
    monkeypatch.setenv("DPLANGEVIN_SCRATCH", str(tmp_path))
    data = ScratchDataset(ArraySource(*records(5000)), replace(PROBLEM, n=5000))
    assert stat.S_IMODE(seen[0].st_mode) == 0o600
    assert seen[0].st_nlink == 0  # already unlinked: nothing is left behind, even by kill -9
    assert list(tmp_path.iterdir()) == []
    assert data.gradient_sum(Logistic(), THETA).shape == (4, 1)
    with pytest.raises(InvalidParameter, match="cannot be pickled"):
        pickle.dumps(data)


class Growing(RecordSource):
    """Says one number of rows and gives another."""

    shape, dtype = (1000, 3), np.float64

    def __init__(self, given: int) -> None:
        self.given = given

    def records(self):
        X, y = records(self.given, float)
        for start in range(0, self.given, 400):
            yield RecordBatch(X[start : start + 400], y[start : start + 400], None)


@pytest.mark.parametrize("given", [0, 999, 1001, 1600])
def test_rows_added_or_lost_are_refused(given: int) -> None:
    with pytest.raises(InvalidParameter, match=r"changed while they were read.*Nothing was released"):
        ScratchDataset(Growing(given), replace(PROBLEM, n=1000))
    with pytest.raises(InvalidParameter, match="X has 1000 rows but the problem states n = 999"):
        ScratchDataset(Growing(1000), replace(PROBLEM, n=999))
    with pytest.raises(InvalidParameter, match="got 3 columns"):
        ScratchDataset(Growing(1000), replace(PROBLEM, n=1000, n_features=4))


def test_bad_files_are_refused_by_name(files: list[Path], tmp_path: Path) -> None:
    X, y = records(100)
    pq.write_table(table(X[:, :2], y), files[1])
    with pytest.raises(InvalidParameter, match=r"no column 'x2'; the table has x0, x1, y"):
        ArrowSource(files, "y")
    with pytest.raises(InvalidParameter, match="no column 'z'; the table has x0, x1, x2, y"):
        ArrowSource(files, "z")
    with pytest.raises(InvalidParameter, match="not a file"):
        ArrowSource(tmp_path / "nowhere.parquet", "y")
    (tmp_path / "a.xlsx").write_text("x,y\n1,2\n")
    with pytest.raises(InvalidParameter, match="all be Parquet, all Arrow or all text"):
        ArrowSource(tmp_path / "a.xlsx", "y")
    with pytest.raises(InvalidParameter, match="name of the target column"):
        make_source(str(files[0]), y)
    for bad in ((X, y[:3]), (X[:, 0], y)):
        with pytest.raises(InvalidParameter, match="features must have shape"):
            ArraySource(*bad)


def test_files_may_store_a_column_in_different_types(tmp_path: Path) -> None:
    """What type a writer chose may depend on one record, so it must not matter."""
    X, y = records(300)
    kinds = [X[:100].astype(np.float64), X[100:200], X[200:].astype(float).astype(str)]
    for i, part in enumerate(kinds):
        pq.write_table(table(part, y[100 * i : 100 * i + 100]), tmp_path / f"part{i}.parquet")
    problem = replace(PROBLEM, n=300)
    data = ScratchDataset(ArrowSource(tmp_path, "y"), problem)
    memory = ArrayDataset(X.astype(float), y, problem)
    np.testing.assert_array_equal(
        data.gradient_sum(Logistic(), THETA), memory.gradient_sum(Logistic(), THETA)
    )


@pytest.mark.parametrize("bad", [float("nan"), None, float("inf")])
def test_missing_entries_are_refused_without_showing_data(bad: object, tmp_path: Path) -> None:
    column = pa.array([0.7253] * 99 + [bad], pa.float64())
    pq.write_table(pa.table({"x0": column, "y": [0] * 100}), tmp_path / "a.parquet")
    problem = replace(PROBLEM, n=100, n_features=1)
    with pytest.raises(InvalidParameter, match=r"missing or infinite entries.*Nothing was released") as error:
        ScratchDataset(ArrowSource(tmp_path / "a.parquet", "y"), problem)
    assert "7253" not in str(error.value)
    pq.write_table(pa.table({"x0": ["a"] * 100, "y": [0] * 100}), tmp_path / "b.parquet")
    with pytest.raises(InvalidParameter, match=r"missing or infinite entries.*Nothing was released"):
        ScratchDataset(ArrowSource(tmp_path / "b.parquet", "y"), problem)


def test_a_full_disk_is_said_so(monkeypatch) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6));"
    code = (
        limit
        + "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        + "import numpy as np; from dplangevin.data import *; from dplangevin.problem import *;"
        + "p = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=10**5, n_features=3);"
        + "ScratchDataset(ArraySource(np.ones((10**5, 3)), np.ones(10**5)), p)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "the disk is full" in done.stderr
    assert "Nothing was released" in done.stderr
    monkeypatch.setenv("DPLANGEVIN_SCRATCH", "/nonexistent")
    with pytest.raises(DplangevinError, match=r"could not be read: No such file.*Nothing was released"):
        ScratchDataset(ArraySource(*records(10)), replace(PROBLEM, n=10))


def test_files_without_pyarrow(monkeypatch, files: list[Path]) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    with pytest.raises(InvalidParameter, match=r"pip install 'dplangevin\[tables\]'"):
        ArrowSource(files, "y")


def test_a_slow_writer_does_not_make_the_reader_hoard_records(tmp_path: Path) -> None:
    numbers = np.arange(1_000_000, dtype=float)
    pq.write_table(pa.table({"x": numbers, "y": numbers}), tmp_path / "a.parquet", row_group_size=10_000)
    before = pa.total_allocated_bytes()
    records = ArrowSource(tmp_path / "a.parquet", "y").records()
    for _ in range(3):
        next(records)
        time.sleep(0.2)  # of a disk that is slow
    assert pa.total_allocated_bytes() - before < 4 << 20  # of 16 MB


def test_the_disk_is_asked_ahead(monkeypatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(ScratchDataset, "_read_ahead", lambda self, a, b: asked.append((a, b)))
    monkeypatch.setattr("dplangevin.data.kernels.PIECE_BYTES", 1)
    data = ScratchDataset(ArraySource(*records(10_000)), replace(PROBLEM, n=10_000))
    data.gradient_sum(Logistic(), THETA)
    assert asked == [(4096, 8192), (8192, 10_000)]
    assert sources._round_up_to_page(1) == sources._round_up_to_page(4096)


def test_rows_of_persons_are_those_of_every_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask is over all rows: each batch has its own piece of it."""
    monkeypatch.setattr("dplangevin.tables.files.READ_ROWS", 2)
    path = tmp_path / "rows.csv"
    path.write_text("x,y\n" + "".join(f"{i},0\n" for i in range(7)))
    kept = np.array([True, False, False, True, True, True, False])
    source = ArrowSource(path, "y", row_mask=kept)
    read = np.concatenate([part.features[:, 0] for part in source.records()])
    np.testing.assert_array_equal(read, np.flatnonzero(kept))
