"""Runs on random batches: the hypotheses their theorems share, and the numbers those theorems need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._base import NoisyGradientTheorem
from dplangevin.families.noisy_gradient.theorems._units import ROUNDING, contraction, require_hidden_state
from dplangevin.privacy import sampled_gaussian as sg
from dplangevin.problem.constants import Constants


@dataclass(frozen=True, kw_only=True)
class RandomBatchRun:
    """theta <- project(phi_B(theta) + N(0, v^2 I)) with a fresh random batch B each step.

    rate : q, the probability that a given record is in a batch.
    noise_multiplier : nm = b sigma / Delta, noise over what one record can change.
    shift : s = eta Delta / b, what one record can change of the iterate in one step.
    noise : v = eta sigma.
    contraction : c, Lipschitz constant of phi_B for every batch (every batch that is not too large, for Poisson).
    bad_step : probability of a too large batch in one step, for Poisson; 0 when every batch is fine.
    """

    sampling: str
    rate: float
    noise_multiplier: float
    shift: float
    noise: float
    contraction: float
    diameter: float
    n_steps: int | float
    bad_step: float = 0.0

    def divergence(self, orders: Floats, share: float = 0.0) -> Floats:
        """S(1 - rho): Renyi curve of one step that keeps the share 1 - rho of its noise variance for itself."""
        curve = sg.renyi_poisson if self.sampling == "poisson" else sg.renyi_without_replacement
        return curve(orders, self.rate, self.noise_multiplier * math.sqrt(1 - share))

    def distance(self, steps: float | Floats) -> Floats:
        """D_t: largest distance of the two runs t steps after a common start, min(D, s + c s + ... + c^{t-1} s)."""
        t, c = np.asarray(steps, float), self.contraction
        with np.errstate(over="ignore", invalid="ignore"):
            if c == 1:
                reach = self.shift * t
            else:
                reach = self.shift * np.expm1(t * math.log(c)) / (c - 1)
        return np.asarray(np.minimum(reach, self.diameter))

    def leverage(self, steps: float | Floats) -> Floats:
        """c^{2k} / (1 + c^2 + ... + c^{2(k-1)}): what is left of a squared distance spread over k steps."""
        k, c = np.asarray(steps, float), self.contraction
        if c == 1:
            return np.asarray(1 / k)
        with np.errstate(over="ignore"):
            return np.asarray((1 - c) * (1 + c) / np.expm1(-2 * k * math.log(c)))


def too_large(n: int, rate: float, largest: float) -> float:
    """Pr[Bin(n - 1, q) >= largest], rounded up: the other records alone fill a batch that is too large."""
    least = math.floor(largest)
    if least <= 0:
        return 1.0
    if least >= n:
        return 0.0
    return min(1.0, float(bdtrc(least - 1, n - 1, rate)) * (1 + 1e-9) + 1e-300)


def random_batch_run(
    theorem: NoisyGradientTheorem,
    constants: Constants,
    schedule: NoisyGradientSchedule,
    releases: Sequence[str] = ("last-iterate",),
) -> RandomBatchRun:
    """The run in canonical units, after every hypothesis has been checked."""
    check_run(theorem, constants, schedule, releases)
    if isinstance(schedule.step_size, tuple) or isinstance(schedule.noise_std, tuple):
        raise theorem.refuse(
            "step size or noise varies between steps", "Use one step_size and one noise_std."
        )
    size = schedule.divisor(constants.n)
    lipschitz, bad = contraction_of(theorem, constants, schedule.step_size, schedule.sampling, size)
    return RandomBatchRun(
        sampling=schedule.sampling,
        rate=size / constants.n,
        noise_multiplier=size * schedule.noise_std / constants.gradient_sensitivity,
        shift=schedule.step_size * constants.gradient_sensitivity / size,
        noise=schedule.step_size * schedule.noise_std,
        contraction=lipschitz,
        diameter=constants.diameter,
        n_steps=schedule.n_steps,
        bad_step=bad,
    )


def check_run(
    theorem: NoisyGradientTheorem,
    constants: Constants,
    schedule: NoisyGradientSchedule,
    releases: Sequence[str],
) -> None:
    """Every hypothesis but those on the step sizes."""
    _check_batches(theorem, constants, schedule)
    require_hidden_state(theorem, constants, schedule)
    if schedule.release not in releases:
        raise theorem.refuse(
            f"release={schedule.release!r} is not covered", f"Release one of: {', '.join(releases)}."
        )
    theorem.public_start(
        schedule, "Start from public values, or compose with the guarantee of the warm start."
    )
    theorem.exact_projection(constants, ", or composition")


def _check_batches(
    theorem: NoisyGradientTheorem, constants: Constants, schedule: NoisyGradientSchedule
) -> None:
    needed = {"without-replacement": "replace-one", "poisson": "add-remove"}.get(schedule.sampling)
    if needed is None:
        raise theorem.refuse(
            f"sampling={schedule.sampling!r} draws no fresh random batch each step",
            "Use sampling='without-replacement' or 'poisson', or the bound for that sampling.",
        )
    if constants.adjacency != needed:
        raise theorem.refuse(
            f"sampling={schedule.sampling!r} has no proved bound under adjacency={constants.adjacency!r}",
            f"Use adjacency={needed!r}.",
        )
    size = schedule.divisor(constants.n)
    if size > constants.n:
        raise InvalidParameter(f"batch_size = {size} is larger than n = {constants.n}; lower batch_size.")


def contraction_of(
    theorem: NoisyGradientTheorem, constants: Constants, step_size: float, sampling: str, size: int
) -> tuple[float, float]:
    """Contraction constant of every admissible batch, and the probability of a batch that is not admissible.

    A Poisson batch B has smoothness |B| M / b + m, so a step contracts by 1 - eta m as long as
    eta (|B| M / b + 2 m) <= 2. Other records fill more than that with probability `too_large` (they are the same in
    both runs, so the event is too).
    """
    if sampling != "poisson":
        return contraction(constants, step_size), 0.0
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
    lipschitz = min(1.0, value + ROUNDING) if ridge else 1.0
    if step_size * (smooth * constants.n / size + 2 * ridge) <= 2:
        return lipschitz, 0.0
    bad = too_large(constants.n, size / constants.n, (2 / step_size - 2 * ridge) * size / smooth)
    if bad >= 1e-3:
        raise theorem.refuse(
            f"a Poisson batch is too large for this step size with probability {bad:.2g} a step",
            f"Lower step_size; {2 / (smooth * constants.n / size + 2 * ridge):.6g} is safe for every batch.",
        )
    return lipschitz, bad


def words(constants: Constants, sampling: str, released: str = "the last iterate") -> tuple[str, ...]:
    """The assumptions, in words."""
    listed = [
        f"only {released} and nothing else of the path is released; the batches stay secret",
        f"every loss is {'convex and ' if constants.convex else ''}smooth on the set",
        "the starting point does not depend on the private data",
    ]
    if math.isfinite(constants.diameter):
        listed.append("every iterate is projected exactly on a set of the stated diameter")
    if sampling == "poisson":
        listed.append(
            "no data set has more than n records, and gradient sums are divided by the public batch_size"
        )
    else:
        listed.append("the gradients of any two admissible records differ by at most the stated sensitivity")
    return tuple(listed)
