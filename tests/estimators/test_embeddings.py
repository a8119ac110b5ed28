"""Embeddings from arrays, memory-mapped arrays, tensors and files of lists give the same private model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import top_k_accuracy_score

from dplangevin import DPLogisticRegression, Ledger, load_model, save_model
from dplangevin.errors import InvalidParameter
from dplangevin.report import write_report
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


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_tensors_of_libraries_give_the_same_model(library: str) -> None:
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    X, y = make_embeddings()
    tensor = module.tensor(X) if library == "torch" else module.asarray(X)
    expected, model = make_probe().fit(X, y), make_probe().fit(tensor, y)
    assert np.array_equal(model.coef_, expected.coef_)
    assert np.array_equal(model.predict(tensor), expected.predict(X))


def test_the_best_classes_are_found_by_their_names() -> None:
    X, y = make_embeddings()
    model = make_probe().fit(X, y)
    scores = model.predict_proba(X)
    best = np.argsort(-scores, axis=1)[:, :2]
    found = [name in model.classes_[row] for name, row in zip(y, best, strict=True)]
    assert top_k_accuracy_score(y, scores, k=2, labels=model.classes_) == np.mean(found)
    assert np.mean(found) > np.mean(model.predict(X) == y)


def test_a_probe_is_charged_protects_people_and_is_reported(tmp_path: Path) -> None:
    """The same file and seed: two rows of each person cost what the fit without people does at half the noise."""
    X, y = make_embeddings()
    people = np.arange(N) // 2
    path = str(write_lists(tmp_path / "rows.parquet", X, y, who=people))
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}").declare(
        "probes", epsilon=16, delta=1e-5, max_rows_per_person=2
    )
    by_person = {"person": "who", "max_rows_per_person": 2, "n_public": N, "bad_rows": "zero"}
    model = make_probe(ledger=ledger, **by_person).fit(path, "kind")
    spec = model.plan_.plan.spec
    assert spec.mechanism == "ridge-whitened-gd"
    assert model.privacy_.epsilon() <= 8.0
    assert len(ledger.history()) == 1
    noise = make_probe().fit(X, y).plan_.plan.spec.noise_std
    assert spec.noise_std == pytest.approx(2 * noise, rel=0.2)
    text = write_report(model, tmp_path / "report.md").read_text()
    assert "ridge-whitened" in text
    assert "ridge-whitened-composition" in text


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
