"""Private mirror descent whose mirror map and start come from public data (PDA-DPMD)."""

from __future__ import annotations

import hashlib

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._progress import progress
from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.families.mechanism import Draw, Fit, FitMechanism
from dplangevin.families.mirror_descent.mirror_map import MirrorMap
from dplangevin.families.mirror_descent.schedule import RESOLUTION, PublicMirrorSchedule
from dplangevin.families.mirror_descent.theorem import PublicMirrorDescentTheorem
from dplangevin.families.noisy_gradient._integer_sums import integer_gradient_sum
from dplangevin.families.noisy_gradient.theorems.discrete_composition import record_bound
from dplangevin.families.run_state import Position
from dplangevin.problem import Problem
from dplangevin.samplers.rounded import rounded_gaussian


class PublicMirrorDescent(FitMechanism[PublicMirrorSchedule]):
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

    def check(self, schedule: PublicMirrorSchedule, problem: Problem) -> None:
        """The map is on the problem's set."""
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

    def _settings(self) -> tuple[object, ...]:
        """What the map does at one odd point: another map is another run."""
        start, odd = self.mirror.start, np.cos(np.arange(1.0, self.mirror.dimension + 1))
        point = self.mirror.constraint.project(start + odd)
        seen = (start, self.mirror.gradient(point), self.mirror.step(point, odd))
        return (hashlib.sha256(b"".join(values.tobytes() for values in seen)).hexdigest(),)

    def draw(self, run: Fit[PublicMirrorSchedule]) -> Draw:
        """The last iterate or the average."""
        schedule, data, saved, rng = run.schedule, run.data, run.saved, run.rng
        problem, start = data.problem, np.array(self.mirror.start)
        etas, noises = schedule.per_step("step_size"), schedule.per_step("noise_std")
        weights, grids = schedule.per_step("mixing"), schedule.grids(problem.n)
        at = Position(step=0, theta=start, previous=start, total=np.zeros(problem.dimension))
        if saved is not None and (fields := saved.position()) is not None:
            at = Position(**fields)
            saved.restore(rng)
        for t in progress(range(at.step, schedule.n_steps), "mirror descent"):
            if schedule.secure:
                noisy = _secure_gradient(data, at.theta, grids[t]) + problem.ridge * at.theta
            else:
                gradient = data.gradient_sum(problem.loss, at.theta[:, None])[:, 0] / problem.n
                noise = noises[t] * rng.standard_normal(problem.dimension)
                noisy = gradient + problem.ridge * at.theta + noise
            at.theta = advance(self.mirror, schedule.mode, at.theta, noisy, etas[t], weights[t])
            at.step = t + 1
            if t >= schedule.average_from:
                at.total += at.theta
            if saved is not None:
                saved.after(at, rng)
        value = at.theta
        if schedule.release == "average" and schedule.n_steps:
            value = at.total / (schedule.n_steps - schedule.average_from)
        return Draw(value=value, n_steps=schedule.n_steps)


def _secure_gradient(data: Dataset, theta: Floats, grid: float) -> Floats:
    """The mean gradient with its noise, of integers that the theorem counted."""
    problem = data.problem
    bound = record_bound(PublicMirrorDescentTheorem(), problem.constants, grid)
    total = integer_gradient_sum(data, theta, None, grid, bound)
    return np.asarray((total + rounded_gaussian(RESOLUTION, problem.dimension)) * (grid / problem.n))


def advance(
    mirror: MirrorMap, mode: str, theta: Floats, noisy: Floats, step_size: float | Floats, mixing: float = 1.0
) -> Floats:
    """One step of the schedule's mode from theta, or from each of its columns with its own step size."""
    if mode == "mirror":
        return mirror.step(theta, step_size * noisy)
    if mode == "mix":
        noisy = mixing * noisy + (1 - mixing) * mirror.gradient(theta)
    return mirror.constraint.project(theta - step_size * noisy)
