"""The default fit compared with plain descent and the model without privacy, on tables not used in development.

Usage: python benchmarks/converging.py measure PART [--table 0] [--seeds 20] [--epsilons 1 8] >> cells.jsonl
       python benchmarks/converging.py print cells.jsonl

Parts: ill (correlated columns and unequal scales), mixed (the generator of clip_law.py, a new set), validation (that of
validation.py, a new set), wide (500 to 2,000 columns), noise (labels that do not depend on the rows), real (adult,
breast_cancer, digits8; development data). A line is a cell.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import _figures
from clip_law import shapes, table as mixed_table
from loaders import Floats, load
from scipy.optimize import minimize
from validation import TABLES, table as validation_table

from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Clipped, Logistic

EPSILONS = (0.1, 0.5, 1.0, 8.0)
HELD_OUT = 10_000
FRESH = 7001  # seeds from here on were not used in development
# kind, rows, columns, correlation or decades
ILL = (
    ("ar", 20_000, 20, 0.95),
    ("ar", 20_000, 50, 0.9),
    ("equal", 20_000, 40, 0.9),
    ("scales", 20_000, 20, 2.0),
    ("scales", 50_000, 30, 2.3),
    ("both", 20_000, 30, 0.8),
)
MIXED = 12
# kind, columns; 20,000 rows, 30 effects
WIDE = (
    ("ar", 500),
    ("falling", 500),
    ("sparse", 500),
    ("falling", 1000),
    ("sparse", 1000),
    ("falling", 2000),
)
Table = tuple[Floats, Floats, Floats, Floats]


def ill(index: int, seed: int = FRESH) -> Table:
    """Return columns that are correlated, or of unequal scales, or both; a constant column; rows of norm at most 1."""
    kind, n, p, much = ILL[index]
    rng = np.random.default_rng(seed + index)
    X = rng.standard_normal((n + HELD_OUT, p))
    if kind in ("ar", "both"):
        for j in range(1, p):
            X[:, j] = much * X[:, j - 1] + math.sqrt(1 - much**2) * X[:, j]
    if kind == "equal":
        X = math.sqrt(much) * rng.standard_normal((len(X), 1)) + math.sqrt(1 - much) * X
    if kind in ("scales", "both"):
        X *= np.geomspace(1, 10 ** -(much if kind == "scales" else 1.0), p)
    scores = (X / X.std(axis=0)) @ rng.standard_normal(p)
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-2 * scores / scores.std()))).astype(float)
    rows = np.column_stack([np.clip(X, -4, 4), np.ones(len(X))])
    rows /= np.linalg.norm(rows, axis=1).max()
    return rows[:n], y[:n], rows[n:], y[n:]


def mixed(index: int) -> Table:
    """Return a table of the generator that the clipping rule was chosen on, of another set."""
    X, y = mixed_table(shapes(FRESH, MIXED)[index], FRESH + 100 + index)
    return X[:-HELD_OUT], y[:-HELD_OUT], X[-HELD_OUT:], y[-HELD_OUT:]


def validation(index: int) -> Table:
    """Return a table of validation.py with another seed."""
    X, y, _ = validation_table(list(TABLES)[index], FRESH + 500)
    return X[:-20_000], y[:-20_000], X[-20_000:-HELD_OUT], y[-20_000:-HELD_OUT]


def wide(index: int) -> Table:
    """Return many columns: correlated, with a falling spectrum, or rare indicators."""
    kind, p = WIDE[index]
    rng = np.random.default_rng(FRESH + 600 + index)
    X = rng.standard_normal((20_000 + HELD_OUT, p - 1))
    if kind == "ar":
        for j in range(1, p - 1):
            X[:, j] = 0.9 * X[:, j - 1] + math.sqrt(0.19) * X[:, j]
    if kind == "falling":
        X *= np.arange(1, p) ** -0.5
    if kind == "sparse":
        X = (rng.random(X.shape) < np.minimum(0.5, 3 / np.arange(1, p))).astype(float)
    scores = X[:, :30] / X[:, :30].std(axis=0) @ rng.standard_normal(30)
    probabilities = 1 / (1 + np.exp(-2 * (scores - scores.mean()) / scores.std()))
    y = (rng.random(len(X)) < probabilities).astype(float)
    rows = np.column_stack([X, np.ones(len(X))])
    lengths = np.linalg.norm(rows, axis=1)
    rows /= np.maximum(lengths, np.quantile(lengths, 0.95))[:, None]
    return rows[:20_000], y[:20_000], rows[20_000:], y[20_000:]


def noise(index: int) -> Table:
    """Return 8,000 x 30 rows with labels independent of them."""
    rng = np.random.default_rng(FRESH + 300 + index)
    rows = np.column_stack([rng.standard_normal((8_000 + HELD_OUT, 29)), np.ones(8_000 + HELD_OUT)])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    y = (rng.random(len(rows)) < 0.5).astype(float)
    return rows[:8_000], y[:8_000], rows[8_000:], y[8_000:]


def real(index: int) -> Table:
    """Return public data sets, which are development data."""
    split = load(("adult", "breast_cancer", "digits8")[index], 0)
    return split.X, np.asarray(split.y, float), split.X_test, np.asarray(split.y_test, float)


PARTS = {
    "ill": (ill, len(ILL)), "mixed": (mixed, MIXED), "validation": (validation, len(TABLES)), "wide": (wide, len(WIDE)),
    "noise": (noise, 1), "real": (real, 3),
}  # fmt: skip


def least(X: Floats, y: Floats, X_test: Floats, y_test: Floats) -> float:
    """Return the log-loss of maximum likelihood (with a tiny ridge), minimised in whitened coordinates."""
    values, vectors = np.linalg.eigh(X.T @ X / len(X))
    basis = vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1]))
    Z, loss = X @ basis, Logistic()

    def value(q: Floats) -> tuple[float, Floats]:
        slopes = loss.slope(Z @ q, y)
        return float(loss.value(Z @ q, y).mean() + 1e-6 * q @ q), Z.T @ slopes / len(y) + 2e-6 * q

    solution = minimize(value, np.zeros(Z.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 1000}).x
    return float(loss.value(X_test @ (basis @ solution), y_test).mean())


def cells(
    part: str, index: int, seeds: int, adjacency: str, epsilons: Sequence[float] = EPSILONS
) -> Iterator[dict[str, Any]]:
    """Yield log-loss and accuracy of both fits at each epsilon."""
    X, y, X_test, y_test = PARTS[part][0](index)
    reference = least(X, y, X_test, y_test)
    for epsilon in epsilons:
        cell: dict[str, Any] = {
            "part": part, "table": index, "n": len(X), "p": X.shape[1], "adjacency": adjacency, "epsilon": epsilon,
            "least": reference, "seeds": seeds,
        }  # fmt: skip
        for mechanism in ("noisy-gd", "auto"):
            fit_plan = plan_fit(
                model="logistic", n=len(X), n_features=X.shape[1], epsilon=epsilon, delta=1e-5, adjacency=adjacency,
                data_norm=1.0, fit_intercept=False, mechanism=mechanism,
            )  # fmt: skip
            plan = fit_plan.plan
            data, loss = ArrayDataset(X, y, plan.problem), plan.problem.loss
            bound = loss.bound if isinstance(loss, Clipped) else 1.0
            releases = [run_plan(plan, data, 50_000 + s) for s in range(seeds)]
            figures = np.array([_figures((X_test @ r.value)[:, None], y_test, bound)[:2] for r in releases])
            cell[mechanism] = {
                "loss": figures[:, 1].mean(), "error": figures[:, 1].std() / math.sqrt(seeds),
                "accuracy": figures[:, 0].mean(), "kind": plan.spec.mechanism,
                "passes": max(int(r.n_steps or 1) for r in releases) + int(getattr(plan.spec, "n_moment_releases", 0)),
            }  # fmt: skip
        yield cell


def show(lines: list[dict[str, Any]]) -> None:
    """Print a row for each cell, and the pooled excess of each part."""
    print(
        "| table | n x p | epsilon | not private | plain descent | default | passes | accuracy, plain / default |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for cell in lines:
        old, new = cell["noisy-gd"], cell["auto"]
        print(
            f"| {cell['part']} {cell['table']}, {cell['adjacency']} | {cell['n']} x {cell['p']} "
            f"| {cell['epsilon']:g} | "
            f"{cell['least']:.4f} | {old['loss']:.4f} | {new['loss']:.4f} +- {new['error']:.4f} | {new['passes']} | "
            f"{old['accuracy']:.4f} / {new['accuracy']:.4f} |"
        )
    print()
    for part in dict.fromkeys(cell["part"] for cell in lines):
        own = [cell for cell in lines if cell["part"] == part]
        for name, some in (("epsilon <= 1", [c for c in own if c["epsilon"] <= 1]), ("all", own)):
            excess = [sum(c[key]["loss"] - c["least"] for c in some) for key in ("auto", "noisy-gd")]
            changes = [100 * (c["auto"]["loss"] / c["noisy-gd"]["loss"] - 1) for c in some]
            print(
                f"- {part}, {name}: {len(some)} cells, pooled excess {excess[0] / excess[1]:.2f} of plain descent's; "
                f"change of log-loss {np.mean(changes):+.2f}% on average, {max(changes):+.2f}% at worst"
            )


def main() -> None:
    """Measure one table, or print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("measure", "print"))
    parser.add_argument("part", help="a part, or the file of measured cells")
    parser.add_argument("--table", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--adjacency", default="add-remove")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    arguments = parser.parse_args()
    if arguments.what == "print":
        show([json.loads(line) for line in Path(arguments.part).read_text().splitlines()])
        return
    places = range(PARTS[arguments.part][1]) if arguments.table is None else [arguments.table]
    for index in places:
        for cell in cells(arguments.part, index, arguments.seeds, arguments.adjacency, arguments.epsilons):
            json.dump(cell, sys.stdout)
            print(flush=True)


if __name__ == "__main__":
    main()
