"""Estimators fit files, memory-mapped arrays and Dask collections as they fit arrays."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin import DPLogisticRegression, DPRidge
from dplangevin.data import ArrowSource
from dplangevin.errors import InvalidParameter
from dplangevin.estimators import _large

N, P = 6000, 4
rng = np.random.default_rng(0)
X = rng.uniform(-0.5, 0.5, size=(N, P))
LABELS = np.where(X @ np.ones(P) + 0.1 * rng.normal(size=N) > 0, "yes", "no")
TARGETS = 10 + 5 * X[:, 0]


def models() -> list[tuple[Any, np.ndarray]]:
    common = {"epsilon": 2.0, "delta": 1e-6, "data_norm": 1.0, "random_state": 7}
    return [
        (DPLogisticRegression(**common, classes=["no", "yes"]), LABELS),
        (DPLogisticRegression(**common, classes=["no", "yes"], mechanism="noisy-gd"), LABELS),
        (DPRidge(**common, target_bounds=(5.0, 15.0)), TARGETS),
    ]


def files(folder: Path, y: np.ndarray) -> list[Path]:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    paths = [folder / f"{i}.parquet" for i in range(2)]
    for path, part in zip(paths, np.array_split(np.arange(N), 2), strict=True):
        columns = {f"x{j}": X[part, j] for j in range(P)}
        pq.write_table(pa.table({**columns, "y": y[part], "w": np.full(len(part), 0.5)}), path)
    return paths


@pytest.mark.parametrize("index", range(3))
def test_files_and_memory_maps_fit_as_arrays_do(index: int, tmp_path: Path, monkeypatch) -> None:
    model, y = models()[index]
    monkeypatch.setattr(_large, "MAPPED_BYTES", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model.fit(X, y).coef_.copy()
        paths = files(tmp_path, y)
        source = ArrowSource(paths, "y", [f"x{j}" for j in range(P)])
        np.testing.assert_array_equal(model.fit(source, None).coef_, expected)
        np.save(tmp_path / "X.npy", X)
        mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
        np.testing.assert_array_equal(model.fit(mapped, y).coef_, expected)
    assert model.n_features_in_ == P
    assert model.predict(X[:3]).shape == (3,)


def test_a_path_and_the_name_of_a_column(tmp_path: Path, capsys) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"y": LABELS, **{f"x{j}": X[:, j] for j in range(P)}}), tmp_path / "t.parquet")
    model = models()[1][0].set_params(verbose=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from_file = model.fit(tmp_path / "t.parquet", "y").coef_.copy()
        np.testing.assert_array_equal(model.fit(X, LABELS).coef_, from_file)
    said = capsys.readouterr().out
    assert "Gradients: ScratchDataset, " in said
    assert "Gradients: ArrayDataset, " in said


def test_dask_collections_fit_as_arrays_do() -> None:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    da = pytest.importorskip("dask.array")
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    with (
        warnings.catch_warnings(),
        distributed.Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"),
    ):
        warnings.simplefilter("ignore")
        for model, y in models():
            expected = model.fit(X, y).coef_.copy()
            features = da.from_array(X, chunks=(1500, P))
            np.testing.assert_allclose(
                model.fit(features, da.from_array(y, chunks=1500)).coef_, expected, rtol=1e-7, atol=1e-10
            )
        table = dd.from_pandas(
            pd.DataFrame(X, columns=[f"x{j}" for j in range(P)]).assign(y=TARGETS), npartitions=3
        )
        np.testing.assert_allclose(model.fit(table, "y").coef_, expected, rtol=1e-7, atol=1e-10)


def test_what_needs_arrays_is_refused(tmp_path: Path) -> None:
    model, y = models()[0]
    paths = files(tmp_path, y)
    with pytest.raises(InvalidParameter, match="sample_weight needs arrays"):
        model.fit(paths, "y", sample_weight=np.ones(N))
    with pytest.raises(InvalidParameter, match=r"public labels, classes=\[...\]"):
        DPLogisticRegression(epsilon=1.0, data_norm=1.0).fit(paths, "y")
    with pytest.raises(InvalidParameter, match="public_data needs the private data in memory"):
        model.set_params(public_data=(X[:10], y[:10])).fit(paths, "y")
    with pytest.raises(InvalidParameter, match="no column 'z'"):
        model.fit(paths, "z")
    da = pytest.importorskip("dask.array")
    pytest.importorskip("distributed")
    with pytest.raises(InvalidParameter, match="there is no Dask client"):
        model.fit(da.from_array(X, chunks=(100, P)), da.from_array(y, chunks=100))
