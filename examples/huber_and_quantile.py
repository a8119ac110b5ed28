"""Robust regression: a heavy-tailed target, its centre (Huber) and its ninth decile (quantile)."""

import numpy as np

from dplangevin import DPHuberRegressor, DPQuantileRegressor

rng = np.random.default_rng(1)
X = rng.uniform(-1, 1, (20_000, 4))
y = 2 * X[:, 0] + rng.standard_t(2, 20_000)
stated = {"epsilon": 1.0, "delta": 1e-6, "data_norm": 2.0, "target_bounds": (-10, 10)}
centre = DPHuberRegressor(**stated, transition=1.0).fit(X, y)
print(f"Huber slope of the first feature {centre.coef_[0]:.2f} (true 2)")
decile = DPQuantileRegressor(**stated, quantile=0.9).fit(X, y)
print(f"share of targets below the predicted ninth decile: {np.mean(y < decile.predict(X)):.2f}")
