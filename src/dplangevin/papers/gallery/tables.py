"""Ganesh, Thakurta and Upadhyay (2022), Table 1, and (2023), Table 2: every cell run by the library, with its bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin.accounting.conversions import gdp_mu
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.exponential.sampler_plans import plan_iterated, plan_sampler
from dplangevin.mechanisms.langevin.temperatures import choose_langevin_run
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.rashomon.planning import plan_rashomon
from dplangevin.papers.gallery import _draw
from dplangevin.problem import Ball, Box, DataBounds, Logistic, Mean, Problem, Sigmoid
from dplangevin.sampling.potential import ProblemPotential

EPSILON, DELTA, STRONG = 1.0, 1e-6, 0.5
_POPULATION = 40_000  # records that stand for new ones


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell: its plan at n records with a bound on the excess, what it is measured on, and the claimed powers of n."""

    name: str
    statement: str
    plan: Callable[[int], tuple[Plan, float]]
    problem: Callable[[int], Problem]
    claimed: str
    population: bool = False


def _logistic(ridge: float, loss: Logistic | Sigmoid | None = None) -> Callable[[int], Problem]:
    def make(n: int) -> Problem:
        return Problem(
            loss=loss or Logistic(),
            bounds=DataBounds(data_norm=1.0, classes=2),
            n=n,
            n_features=2,
            constraint=Ball(1.0) if loss is None else Box(-0.7, 0.7),
            ridge=ridge,
            fit_intercept=False,
        )

    return make


def _mean(n: int) -> Problem:
    return Problem(
        loss=Mean(),
        bounds=DataBounds(data_norm=0.5, target=(-1.0, 1.0)),
        n=n,
        n_features=2,
        constraint=Ball(0.5),
        ridge=1.0,
        fit_intercept=False,
    )


def cells() -> tuple[Cell, ...]:
    """Return the cells of both tables."""
    flat, strong, hilly = _logistic(0.0), _logistic(STRONG), _logistic(0.0, Sigmoid())

    def draw_models(
        make: Callable[[int], Problem], objective: str = "empirical", tier: str = "pure"
    ) -> Callable[..., object]:
        def plan(n: int) -> tuple[Plan, float]:
            planned = plan_sampler(make(n), EPSILON, 0.0, tier, objective=objective, verbose=False)  # type: ignore[arg-type]
            bound = planned.excess_risk if objective == "empirical" else planned.population_risk
            assert bound is not None
            return planned.plan, bound

        return plan

    def draw_in_stages(population: bool) -> Callable[..., object]:
        def plan(n: int) -> tuple[Plan, float]:
            planned = plan_iterated(strong(n), EPSILON, population=population)
            bound = planned.population_risk
            bound = planned.excess_risk if bound is None else bound
            assert bound is not None
            return planned.plan, bound

        return plan

    def run_diffusion(make: Callable[[int], Problem], population: bool) -> Callable[..., object]:
        def plan(n: int) -> tuple[Plan, float]:
            problem = make(n)
            kind = "weighted" if problem.ridge else "average"
            mu = gdp_mu(EPSILON, DELTA) * (1 - 1e-7)
            choice = choose_langevin_run(problem, mu, population=population, outputs=[kind])  # type: ignore[list-item]
            certified = Plan(problem=problem, spec=choice.spec, delta=DELTA, theorem=choice.theorem)
            return certified, choice.excess_risk + (choice.stability if population else 0.0)

        return plan

    def draw_good_models(delta: float, population: bool) -> Callable[..., object]:
        def plan(n: int) -> tuple[Plan, float]:
            # psi as small as the temperature allows: of order 1 / n pure, of order 1 / n^2 with delta > 0
            psi = 5.0 / n if delta == 0 else (60.0 / n) ** 2
            planned = plan_rashomon(_mean(n), threshold=psi, n_models=1, epsilon=EPSILON, delta=delta)
            beta = planned.spec.inverse_temperature
            bound = planned.population_risk if population else psi + 2 / beta
            assert bound is not None
            return planned.plan, bound

        return plan

    stated = (
        ("1: pure, convex, ERM", "Theorem D.1", draw_models(flat), flat, "-1", False),
        ("1: pure, strongly convex, ERM", "Theorem D.3", draw_in_stages(False), strong, "-2", False),
        ("1: pure, non-convex, ERM", "Theorem D.5", draw_models(hilly, tier="exact"), hilly, "-1", False),
        ("1: pure, convex, SCO", "Theorem E.4", draw_models(flat, "population"), flat, "-1/2, -1", True),
        ("1: pure, strongly convex, SCO", "Theorem E.6", draw_in_stages(True), strong, "-1, -2", True),
        ("1: (eps, delta), convex, ERM", "Theorem F.1", run_diffusion(flat, False), flat, "-1", False),
        (
            "1: (eps, delta), strongly convex, ERM",
            "Theorem F.2",
            run_diffusion(strong, False),
            strong,
            "-2",
            False,
        ),
        ("1: (eps, delta), convex, SCO", "Theorem F.4", run_diffusion(flat, True), flat, "-1/2, -1", True),
        (
            "1: (eps, delta), strongly convex, SCO",
            "Theorem F.5",
            run_diffusion(strong, True),
            strong,
            "-1, -2",
            True,
        ),
        ("2: pure, ERM", "Theorem 2.4", draw_good_models(0.0, False), _mean, "-1", False),
        ("2: (eps, delta), ERM", "Theorem 2.4", draw_good_models(DELTA, False), _mean, "-2", False),
        ("2: pure, SCO", "Theorem 2.6", draw_good_models(0.0, True), _mean, "-1/2, -1", True),
        ("2: (eps, delta), SCO", "Theorem 2.6", draw_good_models(DELTA, True), _mean, "-1/2, -1", True),
    )
    return tuple(
        Cell(name=name, statement=statement, plan=plan, problem=make, claimed=claimed, population=population)  # type: ignore[arg-type]
        for name, statement, plan, make, claimed, population in stated
    )


def make_records(problem: Problem, rng: np.random.Generator) -> ArrayDataset:
    """Return synthetic records of a problem: uniform rows, and logistic labels for a classifier."""
    n, half = problem.n, 0.35 if problem.bounds.classes is None else 0.7
    rows = rng.uniform(-half, half, (n, 2))
    labels = (
        np.zeros(n)
        if problem.bounds.classes is None
        else (rng.random(n) < 1 / (1 + np.exp(-3 * rows[:, 0]))) * 1.0
    )
    return ArrayDataset(rows, labels, problem)


def measure(cell: Cell, n: int, seeds: int) -> tuple[float, float, float]:
    """Return the mean excess over the minimum, on the records or on new ones, its bound, and its standard error."""
    plan, bound = cell.plan(n)
    rng = np.random.default_rng([n, 1])
    judge = ProblemPotential(make_records(cell.problem(_POPULATION), np.random.default_rng(2)), 1.0)
    least = minimum(judge, cell.problem(_POPULATION)) if cell.population else 0.0
    excesses = []
    for seed in range(seeds):
        data = make_records(plan.problem, rng)
        if not cell.population:
            judge = ProblemPotential(ArrayDataset(*_columns(data), cell.problem(n)), 1.0)
            least = minimum(judge, cell.problem(n))
        theta = run_plan(plan, data, seed).value.reshape(-1, 1)
        excesses.append(float(judge.value(theta)[0]) - least)
    return float(np.mean(excesses)), bound, float(np.std(excesses, ddof=1)) / math.sqrt(seeds)


def _columns(data: ArrayDataset) -> tuple[Floats, Floats]:
    blocks = list(data.blocks())
    return np.concatenate([b.rows for b in blocks]), np.concatenate([b.labels for b in blocks])


def minimum(score: ProblemPotential, problem: Problem) -> float:
    """Return the least value, by projected descent; on a grid first, where the loss is not convex."""
    theta = np.zeros((2, 1))
    if not problem.loss.convex:
        axis = np.linspace(-0.7, 0.7, 29)
        grid = np.stack(np.meshgrid(axis, axis)).reshape(2, -1)
        theta = grid[:, [int(np.argmin(score.value(grid)))]]
    for _ in range(250):
        theta = problem.constraint.project((theta - score.gradient(theta))[:, 0])[:, None]
    return float(score.value(theta)[0])


def draw_tables(output: Path, *, quick: bool) -> str:
    """Run every cell at several n; write measured excess, bound and slopes."""
    sizes = (1000, 4000) if quick else (1000, 4000, 16_000)
    seeds = 8 if quick else 40
    rows: list[tuple[object, ...]] = []
    lines, worst = [], -math.inf
    figure, axes = _draw.make_figure(2, height=4.2)
    for i, cell in enumerate(iterate_with_progress(cells(), "cells")):
        pairs = [measure(cell, n, seeds) for n in sizes]
        slopes = [_slope(sizes, [pair[k] for pair in pairs]) for k in (0, 1)]
        rows += [(cell.name, cell.statement, n, *pair) for n, pair in zip(sizes, pairs, strict=True)]
        excess = max((measured - bound) / error for measured, bound, error in pairs)
        worst = max(worst, excess)
        ratio = max(measured / bound for measured, bound, _ in pairs)
        lines.append(
            f"  Table {cell.name} ({cell.statement}): measured {pairs[0][0]:.2g} to {pairs[-1][0]:.2g}, bound "
            f"{pairs[0][1]:.2g} to {pairs[-1][1]:.2g}, slope {slopes[0]:+.2f}, of the bound {slopes[1]:+.2f} "
            f"(claimed {cell.claimed}), largest ratio {ratio:.2f}"
        )
        axis = axes[int(cell.name[0]) - 1]
        colour = _draw.COLOURS[i % 7]
        axis.loglog(
            sizes, [p[1] for p in pairs], color=colour, linestyle=_draw.DASHES[i % 7], label=cell.name[3:]
        )
        axis.loglog(sizes, [max(p[0], 1e-9) for p in pairs], "o", color=colour, markersize=4)
    for number, axis in enumerate(axes, 1):
        axis.set(
            xlabel="number of records n",
            ylabel="excess risk (lines: bounds; dots: runs)",
            title=f"Table {number}",
        )
        axis.legend(frameon=False, fontsize=7)
    _draw.save_figure(figure, output / "tables.svg")
    _draw.write_table(
        output / "tables.csv", ["cell", "statement", "n", "measured", "bound", "standard error"], rows
    )
    return (
        f"(1, 1e-6) or pure 1; logistic regression with two parameters, a sigmoid loss, means; {seeds} runs a cell; "
        f"n = {sizes[0]:,} to {sizes[-1]:,}. ERM cells are measured on their records, SCO cells on {_POPULATION:,} "
        "others; where two powers are claimed the bound is a sum.\n" + "\n".join(lines) + "\n"
        f"Agrees: no measured excess is above its bound by more than {max(0.0, worst):.1f} standard errors."
    )


def _slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    return (
        float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-12)), 1)[0])
        if min(values) > 0
        else math.nan
    )
