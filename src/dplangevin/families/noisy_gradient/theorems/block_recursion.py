"""The block recursion: a delta(eps) profile of the last iterate on a bounded set, for any run length (B3).

Let P, P' be the laws of the two runs k steps before the end and e = H_{g1}(P || P'), where H_g(P || Q) =
sup_S P(S) - g Q(S). Split P = A + E and g1 P' = A + B with A = min(P, g1 P'). The last k steps map the
common part A to laws that differ as two runs from one start do (mu = m1 by the optimal shift sequence), and
E, B to laws that differ as two runs from starts D apart do (mu = m2). With theta(mu, eps) the delta of
mu-GDP and g_i = e^{eps_i},

    H_{g1 g2} <= theta(m1, eps2) + e theta(m2, eps2 + log((g1 - 1 + e) / e)),

nondecreasing in e, so a valid profile on the right gives a valid (often far smaller) one on the left. It
holds for every number of steps: a run shorter than k has one common start. `_capped_composition` has the sharper
form (B5) that is iterated last: only the excess over a cap is moved across the set, the rest is composed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._base import NoisyGradientTheorem
from dplangevin.families.noisy_gradient.theorems._capped_composition import capped_sweep
from dplangevin.families.noisy_gradient.theorems._units import require_hidden_state, units
from dplangevin.families.noisy_gradient.theorems.optimal_shift import (
    best_restart_mu,
    restart_mu,
    same_start_mu,
)
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Profile
from dplangevin.problem.constants import Constants

SMALLEST_DELTA = 1e-15  # the profile is computed down to this delta
COARSE, FINE = 60, 120  # grid points; twice as many lower eps by 0.3% or less
_FLOOR = 1e-299
_TABLE = 30_000


def gdp_delta_above(mu: float, epsilons: Floats) -> Floats:
    """delta of mu-GDP with rounding errors pushed upwards, and at least 1e-299: it never claims zero."""
    if not math.isfinite(mu):
        return np.ones_like(epsilons)
    mu *= 1 + 1e-12
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        upper = log_ndtr(-epsilons / mu + mu / 2)
        lower = epsilons + log_ndtr(-epsilons / mu - mu / 2)
        slack = 1e-15 * (2 + mu + np.abs(upper) + np.abs(lower) + 2 * epsilons)
        value = np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0.0) - slack) * (1 + 1e-12)
    value = np.where(upper < -680.0, _FLOOR, np.where(np.isnan(value), 1.0, value))
    return np.asarray(np.clip(value, _FLOOR, 1.0))


def shift_mu(step: float, noise: float, contraction: float, diameter: float, n_steps: float) -> float:
    """mu of the last iterate by the optimal shift sequence: a common start, or a restart from anywhere."""
    fresh = math.inf
    if contraction < 1 or math.isfinite(n_steps):
        fresh = same_start_mu(step, noise, contraction, n_steps)
    return min(fresh, best_restart_mu(step, noise, contraction, diameter, n_steps))


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
    """Valid deltas at `epsilons`, a uniform grid from 0, of the last iterate after any number of steps.

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
    [0.0176, 5.42e-05]
    """
    eps = np.asarray(epsilons, float)
    spacing = _spacing(eps)
    if start is None:
        start = gdp_delta_above(shift_mu(step, noise, contraction, diameter, math.inf), eps)
    first, second = _tables(step, noise, contraction, diameter, block_lengths, eps)
    deltas = np.clip(np.nan_to_num(np.asarray(start, float), nan=1.0), _FLOOR, 1.0)
    deltas = iterated(lambda d: _sweep(d, eps, spacing, first, second), deltas, sweeps, tolerance)
    return np.asarray(np.minimum(1.0, deltas * (1 + 1e-9)))


def iterated(sweep: Callable[[Floats], Floats], deltas: Floats, sweeps: int, tolerance: float) -> Floats:
    """A sweep repeated until no log delta moves by `tolerance`."""
    for _ in range(sweeps):
        better = sweep(deltas)
        moved = float(np.max(np.log(deltas / better)))
        deltas = better
        if moved < tolerance:
            break
    return deltas


def _tables(
    step: float,
    noise: float,
    contraction: float,
    diameter: float,
    block_lengths: Sequence[int],
    eps: Floats,
) -> tuple[Floats, Floats]:
    """theta(m1, .) of every block on the grid, and theta(m2, .) on a longer one of the same spacing."""
    spacing = float(eps[1])
    same = [same_start_mu(step, noise, contraction, k) for k in block_lengths]
    apart = [restart_mu(step, noise, contraction, diameter, k) for k in block_lengths]
    reach = max(2 * eps[-1], max(cv.gdp_epsilon(mu, 1e-20) for mu in apart))
    size = len(eps) + int(min(reach / spacing, _TABLE)) + 2
    first = np.array([gdp_delta_above(mu, eps) for mu in same])
    second = np.array([gdp_delta_above(mu, spacing * np.arange(size, dtype=float)) for mu in apart])
    return first, second


def _spacing(eps: Floats) -> float:
    if eps.ndim != 1 or len(eps) < 2 or eps[0] != 0 or not eps[1] > 0:
        raise InvalidParameter("epsilons must be a uniform grid 0, h, 2h, ... with at least two points.")
    if not np.allclose(eps, eps[1] * np.arange(len(eps)), rtol=1e-12, atol=0):
        raise InvalidParameter("epsilons must be uniformly spaced; use numpy.arange(n) * h.")
    return float(eps[1])


def _sweep(deltas: Floats, eps: Floats, spacing: float, first: Floats, second: Floats) -> Floats:
    """One application of the recursion with every split of eps on the grid and every block length.

    The second theta falls between grid points. It is convex in e^eps, so interpolating linearly in e^eps
    between two tabulated values is above it; past the end of the table the last value is.
    """
    n, size = len(eps), second.shape[1]
    log_deltas = np.log(deltas)
    with np.errstate(divide="ignore"):
        log_gain = eps + np.log(-np.expm1(-eps))  # log(e^eps - 1) without overflow
    offset = np.logaddexp(log_gain, log_deltas) - log_deltas
    offset = np.maximum(offset * (1 - 1e-14) - 1e-15, 0.0)
    place = np.minimum((offset / spacing).astype(int), size - n - 1)
    weight = _chord(offset - place * spacing, spacing)
    better = deltas.copy()
    for i in range(n):
        width, at = n - i, place[i]
        total = second[:, at : at + width] * (deltas[i] * (1 - weight[i]))
        total += second[:, at + 1 : at + 1 + width] * (deltas[i] * weight[i])
        total += first[:, :width]
        np.minimum(better[i:], total.min(axis=0), out=better[i:])
    return np.minimum.accumulate(better)


def _chord(gap: Floats, spacing: float) -> Floats:
    """Weight of the right end of a chord in e^eps, rounded down (so towards the larger, left end)."""
    if spacing > 700:
        return np.zeros_like(gap)
    weight = np.expm1(np.clip(gap, 0.0, spacing)) / math.expm1(spacing)
    return np.asarray(np.clip(weight - 1e-12, 0.0, 1.0))


def block_lengths(noise: float, diameter: float, n_steps: float) -> list[int]:
    """Short blocks, and blocks around the time (D/v)^2 that noise alone needs to cross the set."""
    crossing = (diameter / noise) ** 2
    wanted = {1, 2, 3, 5, 8} | {round(min(f * crossing, 1e15)) for f in np.geomspace(0.02, 12, 18)}
    return sorted(k for k in wanted if 1 <= k <= n_steps)


def winning_blocks(lengths: Sequence[int], noise: float, contraction: float, diameter: float) -> list[int]:
    """Places of the blocks worth a capped sweep: without contraction, about the time it takes to cross the set."""
    crossing = (diameter / noise) ** 2
    if contraction < 1:
        return list(range(len(lengths)))
    found = [i for i, k in enumerate(lengths) if 0.05 * crossing <= k <= 2 * crossing]
    return found or list(range(len(lengths)))


def last_iterate_profile(
    step: float, noise: float, contraction: float, diameter: float, n_steps: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The recursion, which holds for every number of steps, and the shift bound for this one: grows with n_steps."""
    epsilons, deltas = endless_profile(step, noise, contraction, diameter)
    if math.isinf(n_steps):
        return epsilons, deltas
    mu = shift_mu(step, noise, contraction, diameter, n_steps)
    if len(epsilons) == 1:  # nothing was computed; the shift bound alone
        top = cv.gdp_epsilon(mu, SMALLEST_DELTA)
        if not (math.isfinite(top) and top / FINE > 0):
            return epsilons, tuple(np.minimum(deltas, gdp_delta_above(mu, np.zeros(1))).tolist())
        epsilons, deltas = (0.0, top), (1.0, 1.0)
    known = np.array(epsilons)
    finer = np.linspace(0.0, float(known[-1]), 8 * (max(len(known), FINE) - 1) + 1)
    best = np.minimum(_interpolated(finer, known, np.array(deltas)), gdp_delta_above(mu, finer))
    return tuple(finer.tolist()), tuple(np.minimum.accumulate(best).tolist())


@lru_cache(maxsize=256)
def endless_profile(
    step: float, noise: float, contraction: float, diameter: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The recursion on a grid of its own: coarse over the range of the shift bound, then fine."""
    mu = shift_mu(step, noise, contraction, diameter, math.inf)
    top = cv.gdp_epsilon(mu, SMALLEST_DELTA)
    if not math.isfinite(top):
        return (0.0,), (1.0,)
    if not top / FINE > 0:
        return (0.0,), (float(gdp_delta_above(mu, np.zeros(1))[0]),)
    lengths = block_lengths(noise, diameter, math.inf)
    run = (step, noise, contraction, diameter, lengths)
    coarse = np.arange(COARSE + 1, dtype=float) * (top / COARSE)
    deltas = block_profile(*run, coarse, start=gdp_delta_above(mu, coarse), tolerance=1e-3)
    lengths = [lengths[i] for i in winning_blocks(lengths, noise, contraction, diameter)]
    for size, tolerance in (
        (COARSE, 3e-3),
        (COARSE, 1e-3),
        (FINE, 1e-3),
    ):  # the range shrinks with the deltas
        small = np.flatnonzero(deltas <= SMALLEST_DELTA)
        top = float(coarse[small[0]]) if small.size and small[0] > 0 else top
        grid = np.arange(size + 1, dtype=float) * (top / size)
        begin = np.minimum(gdp_delta_above(mu, grid), _interpolated(grid, coarse, deltas))
        tables = _tables(step, noise, contraction, diameter, lengths, grid)
        deltas = iterated(partial(_capped, grid, tables), np.clip(begin, _FLOOR, 1.0), 60, tolerance)
        coarse = grid
    return tuple(coarse.tolist()), tuple(np.minimum(1.0, deltas * (1 + 1e-9)).tolist())


def _capped(eps: Floats, tables: tuple[Floats, Floats], deltas: Floats) -> Floats:
    return capped_sweep(deltas, eps, *tables)


def _interpolated(at: Floats, eps: Floats, deltas: Floats) -> Floats:
    """Valid deltas between grid points: the true curve is convex in e^eps, so chords lie above it."""
    place = np.clip(np.searchsorted(eps, at, side="right") - 1, 0, len(eps) - 2)
    weight = _chord(at - eps[place], float(eps[1]))
    return np.asarray((1 - weight) * deltas[place] + weight * deltas[place + 1])


BOUNDED_RUN = (
    "only the last iterate and nothing else of the path is released",
    "every iterate is projected exactly on a set of the stated diameter",
    "the starting point does not depend on the private data",
)


def require_bounded_run(
    theorem: NoisyGradientTheorem, constants: Constants, schedule: NoisyGradientSchedule
) -> None:
    """Full batch, constant schedule, public start, exact projection on a bounded set, last iterate only."""
    schedule.check_meaningful(constants)
    theorem.only_for("full", schedule)
    require_hidden_state(theorem, constants, schedule)
    if schedule.release != "last-iterate":
        raise theorem.refuse(
            f"release={schedule.release!r} is not the last iterate alone", "Release the last iterate."
        )
    if not schedule.constant:
        raise theorem.refuse(
            "step size or noise varies between steps", "Use one step_size and one noise_std."
        )
    theorem.public_start(schedule, "Start from public values, or use optimal-shift.")
    if math.isinf(constants.diameter):
        raise theorem.refuse("the iterates are not confined to a bounded set", "State a finite diameter.")
    theorem.exact_projection(constants, ", or optimal-shift")


class BlockRecursion(
    NoisyGradientTheorem, name="block-recursion", proof="docs/theory/noisy_sgd.md, section 3, B3"
):
    """Last iterate of full-batch noisy gradient descent on a bounded set: delta(eps), no Renyi curve.

    Much below the optimal shift bound once the run is longer than it takes to forget its start: at D / v =
    20, s D / v^2 = 0.05, T = infinity and delta = 1e-5 it gives eps 0.16 instead of 1.76.
    """

    reference = (
        "Hockey-stick recursion over blocks of steps (docs/theory/noisy_sgd.md, B3 and B5), "
        "on shifted interpolation of Bok, Su and Altschuler (2024)"
    )

    def promise(self, constants: Constants, schedule: NoisyGradientSchedule) -> Guarantee:
        require_bounded_run(self, constants, schedule)
        u = units(constants, schedule)
        if u.contraction > 1:
            raise self.refuse(
                f"the gradient step expands distances (contraction constant {u.contraction:.6g} > 1)",
                f"Lower step_size to 2 / smoothness = {2 / constants.smoothness:.6g} (convex losses only).",
            )
        epsilons, deltas = last_iterate_profile(u.shift, u.noise, u.contraction, u.diameter, schedule.n_steps)
        words = (*BOUNDED_RUN, "every loss is convex and smooth on the set")
        return self.guarantee(constants, schedule, (Profile(epsilons=epsilons, deltas=deltas),), words)
