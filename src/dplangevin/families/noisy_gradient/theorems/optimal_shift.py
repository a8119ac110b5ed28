"""The optimal shift sequence: mu-GDP of the last iterate under any public full-batch schedule (B1, B2).

Two runs on neighbouring data drift apart by at most s_t a step, and a step contracts distances by c_t. Interpolate
from one to the other, paying a_t^2 / v_t^2 to close a_t of the gap at step t. With C_t = prod_{i>t} c_i the cheapest
sequence is the greatest convex minorant of the points x_t = sum (C_i v_i)^2, y_t = C_tau z_tau + sum C_i s_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._base import NoisyGradientTheorem
from dplangevin.families.noisy_gradient.theorems._units import (
    Units,
    contraction,
    released_segments,
    require_hidden_state,
    units,
)
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian
from dplangevin.privacy.theorem import inflated
from dplangevin.problem.constants import Constants


def minorant_energy(logs: Floats, widths: Floats, rises: Floats) -> float:
    """Sum of slope^2 dx over the greatest convex minorant of (0, 0), (dx_1, dy_1), (dx_1 + dx_2, dy_1 + dy_2), ...

    dx = e^{2 log} width and dy = e^log rise. Neighbours whose slopes fall are pooled: only sums of nonnegative numbers
    are formed, each in the scale of its larger term, so that no digits cancel and nothing that counts underflows
    however much scales vary. A rise over no width has infinite slope and is pooled with what follows.
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
    """mu^2 of T steps from two starts at most `start` apart: arrays s_t, v_t, c_t of length T."""
    with np.errstate(divide="ignore"):
        logs = np.log(contractions)
    rises = np.array(shifts, float)
    rises[0] += contractions[0] * start
    return minorant_energy(np.append(np.cumsum(logs[:0:-1])[::-1], 0.0), np.square(noises), rises)


def same_start_mu(shift: float, noise: float, contraction: float, n_steps: float) -> float:
    """mu after n_steps from a common start, no diameter: (s/v)^2 (1 - c^T)/(1 + c^T) (1 + c)/(1 - c); c <= 1.

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
    """mu of the last k steps from any two starts at most `diameter` apart; c <= 1.

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
    reach = drift + shift * gap / (1 - contraction)
    return reach * math.sqrt((1 - contraction) * (1 + contraction) / gap2) / noise


def best_restart_mu(shift: float, noise: float, contraction: float, diameter: float, n_steps: float) -> float:
    """The smallest restart_mu over 1 <= k <= n_steps (any k is valid, so the search need not be exact)."""
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
    place = int(np.argmin(values))
    low, high = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
    return min(values[place], _integer_search(evaluate, low, high))


def _integer_search(evaluate: Callable[[int], float], low: int, high: int) -> float:
    """Smallest value seen in a ternary search over integers."""
    while high - low > 8:
        third = (high - low) // 3
        if evaluate(low + third) <= evaluate(high - third):
            high = high - third
        else:
            low = low + third
    return min(evaluate(k) for k in range(low, high + 1))


class OptimalShift(NoisyGradientTheorem, name="optimal-shift", proof=""):
    """Last iterate of full-batch noisy gradient descent: mu-GDP by the optimal shift sequence.

    Constant schedules with c <= 1 use closed forms (T = infinity included); varying schedules and expansive maps
    (c > 1, bounded set) use the convex minorant. Exactly tight for quadratic losses without a diameter.
    """

    former_names = ("langevin-last-iterate",)
    reference = (
        "Bok, Su and Altschuler (2024), sections 3 and 4 (shifted interpolation); Altschuler and Talwar (2022), "
        "Propositions 2.8 and 3.2; Chourasia, Ye and Shokri (2021)"
    )

    def promise(self, constants: Constants, schedule: NoisyGradientSchedule) -> Guarantee:
        schedule.check_meaningful(constants)
        self.only_for("full", schedule)
        require_hidden_state(self, constants, schedule)
        if schedule.start == "unknown" and math.isinf(constants.diameter):
            raise self.refuse(
                "an unknown start needs a bounded set", "State a diameter, or start from public values."
            )
        largest = contraction(constants, float(np.max(schedule.step_size)))
        if largest > 1 and math.isinf(constants.diameter):
            raise self.refuse(
                f"a step may expand distances (contraction constant {largest:.6g} > 1) and the set is not bounded",
                f"Use a step size of at most 2/smoothness = {2 / constants.smoothness:.6g}, or state a diameter.",
            )
        if schedule.constant:
            mu = self._constant(constants, schedule)
        elif schedule.release == "checkpoints":
            raise self.refuse("checkpoints of a varying schedule are not covered", "Use a constant schedule.")
        else:
            mu = math.sqrt(self._varying(constants, schedule))
        if not math.isfinite(mu):
            raise self.refuse(
                "the two runs are never forced together (no strong convexity and no bounded set)",
                "Add a ridge, state a diameter, or give a finite number of steps.",
            )
        return self.guarantee(
            constants, schedule, (Gaussian(mu=inflated(mu)),), self._words(constants, schedule)
        )

    def _words(self, constants: Constants, schedule: NoisyGradientSchedule) -> tuple[str, ...]:
        released = "the checkpoints" if schedule.release == "checkpoints" else "the last iterate"
        shape = "convex" if constants.convex else "smooth"
        words = [
            f"only {released} and nothing else of the path is released",
            f"every loss is {shape} and smooth on the set",
        ]
        if math.isfinite(constants.diameter):
            words.append("every iterate is projected exactly on a set of the stated diameter")
        return tuple(words)

    def _constant(self, constants: Constants, schedule: NoisyGradientSchedule) -> float:
        u = units(constants, schedule)
        first, later = released_segments(schedule)
        squares = [self._segment(u, first, schedule.start) ** 2]
        squares += [uses * self._segment(u, gap, "data-independent") ** 2 for gap, uses in later]
        return math.sqrt(sum(squares))

    @staticmethod
    def _segment(u: Units, n_steps: float, start: str) -> float:
        """mu of n_steps from a common start, or from any start in the set.

        Endless runs from an unknown start include the shortest one, which forgets it least.
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
    def _varying(constants: Constants, schedule: NoisyGradientSchedule) -> float:
        steps = schedule.step_sizes()
        c = np.array([contraction(constants, float(step)) for step in np.unique(steps)])[
            np.searchsorted(np.unique(steps), steps)
        ]
        s = (
            steps * constants.gradient_sensitivity / constants.n
            + 2 * np.maximum(1.0, c) * constants.projection_error
        )
        v = steps * schedule.noise_stds()
        diameter = constants.diameter + 2 * constants.projection_error
        gap = np.empty(len(s) + 1)
        gap[0] = diameter if schedule.start == "unknown" else 0.0
        for t in range(len(s)):
            gap[t + 1] = min(diameter, c[t] * gap[t] + s[t])

        def value(k: int) -> float:
            return hull_energy(s[-k:], v[-k:], c[-k:], float(gap[len(s) - k]))

        best = value(len(s))
        if math.isfinite(diameter):
            blocks = [2**i for i in range(int(math.log2(len(s))) + 1)]
            values = [value(k) for k in blocks]
            centre = blocks[int(np.argmin(values))]
            near = {min(max(int(centre * f), 1), len(s)) for f in (0.6, 0.7, 0.84, 1.2, 1.4, 1.7)}
            best = min(best, *values, *(value(k) for k in near))
        return best


def expansive_mu(u: Units, n_steps: float, start: str) -> float:
    """Smallest mu over restarts for c > 1, by the convex minorant (the closed form is valid for few k only)."""
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
    centre = min(blocks, key=value)
    low, high = max(centre // 2, 1), min(2 * centre, top)
    return min(fresh, _integer_search(value, low, high))
