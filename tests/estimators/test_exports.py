"""Ways out: the same predictions elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dplangevin import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPLinearSVC,
    DPLogisticRegression,
    DPPoissonRegressor,
)
from dplangevin.estimators import TRUSTED_TYPES

SCHEMA = {"columns": {"a": {"range": [-1, 1]}, "g": {"categories": ["u", "v"]}}, "missing": "never"}


def table(n: int = 1500) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(-1, 1, n), "g": rng.choice(["u", "v"], n)})
    return frame, (frame.a.abs() > 0.5).to_numpy()


def model(cls: type, **changes: Any) -> Any:
    X, y = table()
    own: dict[str, Any] = {"classes": [False, True]}
    if cls is DPAdditiveRegressor:
        own, y = {"target_bounds": (-1, 1)}, X.a**2
    return cls(**({"epsilon": 2.0, "schema": SCHEMA, "random_state": 0} | own | changes)).fit(X, y)


def test_pipelines_predict_the_same() -> None:
    X, _ = table()
    for cls in (DPAdditiveClassifier, DPLogisticRegression):
        for changes in ({}, {"intervals": True}):
            found = model(cls, **changes)
            pipeline = found.to_sklearn()
            np.testing.assert_allclose(pipeline.predict_proba(X), found.predict_proba(X), atol=1e-12)
            np.testing.assert_array_equal(pipeline.predict(X), found.predict(X))
            assert type(pipeline[-1]).__name__ == (
                "ClippedLogistic" if found.slope_clip_ < 1 else "LogisticRegression"
            )
    found = model(DPLinearSVC)
    np.testing.assert_array_equal(found.to_sklearn().predict(X), found.predict(X))
    found = model(DPAdditiveRegressor)
    np.testing.assert_allclose(found.to_sklearn().predict(X), found.predict(X), atol=1e-12)


def test_several_classes() -> None:
    X, _ = table()
    labels = np.where(X.a > 0.3, "high", np.where(X.a < -0.3, "low", "middle"))
    stated = {"epsilon": 2.0, "schema": SCHEMA, "random_state": 0}
    found = DPAdditiveClassifier(**stated, classes=["low", "middle", "high"]).fit(X, labels)
    np.testing.assert_allclose(found.to_sklearn().predict_proba(X), found.predict_proba(X), atol=1e-12)
    assert found.shapes()[0].values.shape[0] == 3


def test_counts_keep_their_exponential_link() -> None:
    X, y = table()
    found = DPPoissonRegressor(schema=SCHEMA, target_bounds=(0, 5), random_state=0).fit(X, y.astype(float))
    np.testing.assert_allclose(found.to_sklearn().predict(X), found.predict(X), rtol=1e-12)


def test_no_prediction_leaves_the_range_of_the_counts() -> None:
    """An exponential of a score far from the records is no mean of counts within the range."""
    X, y = table()
    fitted = DPPoissonRegressor(data_norm=2.0, target_bounds=(0, 5), random_state=0)
    fitted.fit(X[["a"]], 5 * y.astype(float))
    far = pd.DataFrame({"a": [-1e6, -30.0, 0.0, 30.0, 1e6]})
    scores = fitted.coef_[0] * far["a"].to_numpy() + fitted.intercept_
    assert scores.max() > 50
    np.testing.assert_allclose(fitted.predict(far), np.exp(np.minimum(scores, np.log(5))), rtol=1e-12)
    np.testing.assert_allclose(fitted.to_sklearn().predict(far), fitted.predict(far), rtol=1e-12)
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    connection = duckdb.connect()
    connection.register("far", far)
    rows = connection.execute(fitted.to_sql("far")).df()
    np.testing.assert_allclose(rows["prediction"], fitted.predict(far), rtol=1e-12, atol=1e-300)


def test_skops_round_trip() -> None:
    skops = pytest.importorskip("skops.io", reason="skops is not installed")
    X, y = table()
    found = model(DPAdditiveClassifier)
    content = skops.dumps(found.to_sklearn())
    again = skops.loads(content, trusted=list(TRUSTED_TYPES))
    np.testing.assert_allclose(again.predict_proba(X), found.predict_proba(X), atol=1e-12)
    counts = DPPoissonRegressor(schema=SCHEMA, target_bounds=(0, 5), random_state=0).fit(X, y.astype(float))
    content_of_counts = skops.dumps(counts.to_sklearn())
    again = skops.loads(content_of_counts, trusted=list(TRUSTED_TYPES))
    np.testing.assert_allclose(again.predict(X), counts.predict(X), rtol=1e-12)
    unknown = {*skops.get_untrusted_types(data=content), *skops.get_untrusted_types(data=content_of_counts)}
    assert unknown == set(TRUSTED_TYPES)


def test_mlflow_round_trip(tmp_path: Path) -> None:
    try:
        import mlflow.sklearn as mlflow
    except ImportError as error:  # also where it does not fit the installed protobuf
        pytest.skip(f"mlflow cannot be imported: {error.name}")
    X, _ = table()
    found = model(DPAdditiveClassifier)
    types = list(TRUSTED_TYPES)
    mlflow.save_model(
        found.to_sklearn(), tmp_path / "model", serialization_format="skops", skops_trusted_types=types
    )
    again = mlflow.load_model(str(tmp_path / "model"))
    np.testing.assert_allclose(again.predict_proba(X), found.predict_proba(X), atol=1e-12)


def test_model_cards_say_what_was_promised_and_what_is_not_protected() -> None:
    card = model(DPAdditiveClassifier, monotone={"a": "increasing"}).model_card()
    for words in (
        "epsilon = 2",
        "`a`: -1 to 1",
        "increasing",
        "2 categories",
        "Not protected",
        "Intended use",
    ):
        assert words in card
    assert "target: -1 to 1" in model(DPAdditiveRegressor).model_card()


def test_sparse_features_are_read_as_dense_ones() -> None:
    from scipy.sparse import csr_array, random_array

    X = csr_array(random_array((500, 6), density=0.2, rng=np.random.default_rng(0)))
    y = np.asarray(X.sum(axis=1)).ravel() > 0.6
    stated = {"epsilon": 2.0, "data_norm": 1.0, "classes": [False, True], "random_state": 0}
    sparse, dense = (DPLogisticRegression(**stated).fit(table, y) for table in (X, X.toarray()))
    np.testing.assert_array_equal(sparse.coef_, dense.coef_)
    np.testing.assert_array_equal(sparse.predict_proba(X), dense.predict_proba(X.toarray()))
