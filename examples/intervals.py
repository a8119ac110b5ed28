"""Confidence intervals under differential privacy: what a clinic may publish about the effect of age on a cost."""

import numpy as np

from dplangevin import DPLogisticRegression, DPRidge

NAMES = ("age", "visits", "distance", "intercept")
EFFECTS = np.array([0.5, 0.3, 0.0])


def patients(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three features in [-1, 1], a cost in [-1, 1] and whether the patient came back."""
    X = rng.uniform(-1, 1, (n, 3))
    cost = np.clip(X @ EFFECTS * 0.6 + 0.15 * rng.standard_normal(n), -1, 1)
    return X, cost, rng.random(n) < 1 / (1 + np.exp(-4 * X @ EFFECTS))


def show(title: str, model: DPRidge | DPLogisticRegression) -> None:
    print(f"{title}: epsilon = {model.privacy_.epsilon():.3f}, delta = {model.privacy_.at_delta:g}")
    for name, (low, high), error in zip(
        NAMES, model.confidence_intervals(0.95), model.standard_errors_, strict=True
    ):
        print(f"  {name:>9}  [{low:6.3f}, {high:6.3f}]   standard error {error:.3f}")


if __name__ == "__main__":
    X, cost, came_back = patients(20_000, np.random.default_rng(0))
    stated = {"epsilon": 1.0, "delta": 1e-6, "data_norm": 3**0.5, "intervals": True, "random_state": 0}
    show("cost (true effects 0.300, 0.180, 0)", DPRidge(**stated, target_bounds=(-1, 1)).fit(X, cost))
    show(
        "return (true effects 2.0, 1.2, 0)",
        DPLogisticRegression(**stated, classes=[False, True]).fit(X, came_back),
    )
