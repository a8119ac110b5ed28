"""Run private draws from a Rashomon set: compute the minimum, then run draws or chains of the flat score."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Dataset
from dplangevin.errors import AssumptionFailed
from dplangevin.mechanisms.exponential.mechanism import choose_exact_method, logistic_hessian, sample_on_grid
from dplangevin.mechanisms.exponential.spec import MAX_CELL_AXES
from dplangevin.mechanisms.mechanism import FitMechanism, MechanismInput, MechanismOutput
from dplangevin.mechanisms.newton import TiltedObjective, minimize_certified
from dplangevin.mechanisms.rashomon.spec import RashomonChainSpec, RashomonSpec, start_scale
from dplangevin.mechanisms.run_state import RunState
from dplangevin.problem import Problem, RecordLoss
from dplangevin.problem.problem import Ball, full_lipschitz, has_interior_minimizers, max_excess
from dplangevin.sampling.envelopes import (
    MAX_SCORE_LEVEL,
    Anchor,
    ScorePotential,
    run_score_chain,
    sample_score_envelope,
)
from dplangevin.sampling.langevin import LangevinRun, run_sgld
from dplangevin.sampling.log_concave import sample_adaptive_rejection
from dplangevin.sampling.potential import ProblemPotential
from dplangevin.sampling.rejection import sample_tangent_envelope
from dplangevin.sampling.supports import ConvexSupport, support_of


class RashomonDraws(FitMechanism[RashomonSpec]):
    """Draw independently from exp(-beta h(F - F*)); the release's value is [dimension, n_models].

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2023), Theorem 2.1.
    """

    supported_record_losses = "bounded values"

    def check_problem(self, spec: RashomonSpec, problem: Problem) -> None:
        """Check that max_excess covers the problem and that the tier has a sampler."""
        if spec.grid:
            choose_exact_method(problem, spec.grid)
            return
        if isinstance(problem.loss, RecordLoss):
            raise AssumptionFailed(f"draws of the {problem.loss.name} loss need a public grid; state grid=.")
        _check_at_least("max_excess", spec.max_excess, max_excess(problem))
        if spec.tier != "exact":
            return
        if not has_exact_sampler(problem):
            raise AssumptionFailed(
                f"no exact sampler of the thresholded score is known for the {problem.loss.name} loss on the "
                f"{problem.constraint.name}; use tier='pure' or 'certified'."
            )
        level = spec.inverse_temperature * (spec.threshold + spec.ramp / 2)
        if problem.dimension > MAX_CELL_AXES and level > MAX_SCORE_LEVEL:
            raise AssumptionFailed(
                f"exact draws need beta psi of at most {MAX_SCORE_LEVEL:g}, got {level:.4g}; use tier='pure' or "
                "'certified'."
            )

    def execute(self, inputs: MechanismInput[RashomonSpec]) -> MechanismOutput:
        """Return all the models, and nothing else."""
        spec, data, rng = inputs.spec, inputs.data, inputs.rng
        return MechanismOutput(value=data.problem.constraint.project(_sample_draws(spec, data, rng)))


class RashomonChains(FitMechanism[RashomonChainSpec]):
    """Run chains that follow the gradient of the flat score with Gaussian noise.

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2023), Theorem 2.3.
    """

    def check_problem(self, spec: RashomonChainSpec, problem: Problem) -> None:
        """Check that what the spec assumes about the problem holds."""
        _check_at_least("full_lipschitz", spec.full_lipschitz, full_lipschitz(problem))
        if spec.interior_minimizers and not has_interior_minimizers(problem):
            raise AssumptionFailed(
                "the spec has interior_minimizers=True, but the problem's set does not contain the ball of radius "
                "lipschitz / ridge; raise the radius or the ridge."
            )

    def execute(self, inputs: MechanismInput[RashomonChainSpec]) -> MechanismOutput:
        """Return the last point of each chain, and all others when the whole trajectory is released."""
        spec, data, rng = inputs.spec, inputs.data, inputs.rng
        chains = _run_chains(inputs.run_state, spec, data, rng)
        value = data.problem.constraint.project(chains.last)
        return MechanismOutput(value=value, n_steps=chains.n_steps, iterates=chains.iterates)


def _check_at_least(name: str, stated: float, needed: float) -> None:
    if not needed <= stated * (1 + 1e-9):
        raise AssumptionFailed(
            f"the spec's {name} = {stated:g} is below that of the problem, {needed:g}; compute it with "
            f"dplangevin.problem.problem.{name}."
        )


def has_exact_sampler(problem: Problem) -> bool:
    """Return whether exact draws of the score are known: up to three parameters, or logistic regression, on a ball."""
    ball = isinstance(problem.constraint, Ball)
    return ball and (problem.dimension <= MAX_CELL_AXES or problem.loss.ball_envelope)


def _make_score(
    data: Dataset, beta: float, spec: RashomonSpec | RashomonChainSpec
) -> tuple[ScorePotential, Floats]:
    """Return the flat score in units of beta F, its minimum computed to the spec's tolerance, and the minimiser."""
    problem = data.problem
    objective = TiltedObjective(data=data, ridge=problem.n * problem.ridge, tilt=np.zeros(problem.dimension))
    center = minimize_certified(objective, spec.tolerance)
    potential = ProblemPotential(data, beta)
    floor = float(potential.value(center[:, None])[0])
    cap = beta * getattr(spec, "excess_cap", math.inf)
    return ScorePotential(potential, floor, beta * spec.threshold, beta * spec.ramp, cap), center


def _sample_draws(spec: RashomonSpec, data: Dataset, rng: np.random.Generator) -> Floats:
    problem, beta = data.problem, spec.inverse_temperature
    support = support_of(problem.constraint, problem.dimension)
    if spec.grid:
        potential = ProblemPotential(data, beta)
        return sample_on_grid(potential, support, spec.grid, spec.n_models, rng, flat=beta * spec.threshold)
    score, center = _make_score(data, beta, spec)
    if spec.tier == "exact":
        return _sample_exact(score, center, support, spec.n_models, rng)
    # uniform on the set shrunk towards the minimiser: the start whose log density ratio w the certificate bounds
    s = start_scale(problem.dimension, beta, spec.threshold, spec.max_excess)
    start = center[:, None] + s * (support.sample_uniform(spec.n_models, rng) - center[:, None])
    return run_score_chain(score, support, support.project(start), spec.step_size, spec.n_steps, rng)


def _sample_exact(
    score: ScorePotential, center: Floats, support: ConvexSupport, size: int, rng: np.random.Generator
) -> Floats:
    potential = score.inner
    assert isinstance(potential, ProblemPotential)
    if support.dimension == 1:
        radius = support.diameter / 2
        return sample_adaptive_rejection(score, -radius, radius, size, rng).theta
    if not potential.problem.loss.ball_envelope or score.threshold + score.ramp / 2 > MAX_SCORE_LEVEL:
        side = np.full(support.dimension, support.diameter / 2)
        return sample_tangent_envelope(score, support, -side, side, size, rng).theta
    hessian = logistic_hessian(potential, center)
    anchor = Anchor(center, hessian, potential.strong_convexity, potential.problem.row_norm)
    return sample_score_envelope(score, support, anchor, size, rng)


def _run_chains(
    run_state: RunState | None, spec: RashomonChainSpec, data: Dataset, rng: np.random.Generator
) -> LangevinRun:
    problem = data.problem
    score, _ = _make_score(data, 1.0, spec)
    # a public random number, independent of the data: the guarantee is that of the largest number of steps
    stop = int(rng.integers(max(1, spec.n_steps // 2), max(2, spec.n_steps)))
    start = problem.constraint.project(np.zeros((problem.dimension, spec.n_models)))
    run = run_sgld(
        score,
        start,
        spec.step_size,
        spec.inverse_temperature,
        stop,
        rng,
        project=problem.constraint.project,
        keep_steps=tuple(range(stop + 1)) if spec.release == "trajectory" else (),
        **_resume_arguments(run_state, rng),
    )
    if not math.isfinite(float(np.sum(run.last))):
        raise AssumptionFailed("the chains overflowed; take a smaller step_size.")
    return run


def _resume_arguments(run_state: RunState | None, rng: np.random.Generator) -> dict[str, Any]:
    """Return where the chains resume and how they are saved; restore the generator's state."""
    if run_state is None:
        return {}
    position = run_state.load_position()
    if position is not None:
        run_state.restore_generator(rng)
    begin = None if position is None else LangevinRun(**position)
    return {"resume": begin, "after": partial(run_state.save_if_due, rng=rng)}
