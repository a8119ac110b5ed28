"""Counts with noise of density exp(-|x|_K / scale): the exponential mechanism of the largest error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.families.mechanism import AnswerMechanism
from dplangevin.families.noisy_answers.schedule import LargestNormSchedule
from dplangevin.families.noisy_answers.secure import whole_numbers
from dplangevin.samplers.cut_cube import cube_sampler
from dplangevin.samplers.norm_lattice import norm_noise


class LargestNormNoise(AnswerMechanism[LargestNormSchedule]):
    """answers + scale Gamma(k + 1) U, U uniform in the unit ball of the norm, rounded to a public grid.

    In secure mode the noise is drawn exactly from its law on the grid, from the operating system's generator.

    The noise is drawn by rejection, without looking at the answers: its running time says nothing about them.

    References
    ----------
    Hardt and Talwar (2010), section 4; Ganesh (2022), section 2.1.
    """

    def draw(
        self, schedule: LargestNormSchedule, exact: Sequence[Floats], rng: np.random.Generator
    ) -> tuple[Floats, ...]:
        if schedule.secure:
            whole = whole_numbers(exact[0].ravel(), schedule.grid)
            moved = norm_noise(schedule.answers, schedule.changed, schedule.scale / schedule.grid)
            return (np.asarray((whole + moved) * schedule.grid),)
        noise = largest_norm_noise(schedule.answers, schedule.changed, rng)
        noisy = exact[0].ravel() + schedule.scale * noise
        return (np.round(noisy / schedule.grid) * schedule.grid,)


def largest_norm_noise(k: int, changed: int, rng: np.random.Generator) -> Floats:
    """One draw of density proportional to exp(-max(|x|_inf, |x|_1 / changed)) on R^k.

    The norm of x is Gamma(k), and x is uniform on the sphere of that radius; equally, Gamma(k + 1) times a uniform
    point of the ball.
    """
    return rng.standard_gamma(k + 1) * cube_sampler(k, float(changed)).draw(rng)
