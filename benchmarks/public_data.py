"""Gain from a public sample: public-only, warm-started noisy descent and mirror descent. Writes PUBLIC.md.

Usage: python benchmarks/public_data.py [real] [figure]. Every method is tuned by the built-in tuner on the public rows
of the seed at hand; nothing is tuned on private rows or on test rows. The tuner's grids were fixed on seeds 100
and 101 (real data) and 2000, 2001 (figure), which are not reported.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import loaders
import numpy as np
from scipy import stats

from dplangevin import DPLogisticRegression, DPRidge
from dplangevin.mechanisms.mirror_descent.mechanism import PublicMirrorDescent
from dplangevin.mechanisms.mirror_descent.tuning import PublicTuner
from dplangevin.papers.gallery.public_mirror_descent import figure_problem, figure_sample

HERE = Path(__file__).parent
METHODS = ("public-only", "warm-start", "mirror")
SETS, SEEDS, EPSILONS, DELTA = ("bank", "randhie", "randhie-raw"), range(10), (0.1, 0.5), 1e-6
FIGURE_SEEDS = {500: 10, 1000: 10, 2000: 6}
CLIPS = (0.01, 0.03, 0.1, 0.3)


def one_fit(name: str, split: loaders.Split, seed: int, epsilon: float, method: str) -> float:
    """Return the test loss of a fit with 2% of the training rows public."""
    order = np.random.default_rng([seed, 7]).permutation(len(split.X))
    public, private = order[: len(order) // 50], order[len(order) // 50 :]
    shared = {
        "epsilon": epsilon, "delta": DELTA, "random_state": seed, "public_method": method,
        "public_data": (split.X[public], split.y[public]),
    }  # fmt: skip
    if name.startswith("randhie"):
        model = DPRidge(
            data_norm=1.0 if name.endswith("raw") else split.X.shape[1] ** 0.5,
            target_bounds=(-1, 1),
            **shared,
        )
        model.fit(split.X[private], split.y[private])
        return float(np.mean((model.predict(split.X_test) - split.y_test) ** 2))
    model = DPLogisticRegression(data_norm=1.0, fit_intercept=False, classes=[0, 1], **shared)
    scores = model.fit(split.X[private], split.y[private]).decision_function(split.X_test)
    return float(np.mean(np.logaddexp(0, scores) - split.y_test * scores))


def load(name: str, seed: int) -> loaders.Split:
    """Return a data set; randhie-raw has its columns in their own units, divided by the stated norm 100 of a row."""
    if name != "randhie-raw":
        return loaders.load(name, seed)
    features = loaders.table("randhie").drop(columns="mdvis").to_numpy(float)
    low, high = features.min(0), features.max(0)
    split = loaders.load("randhie", seed)
    raw = [((rows + 1) / 2 * (high - low) + low) / 100 for rows in (split.X, split.X_test)]
    return loaders.Split(raw[0], split.y, raw[1], split.y_test)


def interval(values: list[float]) -> str:
    """Return the mean and the half-width of its 95% t interval."""
    return f"{np.mean(values):.5f} ± {half_width(values):.5f}"


def half_width(values: list[float]) -> float:
    """Return the half-width of the 95% t interval of the mean."""
    return float(stats.sem(values) * stats.t.ppf(0.975, len(values) - 1))


def row(first: str, losses: dict[str, list[float]]) -> str:
    """Return the methods, the paired difference mirror - warm, and on how many seeds mirror was lower."""
    pairs = np.subtract(losses["mirror"], losses["warm-start"])
    cells = [interval(losses[method]) for method in METHODS]
    wins = f"{int(np.sum(pairs < 0))} of {len(pairs)}"
    return (
        f"| {first} | {' | '.join(cells)} | {np.mean(pairs):+.5f} ± {half_width(list(pairs)):.5f} | {wins} |"
    )


HEADER = (
    "| {} | public only | warm-started noisy descent | mirror descent | mirror - warm | mirror lower on |\n"
    "|---|---|---|---|---|---|"
)


def real() -> list[str]:
    """Measure test losses on real data."""
    lines = [
        f"## Real data, 2% of the training rows public, delta = {DELTA:g}, seeds 0 to {len(SEEDS) - 1}\n",
        "Test loss (logistic loss for bank, squared error for randhie, whose raw form has unequal columns), mean "
        "and 95% interval over the seeds.\n",
        HEADER.format("data, epsilon"),
    ]
    for name in SETS:
        for epsilon in EPSILONS:
            losses: dict[str, list[float]] = {method: [] for method in METHODS}
            for seed in SEEDS:
                split = load(name, seed)
                for method in METHODS:
                    losses[method].append(one_fit(name, split, seed, epsilon, method))
            lines.append(row(f"{name}, {epsilon:g}", losses))
            print(lines[-1], flush=True)
    return lines


def figure() -> list[str]:
    """Measure the synthetic problem of Figure 4.1 with the built-in tuner."""
    lines = [
        "## The problem of Figure 4.1 with the built-in tuner, epsilon = 1, delta = 1e-5\n",
        "Mean squared error on the private rows (0.01 is optimal); fresh seeds from 0 on. CPU: tuning and runs.\n",
        HEADER.format("dimension, seeds"),
    ]
    for dimension, seeds in FIGURE_SEEDS.items():
        losses: dict[str, list[float]] = {method: [] for method in METHODS}
        start = time.process_time()
        for seed in range(seeds):
            sample = figure_sample(dimension, seed)
            problems = [figure_problem(dimension, clip) for clip in CLIPS]
            tuner = PublicTuner(*sample.public, problems, epsilon=1.0, delta=1e-5)
            for method in METHODS:
                tuned = tuner.tune(method)
                data = sample.data(tuned.plan.problem)
                theta = PublicMirrorDescent(tuned.mirror).run(tuned.plan, data, seed).value
                losses[method].append(sample.error(theta))
        lines.append(row(f"{dimension}, {seeds} ({time.process_time() - start:.0f} s CPU)", losses))
        print(lines[-1], flush=True)
    return lines


def main(wanted: list[str]) -> None:
    """Measure and write; with a section named, only print it."""
    warnings.simplefilter("ignore")
    sections = {"real": real, "figure": figure}
    parts = [make() for name, make in sections.items() if not wanted or name in wanted]
    text = "# Public data\n\nWritten by `python benchmarks/public_data.py`.\n\n"
    text += "\n\n".join("\n".join(part) for part in parts)
    if not wanted:
        (HERE / "PUBLIC.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
