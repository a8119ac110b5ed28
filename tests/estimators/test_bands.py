"""Bands cover the best approximation with the same knots, as often as they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

from dplangevin import DPAdditiveClassifier, DPAdditiveRegressor, SchemaEncoder
from dplangevin.estimators.shapes import _shape_bands, compute_shapes

COLUMNS = {name: {"range": [-1, 1]} for name in "abc"}
SCHEMA = {"columns": {**COLUMNS, "g": {"categories": ["u", "v", "w"]}}, "missing": "never"}


def drawn(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A curve, a corner, a column without effect, and categories of which one is rare: the scores."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({name: rng.uniform(-1, 1, n) for name in "abc"})
    X["g"] = rng.choice(["u", "v", "w"], n, p=[0.58, 0.4, 0.02])
    return X, (1.5 * np.sin(2 * X.a) + np.abs(X.b) - 0.5 + 0.4 * (X.g == "u") - 0.2).to_numpy()


def best(model: Any) -> dict[str, np.ndarray]:
    """The shapes of the best approximation, by Newton steps on many records without noise in their targets."""
    X, scores = drawn(100_000, 99)
    rows = SchemaEncoder(model.schema_).transform(X)
    theta, classes = np.zeros(rows.shape[1]), isinstance(model, DPAdditiveClassifier)
    for _ in range(10):
        own = 1 / (1 + np.exp(-rows @ theta)) if classes else rows @ theta
        wanted = 1 / (1 + np.exp(-scores)) if classes else 0.25 * scores
        bend = own * (1 - own) if classes else np.ones(len(own))
        hessian = (rows * bend[:, None]).T @ rows + 1e-9 * np.eye(len(theta))
        theta -= np.linalg.solve(hessian, rows.T @ (own - wanted))
    truth: Any = type(model)(schema=model.schema_)
    truth.coef_, truth.intercept_ = (theta[None], np.zeros(1)) if classes else (theta, 0.0)
    return {shape.name: shape.values for shape in compute_shapes(truth)}


def fitted(cls: Any, seed: int) -> Any:
    X, scores = drawn(20_000, 1000 + seed)
    rng = np.random.default_rng(seed)
    stated: dict[str, Any] = {"target_bounds": (-1.5, 1.5)}
    y = 0.25 * scores + 0.15 * rng.standard_normal(len(scores))
    if cls is DPAdditiveClassifier:
        stated, y = {"classes": [False, True]}, rng.random(len(scores)) < 1 / (1 + np.exp(-scores))
    model = cls(epsilon=1.0, delta=1e-5, schema=SCHEMA, intervals=True, random_state=seed, **stated)
    return model.fit(X, y)


def test_a_band_contains_its_curve() -> None:
    """The curve is another estimate than the middle of its band: where it lies outside, the band reaches to it."""
    model, outside = fitted(DPAdditiveClassifier, 0), 0
    model.coef_ = 3 * model.coef_  # as far from the middle as a curve can be where nobody is
    for shape in model.shapes():
        half = np.minimum(shape.center - shape.low, shape.high - shape.center)
        outside += int((np.abs(shape.values - shape.center) > half * (1 + 1e-9)).sum())
        for low, high in ((shape.low, shape.high), (shape.simultaneous_low, shape.simultaneous_high)):
            assert (low <= shape.values).all()
            assert (shape.values <= high).all()
        inner = _shape_bands(shape)[1]
        known = np.isfinite(shape.low)
        assert ((inner[2] - inner[1])[known] <= 2 * half[known] * (1 + 1e-9)).all()
    assert outside > 5


@pytest.mark.slow
@pytest.mark.parametrize("cls", [DPAdditiveClassifier, DPAdditiveRegressor])
def test_bands_cover(cls: Any) -> None:
    """60 data sets, 27 points in four shapes: a standard error of about 0.01; a pass is 0.92 to 0.985 for 0.95.

    p-values of the column without effect: an exact uniform fails once in 1000.
    """
    points, wholes, values = [], [], []
    truth: dict[str, np.ndarray] = {}
    for seed in range(60):
        model = fitted(cls, seed)
        truth = truth or best(model)
        values.append(model.wald_test("c").p_value)
        for shape in model.shapes():
            known = np.isfinite(shape.low)
            right = truth[shape.name]
            if shape.kind == "bars":  # centred over the categories that the records tell of
                right = right - right[known].mean()
            # without what only reaches to the curve, so that bands that are too wide are seen
            half, wide = (
                np.minimum(shape.center - low, high - shape.center)
                for low, high in (
                    (shape.low, shape.high),
                    (shape.simultaneous_low, shape.simultaneous_high),
                )
            )
            points += list((np.abs(right - shape.center) <= half)[known])
            wholes.append(bool(np.all(np.abs(right - shape.center) <= wide)))
    print(f"pointwise {np.mean(points):.3f}, simultaneous {np.mean(wholes):.3f}")
    assert 0.92 <= np.mean(points) <= 0.985
    assert 0.9 <= np.mean(wholes) <= 0.995
    assert kstest(values, "uniform").pvalue > 1e-3
