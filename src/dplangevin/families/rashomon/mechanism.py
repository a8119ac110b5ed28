"""Private draws from a Rashomon set: the computed minimum, then draws or chains of the flat score."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Dataset
from dplangevin.errors import AssumptionFailed
from dplangevin.families._minimise import Objective, minimise
from dplangevin.families.draws._draw import logistic_hessian
from dplangevin.families.mechanism import Draw, Fit, FitMechanism
from dplangevin.families.rashomon.schedule import RashomonChainSchedule, RashomonSchedule
from dplangevin.families.rashomon.theorem import start_scale
from dplangevin.families.run_state import RunState
from dplangevin.problem import Problem
from dplangevin.problem.constraints import Ball
from dplangevin.problem.reach import full_lipschitz, interior_minimisers, largest_excess
from dplangevin.samplers.adaptive_rejection import adaptive_rejection
from dplangevin.samplers.bodies import Body, body_of
from dplangevin.samplers.problem_potential import ProblemPotential
from dplangevin.samplers.score import ScorePotential, score_proximal
from dplangevin.samplers.score_envelope import MOST, score_envelope
from dplangevin.samplers.self_concordance import Anchor
from dplangevin.samplers.sgld import LangevinRun, sgld


class RashomonDraws(FitMechanism[RashomonSchedule]):
    """Independent draws of exp(-beta h(F - F*)): the release's value is [dimension, n_models].

    Reference: Ganesh, Thakurta and Upadhyay (2023), Theorem 2.1.
    """

    def check(self, schedule: RashomonSchedule, problem: Problem) -> None:
        """The excess is the problem's, and the tier has a sampler."""
        _not_below("excess", schedule.excess, largest_excess(problem))
        if schedule.tier != "exact":
            return
        if not exact_dimensions(problem):
            raise AssumptionFailed(
                f"no exact sampler of the thresholded score is known for the {problem.loss.name} loss on the "
                f"{problem.constraint.name}; use tier='pure' or 'certified'."
            )
        level = schedule.inverse_temperature * (schedule.threshold + schedule.ramp / 2)
        if problem.dimension > 1 and level > MOST:
            raise AssumptionFailed(
                f"exact draws need beta psi of at most {MOST:g}, got {level:.4g}; use tier='pure' or 'certified'."
            )

    def draw(self, run: Fit[RashomonSchedule]) -> Draw:
        """The models, all of them, and nothing else."""
        schedule, data, rng = run.schedule, run.data, run.rng
        return Draw(value=data.problem.constraint.project(_draws(schedule, data, rng)))


class RashomonChains(FitMechanism[RashomonChainSchedule]):
    """Chains that follow the gradient of the flat score with noise of their own.

    Reference: Ganesh, Thakurta and Upadhyay (2023), Theorem 2.3.
    """

    def check(self, schedule: RashomonChainSchedule, problem: Problem) -> None:
        """What the schedule says of the problem is true."""
        _not_below("full_lipschitz", schedule.full_lipschitz, full_lipschitz(problem))
        if schedule.interior and not interior_minimisers(problem):
            raise AssumptionFailed(
                "the schedule says that minimisers are interior, but the problem's set does not contain the ball "
                "of radius lipschitz / ridge; raise the radius or the ridge."
            )

    def draw(self, run: Fit[RashomonChainSchedule]) -> Draw:
        """The last point of each chain, and all others when the whole trajectory is released."""
        schedule, data, rng = run.schedule, run.data, run.rng
        made = _chains(run.saved, schedule, data, rng)
        value = data.problem.constraint.project(made.last)
        return Draw(value=value, n_steps=made.n_steps, iterates=made.iterates)


def _not_below(name: str, stated: float, needed: float) -> None:
    if not needed <= stated * (1 + 1e-9):
        raise AssumptionFailed(
            f"the schedule's {name} is below that of the problem; compute it with problem.reach."
        )


def exact_dimensions(problem: Problem) -> bool:
    """Whether exact draws of the score are known: one parameter, or logistic regression on a ball."""
    ball = isinstance(problem.constraint, Ball)
    return ball and (problem.dimension == 1 or problem.loss.ball_envelope)


def _score(
    data: Dataset, beta: float, schedule: RashomonSchedule | RashomonChainSchedule
) -> tuple[ScorePotential, Floats]:
    """The flat score in units of beta F, its floor found within the schedule's tolerance; and the minimiser."""
    problem = data.problem
    objective = Objective(data=data, ridge=problem.n * problem.ridge, tilt=np.zeros(problem.dimension))
    centre = minimise(objective, schedule.tolerance)
    potential = ProblemPotential(data, beta)
    floor = float(potential.value(centre[:, None])[0])
    return ScorePotential(potential, floor, beta * schedule.threshold, beta * schedule.ramp), centre


def _draws(schedule: RashomonSchedule, data: Dataset, rng: np.random.Generator) -> Floats:
    problem, beta = data.problem, schedule.inverse_temperature
    score, centre = _score(data, beta, schedule)
    body = body_of(problem.constraint, problem.dimension)
    if schedule.tier == "exact":
        return _exact(score, centre, body, schedule.n_models, rng)
    # the set shrunk towards the minimiser: its law is what the certificate's w is about
    s = start_scale(problem.dimension, beta, schedule.threshold, schedule.excess)
    start = centre[:, None] + s * (body.uniform(schedule.n_models, rng) - centre[:, None])
    return score_proximal(score, body, body.project(start), schedule.step_size, schedule.n_steps, rng)


def _exact(score: ScorePotential, centre: Floats, body: Body, size: int, rng: np.random.Generator) -> Floats:
    potential = score.inner
    assert isinstance(potential, ProblemPotential)
    if body.dimension == 1:
        reach = body.diameter / 2
        return adaptive_rejection(score, -reach, reach, size, rng).theta
    hessian = logistic_hessian(potential, centre)
    anchor = Anchor(centre, hessian, potential.strong_convexity, potential.problem.row_norm)
    return score_envelope(score, body, anchor, size, rng)


def _chains(
    saved: RunState | None, schedule: RashomonChainSchedule, data: Dataset, rng: np.random.Generator
) -> LangevinRun:
    problem = data.problem
    score, _ = _score(data, 1.0, schedule)
    # a public coin, independent of the data: the promise is that of the most steps
    stop = int(rng.integers(max(1, schedule.n_steps // 2), max(2, schedule.n_steps)))
    start = problem.constraint.project(np.zeros((problem.dimension, schedule.n_models)))
    run = sgld(
        score,
        start,
        schedule.step_size,
        schedule.inverse_temperature,
        stop,
        rng,
        project=problem.constraint.project,
        keep=tuple(range(stop + 1)) if schedule.release == "trajectory" else (),
        **_position(saved, rng),
    )
    if not math.isfinite(float(np.sum(run.last))):
        raise AssumptionFailed("the chains overflowed; take a smaller step_size.")
    return run


def _position(state: RunState | None, rng: np.random.Generator) -> dict[str, Any]:
    """Where the chains begin and how they are saved; the generator is put where it stood."""
    if state is None:
        return {}
    saved = state.position()
    if saved is not None:
        state.restore(rng)
    begin = None if saved is None else LangevinRun(**saved)
    return {"resume": begin, "after": partial(state.after, rng=rng)}
