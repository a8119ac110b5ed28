"""Huber, quantile, support-vector, Poisson and multinomial fits compared with fits without privacy, on held-out rows.

Usage: python benchmarks/other_losses.py [--seeds 5] [--epsilons 1 8 30 100]

20,000 x 20, add-remove, columns over two decades or neighbours correlated by .9; seeds not used in development.
Each cell is the mean loss over that of the minimiser without privacy, in %, with its standard error over noise seeds.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
from loaders import Floats
from scipy.optimize import minimize
from scipy.special import expit, gammaln, logsumexp

from dplangevin import (
    DPHuberRegressor,
    DPLinearSVC,
    DPLogisticRegression,
    DPPoissonRegressor,
    DPQuantileRegressor,
)

ROWS, COLUMNS, HELD_OUT, FRESH = 20_000, 20, 20_000, 14_001
TRANSITION, QUANTILE, CORNER, MOST = 0.2, 0.9, 1.0, 30.0
Losses = Callable[[Floats, Floats], Floats]


def rows(kind: str, seed: int) -> tuple[Floats, Floats]:
    """Return rows of norm at most 1, and a standardised score of them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((ROWS + HELD_OUT, COLUMNS))
    if kind == "scales":
        X *= np.geomspace(1, 0.01, COLUMNS)
    else:
        for j in range(1, COLUMNS):
            X[:, j] = 0.9 * X[:, j - 1] + math.sqrt(0.19) * X[:, j]
    scores = X / X.std(axis=0) @ rng.standard_normal(COLUMNS)
    lengths = np.linalg.norm(X, axis=1)
    return X / np.maximum(lengths, np.quantile(lengths, 0.99))[:, None] * 0.999, scores / scores.std()


def huber(z: Floats, y: Floats) -> Floats:
    """Return the Huber loss with the transition of the estimator."""
    off = np.abs(z - y)
    return np.where(off <= TRANSITION, off**2 / 2, TRANSITION * (off - TRANSITION / 2))


def pinball(z: Floats, y: Floats) -> Floats:
    """Return the pinball loss, not smoothed."""
    return np.maximum(QUANTILE * (y - z), (QUANTILE - 1) * (y - z))


def hinge(z: Floats, y: Floats) -> Floats:
    """Return the hinge loss with the quadratic corner of the estimator."""
    short = 1 - (2 * y - 1) * z
    return np.where(short > CORNER, short - CORNER / 2, np.maximum(short, 0.0) ** 2 / (2 * CORNER))


def poisson(z: Floats, y: Floats) -> Floats:
    """Return the negative log-likelihood; its changes are half of those of the deviance."""
    return np.asarray(np.exp(z) - y * z + gammaln(y + 1))


def softmax(z: Floats, y: Floats) -> Floats:
    """Return the log-loss of scores [n, K]."""
    return np.asarray(logsumexp(z, axis=1) - z[np.arange(len(z)), y.astype(int)])


def best(losses: Losses, X: Floats, y: Floats, outputs: int, smooth: float) -> Floats:
    """Return the coefficients [p + 1, outputs] of the minimiser, by finite differences of the loss in the score."""
    W = np.column_stack([X / X.std(axis=0), np.ones(len(X))])

    def value(flat: Floats) -> tuple[float, Floats]:
        z = (W @ flat.reshape(-1, outputs)) if outputs > 1 else W @ flat
        slopes = []
        for k in range(outputs):
            step = smooth if outputs == 1 else smooth * np.eye(outputs)[k]
            slopes.append((losses(z + step, y) - losses(z - step, y)) / (2 * smooth))
        return float(losses(z, y).mean()), (W.T @ np.column_stack(slopes) / len(y)).ravel()

    solution = minimize(
        value, np.zeros(W.shape[1] * outputs), jac=True, method="L-BFGS-B", options={"maxiter": 2000}
    )
    theta = solution.x.reshape(-1, outputs)
    theta[:-1] /= X.std(axis=0)[:, None]
    return np.asarray(theta)


def scores_of(model: object, X: Floats) -> Floats:
    """Return scores on the scale of the loss."""
    if isinstance(model, DPPoissonRegressor):
        return np.log(np.maximum(model.predict(X), 1e-300))
    if isinstance(model, DPLogisticRegression):
        return np.log(np.maximum(model.predict_proba(X), 1e-300))
    if isinstance(model, DPLinearSVC):
        return np.asarray(model.decision_function(X))
    return np.asarray(model.predict(X))  # type: ignore[attr-defined]


def problems(kind: str, seed: int) -> dict[str, tuple[Losses, Floats, int, float, Callable[..., object]]]:
    """Return loss, targets, number of scores, step of the finite differences and estimator of each model."""
    rng = np.random.default_rng(seed + 50)
    _, s = rows(kind, seed)
    n = len(s)
    numbers = np.clip(s / 4 + 0.1 * rng.standard_t(3, n), -1, 1)
    waves = np.column_stack([s * a for a in (-1.5, -0.5, 0.5, 1.5)]) + rng.gumbel(size=(n, 4))
    ends = {"target_bounds": (-1.0, 1.0)}
    return {
        "huber": (huber, numbers, 1, 1e-5, lambda **k: DPHuberRegressor(transition=TRANSITION, **ends, **k)),
        "quantile .9": (pinball, numbers, 1, 1e-3, lambda **k: DPQuantileRegressor(quantile=QUANTILE, **ends, **k)),
        "svc": (
            hinge, (rng.random(n) < expit(2 * s)).astype(float), 1, 1e-5,
            lambda **k: DPLinearSVC(classes=[0, 1], **k),
        ),
        "poisson": (
            poisson, np.minimum(rng.poisson(np.exp(0.5 + 0.5 * s)), MOST).astype(float), 1, 1e-5,
            lambda **k: DPPoissonRegressor(target_bounds=(0.0, MOST), **k),
        ),
        "multinomial": (
            softmax, waves.argmax(axis=1).astype(float), 4, 1e-5,
            lambda **k: DPLogisticRegression(classes=[0, 1, 2, 3], **k),
        ),
    }  # fmt: skip


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="+", default=(1.0, 8.0, 30.0, 100.0))
    options = parser.parse_args()
    print("| model | columns | " + " | ".join(f"epsilon {e:g}" for e in options.epsilons) + " |")
    print("|---|---|" + "---|" * len(options.epsilons))
    for index, kind in enumerate(("scales", "neighbours")):
        X, _ = rows(kind, FRESH + index)
        for name, (losses, y, outputs, smooth, make_model) in problems(kind, FRESH + index).items():
            theta = best(losses, X[:ROWS], y[:ROWS], outputs, smooth)
            z = X[ROWS:] @ theta[:-1] + theta[-1]
            least = losses(z if outputs > 1 else z[:, 0], y[ROWS:]).mean()
            cells = []
            for epsilon in options.epsilons:
                excesses = []
                for seed in range(options.seeds):
                    model = make_model(
                        epsilon=epsilon,
                        delta=1e-6,
                        adjacency="add-remove",
                        n_public=ROWS,
                        data_norm=1.0,
                        random_state=seed,
                    )
                    model.fit(X[:ROWS], y[:ROWS])  # type: ignore[attr-defined]
                    excesses.append(100 * (losses(scores_of(model, X[ROWS:]), y[ROWS:]).mean() / least - 1))
                cells.append(f"{np.mean(excesses):+.2f} ± {np.std(excesses) / math.sqrt(len(excesses)):.2f}%")
            print(f"| {name} | {kind} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
