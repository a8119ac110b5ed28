"""Figure 4.1 of Ganesh (2022): linear regression, noisy descent from cold and warm starts, and mirror descent.

What the thesis fixes: dimensions, n = 10000 private and 1.5 k public rows, the design, epsilon = 1, delta = 1e-5, 20
runs, squared error on the private rows. What it does not give (clips, steps, step sizes, the ridge of the map) is in
SETTINGS: the best of a grid on seeds 1000 and 1001, the same two for every method; the picture uses fresh seeds.
Grids: mirror, ridge {0.001, 0.1, 1}, L {0.01, 0.03}, T {20, 40, 80}, sizes from 0.015 to 1; warm start, L {0.01, 0.03,
0.06}, T {100, 200, 400, 800}, sizes {0.25, 0.5, 1} x 1.9 / largest eigenvalue; for both the last iterate, the mean of
all iterates and the mean of the second half. Cold starts (from 0) and the dimensions 4000 and 6000 were chosen on seed
1000 alone: cold, L {0.03, 0.1, 0.3, 1}, T {25, 100, 400, 1000}, sizes {0.125, 0.25, 0.5, 1}; mirror, sizes from 0.002;
warm, L {0.01, 0.03}, T 100.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin.accounting.plan import Plan
from dplangevin.data import Block, Dataset
from dplangevin.mechanisms.mirror_descent.mechanism import PublicMirrorDescent
from dplangevin.mechanisms.mirror_descent.mirror_map import PublicSample
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec, StepMode, calibrate_mirror_noise
from dplangevin.papers.gallery import _draw
from dplangevin.problem import Clipped, DataBounds, Loss, Problem, Squared

Table = dict[tuple[int, str], tuple[float, float, int]]  # mean, half-width, runs by dimension and method
RECORDS, EPSILON, DELTA, RUNS = 10_000, 1.0, 1e-5, 20
NORM = 0.3**0.5  # of every row: 120 entries of 0.05
START_RIDGE = 1e-3  # in units of the mean eigenvalue of the public Hessian, as every ridge here
FEWER_RUNS = {4000: 5, 6000: 3}
COLD_RUNS = 5
COLD = 1e12  # a ridge that leaves the start at 0
NAMES = {
    "cold": "cold-started noisy descent",
    "public": "public data only",
    "warm": "warm-started noisy descent",
    "mirror": "mirror descent",
}
REFERENCE = {500: (0.0148, 0.0140), 1000: (0.0205, 0.0183), 2000: (0.0250, 0.0229)}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of a method: per-record gradients are clipped at `clip`.

    step_size : times 1.9 / (40/k) for gradient steps. ridge : of the mirror map. tail : average the second half.
    """

    clip: float
    n_steps: int
    step_size: float
    ridge: float = 0.0
    tail: bool = False


SETTINGS: dict[int, dict[str, Setting]] = {
    500: {
        "warm": Setting(clip=0.03, n_steps=800, step_size=0.5),
        "mirror": Setting(clip=0.01, n_steps=20, step_size=0.5, ridge=0.1, tail=True),
        "cold": Setting(clip=0.1, n_steps=400, step_size=1.0),
    },
    1000: {
        "warm": Setting(clip=0.01, n_steps=800, step_size=0.5),
        "mirror": Setting(clip=0.03, n_steps=20, step_size=0.06, ridge=0.1, tail=True),
        "cold": Setting(clip=0.1, n_steps=100, step_size=1.0),
    },
    2000: {
        "warm": Setting(clip=0.03, n_steps=200, step_size=0.25),
        "mirror": Setting(clip=0.01, n_steps=20, step_size=0.03, ridge=1e-3),
        "cold": Setting(clip=0.1, n_steps=100, step_size=0.5),
    },
    4000: {
        "warm": Setting(clip=0.01, n_steps=100, step_size=0.5),
        "mirror": Setting(clip=0.01, n_steps=20, step_size=0.008, ridge=1e-3),
        "cold": Setting(clip=0.1, n_steps=100, step_size=0.25),
    },
    6000: {
        "warm": Setting(clip=0.01, n_steps=100, step_size=0.25),
        "mirror": Setting(clip=0.01, n_steps=20, step_size=0.004, ridge=1e-3),
        "cold": Setting(clip=0.03, n_steps=100, step_size=0.5),
    },
}


class Sample(NamedTuple):
    """Public rows and targets, and private ones with sparse rows."""

    public: tuple[Floats, Floats]
    private: tuple[Any, Floats]

    def error(self, theta: Floats) -> float:
        """Mean squared error on the private rows."""
        return float(np.mean((self.private[0] @ theta - self.private[1]) ** 2))

    def data(self, problem: Problem) -> SparseRows:
        """Return the private rows as a data set."""
        return SparseRows(*self.private, problem)


class SparseRows(Dataset):
    """Sparse rows within the problem's bounds (at most 24% of entries not 0), ten times faster than dense ones."""

    def __init__(self, rows: Any, labels: Floats, problem: Problem) -> None:
        self._rows, self._columns, self._labels, self._problem = rows, rows.T.tocsr(), labels, problem
        self.n_samples = len(labels)

    @property
    def problem(self) -> Problem:
        return self._problem

    def blocks(self, rows: NDArray[np.integer[Any]] | None = None) -> Iterator[Block]:
        chosen = self._rows if rows is None else self._rows[rows]
        yield Block(chosen.toarray(), self._labels if rows is None else self._labels[rows], None)

    def gradient_sum(self, loss: Loss, theta: Floats, rows: Any = None) -> Floats:
        if rows is not None:
            return super().gradient_sum(loss, theta, rows)
        slopes = loss.slope(self._rows @ theta, self._labels[:, None])
        return np.asarray(self._columns @ slopes)


def figure_sample(dimension: int, seed: int) -> Sample:
    """Draw a sample: per row, 40 entries in the first fifth of the columns and 80 in the others are 0.05.

    y = <theta, x> + N(0, 0.01), theta ~ N(0, I).
    """
    rng = np.random.default_rng([41, dimension, seed])
    n_public, block = 3 * dimension // 2, dimension // 5
    theta = rng.standard_normal(dimension)
    n = n_public + RECORDS
    columns = [
        np.concatenate(
            [
                rng.choice(block, 40, replace=False, shuffle=False),
                block + rng.choice(dimension - block, 80, replace=False, shuffle=False),
            ]
        )
        for _ in range(n)
    ]
    entries = (np.full(120 * n, 0.05), np.concatenate(columns), np.arange(0, 120 * n + 1, 120))
    X = csr_array(entries, shape=(n, dimension))
    y = X @ theta + 0.1 * rng.standard_normal(n)
    return Sample((X[:n_public].toarray(), y[:n_public]), (X[n_public:], y[n_public:]))


def figure_problem(dimension: int, clip: float) -> Problem:
    """Return the problem with per-record gradients clipped at `clip`.

    All rows have the same norm, so clipping the slope of the loss is the same.
    """
    return Problem(
        loss=Clipped(Squared(), clip / NORM),
        bounds=DataBounds(data_norm=NORM * (1 + 1e-9), target=(-50.0, 50.0)),
        n=RECORDS,
        n_features=dimension,
        fit_intercept=False,
    )


def squared_errors(dimension: int, seed: int, settings: dict[str, Setting]) -> dict[str, float]:
    """Return the squared errors of every method on one new sample."""
    sample = figure_sample(dimension, seed)
    public = PublicSample(*sample.public, figure_problem(dimension, 1.0))
    unit = public.mean_curvature()
    errors = {"public": sample.error(public.fit_minimizer(START_RIDGE * unit))}
    for name, setting in settings.items():
        problem = figure_problem(dimension, setting.clip)
        mode: StepMode = "mirror" if name == "mirror" else "gradient"
        start = COLD if name == "cold" else START_RIDGE
        mirror = public.make_mirror_map(ridge=(setting.ridge or START_RIDGE) * unit, start_ridge=start * unit)
        spec = PublicMirrorSpec(
            step_size=setting.step_size * (1.0 if mode == "mirror" else 1.9 * dimension / 40),
            noise_std=calibrate_mirror_noise(
                problem.constants, setting.n_steps, epsilon=EPSILON, delta=DELTA
            ),
            n_steps=setting.n_steps,
            mode=mode,
            release="average" if setting.tail else "last-iterate",
            average_from=setting.n_steps // 2 if setting.tail else 0,
        )
        plan = Plan(problem=problem, spec=spec, delta=DELTA)
        release = PublicMirrorDescent(mirror).run(plan, sample.data(problem), seed)
        errors[name] = sample.error(release.value)
    return errors


def draw_public_mirror_descent(output: Path, *, quick: bool = False) -> str:
    """Draw the mean squared error against the dimension, with 95% intervals, as picture and table."""
    settings = SETTINGS
    if quick:  # fewer steps of the baseline, so that it takes seconds
        settings = {500: {**SETTINGS[500], "warm": Setting(clip=0.03, n_steps=100, step_size=1.0)}}
    table: Table = {}
    for dimension, methods in settings.items():
        runs = 3 if quick else FEWER_RUNS.get(dimension, RUNS)
        each = []
        for seed in iterate_with_progress(range(runs), f"samples in {dimension} dimensions"):
            selected = {name: one for name, one in methods.items() if name != "cold" or seed < COLD_RUNS}
            each.append(squared_errors(dimension, seed, selected))
        for name in NAMES:
            table[dimension, name] = _mean_interval([one[name] for one in each if name in one])
    return write_figure(output, table)


def write_figure(output: Path, table: Table) -> str:
    """Write picture and numbers of what was measured, and return the text."""
    dimensions = tuple(dict.fromkeys(dimension for dimension, _ in table))
    _draw_picture(output, dimensions, table)
    rows = [(k, NAMES[name], *table[k, name]) for k in dimensions for name in NAMES]
    _draw.write_table(
        output / "public-mirror-descent.csv", ("dimension", "method", "error", "half_width", "runs"), rows
    )
    return "\n".join([*(_summarize(k, table) for k in dimensions), _describe_verdict(dimensions, table)])


def _mean_interval(values: list[float]) -> tuple[float, float, int]:
    """Return the mean, the half-width of its 95% t interval, and the number of values."""
    from scipy import stats

    width = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1)) / len(values) ** 0.5
    return float(np.mean(values)), width, len(values)


def _summarize(dimension: int, table: Table) -> str:
    parts = [
        f"{NAMES[name]} {table[dimension, name][0]:.5f} ± {table[dimension, name][1]:.5f}" for name in NAMES
    ]
    (warm, wide, runs), (mirror, narrow, _) = table[dimension, "warm"], table[dimension, "mirror"]
    verdict = "separated" if mirror + narrow < warm - wide else "not separated"
    cold = table[dimension, "cold"][2]
    runs_text = f"{runs} runs" if cold == runs else f"{runs} runs ({cold} cold ones)"
    text = (
        f"k = {dimension}, {runs_text}: {'; '.join(parts)}. Intervals of the two private methods: {verdict}"
    )
    if runs == RUNS and dimension in REFERENCE:
        text += " (reference values with the map's ridge at 0.001: warm {:g}, mirror {:g})".format(
            *REFERENCE[dimension]
        )
    return text + "."


def _describe_verdict(dimensions: tuple[int, ...], table: Table) -> str:
    """Compare the thesis' conclusions from the two halves of its figure with what was measured."""
    first, last = dimensions[0], dimensions[-1]
    growth = [table[last, name][0] / table[first, name][0] for name in ("cold", "warm")]
    return (
        f"The thesis prints no numbers. It says that a warm start makes the error nearly independent of the dimension "
        f"(4.1a): from k = {first} to {last} the error grows {growth[1]:.1f}-fold with a warm and {growth[0]:.1f}-fold "
        "with a cold start; and that mirror descent is never worse than a warm start and better for small dimensions "
        "(4.1b): its error over that of the warm start is "
        + ", ".join(f"{table[k, 'mirror'][0] / table[k, 'warm'][0]:.2f} (k = {k})" for k in dimensions)
        + "."
    )


def _draw_picture(output: Path, dimensions: tuple[int, ...], table: Table) -> None:
    figure, halves = _draw.make_figure(2)
    pairs = (("cold", "warm"), ("public", "warm", "mirror"))
    colours = dict(zip(NAMES, _draw.COLOURS, strict=False))
    for axes, names, part in zip(halves, pairs, ("4.1a", "4.1b"), strict=True):
        for name in names:
            points: Any = [table[dimension, name] for dimension in dimensions]
            axes.errorbar(
                dimensions, [p[0] for p in points], yerr=[p[1] for p in points], label=NAMES[name], marker="o",
                color=colours[name], capsize=3,
            )  # fmt: skip
        axes.axhline(0.01, color="0.5", linewidth=0.8, linestyle=(0, (1, 1.5)))
        axes.set(xlabel="dimension", title=f"Figure {part} (optimum 0.01)")
        axes.legend(frameon=False)
    halves[0].set_ylabel("squared error on the private rows")
    _draw.save_figure(figure, output / "public-mirror-descent.svg")
