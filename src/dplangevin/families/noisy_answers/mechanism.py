"""Sums over private records plus noise, and the index of the largest noisy total."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dplangevin.families.mechanism import AnswerMechanism
from dplangevin.families.noisy_answers.schedule import NoisyMaxSchedule, NoisySumsSchedule, SumGroup, SumNoise
from dplangevin.samplers.gamma_norm import gamma_norm

Floats = NDArray[np.float64]


class NoisySums(AnswerMechanism[NoisySumsSchedule]):
    """Each group of sums plus the noise of its scale."""

    family = NoisySumsSchedule

    def draw(
        self, schedule: NoisySumsSchedule, exact: Sequence[Floats], rng: np.random.Generator
    ) -> tuple[Floats, ...]:
        return tuple(
            values + sum_noise(schedule.noise, group, rng).reshape(values.shape)
            for values, group in zip(exact, schedule.groups, strict=True)
        )


class NoisyMax(AnswerMechanism[NoisyMaxSchedule]):
    """The index of the largest total + Exponential(scale)."""

    family = NoisyMaxSchedule

    def draw(
        self, schedule: NoisyMaxSchedule, exact: Sequence[Floats], rng: np.random.Generator
    ) -> tuple[Floats, ...]:
        noisy = exact[0] + schedule.scale * rng.standard_exponential(schedule.candidates)
        return (np.array([float(np.argmax(noisy))]),)


def sum_noise(noise: SumNoise, group: SumGroup, rng: np.random.Generator) -> Floats:
    """The noise of one group."""
    if noise == "gaussian":
        return group.scale * rng.standard_normal(group.answers)
    if noise == "gamma":
        return gamma_norm(group.answers, group.scale, 1, rng)[:, 0]
    success = -np.expm1(-1 / group.scale)
    draws = rng.geometric(success, (2, group.answers))
    return np.asarray(draws[0] - draws[1], float)
