"""Exact laws of walks, projected ones in one dimension (L1) and free ones on random batches (L2), for lower bounds.

w <- clip(phi_p(w) + N(0, v^2), [-D/2, D/2]),   phi_p with probability p, independently at each step.

The state is a mass on each of N Gauss-Legendre nodes of the open interval plus an atom at either end; one
step is a matrix product that is exact up to spectrally small quadrature error. Altschuler and Talwar
(2022), Theorem 4.1 uses this walk with a constant shift.

Losses are linear, so the last iterate is X = Z + N(0, V), V = sum_t (C_t v_t)^2, where Z = sum_t C_t s_t R_t adds
up what the record moved in the steps it took part in (C_t: contraction after step t). The other data set has
X' = N(0, V) (add-remove, or the others already push as the second record does) or X' = -Z + N(0, V) with half the
jumps. Both ratios of densities are monotone, so half lines are the best tests.

Tails of X come from its characteristic function phi by an exact identity (the Fourier series of a square wave): for
h > 0 and L = 2 pi / h,

    1/2 - sum_{k >= 0} Im[phi((k + 1/2) h) e^{-i (k + 1/2) h x}] / (pi (k + 1/2)) = Pr[X < x] + error,
    |error| <= Pr[X < x - L] + Pr[X > x + L],

and |phi(t)| <= e^{-V t^2 / 2} bounds what is left out after finitely many k. Every error is counted against the test.

The record has slope Delta when it takes part. Poisson batches: the other data set lacks it (add-remove), or the two
records jump by s/2 either way, s = eta Delta / b (replace-one). Batches of fixed size (replace-one): without a
bounded set all other records and the replacement push equally, so only the first record jumps, by s; on a bounded set
the others are flat and the two records jump by s/2 either way.

Jumps may be rounded down: the tests are half lines, and both their errors are monotone in Z.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dplangevin._arrays import Floats
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem.constants import Constants

StepMaps = Sequence[tuple[float, Callable[[Floats], Floats]]]
_MAX_MASS_ERROR = 1e-9
_N_CUTS = 401
"""Number of half-lines that are tried as tests."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WalkLaw:
    """The law of w_T: masses at the nodes and ends, and the law one step earlier, for exact tails."""

    masses: Floats
    previous_masses: Floats
    positions: Floats
    maps: StepMaps
    noise: float
    diameter: float

    def upper_tail(self, cuts: Floats) -> Floats:
        """Return Pr[w_T >= cut], exact given the law one step earlier."""
        return self._tail(cuts, 1.0)

    def lower_tail(self, cuts: Floats) -> Floats:
        """Return Pr[w_T <= cut]."""
        return self._tail(cuts, -1.0)

    def _tail(self, cuts: Floats, sign: float) -> Floats:
        total = np.zeros(len(cuts))
        for probability, move in self.maps:
            standardized = sign * (move(self.positions)[:, None] - cuts[None, :]) / self.noise
            total += probability * (self.previous_masses @ ndtr(standardized))
        return total


def affine_map(contraction: float, shift: float) -> Callable[[Floats], Floats]:
    """Return w -> a w + g, the step of a linear loss and a ridge."""
    return lambda w: contraction * w + shift


@lru_cache(maxsize=32)
def _legendre_nodes(count: int) -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return np.asarray(nodes, float), np.asarray(weights, float)


def n_nodes_needed(noise: float, diameter: float) -> int:
    """Return the number of nodes that puts them at most about a quarter of the noise apart."""
    return max(80, math.ceil(6 * diameter / noise) + 60)


def compute_walk_law(
    maps: StepMaps,
    noise: float,
    diameter: float,
    n_steps: float,
    *,
    start_scale: float = 0.0,
    start: float = 0.0,
) -> WalkLaw:
    """Return the law after n_steps (infinity: the stationary law) from `start` or clip(N(start, start_scale^2)).

    Raises ArithmeticError when the quadrature does not conserve mass to 1e-9, or a probability underflows.
    """
    return compute_walk_laws(maps, noise, diameter, [n_steps], start_scale=start_scale, start=start)[0]


def compute_walk_laws(
    maps: StepMaps,
    noise: float,
    diameter: float,
    lengths: Sequence[float],
    *,
    start_scale: float = 0.0,
    start: float = 0.0,
) -> list[WalkLaw]:
    """Return the laws of `compute_walk_law` for several numbers of steps."""
    half = diameter / 2
    x, w = _legendre_nodes(n_nodes_needed(noise, diameter))
    nodes, weights = half * x, half * w
    grid = np.concatenate([[-half], nodes, [half]])
    step = _transition_matrix(grid, maps, noise, nodes, weights, half)
    positions, first = _start_law(start, start_scale, half)
    after_one = first @ _transition_matrix(positions, maps, noise, nodes, weights, half)

    def make_law(at: Floats, before: Floats, masses: Floats) -> WalkLaw:
        return WalkLaw(
            masses=masses, previous_masses=before, positions=at, maps=maps, noise=noise, diameter=diameter
        )

    laws: dict[float, WalkLaw] = {}
    n_steps_done, before = 2, after_one  # `before` is the law one step before `n_steps_done`
    for count in sorted(set(lengths)):
        if math.isinf(count):
            masses = _stationary_law(step)
            laws[count] = make_law(grid, masses, masses)
        elif count == 1:
            laws[count] = make_law(positions, first, after_one)
        else:
            before, n_steps_done = _advance_masses(before, step, int(count) - n_steps_done), int(count)
            laws[count] = make_law(grid, before, before @ step)
    return [laws[count] for count in lengths]


def _start_law(center: float, scale: float, half: float) -> tuple[Floats, Floats]:
    if scale == 0:
        return np.array([min(max(center, -half), half)]), np.ones(1)
    low, high = max(-half, center - 12 * scale), min(half, center + 12 * scale)
    x, w = _legendre_nodes(160)
    inner = (low + high) / 2 + (high - low) / 2 * x
    masses = w * _normal_density((inner - center) / scale)
    below, above = ndtr((-half - center) / scale), ndtr((center - half) / scale)
    positions = np.concatenate([[-half], inner, [half]])
    return positions, np.concatenate([[below], masses * (1 - below - above) / masses.sum(), [above]])


def _normal_density(z: Floats) -> Floats:
    with np.errstate(under="ignore"):
        return np.asarray(np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi))


def _transition_matrix(
    positions: Floats, maps: StepMaps, noise: float, nodes: Floats, weights: Floats, half: float
) -> Floats:
    """Return the matrix whose row i is the law one step after positions[i]."""
    rows = np.zeros((len(positions), len(nodes) + 2))
    for probability, move in maps:
        center = move(positions)
        rows[:, 1:-1] += (
            probability * _normal_density((nodes[None, :] - center[:, None]) / noise) / noise * weights
        )
        rows[:, 0] += probability * ndtr((-half - center) / noise)
        rows[:, -1] += probability * ndtr((center - half) / noise)
    mass = rows.sum(axis=1, keepdims=True)
    if not np.all(np.abs(mass - 1) < _MAX_MASS_ERROR):
        raise ArithmeticError(f"a step of the walk loses mass {float(np.max(np.abs(mass - 1))):.1e}")
    return np.asarray(rows / mass)


def _advance_masses(masses: Floats, step: Floats, count: int) -> Floats:
    """Return the masses after `count` steps, by repeated squaring when that is cheaper."""
    if count <= len(masses):
        for _ in range(count):
            masses = masses @ step
        return masses
    while count:
        if count & 1:
            masses = masses @ step
        count >>= 1
        if count:
            step = step @ step
            step /= step.sum(axis=1, keepdims=True)
    return masses


def _stationary_law(step: Floats) -> Floats:
    """Return the stationary law, by the subtraction-free elimination of Grassmann, Taksar and Heyman (1985)."""
    a = step.copy()
    for k in range(len(a) - 1, 0, -1):
        scale = a[k, :k].sum()
        if not scale > 0:
            raise ArithmeticError("the drift is so strong that the probability of stepping back underflows")
        a[:k, k] /= scale
        a[:k, :k] += np.outer(a[:k, k], a[k, :k])
    law = np.zeros(len(a))
    law[0] = 1.0
    for k in range(1, len(a)):
        law[k] = law[:k] @ a[:k, k]
        if law[k] > 1e100:  # a strong drift concentrates the law at one end: avoid overflow
            law[: k + 1] /= law[k]
    return np.asarray(law / law.sum())


def renyi_divergence(first: WalkLaw, second: WalkLaw, order: float) -> float:
    """Return the Renyi divergence of two walks on one interval; nodes whose mass underflows are left out."""
    mask = (first.masses > 0) & (second.masses > 0)
    logs = order * np.log(first.masses[mask]) + (1 - order) * np.log(second.masses[mask])
    top = float(np.max(logs))
    return max(0.0, (top + math.log(float(np.sum(np.exp(logs - top))))) / (order - 1))


def half_line_tests(first: WalkLaw, second: WalkLaw) -> tuple[Floats, Floats]:
    """Return (Pr under one walk, Pr under the other) of every half line, in both directions."""
    cuts = np.linspace(-first.diameter / 2, first.diameter / 2, _N_CUTS)
    high, high2 = first.upper_tail(cuts), second.upper_tail(cuts)
    low, low2 = first.lower_tail(cuts), second.lower_tail(cuts)
    return np.concatenate([high, low, high2, low2]), np.concatenate([high2, low2, high, low])


def epsilon_between(first: WalkLaw, second: WalkLaw, delta: float) -> float:
    """Return the largest log((P(S) - delta) / Q(S)) over half lines S and both directions, rounded down."""
    p, q = half_line_tests(first, second)
    gain = p * (1 - 1e-10) - delta - 1e-13
    ratio = np.where(gain > 0, gain, 0.0) / (q * (1 + 1e-9) + 1e-15)
    return max(0.0, math.log(max(float(np.max(ratio)), 1e-300)))


def delta_between(first: WalkLaw, second: WalkLaw, epsilons: Floats) -> Floats:
    """Return the largest P(S) - e^eps Q(S) over half lines S and both directions, rounded down."""
    p, q = half_line_tests(first, second)
    gap = (p * (1 - 1e-10) - 1e-13)[None, :] - np.exp(epsilons)[:, None] * (q * (1 + 1e-9) + 1e-15)[None, :]
    return np.asarray(np.maximum(gap.max(axis=1), 0.0))


Complexes = NDArray[np.complex128]

_SERIES_ORDER = 14  # powers of a small jump summed in closed form; the rest is below 4e-15 of the first
_MAX_SERIES_ANGLE = 0.1  # the series is used for |t w| below it
_N_DEVIATIONS = 9.0  # standard deviations covered: Phi(-9) = 1.1e-19
_MAX_TERMS = 20_000
_ROUNDING_SLACK = 40 * 2.0**-53  # of a pairwise sum of logarithms, per unit of their moduli


@dataclass(frozen=True, kw_only=True)
class BernoulliJumps:
    """Z = sum_j w_j R_j with independent R_j ~ Bernoulli(rate), `counts[j]` times each, plus a geometric tail.

    The tail has jumps tail_first * ratio^j for j < tail_count (infinity allowed), all so small that a series does.
    """

    rate: float
    weights: Floats
    counts: Floats
    tail_first: float = 0.0
    tail_ratio: float = 0.0
    tail_count: float = 0.0

    def power_sum(self, power: int) -> float:
        """Return sum_j w_j^power, tail included."""
        total = float(self.counts @ self.weights**power)
        if self.tail_count:
            ratio = self.tail_ratio**power
            spread = self.tail_count if ratio == 1 else (1 - ratio**self.tail_count) / (1 - ratio)
            total += self.tail_first**power * spread
        return total

    def scale_by(self, factor: float) -> BernoulliJumps:
        """Return the jumps of factor * Z."""
        return BernoulliJumps(
            rate=self.rate,
            weights=factor * self.weights,
            counts=self.counts,
            tail_first=factor * self.tail_first,
            tail_ratio=self.tail_ratio,
            tail_count=self.tail_count,
        )

    def upper_bound(self) -> float:
        """Return a value that Z exceeds with probability below e^-40 (Bernstein's inequality)."""
        first, second = self.power_sum(1), self.power_sum(2)
        top = max(float(np.max(self.weights, initial=0.0)), self.tail_first)
        return bernstein_bound(self.rate * first, self.rate * second, top, first)

    def characteristic_function(self, t: Floats) -> tuple[Complexes, Floats]:
        """Return E exp(i t (Z - E Z)) and a bound on its error."""
        direct = self.weights * float(np.max(t)) > _MAX_SERIES_ANGLE
        angles = np.multiply.outer(t, self.weights[direct])
        counts = self.counts[direct]
        terms = _log_bernoulli_factor(angles, self.rate)
        total = (terms * counts).sum(axis=1)
        error = _ROUNDING_SLACK * ((np.abs(terms) + self.rate * angles) * counts).sum(axis=1)
        small = BernoulliJumps(
            rate=self.rate,
            weights=self.weights[~direct],
            counts=self.counts[~direct],
            tail_first=self.tail_first,
            tail_ratio=self.tail_ratio,
            tail_count=self.tail_count,
        )
        cumulants = _bernoulli_cumulants(self.rate)
        for power in range(2, _SERIES_ORDER + 1):
            term = cumulants[power - 1] / math.factorial(power) * small.power_sum(power) * t**power
            total = total + term * 1j**power
            error = error + _ROUNDING_SLACK * small.power_sum(power) * t**power
        # Cauchy on |z| = 1: every coefficient is at most 2, so the remainder is at most 2.3 |t w|^15 for |t w| <= 0.1
        error = error + 2.3 * small.power_sum(_SERIES_ORDER + 1) * t ** (_SERIES_ORDER + 1)
        values = np.exp(total)
        return values, np.where(error < 0.1, np.abs(values) * 1.1 * error, 2.0)


def _log_bernoulli_factor(angles: Floats, rate: float) -> Complexes:
    """Return log(1 - q + q e^{iu}) - i q u to full relative precision; NumPy's complex log1p has only absolute."""
    half = np.sin(angles / 2) ** 2
    real = np.log1p(-4 * rate * (1 - rate) * half) / 2
    return np.asarray(real + 1j * (np.arctan2(rate * np.sin(angles), 1 - 2 * rate * half) - rate * angles))


def bernstein_bound(mean: float, square: float, top: float, most: float) -> float:
    """Return what a sum of jumps in [0, top] exceeds with probability below e^-40; at most `most`."""
    return min(most, mean + 40 * top / 3 + math.sqrt((40 * top / 3) ** 2 + 80 * square))


def _bernoulli_cumulants(rate: float) -> list[float]:
    """Return the cumulants of a Bernoulli variable: k_{m+1} = q (1 - q) dk_m/dq, as polynomials in q."""
    cumulants, polynomial = [], np.polynomial.Polynomial([0.0, 1.0])
    slope = np.polynomial.Polynomial([0.0, 1.0, -1.0])
    for _ in range(_SERIES_ORDER):
        cumulants.append(float(polynomial(rate)))
        polynomial = slope * polynomial.deriv()
    return cumulants


@dataclass(frozen=True, kw_only=True)
class EpochJumps:
    """Z = sum over epochs of one entry of a row, column j with probability odds[j]: fresh permutations."""

    rows: Floats
    odds: Floats

    def scale_by(self, factor: float) -> EpochJumps:
        """Return the jumps of factor * Z."""
        return EpochJumps(rows=factor * self.rows, odds=self.odds)

    def power_sum(self, power: int) -> float:
        """Return E Z; only power 1 has a meaning here, with rate = 1."""
        return float(np.sum(self.rows @ self.odds)) if power == 1 else math.nan

    def upper_bound(self) -> float:
        """Return the largest Z."""
        return float(np.sum(np.max(self.rows, axis=1)))

    @property
    def rate(self) -> float:
        """1, so that E Z = rate * power_sum(1)."""
        return 1.0

    def characteristic_function(self, t: Floats) -> tuple[Complexes, Floats]:
        """Return E exp(i t (Z - E Z)) and an error bound: factors have modulus at most 1, so errors add up."""
        centered = self.rows - (self.rows @ self.odds)[:, None]
        values = np.array([np.prod(np.exp(1j * value * centered) @ self.odds) for value in t])
        widest = float(np.max(np.abs(centered)))
        return values, len(centered) * _ROUNDING_SLACK * (2 + t * widest)


Jumps = BernoulliJumps | EpochJumps


@dataclass(frozen=True, kw_only=True)
class Tails:
    """Pr[X > x] and Pr[X < x] at `cuts`, each within `error` of the truth."""

    cuts: Floats
    above: Floats
    below: Floats
    error: float


def gaussian_tails(cuts: Floats, variance: float) -> Tails:
    """Return the tails of N(0, V); `half_line_epsilons` accounts for the rounding of `ndtr`."""
    scaled = cuts / math.sqrt(variance)
    return Tails(cuts=cuts, above=ndtr(-scaled), below=ndtr(scaled), error=0.0)


def walk_tails(jumps: Jumps, variance: float, cuts: Floats) -> Tails | None:
    """Return the tails of Z + N(0, V) for nonnegative jumps; None when the jumps are too large for the noise."""
    deviation, max_jump = math.sqrt(variance), jumps.upper_bound()
    mean = jumps.rate * jumps.power_sum(1)
    # X is outside [low, high] with probability below e^-40 + 1e-18
    low, high = -_N_DEVIATIONS * deviation, max_jump + _N_DEVIATIONS * deviation
    period = (high - low) + max(high - float(np.min(cuts)), float(np.max(cuts)) - low)
    spacing = 2 * math.pi / period
    terms = math.ceil(8.8 / (deviation * spacing))
    if not terms <= _MAX_TERMS:
        return None
    k = np.arange(terms, dtype=np.float64) + 0.5
    t: Floats = k * np.float64(spacing)
    phi, slack = jumps.characteristic_function(t)
    damping = np.exp(-variance * t * t / 2)
    phases = np.exp(np.multiply.outer(cuts - mean, -1j * t))
    below = 0.5 - (phases * (phi * damping / (math.pi * k))).imag.sum(axis=1)
    span = float(np.max(np.abs(cuts - mean)))
    error = float(np.sum(damping / (math.pi * k) * (slack + 1e-15 * np.abs(phi) * (2 + t * span))))
    error += math.exp(-variance * t[-1] ** 2 / 2) * (1 + 1 / (variance * t[-1] * spacing)) + 1e-17 + 1e-15
    return Tails(cuts=cuts, above=1 - below, below=below, error=error)


def mixture_tails(shifts: Floats, odds: Floats, variance: float, cuts: Floats) -> Tails:
    """Return the tails of a mixture of N(shifts[j], V) with probabilities odds[j]."""
    scaled = (shifts[None, :] - cuts[:, None]) / math.sqrt(variance)
    return Tails(cuts=cuts, above=ndtr(scaled) @ odds, below=ndtr(-scaled) @ odds, error=1e-14)


def half_line_epsilons(
    first: Tails, second: Tails, delta: float, projection_probability: float = 0.0
) -> Floats:
    """Return log((P(S) - delta) / Q(S)), at least 0, of the better half line S at every cut.

    The half lines are X above X' and X' below X.

    `projection_probability` bounds, for either walk, the probability that the projection ever moved it: it is
    subtracted from P and added to Q.
    """
    ratios = np.ones(len(first.cuts))
    pairs: Sequence[tuple[Floats, float, Floats, float]] = (
        (first.above, first.error, second.above, second.error),
        (second.below, second.error, first.below, first.error),
    )
    for p, p_error, q, q_error in pairs:
        gain = np.clip(p, 0.0, 1.0) * (1 - 1e-13) - p_error - projection_probability - delta * (1 + 1e-15)
        size = np.maximum(q, 0.0) * (1 + 1e-13) + q_error + projection_probability + 1e-300
        ratios = np.maximum(ratios, np.where(gain > 0, gain, 0.0) / size)
    return np.asarray(np.log(ratios))


_MAX_WEIGHTS = 20_000
_MAX_CELLS = 400_000
_N_CUTS_OF_FREE_WALK = 161


def free_walk_epsilon(constants: Constants, spec: NoisyGradientSpec, delta: float) -> float | None:
    """Return eps of the walk without projection; None where a jump may be negative or cannot be followed."""
    size = spec.divisor(constants.n)
    steps = np.atleast_1d(np.asarray(spec.step_size, float))
    factors = 1 - steps * constants.strong_convexity
    if not (np.all(factors >= 0) and np.all(factors <= 1)):
        return None
    bounded = math.isfinite(constants.diameter)
    if bounded and math.isinf(spec.n_steps):
        return None
    variance = _path_variance(constants, spec)
    if math.isinf(variance):
        return math.inf  # no contraction and no end: the mean outgrows the deviation
    jumps = _make_jumps(constants, spec, steps, factors, size, math.sqrt(variance))
    if jumps is None:
        return None
    halves = constants.adjacency == "replace-one" and (bounded or spec.sampling == "poisson")
    projection_probability = _projection_probability(constants, spec, jumps, size) if bounded else 0.0
    if not projection_probability < 0.1:
        return None
    deviation = math.sqrt(variance)
    top = _max_jump(jumps)
    cuts = np.linspace(-9 * deviation, top + 9 * deviation, _N_CUTS_OF_FREE_WALK)
    best_epsilon = 0.0
    for _ in range(2):  # then again around the best cut
        pair = _tail_pair(jumps, variance, cuts, halves)
        if pair is None:
            return None
        values = half_line_epsilons(*pair, delta, projection_probability)
        index = int(np.argmax(values))
        best_epsilon = max(best_epsilon, float(values[index]))
        step = cuts[1] - cuts[0]
        cuts = np.linspace(cuts[index] - step, cuts[index] + step, 41)
    return best_epsilon


def _tail_pair(
    jumps: Jumps | tuple[Floats, Floats], variance: float, cuts: Floats, halves: bool
) -> tuple[Tails, Tails] | None:
    if isinstance(jumps, tuple):
        shifts, odds = jumps
        if not halves:
            return mixture_tails(shifts, odds, variance, cuts), gaussian_tails(cuts, variance)
        return mixture_tails(shifts / 2, odds, variance, cuts), mixture_tails(
            -shifts / 2, odds, variance, cuts
        )
    if not halves:
        first = walk_tails(jumps, variance, cuts)
        return None if first is None else (first, gaussian_tails(cuts, variance))
    half = jumps.scale_by(0.5)
    first, mirror = walk_tails(half, variance, cuts), walk_tails(half, variance, -cuts)
    if first is None or mirror is None:
        return None
    return first, Tails(cuts=cuts, above=mirror.below, below=mirror.above, error=mirror.error)


def _max_jump(jumps: Jumps | tuple[Floats, Floats]) -> float:
    return float(np.max(jumps[0])) if isinstance(jumps, tuple) else jumps.upper_bound()


def _geometric_sum(ratio: float, count: float) -> float:
    return count if ratio == 1 else (1 - ratio**count) / (1 - ratio)


def _path_variance(constants: Constants, spec: NoisyGradientSpec) -> float:
    """Return V = sum (C_t v_t)^2 + (C_0 start_scale)^2."""
    if spec.is_constant:
        step = float(np.max(spec.step_size))
        factor = 1 - step * constants.strong_convexity
        spread = (step * float(np.max(spec.noise_std))) ** 2 * _geometric_sum(factor**2, spec.n_steps)
        return spread + (factor**spec.n_steps * spec.start_scale) ** 2
    steps = spec.step_sizes()
    tails = _tail_products(1 - steps * constants.strong_convexity)
    spread = float(np.sum((tails[1:] * steps * spec.noise_stds()) ** 2))
    return spread + (float(tails[0]) * spec.start_scale) ** 2


def _tail_products(factors: Floats) -> Floats:
    """Return C_0, C_1, ..., C_T = 1."""
    return np.append(np.cumprod(factors[::-1])[::-1], 1.0)


def _make_jumps(
    constants: Constants,
    spec: NoisyGradientSpec,
    steps: Floats,
    factors: Floats,
    size: int,
    deviation: float,
) -> Jumps | tuple[Floats, Floats] | None:
    """Return Z for the spec's sampling, or its (values, odds) when one permutation serves every epoch."""
    scale = constants.gradient_sensitivity / size
    if spec.sampling in ("poisson", "without-replacement"):
        rate = size / constants.n
        if spec.is_constant:
            return _make_constant_jumps(
                rate, float(steps[0]) * scale, float(factors[0]), spec.n_steps, deviation
            )
        return _group_jumps(
            rate, _tail_products(_broadcast_factors(factors, spec))[1:] * spec.step_sizes() * scale
        )
    length = math.ceil(constants.n / size)
    count = spec.n_steps
    if math.isinf(count):  # a claim for every number of steps is one for this number of whole epochs
        n_forgetting_steps = math.ceil(-45 / math.log(factors[0])) if 0 < factors[0] < 1 else 1
        count = math.ceil(n_forgetting_steps / length) * length
    if count > _MAX_CELLS:
        return None
    weights = np.zeros(math.ceil(count / length) * length)
    step_sizes = np.broadcast_to(steps, (int(count),))
    weights[: int(count)] = (
        _tail_products(1 - step_sizes * constants.strong_convexity)[1:] * step_sizes * scale
    )
    rows = weights.reshape(-1, length)
    odds = np.minimum(size, constants.n - size * np.arange(length)) / constants.n
    if spec.sampling == "cyclic":
        return rows.sum(axis=0), odds
    if np.all(rows[:-1] == rows[0, 0]):  # only the last epoch depends on the position in the epoch
        return float(np.sum(rows[:-1, 0])) * (1 - 1e-15) + rows[-1], odds
    return EpochJumps(rows=rows, odds=odds)


def _broadcast_factors(factors: Floats, spec: NoisyGradientSpec) -> Floats:
    return np.asarray(np.broadcast_to(factors, (int(spec.n_steps),)))


def _make_constant_jumps(
    rate: float, shift: float, factor: float, n_steps: float, deviation: float
) -> BernoulliJumps:
    if factor == 1:
        return BernoulliJumps(rate=rate, weights=np.array([shift]), counts=np.array([float(n_steps)]))
    if factor == 0:
        return BernoulliJumps(rate=rate, weights=np.array([shift]), counts=np.ones(1))
    large = 100 * shift / deviation
    n_listed = min(n_steps, math.ceil(math.log(large) / -math.log(factor)) if large > 1 else 0)
    blocks = np.unique(np.linspace(0, n_listed, min(int(n_listed), _MAX_WEIGHTS) + 1).astype(int))
    return BernoulliJumps(
        rate=rate,
        weights=shift * factor ** (blocks[1:] - 1.0),  # the smallest of each block
        counts=np.diff(blocks).astype(float),
        tail_first=shift * factor**n_listed,
        tail_ratio=factor,
        tail_count=n_steps - n_listed,
    )


def _group_jumps(rate: float, weights: Floats) -> BernoulliJumps:
    """Group the jumps into at most a few thousand groups, each rounded down to its smallest."""
    ordered = np.sort(weights)
    if len(ordered) <= _MAX_WEIGHTS:
        return BernoulliJumps(rate=rate, weights=ordered, counts=np.ones(len(ordered)))
    group_starts = np.unique(np.linspace(0, len(ordered), _MAX_WEIGHTS + 1).astype(int))
    return BernoulliJumps(
        rate=rate, weights=ordered[group_starts[:-1]], counts=np.diff(group_starts).astype(float)
    )


def _projection_probability(
    constants: Constants, spec: NoisyGradientSpec, jumps: Jumps | tuple[Floats, Floats], size: int
) -> float:
    """Bound the probability that a walk ever meets the projection, with the interval placed around both walks.

    Without contraction a driftless path exceeds a level with at most twice the probability of its end doing so; with
    contraction a union bound over the steps is used. Jumps are bounded without contraction where it varies.
    """
    count = float(spec.n_steps)
    flat = constants.strong_convexity == 0
    shift = constants.gradient_sensitivity / size * np.asarray(spec.step_size)
    noise = np.multiply(spec.step_size, spec.noise_std)
    if spec.is_constant:
        factor = 1 - float(np.max(spec.step_size)) * constants.strong_convexity
        lengths, squares = _geometric_sum(factor, count), _geometric_sum(factor**2, count)
    else:
        lengths = squares = 1.0
    spread = float(np.sum(np.broadcast_to(noise**2, (1,) if spec.is_constant else (int(count),)))) * squares
    if isinstance(jumps, BernoulliJumps):
        shift = np.broadcast_to(shift, (1,) if spec.is_constant else (int(count),))
        first, second = float(shift.sum()) * lengths, float((shift**2).sum()) * squares
        max_distance = bernstein_bound(jumps.rate * first, jumps.rate * second, float(shift.max()), first)
    else:
        max_distance = _max_jump(jumps)
        if not (flat or spec.is_constant):
            return 1.0
    deviation = math.hypot(math.sqrt(spread), spec.start_scale)
    n_crossings = 2.0 if flat else count + 1
    return min(
        1.0,
        2 * n_crossings * float(ndtr((max_distance - constants.diameter) / 2 / deviation)) + count * 5e-18,
    )
