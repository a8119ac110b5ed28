"""Coverage and width of confidence intervals on generated tables whose coefficients are known.

Usage: python benchmarks/intervals.py measure [--models logistic ridge poisson] [--kinds ...] [--sets 200]
           [--epsilons .5 1 4] [--mechanism auto] [--first-table 0] >> cells.jsonl
       python benchmarks/intervals.py print cells.jsonl [others.jsonl]
       python benchmarks/intervals.py bands [--sets 100] [--epsilons .5 1 4] [--first-table 0]

A line is a cell: data sets of `N_TABLES` tables of one kind. A table is a draw of sizes, parameters and coefficients
from a seed of its own, none of which chose a constant of the intervals. An infinite interval covers. Widths are mean
standard errors over those of the usual estimate without privacy. `bands` counts shapes of additive models, four
tables a cell, whose bands cover the best approximation with the same knots, at each point and everywhere at once,
without what only extends a band to the released curve.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import kstest

from dplangevin import DPAdditiveClassifier, DPAdditiveRegressor, SchemaEncoder
from dplangevin.estimators import DPLogisticRegression, DPPoissonRegressor, DPRidge

Floats = NDArray[np.float64]
RowSampler = Callable[[int, np.random.Generator], Floats]
KINDS = ("independent", "autoregressive", "correlated", "heavy", "lognormal", "dummies", "rare", "collinear")
MODELS, EPSILONS = ("logistic", "ridge", "poisson"), (0.5, 1.0, 4.0)
N_TABLES, MAX_COUNT, SEED = 8, 20, 61_803


class Table(NamedTuple):
    """A population: its size, its rows in [-1, 1], and a model that is correct.

    Parameters
    ----------
    theta : coefficients, then the intercept; a third of the former are 0.
    noise : standard deviation of the targets of a ridge regression.
    """

    n: int
    model: str
    sample_rows: RowSampler
    theta: Floats
    noise: float

    def scores(self, rows: Floats) -> Floats:
        """Return the true scores of rows."""
        return np.asarray(rows @ self.theta[:-1] + self.theta[-1])

    def draw(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return the rows and targets of a data set."""
        rows = self.sample_rows(self.n, rng)
        scores = self.scores(rows)
        if self.model == "logistic":
            return rows, (rng.random(self.n) < expit(scores)).astype(float)
        if self.model == "ridge":
            return rows, np.clip(scores + self.noise * rng.standard_normal(self.n), -1, 1)
        return rows, np.minimum(rng.poisson(np.exp(scores)), MAX_COUNT).astype(float)


def draw_table(kind: str, model: str, index: int) -> Table:
    """Return table `index` of this kind: everything about it is drawn from a seed of its own."""
    rng = np.random.default_rng([SEED, KINDS.index(kind), index])
    n, p = round(4_000 * 5 ** rng.random()), int(rng.integers(4, 15))
    if kind == "rare":
        n = 5 * n
    sample_rows = draw_row_sampler(kind, p, rng)
    rows = sample_rows(20_000, np.random.default_rng([SEED, 1]))
    slopes = rng.standard_normal(p) * (rng.permutation(p) % 3 != 1)
    spread = {
        "logistic": rng.uniform(0.8, 2.0),
        "ridge": rng.uniform(0.1, 0.25),
        "poisson": rng.uniform(0.3, 0.6),
    }[model]
    slopes *= spread / float(np.std(rows @ slopes))
    if model == "ridge":  # targets are clipped at 1: longer tails would leave the model
        slopes *= min(1.0, 0.6 / float(np.abs(rows @ slopes - np.mean(rows @ slopes)).max()))
    level = {
        "logistic": rng.uniform(-1, 1),
        "ridge": rng.uniform(-0.2, 0.2),
        "poisson": rng.uniform(-0.2, 0.8),
    }[model]
    if kind == "rare":
        level = {"logistic": rng.uniform(-5, -3.8), "ridge": level, "poisson": rng.uniform(-3, -2)}[model]
    theta = np.append(slopes, level - float(np.mean(rows @ slopes)))
    return Table(n, model, sample_rows, theta, noise=rng.uniform(0.06, 0.2))


def draw_row_sampler(kind: str, p: int, rng: np.random.Generator) -> RowSampler:
    """Return a function that draws rows of this kind, with parameters drawn here."""
    scales, shift = rng.uniform(0.2, 1.0, p), rng.uniform(-0.2, 0.2, p)
    power, signs, degrees = rng.uniform(0.7, 0.95), rng.choice([-1.0, 1.0], p), rng.uniform(2.2, 4.0)
    log_spread, rates = rng.uniform(0.7, 1.3, p), rng.uniform(0.03, 0.6, p)
    mix, error = rng.standard_normal(p - 1), rng.uniform(0.05, 0.3)

    def sample(n: int, generator: np.random.Generator) -> Floats:
        normal = generator.standard_normal((n, p))
        if kind in ("independent", "rare"):
            rows = scales * generator.uniform(-1, 1, (n, p)) + (1 - scales) * shift
        elif kind == "autoregressive":
            rows = normal.copy()
            for j in range(1, p):
                rows[:, j] = power * rows[:, j - 1] + math.sqrt(1 - power**2) * normal[:, j]
            rows = rows * signs / 3
        elif kind == "correlated":
            rows = math.sqrt(0.9) * generator.standard_normal((n, 1)) + math.sqrt(0.1) * normal
            rows = rows * scales / 3
        elif kind == "heavy":
            rows = generator.standard_t(degrees, (n, p)) / 7 + shift
        elif kind == "lognormal":
            rows = np.exp(log_spread * normal) / 15
        elif kind == "dummies":
            rows = np.where(np.arange(p) % 3 == 0, normal / 3, generator.random((n, p)) < rates)
        else:
            rows = normal / 3
            rows[:, -1] = (normal[:, :-1] @ mix) / np.linalg.norm(mix) / 3 + error * rows[:, -1]
        return np.clip(rows, -1, 1)

    return sample


def usual_errors(table: Table) -> Floats:
    """Return the standard errors of the efficient estimate without privacy, at the true coefficients."""
    rows = table.sample_rows(40_000, np.random.default_rng([SEED, 2]))
    scores, rows = table.scores(rows), np.column_stack([rows, np.ones(len(rows))])
    weights = np.full(len(rows), table.noise**-2)
    if table.model == "logistic":
        weights = expit(scores) * expit(-scores)
    elif table.model == "poisson":
        weights = np.exp(scores)
    return np.sqrt(np.diag(np.linalg.inv((rows * weights[:, None]).T @ rows / len(rows))) / table.n)


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


class SetResult(NamedTuple):
    """What one data set showed."""

    covered: Floats
    errors: Floats
    p_values: Floats
    predicted: float


def measure_set(
    table: Table, usual: Floats, epsilon: float, seed: int, mechanism: str
) -> tuple[SetResult, str]:
    """Fit one data set, and return its results and the mechanism that ran."""
    rng = np.random.default_rng([SEED, 3, seed])
    rows, targets = table.draw(rng)
    fitted = make_estimator(table.model, rows.shape[1], epsilon, SEED + seed, mechanism)
    fresh = table.sample_rows(60, rng)
    scores = table.scores(fresh)
    means = {"logistic": expit(scores), "ridge": scores, "poisson": np.exp(scores)}[table.model]
    with warnings.catch_warnings(action="ignore"):
        fitted.fit(rows, targets)
        low, high = fitted.confidence_intervals(0.95).T
        ends = fitted.predict_interval(fresh)
    p_values = np.array([row.p_value for row in fitted.summary().rows])[table.theta == 0]
    result = SetResult(
        (low <= table.theta) & (table.theta <= high), fitted.standard_errors_ / usual, p_values,
        float(np.mean((ends[:, 0] <= means) & (means <= ends[:, 1]))),
    )  # fmt: skip
    return result, fitted.plan_.plan.spec.mechanism


def measure_cell(
    kind: str, model: str, epsilon: float, sets: int, mechanism: str = "auto", first: int = 0
) -> dict[str, Any]:
    """Fit `sets` data sets and return coverage, widths, p-values of zero coefficients and coverage of predictions."""
    start, results, lowest, ran, sizes = time.process_time(), [], 1.0, set(), []
    for index in range(first, first + N_TABLES):
        table = draw_table(kind, model, index)
        usual, own = usual_errors(table), []
        sizes.append((table.n, len(table.theta) - 1))
        for seed in range(sets // N_TABLES):
            result, name = measure_set(table, usual, epsilon, 10_000 * index + seed, mechanism)
            own.append(result)
            ran.add(name)
        lowest = min(lowest, float(np.mean([result.covered for result in own], axis=0).min()))
        results += own
    covered, widths = (np.concatenate([getattr(r, name) for r in results]) for name in ("covered", "errors"))
    finite = np.isfinite(widths)
    p_values = np.concatenate([r.p_values for r in results])
    tested = p_values[p_values < 1]
    # one a data set: those of the same data set depend on each other
    single = np.array([r.p_values[0] for r in results if r.p_values[0] < 1])
    return {
        "kind": kind, "model": model, "epsilon": epsilon, "sets": len(results), "sizes": sizes,
        "mechanisms": sorted(ran),
        "coverage": float(covered.mean()), "lowest": lowest,
        "finite_coverage": float(covered[finite].mean()) if finite.any() else None,
        "infinite": float(1 - finite.mean()), "width": float(widths[finite].mean()) if finite.any() else None,
        "rejected": float(np.mean(tested < 0.05)) if len(tested) else None,
        "ks": float(kstest(single, "uniform").pvalue) if len(single) else None,
        "ks_small": float(kstest(single, "uniform", alternative="greater").pvalue) if len(single) else None,
        "predictions": float(np.mean([r.predicted for r in results])),
        "seconds": (time.process_time() - start) / len(results),
    }  # fmt: skip


def draw_curves(index: int) -> Callable[[int, np.random.Generator], tuple[pd.DataFrame, Floats]]:
    """Return a function that draws rows and their scores: three curves, of which one is 0, and five categories."""
    rng = np.random.default_rng([SEED, 11, index])
    waves, tilts, powers = rng.uniform(1, 4, 2), rng.normal(0, 1.2, 2), rng.uniform(0.6, 2.5, 3)
    shares, effects = rng.dirichlet(np.full(5, 2.0)), rng.normal(0, 0.5, 5)

    def draw(n: int, generator: np.random.Generator) -> tuple[pd.DataFrame, Floats]:
        columns = 2 * generator.random((n, 3)) ** powers - 1
        groups = generator.choice(5, n, p=shares)
        frame = pd.DataFrame(columns, columns=list("abc")).assign(g=np.array(list("uvwxy"))[groups])
        curves = np.sin(waves * columns[:, :2]) + tilts * np.abs(columns[:, :2])
        return frame, curves.sum(axis=1) + effects[groups] - float(tilts.mean())

    return draw


def measure_bands(model: str, epsilon: float, sets: int, first: int) -> str:
    """Return the coverage of pointwise and simultaneous bands of one cell as text."""
    estimator = {"classifier": DPAdditiveClassifier, "regressor": DPAdditiveRegressor}[model]
    stated = {"classes": [False, True]} if model == "classifier" else {"target_bounds": (-1.5, 1.5)}
    schema = {
        "columns": {**{name: {"range": [-1, 1]} for name in "abc"}, "g": {"categories": list("uvwxy")}},
        "missing": "never",
    }
    points, wholes, infinite = [], [], []
    for index in range(first, first + 4):
        draw, truth = draw_curves(index), {}
        for seed in range(sets // 4):
            rng = np.random.default_rng([SEED, 12, index, seed])
            rows, scores = draw(20_000, rng)
            targets = 0.15 * scores + 0.15 * rng.standard_normal(len(scores))
            if model == "classifier":
                targets = rng.random(len(scores)) < expit(scores)
            fitted: Any = estimator(
                epsilon=epsilon, delta=1e-5, schema=schema, intervals=True, random_state=seed, **stated
            )
            with warnings.catch_warnings(action="ignore"):
                fitted.fit(rows, np.clip(targets, -1.5, 1.5) if model == "regressor" else targets)
            truth = truth or best_shapes(fitted, *draw(100_000, np.random.default_rng([SEED, 13, index])))
            for shape in fitted.shapes():
                known = np.isfinite(shape.low)
                right = truth[shape.name]
                if shape.kind == "bars":  # centred over the categories that the records tell of
                    right = right - right[known].mean()
                low, wide = (
                    np.minimum(shape.center - ends[0], ends[1] - shape.center)
                    for ends in (
                        (shape.low, shape.high),
                        (shape.simultaneous_low, shape.simultaneous_high),
                    )
                )
                errors = np.abs(right - shape.center)
                points += list((errors <= low)[known])
                wholes.append(bool((errors <= wide).all()))
                infinite.append(float(1 - known.mean()))
    return (
        f"{model} epsilon={epsilon:g}: pointwise {np.mean(points):.3f}, simultaneous {np.mean(wholes):.3f} of "
        f"{len(wholes)} shapes, points without a band {np.mean(infinite):.3f}"
    )


def best_shapes(fitted: Any, rows: pd.DataFrame, scores: Floats) -> dict[str, Floats]:
    """Return the shapes of the best approximation with these knots, by Newton steps without noise in the targets."""
    encoded = SchemaEncoder(fitted.schema_).transform(rows)
    theta, classes = np.zeros(encoded.shape[1]), isinstance(fitted, DPAdditiveClassifier)
    for _ in range(10):
        own, wanted, curvatures = encoded @ theta, 0.15 * scores, np.ones(len(scores))
        if classes:
            own, wanted = expit(own), expit(scores)
            curvatures = own * (1 - own)
        hessian = (encoded * curvatures[:, None]).T @ encoded + 1e-9 * np.eye(len(theta))
        theta -= np.linalg.solve(hessian, encoded.T @ (own - wanted))
    exact: Any = type(fitted)(schema=fitted.schema_)
    exact.coef_, exact.intercept_ = (theta[None], np.zeros(1)) if classes else (theta, 0.0)
    return {shape.name: shape.values for shape in exact.shapes()}


def print_tables(cells: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> None:
    """Print one table a model: coverage / width / infinite share at each epsilon, and the other cells' if given."""
    before = {(c["kind"], c["model"], c["epsilon"]): c for c in others}
    for model in dict.fromkeys(c["model"] for c in cells):
        epsilons = sorted({c["epsilon"] for c in cells if c["model"] == model})
        print(f"\n### {model}\n")
        print("| tables | " + " | ".join(f"epsilon = {epsilon:g}" for epsilon in epsilons) + " |")
        print("|---" * (len(epsilons) + 1) + "|")
        for kind in KINDS:
            row = []
            for epsilon in epsilons:
                found = [c for c in cells if (c["kind"], c["model"], c["epsilon"]) == (kind, model, epsilon)]
                if not found:
                    row.append("-")
                    continue
                text = _format_cell(found[-1])
                if old := before.get((kind, model, epsilon)):
                    text += f" ({_format_cell(old)})"
                row.append(text)
            if set(row) != {"-"}:
                print(f"| {kind} | " + " | ".join(row) + " |")
    for name in ("coverage", "lowest", "predictions", "rejected", "ks", "ks_small"):
        values = [c[name] for c in cells if c[name] is not None]
        print(f"\n{name}: {min(values):.3f} to {max(values):.3f}, mean {np.mean(values):.3f}")


def _format_cell(cell: dict[str, Any]) -> str:
    width = "-" if cell["width"] is None else f"{cell['width']:.2f}"
    infinite = f" / {cell['infinite']:.2f} inf" if cell["infinite"] >= 0.005 else ""
    return f"{cell['coverage']:.3f} / {width}{infinite}"


def main() -> None:
    """Measure cells, or print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("measure")
    measure.add_argument("--models", nargs="+", default=list(MODELS))
    measure.add_argument("--kinds", nargs="+", default=list(KINDS))
    measure.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    measure.add_argument("--sets", type=int, default=200)
    measure.add_argument("--mechanism", default="auto")
    measure.add_argument("--first-table", type=int, default=0)
    show = commands.add_parser("print")
    show.add_argument("cells")
    show.add_argument("others", nargs="?")
    bands = commands.add_parser("bands")
    bands.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    bands.add_argument("--sets", type=int, default=100)
    bands.add_argument("--first-table", type=int, default=0)
    options = parser.parse_args()
    if options.command == "bands":
        for kind in ("classifier", "regressor"):
            for epsilon in options.epsilons:
                print(measure_bands(kind, epsilon, options.sets, options.first_table), flush=True)
        return
    if options.command == "print":
        files = [options.cells] + ([options.others] if options.others else [])
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
                cell = measure_cell(
                    kind, model, epsilon, options.sets, options.mechanism, options.first_table
                )
                print(json.dumps(cell), flush=True)
                print(f"{kind} {model} {epsilon:g}: {_format_cell(cell)}", file=sys.stderr)


if __name__ == "__main__":
    main()
