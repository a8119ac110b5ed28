"""Fit time of the default logistic regression relative to scikit-learn's, one thread, models taking turns.

Usage: OMP_NUM_THREADS=1 python benchmarks/fit_time.py [--rows 100000] [--columns 50] [--turns 5] [--kind NAME ...]

scikit-learn (lbfgs, C = 1e4) sees columns of deviation 1, dplangevin the same table with rows of norm 1, epsilon 8.
Two ways to stop scikit-learn: its own tolerance, and the first iteration whose log-loss is that of the private fit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
from loaders import Floats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dplangevin import DPLogisticRegression

KINDS = ("independent", "equicorrelated .9", "neighbours .9")
ITERATIONS = (4, 5, 6, 8, 10, 12, 15, 20, 30, 50, 100)


def table(n: int, p: int, kind: str) -> tuple[Floats, Floats]:
    """Return columns that are independent, equicorrelated by .9, or correlated by .9 with the previous one."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    if kind == "equicorrelated .9":
        X = np.sqrt(0.9) * rng.standard_normal((n, 1)) + np.sqrt(0.1) * X
    if kind == "neighbours .9":
        for j in range(1, p):
            X[:, j] = 0.9 * X[:, j - 1] + np.sqrt(0.19) * X[:, j]
    X /= X.std(axis=0)
    scores = X @ rng.standard_normal(p)
    return X, (rng.random(n) < 1 / (1 + np.exp(-2 * scores / scores.std()))).astype(int)


def spent(model: Any, X: Floats, y: Floats) -> float:
    """Return the processor seconds of one fit."""
    start = time.process_time()
    model.fit(X, y)
    return time.process_time() - start


def main() -> None:
    """Print ratios of medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--kind", choices=KINDS, nargs="+", default=KINDS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    kernels = ("numpy", "numba") if find_spec("numba") else ("numpy",)
    for kind in arguments.kind:
        X, y = table(arguments.rows, arguments.columns, kind)
        rows = X / np.linalg.norm(X, axis=1).max()
        ours = DPLogisticRegression(
            epsilon=8.0, data_norm=1.0, classes=[0, 1], adjacency="add-remove", random_state=0
        )
        goal = log_loss(y, ours.fit(rows, y).predict_proba(rows)[:, 1])
        quick = LogisticRegression(C=1e4)
        for most in ITERATIONS:
            quick = LogisticRegression(C=1e4, max_iter=most)
            if log_loss(y, quick.fit(X, y).predict_proba(X)[:, 1]) <= goal:
                break
        times: dict[str, list[float]] = {}
        for turn in range(arguments.turns + 1):
            for name, model in (
                ("own tolerance", LogisticRegression(C=1e4, max_iter=1000)),
                ("same loss", quick),
            ):
                times.setdefault(name, []).append(spent(model, X, y))
            for kernel in kernels:
                os.environ["DPLANGEVIN_KERNEL"] = kernel
                times.setdefault(kernel, []).append(spent(ours, rows, y))
            if not turn:  # imports and compiled code
                times.clear()
        medians = {name: statistics.median(values) for name, values in times.items()}
        ratios = ", ".join(
            f"{kernel} over {peer}: {medians[kernel] / medians[peer]:.2f}"
            for kernel in kernels
            for peer in ("own tolerance", "same loss")
        )
        print(f"{arguments.rows} x {arguments.columns}, {kind}, {ours.n_iter_} steps: {ratios}", flush=True)


if __name__ == "__main__":
    main()
