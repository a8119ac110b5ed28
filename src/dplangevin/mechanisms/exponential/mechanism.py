"""Run the exponential, Gibbs and iterated exponential mechanisms, and, for research, chains without a certificate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._rng import make_generator
from dplangevin.accounting.guarantee import NotPrivate
from dplangevin.data.dataset import Dataset
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exponential.sampler import choose_cells_per_axis, choose_exact_method, sample_gibbs
from dplangevin.mechanisms.exponential.spec import DrawSpec, IteratedExponentialSpec
from dplangevin.mechanisms.mechanism import FitMechanism, MechanismInput, MechanismOutput
from dplangevin.problem import Ball, Problem, RecordLoss, is_proved
from dplangevin.sampling.langevin import run_hit_and_run, run_mala, run_overdamped, run_underdamped
from dplangevin.sampling.potential import ProblemPotential
from dplangevin.sampling.supports import LensSupport, support_of


class ExponentialMechanism(FitMechanism[DrawSpec]):
    """Draw theta ~ exp(-beta F) on the problem's set with the sampler tier of the spec; runs Gibbs specs too.

    References
    ----------
    McSherry and Talwar (2007); Ganesh, Thakurta and Upadhyay (2022), Algorithm 2; Gopi, Lee and Liu (2022).
    """

    supported_record_losses = "bounded values"

    def check_problem(self, spec: DrawSpec, problem: Problem) -> None:
        """Check that the tier has a sampler for this problem and that the loss has bounded values."""
        if spec.tier == "exact":
            if choose_exact_method(problem, spec.grid) == "cells":
                choose_cells_per_axis(problem, spec.inverse_temperature)
        else:
            support_of(problem.constraint, problem.dimension)
        if isinstance(problem.loss, RecordLoss):
            if not is_proved(problem.loss) and not problem.loss.has_clipped_values:
                raise InvalidParameter(
                    "values of a subclass of a loss of this library are not known to be bounded."
                )
        else:
            problem.loss.value(np.zeros((1, problem.loss.score_dimension)).squeeze(0), np.zeros(1))

    def execute(self, inputs: MechanismInput[DrawSpec]) -> MechanismOutput:
        """Return one draw, projected onto the set (rounding may have left it)."""
        spec, data, rng = inputs.spec, inputs.data, inputs.rng
        with _pad_runtime(spec.padding):
            value = sample_gibbs(spec, data, rng)[:, 0]
        return MechanismOutput(value=data.problem.constraint.project(value))


class IteratedExponentialMechanism(FitMechanism[IteratedExponentialSpec]):
    """Draw from a ball, then from smaller and smaller balls around the last draw, intersected with the first ball.

    The guarantee also covers the earlier draws, which are the release's iterates.

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2022), Algorithm 3.
    """

    def check_problem(self, spec: IteratedExponentialSpec, problem: Problem) -> None:
        """Check that the set is a ball and that its intersections with smaller balls have a sampler."""
        if not isinstance(problem.constraint, Ball):
            raise InvalidParameter(
                f"the iterated mechanism runs on a ball, not on the {problem.constraint.name}; use Ball(radius)."
            )
        if spec.tier == "exact" and problem.dimension > 1:
            raise AssumptionFailed(
                "exact draws on a part of the ball need one parameter; use tier='pure' or 'certified'."
            )

    def execute(self, inputs: MechanismInput[IteratedExponentialSpec]) -> MechanismOutput:
        """Return the last stage's draw, with the earlier ones as iterates."""
        spec, data, rng = inputs.spec, inputs.data, inputs.rng
        constraint = data.problem.constraint
        assert isinstance(constraint, Ball)
        iterates: dict[int, Floats] = {}
        theta, support = np.zeros(data.problem.dimension), None
        with _pad_runtime(spec.padding):
            for number, stage in enumerate(spec.draws, 1):
                theta = constraint.project(sample_gibbs(stage, data, rng, support=support)[:, 0])
                iterates[number] = theta
                if number < len(spec.draws):
                    support = LensSupport(center=theta, outer=constraint.radius, inner=spec.radii[number - 1])
        return MechanismOutput(value=constraint.project(theta), n_steps=len(iterates), iterates=iterates)


@contextmanager
def _pad_runtime(seconds: float) -> Iterator[None]:
    """Make the enclosed block take at least `seconds` of wall time."""
    end = time.monotonic() + seconds
    try:
        yield
    finally:
        time.sleep(max(0.0, end - time.monotonic()))


UncertifiedSampler = Literal["mala", "hit-and-run", "overdamped", "underdamped"]
UNCERTIFIED_SAMPLERS: tuple[UncertifiedSampler, ...] = ("mala", "hit-and-run", "overdamped", "underdamped")


@dataclass(frozen=True, kw_only=True, eq=False)
class UncertifiedSamples:
    """The last points [p, k] of k chains. Their guarantee is NotPrivate: asking for its epsilon raises."""

    value: Floats
    guarantee: NotPrivate
    tier: str = "diagnosed"


def run_uncertified_chains(
    data: Dataset,
    *,
    inverse_temperature: float,
    sampler: UncertifiedSampler,
    n_steps: int,
    step_size: float | None = None,
    n_chains: int = 1,
    random_state: object = None,
) -> UncertifiedSamples:
    """Run chains towards exp(-beta F) from the projection of 0; step_size=None means 1 / (smoothness of beta F).

    MALA and hit-and-run have the correct stationary law; overdamped and underdamped Langevin (exact Gaussian steps,
    no constraint) have a biased one. For none of them is a number of steps proved here, so none has a guarantee.
    """
    _check.check_choice("sampler", sampler, UNCERTIFIED_SAMPLERS)
    problem, chains = data.problem, _check.check_count("n_chains", n_chains)
    potential = ProblemPotential(data, inverse_temperature)
    eta = 1 / potential.smoothness if step_size is None else _check.check_positive("step_size", step_size)
    rng, _ = make_generator(random_state)
    start = np.tile(problem.constraint.project(np.zeros(problem.dimension))[:, None], chains)
    support = support_of(problem.constraint, problem.dimension)
    if sampler == "mala":
        value = run_mala(potential, support, start, eta, n_steps, rng).theta
    elif sampler == "hit-and-run":
        value = run_hit_and_run(potential, support, start, n_steps, rng).theta
    elif sampler == "overdamped":
        value = run_overdamped(potential, start, eta, n_steps, rng)
    else:
        # friction 2 and inverse mass 1 in units where the largest curvature is 1
        mass = 1 / potential.smoothness
        value = run_underdamped(potential, start, 2.0, mass, eta * potential.smoothness / 2, n_steps, rng)[0]
    reason = (
        f"the {sampler} chain has no proved distance to its target, so its draws are for research only; use the exact, "
        "pure, certified or process tier to release one"
    )
    return UncertifiedSamples(value=value, guarantee=NotPrivate(reason))
