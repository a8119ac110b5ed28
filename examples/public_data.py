"""A small public sample: its expected benefit before anything is spent, then a private fit that uses it."""

import numpy as np

from dplangevin import DPRidge

rng = np.random.default_rng(0)
scales = np.array([1.0, 0.5, 0.2, 0.1, 0.05])  # columns of very different sizes
X = rng.uniform(-1, 1, (6000, 5)) * scales
y = np.clip(X @ (0.5 / scales * [1, -1, 1, -1, 1]) / 2 + 0.1 * rng.standard_normal(6000), -1, 1)
X_public, y_public, X_private, y_private = X[:150], y[:150], X[150:], y[150:]

model = DPRidge(
    epsilon=0.5,
    delta=1e-6,
    data_norm=1.2,
    target_bounds=(-1, 1),
    public_data=(X_public, y_public),
    random_state=0,
)
for method, excess in model.compare_public_methods(n_private=len(X_private)).items():
    print(f"{method:12} expected excess loss {excess:.5f}")

model.fit(X_private, y_private)
print(model.plan_)
print(f"R^2 {model.score(X_private, y_private):.3f}, epsilon {model.privacy_.epsilon():.3f}")
