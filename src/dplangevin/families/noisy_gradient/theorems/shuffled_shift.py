"""Shuffled batches: a fresh permutation each epoch, positions adversarial, or averaged when they are secret (B1, d)."""

from __future__ import annotations

import math

import numpy as np

from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._base import NoisyGradientTheorem
from dplangevin.families.noisy_gradient.theorems._units import (
    Units,
    require_hidden_state,
    units,
)
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Profile
from dplangevin.privacy.theorem import inflated
from dplangevin.problem.constants import Constants


def shuffle_mu(u: Units, length: int, epochs: float, idle: float) -> float:
    """mu with `idle` steps after the last participation: (s/v)^2 [(E + 1)/l + 1/(r + 1)]; E = 1: 1/(r + 1)."""
    spread = (epochs + 1) / length if epochs > 1 else 0.0
    return u.shift / u.noise * math.sqrt(spread + 1 / (idle + 1))


def shuffle_restart_mu(u: Units, length: int, epochs: float) -> float:
    """mu at the worst position, restarting k >= 2 epochs before the end from any two points of the set."""
    reach = u.diameter
    if u.contraction < 1:  # participations are at least (m - 1) l + 1 steps apart, m epochs back
        decay = u.contraction**length
        reach = min(reach, u.shift * (1 + u.contraction / (1 - decay)))
    if math.isinf(reach):
        return math.inf
    top = min(epochs, 10 * reach / u.shift + 10)
    if top < 2:
        return math.inf
    looks = np.unique(np.floor(np.geomspace(2, top, 400)))
    per = reach / looks
    energy = (
        per**2 / length + (looks - 1) * (per + u.shift) ** 2 / length + 2 * u.shift * (per + u.shift) / length
    )
    return math.sqrt(float(np.min(energy)) + u.shift**2) / u.noise


def reused_mu(u: Units, length: int, epochs: float, place: float) -> float:
    """mu of cyclic batches without a diameter, record in batch `place` of l: (s/v)^2 [(E - 1)/l + 1/(l - j + 1)]."""
    return u.shift / u.noise * math.sqrt((epochs - 1) / length + 1 / (length - place + 1))


def averaged_profile(mus: np.ndarray, points: int = 1500) -> Profile:
    """delta(eps) = mean over positions of the GDP delta, on a grid that reaches delta = 1e-15."""
    top = max(cv.gdp_epsilon(float(np.max(mus)), 1e-15), 1e-6)
    epsilons = np.linspace(0.0, top, points)
    kinds, counts = np.unique(mus, return_counts=True)
    total = np.zeros(points)
    for mu, count in zip(kinds, counts, strict=True):
        total += count * cv.gdp_delta(inflated(float(mu)), epsilons)
    deltas = np.minimum(1.0, total / len(mus) * (1 + 1e-9) + 1e-300)
    return Profile(epsilons=tuple(epsilons.tolist()), deltas=tuple(deltas.tolist()))


class _Epochs(NoisyGradientTheorem):
    """Shared hypotheses: whole epochs, constant schedule, contraction at most 1, exact projection."""

    def _require(self, constants: Constants, schedule: NoisyGradientSchedule) -> tuple[Units, int, float]:
        schedule.check_meaningful(constants)
        require_hidden_state(self, constants, schedule)
        if schedule.release != "last-iterate":
            raise self.refuse(
                "a permutation would be shared by checkpoints", "Release the last iterate only."
            )
        if not schedule.constant:
            raise self.refuse("step size or noise varies", "Use a constant schedule.")
        self.public_start(schedule, "Start from public values.")
        self.exact_projection(constants)
        u = units(constants, schedule)
        if u.contraction > 1:
            raise self.refuse(
                f"a step may expand distances (contraction constant {u.contraction:.6g} > 1)",
                f"Use a step size of at most 2/smoothness = {2 / constants.smoothness:.6g}.",
            )
        length = math.ceil(constants.n / schedule.divisor(constants.n))
        if math.isfinite(schedule.n_steps) and schedule.n_steps % length:
            raise self.refuse(
                f"the run stops inside an epoch ({schedule.n_steps} steps, {length} steps an epoch)",
                "Stop at the end of an epoch.",
            )
        return u, length, schedule.n_steps / length

    WORDS = (
        "only the last iterate and nothing else of the path is released",
        "every loss is convex and smooth on the set",
        "the run stops at the end of an epoch",
    )


class ShuffledShift(_Epochs, name="shuffled-shift", proof="docs/theory/noisy_sgd.md, section 3, B1"):
    """Last iterate with a fresh permutation every epoch, whatever the permutations are: mu-GDP."""

    reference = (
        "Bok, Su and Altschuler (2024), shifted interpolation; shifts of an epoch spread over the next"
    )

    def promise(self, constants: Constants, schedule: NoisyGradientSchedule) -> Guarantee:
        self.only_for("shuffle", schedule)
        u, length, epochs = self._require(constants, schedule)
        fresh = math.inf if math.isinf(epochs) else shuffle_mu(u, length, epochs, 0)
        mu = min(fresh, shuffle_restart_mu(u, length, epochs))
        if not math.isfinite(mu):
            raise self.refuse(
                "the two runs are never forced together (no strong convexity and no bounded set)",
                "Add a ridge, state a diameter, or give a finite number of steps.",
            )
        return self.guarantee(constants, schedule, (Gaussian(mu=inflated(mu)),), self.WORDS)


class SecretPermutation(_Epochs, name="secret-permutation", proof="docs/theory/noisy_sgd.md, section 3, B1"):
    """Last iterate when permutations are uniform and secret: the GDP curve averaged over the last position.

    Fresh permutations (shuffle): average over the place in the last epoch, the others adversarial. One permutation
    reused in every epoch (cyclic, order="secret"): average over the place. Both by joint convexity.
    """

    reference = (
        "Bok, Su and Altschuler (2024), shifted interpolation; joint convexity over the record's position"
    )

    def promise(self, constants: Constants, schedule: NoisyGradientSchedule) -> Guarantee:
        fresh = schedule.sampling == "shuffle"
        if not fresh and not (schedule.sampling == "cyclic" and schedule.order == "secret"):
            raise self.refuse(
                "no secret uniform permutation is drawn", "Use sampling='shuffle', or order='secret'."
            )
        u, length, epochs = self._require(constants, schedule)
        if math.isinf(epochs):
            raise self.refuse("the number of epochs is not bounded", "Give a finite number of steps.")
        if constants.n % schedule.divisor(constants.n):
            raise self.refuse(
                "positions are uniform over batches only when batch_size divides n",
                "Choose such a batch_size.",
            )
        mus = [
            shuffle_mu(u, length, epochs, r) if fresh else reused_mu(u, length, epochs, r + 1)
            for r in range(length)
        ]
        words = (*self.WORDS, "permutations are uniform and secret")
        return self.guarantee(constants, schedule, (averaged_profile(np.array(mus)),), words)
