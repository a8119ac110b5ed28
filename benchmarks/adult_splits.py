"""Adult split at random: do plain descent and DP-SGD beat the default, as they do on the published test rows?

Usage: DPLANGEVIN_DATA=directory python benchmarks/adult_splits.py [--splits 12] [--epsilon 1]

Each split has 32,561 rows to fit, as many as the published one. Figures are test accuracy in percent and log-loss, less
those of maximum likelihood on the same split, in floating point (the noise has the size of that of exact fits). "one
release" is the default fit with one second-moment release where the planner would make two. DP-SGD is what
`_peer_opacus.py` runs, in NumPy (15 epochs, batches of 1,024, learning rate 4): rows have norm 1, so no gradient is
clipped. It is run at epsilon 1 with add-remove, with a noise multiplier 5% below what Renyi accounting asks for.
"""

from __future__ import annotations

import argparse
from unittest import mock

import numpy as np
from accuracy import DELTA, _figures
from loaders import Floats, load
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.planner import rules
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Clipped

N_ROWS, FIRST_SEED = 32_561, 500
FITS = {"default": ("auto", None), "one release": ("auto", 0.0), "plain descent": ("noisy-gd", None)}


def private_coefficients(
    X: Floats, y: Floats, name: str, adjacency: str, epsilon: float, seed: int
) -> tuple[Floats, float]:
    """Return the coefficients of a fit, and the clip of its slopes (1 without)."""
    mechanism, max_edge = FITS[name]
    edge = rules.MAX_EDGE_FOR_SECOND_RELEASE if max_edge is None else max_edge
    with mock.patch.object(rules, "MAX_EDGE_FOR_SECOND_RELEASE", edge):
        plan = plan_fit(
            model="logistic", n=len(X), n_features=X.shape[1], epsilon=epsilon, delta=DELTA, adjacency=adjacency,
            data_norm=1.0, fit_intercept=False, mechanism=mechanism, secure=False,
        ).plan  # fmt: skip
    loss = plan.problem.loss
    value = run_plan(plan, ArrayDataset(X, y, plan.problem), seed).value
    return value, loss.bound if isinstance(loss, Clipped) else 1.0


EPOCHS, BATCH, RATE, SGD_NOISE = 15, 1024, 4.0, 2.812


def sgd_coefficients(X: Floats, y: Floats, seed: int) -> Floats:
    """Return the last iterate of DP-SGD on Poisson batches."""
    rng, theta = np.random.default_rng(seed), np.zeros(X.shape[1])
    for _ in range(EPOCHS * round(len(X) / BATCH)):
        rows = np.flatnonzero(rng.random(len(X)) < BATCH / len(X))
        gradient = X[rows].T @ (expit(X[rows] @ theta) - y[rows])
        theta -= RATE / BATCH * (gradient + SGD_NOISE * rng.standard_normal(len(theta)))
    return theta


def main() -> None:
    """Print one line for each fit and adjacency."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=12)
    parser.add_argument("--epsilon", type=float, default=1.0)
    options = parser.parse_args()
    published = load("adult")
    X = np.concatenate([published.X, published.X_test])
    y = np.concatenate([published.y, published.y_test])
    results: dict[tuple[str, str], list[Floats]] = {}
    for split in range(options.splits):
        order = np.random.default_rng(FIRST_SEED + split).permutation(len(X))
        fitted, held = order[:N_ROWS], order[N_ROWS:]
        plain = LogisticRegression(C=1e3, fit_intercept=False, max_iter=500).fit(X[fitted], y[fitted])
        best = np.array(_figures(X[held] @ plain.coef_.T, y[held], 1.0))
        for adjacency in ("replace-one", "add-remove"):
            for name in FITS:
                theta, clip = private_coefficients(
                    X[fitted], y[fitted], name, adjacency, options.epsilon, split
                )
                figures = np.array(_figures((X[held] @ theta)[:, None], y[held], clip))
                results.setdefault((adjacency, name), []).append(figures - best)
        if options.epsilon == 1:
            figures = np.array(
                _figures((X[held] @ sgd_coefficients(X[fitted], y[fitted], split))[:, None], y[held], 1.0)
            )
            results.setdefault(("add-remove", "DP-SGD"), []).append(figures - best)
    for (adjacency, name), rows in results.items():
        mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / len(rows) ** 0.5
        print(
            f"{adjacency}, {name}: {mean[0]:+.3f} ± {error[0]:.3f} points, {mean[1]:+.4f} ± {error[1]:.4f} log-loss"
        )


if __name__ == "__main__":
    main()
