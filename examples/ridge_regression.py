"""A linear model of a bounded target; the same call with delta=0 gives a pure guarantee."""

import numpy as np

from dplangevin import DPRidge

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (12_000, 8))
y = np.clip(X @ np.linspace(1, -1, 8) / 3 + 0.1 * rng.standard_normal(12_000), -2, 2)
for delta in (1e-6, 0.0):
    model = DPRidge(epsilon=1.0, delta=delta, data_norm=8**0.5, target_bounds=(-2, 2)).fit(X[:9000], y[:9000])
    print(
        f"delta = {delta:g}: {model.plan_.plan.spec.mechanism}, test R2 {model.score(X[9000:], y[9000:]):.3f}"
    )
