"""Poisson regression with a log link, for counts that are stated to be at most 20."""

import numpy as np

from dplangevin import DPPoissonRegressor

rng = np.random.default_rng(2)
X = rng.uniform(-1, 1, (15_000, 3))
y = rng.poisson(np.exp(0.4 + X @ [0.8, -0.5, 0.0]))
model = DPPoissonRegressor(epsilon=1.0, delta=1e-6, data_norm=3**0.5, target_bounds=(0, 20)).fit(X, y)
print(
    f"coefficients {np.round(model.coef_, 2)} (true 0.8, -0.5, 0), share of deviance explained {model.score(X, y):.2f}"
)
