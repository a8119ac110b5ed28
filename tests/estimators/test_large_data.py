"""Estimators fit files, memory-mapped arrays and Dask collections as they fit arrays."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from _public_grids import small_grids
from dplangevin import (
    DPHuberRegressor,
    DPLinearSVC,
    DPLogisticRegression,
    DPPoissonRegressor,
    DPQuantileRegressor,
    DPRidge,
)
from dplangevin.data import ArraySource, ArrowSource
from dplangevin.errors import InvalidParameter
from dplangevin.estimators import _public_data, _reading
from dplangevin.estimators.evaluation import private_score, private_selection
from dplangevin.rashomon import RashomonSampler

N, P = 6000, 4
NAMES = [f"x{j}" for j in range(P)]
rng = np.random.default_rng(0)
X = rng.uniform(-0.5, 0.5, size=(N, P))
SIGNAL = X @ np.ones(P) + 0.1 * rng.normal(size=N)
LABELS = np.where(SIGNAL > 0, "yes", "no")
THREE = np.where(SIGNAL > 0.3, "yes", np.where(SIGNAL > -0.3, "maybe", "no"))
TARGETS = 10 + 5 * X[:, 0]
COUNTS = rng.poisson(np.exp(X[:, 0])).astype(float)
WEIGHTS = rng.random(N)

COMMON: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "data_norm": 1.0, "random_state": 7}
CLASSES: dict[str, Any] = {**COMMON, "classes": ["no", "yes"]}
BOUNDS: dict[str, Any] = {**COMMON, "target_bounds": (5.0, 15.0)}
MODELS: dict[str, tuple[Any, np.ndarray]] = {
    "logistic": (DPLogisticRegression(**CLASSES), LABELS),
    "logistic, noisy-gd": (DPLogisticRegression(**CLASSES, mechanism="noisy-gd"), LABELS),
    "logistic, three classes": (DPLogisticRegression(**COMMON, classes=["no", "maybe", "yes"]), THREE),
    "logistic, intervals": (DPLogisticRegression(**CLASSES, intervals=True), LABELS),
    "linear SVC": (DPLinearSVC(**CLASSES), LABELS),
    "ridge": (DPRidge(**BOUNDS), TARGETS),
    "ridge, intervals": (DPRidge(**BOUNDS, intervals=True), TARGETS),
    "huber": (DPHuberRegressor(**BOUNDS), TARGETS),
    "quantile": (DPQuantileRegressor(**BOUNDS), TARGETS),
    "poisson": (DPPoissonRegressor(**COMMON, target_bounds=(0.0, 5.0)), COUNTS),
    "ridge, public data": (DPRidge(**BOUNDS, public_data=(X[:60] / 2, TARGETS[:60])), TARGETS),
}
SCHEMA = {
    "version": 1,
    "columns": {
        "age": {"range": [0, 100]},
        "job": {"categories": ["cook", "smith"], "other": "own"},
        "gain": {"range": [0, 1000], "transform": "log1p"},
    },
    "target": {"name": "income", "classes": ["low", "high"]},
    "missing": "own",
}


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    pytest.importorskip("dask.dataframe")
    with distributed.Client(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as found:
        yield found


@pytest.fixture
def sums_only(monkeypatch) -> None:
    """No record of a data set on Dask may come to the driver."""
    from dplangevin.data.dask import DaskDataset

    def refuse(self: DaskDataset, rows: Any = None) -> Any:
        raise AssertionError("records were asked for on the driver")

    monkeypatch.setattr(DaskDataset, "blocks", refuse)


@pytest.fixture(autouse=True)
def _tuned_once(monkeypatch) -> None:
    """Public data tune a plan once for equal questions: what the private records are asked is compared here."""
    small_grids(monkeypatch)
    made: dict[str, Any] = {}
    tuner = _public_data._build_tuner

    def once(model: Any, encode: Any, options: dict[str, Any]) -> Any:
        if repr(options) not in made:
            made[repr(options)] = tuner(model, encode, options)
        return made[repr(options)]

    monkeypatch.setattr(_public_data, "_build_tuner", once)


def files(folder: Path, y: np.ndarray) -> list[Path]:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    paths = [folder / f"{i}.parquet" for i in range(2)]
    for path, part in zip(paths, np.array_split(np.arange(N), 2), strict=True):
        columns = {name: X[part, j] for j, name in enumerate(NAMES)}
        pq.write_table(pa.table({**columns, "y": y[part], "w": WEIGHTS[part]}), path)
    return paths


def table(y: np.ndarray) -> Any:
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(X, columns=NAMES).assign(y=y, w=WEIGHTS)


def people() -> Any:
    """A table with text, numbers and missing entries."""
    pd, draw = pytest.importorskip("pandas"), np.random.default_rng(1)
    age = draw.uniform(-5, 110, N)
    frame = pd.DataFrame(
        {
            "job": draw.choice(["cook", "smith", "pilot"], N),
            "age": np.where(draw.random(N) < 0.1, np.nan, age),
            "extra": draw.normal(size=N),
            "gain": draw.integers(0, 2000, N),
        }
    )
    return frame.assign(income=np.where(age + 20 * draw.normal(size=N) > 50, "high", "low"))


def fitted(model: Any) -> list[np.ndarray]:
    found = [np.array(model.coef_), np.array(model.intercept_)]
    return [*found, model.confidence_intervals()] if hasattr(model, "uncertainty_") else found


def compared(found: Any, expected: list[np.ndarray], **tolerance: float) -> None:
    for value, wanted in zip(fitted(found), expected, strict=True):
        np.testing.assert_allclose(value, wanted, **tolerance)


EXACT = {"rtol": 0.0, "atol": 0.0}
ROUNDING = {"rtol": 1e-7, "atol": 1e-9}


def test_dask_without_a_client() -> None:  # before any test has made one
    da = pytest.importorskip("dask.array")
    pytest.importorskip("distributed")
    arrays = da.from_array(X, chunks=(100, P)), da.from_array(LABELS, chunks=100)
    with pytest.raises(InvalidParameter, match="there is no current Dask client"):
        DPLogisticRegression(**CLASSES).fit(*arrays)


@pytest.mark.parametrize("name", MODELS)
def test_files_memory_maps_and_dask_fit_as_arrays_do(
    name: str, tmp_path: Path, monkeypatch, client: Any, sums_only: None
) -> None:
    import dask.array as da

    model, y = MODELS[name]
    expected = fitted(model.fit(X, y))
    compared(model.fit(ArrowSource(files(tmp_path, y), "y", NAMES), None), expected, **EXACT)
    monkeypatch.setattr(_reading, "MIN_OUT_OF_MEMORY_BYTES", 0)
    np.save(tmp_path / "X.npy", X)
    compared(model.fit(np.load(tmp_path / "X.npy", mmap_mode="r"), y), expected, **EXACT)
    assert model.n_features_in_ == P
    assert model.predict(X[:3]).shape == (3,)
    chunks = (2500, 500, 3000)
    arrays = da.from_array(X, chunks=(chunks, P)), da.from_array(y, chunks=(chunks,))
    compared(model.fit(*arrays), expected, **ROUNDING)


@pytest.mark.parametrize("name", ["logistic", "ridge"])
def test_weights_of_files_memory_maps_and_dask(
    name: str, tmp_path: Path, monkeypatch, client: Any, sums_only: None
) -> None:
    import dask.array as da
    import dask.dataframe as dd

    model, y = MODELS[name]
    expected = fitted(model.fit(X, y, WEIGHTS))
    assert not np.allclose(expected[0], fitted(model.fit(X, y))[0])
    compared(model.fit(files(tmp_path, y), "y", "w"), expected, **EXACT)
    compared(model.fit(ArrowSource(files(tmp_path, y), "y", weight="w"), None), expected, **EXACT)
    monkeypatch.setattr(_reading, "MIN_OUT_OF_MEMORY_BYTES", 0)
    np.save(tmp_path / "X.npy", X)
    compared(model.fit(np.load(tmp_path / "X.npy", mmap_mode="r"), y, WEIGHTS), expected, **EXACT)
    features, labels, weights = (da.from_array(v, chunks=(1700, *v.shape[1:])) for v in (X, y, WEIGHTS))
    compared(model.fit(features, labels, weights), expected, **ROUNDING)
    frame = dd.from_pandas(table(y), npartitions=3)
    compared(model.fit(frame, "y", "w"), expected, **ROUNDING)
    compared(model.fit(frame[NAMES], frame["y"], frame["w"]), expected, **ROUNDING)


def test_a_schema_encodes_files_and_dask_frames_as_tables(
    tmp_path: Path, client: Any, sums_only: None
) -> None:
    dd = pytest.importorskip("dask.dataframe")
    frame = people()
    model = DPLogisticRegression(epsilon=2.0, delta=1e-6, schema=SCHEMA, random_state=7)
    expected = fitted(model.fit(frame.drop(columns="income"), frame["income"]))
    names = list(model.feature_names_in_)
    frame[:2000].to_parquet(tmp_path / "0.parquet")
    frame[2000:].to_parquet(tmp_path / "1.parquet")
    for data in (tmp_path, dd.from_pandas(frame, npartitions=3)):
        compared(model.fit(data, "income"), expected, **ROUNDING)
        assert list(model.feature_names_in_) == names
        assert model.predict(frame[:5]).shape == (5,)
    late = dd.from_pandas(frame, npartitions=3)
    late = late.map_partitions(lambda part: part[part.index >= 2500])  # the first one is empty
    expected = fitted(model.fit(frame[2500:], frame["income"][2500:]))
    compared(model.fit(late, "income"), expected, **ROUNDING)
    options: dict[str, Any] = {"epsilon": 1.0, "random_state": 3}
    score = private_score(model, frame[2500:], frame["income"][2500:], **options)
    assert private_score(model, late, "income", **options) == score
    public = {"public_data": (frame[:300], frame["income"][:300])}
    model.set_params(**public).fit(frame[300:], frame["income"][300:])
    expected = fitted(model)
    compared(model.fit(dd.from_pandas(frame[300:], npartitions=2), "income"), expected, **ROUNDING)
    with pytest.raises(InvalidParameter, match=r"no column 'age'.*Remove the column from the schema"):
        model.fit(dd.from_pandas(frame.drop(columns="age"), npartitions=2), "income")
    frame.drop(columns="age").to_parquet(tmp_path / "c.parquet")
    with pytest.raises(InvalidParameter, match="no column 'age'"):
        model.fit(tmp_path / "c.parquet", "income")
    with pytest.raises(InvalidParameter, match="a schema encodes columns by name"):
        model.fit(ArraySource(X, LABELS), None)


def test_rashomon_models_of_files_and_dask(tmp_path: Path, client: Any, sums_only: None) -> None:
    da = pytest.importorskip("dask.array")
    base = DPLogisticRegression(data_norm=1.0, classes=["no", "yes"], radius=2.0, fit_intercept=False)
    sampler = RashomonSampler(base, thresholds=0.1, n_models=3, epsilon=2.0, tier="exact", random_state=1)
    expected = sampler.fit(X, LABELS).parameters_.copy()
    source = ArrowSource(files(tmp_path, LABELS), "y", NAMES)
    np.testing.assert_array_equal(sampler.fit(source, None).parameters_, expected)
    assert sampler.models_[0].predict(X[:3]).shape == (3,)
    sampler.fit(da.from_array(X, chunks=(2500, P)), da.from_array(LABELS, chunks=2500))
    np.testing.assert_allclose(sampler.parameters_, expected, **ROUNDING)
    assert sampler.feature_names_ == ("x0", "x1", "x2", "x3")
    ridge = DPRidge(data_norm=1.0, target_bounds=(5.0, 15.0), radius=2.0, fit_intercept=False)
    sampler = RashomonSampler(ridge, thresholds=0.5, n_models=2, epsilon=1.0, delta=1e-6, random_state=1)
    expected = sampler.fit(X, TARGETS).parameters_.copy()
    source = ArrowSource(files(tmp_path, TARGETS), "y", NAMES)
    np.testing.assert_array_equal(sampler.fit(source, None).parameters_, expected)


@pytest.mark.parametrize("metric", ["accuracy", "log-loss", "auc", "calibration"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_scores_of_files_and_dask_are_equal_in_every_bit(
    metric: str, adjacency: str, tmp_path: Path, client: Any
) -> None:
    import dask.array as da
    import dask.dataframe as dd

    model = DPLogisticRegression(**CLASSES).fit(X, LABELS)
    options: dict[str, Any] = {"metric": metric, "epsilon": 1.0, "adjacency": adjacency, "random_state": 3}
    expected = private_score(model, X, LABELS, **options)
    source = ArrowSource(files(tmp_path, LABELS), "y", NAMES)
    assert private_score(model, source, None, **options) == expected
    frame = dd.from_pandas(table(LABELS).drop(columns="w"), npartitions=3)
    assert private_score(model, frame, "y", **options) == expected
    arrays = da.from_array(X, chunks=(1700, P)), da.from_array(LABELS, chunks=1700)
    assert private_score(model, *arrays, **options) == expected


def test_choices_and_tables_with_names(tmp_path: Path, client: Any) -> None:
    dd = pytest.importorskip("dask.dataframe")
    frame = people()
    features, labels = frame.drop(columns="income"), frame["income"]
    by_schema = DPLogisticRegression(epsilon=2.0, delta=1e-6, schema=SCHEMA, random_state=7).fit(
        features, labels
    )
    by_name = DPLogisticRegression(
        epsilon=2.0, delta=1e-6, data_norm=1.0, classes=["high", "low"], random_state=1
    )
    models = [by_name.fit(frame[["gain", "extra"]], labels), by_schema]
    options: dict[str, Any] = {"epsilon": 1.0, "random_state": 3}
    expected = private_score(by_schema, features, labels, **options)
    frame.to_parquet(tmp_path / "a.parquet")
    on_dask = dd.from_pandas(frame, npartitions=3)
    assert private_score(by_schema, tmp_path / "a.parquet", "income", **options) == expected
    assert private_score(by_schema, on_dask, "income", **options) == expected
    for data in (tmp_path / "a.parquet", on_dask):
        assert private_selection(models, data, "income", **options).index == 1
    with pytest.raises(InvalidParameter, match="files with named columns"):
        private_score(by_schema, ArraySource(X, LABELS), None, **options)


def test_rows_lost_while_scoring_are_noticed(tmp_path: Path, monkeypatch) -> None:
    model = DPLogisticRegression(**CLASSES).fit(X, LABELS)
    source = ArrowSource(files(tmp_path, LABELS), "y", NAMES)
    monkeypatch.setattr(source, "_n_rows", N + 1)
    with pytest.raises(
        InvalidParameter, match=r"changed while they were read.*stays charged, and nothing was rel"
    ):
        private_score(model, source, None, epsilon=1.0)


def test_a_path_and_the_name_of_a_column(tmp_path: Path, capsys) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"y": LABELS, **{f"x{j}": X[:, j] for j in range(P)}}), tmp_path / "t.parquet")
    model = DPLogisticRegression(**CLASSES, mechanism="noisy-gd", verbose=True)
    from_file = model.fit(tmp_path / "t.parquet", "y").coef_.copy()
    np.testing.assert_array_equal(model.fit(X, LABELS).coef_, from_file)
    said = capsys.readouterr().out
    assert "Gradients: ScratchDataset, " in said
    assert "Gradients: ArrayDataset, " in said


def test_a_missing_label_is_one_outside_the_classes(tmp_path: Path) -> None:
    gaps = np.where(np.arange(N) % 7 == 0, None, LABELS)
    model = DPLogisticRegression(**CLASSES)
    expected = fitted(model.fit(X, np.where(gaps == None, "no", LABELS)))  # noqa: E711
    compared(model.fit(ArrowSource(files(tmp_path, gaps), "y", NAMES), None), expected, **EXACT)


def test_bad_input(tmp_path: Path) -> None:
    model, y = DPLogisticRegression(**CLASSES), LABELS
    paths = files(tmp_path, y)
    with pytest.raises(InvalidParameter, match="sample_weight must be the name of the weight column"):
        model.fit(paths, "y", sample_weight=np.ones(N))
    with pytest.raises(InvalidParameter, match="no column 'v'"):
        model.fit(paths, "y", sample_weight="v")
    with pytest.raises(InvalidParameter, match="a source brings its own weights"):
        model.fit(ArrowSource(paths, "y"), None, sample_weight="w")
    with pytest.raises(InvalidParameter, match=r"public labels, classes=\[...\]"):
        DPLogisticRegression(epsilon=1.0, data_norm=1.0).fit(paths, "y")
    with pytest.raises(InvalidParameter, match="intervals need equally weighted records"):
        DPLogisticRegression(**CLASSES, intervals=True).fit(ArrowSource(paths, "y", weight="w"), None)
    with pytest.raises(InvalidParameter, match="no column 'z'"):
        model.fit(paths, "z")


def test_bad_input_on_dask(client: Any) -> None:
    import dask.array as da
    import dask.dataframe as dd

    model, features = DPLogisticRegression(**CLASSES), da.from_array(X, chunks=(1000, P))
    with pytest.raises(InvalidParameter, match=r"y must be a Dask array or Series .* got ndarray"):
        model.fit(features, LABELS)
    with pytest.raises(InvalidParameter, match=r"weights must be a Dask array or Series .* got ndarray"):
        model.fit(features, da.from_array(LABELS, chunks=1000), WEIGHTS)
    with pytest.raises(
        InvalidParameter, match="weights must be the name of a column of X; there is no column 'v'"
    ):
        model.fit(dd.from_pandas(table(LABELS), npartitions=2), "y", "v")
    with pytest.raises(InvalidParameter, match="schema mismatch"):
        DPLogisticRegression(epsilon=1.0, schema=SCHEMA).fit(features, da.from_array(LABELS, chunks=1000))
