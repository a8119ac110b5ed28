"""Counts with noise of density exp(-|x|_K / scale): the exponential mechanism of the largest error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.families.mechanism import AnswerMechanism
from dplangevin.families.noisy_answers.schedule import LargestNormSchedule
from dplangevin.samplers.cut_cube import cube_sampler


class LargestNormNoise(AnswerMechanism[LargestNormSchedule]):
    """answers + scale Gamma(k + 1) U, U uniform in the unit ball of the norm, rounded to a public grid.

    The noise is drawn by rejection, without looking at the answers: its running time says nothing about them.

    References
    ----------
    Hardt and Talwar (2010), section 4; Ganesh (2022), section 2.1.
    """

    family = LargestNormSchedule

    def draw(
        self, schedule: LargestNormSchedule, exact: Sequence[Floats], rng: np.random.Generator
    ) -> tuple[Floats, ...]:
        noise = largest_norm_noise(schedule.answers, schedule.changed, rng)
        noisy = exact[0].ravel() + schedule.scale * noise
        return (np.round(noisy / schedule.grid) * schedule.grid,)


def largest_norm_noise(k: int, changed: int, rng: np.random.Generator) -> Floats:
    """One draw of density proportional to exp(-max(|x|_inf, |x|_1 / changed)) on R^k.

    The norm of x is Gamma(k), and x is uniform on the sphere of that radius; equally, Gamma(k + 1) times a uniform
    point of the ball.
    """
    return rng.standard_gamma(k + 1) * cube_sampler(k, float(changed)).draw(rng)
