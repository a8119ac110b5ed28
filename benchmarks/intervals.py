"""Coverage and width of confidence intervals on generated tables whose coefficients are known.

Usage: python benchmarks/intervals.py measure [--models logistic ridge poisson] [--kinds ...] [--sets 200]
           [--epsilons .5 1 4] [--mechanism auto] >> cells.jsonl
       python benchmarks/intervals.py print cells.jsonl [older.jsonl]

A line is a cell. The kinds, sizes and seeds are not those on which the constants of the intervals were chosen. An
infinite interval covers. Widths are mean standard errors over those of the usual estimate without privacy.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import kstest

from dplangevin.estimators import DPLogisticRegression, DPPoissonRegressor, DPRidge

Floats = NDArray[np.float64]
NOISE = 0.12  # of the targets of ridge regressions, whose range is [-1, 1]
MAX_COUNT = 15
SIZES = {
    "independent": (6_000, 7),
    "autoregressive": (8_000, 10),
    "correlated": (12_000, 15),
    "heavy": (10_000, 9),
    "lognormal": (20_000, 10),
    "dummies": (12_000, 16),
    "rare": (40_000, 10),
    "collinear": (10_000, 8),
    "clusters": (9_000, 6),
    "repeated": (7_000, 9),
}
EPSILONS = (0.5, 1.0, 4.0)
SCORE_SPREAD = {"logistic": 1.4, "ridge": 0.22, "poisson": 0.5}
SEED = 90_001


def draw_rows(kind: str, n: int, p: int, rng: np.random.Generator) -> Floats:
    """Return rows with entries in [-1, 1]."""
    normal = rng.standard_normal((n, p))
    if kind in ("independent", "rare"):
        return rng.uniform(-1, 1, (n, p))
    if kind == "autoregressive":
        rows = normal.copy()
        for j in range(1, p):
            rows[:, j] = -0.85 * rows[:, j - 1] + math.sqrt(1 - 0.85**2) * normal[:, j]
        return np.clip(rows / 3, -1, 1)
    if kind == "correlated":
        return np.clip((math.sqrt(0.9) * rng.standard_normal((n, 1)) + math.sqrt(0.1) * normal) / 3, -1, 1)
    if kind == "heavy":
        return np.clip(rng.standard_t(2.5, (n, p)) / 8, -1, 1)
    if kind == "lognormal":
        return np.clip(np.exp(1.2 * normal) / 20, 0, 1)
    if kind == "dummies":
        shares = np.geomspace(0.03, 0.5, p - 4)
        return np.column_stack([rng.random((n, p - 4)) < shares, rng.uniform(-1, 1, (n, 4))]).astype(float)
    if kind == "collinear":
        rows = normal / 3
        rows[:, -1] = (rows[:, 0] + rows[:, 1]) / math.sqrt(2) + 0.1 * rows[:, -1]
        return np.clip(rows, -1, 1)
    if kind == "repeated":  # three columns, each three times with an error of its own
        return np.clip(0.3 * (np.tile(normal[:, :3], 3) + 0.2 * rng.standard_normal((n, p))), -1, 1)
    centers = np.random.default_rng(3).uniform(-0.6, 0.6, (4, p))
    return np.clip(centers[rng.integers(0, 4, n)] + 0.15 * normal, -1, 1)


def choose_coefficients(kind: str, model: str) -> Floats:
    """Return coefficients, then the intercept: a third of the former are 0, and scores have a fixed spread."""
    _, p = SIZES[kind]
    rng = np.random.default_rng(41)
    slopes = rng.standard_normal(p) * (np.arange(p) % 3 != 1)
    rows = draw_rows(kind, 20_000, p, np.random.default_rng(42))
    slopes *= SCORE_SPREAD[model] / float(np.std(rows @ slopes))
    level = {"logistic": 0.4, "ridge": 0.1, "poisson": 0.4}[model]
    if kind == "rare":
        level = {"logistic": -4.2, "ridge": 0.1, "poisson": -2.5}[model]
    return np.append(slopes, level - float(np.mean(rows @ slopes)))


def draw_targets(model: str, scores: Floats, rng: np.random.Generator) -> Floats:
    """Return targets of a correct model."""
    if model == "logistic":
        return (rng.random(len(scores)) < expit(scores)).astype(float)
    if model == "ridge":
        return np.clip(scores + NOISE * rng.standard_normal(len(scores)), -1, 1)
    return np.minimum(rng.poisson(np.exp(scores)), MAX_COUNT).astype(float)


def usual_errors(kind: str, model: str, theta: Floats) -> Floats:
    """Return the standard errors of the efficient estimate without privacy, at the true coefficients."""
    n, p = SIZES[kind]
    rows = np.column_stack([draw_rows(kind, 40_000, p, np.random.default_rng(43)), np.ones(40_000)])
    scores = rows @ theta
    weights = np.full(len(rows), NOISE**-2)
    if model == "logistic":
        weights = expit(scores) * expit(-scores)
    elif model == "poisson":
        weights = np.exp(scores)
    return np.sqrt(np.diag(np.linalg.inv((rows * weights[:, None]).T @ rows / len(rows))) / n)


def make_estimator(model: str, p: int, epsilon: float, seed: int, mechanism: str) -> Any:
    """Return an estimator with intervals."""
    shared: dict[str, Any] = {
        "epsilon": epsilon, "delta": 1e-5, "data_norm": math.sqrt(p), "intervals": True, "random_state": seed,
        "mechanism": mechanism,
    }  # fmt: skip
    if model == "logistic":
        return DPLogisticRegression(classes=[0.0, 1.0], **shared)
    if model == "ridge":
        return DPRidge(target_bounds=(-1, 1), **shared)
    return DPPoissonRegressor(target_bounds=(0, MAX_COUNT), **shared)


def measure_cell(kind: str, model: str, epsilon: float, sets: int, mechanism: str = "auto") -> dict[str, Any]:
    """Fit `sets` data sets and return coverage, widths, p-values of zero coefficients and coverage of predictions."""
    n, p = SIZES[kind]
    theta = choose_coefficients(kind, model)
    usual = usual_errors(kind, model, theta)
    hits, errors, p_values, predicted, start = [], [], [], [], time.process_time()
    fresh = draw_rows(kind, 100, p, np.random.default_rng(44))
    means = fresh @ theta[:-1] + theta[-1]
    targets = {"logistic": expit, "ridge": lambda scores: scores, "poisson": np.exp}[model](means)
    for index in range(sets):
        rng = np.random.default_rng([SEED, index])
        rows = draw_rows(kind, n, p, rng)
        y = draw_targets(model, rows @ theta[:-1] + theta[-1], rng)
        fitted = make_estimator(model, p, epsilon, SEED + index, mechanism)
        with warnings.catch_warnings(action="ignore"):
            fitted.fit(rows, y)
            low, high = fitted.confidence_intervals(0.95).T
            ends = fitted.predict_interval(fresh)
        hits.append((low <= theta) & (theta <= high))
        errors.append(fitted.standard_errors_ / usual)
        p_values += [
            row.p_value for row, value in zip(fitted.summary().rows, theta, strict=True) if value == 0
        ]
        predicted.append((ends[:, 0] <= targets) & (targets <= ends[:, 1]))
    covered, widths = np.array(hits), np.array(errors)
    finite = np.isfinite(widths)
    tested = np.array([value for value in p_values if value < 1])
    return {
        "kind": kind, "model": model, "epsilon": epsilon, "sets": sets, "n": n, "p": p,
        "mechanism": fitted.plan_.plan.spec.mechanism,
        "coverage": float(covered.mean()), "lowest": float(covered.mean(axis=0).min()),
        "finite_coverage": float(covered[finite].mean()) if finite.any() else None,
        "infinite": float(1 - finite.mean()), "width": float(widths[finite].mean()) if finite.any() else None,
        "rejected": float(np.mean(tested < 0.05)) if len(tested) else None,
        "ks_distance": float(kstest(tested, "uniform").statistic) if len(tested) else None,
        "predictions": float(np.mean(predicted)),
        "seconds": (time.process_time() - start) / sets,
    }  # fmt: skip


def print_tables(cells: Sequence[dict[str, Any]], older: Sequence[dict[str, Any]]) -> None:
    """Print one table a model: coverage / width / infinite share at each epsilon, and the older cells' if given."""
    before = {(c["kind"], c["model"], c["epsilon"]): c for c in older}
    for model in dict.fromkeys(c["model"] for c in cells):
        epsilons = sorted({c["epsilon"] for c in cells if c["model"] == model})
        print(f"\n### {model}\n")
        print("| table | " + " | ".join(f"epsilon = {epsilon:g}" for epsilon in epsilons) + " |")
        print("|---" * (len(epsilons) + 1) + "|")
        for kind in SIZES:
            row = []
            for epsilon in epsilons:
                found = [c for c in cells if (c["kind"], c["model"], c["epsilon"]) == (kind, model, epsilon)]
                if not found:
                    continue
                text = _format_cell(found[-1])
                if old := before.get((kind, model, epsilon)):
                    text += f" ({_format_cell(old)})"
                row.append(text)
            if row:
                n, p = SIZES[kind]
                print(f"| {kind} {n:,} x {p} | " + " | ".join(row) + " |")
    tested = [c for c in cells if c["rejected"] is not None]
    for name in ("coverage", "predictions"):
        values = [c[name] for c in cells]
        print(f"\n{name}: {min(values):.3f} to {max(values):.3f}, mean {np.mean(values):.3f}")
    shares = [c["rejected"] for c in tested]
    print(
        f"\nzero coefficients with p < .05: {min(shares):.3f} to {max(shares):.3f}, mean {np.mean(shares):.3f}"
    )


def _format_cell(cell: dict[str, Any]) -> str:
    width = "-" if cell["width"] is None else f"{cell['width']:.2f}"
    infinite = f" / {cell['infinite']:.2f} inf" if cell["infinite"] >= 0.005 else ""
    return f"{cell['coverage']:.3f} / {width}{infinite}"


def main() -> None:
    """Measure cells, or print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("measure")
    measure.add_argument("--models", nargs="+", default=list(SCORE_SPREAD))
    measure.add_argument("--kinds", nargs="+", default=list(SIZES))
    measure.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    measure.add_argument("--sets", type=int, default=200)
    measure.add_argument("--mechanism", default="auto")
    show = commands.add_parser("print")
    show.add_argument("cells")
    show.add_argument("older", nargs="?")
    options = parser.parse_args()
    if options.command == "print":
        files = [options.cells] + ([options.older] if options.older else [])
        parts = []
        for path in files:
            with open(path, encoding="utf-8") as lines:
                parts.append([json.loads(line) for line in lines])
        print_tables(parts[0], parts[1] if len(parts) > 1 else [])
        return
    for model in options.models:
        for kind in options.kinds:
            if kind == "rare" and model == "ridge":
                continue  # there are no rare labels among numbers
            for epsilon in options.epsilons:
                cell = measure_cell(kind, model, epsilon, options.sets, options.mechanism)
                print(json.dumps(cell), flush=True)
                print(f"{kind} {model} {epsilon:g}: {_format_cell(cell)}", file=sys.stderr)


if __name__ == "__main__":
    main()
