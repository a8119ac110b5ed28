"""Draws for research: chains without a certificate. Nothing they return has a guarantee, and asking for one raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._rng import generator
from dplangevin.data.dataset import Dataset
from dplangevin.privacy.guarantee import NotPrivate
from dplangevin.samplers.bodies import body_of
from dplangevin.samplers.hit_and_run_chain import hit_and_run
from dplangevin.samplers.mala_chain import mala
from dplangevin.samplers.overdamped_chain import overdamped
from dplangevin.samplers.problem_potential import ProblemPotential
from dplangevin.samplers.underdamped_chain import underdamped

Sampler = Literal["mala", "hit-and-run", "overdamped", "underdamped"]
SAMPLERS: tuple[Sampler, ...] = ("mala", "hit-and-run", "overdamped", "underdamped")


@dataclass(frozen=True, kw_only=True, eq=False)
class DiagnosedDraws:
    """Last points [p, k] of k chains. guarantee is NotPrivate: its epsilon raises."""

    value: Floats
    guarantee: NotPrivate
    tier: str = "diagnosed"


def diagnosed_draws(
    data: Dataset,
    *,
    inverse_temperature: float,
    sampler: Sampler,
    n_steps: int,
    step_size: float | None = None,
    n_chains: int = 1,
    random_state: object = None,
) -> DiagnosedDraws:
    """Chains towards exp(-beta F), started at the projection of 0; step_size None takes 1 / (smoothness of beta F).

    MALA and hit-and-run have the right stationary law; overdamped and underdamped Langevin (exact Gaussian steps, no
    constraint) have a biased one. None has a proved number of steps here, so none has a guarantee.
    """
    _check.choice("sampler", sampler, SAMPLERS)
    problem, chains = data.problem, _check.count("n_chains", n_chains)
    potential = ProblemPotential(data, inverse_temperature)
    eta = 1 / potential.smoothness if step_size is None else _check.positive("step_size", step_size)
    rng, _ = generator(random_state)
    start = np.tile(problem.constraint.project(np.zeros(problem.dimension))[:, None], chains)
    body = body_of(problem.constraint, problem.dimension)
    if sampler == "mala":
        value = mala(potential, body, start, eta, n_steps, rng).theta
    elif sampler == "hit-and-run":
        value = hit_and_run(potential, body, start, n_steps, rng).theta
    elif sampler == "overdamped":
        value = overdamped(potential, start, eta, n_steps, rng)
    else:
        # friction 2 and mass 1 in units where the largest curvature is 1
        mass = 1 / potential.smoothness
        value = underdamped(potential, start, 2.0, mass, eta * potential.smoothness / 2, n_steps, rng)[0]
    reason = (
        f"the {sampler} chain has no proved distance to its target, so its draws are for research only; use the exact, "
        "pure, certified or process tier to release one"
    )
    return DiagnosedDraws(value=value, guarantee=NotPrivate(reason))
