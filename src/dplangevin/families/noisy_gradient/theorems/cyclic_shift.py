"""The optimal shift sequence for cyclic batches: a record acts once an epoch, always at the same place (B1, cyclic)."""

from __future__ import annotations

import math
from dataclasses import replace

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
from dplangevin.families.noisy_gradient.theorems.optimal_shift import hull_energy, minorant_energy
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian
from dplangevin.privacy.theorem import inflated
from dplangevin.problem.constants import Constants

MOST_EPOCHS = 20_000
MOST_WORK = 5_000_000
MOST_POSITIONS = 50_000


def participation_energy(
    u: Units, length: int, participations: int, idle: int, lead: int, start: float
) -> float:
    """mu^2 of a run seen from its end: `idle` steps after the last participation, `length` steps between two,
    `lead` idle steps before the first, from two starts at most `start` apart.

    Between participations y is flat, so only the points just before one, and the last, can touch the minorant.
    """
    back = idle + length * np.arange(
        participations - 1, -1, -1, dtype=float
    )  # steps after each participation
    after = np.append(
        back + 1, 0.0
    )  # steps that follow the point just before each participation, and the end
    counts = np.append(float(lead) if participations else float(idle + lead), after[:-1] - after[1:])
    log = math.log(max(u.contraction, 1e-300))
    rises = np.append(start, np.full(participations, u.shift))
    later = np.append(
        0.0, np.ones(participations)
    )  # a shift comes after its step's contraction, the start before
    if log <= 0:  # in units of the last step of each stretch
        logs, rises = log * after, rises * np.exp(log * (counts - later))
        widths = counts if log == 0 else np.expm1(2 * log * counts) / math.expm1(2 * log)
    else:  # of the first
        logs = log * (after + counts - later)
        widths = np.expm1(-2 * log * counts) / math.expm1(-2 * log) * np.exp(2 * log * (later - 1))
    return minorant_energy(logs, widths * u.noise**2, rises)


def cyclic_energy(u: Units, length: int, n_steps: float, start: str) -> float:
    """mu^2 of the worst position of a record, constant schedule.

    From a common start, moving a record one place later equals prepending an idle step and dropping the last one, and
    an idle last step never hurts, so only two positions can be worst: the last place of the epoch and the place acting
    at the last step. From an unknown start a prepended idle step may help, so every position is looked at, or all are
    covered by the run without the idle steps. n_steps = infinity: a bound for every number of steps, since prepending
    steps never lowers that of a common start; from an unknown start the shortest run is the worst.
    """
    unknown = start == "unknown"
    if math.isinf(n_steps):
        return (
            participation_energy(u, length, 1, 0, 0, u.diameter) if unknown else _unlimited(u, length, False)
        )
    steps = int(n_steps)
    if steps / length > 10 * MOST_EPOCHS:
        return _unlimited(u, length, unknown)
    patterns = _unknown_patterns(steps, length) if unknown else _worst_patterns(steps, length)
    return max(_pattern_energy(u, length, *pattern, unknown) for pattern in patterns)


def _pattern_energy(u: Units, length: int, participations: int, idle: int, lead: int, unknown: bool) -> float:
    """mu^2 of one position: from the start, or from any two points of the set some epochs before the end."""
    if not math.isfinite(u.diameter):
        return math.inf if unknown else participation_energy(u, length, participations, idle, lead, 0.0)
    apart = u.diameter if unknown else 0.0
    found = participation_energy(u, length, participations, idle, lead, apart)
    looks = [k for k in _restarts(u, participations) if k < participations]
    return min([found, *(participation_energy(u, length, k, idle, length - 1, u.diameter) for k in looks)])


def _worst_patterns(steps: int, length: int) -> list[tuple[int, int, int]]:
    """(participations, idle last steps, idle first steps) of the two positions that can be worst."""
    epochs, rest = divmod(steps, length)
    found = [(epochs, rest, length - 1)] if epochs else []  # the last place of each epoch
    if rest:
        found.append((epochs + 1, 0, rest - 1))  # the place that acts at the very last step
    return found


def _unknown_patterns(steps: int, length: int) -> list[tuple[int, int, int]]:
    """Those of every position, or without any idle step where these are too many to look at."""
    if min(length, steps) * math.ceil(steps / length) > MOST_POSITIONS:
        return [(max(steps // length, 1), 0, 0)] + [(steps // length + 1, 0, 0)] * (steps % length > 0)
    found = []
    for place in range(min(length, steps)):
        idle = (steps - 1 - place) % length
        found.append(((steps - 1 - place) // length + 1, idle, place))
    return found


def _unlimited(u: Units, length: int, unknown: bool) -> float:
    """For every number of steps from a common start, or of more than MOST_EPOCHS epochs from an unknown one."""
    reach = u.diameter
    if u.contraction < 1 and not unknown:
        reach = min(reach, u.shift / -math.expm1(length * math.log(u.contraction)))
    if math.isinf(reach):
        return math.inf
    counts = _restarts(replace(u, diameter=reach), MOST_EPOCHS)
    return min(participation_energy(u, length, k, 0, length - 1, reach) for k in counts)


def _restarts(u: Units, most: int) -> list[int]:
    """Numbers of epochs to look back on: log-spaced, dense around D/s."""
    around = min(u.diameter / u.shift, 1e9) if math.isfinite(u.diameter) else 1.0
    grid = set(np.geomspace(1, max(most, 1), 40).astype(int).tolist())
    grid |= {int(around * f) + extra for f in (0.25, 0.5, 0.75, 1, 1.5, 2) for extra in (0, 1)}
    return sorted(k for k in grid if 1 <= k <= min(most, MOST_EPOCHS))


class CyclicShift(NoisyGradientTheorem, name="cyclic-shift", proof=""):
    """Last iterate of noisy SGD over a fixed public partition: mu-GDP at the worst position of the record."""

    reference = "Bok, Su and Altschuler (2024), section 4 (shifted interpolation with cyclic batches)"

    def promise(self, constants: Constants, schedule: NoisyGradientSchedule) -> Guarantee:
        schedule.check_meaningful(constants)
        self.only_for("cyclic", schedule)
        require_hidden_state(self, constants, schedule)
        length = math.ceil(constants.n / schedule.divisor(constants.n))
        if schedule.start == "unknown" and math.isinf(constants.diameter):
            raise self.refuse(
                "an unknown start needs a bounded set", "State a diameter, or start from public values."
            )
        if not schedule.constant or constants.projection_error > 0:
            energy = self._scan(constants, schedule, length)
        else:
            energy = self._constant(constants, schedule, length)
        if not math.isfinite(energy):
            raise self.refuse(
                "the two runs are never forced together (no strong convexity and no bounded set)",
                "Add a ridge, state a diameter, or give a finite number of steps.",
            )
        words = (
            "only the released iterates and nothing else of the path leave the run",
            "every loss is convex and smooth on the set"
            if constants.convex
            else "every loss is smooth on the set",
            "batches are a fixed public partition, visited in the same order in every epoch",
        )
        return self.guarantee(constants, schedule, (Gaussian(mu=inflated(math.sqrt(energy))),), words)

    def _constant(self, constants: Constants, schedule: NoisyGradientSchedule, length: int) -> float:
        u = units(constants, schedule)
        first, later = released_segments(schedule)
        total = cyclic_energy(u, length, first, schedule.start)
        for gap, uses in later:
            # a segment may start anywhere in an epoch: its worst position acts at its last step
            total += uses * _segment_energy(u, length, gap)
        return total

    def _scan(self, constants: Constants, schedule: NoisyGradientSchedule, length: int) -> float:
        """Every position by the full minorant: needed when steps differ or every step carries a projection error."""
        if (
            math.isinf(schedule.n_steps)
            or length * schedule.n_steps > MOST_WORK
            or schedule.release == "checkpoints"
        ):
            raise self.refuse(
                "a varying schedule or an inexact projection is checked position by position, and this run is too long",
                "Use a constant schedule with an exact projection, or fewer steps.",
            )
        steps = schedule.step_sizes()
        c = np.array([contraction(constants, float(step)) for step in steps])
        s = steps * constants.gradient_sensitivity / schedule.divisor(constants.n)
        error = 2 * np.maximum(1.0, c) * constants.projection_error
        v = steps * schedule.noise_stds()
        diameter = constants.diameter + 2 * constants.projection_error
        place = np.arange(len(steps)) % length
        return max(
            _position_energy(np.where(place == j, s, 0.0) + error, v, c, diameter, schedule.start)
            for j in range(min(length, len(steps)))
        )


def _segment_energy(u: Units, length: int, steps: int) -> float:
    """mu^2 of the steps between two releases, from a common start."""
    participations = math.ceil(steps / length)
    if participations > 10 * MOST_EPOCHS:
        return _unlimited(u, length, False)
    return _pattern_energy(u, length, participations, 0, (steps - 1) % length, False)


def _position_energy(s: Floats, v: Floats, c: Floats, diameter: float, start: str) -> float:
    gap = np.empty(len(s) + 1)
    gap[0] = diameter if start == "unknown" else 0.0
    for t in range(len(s)):
        gap[t + 1] = min(diameter, c[t] * gap[t] + s[t])
    looks = {len(s)}
    if math.isfinite(diameter):
        looks |= {2**i for i in range(int(math.log2(len(s))) + 1)}
    return min(hull_energy(s[-k:], v[-k:], c[-k:], float(gap[len(s) - k])) for k in looks)
