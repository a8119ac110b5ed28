"""Predicted excess risk of the default logistic fit beside the measured one, on generated tables that chose nothing.

Usage: python benchmarks/predicted_risk.py [--tables 20] [--first 0] [--seeds 8] [--epsilons .5 2 8] [--delta 1e-5]

Risk is the expected excess: the mean over noise seeds of how far the mean loss of the fit over the records is above the
least one (the loss that is minimised, clip included; no sampling error). Predicted twice: from
public numbers before the fit (`predicted_excess_risk`), and from what it released (`geometry_["excess_risk"]`; plain
descent, which buys no moment, has the first alone), the latter also fit by fit.
"""

from __future__ import annotations

import argparse

import numpy as np
from clip_law import HELD_OUT, shapes, table as mixed_table
from converging import ILL, ill
from loaders import Floats
from scipy.optimize import minimize

from dplangevin.data import ArrayDataset
from dplangevin.families.mechanism import run
from dplangevin.planner.choose import choose
from dplangevin.problem import Loss

FRESH = 13001  # seeds from here on chose nothing


def tables(place: int) -> tuple[str, Floats, Floats]:
    """First tables of the generator of the clip law, then ill-conditioned ones with another seed."""
    if place < 20 - len(ILL):
        X, y = mixed_table(shapes(FRESH, 20)[place], FRESH + place)
        return f"mixed {place}", X[:-HELD_OUT], y[:-HELD_OUT]
    which = place - (20 - len(ILL))
    X, y, _, _ = ill(which, FRESH)
    return f"ill {which}", X, y


def least(loss: Loss, X: Floats, y: Floats) -> float:
    """The smallest mean loss, found in whitened coordinates."""
    values, vectors = np.linalg.eigh(X.T @ X / len(X))
    Z = X @ (vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1])))

    def value(q: Floats) -> tuple[float, Floats]:
        scores = Z @ q
        return float(loss.value(scores, y).mean()), Z.T @ loss.slope(scores, y) / len(y)

    found = minimize(value, np.zeros(Z.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return float(found.fun)


def main() -> None:
    """A row for each cell, and the share of cells within a factor of 2."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--delta", type=float, default=1e-5, help="0: pure promises")
    parser.add_argument("--epsilons", type=float, nargs="+", default=(0.5, 2.0, 8.0))
    asked = parser.parse_args()
    print("| table | n x p | epsilon | looks | measured | before / measured | after / measured |")
    print("|---|---|---|---|---|---|---|")
    ratios: list[tuple[float, float, float]] = []
    for place in range(asked.first, asked.tables):
        name, X, y = tables(place)
        for epsilon in asked.epsilons:
            recipe = choose(
                model="logistic", n=len(X), n_features=X.shape[1], epsilon=epsilon, delta=asked.delta,
                adjacency="replace-one", data_norm=1.0, fit_intercept=False,
            )  # fmt: skip
            plan, loss = recipe.plan, recipe.plan.problem.loss
            data, floor = ArrayDataset(X, y, plan.problem), least(loss, X, y)
            made = [run(plan, data, s) for s in range(asked.seeds)]
            lost = float(np.mean([loss.value(X @ release.value, y).mean() - floor for release in made]))
            before = recipe.predicted_excess_risk
            after = np.array([float(release.beside.get("excess_risk", before)) for release in made])
            alone = np.mean((after >= lost / 2) & (after <= 2 * lost))
            ratios.append((before / lost, after.mean() / lost, float(alone)))
            print(
                f"| {name} | {len(X)} x {X.shape[1]} | {epsilon:g} | {getattr(plan.schedule, 'looks', 0)} | "
                f"{lost:.2e} | {ratios[-1][0]:.2f} | {ratios[-1][1]:.2f} |",
                flush=True,
            )
    found = np.array(ratios)
    within = np.mean((found[:, :2] >= 0.5) & (found[:, :2] <= 2), axis=0)
    print(
        f"\nWithin a factor of 2: {within[0]:.0%} of {len(ratios)} cells before the fit, {within[1]:.0%} after it "
        f"(single fits: {found[:, 2].mean():.0%})."
    )


if __name__ == "__main__":
    main()
