"""The optimal shift sequence for cyclic and shuffled batches, where a record takes part once an epoch (B1).

Cyclic: always at the same position. Shuffled: a fresh permutation each epoch, with adversarial positions, or averaged
over positions when permutations are secret (B1, d).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian, Profile
from dplangevin.accounting.theorem import round_up
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import (
    NoisyGradientTheorem,
    StepUnits,
    check_hidden_state,
    contraction_bound,
    released_segments,
    step_units,
)
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import hull_energy, minorant_energy
from dplangevin.problem.constants import Constants

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
