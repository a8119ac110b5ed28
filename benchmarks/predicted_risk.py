"""Predicted and measured excess risk of the default logistic fit, on generated tables not used in development.

Usage: python benchmarks/predicted_risk.py [--tables 20] [--first 0] [--seeds 8] [--epsilons .5 2 8] [--delta 1e-5]

Risk is the expected excess: the mean over noise seeds of how far the mean loss of the fit over the records is above the
least one (the loss that is minimised, clip included; no sampling error). Predicted twice: from
public numbers before the fit (`predicted_excess_risk`), and from what it released (`geometry_["excess_risk"]`; plain
descent, which releases no second moment, has only the first), the latter also for single fits.
"""

from __future__ import annotations

import argparse

import numpy as np
from clip_law import HELD_OUT, shapes, table as mixed_table
from converging import ILL, ill
from loaders import Floats
from scipy.optimize import minimize

from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Loss

FRESH = 13001  # seeds from here on were not used in development


def tables(index: int) -> tuple[str, Floats, Floats]:
    """Return first tables of the generator of the clipping rule, then ill-conditioned ones with another seed."""
    if index < 20 - len(ILL):
        X, y = mixed_table(shapes(FRESH, 20)[index], FRESH + index)
        return f"mixed {index}", X[:-HELD_OUT], y[:-HELD_OUT]
    which = index - (20 - len(ILL))
    X, y, _, _ = ill(which, FRESH)
    return f"ill {which}", X, y


def least(loss: Loss, X: Floats, y: Floats) -> float:
    """Return the smallest mean loss, minimised in whitened coordinates."""
    values, vectors = np.linalg.eigh(X.T @ X / len(X))
    Z = X @ (vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1])))

    def value(q: Floats) -> tuple[float, Floats]:
        scores = Z @ q
        return float(loss.value(scores, y).mean()), Z.T @ loss.slope(scores, y) / len(y)

    solution = minimize(value, np.zeros(Z.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return float(solution.fun)


def main() -> None:
    """Print a row for each cell, and the fraction of cells within a factor of 2."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--delta", type=float, default=1e-5, help="0: pure guarantees")
    parser.add_argument("--epsilons", type=float, nargs="+", default=(0.5, 2.0, 8.0))
    arguments = parser.parse_args()
    print("| table | n x p | epsilon | moment releases | measured | before / measured | after / measured |")
    print("|---|---|---|---|---|---|---|")
    ratios: list[tuple[float, float, float]] = []
    for index in range(arguments.first, arguments.tables):
        name, X, y = tables(index)
        for epsilon in arguments.epsilons:
            fit_plan = plan_fit(
                model="logistic", n=len(X), n_features=X.shape[1], epsilon=epsilon, delta=arguments.delta,
                adjacency="replace-one", data_norm=1.0, fit_intercept=False,
            )  # fmt: skip
            plan, loss = fit_plan.plan, fit_plan.plan.problem.loss
            data, floor = ArrayDataset(X, y, plan.problem), least(loss, X, y)
            releases = [run_plan(plan, data, s) for s in range(arguments.seeds)]
            excess = float(np.mean([loss.value(X @ release.value, y).mean() - floor for release in releases]))
            before = fit_plan.predicted_excess_risk
            after = np.array([float(release.auxiliary.get("excess_risk", before)) for release in releases])
            fraction_within = np.mean((after >= excess / 2) & (after <= 2 * excess))
            ratios.append((before / excess, after.mean() / excess, float(fraction_within)))
            print(
                f"| {name} | {len(X)} x {X.shape[1]} | {epsilon:g} | {getattr(plan.spec, 'n_moment_releases', 0)} | "
                f"{excess:.2e} | {ratios[-1][0]:.2f} | {ratios[-1][1]:.2f} |",
                flush=True,
            )
    ratio_table = np.array(ratios)
    within = np.mean((ratio_table[:, :2] >= 0.5) & (ratio_table[:, :2] <= 2), axis=0)
    print(
        f"\nWithin a factor of 2: {within[0]:.0%} of {len(ratios)} cells before the fit, {within[1]:.0%} after it "
        f"(single fits: {ratio_table[:, 2].mean():.0%})."
    )


if __name__ == "__main__":
    main()
