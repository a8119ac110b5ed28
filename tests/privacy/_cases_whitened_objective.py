"""Whitened objective perturbation: the moment alone, the minimiser with the moment fixed, then the whole.

The moment sees a row that comes, or two at right angles. The minimiser sees one row that stretched coordinates put on
the bound (or, where bounds are broken, far beyond it), with two labels at which a Huber loss is a straight line.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Pure
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.data.dataset import Dataset
from dplangevin.mechanisms.exact_gradient import public_row_grid
from dplangevin.mechanisms.mechanism import NoiseDraws, run_plan
from dplangevin.mechanisms.whitened_objective import mechanism
from dplangevin.mechanisms.whitened_objective.mechanism import minimize_perturbed, release_second_moment
from dplangevin.mechanisms.whitened_objective.spec import WhitenedObjectiveSpec, WhitenedObjectiveTheorem
from dplangevin.problem import DataBounds, Huber, Problem
from privacy._case import Case, Draw

Floats = NDArray[np.float64]
COVERS = ("WhitenedObjective",)
NORM, PULL, STRETCH = 3.0, 0.1, 20.0
SPEC = WhitenedObjectiveSpec(
    moment_density_scale=1.0,
    ridge=2000.0,
    density_scale=PULL * NORM,
    tolerance=1e-9,
    release_density_scale=1e-7,
)


EXACT = replace(SPEC, secure=True, release_density_scale=0.0)


def problem(adjacency: str, columns: int) -> Problem:
    return Problem(
        loss=Huber(transition=PULL),
        bounds=DataBounds(data_norm=NORM, target=(-1, 1)),
        n=1,
        n_features=columns,
        fit_intercept=False,
        adjacency=adjacency,  # type: ignore[arg-type]
    )


def tables(adjacency: str, X: Floats) -> list[ArrayDataset]:
    """Two data sets of one record each, with targets 1 and -1; or one record and none."""
    of = problem(adjacency, X.shape[1])
    kept = [(X[i : i + 1], np.array([1.0 - 2 * i])) for i in (0, 1)]
    if adjacency == "add-remove":
        kept[1] = (np.zeros((0, X.shape[1])), np.zeros(0))
    return [ArrayDataset(*records, of) for records in kept]


def claimed(adjacency: str, epsilon: float) -> Guarantee:
    constants = problem(adjacency, 2).constants
    return replace(
        WhitenedObjectiveTheorem().guarantee(constants, SPEC, (Pure(value=epsilon),)), at_delta=0.0
    )


def make_draws(rng: np.random.Generator) -> NoiseDraws:
    return NoiseDraws(rng=rng, source=rng.bytes)


def prepare(data: Dataset, spec: WhitenedObjectiveSpec) -> Dataset:
    """Rows on the grid where the run is exact."""
    return data.with_rounded_rows(public_row_grid(data.problem)) if spec.secure else data


def moments(adjacency: str, noise: float, *, spec: WhitenedObjectiveSpec = SPEC) -> Draw:
    """e_1 e_1' against e_2 e_2', or against nothing in one column: the difference of the diagonal tells them."""
    size = 2 if adjacency == "replace-one" else 1
    sides = tables(adjacency, NORM * np.eye(size) if size == 2 else np.full((2, 1), NORM))
    run_spec = replace(spec, moment_density_scale=noise)

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        made = np.array(
            [
                release_second_moment(run_spec, prepare(sides[side], run_spec), make_draws(rng))
                for _ in range(runs)
            ]
        )
        return np.asarray(made[:, 0, 0] - (made[:, 1, 1] if size == 2 else 0.0))

    return draw


def unweighted(X: Floats, basis: Floats, bound: float) -> tuple[Floats, Floats]:
    """Rows that are not bounded after whitening."""
    return np.ones(len(X)), X @ basis


def full_limits(data: Dataset, block: Any, grid: Any, transform: Any) -> Floats:
    """Limits of rows that are not bounded after whitening."""
    return np.full(len(block.rows), grid.max_limit)


def minimisers(
    adjacency: str, *, wrong: bool = False, free: bool = False, spec: WhitenedObjectiveSpec = SPEC
) -> Draw:
    """wrong : the tilt has its stated size in theta instead of q."""
    sides = tables(adjacency, np.full((2, 1), NORM if free else NORM / STRETCH))
    run_spec = replace(spec, density_scale=spec.density_scale / STRETCH) if wrong else spec
    basis = np.array([[STRETCH]])

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        broken = {"whiten_and_weight": unweighted, "limit_squares": full_limits} if free else {}
        with mock.patch.multiple(mechanism, **broken) if free else nullcontext():
            return np.array(
                [
                    minimize_perturbed(run_spec, prepare(sides[side], run_spec), basis, make_draws(rng))[0]
                    for _ in range(runs)
                ]
            )

    return draw


def moment_of_run(plan: Plan, data: Dataset, rng: np.random.Generator) -> Floats:
    """The noisy moment of a whole run. It never leaves the run, so it is taken where it is made."""
    made: list[Floats] = []

    def release_and_keep(*arguments: Any) -> Floats:
        made.append(release_second_moment(*arguments))
        return made[-1]

    with mock.patch.object(mechanism, "release_second_moment", release_and_keep):
        run_plan(plan, data, rng)
    return made[0]


def whole(**changes: Any) -> Draw:
    run_spec = replace(SPEC, **changes)
    plan = Plan(problem=problem("replace-one", 2), spec=run_spec, delta=0.0)
    sides = tables("replace-one", NORM * np.eye(2))

    def draw(side: int, runs: int, rng: np.random.Generator) -> Floats:
        made = (moment_of_run(plan, sides[side], rng) for _ in range(runs))
        return np.array([moment[0, 0] - moment[1, 1] for moment in made])

    return draw


def moment_case(adjacency: str, spec: WhitenedObjectiveSpec = SPEC) -> Case:
    replaced = adjacency == "replace-one"
    noise = 1.0 if replaced else 1.5
    return Case(
        name="whitened objective, the moment",
        configuration=adjacency + (", secure" if spec.secure else ""),
        covers=COVERS,
        claim=claimed(adjacency, (2 if replaced else 1) / noise),
        honest=moments(adjacency, noise, spec=spec),
        broken_variants={
            "half the noise of the moment": moments(adjacency, noise / (4 if replaced else 2), spec=spec)
        },
        exact_ratio=None if replaced else 1.0,
        loose="the ratio is reached far out only; so a quarter of the noise" if replaced else "",
        runs=3000,
        slow=spec.secure,
    )


def minimiser_case(adjacency: str, spec: WhitenedObjectiveSpec = SPEC) -> Case:
    epsilon = 2.0 if adjacency == "replace-one" else 1.0
    return Case(
        name="whitened objective, the minimiser",
        configuration=f"{adjacency}, moment fixed" + (", secure" if spec.secure else ""),
        covers=COVERS,
        claim=claimed(adjacency, epsilon + 0.02),  # the ridge makes the determinant, and the solver, cheap
        honest=minimisers(adjacency, spec=spec),
        broken_variants={
            "rows not bounded after whitening": minimisers(adjacency, free=True, spec=spec),
            "noise in the wrong coordinates": minimisers(adjacency, wrong=True, spec=spec),
        },
        exact_ratio=epsilon / (epsilon + 0.02),
        runs=500,
        slow=spec.secure,
    )


CASES = (
    moment_case("replace-one"),
    moment_case("add-remove"),
    minimiser_case("replace-one"),
    minimiser_case("add-remove"),
    moment_case("replace-one", EXACT),
    moment_case("add-remove", EXACT),
    minimiser_case("replace-one", EXACT),
    minimiser_case("add-remove", EXACT),
    Case(
        name="whitened objective, the whole",
        configuration="replace-one",
        covers=COVERS,
        claim=Plan(problem=problem("replace-one", 2), spec=SPEC, delta=0.0).guarantee,
        honest=whole(),
        broken_variants={"a tenth of the noise of the moment": whole(moment_density_scale=0.1)},
        loose="the attack looks at the moment, one of two releases",
        runs=400,
    ),
)
