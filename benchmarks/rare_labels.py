"""Rare labels: default fits against the base rate, exact and released privately with the same budget.

Usage: python benchmarks/rare_labels.py [--seeds 20] [--rows 3000,30000]

Excess of the expected log-loss over the true probabilities, on 100,000 new rows; replace-one. Ten columns, normal, with
heavy tails, binary or correlated; scores have standard deviation 1.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from loaders import Floats
from scipy.optimize import brentq
from scipy.special import expit

from dplangevin import DPLogisticRegression
from dplangevin.accounting import conversions as cv

KINDS, RATES, EPSILONS, DELTAS = (
    ("normal", "heavy", "binary", "correlated"),
    (0.002, 0.01, 0.05),
    (0.1, 0.5, 1.0, 8.0),
    (1e-6, 0.0),
)
N_COLUMNS, N_TEST = 10, 100_000
FRESH = 7301  # seeds from here on were not used in development


def table(kind: str, rate: float, n: int, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return rows within [-1, 1]^p and labels, and new rows with their true probabilities."""
    rng = np.random.default_rng(seed)
    shape = (n + N_TEST, N_COLUMNS)
    if kind == "normal":
        X = np.clip(rng.standard_normal(shape), -4, 4) / 4
    elif kind == "heavy":
        X = np.clip(rng.standard_t(3, size=shape), -10, 10) / 10
    elif kind == "binary":
        X = np.where(rng.random(shape) < rng.uniform(0.02, 0.5, N_COLUMNS), 1.0, -1.0)
    else:
        shared = rng.standard_normal((n + N_TEST, 1))
        X = np.clip(0.8 * shared + 0.6 * rng.standard_normal(shape), -4, 4) / 4
    scores = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.standard_normal(N_COLUMNS)
    scores /= scores.std()
    shift = brentq(lambda b: float(expit(b + scores).mean()) - rate, -30, 10)
    truth = expit(shift + scores)
    y = (rng.random(len(X)) < truth).astype(float)
    return X[:n], y[:n], X[n:], truth[n:]


def excess(truth: Floats, predicted: Floats) -> float:
    """Return the excess of the expected log-loss."""
    q = np.clip(predicted, 1e-12, 1 - 1e-12)
    return float(np.mean(truth * np.log(truth / q) + (1 - truth) * np.log((1 - truth) / (1 - q))))


def private_constant(y: Floats, epsilon: float, delta: float, rng: np.random.Generator) -> float:
    """Return the base rate from one count with the whole budget."""
    noise = rng.standard_normal() / cv.gdp_mu(epsilon, delta) if delta else rng.laplace(scale=1 / epsilon)
    return float(np.clip(y.sum() + noise, 0.5, len(y) - 0.5) / len(y))


def main() -> None:
    """Print one line for each cell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", default="3000,30000")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "kind rate n epsilon delta | exact constant | private constant | default fit | z against private constant"
    )
    for k, kind in enumerate(KINDS):
        for rate in RATES:
            for n in map(int, options.rows.split(",")):
                X, y, new, truth = table(kind, rate, n, FRESH + k)
                exact = excess(truth, np.full(len(truth), y.mean()))
                for delta in DELTAS:
                    for epsilon in EPSILONS:
                        cell = [FRESH, k, int(1e4 * rate), n, int(100 * epsilon), int(delta > 0)]
                        rng = np.random.default_rng(cell)
                        rates = [private_constant(y, epsilon, delta, rng) for _ in range(400)]
                        constants = np.array([excess(truth, np.full(len(truth), r)) for r in rates])
                        fits = []
                        for seed in range(options.seeds):
                            model = DPLogisticRegression(
                                epsilon=epsilon, delta=delta, data_norm=N_COLUMNS**0.5, classes=[0, 1],
                                random_state=np.random.default_rng([*cell, seed]),
                            )  # fmt: skip
                            fits.append(excess(truth, model.fit(X, y).predict_proba(new)[:, 1]))
                        error = np.hypot(np.std(fits, ddof=1) / len(fits) ** 0.5, constants.std() / 20)
                        z = (np.mean(fits) - constants.mean()) / error
                        print(
                            f"{kind} {rate:g} {n} {epsilon:g} {delta:g} | {exact:.5f} | {constants.mean():.5f} | "
                            f"{np.mean(fits):.5f} +- {np.std(fits, ddof=1) / len(fits) ** 0.5:.5f} | {z:+.1f}",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
