"""Misspecified models with heavy tails: the effect of the row-norm factor, on tables not used in development.

Usage: python benchmarks/heavy_tails.py [--tables 6] [--seeds 5]

Columns are exponential, Pareto, rare or correlated; targets saturate and have an interaction, so no linear model is
right. Losses are of the rows that were fitted, against the minimiser without privacy; replace-one, delta = 1e-6.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from loaders import Floats
from scipy.optimize import minimize

from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Logistic, Loss, Squared

EPSILONS = (0.5, 1.0, 4.0, 20.0)
FRESH = 9101  # seeds from here on were not used in development


def table(seed: int) -> tuple[Floats, Floats]:
    """Return rows of norm at most 1 with a constant column, and scores that are not linear in them."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.choice([8_000, 25_000, 80_000])), int(rng.choice([6, 12, 25]))
    columns = [np.minimum(rng.pareto(2.5, n), 15) / 15]
    for _ in range(p - 1):
        kinds = (
            np.minimum(rng.exponential(size=n), 10) / 10,
            np.minimum(rng.pareto(2.5, n), 15) / 15,
            (rng.random(n) < rng.uniform(0.01, 0.5)).astype(float),
            0.8 * columns[int(rng.integers(len(columns)))] + 0.2 * rng.random(n),
        )
        columns.append(kinds[int(rng.integers(len(kinds)))])
    X = np.column_stack(columns)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    scores = Z @ rng.standard_normal(p) * (1.5 / np.sqrt(p)) + 0.5 * np.abs(Z[:, 0]) * Z[:, -1]
    rows = np.column_stack([X, np.ones(n)])
    return rows / np.linalg.norm(rows, axis=1).max(), scores + rng.logistic(size=n)


def least(loss: Loss, X: Floats, y: Floats) -> float:
    """Return the smallest mean loss."""
    W = X / np.sqrt((X**2).mean(axis=0))

    def value(q: Floats) -> tuple[float, Floats]:
        scores = W @ q
        return float(loss.value(scores, y).mean()), W.T @ loss.slope(scores, y) / len(y)

    solution = minimize(
        value, np.zeros(W.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 3000, "ftol": 1e-13}
    )
    return float(solution.fun)


def excess(model: str, X: Floats, y: Floats, loss: Loss, epsilon: float, seeds: int) -> list[float]:
    """Return the mean loss above the smallest one, in %: with rows clipped at their expected norm, and by default."""
    fit_plan = plan_fit(
        model=model, n=len(X), n_features=X.shape[1], epsilon=epsilon, delta=1e-6, data_norm=1.0,
        adjacency="replace-one", fit_intercept=False, **({"target_bounds": (-1.0, 1.0)} if model == "ridge" else {}),
    )  # fmt: skip
    smallest, excesses = least(loss, X, y), []
    for row_norm_factor in (1.0, fit_plan.plan.spec.row_norm_factor):
        plan = replace(fit_plan.plan, spec=replace(fit_plan.plan.spec, row_norm_factor=row_norm_factor))
        values = [
            loss.value(X @ run_plan(plan, ArrayDataset(X, y, plan.problem), seed).value, y).mean()
            for seed in range(seeds)
        ]
        excesses.append(100 * (float(np.mean(values)) / smallest - 1))
    return excesses


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    print("| model | rows x columns | " + " | ".join(f"epsilon {e:g}" for e in EPSILONS) + " |")
    print("|---|---|" + "---|" * len(EPSILONS))
    targets: dict[str, tuple[Loss, Callable[[Floats], Floats]]] = {
        "ridge": (Squared(), lambda scores: np.clip(scores / 4, -1, 1)),
        "logistic": (Logistic(), lambda scores: (scores > 0).astype(float)),
    }
    for index in range(options.tables):
        X, scores = table(FRESH + index)
        for model, (loss, target) in targets.items():
            pairs = [excess(model, X, target(scores), loss, epsilon, options.seeds) for epsilon in EPSILONS]
            cells = " | ".join(f"+{cut:.2f} / +{now:.2f}%" for cut, now in pairs)
            print(f"| {model} | {len(X):,} x {X.shape[1]} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
