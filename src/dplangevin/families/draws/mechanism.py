"""The exponential and Gibbs mechanisms: one draw of exp(-beta F), and draws on ever smaller sets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.families.draws._draw import draw
from dplangevin.families.draws.exact_methods import cells_per_axis, exact_method
from dplangevin.families.draws.schedule import DrawSchedule, IteratedExponentialSchedule
from dplangevin.families.mechanism import Draw, Fit, FitMechanism
from dplangevin.problem import Ball, Problem, RecordLoss, is_proved
from dplangevin.samplers.bodies import body_of
from dplangevin.samplers.lens import LensBody


class ExponentialMechanism(FitMechanism[DrawSchedule]):
    """theta ~ exp(-beta F) on the problem's set, at the tier of the schedule; runs Gibbs schedules too.

    References
    ----------
    McSherry and Talwar (2007); Ganesh, Thakurta and Upadhyay (2022), Algorithm 2; Gopi, Lee and Liu (2022).
    """

    whole_records = "bounded values"

    def check(self, schedule: DrawSchedule, problem: Problem) -> None:
        """The tier has a sampler, and the loss a value."""
        if schedule.tier == "exact":
            if exact_method(problem, schedule.grid) == "cells":
                cells_per_axis(problem, schedule.inverse_temperature)
        else:
            body_of(problem.constraint, problem.dimension)
        if isinstance(problem.loss, RecordLoss):
            if not is_proved(problem.loss):
                raise InvalidParameter(
                    "values of a subclass of a loss of this library are not known to be bounded."
                )
        else:
            problem.loss.value(np.zeros((1, problem.loss.score_dimension)).squeeze(0), np.zeros(1))

    def draw(self, run: Fit[DrawSchedule]) -> Draw:
        """One draw."""
        schedule, data, rng = run.schedule, run.data, run.rng
        with _padded(schedule.padding):
            value = draw(schedule, data, rng)[:, 0]
        return Draw(value=data.problem.constraint.project(value))


class IteratedExponentialMechanism(FitMechanism[IteratedExponentialSchedule]):
    """The exponential mechanism on a ball, then on smaller balls around the last draw, cut with the first ball.

    The earlier draws are covered by the promise too: they are the release's iterates.

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2022), Algorithm 3.
    """

    def check(self, schedule: IteratedExponentialSchedule, problem: Problem) -> None:
        """Parts of a ball, with a sampler for each."""
        if not isinstance(problem.constraint, Ball):
            raise InvalidParameter(
                f"the iterated mechanism runs on a ball, not on the {problem.constraint.name}; use Ball(radius)."
            )
        if schedule.tier == "exact" and problem.dimension > 1:
            raise AssumptionFailed(
                "exact draws on a part of the ball need one parameter; use tier='pure' or 'certified'."
            )

    def draw(self, run: Fit[IteratedExponentialSchedule]) -> Draw:
        """Draw stage by stage; the last draw is the value."""
        schedule, data, rng = run.schedule, run.data, run.rng
        constraint = data.problem.constraint
        assert isinstance(constraint, Ball)
        iterates: dict[int, Floats] = {}
        theta, body = np.zeros(data.problem.dimension), None
        with _padded(schedule.padding):
            for number, stage in enumerate(schedule.draws, 1):
                theta = constraint.project(draw(stage, data, rng, body=body)[:, 0])
                iterates[number] = theta
                if number < len(schedule.draws):
                    body = LensBody(centre=theta, outer=constraint.radius, inner=schedule.radii[number - 1])
        return Draw(value=constraint.project(theta), n_steps=len(iterates), iterates=iterates)


@contextmanager
def _padded(seconds: float) -> Iterator[None]:
    """What is done inside takes at least so long."""
    end = time.monotonic() + seconds
    try:
        yield
    finally:
        time.sleep(max(0.0, end - time.monotonic()))
