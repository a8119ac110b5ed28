"""Sums over private records plus noise, and the index of the largest noisy total."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.families.mechanism import AnswerMechanism
from dplangevin.families.noisy_answers.schedule import NoisyMaxSchedule, NoisySumsSchedule, SumGroup, SumNoise
from dplangevin.families.noisy_answers.secure import permute_and_flip, whole_numbers
from dplangevin.privacy.theorem import public_grid
from dplangevin.samplers.gamma_norm import discrete_laplace, gamma_norm
from dplangevin.samplers.rounded import gaussian_scale, geometric_noise, rounded_sums


class NoisySums(AnswerMechanism[NoisySumsSchedule]):
    """Each group of sums plus the noise of its scale."""

    def draw(
        self, schedule: NoisySumsSchedule, exact: Sequence[Floats], rng: np.random.Generator
    ) -> tuple[Floats, ...]:
        if schedule.secure:
            return tuple(
                _secure_sums(schedule.noise, group, values)
                for values, group in zip(exact, schedule.groups, strict=True)
            )
        return tuple(
            values + sum_noise(schedule.noise, group, rng).reshape(values.shape)
            for values, group in zip(exact, schedule.groups, strict=True)
        )


class NoisyMax(AnswerMechanism[NoisyMaxSchedule]):
    """The index of the largest total + Exponential(scale)."""

    def draw(
        self, schedule: NoisyMaxSchedule, exact: Sequence[Floats], rng: np.random.Generator
    ) -> tuple[Floats, ...]:
        if schedule.secure:
            return (np.array([float(permute_and_flip(whole_numbers(exact[0]), schedule.scale))]),)
        noisy = exact[0] + schedule.scale * rng.standard_exponential(schedule.candidates)
        return (np.array([float(np.argmax(noisy))]),)


def _secure_sums(noise: SumNoise, group: SumGroup, values: Floats) -> Floats:
    if noise == "geometric":
        whole = whole_numbers(values) + geometric_noise(group.scale, values.size).reshape(values.shape)
        return np.asarray(whole, float)
    unit = public_grid(group.scale, whole=True)
    return rounded_sums(whole_numbers(values, unit), unit, gaussian_scale(group.scale), 2.0)


def sum_noise(noise: SumNoise, group: SumGroup, rng: np.random.Generator) -> Floats:
    """The noise of one group."""
    if noise == "gaussian":
        return group.scale * rng.standard_normal(group.answers)
    if noise == "gamma":
        return gamma_norm(group.answers, group.scale, 1, rng)[:, 0]
    return discrete_laplace(group.scale, group.answers, rng)
