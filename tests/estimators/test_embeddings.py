"""Embeddings from arrays, memory-mapped arrays, tensors and files of lists give the same private model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin import DPLogisticRegression, load_model, save_model
from dplangevin.errors import InvalidParameter
from dplangevin.tables import TableFiles

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

NAMES = ["cat", "dog", "eel"]
N, P = 900, 60


def make_embeddings() -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((N, P)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.array(NAMES)[np.argmax(X[:, :3], axis=1)]


def make_probe(**changes: Any) -> DPLogisticRegression:
    stated: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "data_norm": 1.0, "fit_intercept": False}
    return DPLogisticRegression(**(stated | {"classes": NAMES, "random_state": 1} | changes))


class Tensor:
    """As tensors of other libraries do, it becomes an array when asked for one."""

    def __init__(self, array: Any) -> None:
        self._array, self.shape, self.dtype, self.ndim = array, array.shape, array.dtype, array.ndim

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._array, dtype)

    def __len__(self) -> int:
        return len(self._array)


def write_lists(path: Path, X: Any, y: Any, **columns: Any) -> Path:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    pq.write_table(pa.table({"embedding": lists, **columns, "kind": y}), path, row_group_size=250)
    return path


def test_every_home_of_embeddings_gives_the_same_model(tmp_path: Path) -> None:
    X, y = make_embeddings()
    expected = make_probe().fit(X, y)
    assert expected.plan_.plan.spec.mechanism == "ridge-whitened-gd"
    assert np.mean(expected.predict(X) == y) > 0.6
    np.save(tmp_path / "rows.npy", X)
    mapped = make_probe().fit(np.load(tmp_path / "rows.npy", mmap_mode="r"), y)
    listed = make_probe().fit(str(write_lists(tmp_path / "rows.parquet", X, y)), "kind")
    tensor = make_probe().fit(Tensor(X), y)
    for model in (mapped, listed, tensor):
        assert np.array_equal(model.coef_, expected.coef_)
        assert model.classes_.tolist() == NAMES
    save_model(expected, tmp_path / "probe.json")
    assert np.array_equal(load_model(tmp_path / "probe.json").predict(X), expected.predict(X))


def test_lists_of_a_fixed_size_are_columns(tmp_path: Path) -> None:
    X, y = make_embeddings()
    path = write_lists(tmp_path / "rows.parquet", X[:, :3].copy(), y, age=np.arange(N))
    files = TableFiles(str(path))
    assert files.names == ("embedding[0]", "embedding[1]", "embedding[2]", "age", "kind")
    assert files.is_single_precision(["embedding[0]", "embedding[2]"])
    assert files.is_numeric("embedding[1]")
    assert not files.is_numeric("kind")
    table = files.read_table()
    assert np.array_equal(table.column("embedding[1]").numbers(), X[:, 1])
    assert np.array_equal(table.column("age").numbers(), np.arange(N))
    with pytest.raises(InvalidParameter, match="no column 'embedding'"):
        files.require_columns(["embedding"])


def test_an_absent_list_moves_no_other_row(tmp_path: Path) -> None:
    """Arrow's own `flatten` leaves absent lists out, so that all later cells would belong to other records."""
    rows: list[Any] = [[1.0, 2.0], None, [3.0, None], [4.0, 5.0]]
    table = pa.table({"e": pa.array(rows, pa.list_(pa.float32(), 2)), "kind": ["a"] * 4})
    pq.write_table(table, tmp_path / "rows.parquet")
    read = TableFiles(str(tmp_path / "rows.parquet")).read_table()
    first, second = (read.column(f"e[{j}]").numbers() for j in (0, 1))
    assert np.array_equal(first, [1.0, np.nan, 3.0, 4.0], equal_nan=True)
    assert np.array_equal(second, [2.0, np.nan, np.nan, 5.0], equal_nan=True)
    sliced = TableFiles(table.slice(2)).read_table()
    assert np.array_equal(sliced.column("e[0]").numbers(), [3.0, 4.0])
