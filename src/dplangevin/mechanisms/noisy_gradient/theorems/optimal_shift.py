"""The optimal shift sequence: mu-GDP of the last iterate on full batches, and on cyclic and shuffled ones (B1, B2).

Two runs on neighbouring data drift apart by at most s_t a step, and a step contracts distances by c_t. Interpolate
from one to the other, at a cost of a_t^2 / v_t^2 for closing a_t of the gap at step t. With C_t = prod_{i>t} c_i the
cheapest sequence is the greatest convex minorant of the points x_t = sum (C_i v_i)^2,
y_t = C_tau z_tau + sum C_i s_i.

Cyclic: always at the same position. Shuffled: a fresh permutation each epoch, with adversarial positions, or averaged
over positions when permutations are secret (B1, d).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian, Profile
from dplangevin.accounting.plan import round_up
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


MAX_EPOCHS = 20_000
MAX_POSITION_STEPS = 5_000_000
MAX_POSITIONS = 50_000


def participation_energy(
    u: StepUnits, length: int, participations: int, idle: int, lead: int, start: float
) -> float:
    """Return mu^2 of a run in which a record takes part every `length` steps.

    There are `lead` idle steps before the first participation and `idle` after the last, from two starts at most
    `start` apart. Between participations y is flat, so only the points just before one, and the last, can touch the
    minorant.
    """
    steps_after = idle + length * np.arange(participations - 1, -1, -1, dtype=float)
    # steps that follow the point just before each participation, and the end
    after = np.append(steps_after + 1, 0.0)
    counts = np.append(float(lead) if participations else float(idle + lead), after[:-1] - after[1:])
    log = math.log(max(u.contraction, 1e-300))
    rises = np.append(start, np.full(participations, u.shift))
    # a shift comes after its step's contraction, the start before
    later = np.append(0.0, np.ones(participations))
    if log <= 0:  # in units of the last step of each stretch
        logs, rises = log * after, rises * np.exp(log * (counts - later))
        widths = counts if log == 0 else np.expm1(2 * log * counts) / math.expm1(2 * log)
    else:  # of the first
        logs = log * (after + counts - later)
        widths = np.expm1(-2 * log * counts) / math.expm1(-2 * log) * np.exp(2 * log * (later - 1))
    return minorant_energy(logs, widths * u.noise**2, rises)


def cyclic_energy(u: StepUnits, length: int, n_steps: float, start: str) -> float:
    """Return mu^2 of the worst position of a record, for constant steps.

    From a common start, moving a record one position later equals prepending an idle step and dropping the last one,
    and an idle last step never increases mu, so only two positions can be worst: the last of the epoch and the one
    that acts at the last step. From an unknown start a prepended idle step may lower mu, so every position is tried,
    or all are covered by the run without idle steps. n_steps = infinity: a bound for every number of steps, since
    prepending steps never lowers that of a common start; from an unknown start the shortest run is the worst.
    """
    unknown = start == "unknown"
    if math.isinf(n_steps):
        return (
            participation_energy(u, length, 1, 0, 0, u.diameter)
            if unknown
            else _unbounded_run_energy(u, length, False)
        )
    steps = int(n_steps)
    if steps / length > 10 * MAX_EPOCHS:
        return _unbounded_run_energy(u, length, unknown)
    patterns = _unknown_patterns(steps, length) if unknown else _worst_patterns(steps, length)
    return max(_pattern_energy(u, length, *pattern, unknown) for pattern in patterns)


def _pattern_energy(
    u: StepUnits, length: int, participations: int, idle: int, lead: int, unknown: bool
) -> float:
    """Return mu^2 of one position: from the start, or from any two points of the set some epochs before the end."""
    if not math.isfinite(u.diameter):
        return math.inf if unknown else participation_energy(u, length, participations, idle, lead, 0.0)
    start_distance = u.diameter if unknown else 0.0
    energy = participation_energy(u, length, participations, idle, lead, start_distance)
    restarts = [k for k in _restart_epochs(u, participations) if k < participations]
    return min(
        [energy, *(participation_energy(u, length, k, idle, length - 1, u.diameter) for k in restarts)]
    )


def _worst_patterns(steps: int, length: int) -> list[tuple[int, int, int]]:
    """Return (participations, idle last steps, idle first steps) of the two positions that can be worst."""
    epochs, rest = divmod(steps, length)
    patterns = [(epochs, rest, length - 1)] if epochs else []  # the last position of each epoch
    if rest:
        patterns.append((epochs + 1, 0, rest - 1))  # the position that acts at the very last step
    return patterns


def _unknown_patterns(steps: int, length: int) -> list[tuple[int, int, int]]:
    """Return the patterns of every position, or those without idle steps where these are too many."""
    if min(length, steps) * math.ceil(steps / length) > MAX_POSITIONS:
        return [(max(steps // length, 1), 0, 0)] + [(steps // length + 1, 0, 0)] * (steps % length > 0)
    patterns = []
    for position in range(min(length, steps)):
        idle = (steps - 1 - position) % length
        patterns.append(((steps - 1 - position) // length + 1, idle, position))
    return patterns


def _unbounded_run_energy(u: StepUnits, length: int, unknown: bool) -> float:
    """Return mu^2 for every number of steps from a common start, or for > MAX_EPOCHS epochs from an unknown one."""
    max_distance = u.diameter
    if u.contraction < 1 and not unknown:
        max_distance = min(max_distance, u.shift / -math.expm1(length * math.log(u.contraction)))
    if math.isinf(max_distance):
        return math.inf
    counts = _restart_epochs(replace(u, diameter=max_distance), MAX_EPOCHS)
    return min(participation_energy(u, length, k, 0, length - 1, max_distance) for k in counts)


def _restart_epochs(u: StepUnits, most: int) -> list[int]:
    """Return numbers of epochs before the end at which to restart: log-spaced, dense around D/s."""
    around = min(u.diameter / u.shift, 1e9) if math.isfinite(u.diameter) else 1.0
    grid = set(np.geomspace(1, max(most, 1), 40).astype(int).tolist())
    grid |= {int(around * f) + extra for f in (0.25, 0.5, 0.75, 1, 1.5, 2) for extra in (0, 1)}
    return sorted(k for k in grid if 1 <= k <= min(most, MAX_EPOCHS))


class CyclicShift(NoisyGradientTheorem, name="cyclic-shift", proof=""):
    """Last iterate of noisy SGD over a fixed public partition: mu-GDP at the worst position of the record."""

    reference = "Bok, Su and Altschuler (2024), section 4 (shifted interpolation with cyclic batches)"

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        spec.check_combination(constants)
        self.check_sampling("cyclic", spec)
        check_hidden_state(self, constants, spec)
        length = math.ceil(constants.n / spec.divisor(constants.n))
        if spec.start == "unknown" and math.isinf(constants.diameter):
            raise self.refuse(
                "an unknown start needs a bounded set", "State a diameter, or start from public values."
            )
        if not spec.is_constant or constants.projection_error > 0:
            energy = self._scan_positions(constants, spec, length)
        else:
            energy = self._constant_energy(constants, spec, length)
        if not math.isfinite(energy):
            raise self.refuse(
                "the two runs are never forced together (no strong convexity and no bounded set)",
                "Add a ridge, state a diameter, or give a finite number of steps.",
            )
        assumptions = (
            "only the covered iterates and nothing else of the path are released",
            "every loss is convex and smooth on the set"
            if constants.convex
            else "every loss is smooth on the set",
            "batches are a fixed public partition, visited in the same order in every epoch",
        )
        return self.guarantee(constants, spec, (Gaussian(mu=round_up(math.sqrt(energy))),), assumptions)

    def _constant_energy(self, constants: Constants, spec: NoisyGradientSpec, length: int) -> float:
        u = step_units(constants, spec)
        first, later = released_segments(spec)
        total = cyclic_energy(u, length, first, spec.start)
        for gap, uses in later:
            # a segment may start anywhere in an epoch: its worst position acts at its last step
            total += uses * _segment_energy(u, length, gap)
        return total

    def _scan_positions(self, constants: Constants, spec: NoisyGradientSpec, length: int) -> float:
        """Return mu^2 of the worst position by the full minorant, for varying steps or inexact projections."""
        if (
            math.isinf(spec.n_steps)
            or length * spec.n_steps > MAX_POSITION_STEPS
            or spec.release == "checkpoints"
        ):
            raise self.refuse(
                "varying steps or an inexact projection are checked position by position, and this run is too long",
                "Use constant step_size and noise_std with an exact projection, or fewer steps.",
            )
        steps = spec.step_sizes()
        c = np.array([contraction_bound(constants, float(step)) for step in steps])
        s = steps * constants.gradient_sensitivity / spec.divisor(constants.n)
        error = 2 * np.maximum(1.0, c) * constants.projection_error
        v = steps * spec.noise_stds()
        diameter = constants.diameter + 2 * constants.projection_error
        position = np.arange(len(steps)) % length
        return max(
            _position_energy(np.where(position == j, s, 0.0) + error, v, c, diameter, spec.start)
            for j in range(min(length, len(steps)))
        )


def _segment_energy(u: StepUnits, length: int, steps: int) -> float:
    """Return mu^2 of the steps between two releases, from a common start."""
    participations = math.ceil(steps / length)
    if participations > 10 * MAX_EPOCHS:
        return _unbounded_run_energy(u, length, False)
    return _pattern_energy(u, length, participations, 0, (steps - 1) % length, False)


def _position_energy(s: Floats, v: Floats, c: Floats, diameter: float, start: str) -> float:
    gap = np.empty(len(s) + 1)
    gap[0] = diameter if start == "unknown" else 0.0
    for t in range(len(s)):
        gap[t + 1] = min(diameter, c[t] * gap[t] + s[t])
    restarts = {len(s)}
    if math.isfinite(diameter):
        restarts |= {2**i for i in range(int(math.log2(len(s))) + 1)}
    return min(hull_energy(s[-k:], v[-k:], c[-k:], float(gap[len(s) - k])) for k in restarts)


def shuffle_mu(u: StepUnits, length: int, epochs: float, idle: float) -> float:
    """Return mu with `idle` steps after the last participation: (s/v)^2 [(E + 1)/l + 1/(r + 1)]; E = 1: 1/(r + 1)."""
    spread = (epochs + 1) / length if epochs > 1 else 0.0
    return u.shift / u.noise * math.sqrt(spread + 1 / (idle + 1))


def shuffle_restart_mu(u: StepUnits, length: int, epochs: float) -> float:
    """Return mu at the worst position, restarting k >= 2 epochs before the end from any two points of the set."""
    max_distance = u.diameter
    if u.contraction < 1:  # participations are at least (m - 1) l + 1 steps apart, m epochs back
        decay = u.contraction**length
        max_distance = min(max_distance, u.shift * (1 + u.contraction / (1 - decay)))
    if math.isinf(max_distance):
        return math.inf
    top = min(epochs, 10 * max_distance / u.shift + 10)
    if top < 2:
        return math.inf
    restarts = np.unique(np.floor(np.geomspace(2, top, 400)))
    shift_per_epoch = max_distance / restarts
    energy = (
        shift_per_epoch**2 / length
        + (restarts - 1) * (shift_per_epoch + u.shift) ** 2 / length
        + 2 * u.shift * (shift_per_epoch + u.shift) / length
    )
    return math.sqrt(float(np.min(energy)) + u.shift**2) / u.noise


def reused_permutation_mu(u: StepUnits, length: int, epochs: float, position: float) -> float:
    """Return mu of cyclic batches, no diameter, record in batch j of l: (s/v)^2 [(E - 1)/l + 1/(l - j + 1)]."""
    return u.shift / u.noise * math.sqrt((epochs - 1) / length + 1 / (length - position + 1))


def average_profiles(mus: np.ndarray, points: int = 1500) -> Profile:
    """Return delta(eps), the mean over positions of the GDP delta, on a grid that reaches delta = 1e-15."""
    top = max(cv.gdp_epsilon(float(np.max(mus)), 1e-15), 1e-6)
    epsilons = np.linspace(0.0, top, points)
    kinds, counts = np.unique(mus, return_counts=True)
    total = np.zeros(points)
    for mu, count in zip(kinds, counts, strict=True):
        total += count * cv.gdp_delta(round_up(float(mu)), epsilons)
    deltas = np.minimum(1.0, total / len(mus) * (1 + 1e-9) + 1e-300)
    return Profile(epsilons=tuple(epsilons.tolist()), deltas=tuple(deltas.tolist()))


class _EpochTheorem(NoisyGradientTheorem):
    """The shared hypotheses: whole epochs, constant steps, contraction at most 1, exact projection."""

    def _check_epochs(self, constants: Constants, spec: NoisyGradientSpec) -> tuple[StepUnits, int, float]:
        spec.check_combination(constants)
        check_hidden_state(self, constants, spec)
        if spec.release != "last-iterate":
            raise self.refuse(
                "checkpoints within an epoch would share a permutation", "Release the last iterate only."
            )
        if not spec.is_constant:
            raise self.refuse("step size or noise varies", "Use one step_size and one noise_std.")
        self.check_public_start(spec, "Start from public values.")
        self.check_exact_projection(constants)
        u = step_units(constants, spec)
        if u.contraction > 1:
            raise self.refuse(
                f"a step may expand distances (contraction constant {u.contraction:.6g} > 1)",
                f"Use a step size of at most 2/smoothness = {2 / constants.smoothness:.6g}.",
            )
        length = math.ceil(constants.n / spec.divisor(constants.n))
        if math.isfinite(spec.n_steps) and spec.n_steps % length:
            raise self.refuse(
                f"the run stops inside an epoch ({spec.n_steps} steps, {length} steps an epoch)",
                "Stop at the end of an epoch.",
            )
        return u, length, spec.n_steps / length

    EPOCH_ASSUMPTIONS = (
        "only the last iterate and nothing else of the path is released",
        "every loss is convex and smooth on the set",
        "the run stops at the end of an epoch",
    )


class ShuffledShift(_EpochTheorem, name="shuffled-shift", proof="docs/theory/noisy_sgd.md, section 3, B1"):
    """mu-GDP of the last iterate with a fresh permutation every epoch, whatever the permutations are."""

    reference = (
        "Bok, Su and Altschuler (2024), shifted interpolation; shifts of an epoch spread over the next"
    )

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        self.check_sampling("shuffle", spec)
        u, length, epochs = self._check_epochs(constants, spec)
        fresh = math.inf if math.isinf(epochs) else shuffle_mu(u, length, epochs, 0)
        mu = min(fresh, shuffle_restart_mu(u, length, epochs))
        if not math.isfinite(mu):
            raise self.refuse(
                "the two runs are never forced together (no strong convexity and no bounded set)",
                "Add a ridge, state a diameter, or give a finite number of steps.",
            )
        return self.guarantee(constants, spec, (Gaussian(mu=round_up(mu)),), self.EPOCH_ASSUMPTIONS)


class SecretPermutation(
    _EpochTheorem, name="secret-permutation", proof="docs/theory/noisy_sgd.md, section 3, B1"
):
    """Last iterate when permutations are uniform and secret: the GDP curve averaged over the last position.

    Fresh permutations (shuffle): average over the position in the last epoch, the others adversarial. One permutation
    reused in every epoch (cyclic, order="secret"): average over the position. Both by joint convexity.
    """

    reference = (
        "Bok, Su and Altschuler (2024), shifted interpolation; joint convexity over the record's position"
    )

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        fresh = spec.sampling == "shuffle"
        if not fresh and not (spec.sampling == "cyclic" and spec.order == "secret"):
            raise self.refuse(
                "no secret uniform permutation is drawn", "Use sampling='shuffle', or order='secret'."
            )
        u, length, epochs = self._check_epochs(constants, spec)
        if math.isinf(epochs):
            raise self.refuse("the number of epochs is not bounded", "Give a finite number of steps.")
        if constants.n % spec.divisor(constants.n):
            raise self.refuse(
                "positions are uniform over batches only when batch_size divides n",
                "Choose such a batch_size.",
            )
        mus = [
            shuffle_mu(u, length, epochs, r) if fresh else reused_permutation_mu(u, length, epochs, r + 1)
            for r in range(length)
        ]
        assumptions = (*self.EPOCH_ASSUMPTIONS, "permutations are uniform and secret")
        return self.guarantee(constants, spec, (average_profiles(np.array(mus)),), assumptions)
