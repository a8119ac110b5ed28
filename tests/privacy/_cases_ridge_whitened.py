"""Ridge-whitened descent: a further moment and one step at their own shares, and the first moment of the whole."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import NoiseDraws, run_plan
from dplangevin.mechanisms.ridge_whitened import mechanism
from dplangevin.mechanisms.ridge_whitened.mechanism import (
    RidgeCoordinates,
    release_moment,
    row_grid,
    run_descent,
)
from dplangevin.mechanisms.ridge_whitened.spec import (
    PlannedDescent,
    RidgeWhitenedComposition,
    RidgeWhitenedSpec,
)
from dplangevin.problem import DataBounds, Problem, Softmax
from privacy._case import Case, Draw

Floats = NDArray[np.float64]
COVERS = ("RidgeWhitenedDescent",)
DELTA, NORM, CLIP = 1e-2, 3.0, 0.25
SPEC = RidgeWhitenedSpec(moment_noise_std=1.0, noise_std=0.25, step_cap=4.0, secure=True)


def problem(adjacency: str) -> Problem:
    return Problem(
        loss=Softmax(n_classes=2, slope_clip=CLIP),
        bounds=DataBounds(data_norm=NORM, classes=2),
        n=1,
        n_features=2,
        fit_intercept=False,
        adjacency=adjacency,  # type: ignore[arg-type]
    )


GRID = row_grid(SPEC, problem("replace-one"))
STRETCHED = RidgeCoordinates(n_columns=2).refine(np.diag([0.03, 0.02]), 1e-3, GRID)
"""Coordinates of a moment that was released before: rows along both axes are far beyond the bound."""


def claimed(adjacency: str, mu: float) -> Guarantee:
    """The guarantee of one part."""
    constants = problem(adjacency).constants
    part = RidgeWhitenedComposition().guarantee(constants, SPEC, (Gaussian(mu=mu),))
    return replace(part, at_delta=DELTA)


def tables(adjacency: str, rows: Floats, labels: tuple[float, float]) -> list[Any]:
    """Two data sets of one record each, or one record and none, on their grid."""
    of = problem(adjacency)
    kept = [(rows[i : i + 1], np.array([labels[i]])) for i in (0, 1)]
    if adjacency == "add-remove":
        kept[1] = (np.zeros((0, 2)), np.zeros(0))
    return [ArrayDataset(X, y, of).with_rounded_rows(GRID) for X, y in kept]


def isometric(matrix: Floats) -> Floats:
    return np.array([matrix[0, 0], matrix[1, 1], np.sqrt(2) * matrix[0, 1]])


def further_moments(adjacency: str, noise: float) -> Draw:
    """A further moment of rows that stand at right angles, both longer than the bound."""
    sides = tables(adjacency, NORM * np.eye(2), (1.0, 1.0))

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        draws = NoiseDraws(rng=rng, source=rng.bytes)
        found = [release_moment(sides[side], STRETCHED, GRID, noise, draws) for _ in range(runs)]
        return np.array([isometric(matrix) for matrix in found])

    return draw


def steps(adjacency: str, *, weighted: bool = True, noise: float = SPEC.noise_std) -> Draw:
    """One step: the same long row with the slopes of either label; without its weight it is beyond the bound."""
    sides = tables(adjacency, NORM * np.array([[0.0, 1.0], [0.0, 1.0]]), (1.0, 0.0))
    step = PlannedDescent(n_steps=1, step_size=1.0, noise_std=noise, is_accelerated=False)

    def limits(data: Any, block: Any, grid: Any, transform: Any) -> Floats:
        return np.full(len(block.labels), 2 * grid.max_limit)

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        draws = NoiseDraws(rng=rng, source=rng.bytes)
        used = mechanism.limit_records if weighted else limits
        with mock.patch.object(mechanism, "limit_records", used):
            made = [
                run_descent(step, sides[side], STRETCHED, GRID, np.zeros((2, 2)), draws) for _ in range(runs)
            ]
        assert STRETCHED.transform is not None
        return np.array([np.linalg.solve(STRETCHED.transform.basis, theta).ravel() for theta in made])

    return draw


def moment_case(adjacency: str) -> Case:
    return Case(
        name="ridge-whitened descent, a further moment",
        configuration=f"{adjacency}, the first moment fixed",
        covers=COVERS,
        claim=claimed(adjacency, math.sqrt(2.0) if adjacency == "replace-one" else 1.0),
        honest=further_moments(adjacency, 1.0),
        broken_variants={"half the noise": further_moments(adjacency, 0.5)},
        exact_ratio=1.0,
    )


def step_case(adjacency: str) -> Case:
    return Case(
        name="ridge-whitened descent, one step of two scores",
        configuration=f"{adjacency}, moments fixed",
        covers=COVERS,
        claim=claimed(adjacency, (2 if adjacency == "replace-one" else 1) * CLIP / SPEC.noise_std),
        honest=steps(adjacency),
        broken_variants={
            "rows without their weights": steps(adjacency, weighted=False),
            "half the noise": steps(adjacency, noise=SPEC.noise_std / 2),
        },
        exact_ratio=1.0,
        runs=600,
    )


def whole(moment_noise_std: float) -> Draw:
    """The first moment of a whole run. It never leaves the run, so it is taken where it is made."""
    plan = Plan(
        problem=problem("replace-one"), spec=replace(WHOLE, moment_noise_std=moment_noise_std), delta=DELTA
    )
    sides = [
        ArrayDataset(NORM * row[None], np.array([label]), plan.problem)
        for row, label in zip(np.eye(2), (1.0, 0.0), strict=True)
    ]

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        made: list[Floats] = []
        with mock.patch.object(
            mechanism, "release_moment", lambda *of: made.append(release_moment(*of)) or made[-1]
        ):
            for _ in range(runs):
                run_plan(plan, sides[side], rng)
        return np.array([isometric(matrix) for matrix in made])

    return draw


WHOLE = replace(SPEC, moment_noise_std=2.0, noise_std=2.0)
CASES = (
    moment_case("replace-one"),
    moment_case("add-remove"),
    step_case("replace-one"),
    step_case("add-remove"),
    Case(
        name="ridge-whitened descent, the whole",
        configuration="replace-one, one moment and eight steps",
        covers=COVERS,
        claim=Plan(problem=problem("replace-one"), spec=WHOLE, delta=DELTA).guarantee,
        honest=whole(2.0),
        broken_variants={"three tenths of the noise of a moment": whole(0.6)},
        loose="the attack looks at the first moment, one of nine releases",
        runs=400,
    ),
)
