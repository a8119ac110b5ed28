"""Runs on random batches: their shared hypotheses, and the search for the restart and the split of the noise.

Of the variance v^2 of each of the last k steps, the fraction rho_t shifts one run onto the other and 1 - rho_t hides
the batch. With S the Renyi curve of one step and Z the distance of the two runs k steps before the end, order alpha
costs

    sum_t S(1 - rho_t) + log E exp(lambda Z^2) / (alpha - 1),
    lambda = alpha (alpha - 1) c^{2k} / (2 v^2 sum_t c^{2(T-t)} rho_t).

Every choice of k and rho_t is valid at every order. The grids do not depend on T, so the result grows with T.

Moments of the random distance Z (S3): exp(lambda Z^2) = E_g exp(sqrt(2 lambda) g Z) for g ~ N(0, 1), and
E exp(theta Z) is a product over the steps. The trapezoid rule in g is exact to e^{-70} (the integrand is entire and
largest on the real line). Tables are interpolated by chords of functions convex in theta or lambda, so from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import bdtrc, expit

from dplangevin._arrays import Floats
from dplangevin.accounting import sampled_gaussian as sg
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import (
    ROUNDING_SLACK,
    NoisyGradientTheorem,
    check_hidden_state,
    contraction_bound,
)
from dplangevin.problem.constants import Constants


@dataclass(frozen=True, kw_only=True)
class RandomBatchRun:
    """theta <- project(phi_B(theta) + N(0, v^2 I)) with a fresh random batch B each step.

    rate : q, the probability that a given record is in a batch.
    noise_multiplier : nm = b sigma / Delta, noise over sensitivity.
    shift : s = eta Delta / b, what one record can change of the iterate in one step.
    noise : v = eta sigma.
    contraction : c, Lipschitz constant of phi_B for every batch (every batch that is not too large, for Poisson).
    oversized_probability : probability of a too large batch in one step, for Poisson; 0 if no batch is too large.
    """

    sampling: str
    rate: float
    noise_multiplier: float
    shift: float
    noise: float
    contraction: float
    diameter: float
    n_steps: int | float
    oversized_probability: float = 0.0

    def renyi_curve(self, orders: Floats, split: float = 0.0) -> Floats:
        """Return S(1 - rho), the Renyi curve of one step with the fraction 1 - rho of its noise variance."""
        curve = sg.renyi_poisson if self.sampling == "poisson" else sg.renyi_without_replacement
        return curve(orders, self.rate, self.noise_multiplier * math.sqrt(1 - split))

    def max_distance(self, steps: float | Floats) -> Floats:
        """Return D_t = min(D, s + c s + ... + c^{t-1} s), the largest distance t steps after a common start."""
        t, c = np.asarray(steps, float), self.contraction
        with np.errstate(over="ignore", invalid="ignore"):
            if c == 1:
                distance = self.shift * t
            else:
                distance = self.shift * np.expm1(t * math.log(c)) / (c - 1)
        return np.asarray(np.minimum(distance, self.diameter))

    def leverage(self, steps: float | Floats) -> Floats:
        """Return c^{2k} / (1 + c^2 + ... + c^{2(k-1)}), the factor of a squared distance spread over k steps."""
        k, c = np.asarray(steps, float), self.contraction
        if c == 1:
            return np.asarray(1 / k)
        with np.errstate(over="ignore"):
            return np.asarray((1 - c) * (1 + c) / np.expm1(-2 * k * math.log(c)))


def oversized_batch_probability(n: int, rate: float, largest: float) -> float:
    """Return Pr[Bin(n - 1, q) >= largest], rounded up: the other records alone make a batch too large."""
    least = math.floor(largest)
    if least <= 0:
        return 1.0
    if least >= n:
        return 0.0
    return min(1.0, float(bdtrc(least - 1, n - 1, rate)) * (1 + 1e-9) + 1e-300)


def make_random_batch_run(
    theorem: NoisyGradientTheorem,
    constants: Constants,
    spec: NoisyGradientSpec,
    releases: Sequence[str] = ("last-iterate",),
) -> RandomBatchRun:
    """Check every hypothesis, and return the run in canonical units."""
    check_hidden_state_run(theorem, constants, spec, releases)
    if isinstance(spec.step_size, tuple) or isinstance(spec.noise_std, tuple):
        raise theorem.refuse(
            "step size or noise varies between steps", "Use one step_size and one noise_std."
        )
    size = spec.divisor(constants.n)
    lipschitz, oversized = batch_contraction(theorem, constants, spec.step_size, spec.sampling, size)
    return RandomBatchRun(
        sampling=spec.sampling,
        rate=size / constants.n,
        noise_multiplier=size * spec.noise_std / constants.gradient_sensitivity,
        shift=spec.step_size * constants.gradient_sensitivity / size,
        noise=spec.step_size * spec.noise_std,
        contraction=lipschitz,
        diameter=constants.diameter,
        n_steps=spec.n_steps,
        oversized_probability=oversized,
    )


def check_hidden_state_run(
    theorem: NoisyGradientTheorem,
    constants: Constants,
    spec: NoisyGradientSpec,
    releases: Sequence[str],
) -> None:
    """Check every hypothesis but those on the step sizes."""
    _check_batches(theorem, constants, spec)
    check_hidden_state(theorem, constants, spec)
    if spec.release not in releases:
        raise theorem.refuse(
            f"release={spec.release!r} is not covered", f"Release one of: {', '.join(releases)}."
        )
    theorem.check_public_start(
        spec, "Start from public values, or compose with the guarantee of the warm start."
    )
    theorem.check_exact_projection(constants, ", or composition")


def _check_batches(theorem: NoisyGradientTheorem, constants: Constants, spec: NoisyGradientSpec) -> None:
    needed = {"without-replacement": "replace-one", "poisson": "add-remove"}.get(spec.sampling)
    if needed is None:
        raise theorem.refuse(
            f"sampling={spec.sampling!r} draws no fresh random batch each step",
            "Use sampling='without-replacement' or 'poisson', or the bound for that sampling.",
        )
    if constants.adjacency != needed:
        raise theorem.refuse(
            f"sampling={spec.sampling!r} has no proved bound under adjacency={constants.adjacency!r}",
            f"Use adjacency={needed!r}.",
        )
    size = spec.divisor(constants.n)
    if size > constants.n:
        raise InvalidParameter(f"batch_size = {size} is larger than n = {constants.n}; lower batch_size.")


def batch_contraction(
    theorem: NoisyGradientTheorem, constants: Constants, step_size: float, sampling: str, size: int
) -> tuple[float, float]:
    """Return the contraction constant of every admissible batch, and the probability of a batch that is too large.

    A Poisson batch B has smoothness |B| M / b + m, so a step contracts by 1 - eta m as long as
    eta (|B| M / b + 2 m) <= 2. The other records exceed this with probability `oversized_batch_probability` (they are
    the same in both runs, so the event is too).
    """
    if sampling != "poisson":
        return contraction_bound(constants, step_size), 0.0
    ridge, smooth = constants.strong_convexity, constants.data_smoothness
    if not constants.convex:
        raise theorem.refuse(
            "the losses are not convex", "Use sampling='without-replacement', or composition."
        )
    if step_size * ridge > 1:
        raise theorem.refuse(
            f"the step size {step_size!r} exceeds 1 / strong_convexity",
            f"Lower step_size to at most {1 / ridge:.6g}.",
        )
    value = 1 - step_size * ridge
    lipschitz = min(1.0, value + ROUNDING_SLACK) if ridge else 1.0
    if step_size * (smooth * constants.n / size + 2 * ridge) <= 2:
        return lipschitz, 0.0
    oversized = oversized_batch_probability(
        constants.n, size / constants.n, (2 / step_size - 2 * ridge) * size / smooth
    )
    if oversized >= 1e-3:
        raise theorem.refuse(
            f"a Poisson batch is too large for this step size with probability {oversized:.2g} a step",
            f"Lower step_size; {2 / (smooth * constants.n / size + 2 * ridge):.6g} is safe for every batch.",
        )
    return lipschitz, oversized


def hidden_state_assumptions(
    constants: Constants, sampling: str, released: str = "the last iterate"
) -> tuple[str, ...]:
    """Return the assumptions as sentences."""
    assumptions = [
        f"only {released} and nothing else of the path is released; the batches stay secret",
        f"every loss is {'convex and ' if constants.convex else ''}smooth on the set",
        "the starting point does not depend on the private data",
    ]
    if math.isfinite(constants.diameter):
        assumptions.append("every iterate is projected exactly on a set of the stated diameter")
    if sampling == "poisson":
        assumptions.append(
            "no data set has more than n records, and gradient sums are divided by the public batch_size"
        )
    else:
        assumptions.append(
            "the gradients of any two admissible records differ by at most the stated sensitivity"
        )
    return tuple(assumptions)


StartMoment = Callable[[float, Floats], Floats]
"""(k, lambda) -> log E exp(lambda Z^2), or an upper bound, for the distance Z of the runs k steps before the end."""

NOISE_SPLITS: Floats = expit(np.arange(-34, 25) * 0.175)
"""The values of rho that are tried, 0.003 to 0.985: within 0.2% of the best."""


@dataclass(frozen=True, kw_only=True)
class RestartSplit:
    """Costs at every order and the number k of final steps each uses."""

    values: Floats
    lengths: Floats

    def cheaper_of(self, other: RestartSplit) -> RestartSplit:
        """Return the cheaper of the two at every order."""
        first = self.values <= other.values
        return RestartSplit(
            values=np.where(first, self.values, other.values),
            lengths=np.where(first, self.lengths, other.lengths),
        )


def step_renyi_curves(run: RandomBatchRun, orders: Floats, splits: Floats = NOISE_SPLITS) -> Floats:
    """Return S(1 - rho) for rho = 0 and every split (rows) at every order (columns); cached, as theorems share it."""
    return _cached_step_curves(
        replace(run, n_steps=1, diameter=math.inf, oversized_probability=0.0),
        tuple(orders.tolist()),
        tuple(splits.tolist()),
    )


@lru_cache(maxsize=16)
def _cached_step_curves(run: RandomBatchRun, orders: tuple[float, ...], splits: tuple[float, ...]) -> Floats:
    curves = np.array([run.renyi_curve(np.array(orders), split) for split in (0.0, *splits)])
    curves.flags.writeable = False
    return curves


def restart_lengths(run: RandomBatchRun) -> Floats:
    """Return the values of k to try: all small ones, then 4% apart, up to where contraction forgets the start."""
    grid = np.unique(np.round(np.geomspace(1, 1e15, 900)))
    top = float(run.n_steps)
    if run.contraction < 1:
        top = min(top, max(8.0, -40 / math.log(run.contraction)))
    return grid[grid <= top]


def best_constant_split(
    run: RandomBatchRun,
    orders: Floats,
    curves: Floats,
    start: StartMoment,
    lengths: Floats,
    splits: Floats = NOISE_SPLITS,
) -> RestartSplit:
    """Return the cheapest k and constant rho at every order."""
    scale = orders * (orders - 1) / (2 * run.noise**2 * splits[:, None])

    def costs(k: float) -> Floats:
        return k * curves[1:] + start(float(k), scale * float(run.leverage(k))) / (orders - 1)

    with np.errstate(over="ignore", invalid="ignore"):
        return _cheapest_length(costs, lengths, orders)


def _cheapest_length(costs: Callable[[float], Floats], lengths: Floats, orders: Floats) -> RestartSplit:
    """Return the k whose best row of costs is the smallest, at every order."""
    best, best_length = np.full(orders.shape, np.inf), np.zeros(orders.shape)
    for k in lengths:
        value = np.fmin.reduce(costs(k), axis=0)
        best_length = np.where(value < best, k, best_length)
        best = np.fmin(best, value)
    return RestartSplit(values=best, lengths=best_length)


def best_varying_split(
    run: RandomBatchRun, orders: Floats, curves: Floats, start: StartMoment, lengths: Floats
) -> RestartSplit:
    """Return the cheapest k and rho_t that grow towards the end, for c < 1.

    For a Lagrange multiplier y, step t takes the rho minimising S(1 - rho) - y c^{2(T-t)} rho: the i-th split as long
    as y c^{2(T-t)} is above the first i slopes of the curve. `counts` has the number of steps above each slope.
    """
    rho, curves, lengths = (
        np.append(0.0, NOISE_SPLITS[::2]),
        curves[np.r_[0, 1 : len(curves) : 2]],
        lengths[::2],
    )
    decay = -2 * math.log(run.contraction)
    rises, gains = np.maximum(np.diff(curves, axis=0), 0.0), np.diff(rho)[:, None]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        slopes = np.maximum.accumulate(rises / gains, axis=0)
        counts = np.ceil(np.log(slopes[:, None] / slopes[None]) / decay + 1e-9)  # [multiplier, slope, order]
        counts = np.where(counts > 0, counts, 0.0)
        weights = np.expm1(-decay * counts) / math.expm1(-decay)

        def costs(k: float) -> Floats:
            steps = k * curves[0] + (np.minimum(counts, k) * rises).sum(axis=1)
            total = (np.minimum(weights, math.expm1(-decay * k) / math.expm1(-decay)) * gains).sum(axis=1)
            scale = orders * (orders - 1) * math.exp(-decay * k) / (2 * run.noise**2 * total)
            return np.asarray(steps + start(float(k), scale) / (orders - 1))

        return _cheapest_length(costs, lengths, orders)


def best_split(
    run: RandomBatchRun, orders: Floats, curves: Floats, start: StartMoment, lengths: Floats
) -> RestartSplit:
    """Return the cheapest of both splits and composition, which has length 0: no restart, no contraction needed."""
    best = best_constant_split(run, orders, curves, start, lengths)
    if run.contraction < 1:
        best = best.cheaper_of(best_varying_split(run, orders, curves, start, lengths))
    if math.isinf(run.n_steps):
        return best
    return RestartSplit(values=run.n_steps * curves[0], lengths=np.zeros_like(orders)).cheaper_of(best)


_MAX_SCALED_DISTANCE = 300.0  # largest sqrt(2 lambda) Z in the tables; beyond, Z is replaced by its maximum
_GRID_STEP = 0.5


def log_mixture(x: Floats, rate: float) -> Floats:
    """Return log(1 - q + q e^x)."""
    if rate == 1:
        return x
    near = np.log1p(rate * np.expm1(np.minimum(x, 30.0)))
    return np.where(x < 30, near, np.logaddexp(math.log1p(-rate), math.log(rate) + x))


class DistanceMoment:
    """An upper bound lambda -> log E exp(lambda Z^2) for a random distance 0 <= Z <= farthest <= max_distance.

    log_moment : theta -> log E exp(theta Z') of some Z' between Z and max_distance, or slightly above.
    """

    def __init__(self, max_distance: float, farthest: float, log_moment: Callable[[Floats], Floats]) -> None:
        self._farthest = min(max_distance, farthest)
        right = np.geomspace(1e-6, _MAX_SCALED_DISTANCE * (_MAX_SCALED_DISTANCE + 12), 520) / max_distance
        theta = np.concatenate(
            [-right[right * max_distance <= 12 * _MAX_SCALED_DISTANCE][::-1], [0.0], right]
        )
        logs = log_moment(theta)
        self._scales = np.append(
            0.0, np.geomspace(1e-8, _MAX_SCALED_DISTANCE**2 / 2, 380) / max_distance / max_distance
        )
        self._values = np.array(
            [_gaussian_average(scale, max_distance, theta, logs) for scale in self._scales]
        )

    def __call__(self, scale: Floats) -> Floats:
        certain = scale * self._farthest**2
        inside = scale <= self._scales[-1]
        return np.asarray(
            np.where(inside, np.minimum(np.interp(scale, self._scales, self._values), certain), certain)
        )


def _gaussian_average(scale: float, max_distance: float, theta: Floats, logs: Floats) -> float:
    """Return log E_g exp(L(sqrt(2 lambda) g)), L piecewise linear through (theta, logs), L <= theta max_distance."""
    root = math.sqrt(2 * scale)
    g = _GRID_STEP * np.arange(-20, math.ceil((root * max_distance + 10) / _GRID_STEP) + 1)
    exponent = np.interp(root * g, theta, logs)
    log_weight = math.log(_GRID_STEP / math.sqrt(2 * math.pi)) - g * g / 2
    largest = float(np.max(log_weight + exponent))
    if largest > 1:
        return largest + math.log(float(np.exp(log_weight + exponent - largest).sum()))
    weight = np.exp(log_weight)
    small = exponent < 1
    terms = np.where(
        small, weight * np.expm1(np.minimum(exponent, 1.0)), np.exp(log_weight + exponent) - weight
    )
    return math.log1p(max(float(terms.sum()), 0.0))
