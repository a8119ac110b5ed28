"""Release noisy sums over private records and report noisy max, in floating point or (secure) on an integer grid.

In secure mode the exact answers are integers, and the rounded ideal noise is drawn with exact arithmetic.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.accounting.theorem import public_noise_grid
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mechanism import AnswerMechanism, NoiseDraws
from dplangevin.mechanisms.noisy_answers.spec import NoisyMaxSpec, NoisySumsSpec, SumGroup, SumNoise
from dplangevin.sampling.exact_noise import (
    ByteSource,
    LazyUniform,
    add_rounded_noise,
    gaussian_density_scale,
    sample_geometric_noise,
    survival_bounds,
)
from dplangevin.sampling.float_noise import sample_discrete_laplace, sample_gamma_norm

Integers = NDArray[np.int64]
MAX_WHOLE_NUMBER = 2.0**52


def to_whole_numbers(values: Floats, grid: float = 1.0) -> Integers:
    """Return values / grid as integers, grid a power of two; the error for other values does not depend on them."""
    scaled = values / grid
    integers = np.rint(scaled)
    if not ((integers == scaled) & (np.abs(integers) <= MAX_WHOLE_NUMBER)).all():
        raise InvalidParameter(
            "secure noise needs exact answers that are whole numbers (or multiples of the public grid) below 2^52 "
            "steps of the grid; nothing was released. Count in whole numbers, or leave secure out."
        )
    return np.asarray(integers.astype(np.int64))


def permute_and_flip(totals: Integers, scale: float, source: ByteSource = os.urandom) -> int:
    """Return the first candidate, in random order, to pass a coin flip of probability exp(-(best - total) / scale).

    This is the law of argmax total + Exponential(scale), drawn with exact coins. The best candidate always passes.
    """
    best = int(totals.max())
    for candidate in _random_permutation(len(totals), source):
        score_gap = Fraction(best - int(totals[candidate])) / Fraction(scale)
        number = LazyUniform(int.from_bytes(source(8), "big"), source)
        if score_gap == 0 or number.is_below(partial(survival_bounds, score_gap, 1.0)):
            return candidate
    raise AssertionError("the best candidate always passes")


def _random_permutation(size: int, source: ByteSource) -> list[int]:
    """Return a uniform permutation (Fisher and Yates), with each index drawn exactly by rejection."""
    order = list(range(size))
    for last in range(size - 1, 0, -1):
        index = _uniform_below(last + 1, source)
        order[last], order[index] = order[index], order[last]
    return order


def _uniform_below(limit: int, source: ByteSource) -> int:
    """Draw uniformly from {0, ..., limit - 1}."""
    while True:
        candidate = int.from_bytes(source(8), "big") & ((1 << (limit - 1).bit_length()) - 1)
        if candidate < limit:
            return candidate


class NoisySums(AnswerMechanism[NoisySumsSpec]):
    """Add noise of its scale to each group of sums."""

    def release_answers(
        self, spec: NoisySumsSpec, exact: Sequence[Floats], draws: NoiseDraws
    ) -> tuple[Floats, ...]:
        if spec.secure:
            return tuple(
                _add_secure_noise(spec.noise, group, values, draws.source)
                for values, group in zip(exact, spec.groups, strict=True)
            )
        return tuple(
            values + sample_sum_noise(spec.noise, group, draws.rng).reshape(values.shape)
            for values, group in zip(exact, spec.groups, strict=True)
        )


class NoisyMax(AnswerMechanism[NoisyMaxSpec]):
    """Return the index of the largest total + Exponential(scale)."""

    def release_answers(
        self, spec: NoisyMaxSpec, exact: Sequence[Floats], draws: NoiseDraws
    ) -> tuple[Floats, ...]:
        if spec.secure:
            index = permute_and_flip(to_whole_numbers(exact[0]), spec.scale, draws.source)
            return (np.array([float(index)]),)
        noisy = exact[0] + spec.scale * draws.rng.standard_exponential(spec.candidates)
        return (np.array([float(np.argmax(noisy))]),)


def _add_secure_noise(noise: SumNoise, group: SumGroup, values: Floats, source: ByteSource) -> Floats:
    if noise == "geometric":
        added = sample_geometric_noise(group.scale, values.size, source=source).reshape(values.shape)
        return np.asarray(to_whole_numbers(values) + added, float)
    unit = public_noise_grid(group.scale, whole=True)
    scale = gaussian_density_scale(group.scale)
    return add_rounded_noise(to_whole_numbers(values, unit), unit, scale, 2.0, source=source)


def sample_sum_noise(noise: SumNoise, group: SumGroup, rng: np.random.Generator) -> Floats:
    """Draw the noise of one group."""
    if noise == "gaussian":
        return group.scale * rng.standard_normal(group.answers)
    if noise == "gamma":
        return sample_gamma_norm(group.answers, group.scale, 1, rng)[:, 0]
    return sample_discrete_laplace(group.scale, group.answers, rng)
