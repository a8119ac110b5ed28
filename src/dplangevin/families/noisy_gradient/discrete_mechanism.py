"""Noisy gradient descent in secure mode: integer sums, exact discrete noise, outputs on a public grid."""

from __future__ import annotations

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.families.mechanism import Draw, Fit, FitMechanism
from dplangevin.families.noisy_gradient._integer_sums import integer_gradient_sum
from dplangevin.families.noisy_gradient.discrete_schedule import DiscreteGradientSchedule
from dplangevin.families.noisy_gradient.mechanism import drawn_batches, redrawn, walk
from dplangevin.families.noisy_gradient.theorems.discrete_composition import integer_bound
from dplangevin.families.run_state import Position
from dplangevin.samplers.rounded import rounded_gaussian


class DiscreteGradientDescent(FitMechanism[DiscreteGradientSchedule]):
    """theta <- project(theta - eta (grid (S_t + Z_t) / divisor + ridge theta)), as the plan's schedule says.

    Everything after S_t + Z_t is post-processing of integers, floating point included.

    References
    ----------
    Mironov (2012) for the attack that this defeats; docs/theory/secure_noise.md.
    """

    def draw(self, run: Fit[DiscreteGradientSchedule]) -> Draw:
        """Descend, and round to the public grid.

        The noise is never in the file of a saved run: it goes on from its position with fresh noise, so its release has
        the law of an undisturbed one. Only one release can follow: the last position is saved before it is committed.
        """
        schedule, data, saved, rng = run.schedule, run.data, run.saved, run.rng
        problem, real, steps = data.problem, schedule.real(), schedule.n_steps
        divisor, grid = schedule.divisor(problem.n), schedule.grid(problem.n)
        bound = integer_bound(problem.constants, schedule)
        # Batches are counted at their worst, so their order needs to be free of the data but not secret.
        batches = drawn_batches(real, data.n_samples, divisor, problem.n, rng)

        def noisy(t: int, point: Floats) -> Floats:
            total = integer_gradient_sum(data, point, next(batches), grid, bound)
            total = total + rounded_gaussian(schedule.resolution, problem.dimension)
            return np.asarray(total * (grid / divisor) + problem.ridge * point)

        project = problem.constraint.project
        start = project(np.zeros(problem.dimension))
        etas = np.full(steps, schedule.step_size)
        position = None if saved is None else redrawn(saved, lambda: next(batches), rng)

        def after(at: Position) -> None:
            if saved is not None:
                saved.after(at, rng, now=at.step == steps)

        value, iterates = walk(real, steps, start, etas, noisy, project, position, after)
        rounded = {step: on_grid(theta, schedule.output_grid) for step, theta in iterates.items()}
        return Draw(value=on_grid(value, schedule.output_grid), n_steps=steps, iterates=rounded)


def on_grid(values: Floats, grid: float) -> Floats:
    """The values rounded to multiples of a public grid."""
    return np.asarray(np.rint(values / grid) * grid)
