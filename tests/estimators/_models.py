"""The estimators, each with the public statements it needs, and data it can fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from dplangevin.estimators import (
    DPHuberRegressor,
    DPLinearSVC,
    DPLogisticRegression,
    DPPoissonRegressor,
    DPQuantileRegressor,
    DPRidge,
)

CLASSIFIERS = (DPLogisticRegression, DPLinearSVC)
REGRESSORS = (DPRidge, DPHuberRegressor, DPQuantileRegressor, DPPoissonRegressor)
EVERY = CLASSIFIERS + REGRESSORS


def made(cls: type, **changes: Any) -> Any:
    """An estimator with its bounds stated."""
    options: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "data_norm": 2.0, "random_state": 0}
    if cls in REGRESSORS:
        options["target_bounds"] = (0.0, 30.0) if cls is DPPoissonRegressor else (-1.0, 1.0)
    return cls(**(options | changes))


def table(cls: type, n: int = 400, p: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features in [-1, 1] and a target of the right kind."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, p))
    score = 2 * X[:, 0] - X[:, 1]
    if cls in CLASSIFIERS:
        return X, (rng.random(n) < 1 / (1 + np.exp(-3 * score))).astype(int)
    if cls is DPPoissonRegressor:
        return X, rng.poisson(np.exp(0.5 * score)).astype(float)
    return X, np.clip(0.3 * score + 0.1 * rng.standard_normal(n), -1, 1)
