"""Recursions over blocks of steps on a bounded set: profiles (B3, B5), the Dobrushin recursion (B4) and noisy SGD (S4).

B3. Let P, P' be the laws of the two runs k steps before the end and e = H_{g1}(P || P'), where H_g(P || Q) =
sup_S P(S) - g Q(S). Split P = A + E and g1 P' = A + B with A = min(P, g1 P'). The last k steps map the
common part A to laws that differ as two runs from one start do (mu = m1 by the optimal shift sequence), and
E, B to laws that differ as two runs from starts D apart do (mu = m2). With theta(mu, eps) the delta of
mu-GDP and g_i = e^{eps_i},

    H_{g1 g2} <= theta(m1, eps2) + e theta(m2, eps2 + log((g1 - 1 + e) / e)),

nondecreasing in e, so a valid profile on the right gives a valid (often far smaller) one on the left. It
holds for every number of steps: a run shorter than k has one common start.

B5, the sharper form that is iterated last: composition up to a cap, forgetting beyond it. A pair (P, P') with
H_g(P || P') <= d(g) for every g >= 0 is the image of a pair of likelihood ratio r = dP/dP' with exactly that profile
(Blackwell). A block then maps equal starts to laws with profile H1 and any two starts to laws with profile H2 <= 1.
For a cap G and a factor f put a = min(r, G) and w = (g - f a)_+. Then

    P K - g P' K' = E'[a (K - ((g - w) / a) K')] + (E'[(r - G)_+ K] - E'[w K']),      E' the mean under P',

so  H_g(after) <= E'[a H1((g - w) / a)] + e H2(W / e),    e = d(G),   W = E' w = f (g/f - 1 + d(g/f)).

Where r <= g/f the first argument is f, above it is g / a, as in composition. Only the excess over the cap, of mass e,
is bounded as two runs from arbitrary starts. G f = g gives B3. The curves H1 and H2 of a block are those of mu-GDP, by
the optimal shift sequence (B1) or by the slopes of the power function (B6), whichever mu is smaller.

Split the noise v^2 = v1^2 + v2^2. The kernel x -> phi'(x) + N(0, v2^2), common to both runs, contracts every
f-divergence by its Dobrushin coefficient beta = 2 Phi(diam phi'(K) / (2 v2)) - 1; the rest of the noise hides
the shift s between the two maps. So h = E_alpha obeys

    h_0 = 1,   h_{t+1} = G (1 + beta (h_t - 1)),   G = exp(alpha (alpha - 1) s^2 / (2 v1^2)),

and the Renyi divergence of order alpha after T steps is at most log h_T / (alpha - 1), for every split.

The lemma is that of `block_recursion`: k steps from one common start cost at most theta1_k(eps), k steps from any two
starts in the set at most theta2_k(eps), and a profile d that holds for every number of steps gives another,

    d'(eps1 + eps2) = theta1_k(eps2) + e theta2_k(eps2 + log((e^{eps1} - 1 + e) / e)),   e = d(eps1).

Here theta1_k comes from the Renyi curve k S(1) of the sampled Gaussian, theta2_k from the curve of `hidden-state-sgd`
with a restart at distance D, min over rho of k S(1 - rho) + alpha D^2 c^{2k} / (2 v^2 rho sum_{j<k} c^{2j}). The
sharper form B5 (`sweep_capped`) uses the same two curves and is iterated last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf, log_ndtr

from dplangevin._arrays import Floats
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.conversions import ORDERS
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Profile, RenyiCurve
from dplangevin.accounting.plan import round_up
from dplangevin.accounting.pld import lower_hull
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import (
    NoisyGradientTheorem,
    check_hidden_state,
    step_units,
)
from dplangevin.mechanisms.noisy_gradient.theorems.hidden_state import (
    hidden_state_split,
    n_contracting_steps,
)
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import (
    best_restart_mu,
    restart_mu,
    same_start_mu,
)
from dplangevin.mechanisms.noisy_gradient.theorems.power_slopes import make_slope_recursion
from dplangevin.mechanisms.noisy_gradient.theorems.random_batches import (
    RandomBatchRun,
    best_constant_split,
    hidden_state_assumptions,
    make_random_batch_run,
    step_renyi_curves,
)
from dplangevin.problem.constants import Constants

MAX_EPSILON = 200.0  # larger eps are left to B3: e^eps would overflow
_MIN_SPACING = 1e-12  # and grids so fine that their e^eps are rounded to one number
_CUT_FRACTIONS = (0.0, 0.05, 0.12, 0.22, 0.36)
"""Values of log(g / f) that are tried, as fractions of the grid."""


@dataclass(frozen=True, kw_only=True)
class DominatingPair:
    """A pair of laws whose profile is piecewise linear through valid points, at gamma_j = e^{j h}, j = 0..n-1.

    values : its profile at gamma_j, at most the given one.
    masses : P'(r = gamma_j), rounded up; `tail_masses` is P'(r > gamma_j), rounded up.
    """

    gamma: Floats
    values: Floats
    masses: Floats
    tail_masses: Floats


def make_dominating_pair(epsilons: Floats, deltas: Floats) -> DominatingPair:
    """Return the pair whose profile is the greatest convex minorant of (e^eps, delta), their reflections, and (0, 1).

    H_g(P || P') is convex in g and 1 at g = 0; a curve valid in both directions is reflected to 1 - g + g d(1/g) for
    g < 1.
    """
    ratios = np.exp(epsilons)
    inverse_ratios = 1 / ratios[:0:-1]
    gamma = np.concatenate([[0.0], inverse_ratios, ratios])
    values = np.concatenate([[1.0], 1 - inverse_ratios + inverse_ratios * deltas[:0:-1], deltas])
    hull = lower_hull(gamma, values)
    left = values[hull[np.searchsorted(hull, np.arange(len(gamma)), side="right") - 1]]
    chords = np.interp(gamma, gamma[hull], values[hull])
    steps = np.diff(gamma)
    tails = np.append(-np.diff(chords) / steps, 0.0)  # tails[i] = P'(r > gamma_i), up to rounding
    # of the slopes between two chords, each accurate to 4e-16 of its left end
    errors = np.append(1e-15 * (left[1:] + left[:-1]) / steps, 0.0)
    values = np.minimum(values, chords + 1e-15 * left)
    n = len(ratios)
    on_grid, one_before = slice(len(gamma) - n, None), slice(len(gamma) - n - 1, -1)
    masses = np.maximum(tails[one_before] - tails[on_grid], 0.0) + errors[one_before] + errors[on_grid]
    tail_masses = np.maximum(tails[on_grid], 0.0) + errors[on_grid]
    return DominatingPair(gamma=ratios, values=values[on_grid], masses=masses, tail_masses=tail_masses)


def sweep_capped(deltas: Floats, epsilons: Floats, first: Floats, second: Floats) -> Floats:
    """Return the smallest B5 bound over caps, factors and blocks at every eps of a uniform grid from 0.

    Parameters
    ----------
    deltas, epsilons : a valid profile on the grid.
    first : H1 of each block (rows) on the grid.
    second : H2 of each block at 0, h, 2h, ..., as far as it is tabulated; between grid points the chord in e^eps is
        an upper bound, past the end the last value is.
    """
    if not epsilons[-1] < MAX_EPSILON or epsilons[1] < _MIN_SPACING:
        return deltas
    pair, n, spacing = make_dominating_pair(epsilons, deltas), len(epsilons), float(epsilons[1])
    size = second.shape[1]
    index = np.arange(n)[:, None] - np.arange(n)[None, :] + n - 1
    inverse_ratios = np.exp(-epsilons[:0:-1])
    log_values = np.log(pair.values)
    cuts = sorted({int(fraction * (n - 1)) for fraction in _CUT_FRACTIONS})
    offsets = {}
    for cut in cuts:
        reserve = np.log(pair.gamma[cut] - 1 + pair.values[cut]) - log_values[cut:]
        reserve = np.maximum(reserve * (1 - 1e-14) - 1e-13, 0.0)
        index_offset = np.minimum((reserve / spacing).astype(int), size - n - 1)
        weight = np.expm1(np.clip(reserve - index_offset * spacing, 0.0, spacing)) / np.expm1(spacing)
        offsets[cut] = index_offset, np.clip(weight - 1e-12, 0.0, 1.0)
    better = deltas.copy()
    for same_start, two_starts in zip(first, second, strict=True):
        # for g < 1, the profile of the other direction
        both = np.concatenate([1 - inverse_ratios + inverse_ratios * same_start[:0:-1], same_start])
        charge = both[index]  # H1 at eps_i - eps_j
        cumulative = np.cumsum(charge * (pair.masses * pair.gamma), axis=1)
        capped = charge * (pair.tail_masses * pair.gamma)
        for cut in cuts:
            index_offset, weight = offsets[cut]
            rows = np.arange(n - cut)
            below = max(0.0, 1 - (pair.values[cut] + pair.gamma[cut] * pair.tail_masses[cut]) * (1 - 1e-9))
            at = rows[:, None] + index_offset[None, :]
            excess_cost = two_starts[at] * (pair.values[cut:] * (1 - weight)) + two_starts[at + 1] * (
                pair.values[cut:] * weight
            )
            total = (
                cumulative[cut:, cut:] - cumulative[cut:, cut : cut + 1] + capped[cut:, cut:] + excess_cost
            )
            total = total.min(axis=1) + below * same_start[: n - cut]
            total = np.maximum(total, same_start[cut:]) * (1 + 1e-9)
            np.minimum(better[cut:], total, out=better[cut:])
    return np.minimum.accumulate(better)


MIN_PROFILE_DELTA = 1e-15  # the profile is computed down to this delta
N_COARSE_POINTS, N_FINE_POINTS = 60, 120  # grid points; twice as many lower eps by 0.3% or less
_MIN_DELTA = 1e-299
_MAX_TABLE_SIZE = 30_000


def gdp_delta_upper(mu: float, epsilons: Floats) -> Floats:
    """Return delta of mu-GDP, rounded up and at least 1e-299, so that it is never zero."""
    if not math.isfinite(mu):
        return np.ones_like(epsilons)
    mu *= 1 + 1e-12
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        upper = log_ndtr(-epsilons / mu + mu / 2)
        lower = epsilons + log_ndtr(-epsilons / mu - mu / 2)
        slack = 1e-15 * (2 + mu + np.abs(upper) + np.abs(lower) + 2 * epsilons)
        value = np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0.0) - slack) * (1 + 1e-12)
    value = np.where(upper < -680.0, _MIN_DELTA, np.where(np.isnan(value), 1.0, value))
    return np.asarray(np.clip(value, _MIN_DELTA, 1.0))


def last_iterate_mu(step: float, noise: float, contraction: float, diameter: float, n_steps: float) -> float:
    """Return mu of the last iterate: from a common start, or a restart in the set (B1), or by slopes (B6)."""
    fresh = math.inf
    if contraction < 1 or math.isfinite(n_steps):
        fresh = same_start_mu(step, noise, contraction, n_steps)
    slopes = make_slope_recursion(step, noise, contraction, diameter)
    by_slopes = slopes.same_start_mu(n_steps) if slopes else math.inf
    return min(fresh, best_restart_mu(step, noise, contraction, diameter, n_steps), by_slopes)


def block_profile(
    step: float,
    noise: float,
    contraction: float,
    diameter: float,
    block_lengths: Sequence[int],
    epsilons: ArrayLike,
    sweeps: int = 40,
    *,
    start: Floats | None = None,
    tolerance: float = 1e-6,
) -> Floats:
    """Return valid deltas at `epsilons`, a uniform grid from 0, of the last iterate after any number of steps.

    Parameters
    ----------
    step, noise, contraction, diameter : s, v, c <= 1 and D of one step (shift, noise on the iterate,
        Lipschitz constant, diameter of the set).
    block_lengths : the k that are tried; each is valid.
    sweeps : how often the recursion is applied at most; it stops when no log delta moves by `tolerance`.
    start : valid deltas to begin with; by default those of the optimal shift sequence for T = infinity.

    Examples
    --------
    >>> deltas = block_profile(0.1, 1.0, 1.0, 4.0, [1, 2, 4, 8, 16, 32, 64], np.arange(121) * 0.05)
    >>> [float(f"{deltas[i]:.3g}") for i in (20, 40)]
    [0.000952, 1.43e-08]
    """
    eps = np.asarray(epsilons, float)
    spacing = _check_uniform_grid(eps)
    if start is None:
        start = gdp_delta_upper(last_iterate_mu(step, noise, contraction, diameter, math.inf), eps)
    first, second = _block_tables(step, noise, contraction, diameter, block_lengths, eps)
    deltas = np.clip(np.nan_to_num(np.asarray(start, float), nan=1.0), _MIN_DELTA, 1.0)
    deltas = repeat_sweep(lambda d: sweep_splits(d, eps, spacing, first, second), deltas, sweeps, tolerance)
    return np.asarray(np.minimum(1.0, deltas * (1 + 1e-9)))


def repeat_sweep(sweep: Callable[[Floats], Floats], deltas: Floats, sweeps: int, tolerance: float) -> Floats:
    """Repeat a sweep until no log delta moves by `tolerance`, or `sweeps` times."""
    for _ in range(sweeps):
        better = sweep(deltas)
        moved = float(np.max(np.log(deltas / better)))
        deltas = better
        if moved < tolerance:
            break
    return deltas


def _block_tables(
    step: float,
    noise: float,
    contraction: float,
    diameter: float,
    block_lengths: Sequence[int],
    eps: Floats,
) -> tuple[Floats, Floats]:
    """Return theta(m1, .) of every block on the grid, and theta(m2, .) on a longer one of the same spacing."""
    spacing = float(eps[1])
    same = [same_start_mu(step, noise, contraction, k) for k in block_lengths]
    apart = [restart_mu(step, noise, contraction, diameter, k) for k in block_lengths]
    slopes = make_slope_recursion(step, noise, contraction, diameter)
    if slopes:
        same = [min(mu, slopes.same_start_mu(k)) for mu, k in zip(same, block_lengths, strict=True)]
        apart = [min(mu, slopes.two_starts_mu(k)) for mu, k in zip(apart, block_lengths, strict=True)]
    max_epsilon = max(2 * eps[-1], max(cv.gdp_epsilon(mu, 1e-20) for mu in apart))
    size = len(eps) + int(min(max_epsilon / spacing, _MAX_TABLE_SIZE)) + 2
    first = np.array([gdp_delta_upper(mu, eps) for mu in same])
    second = np.array([gdp_delta_upper(mu, spacing * np.arange(size, dtype=float)) for mu in apart])
    return first, second


def _check_uniform_grid(eps: Floats) -> float:
    if eps.ndim != 1 or len(eps) < 2 or eps[0] != 0 or not eps[1] > 0:
        raise InvalidParameter("epsilons must be a uniform grid 0, h, 2h, ... with at least two points.")
    if not np.allclose(eps, eps[1] * np.arange(len(eps)), rtol=1e-12, atol=0):
        raise InvalidParameter("epsilons must be uniformly spaced; use numpy.arange(n) * h.")
    return float(eps[1])


def sweep_splits(deltas: Floats, eps: Floats, spacing: float, first: Floats, second: Floats) -> Floats:
    """Apply the recursion B3 once, with every split of eps on the grid and every block length.

    The second theta falls between grid points. It is convex in e^eps, so interpolating linearly in e^eps
    between two tabulated values is above it; past the end of the table the last value is.
    """
    n, size = len(eps), second.shape[1]
    log_deltas = np.log(deltas)
    with np.errstate(divide="ignore"):
        log_gain = eps + np.log(-np.expm1(-eps))  # log(e^eps - 1) without overflow
    offset = np.logaddexp(log_gain, log_deltas) - log_deltas
    offset = np.maximum(offset * (1 - 1e-14) - 1e-15, 0.0)
    index_offset = np.minimum((offset / spacing).astype(int), size - n - 1)
    weight = _chord_weight(offset - index_offset * spacing, spacing)
    better = deltas.copy()
    for i in range(n):
        width, at = n - i, index_offset[i]
        total = second[:, at : at + width] * (deltas[i] * (1 - weight[i]))
        total += second[:, at + 1 : at + 1 + width] * (deltas[i] * weight[i])
        total += first[:, :width]
        np.minimum(better[i:], total.min(axis=0), out=better[i:])
    return np.minimum.accumulate(better)


def _chord_weight(gap: Floats, spacing: float) -> Floats:
    """Return the weight of the right end of a chord in e^eps, rounded down (towards the larger, left end)."""
    if spacing > 700:
        return np.zeros_like(gap)
    weight = np.expm1(np.clip(gap, 0.0, spacing)) / math.expm1(spacing)
    return np.asarray(np.clip(weight - 1e-12, 0.0, 1.0))


def candidate_block_lengths(noise: float, diameter: float, n_steps: float) -> list[int]:
    """Return block lengths to try: short ones, and ones near the time (D/v)^2 that noise needs to cross the set."""
    crossing = (diameter / noise) ** 2
    lengths = {1, 2, 3, 5, 8} | {round(min(f * crossing, 1e15)) for f in np.geomspace(0.02, 12, 18)}
    return sorted(k for k in lengths if 1 <= k <= n_steps)


def blocks_to_cap(lengths: Sequence[int], noise: float, contraction: float, diameter: float) -> list[int]:
    """Return the indices of the blocks for B5: without contraction, those near the time to cross the set."""
    crossing = (diameter / noise) ** 2
    if contraction < 1:
        return list(range(len(lengths)))
    indices = [i for i, k in enumerate(lengths) if 0.05 * crossing <= k <= 2 * crossing]
    return indices or list(range(len(lengths)))


def last_iterate_profile(
    step: float, noise: float, contraction: float, diameter: float, n_steps: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the smaller of the recursion, valid for every number of steps, and the shift bound for n_steps."""
    epsilons, deltas = unbounded_run_profile(step, noise, contraction, diameter)
    if math.isinf(n_steps):
        return epsilons, deltas
    mu = last_iterate_mu(step, noise, contraction, diameter, n_steps)
    if len(epsilons) == 1:  # nothing was computed; the shift bound alone
        top = cv.gdp_epsilon(mu, MIN_PROFILE_DELTA)
        if not (math.isfinite(top) and top / N_FINE_POINTS > 0):
            return epsilons, tuple(np.minimum(deltas, gdp_delta_upper(mu, np.zeros(1))).tolist())
        epsilons, deltas = (0.0, top), (1.0, 1.0)
    grid = np.array(epsilons)
    finer = np.linspace(0.0, float(grid[-1]), 8 * (max(len(grid), N_FINE_POINTS) - 1) + 1)
    best = np.minimum(interpolate_deltas(finer, grid, np.array(deltas)), gdp_delta_upper(mu, finer))
    return tuple(finer.tolist()), tuple(np.minimum.accumulate(best).tolist())


@lru_cache(maxsize=256)
def unbounded_run_profile(
    step: float, noise: float, contraction: float, diameter: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the profile of the recursion, on a coarse grid over the range of the shift bound, then on a fine one."""
    mu = last_iterate_mu(step, noise, contraction, diameter, math.inf)
    top = cv.gdp_epsilon(mu, MIN_PROFILE_DELTA)
    if not math.isfinite(top):
        return (0.0,), (1.0,)
    if not top / N_FINE_POINTS > 0:
        return (0.0,), (float(gdp_delta_upper(mu, np.zeros(1))[0]),)
    lengths = candidate_block_lengths(noise, diameter, math.inf)
    run = (step, noise, contraction, diameter, lengths)
    coarse = np.arange(N_COARSE_POINTS + 1, dtype=float) * (top / N_COARSE_POINTS)
    deltas = block_profile(*run, coarse, start=gdp_delta_upper(mu, coarse), tolerance=1e-3)
    lengths = [lengths[i] for i in blocks_to_cap(lengths, noise, contraction, diameter)]
    # as the deltas shrink, so does the range of eps that matters
    for size, tolerance in ((N_COARSE_POINTS, 3e-3), (N_COARSE_POINTS, 1e-3), (N_FINE_POINTS, 1e-3)):
        small = np.flatnonzero(deltas <= MIN_PROFILE_DELTA)
        top = float(coarse[small[0]]) if small.size and small[0] > 0 else top
        grid = np.arange(size + 1, dtype=float) * (top / size)
        start_deltas = np.minimum(gdp_delta_upper(mu, grid), interpolate_deltas(grid, coarse, deltas))
        tables = _block_tables(step, noise, contraction, diameter, lengths, grid)
        deltas = repeat_sweep(
            partial(_capped_sweep, grid, tables), np.clip(start_deltas, _MIN_DELTA, 1.0), 60, tolerance
        )
        coarse = grid
    return tuple(coarse.tolist()), tuple(np.minimum(1.0, deltas * (1 + 1e-9)).tolist())


def _capped_sweep(eps: Floats, tables: tuple[Floats, Floats], deltas: Floats) -> Floats:
    return sweep_capped(deltas, eps, *tables)


def interpolate_deltas(at: Floats, eps: Floats, deltas: Floats) -> Floats:
    """Return valid deltas between grid points: the true curve is convex in e^eps, so chords lie above it."""
    index = np.clip(np.searchsorted(eps, at, side="right") - 1, 0, len(eps) - 2)
    weight = _chord_weight(at - eps[index], float(eps[1]))
    return np.asarray((1 - weight) * deltas[index] + weight * deltas[index + 1])


BOUNDED_RUN_ASSUMPTIONS = (
    "only the last iterate and nothing else of the path is released",
    "every iterate is projected exactly on a set of the stated diameter",
    "the starting point does not depend on the private data",
)


def check_bounded_run(theorem: NoisyGradientTheorem, constants: Constants, spec: NoisyGradientSpec) -> None:
    """Check for full batches, constant steps, a public start, exact projection, a bounded set, the last iterate."""
    spec.check_combination(constants)
    theorem.check_sampling("full", spec)
    check_hidden_state(theorem, constants, spec)
    if spec.release != "last-iterate":
        raise theorem.refuse(
            f"release={spec.release!r} is not the last iterate alone", "Release the last iterate."
        )
    if not spec.is_constant:
        raise theorem.refuse(
            "step size or noise varies between steps", "Use one step_size and one noise_std."
        )
    theorem.check_public_start(spec, "Start from public values, or use optimal-shift.")
    if math.isinf(constants.diameter):
        raise theorem.refuse("the iterates are not confined to a bounded set", "State a finite diameter.")
    theorem.check_exact_projection(constants, ", or optimal-shift")


class BlockRecursion(
    NoisyGradientTheorem, name="block-recursion", proof="docs/theory/noisy_sgd.md, section 3, B3"
):
    """Last iterate of full-batch noisy gradient descent on a bounded set: delta(eps), no Renyi curve.

    Far below the optimal shift bound once the run is longer than it takes to forget its start: at D / v = 20, s D /
    v^2 = 0.05, T = infinity and delta = 1e-5 it gives eps 0.12 instead of 1.76.
    """

    reference = (
        "Hockey-stick recursion over blocks of steps (docs/theory/noisy_sgd.md, B3, B5 and B6), "
        "on shifted interpolation of Bok, Su and Altschuler (2024)"
    )

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        check_bounded_run(self, constants, spec)
        u = step_units(constants, spec)
        if u.contraction > 1:
            raise self.refuse(
                f"the gradient step expands distances (contraction constant {u.contraction:.6g} > 1)",
                f"Lower step_size to 2 / smoothness = {2 / constants.smoothness:.6g} (convex losses only).",
            )
        epsilons, deltas = last_iterate_profile(u.shift, u.noise, u.contraction, u.diameter, spec.n_steps)
        assumptions = (*BOUNDED_RUN_ASSUMPTIONS, "every loss is convex and smooth on the set")
        return self.guarantee(constants, spec, (Profile(epsilons=epsilons, deltas=deltas),), assumptions)


MIXING_FRACTIONS: Floats = np.arange(2, 100) / 100
"""v2^2 / v^2: the fraction of the noise variance that mixes."""


def dobrushin_rdp(step: float, noise: float, diameter: float, n_steps: float, orders: ArrayLike) -> Floats:
    """Return the Renyi curve for a shift s = step and maps whose images have at most the given diameter.

    With y = h - 1 the recursion is y <- (G - 1) + G beta y, so y_T = (G - 1) (1 - (G beta)^T) / (1 - G beta).

    Examples
    --------
    >>> print(f"{dobrushin_rdp(0.02, 1.0, 1.0, np.inf, [2.0])[0]:.4e}")
    1.5452e-03
    """
    alpha = np.asarray(orders, float)[:, None]
    beta = erf(diameter / noise / np.sqrt(8 * MIXING_FRACTIONS)) * (1 + 1e-14)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        log_gain = alpha * (alpha - 1) * (step / noise) ** 2 / (2 * (1 - MIXING_FRACTIONS))
        log_factor = log_gain * (1 + 1e-14) + np.log(np.minimum(beta, 1.0)) + 1e-14  # rounded up
        growth = np.expm1(log_gain) * _geometric_sum(log_factor, n_steps)
        values = np.where(np.isfinite(growth), np.log1p(growth), np.inf) / (alpha - 1)
    best = np.min(np.where(np.isnan(values), np.inf, values), axis=1)
    return np.asarray(best * (1 + 1e-9) + 1e-12)


def _geometric_sum(log_factor: Floats, n_steps: float) -> Floats:
    """Return sum_{t < T} e^{t log_factor}; infinite when T is infinite and the factor is not below 1."""
    is_zero = np.abs(log_factor) < 1e-12  # indistinguishable from T, or from divergence when T is infinite
    if math.isinf(n_steps):
        return np.where(is_zero | (log_factor >= 0), np.inf, -1 / np.expm1(log_factor))
    nonzero_factor = np.where(is_zero, 1.0, log_factor)
    ratio = np.expm1(n_steps * nonzero_factor) / np.expm1(nonzero_factor)
    return np.where(is_zero, n_steps * np.exp(np.minimum(n_steps * 1e-12, 700.0)), ratio)


class Dobrushin(NoisyGradientTheorem, name="dobrushin", proof="docs/theory/noisy_sgd.md, section 3, B4"):
    """Last iterate of full-batch noisy gradient descent on a small set: a Renyi curve without convexity.

    Needs c D, the largest diameter of the image of the set under one gradient step. Useful when c D is at
    most about three times the noise on the iterate; beyond that beta is close to 1 and other bounds are
    smaller.
    """

    reference = "Dobrushin (1956), contraction of f-divergences; recursion of docs/theory/noisy_sgd.md, B4"

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        check_bounded_run(self, constants, spec)
        u = step_units(constants, spec)
        image = u.contraction * u.diameter
        values = dobrushin_rdp(u.shift, u.noise, image, spec.n_steps, cv.ORDERS)
        is_finite = np.isfinite(values)
        if not np.any(is_finite):
            raise self.refuse(
                f"the set is too wide for the noise (image {image:.6g}, noise on the iterate {u.noise:.6g})",
                "Shrink the set, add noise, or give a finite number of steps.",
            )
        part = RenyiCurve(
            orders=tuple(cv.ORDERS[is_finite].tolist()), values=tuple(values[is_finite].tolist())
        )
        assumptions = (*BOUNDED_RUN_ASSUMPTIONS, "every loss is smooth on the set")
        return self.guarantee(constants, spec, (part,), assumptions)


_MAX_SWEEPS = 40


def renyi_deltas(values: Floats, epsilons: Floats) -> Floats:
    """Convert a Renyi curve at ORDERS tightly to delta at every eps, rounded up and never zero."""
    slope = ORDERS - 1
    level = slope * (values + np.log1p(-1 / ORDERS)) - np.log(ORDERS)
    mask = np.isfinite(level)
    if not mask.any():
        return np.ones_like(epsilons)
    level = (level + 1e-15 * np.abs(level))[mask]  # for the rounding of the level and of the slope
    logs = np.min(level - np.multiply.outer(epsilons, slope[mask] * (1 - 1e-15)), axis=1)
    return np.asarray(np.exp(np.clip(logs + 1e-12, -680.0, 0.0)))


class BlockTables:
    """theta1_k and theta2_k of every block length k as Renyi curves."""

    def __init__(self, run: RandomBatchRun, curves: Floats) -> None:
        self.lengths = candidate_block_lengths(run.noise, run.diameter, run.n_steps)
        self.same_start_curves = [np.array([round_up(float(x)) for x in k * curves[0]]) for k in self.lengths]
        self.restart_curves = []
        for k in self.lengths:
            split = best_constant_split(
                run, ORDERS, curves, lambda _, scale: scale * run.diameter**2, np.array([float(k)])
            )
            self.restart_curves.append(np.array([round_up(float(x)) for x in split.values]))
        self.oversized_probability = run.oversized_probability
        self.capped_blocks = blocks_to_cap(self.lengths, run.noise, run.contraction, run.diameter)

    def refine_profile(self, start: Floats, epsilons: Floats, tolerance: float) -> Floats:
        """Apply the recursion to valid deltas on a uniform grid of eps, until no log delta moves by `tolerance`."""
        spacing, size = float(epsilons[1]), 2 * len(epsilons) + 2
        size += int(-math.log(max(float(start[-1]), 1e-18)) / spacing)
        table = spacing * np.arange(min(size, 30_000), dtype=np.float64)
        first = np.array([renyi_deltas(values, epsilons) for values in self.same_start_curves])
        second = np.array([renyi_deltas(values, table) for values in self.restart_curves])
        second = np.minimum(1.0, second + self.oversized_probability * np.array(self.lengths)[:, None])
        deltas = repeat_sweep(
            lambda d: sweep_splits(d, epsilons, spacing, first, second), start, _MAX_SWEEPS, tolerance
        )
        capped_first, capped_second = first[self.capped_blocks], second[self.capped_blocks]
        deltas = repeat_sweep(
            lambda d: sweep_capped(d, epsilons, capped_first, capped_second),
            deltas,
            _MAX_SWEEPS,
            10 * tolerance,
        )
        return np.minimum(1.0, deltas * (1 + 1e-9))


DeltaCurve = Callable[[Floats], Floats]


def hidden_state_deltas(run: RandomBatchRun) -> tuple[DeltaCurve, Floats]:
    """Return delta(eps) of the hidden-state bound for this number of steps, and its Renyi curve."""
    split = hidden_state_split(run, ORDERS, step_renyi_curves(run, ORDERS))
    values = np.array([round_up(float(x)) for x in split.values])
    extra = run.oversized_probability * n_contracting_steps(run, split.lengths)

    def delta_curve(epsilons: Floats) -> Floats:
        return np.minimum(1.0, renyi_deltas(values, epsilons) + extra)

    return delta_curve, values


def block_profile_sgd(run: RandomBatchRun) -> tuple[Floats, Floats]:
    """Return the smaller of the recursion, valid for any number of steps, and the hidden-state bound."""
    epsilons, deltas = unbounded_run_profile_sgd(replace(run, n_steps=math.inf))
    if math.isinf(run.n_steps):
        return epsilons, deltas
    delta_curve, values = hidden_state_deltas(run)
    if len(epsilons) == 1:  # nothing was computed; the hidden-state bound alone
        top = cv.rdp_epsilon(ORDERS, values, MIN_PROFILE_DELTA)
        if math.isfinite(top) and top > 0:
            epsilons = np.linspace(0.0, top, 1601)
            deltas = np.ones_like(epsilons)
    return epsilons, np.minimum.accumulate(np.minimum(delta_curve(epsilons), deltas))


@lru_cache(maxsize=64)
def unbounded_run_profile_sgd(run: RandomBatchRun) -> tuple[Floats, Floats]:
    """Return the profile of the recursion, on a coarse grid over the hidden-state bound, then on a fine one."""
    delta_curve, values = hidden_state_deltas(run)
    top = cv.rdp_epsilon(ORDERS, values, MIN_PROFILE_DELTA)
    if not math.isfinite(top):
        return np.zeros(1), np.ones(1)
    if not top / 1600 > 0:
        return np.zeros(1), delta_curve(np.zeros(1))
    tables = BlockTables(run, step_renyi_curves(run, ORDERS))
    coarse = np.linspace(0.0, top, 121)
    deltas = tables.refine_profile(delta_curve(coarse), coarse, 1e-3)
    small = np.flatnonzero(deltas <= max(MIN_PROFILE_DELTA, 1.01 * float(deltas[-1])))
    high = float(coarse[max(small[0], 1)])
    fine = np.linspace(0.0, high, 161)
    deltas = tables.refine_profile(
        np.minimum(delta_curve(fine), interpolate_deltas(fine, coarse, deltas)), fine, 1e-3
    )
    finer = np.linspace(0.0, high, 1601)
    deltas_on_finer = np.minimum(delta_curve(finer), interpolate_deltas(finer, fine, deltas))
    tail = np.linspace(high, max(cv.rdp_epsilon(ORDERS, values, 1e-60), 2 * high), 101)[1:]
    return np.append(finer, tail), np.minimum.accumulate(np.append(deltas_on_finer, delta_curve(tail)))


class BlockSGD(NoisyGradientTheorem, name="block-sgd", proof="docs/theory/noisy_sgd.md, section 4, S4"):
    """Last iterate of noisy SGD on random batches and a bounded set: a profile delta(eps), no Renyi curve.

    Far below hidden-state-sgd once the run is long: with n = 1000, batches of 50, D = 1, nm = 10 and delta = 1e-5, an
    endless run costs eps 0.71 instead of 3.3.
    """

    reference = (
        "Hockey-stick recursion over blocks of steps (docs/theory/noisy_sgd.md, S4 and B5), on "
        "Altschuler and Talwar (2022)"
    )

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        run = make_random_batch_run(self, constants, spec)
        if math.isinf(run.diameter):
            raise self.refuse("the iterates are not confined to a bounded set", "State a finite diameter.")
        epsilons, deltas = block_profile_sgd(run)
        part = Profile(epsilons=tuple(epsilons.tolist()), deltas=tuple(deltas.tolist()))
        return self.guarantee(constants, spec, (part,), hidden_state_assumptions(constants, run.sampling))
