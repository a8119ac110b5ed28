"""The region's slack and curvature, read off real records: the worst pairs of the proofs, honest and broken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.noisy_answers.mechanism import NoisySums
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec
from dplangevin.mechanisms.rashomon_region.mechanism import NoisySlack
from dplangevin.mechanisms.rashomon_region.objective import RegionObjective, clipped_excess_sums, majorant_sum
from dplangevin.mechanisms.rashomon_region.planning import (
    _curvature_spec,
    _flip_spec,
    _slack_spec,
    flip_totals,
)
from dplangevin.mechanisms.rashomon_region.spec import SlackSpec
from dplangevin.problem import DataBounds, Logistic, Problem
from privacy._case import Case, Draw

DELTA, MU = 0.05, 1.5
PROBLEM = Problem(
    loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=1, n_features=2, fit_intercept=False
)
OBJECTIVE = RegionObjective.from_problem(PROBLEM, Logistic(), 0.0)


def _totals() -> list[float]:
    """One record pulls a point up by its whole share, its replacement down by as much."""
    centre, step, tilt = np.array([300.0, 0.0]), np.array([[0.0], [1.0]]), 0.03
    limits = OBJECTIVE.loss_difference_bounds(centre, centre[:, None] + step)[None]
    found = []
    for side, label in ((tilt, 0.0), (-tilt, 1.0)):
        row = np.array([[side, 1.0]]) / np.hypot(tilt, 1.0)
        data = ArrayDataset(row, [label], PROBLEM)
        found.append(
            float(data.sum_over_blocks(clipped_excess_sums, OBJECTIVE, centre, step, np.ones(1), limits)[0])
        )
    return found


def _flip_totals() -> list[float]:
    """Only a model at the end of the ball decides the input otherwise: worse by a whole share, or better by one."""
    centre, inputs, tilt = np.array([300.0, -4.999]), np.array([[0.0, 1.0]]), 0.3
    found = []
    for side, label in ((tilt, 0.0), (-tilt, 1.0)):
        data = ArrayDataset(np.array([[side, 1.0]]) / np.hypot(tilt, 1.0), [label], PROBLEM)
        found.append(float(flip_totals(data, OBJECTIVE, centre, inputs, 5.0)[0]))
    return found


def _slack_runs(spec: SlackSpec, totals: list[float]) -> Draw:
    plan = CertifiedSpec(spec=spec, delta=DELTA)

    def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        exact = [np.array([totals[side]])]
        return np.array([NoisySlack().run(plan, lambda: exact, rng).values[0][0] for _ in range(runs)])

    return draw


def _curvature_runs(spec: NoisySumsSpec) -> Draw:
    plan, centre = CertifiedSpec(spec=spec, delta=DELTA), np.zeros(2)
    tables = [ArrayDataset(np.eye(2)[[i]], [0.0], PROBLEM) for i in (0, 1)]
    sums = [data.sum_over_blocks(majorant_sum, OBJECTIVE, centre) for data in tables]
    along = sums[0] - sums[1]

    def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        return np.array(
            [NoisySums().run(plan, lambda: [sums[side]], rng).values[0] @ along for _ in range(runs)]
        )

    return draw


def slack() -> Case:
    honest = _slack_spec(OBJECTIVE, MU)
    one = _slack_spec(replace(OBJECTIVE, adjacency="add-remove"), MU)  # a reach of one record instead of two
    totals = _totals()
    return Case(
        name="slack of a region",
        configuration="one record, centre far out, one point across",
        covers=("NoisySlack",),
        claim=CertifiedSpec(spec=honest, delta=DELTA).guarantee,
        honest=_slack_runs(honest, totals),
        broken_variants={
            "reach of one instead of two": _slack_runs(replace(honest, scale=one.scale), totals)
        },
        exact_ratio=abs(totals[0] - totals[1]) / honest.sensitivity,
    )


def curvature() -> Case:
    honest = _curvature_spec(OBJECTIVE, MU)
    group = honest.groups[0]
    half = replace(honest, groups=(replace(group, scale=group.scale / 2),))
    return Case(
        name="curvature of a region",
        configuration="one record, two rows at right angles",
        covers=("NoisySums",),
        claim=CertifiedSpec(spec=honest, delta=DELTA).guarantee,
        honest=_curvature_runs(honest),
        broken_variants={"noise / 2": _curvature_runs(half)},
        exact_ratio=1.0,
    )


def flips() -> Case:
    honest = _flip_spec(OBJECTIVE, MU, 1)
    one = _flip_spec(replace(OBJECTIVE, adjacency="add-remove"), MU, 1)
    totals = _flip_totals()
    return Case(
        name="flip-cost level of a region",
        configuration="one record, one input at the end of the ball",
        covers=("NoisySlack",),
        claim=CertifiedSpec(spec=honest, delta=DELTA).guarantee,
        honest=_slack_runs(honest, totals),
        broken_variants={
            "reach of one instead of two": _slack_runs(replace(honest, scale=one.scale), totals)
        },
        exact_ratio=abs(totals[0] - totals[1]) / honest.sensitivity,
        slow=True,
    )


CASES = (slack(), curvature(), flips())
