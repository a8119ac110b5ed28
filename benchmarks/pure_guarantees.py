"""Pure guarantees (delta = 0): the default fit compared with objective perturbation without a second moment.

Usage: python benchmarks/pure_guarantees.py measure PART [--table 0] [--seeds 5] [--epsilons .1 1] >> cells.jsonl
       python benchmarks/pure_guarantees.py print cells.jsonl

Parts: ill, mixed and noise (the generators of converging.py, with seeds not used in development), rare (1 to 3%
positives), small (2,000 to 5,000 rows), real (adult, breast_cancer, digits8; development data). Losses: log-loss for
the logistic model, squared error of the scaled target for ridge. A line is a cell.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import _figures
from clip_law import shapes, table as mixed_table
from converging import HELD_OUT, ILL, MIXED, Table, ill, real
from loaders import Floats

from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Clipped

EPSILONS = (0.1, 0.3, 1.0, 4.0)
FRESH = 9001  # seeds from here on were not used in development
# rows, columns, correlation of neighbours, rate of positives, spread of columns in decades
RARE = ((30_000, 15, 0.5, 0.02, 0.5), (60_000, 25, 0.8, 0.01, 0.0), (20_000, 10, 0.0, 0.03, 1.0))
SMALL = (
    (2_000, 6, 0.6, 0.5, 0.0),
    (5_000, 12, 0.0, 0.3, 1.0),
    (3_000, 3, 0.9, 0.5, 0.5),
    (4_000, 20, 0.0, 0.5, 0.0),
)


def generated(shape: tuple[int, int, float, float, float], seed: int) -> Table:
    """Return neighbouring columns correlated, scales spread, and an offset that gives the stated rate of positives."""
    n, p, correlation, share, decades = shape
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n + HELD_OUT, p))
    for j in range(1, p):
        X[:, j] = correlation * X[:, j - 1] + math.sqrt(1 - correlation**2) * X[:, j]
    scores = X @ rng.standard_normal(p)
    scores = 2 * scores / scores.std()
    offset = np.quantile(scores + rng.logistic(size=len(X)), 1 - share)
    y = (scores + rng.logistic(size=len(X)) > offset).astype(float)
    rows = np.column_stack([np.clip(X, -4, 4) * np.geomspace(1, 10**-decades, p), np.ones(len(X))])
    rows /= np.linalg.norm(rows, axis=1).max()
    return rows[:n], y[:n], rows[n:], y[n:]


def noise(index: int) -> Table:
    """Return rows with labels that do not depend on them."""
    X, y, X_test, y_test = generated((8_000, 29, 0.5 * index, 0.5, 0.0), FRESH + 300 + index)
    rng = np.random.default_rng(FRESH + 310 + index)
    return X, rng.permutation(y), X_test, rng.permutation(y_test)


def mixed(index: int) -> Table:
    """Return tables of the generator that the clipping rule was chosen on, another set."""
    X, y = mixed_table(shapes(FRESH, MIXED)[index], FRESH + 100 + index)
    return X[:-HELD_OUT], y[:-HELD_OUT], X[-HELD_OUT:], y[-HELD_OUT:]


PARTS: dict[str, tuple[Any, int]] = {
    "ill": (lambda index: ill(index, FRESH), len(ILL)),
    "mixed": (mixed, MIXED),
    "rare": (lambda index: generated(RARE[index], FRESH + 400 + index), len(RARE)),
    "small": (lambda index: generated(SMALL[index], FRESH + 500 + index), len(SMALL)),
    "noise": (noise, 2),
    "real": (real, 3),
}  # fmt: skip


def targets(X: Floats, y: Floats, seed: int) -> Floats:
    """Return targets for ridge: scores of random coefficients with noise, in [-1, 1]."""
    rng = np.random.default_rng(seed)
    sizes = np.sqrt(np.einsum("ij,ij->j", X, X) / len(X))
    scores = X @ (rng.standard_normal(X.shape[1]) / np.maximum(sizes, 1e-12))
    noisy = scores / scores.std() + 0.5 * rng.standard_normal(len(X)) + 0 * y
    return np.clip(noisy / 4, -1, 1)


def cell(
    part: str, index: int, model: str, epsilon: float, adjacency: str, seeds: int, tables: Table
) -> dict[str, Any]:
    """Measure both fits at one epsilon."""
    X, y, X_test, y_test = tables
    results: dict[str, Any] = {
        "part": part, "table": index, "model": model, "n": len(X), "p": X.shape[1], "adjacency": adjacency,
        "epsilon": epsilon, "seeds": seeds,
    }  # fmt: skip
    for mechanism in ("objective-perturbation", "auto"):
        plan = plan_fit(
            model=model, n=len(X), n_features=X.shape[1], epsilon=epsilon, delta=0.0, adjacency=adjacency,
            data_norm=1.0, fit_intercept=False, mechanism=mechanism,
        ).plan  # fmt: skip
        data, loss = ArrayDataset(X, y, plan.problem), plan.problem.loss
        values = []
        for seed in range(seeds):
            scores = X_test @ run_plan(plan, data, 70_000 + seed).value
            if model == "logistic":
                bound = loss.bound if isinstance(loss, Clipped) else 1.0
                values.append(_figures(scores[:, None], y_test, bound)[1])
            else:
                values.append(float(np.mean((scores - y_test) ** 2)))
        results[mechanism] = {
            "loss": float(np.mean(values)), "error": float(np.std(values) / math.sqrt(max(seeds - 1, 1))),
            "kind": plan.spec.mechanism,
        }  # fmt: skip
    return results


def show(lines: list[dict[str, Any]]) -> None:
    """Print a row for each cell, then for each part and model how the loss changed."""
    print("| table | model | n x p | epsilon | without moment | default | change |")
    print("|---|---|---|---|---|---|---|")
    changes: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one in lines:
        old, new = one["objective-perturbation"], one["auto"]
        change = 100 * (new["loss"] / old["loss"] - 1)
        standard_error = 100 * math.hypot(old["error"], new["error"]) / old["loss"]
        changes.setdefault((one["part"], one["model"]), []).append((change, standard_error))
        kind = "" if new["kind"] != old["kind"] else " (the same)"
        print(
            f"| {one['part']} {one['table']}, {one['adjacency']} | {one['model']} | {one['n']} x {one['p']} | "
            f"{one['epsilon']:g} | {old['loss']:.4f} | {new['loss']:.4f} +- {new['error']:.4f}{kind} | {change:+.1f}% |"
        )
    print()
    for (part, model), results in changes.items():
        worst = max(results)
        beyond = sum(change > 1 + 2 * standard_error for change, standard_error in results)
        print(
            f"- {part}, {model}: {len(results)} cells, {np.mean([c for c, _ in results]):+.1f}% on average, "
            f"{min(results)[0]:+.1f}% at best, {worst[0]:+.1f} +- {worst[1]:.1f}% at worst; worse by more than 1% "
            f"beyond two standard errors: {beyond}"
        )


def main() -> None:
    """Measure a part, or print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("measure", "print"))
    parser.add_argument("part", help="a part, or the file of measured cells")
    parser.add_argument("--table", type=int, default=None)
    parser.add_argument("--model", choices=("logistic", "ridge"), default="logistic")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--adjacency", nargs="+", default=("add-remove", "replace-one"))
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    arguments = parser.parse_args()
    if arguments.what == "print":
        show([json.loads(line) for line in Path(arguments.part).read_text().splitlines()])
        return
    for index in range(PARTS[arguments.part][1]) if arguments.table is None else [arguments.table]:
        X, y, X_test, y_test = PARTS[arguments.part][0](index)
        if arguments.model == "ridge":
            both = targets(np.vstack([X, X_test]), np.concatenate([y, y_test]), FRESH + 900 + index)
            y, y_test = both[: len(X)], both[len(X) :]
        for adjacency in arguments.adjacency:
            for epsilon in arguments.epsilons:
                tables = (X, y, X_test, y_test)
                result = cell(
                    arguments.part, index, arguments.model, epsilon, adjacency, arguments.seeds, tables
                )
                json.dump(result, sys.stdout)
                print(flush=True)


if __name__ == "__main__":
    main()
