"""A linear support vector classifier with stated labels, so that none are read from y."""

import numpy as np

from dplangevin import DPLinearSVC

rng = np.random.default_rng(3)
X = rng.uniform(-1, 1, (10_000, 5))
y = np.where(X @ [2, -1, 0, 0, 1] + 0.3 * rng.standard_normal(10_000) > 0, "yes", "no")
model = DPLinearSVC(epsilon=0.5, delta=1e-6, data_norm=5**0.5, classes=["no", "yes"]).fit(X[:8000], y[:8000])
print(f"accuracy {model.score(X[8000:], y[8000:]):.3f} at epsilon = {model.privacy_.epsilon():.2f}")
