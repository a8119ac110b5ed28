"""Random runs whose exact cost is known: what the accountant claims about them must be true.

Each trial is an admissible instance (linear losses of slope at most L and the ridge, in one dimension) in units in
which numbers are harmless, and the same run in random units, from which the claims come. Its truth is a delta at eps
that some test of the released values attains, computed here without the library and rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from dplangevin.accounting.plan import Spec
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem.constants import Constants

Floats = NDArray[np.float64]
Truth = Callable[[float], float]
_CELLS = 400
_CUTS = 1201


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Public numbers, and the delta at eps that is known to be reached; constants are None for noisy answers.

    mu : where the pair is N(0, 1) against N(mu, 1), and records in line with one another move it further.
    """

    kind: str
    constants: Constants | None
    spec: Spec
    truth: Truth
    mu: float | None = None


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run in harmless units, before it is dressed up."""

    n: int
    size: int
    sampling: str
    delta: float  # gradient sensitivity
    ridge: float
    steps: Floats
    noises: Floats  # on the gradient

    @property
    def factors(self) -> Floats:
        return np.asarray(1 - self.steps * self.ridge)

    @property
    def shifts(self) -> Floats:
        """What the record moves when it takes part."""
        return self.steps * self.delta / self.size

    @property
    def length(self) -> int:
        return math.ceil(self.n / self.size)


def gaussian_truth(mu: float) -> Truth:
    """delta(eps) of N(0, 1) against N(mu, 1), rounded down."""

    def truth(eps: float) -> float:
        if mu == 0 or eps / mu > 1e150:
            return 0.0
        first = float(ndtr(mu / 2 - eps / mu))
        return first * (1 - 1e-13) - math.exp(min(eps + float(log_ndtr(-mu / 2 - eps / mu)), 700)) * (
            1 + 1e-13
        )

    return truth


def tests_truth(power: Floats, size: Floats) -> Truth:
    """The best of several tests with lower bounds of their power and upper bounds of their size."""
    kept = power > 0

    def truth(eps: float) -> float:
        if eps > 690:
            return 0.0
        return max(0.0, float(np.max(power[kept] - math.exp(eps) * size[kept], initial=0.0)))

    return truth


def mixture_truth(first: tuple[Floats, Floats], second: tuple[Floats, Floats], deviation: float) -> Truth:
    """Two mixtures (weights, means) of Gaussians of one deviation: every half line, in both directions.

    Finite sums of Phi, no quadrature: power and size are exact but for rounding, a relative error of each term of
    |x| (|x| + |mean| / deviation) 2e-16; 1e-12 covers it for |x| <= 16 and means within 250 deviations.
    """
    means = np.concatenate([first[1], second[1]])
    cuts = np.linspace(means.min() - 8 * deviation, means.max() + 8 * deviation, _CUTS)
    tails = [
        [
            (weights[:, None] * ndtr(sign * (centres[:, None] - cuts) / deviation)).sum(axis=0)
            for sign in (1, -1)
        ]
        for weights, centres in (first, second)
    ]
    here, there = np.concatenate(tails[0]), np.concatenate(tails[1])
    up, down = 1 + 1e-12, 1 - 1e-12
    return tests_truth(np.concatenate([here, there]) * down, np.concatenate([there, here]) * up + 1e-300)


def chain_truth(run: _Run, spec: NoisyGradientSpec, position: int) -> Truth:
    """The Gaussian path of a record that acts at every step t = position modulo the length of an epoch."""
    factors, noises = run.factors, run.steps * run.noises
    acts = (np.arange(len(factors)) - position) % run.length == 0
    shifts = np.where(acts, run.shifts, 0.0)
    if spec.release == "average":
        count, weight, mean, variance = len(factors), 0.0, 0.0, 0.0
        for t in range(
            count - 1, -1, -1
        ):  # weight: what a push at step t adds to the average of the iterates
            weight = (factors[t + 1] * weight if t + 1 < count else 0.0) + (t >= spec.average_from)
            mean, variance = mean + weight * shifts[t], variance + (weight * noises[t]) ** 2
        return gaussian_truth(abs(mean) / math.sqrt(variance))
    ends = {"trajectory": range(1, len(factors) + 1), "checkpoints": spec.checkpoints}.get(
        spec.release, (len(factors),)
    )
    total, begin, spread = 0.0, 0, spec.start_scale**2
    for end in ends:
        mean, variance = 0.0, spread
        for t in range(begin, end):
            mean, variance = factors[t] * mean + shifts[t], factors[t] ** 2 * variance + noises[t] ** 2
        total, begin, spread = total + mean**2 / variance, end, 0.0
    return gaussian_truth(math.sqrt(total))


def long_truth(run: _Run, steps: int, releases: int) -> Truth:
    """`releases` equal segments of `steps` steps, the record in the last step of each; closed form."""
    factor, shift, noise = float(run.factors[0]), float(run.shifts[0]), float(run.steps[0] * run.noises[0])
    uses = (steps - 1) // run.length + 1
    if factor == 1:
        mean, variance = shift * uses, noise**2 * steps
    else:
        log = math.log(factor)
        mean = shift * math.expm1(log * run.length * uses) / math.expm1(log * run.length)
        variance = noise**2 * math.expm1(2 * log * steps) / math.expm1(2 * log)
    return gaussian_truth(math.sqrt(releases) * mean / math.sqrt(variance))


def batch_mixture_truth(run: _Run, steps: int, signs: tuple[float, float]) -> Truth:
    """Random batches without a projection: the record's jumps are Bernoulli(q), the others do not push."""
    factor, shift, noise = float(run.factors[0]), float(run.shifts[0]), float(run.steps[0] * run.noises[0])
    rate = run.size / run.n
    powers = factor ** np.arange(steps - 1, -1, -1, dtype=float)
    if factor == 1:
        counts = np.arange(steps + 1)
        choose = np.array([math.comb(steps, int(k)) for k in counts], float)
        weights, jumps = choose * rate**counts * (1 - rate) ** (steps - counts), counts * shift
    else:
        bits = np.array(list(product((0, 1), repeat=steps)), float)
        weights = np.prod(np.where(bits > 0, rate, 1 - rate), axis=1)
        jumps = bits @ powers * shift
    deviation = noise * math.sqrt(float(np.sum(powers**2)))
    return mixture_truth((weights, signs[0] * jumps), (weights, signs[1] * jumps), deviation)


def varying_mixture_truth(run: _Run, signs: tuple[float, float]) -> Truth:
    """The same for step sizes and noises of every step's own: all subsets of the steps."""
    rate, steps = run.size / run.n, len(run.steps)
    powers = np.append(np.cumprod(run.factors[:0:-1])[::-1], 1.0)  # what later steps leave of a move
    bits = np.array(list(product((0, 1), repeat=steps)), float)
    weights = np.prod(np.where(bits > 0, rate, 1 - rate), axis=1)
    jumps = bits @ (powers * run.shifts)
    deviation = math.sqrt(float(np.sum((powers * run.steps * run.noises) ** 2)))
    return mixture_truth((weights, signs[0] * jumps), (weights, signs[1] * jumps), deviation)


def shuffle_truth(run: _Run, steps: int, secret_cyclic: bool) -> Truth:
    """A record at a uniform place of each epoch (one place for all epochs when the order is cyclic)."""
    factor, shift, noise = float(run.factors[0]), float(run.shifts[0]), float(run.steps[0] * run.noises[0])
    length, epochs = run.length, math.ceil(steps / run.length)
    powers = factor ** np.arange(steps - 1, -1, -1, dtype=float)
    padded = np.concatenate([powers, np.zeros(epochs * length - steps)]).reshape(epochs, length)
    places = (
        [(place,) * epochs for place in range(length)]
        if secret_cyclic
        else list(product(range(length), repeat=epochs))
    )
    means = np.array([sum(padded[e, place] for e, place in enumerate(each)) for each in places]) * shift / 2
    weights = np.full(len(means), 1 / len(means))
    deviation = noise * math.sqrt(float(np.sum(powers**2)))
    return mixture_truth((weights, means), (weights, -means), deviation)


Moves = tuple[tuple[float, float, float], ...]
"""(probability, a, g): with this probability a step maps w to a w + g before noise and projection."""


def _kernel(moves: Moves, noise: float, grid: Floats, down: bool) -> Floats:
    """One clamped step from grid points, rounded down (up) to grid points; every number is rounded the same way."""
    reach = np.zeros((len(grid), len(grid)))  # Pr[a w + g + noise >= grid[j] | w = grid[i]]
    side = -1 if down else 1
    for probability, factor, jump in moves:
        start, cut = factor * grid[:, None], grid[None, :]
        lost = 1e-15 * (np.abs(start) + abs(jump) + np.abs(cut))  # of the digits of the next line
        reach += probability * ndtr((start + jump - cut + side * lost) / noise) * (1 + side * 1e-14)
    if down:  # tails that fall with the cut: what the margins broke is mended on the safe side
        reach = np.minimum.accumulate(reach, axis=1)
    else:
        reach = np.minimum(np.maximum.accumulate(reach[:, ::-1], axis=1)[:, ::-1] + 1e-300, 1.0)
    step = np.empty_like(reach)
    if down:  # [grid_j, grid_{j+1}) goes to grid_j
        step[:, 0], step[:, -1] = 1 - reach[:, 1], reach[:, -1]
        step[:, 1:-1] = reach[:, 1:-1] - reach[:, 2:]
    else:  # (grid_{j-1}, grid_j] goes to grid_j
        step[:, 0], step[:, -1] = 1 - reach[:, 0], reach[:, -2]
        step[:, 1:-1] = reach[:, :-2] - reach[:, 1:-1]
    return step


def tail(moves: list[Moves], noises: Floats, width: float, start: float, down: bool) -> Floats:
    """Pr[w_T >= cut] for every cut of the grid: proved to be at most (down) or at least the true one; needs a >= 0.

    The true step keeps the stochastic order (a >= 0, clamping). Each step of the grid is below (above) it from every
    point: positions are rounded down, and probabilities of tails with the errors of ndtr and of its argument. By
    induction the law of the grid is below the true one. What is left are products and sums of nonnegative numbers,
    each off by a factor of at most 1 + 1.2e-16: below 1e-11 for 200 steps of sums with 401 terms.
    """
    assert len(moves) <= 200
    assert all(factor >= 0 for each in moves for _, factor, _ in each)
    grid = np.linspace(-width / 2, width / 2, _CELLS + 1)
    law = np.zeros(_CELLS + 1)
    place = (start / width + 0.5) * _CELLS
    law[math.floor(place) if down else math.ceil(place)] = 1.0
    kernels: dict[tuple[Moves, float], Floats] = {}
    for each, noise in zip(moves, noises.tolist(), strict=True):
        if (each, noise) not in kernels:
            kernels[each, noise] = _kernel(each, noise, grid, down)
        law = law @ kernels[each, noise]
    tails = np.cumsum(law[::-1])[::-1]
    return np.asarray(tails * (1 - 1e-11) if down else tails * (1 + 1e-11) + 1e-300)


def walk_truth(
    first: list[Moves], second: list[Moves], noises: Floats, width: float, starts: tuple[float, float]
) -> Truth:
    """Clamped walks on [-width/2, width/2], the first further right; half lines to the right, and to the left.

    Rigorous: `tail` bounds the power of each test from below and its size from above.
    """

    def mirrored(moves: list[Moves]) -> list[Moves]:
        return [tuple((p, a, -g) for p, a, g in each) for each in moves]

    power = [
        tail(first, noises, width, starts[0], True),
        tail(mirrored(second), noises, width, -starts[1], True),
    ]
    size = [
        tail(second, noises, width, starts[1], False),
        tail(mirrored(first), noises, width, -starts[0], False),
    ]
    return tests_truth(np.concatenate(power), np.concatenate(size))
