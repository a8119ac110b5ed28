"""Private mirror descent whose mirror map and start come from public data (PDA-DPMD)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dplangevin._rng import generator
from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms._perturbed import checked
from dplangevin.mechanisms.mirror_map import MirrorMap
from dplangevin.mechanisms.release import Release
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.spender import Spender
from dplangevin.problem import Problem
from dplangevin.schedules import PublicMirrorSchedule

Floats = NDArray[np.float64]


class PublicMirrorDescent:
    """Noisy private gradients, public geometry: exactly what the plan's schedule says, from the public minimiser.

    Parameters
    ----------
    mirror : the mirror map, made from public data only (see `public_map`). No privacy depends on how good it is.

    References
    ----------
    Ganesh (2022), Chapter 4, Algorithm 1; Amid et al. (2022), Public data-assisted mirror descent (mode "mix").
    """

    def __init__(self, mirror: MirrorMap) -> None:
        self.mirror = mirror

    def run(
        self, plan: Plan, data: Dataset, random_state: object = None, *, ledger: Spender | None = None
    ) -> Release:
        """Run the plan on the private data and release the last iterate or the average."""
        schedule = checked(plan, data, PublicMirrorSchedule)
        self._check_map(data.problem)
        token = ledger.reserve(plan) if ledger is not None else None
        rng, seeded = generator(random_state)
        value = self._descend(schedule, data, rng)
        release = Release(value=value, plan=plan, seeded=seeded, n_steps=schedule.n_steps)
        if ledger is not None and token is not None:
            ledger.commit(token, release.digest())
        return release

    def _check_map(self, problem: Problem) -> None:
        if self.mirror.dimension != problem.dimension:
            raise InvalidParameter(
                f"the mirror map has {self.mirror.dimension} coordinates but the problem has {problem.dimension}; "
                "public and private features must have the same columns."
            )
        if self.mirror.constraint != problem.constraint:
            raise InvalidParameter(
                f"the mirror map is on the set {self.mirror.constraint!r} but the problem's set is "
                f"{problem.constraint!r}; make the map for the plan's problem."
            )

    def _descend(self, schedule: PublicMirrorSchedule, data: Dataset, rng: np.random.Generator) -> Floats:
        problem, theta = data.problem, np.array(self.mirror.start)
        etas, noises = schedule.per_step("step_size"), schedule.per_step("noise_scale")
        weights, total = schedule.per_step("mixing"), np.zeros(problem.dimension)
        for t in range(schedule.n_steps):
            gradient = data.gradient_sum(problem.loss, theta[:, None])[:, 0] / problem.n
            noisy = gradient + problem.ridge * theta + noises[t] * rng.standard_normal(problem.dimension)
            theta = advance(self.mirror, schedule.mode, theta, noisy, etas[t], weights[t])
            if t >= schedule.average_from:
                total += theta
        if schedule.release == "average" and schedule.n_steps:
            return total / (schedule.n_steps - schedule.average_from)
        return theta


def advance(
    mirror: MirrorMap, mode: str, theta: Floats, noisy: Floats, step_size: float | Floats, mixing: float = 1.0
) -> Floats:
    """One step of the schedule's mode from theta, or from each of its columns with its own step size."""
    if mode == "mirror":
        return mirror.step(theta, step_size * noisy)
    if mode == "mix":
        noisy = mixing * noisy + (1 - mixing) * mirror.gradient(theta)
    return mirror.constraint.project(theta - step_size * noisy)
