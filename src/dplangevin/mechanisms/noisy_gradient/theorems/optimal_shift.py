"""The optimal shift sequence: mu-GDP of the last iterate for any public full-batch step sizes and noise (B1, B2).

Two runs on neighbouring data drift apart by at most s_t a step, and a step contracts distances by c_t. Interpolate
from one to the other, at a cost of a_t^2 / v_t^2 for closing a_t of the gap at step t. With C_t = prod_{i>t} c_i the
cheapest sequence is the greatest convex minorant of the points x_t = sum (C_i v_i)^2,
y_t = C_tau z_tau + sum C_i s_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.theorem import round_up
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import (
    NoisyGradientTheorem,
    StepUnits,
    check_hidden_state,
    contraction_bound,
    released_segments,
    state_rounding,
    step_units,
)
from dplangevin.problem.constants import Constants


def minorant_energy(logs: Floats, widths: Floats, rises: Floats) -> float:
    """Return the sum of slope^2 dx over the greatest convex minorant of a polygonal line with increments dx, dy.

    The line is (0, 0), (dx_1, dy_1), (dx_1 + dx_2, dy_1 + dy_2), ... with dx = e^{2 log} width and dy = e^log rise.
    Neighbours whose slopes fall are pooled: only sums of nonnegative numbers are formed, each in the scale of its
    larger term, so that no digits cancel and no significant term underflows however much scales vary. A rise over no
    width has infinite slope and is pooled with what follows.
    """
    pool: list[tuple[float, float, float, float]] = []  # log slope, log, width, rise
    for log, dx, dy in zip(logs.tolist(), widths.tolist(), rises.tolist(), strict=True):
        if log == -math.inf:
            continue  # a later step forgets everything: no noise, no shift
        steep = _log_slope(log, dx, dy)
        while pool and pool[-1][0] >= steep:
            _, other, width, rise = pool.pop()
            top = max(log, other)
            here, there = math.exp(log - top), math.exp(other - top)
            log, dx, dy = top, dx * here**2 + width * there**2, dy * here + rise * there
            steep = _log_slope(log, dx, dy)
        pool.append((steep, log, dx, dy))
    total = math.fsum(dy * (dy / dx) if dx > 0 else math.inf for _, _, dx, dy in pool if not dy <= 0)
    return math.inf if math.isnan(total) else total * (1 + 1e-15 * len(widths))


def _log_slope(log: float, width: float, rise: float) -> float:
    if not rise > 0:
        return -math.inf if rise == 0 else math.nan
    return math.log(rise) - math.log(width) - log if width > 0 else math.inf


def hull_energy(shifts: Floats, noises: Floats, contractions: Floats, start: float = 0.0) -> float:
    """Return mu^2 of T steps from two starts at most `start` apart: arrays s_t, v_t, c_t of length T."""
    with np.errstate(divide="ignore"):
        logs = np.log(contractions)
    rises = np.array(shifts, float)
    rises[0] += contractions[0] * start
    return minorant_energy(np.append(np.cumsum(logs[:0:-1])[::-1], 0.0), np.square(noises), rises)


def same_start_mu(shift: float, noise: float, contraction: float, n_steps: float) -> float:
    """Return mu after n_steps from a common start, no diameter: (s/v)^2 (1 - c^T)/(1 + c^T) (1 + c)/(1 - c); c <= 1.

    Exactly attained by quadratic losses. c = 1: T (s/v)^2; T = infinity needs c < 1.
    """
    if contraction > 1:
        raise ValueError("the closed form needs a contraction constant of at most 1")
    if contraction == 1:
        return math.sqrt(n_steps) * (shift / noise)
    power = contraction**n_steps if contraction > 0 else 0.0
    reached = -math.expm1(n_steps * math.log(contraction)) if contraction > 0 else 1.0
    return (shift / noise) * math.sqrt(reached / (1 + power) * (1 + contraction) / (1 - contraction))


def restart_mu(shift: float, noise: float, contraction: float, diameter: float, k: float) -> float:
    """Return mu of the last k steps from any two starts at most `diameter` apart; c <= 1.

    (c^k D + s (1 - c^k)/(1 - c))^2 (1 - c^2)/(1 - c^{2k}) / v^2, and (k s + D)^2 / (k v^2) at c = 1.
    """
    if contraction > 1:
        raise ValueError("the closed form needs a contraction constant of at most 1")
    if contraction == 1:
        return (k * shift + diameter) / (math.sqrt(k) * noise)
    log = math.log(contraction) if contraction > 0 else -math.inf
    power = math.exp(k * log)
    gap, gap2 = -math.expm1(k * log), -math.expm1(2 * k * log)
    drift = power * diameter if power > 0 else 0.0
    distance = drift + shift * gap / (1 - contraction)
    return distance * math.sqrt((1 - contraction) * (1 + contraction) / gap2) / noise


def best_restart_mu(shift: float, noise: float, contraction: float, diameter: float, n_steps: float) -> float:
    """Return the smallest restart_mu found over 1 <= k <= n_steps (any k is valid; the search is not exact)."""
    if math.isinf(diameter):
        return math.inf
    top = n_steps if math.isfinite(n_steps) else max(4.0, 4 * diameter / shift)

    def evaluate(k: float) -> float:
        return restart_mu(shift, noise, contraction, diameter, k)

    if contraction == 1:
        ratio = min(diameter / shift, 1e300)
        candidates = [math.floor(ratio), math.floor(ratio) + 1]
        return min(evaluate(min(max(k, 1), top)) for k in candidates)
    grid = sorted({int(k) for k in np.geomspace(1, min(top, 1e15), 200)} | {int(min(top, 1e15))})
    values = [evaluate(k) for k in grid]
    index = int(np.argmin(values))
    low, high = grid[max(index - 1, 0)], grid[min(index + 1, len(grid) - 1)]
    return min(values[index], _integer_search(evaluate, low, high))


def _integer_search(evaluate: Callable[[int], float], low: int, high: int) -> float:
    """Return the smallest value found in a ternary search over integers."""
    while high - low > 8:
        third = (high - low) // 3
        if evaluate(low + third) <= evaluate(high - third):
            high = high - third
        else:
            low = low + third
    return min(evaluate(k) for k in range(low, high + 1))


class OptimalShift(NoisyGradientTheorem, name="optimal-shift", proof=""):
    """mu-GDP of the last iterate of full-batch noisy gradient descent, by the optimal shift sequence.

    Constant steps with c <= 1 use closed forms (T = infinity included); varying steps and expansive maps
    (c > 1, bounded set) use the convex minorant. Exactly tight for quadratic losses without a diameter.

    In exact runs states are rounded, so that two of them meet a little farther apart than the maps say: with
    release="last-state" the shift of a step contains that, docs/theory/exact_sums.md, section 8.
    """

    holds_for_rounded_noise = True

    reference = (
        "Bok, Su and Altschuler (2024), sections 3 and 4 (shifted interpolation); Altschuler and Talwar (2022), "
        "Propositions 2.8 and 3.2; Chourasia, Ye and Shokri (2021)"
    )

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        spec.check_combination(constants)
        self.check_sampling("full", spec)
        check_hidden_state(self, constants, spec)
        if spec.secure:
            self._check_states(constants, spec)
        if spec.start == "unknown" and math.isinf(constants.diameter):
            raise self.refuse(
                "an unknown start needs a bounded set", "State a diameter, or start from public values."
            )
        largest = contraction_bound(constants, float(np.max(spec.step_size)))
        if largest > 1 and math.isinf(constants.diameter):
            raise self.refuse(
                f"a step may expand distances (contraction constant {largest:.6g} > 1) and the set is not bounded",
                f"Use a step size of at most 2/smoothness = {2 / constants.smoothness:.6g}, or state a diameter.",
            )
        if spec.is_constant:
            mu = self._constant_mu(constants, spec)
        elif spec.release == "checkpoints":
            raise self.refuse(
                "checkpoints of varying steps are not covered", "Use one step_size and one noise_std."
            )
        else:
            mu = math.sqrt(self._varying_energy(constants, spec))
        if not math.isfinite(mu):
            raise self.refuse(
                "the two runs are never forced together (no strong convexity and no bounded set)",
                "Add a ridge, state a diameter, or give a finite number of steps.",
            )
        return self.guarantee(
            constants, spec, (Gaussian(mu=round_up(mu)),), self._assumptions(constants, spec)
        )

    def _check_states(self, constants: Constants, spec: NoisyGradientSpec) -> None:
        """Refuse exact runs whose rounding is not in the shifts."""
        if spec.release != "last-state":
            raise self.refuse(
                "its proof is about real-valued noise, and this run rounds every step to a grid",
                "Use release='last-state', composition, or secure=False.",
            )
        if constants.dimension is None:
            raise self.refuse("the number of parameters is not known", "State the dimension.")

    def _assumptions(self, constants: Constants, spec: NoisyGradientSpec) -> tuple[str, ...]:
        released = "the checkpoints" if spec.release == "checkpoints" else "the last iterate"
        shape = "convex" if constants.convex else "smooth"
        assumptions = [
            f"only {released} and nothing else of the path is released",
            f"every loss is {shape} and smooth on the set",
        ]
        if math.isfinite(constants.diameter):
            assumptions.append("every iterate is projected exactly on a set of the stated diameter")
        return tuple(assumptions)

    def _constant_mu(self, constants: Constants, spec: NoisyGradientSpec) -> float:
        u = step_units(constants, spec)
        first, later = released_segments(spec)
        squares = [self._segment_mu(u, first, spec.start) ** 2]
        squares += [uses * self._segment_mu(u, gap, "data-independent") ** 2 for gap, uses in later]
        return math.sqrt(sum(squares))

    @staticmethod
    def _segment_mu(u: StepUnits, n_steps: float, start: str) -> float:
        """Return mu of n_steps from a common start, or from any start in the set.

        A bound for endless runs from an unknown start covers one step, which forgets the start least.
        """
        if start == "unknown" and math.isinf(n_steps):
            n_steps = 1
        if u.contraction > 1:
            return expansive_mu(u, n_steps, start)
        fresh = math.inf
        if start == "data-independent" and not (u.contraction == 1 and math.isinf(n_steps)):
            fresh = same_start_mu(u.shift, u.noise, u.contraction, n_steps)
        return min(fresh, best_restart_mu(u.shift, u.noise, u.contraction, u.diameter, n_steps))

    @staticmethod
    def _varying_energy(constants: Constants, spec: NoisyGradientSpec) -> float:
        steps = spec.step_sizes()
        c = np.array([contraction_bound(constants, float(step)) for step in np.unique(steps)])[
            np.searchsorted(np.unique(steps), steps)
        ]
        s = (
            steps * constants.gradient_sensitivity / constants.n
            + 2 * np.maximum(1.0, c) * constants.projection_error
            + state_rounding(constants, spec, steps, spec.noise_stds(), c)
        )
        v = steps * spec.noise_stds()
        diameter = constants.diameter + 2 * constants.projection_error
        gap = np.empty(len(s) + 1)
        gap[0] = diameter if spec.start == "unknown" else 0.0
        for t in range(len(s)):
            gap[t + 1] = min(diameter, c[t] * gap[t] + s[t])

        def value(k: int) -> float:
            return hull_energy(s[-k:], v[-k:], c[-k:], float(gap[len(s) - k]))

        best = value(len(s))
        if math.isfinite(diameter):
            blocks = [2**i for i in range(int(math.log2(len(s))) + 1)]
            values = [value(k) for k in blocks]
            center = blocks[int(np.argmin(values))]
            near = {min(max(int(center * f), 1), len(s)) for f in (0.6, 0.7, 0.84, 1.2, 1.4, 1.7)}
            best = min(best, *values, *(value(k) for k in near))
        return best


def expansive_mu(u: StepUnits, n_steps: float, start: str) -> float:
    """Return the smallest mu over restarts for c > 1, by the convex minorant: the closed form holds for few k."""
    fresh = math.inf
    if start == "data-independent" and math.isfinite(n_steps):
        fresh = math.sqrt(n_steps) * (u.shift / u.noise)  # composition
    if math.isinf(u.diameter):
        return fresh
    top = int(min(n_steps, 4096))

    def value(k: int) -> float:
        steps = np.ones(k)
        return math.sqrt(hull_energy(u.shift * steps, u.noise * steps, u.contraction * steps, u.diameter))

    blocks = [k for k in (2**i for i in range(13)) if k <= top]
    center = min(blocks, key=value)
    low, high = max(center // 2, 1), min(2 * center, top)
    return min(fresh, _integer_search(value, low, high))
