"""Whitened descent: each part alone at its own share, with the releases before it fixed, then the whole.

The moments see rows that stand at right angles (or none), the gradients two labels of a row that its weight has put on
the bound; slopes at 0 are as long as the clip. So every part is as tight as its claim.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.data.dataset import Block, Dataset
from dplangevin.mechanisms.mechanism import NoiseDraws, run_plan
from dplangevin.mechanisms.whitened import mechanism
from dplangevin.mechanisms.whitened.curvature import CurvatureLimit, release_curvature
from dplangevin.mechanisms.whitened.mechanism import (
    DescentState,
    add_symmetric_noise,
    initial_state,
    release_second_moments,
    run_descent,
)
from dplangevin.mechanisms.whitened.spec import WhitenedComposition, WhitenedSpec
from dplangevin.mechanisms.whitened.whitening import (
    Spectrum,
    WhitenedGeometry,
    WhiteningTransform,
    second_moment_sum,
)
from dplangevin.problem import Clipped, DataBounds, Logistic, Problem, Squared
from privacy._case import Case, Draw

Floats = NDArray[np.float64]
COVERS = ("WhitenedDescent",)
DELTA, NORM = 1e-2, 3.0
STRETCH = 4.0
FIXED = np.diag([0.5, 0.02])  # the moment that was released before
SPEC = WhitenedSpec(moment_noise_std=1.0, noise_std=0.5, n_steps=1, step_size=4.0, coef_bound=10.0)


def problem(adjacency: str) -> Problem:
    return Problem(
        loss=Clipped(Logistic(), 0.5),
        bounds=DataBounds(data_norm=NORM, classes=2),
        n=1,
        n_features=2,
        fit_intercept=False,
        adjacency=adjacency,  # type: ignore[arg-type]
    )


def claimed(adjacency: str, mu: float) -> Guarantee:
    """The guarantee of one part."""
    constants = problem(adjacency).constants
    part = WhitenedComposition().guarantee(constants, SPEC, (Gaussian(mu=mu),))
    return replace(part, at_delta=DELTA)


def tables(adjacency: str, rows: Floats, labels: tuple[float, float]) -> list[ArrayDataset]:
    """Two data sets of one record each, or one record and none."""
    of = problem(adjacency)
    kept = [(rows[i : i + 1], np.array([labels[i]])) for i in (0, 1)]
    if adjacency == "add-remove":
        kept[1] = (np.zeros((0, 2)), np.zeros(0))
    return [ArrayDataset(X, y, of) for X, y in kept]


def isometric(matrix: Floats) -> Floats:
    return np.array([matrix[0, 0], matrix[1, 1], np.sqrt(2) * matrix[0, 1]])


def first_moments(adjacency: str, noise: float) -> Draw:
    sides = tables(adjacency, NORM * np.eye(2), (1.0, 1.0))
    spec = replace(SPEC, moment_noise_std=noise)

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        return np.array(
            [
                isometric(release_second_moments(spec, sides[side], NoiseDraws(rng=rng))[0])
                for _ in range(runs)
            ]
        )

    return draw


def second_moments(adjacency: str, noise: float) -> Draw:
    """The second look, the first one fixed: its own rows at right angles are those of the stretched coordinates."""
    sides = tables(adjacency, NORM * np.eye(2), (1.0, 1.0))
    spec, frame = replace(SPEC, moment_noise_std=noise), WhiteningTransform(STRETCH * np.eye(2), 2.0)

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        exact = second_moment_sum(sides[side], frame) / sides[side].problem.n
        return np.array([isometric(add_symmetric_noise(spec, exact, rng)) for _ in range(runs)])

    return draw


def curvatures(adjacency: str, noise: float, limit: float = 0.25) -> Draw:
    """The curvature at 0, where a logistic loss has its largest one, of rows beyond the bound.

    limit : on the curvature of a record, to whose unit the noise is scaled.
    """
    of = replace(problem(adjacency), loss=Logistic())
    kept = [ArrayDataset(NORM * row[None], np.ones(1), of) for row in np.eye(2)]
    if adjacency == "add-remove":
        kept[1] = ArrayDataset(np.zeros((0, 2)), np.zeros(0), of)
    spec = replace(SPEC, curvature_noise_std=noise)

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        at = (stretched(), np.zeros(2), NoiseDraws(rng=rng), CurvatureLimit(limit))
        made = [release_curvature(spec, kept[side], *at) for _ in range(runs)]
        return np.array([isometric(found.matrix / found.noise_std * noise) for found in made])

    return draw


def limited_curvatures(adjacency: str, noise: float) -> Draw:
    """The same where a record's curvature counts up to a twentieth of its bound, as at rare labels."""
    return curvatures(adjacency, noise, limit=0.25 / 20)


def squared_slopes(adjacency: str, noise: float) -> Draw:
    """Both means of squared slopes, of a record with the largest slope and of one with none."""
    of = replace(
        problem(adjacency), loss=Clipped(Squared(), 0.5), bounds=DataBounds(data_norm=NORM, target=(0, 1))
    )
    labels = (0.0, 0.5 if adjacency == "replace-one" else 1.0)
    rows = NORM * np.array([[0.6, 0.8], [0.6, 0.8]])
    kept = [ArrayDataset(rows[i : i + 1], np.array([labels[i]]), of) for i in (0, 1)]
    if adjacency == "add-remove":
        kept[1] = ArrayDataset(np.zeros((0, 2)), np.zeros(0), of)
    spec = replace(SPEC, curvature_noise_std=1.0, slope_noise_std=noise)
    # at this point the score is 1/2: one label is as far from it as the clip, the other is met
    at = np.array([0.3, 0.4]) / NORM

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        made = [
            release_curvature(spec, kept[side], stretched(), at, NoiseDraws(rng=rng), CurvatureLimit(1.0))
            for _ in range(runs)
        ]
        z = 1.645 * noise  # what an upper bound adds
        return np.array([[found.weighted_square, 4 * (found.mean_square or 0.0) - z] for found in made])

    return draw


def stretched() -> WhitenedGeometry:
    found = Spectrum(
        values=np.ones(2),
        vectors=np.eye(2),
        above_noise=np.ones(2, bool),
        upper_bounds=np.ones(2),
        edge=0.1,
    )
    frame = WhiteningTransform(STRETCH * np.eye(2), 2.0)
    return WhitenedGeometry(transform=frame, moments=np.ones(2), curvature_bounds=np.ones(2), spectrum=found)


class WrongCoordinates:
    """Noise of the stated size in theta instead of q: too small by the stretch."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def standard_normal(self, shape: tuple[int, ...]) -> Floats:
        return np.asarray(self.rng.standard_normal(shape) / STRETCH)


def by_label(data: Dataset, block: Block, frame: WhiteningTransform, kept: object = None) -> Floats:
    """Weights that look at y: a positive record keeps its whole row, beyond the bound."""
    return np.where(block.labels > 0, 1.0, 0.5)


def steps(adjacency: str, *, wrong: bool = False, labelled: bool = False) -> Draw:
    sides = tables(adjacency, NORM * np.array([[0.6, 0.8], [0.6, 0.8]]), (1.0, 0.0))

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        used, made = (WrongCoordinates(rng) if wrong else rng), []
        weights = by_label if labelled else mechanism.row_weights
        with mock.patch.object(mechanism, "row_weights", weights):
            for _ in range(runs):
                start = np.zeros((2, 1))
                walk = DescentState(
                    moments=FIXED[None],
                    step=0,
                    n_steps=1,
                    theta=start,
                    previous=start,
                    totals=np.zeros((3, 2, 1)),
                )
                made.append(run_descent(SPEC, sides[side], stretched(), walk, NoiseDraws(rng=used))[:, 0])  # type: ignore[arg-type]
        return np.array(made)

    return draw


def first_moment_of_run(plan: Plan, data: Dataset, rng: np.random.Generator) -> Floats:
    """The first noisy moment of a whole run. It never leaves the run, so it is taken where it is made."""
    made: list[Floats] = []

    def release_and_keep(*arguments: Any) -> Floats:
        made.append(release_second_moments(*arguments))
        return made[-1]

    with mock.patch.object(mechanism, "release_second_moments", release_and_keep):
        run_plan(plan, data, rng)
    return made[0][0]


def whole(noise: float, moment_noise_std: float) -> Draw:
    spec = replace(SPEC, moment_noise_std=moment_noise_std, noise_std=noise, n_moment_releases=2, n_steps=2)
    plan = Plan(problem=problem("replace-one"), spec=spec, delta=DELTA)
    sides = tables("replace-one", NORM * np.eye(2), (1.0, 0.0))

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        made = [first_moment_of_run(plan, sides[side], rng) for _ in range(runs)]
        return np.array([isometric(moment) for moment in made])

    return draw


def chosen_steps(forgotten: bool = False) -> Draw:
    """The approach ends with large scores whatever the records are, so two steps become twelve; released is their mean.

    Noise that forgets how many steps were chosen is that of the short descent.
    """
    sides = tables("add-remove", NORM * np.array([[0.6, 0.8], [0.6, 0.8]]), (1.0, 0.0))
    noise = WhitenedSpec.noise_at_step

    def short(spec: WhitenedSpec, step: int, steps: int) -> float:
        return noise(spec, step, spec.n_steps if forgotten else steps)

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        made = []
        with mock.patch.object(WhitenedSpec, "noise_at_step", short):
            for _ in range(runs):
                walk = initial_state(APPROACHED, sides[side].problem, FIXED[None])
                walk.theta = walk.previous = np.array([[-6.0], [-8.0]])
                made.append(run_descent(APPROACHED, sides[side], stretched(), walk, rng)[:, 0])
                assert walk.n_steps == 12
        return np.array(made)

    return draw


def moment_case(name: str, draws: object, adjacency: str) -> Case:
    made: Draw = draws(adjacency, 1.0)  # type: ignore[operator]
    return Case(
        name=f"whitened descent, {name}",
        configuration=f"{adjacency}, earlier releases fixed",
        covers=COVERS,
        claim=claimed(adjacency, np.sqrt(2.0) if adjacency == "replace-one" else 1.0),
        honest=made,
        broken_variants={"half the noise": draws(adjacency, 0.5)},  # type: ignore[operator]
        exact_ratio=1.0,
    )


def slope_case(adjacency: str) -> Case:
    return Case(
        name="whitened descent, squared slopes",
        configuration=f"{adjacency}, earlier releases fixed",
        covers=COVERS,
        claim=claimed(adjacency, np.sqrt(2.0)),
        honest=squared_slopes(adjacency, 1.0),
        broken_variants={"three tenths of the noise": squared_slopes(adjacency, 0.3)},
        loose="of the second mean an upper bound is shown, which is not negative",
    )


def step_case(adjacency: str) -> Case:
    return Case(
        name="whitened descent, one step",
        configuration=f"{adjacency}, moments fixed",
        covers=COVERS,
        claim=claimed(adjacency, (2 if adjacency == "replace-one" else 1) * 0.5 / SPEC.noise_std),
        honest=steps(adjacency),
        broken_variants={
            "weights that use y": steps(adjacency, labelled=True),
            "noise in the wrong coordinates": steps(adjacency, wrong=True),
        },
        exact_ratio=1.0,
        runs=600,
    )


APPROACHED = replace(
    SPEC,
    n_steps=2,
    noise_std=1.0,
    n_approach_steps=1,
    approach_noise_std=1.0,
    average_from=1,
    max_steps=12,
    step_size=0.01,
)
"""Short steps, so that the answer hangs on all gradients alike."""
CASES = (
    Case(
        name="whitened descent, a chosen number of steps",
        configuration="add-remove, moments fixed, twelve steps instead of two",
        covers=COVERS,
        claim=Plan(
            problem=problem("add-remove"), spec=replace(APPROACHED, moment_noise_std=1e3), delta=DELTA
        ).guarantee,
        honest=chosen_steps(),
        broken_variants={"noise of the stated number of steps": chosen_steps(forgotten=True)},
        loose="the mean of the tail weighs early gradients more than late ones",
        runs=800,
    ),
    moment_case("first moment", first_moments, "replace-one"),
    moment_case("first moment", first_moments, "add-remove"),
    moment_case("curvature", curvatures, "replace-one"),
    moment_case("curvature", curvatures, "add-remove"),
    moment_case("curvature below a limit", limited_curvatures, "replace-one"),
    slope_case("replace-one"),
    slope_case("add-remove"),
    moment_case("second moment", second_moments, "replace-one"),
    moment_case("second moment", second_moments, "add-remove"),
    step_case("replace-one"),
    step_case("add-remove"),
    Case(
        name="whitened descent, the whole",
        configuration="replace-one, two moments and two steps",
        covers=COVERS,
        claim=Plan(
            problem=problem("replace-one"),
            spec=replace(SPEC, n_moment_releases=2, n_steps=2, noise_std=4.0, moment_noise_std=2.0),
            delta=DELTA,
        ).guarantee,
        honest=whole(4.0, 2.0),
        broken_variants={"three tenths of the noise of a moment": whole(4.0, 0.6)},
        loose="the attack looks at the first moment, one of four releases",
        runs=500,
    ),
)
