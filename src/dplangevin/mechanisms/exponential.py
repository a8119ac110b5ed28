"""The exponential and Gibbs mechanisms: one draw of exp(-beta F), and draws on ever smaller sets."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import Dataset
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms._draw import draw
from dplangevin.mechanisms._perturbed import release_once
from dplangevin.mechanisms.release import Release
from dplangevin.mechanisms.run_state import RunState, StatePath
from dplangevin.planner.exact_methods import exact_method
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.spender import Spender
from dplangevin.problem import Ball, Problem
from dplangevin.samplers.bodies import body_of
from dplangevin.samplers.lens import LensBody
from dplangevin.schedules import DrawSchedule, IteratedExponentialSchedule

Floats = NDArray[np.float64]


class ExponentialMechanism:
    """theta ~ exp(-beta F) on the problem's set, at the tier of the schedule; runs Gibbs schedules too.

    References
    ----------
    McSherry and Talwar (2007); Ganesh, Thakurta and Upadhyay (2023), Algorithm 2; Gopi, Lee and Liu (2022).
    """

    def run(
        self,
        plan: Plan,
        data: Dataset,
        random_state: object = None,
        *,
        ledger: Spender | None = None,
        state: StatePath = None,
    ) -> Release:
        """Draw once and release the draw."""
        schedule = plan.schedule
        if isinstance(schedule, DrawSchedule) and plan.problem is not None:
            _check_drawable(schedule, plan.problem)
        return release_once(
            plan, data, DrawSchedule, _padded(_single), random_state, ledger, RunState.at(state, plan)
        )


class IteratedExponentialMechanism:
    """The exponential mechanism on a ball, then on smaller balls around the last draw, cut with the first ball.

    The earlier draws are covered by the promise too: they are the release's iterates.

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2023), Algorithm 3.
    """

    def run(
        self,
        plan: Plan,
        data: Dataset,
        random_state: object = None,
        *,
        ledger: Spender | None = None,
        state: StatePath = None,
    ) -> Release:
        """Draw stage by stage and release the last draw."""
        schedule, problem = plan.schedule, plan.problem
        if isinstance(schedule, IteratedExponentialSchedule) and problem is not None:
            if not isinstance(problem.constraint, Ball):
                raise InvalidParameter(
                    f"the iterated mechanism runs on a ball, not on the {problem.constraint.name}; use Ball(radius)."
                )
            if schedule.tier == "exact" and problem.dimension > 1:
                raise AssumptionFailed(
                    "exact draws on a part of the ball need one parameter; use tier='pure' or 'certified'."
                )
        kept: dict[int, Floats] = {}

        def stages(schedule: IteratedExponentialSchedule, data: Dataset, rng: np.random.Generator) -> Floats:
            return _stages(schedule, data, rng, kept)

        family, keeper = IteratedExponentialSchedule, RunState.at(state, plan)
        return release_once(plan, data, family, _padded(stages), random_state, ledger, keeper, kept)


def _check_drawable(schedule: DrawSchedule, problem: Problem) -> None:
    """Public refusals, before the ledger is charged."""
    if schedule.tier == "exact":
        exact_method(problem, schedule.grid)
    else:
        body_of(problem.constraint, problem.dimension)
    problem.loss.value(np.zeros((1, problem.loss.score_dimension)).squeeze(0), np.zeros(1))


def _single(schedule: DrawSchedule, data: Dataset, rng: np.random.Generator) -> Floats:
    return draw(schedule, data, rng)[:, 0]


def _stages(
    schedule: IteratedExponentialSchedule,
    data: Dataset,
    rng: np.random.Generator,
    kept: dict[int, Floats],
) -> Floats:
    constraint = data.problem.constraint
    assert isinstance(constraint, Ball)
    theta, body = np.zeros(data.problem.dimension), None
    for number, stage in enumerate(schedule.draws, 1):
        theta = constraint.project(draw(stage, data, rng, body=body)[:, 0])
        kept[number] = theta
        if number < len(schedule.draws):
            body = LensBody(centre=theta, outer=constraint.radius, inner=schedule.radii[number - 1])
    return theta


def _padded(answer: Callable[..., Floats]) -> Callable[..., Floats]:
    """`answer`, made to take at least the schedule's padding."""

    def waited(
        schedule: DrawSchedule | IteratedExponentialSchedule, data: Dataset, rng: np.random.Generator
    ) -> Floats:
        end = time.monotonic() + schedule.padding
        try:
            return answer(schedule, data, rng)
        finally:
            time.sleep(max(0.0, end - time.monotonic()))

    return waited
