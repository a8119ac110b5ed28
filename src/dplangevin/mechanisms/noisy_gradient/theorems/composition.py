"""Plain composition of noisy gradient runs (B0), and the units and hypotheses that their theorems share.

Composition allows every iterate to be public, and needs neither convexity nor smoothness.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian, OppositeMixtures, PrivacyPart, SampledGaussian
from dplangevin.accounting.plan import Theorem, round_up
from dplangevin.mechanisms.noisy_gradient.spec import STATE_GRADIENT_ERROR, NoisyGradientSpec
from dplangevin.problem.constants import Constants


class NoisyGradientTheorem(Theorem[NoisyGradientSpec]):
    """The base of the theorems about noisy gradient runs."""

    def check_sampling(self, sampling: str, spec: NoisyGradientSpec) -> None:
        """Refuse any sampling other than this one."""
        if spec.sampling != sampling:
            expected = "full batch" if sampling == "full" else sampling
            raise self.refuse(
                f"sampling={spec.sampling!r} is not {expected}", "Use the bound for that sampling."
            )

    def check_public_start(self, spec: NoisyGradientSpec, fix: str) -> None:
        """Refuse a start that may depend on the private data."""
        if spec.start != "data-independent":
            raise self.refuse("the starting point may depend on the private data", fix)

    def check_exact_projection(self, constants: Constants, alternative: str = "") -> None:
        """Refuse inexact projections."""
        if constants.projection_error > 0:
            raise self.refuse(
                f"the projection is inexact (projection_error = {constants.projection_error!r})",
                f"Use an exact projection{alternative}.",
            )


ROUNDING_SLACK = 2.0**-52


@dataclass(frozen=True, kw_only=True)
class StepUnits:
    """One constant step: shift s by the differing record, noise v on the iterate, contraction c, diameter D."""

    shift: float
    noise: float
    contraction: float
    diameter: float


def contraction_bound(constants: Constants, step_size: float) -> float:
    """Return the contraction constant, rounded up where it is below 1: 1 - eta m is known only to 2^-52."""
    value = constants.contraction(step_size)
    return min(1.0, value + ROUNDING_SLACK) if value < 1 else value


def released_segments(spec: NoisyGradientSpec) -> tuple[int | float, list[tuple[int, int]]]:
    """Return the number of steps before the first release, and (length, count) of the segments between releases.

    Only the first segment depends on the start: given a released iterate, both runs continue from it.
    """
    if spec.release != "checkpoints":
        return spec.n_steps, []
    first, *_ = spec.checkpoints
    gaps = Counter(b - a for a, b in pairwise(spec.checkpoints))
    return first, sorted(gaps.items())


def state_rounding(
    constants: Constants, spec: NoisyGradientSpec, step: Floats, noise: Floats, contraction: Floats
) -> Floats:
    """Return what rounding adds to the shifts of an exact run of hidden states: docs/theory/exact_sums.md, section 8.

    A state is rounded to a grid of at most 2^-20 sqrt 2 of its noise and projected, and two such states meet in the
    next step; mean gradients have an error each.
    """
    if not spec.secure:
        return np.zeros(np.shape(step))
    assert constants.dimension is not None
    root = math.sqrt(constants.dimension)
    grid = root * math.sqrt(2) * 2.0**-20 * (1 + 2.0**-19) * float(np.max(step * noise))
    if math.isfinite(constants.diameter):
        grid += (constants.dimension + 16) * 2.0**-49 * constants.diameter
    return np.asarray(contraction * grid + 2 * step * STATE_GRADIENT_ERROR * constants.lipschitz)


def step_units(constants: Constants, spec: NoisyGradientSpec) -> StepUnits:
    """Return the units of constant steps; an inexact projection and rounding add to the shift of every step."""
    assert spec.is_constant
    step, noise = float(spec.step_size), float(spec.noise_std)  # type: ignore[arg-type]
    lipschitz = contraction_bound(constants, step)
    error = constants.projection_error
    shift = step * constants.gradient_sensitivity / spec.divisor(constants.n)
    shift += float(state_rounding(constants, spec, *(np.array(v) for v in (step, noise, lipschitz))))
    return StepUnits(
        shift=shift + 2 * max(1.0, lipschitz) * error if error else shift,
        noise=step * noise,
        contraction=lipschitz,
        diameter=constants.diameter + 2 * error,
    )


def check_hidden_state(theorem: NoisyGradientTheorem, constants: Constants, spec: NoisyGradientSpec) -> None:
    """Check the hypotheses of every bound that hides some iterates."""
    if spec.momentum:
        raise theorem.refuse(
            "momentum makes the step depend on two iterates", "Use plain steps, or composition."
        )
    if spec.release in ("average", "trajectory"):
        raise theorem.refuse(
            f"release={spec.release!r} is a function of the whole path",
            "Release the last iterate or checkpoints, or use composition.",
        )
    if math.isinf(constants.smoothness):
        raise theorem.refuse(
            "no smoothness constant is known (the loss is not smooth, or its clipped gradient is not a gradient)",
            "State smoothness, smooth the loss, or use composition.",
        )


def check_composable_steps(
    theorem: NoisyGradientTheorem, constants: Constants, spec: NoisyGradientSpec
) -> None:
    """Check for finitely many steps from a public start."""
    spec.check_combination(constants)
    if math.isinf(spec.n_steps):
        raise theorem.refuse(
            "it grows without bound in the number of steps", "Give a finite number of steps."
        )
    theorem.check_public_start(
        spec, "Compose with the guarantee of the warm start, or bound the diameter and use optimal-shift."
    )


def count_noise_levels(spec: NoisyGradientSpec) -> Counter[float]:
    """Return how many steps have each noise_std."""
    if isinstance(spec.noise_std, tuple):
        return Counter(spec.noise_std)
    return Counter({spec.noise_std: int(spec.n_steps)})


class Composition(NoisyGradientTheorem, name="composition", proof=""):
    """Adaptive composition of Gaussian mechanisms over the steps in which a record takes part.

    full: mu^2 = sum_t (Delta / (n sigma_t))^2. cyclic, shuffle: one participation per epoch, the worst position.
    without-replacement: the symmetric curve of C_q(G) per step. poisson: the sampled Gaussian per step; under
    replace-one the curve of C_q(G) again.

    An exact run has the same sensitivity and the same noise: a record adds an integer vector whose norm is checked
    against the bound of its gradient, and every release is the ideal one, rounded (docs/theory/exact_sums.md). The
    release of a batch is rounded after the noise is added, so amplification by sampling is that of the ideal release.
    """

    is_plain_composition = True
    holds_for_rounded_noise = True
    secure_holds_beyond_n = True
    reference = (
        "Dong, Roth and Su (2022), Theorem 3.2; Mironov, Talwar and Zhang (2019), section 3; Zhu, Dong and Wang "
        "(2022), Theorem 10"
    )

    def covers_more_rows(self, spec: NoisyGradientSpec) -> bool:
        """Return True where a record changes a step's sum by its own gradient, however many others there are."""
        return spec.sampling in ("full", "poisson")

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        check_composable_steps(self, constants, spec)
        per_step = (
            constants.gradient_sensitivity / spec.divisor(constants.n) / spec.noise_stds()
            if not spec.is_constant
            else None
        )
        if spec.sampling == "full":
            return self.guarantee(constants, spec, self._full_batch_parts(constants, spec, per_step))
        if spec.sampling in ("cyclic", "shuffle"):
            return self.guarantee(constants, spec, self._epoch_parts(constants, spec, per_step))
        return self.guarantee(constants, spec, self._sampled_parts(constants, spec))

    @staticmethod
    def _step_mu(constants: Constants, spec: NoisyGradientSpec) -> float:
        return constants.gradient_sensitivity / (spec.divisor(constants.n) * float(spec.noise_std))  # type: ignore[arg-type]

    def _full_batch_parts(
        self, constants: Constants, spec: NoisyGradientSpec, per_step: np.ndarray | None
    ) -> tuple[PrivacyPart, ...]:
        if per_step is None:
            return (Gaussian(mu=round_up(self._step_mu(constants, spec)), count=int(spec.n_steps)),)
        return (Gaussian(mu=round_up(float(np.linalg.norm(per_step)))),)

    def _epoch_parts(
        self, constants: Constants, spec: NoisyGradientSpec, per_step: np.ndarray | None
    ) -> tuple[PrivacyPart, ...]:
        length = math.ceil(constants.n / spec.divisor(constants.n))
        if per_step is None:
            epochs = math.ceil(spec.n_steps / length)
            return (Gaussian(mu=round_up(self._step_mu(constants, spec)), count=epochs),)
        padded = np.zeros(math.ceil(len(per_step) / length) * length)
        padded[: len(per_step)] = per_step
        table = padded.reshape(-1, length) ** 2
        worst = table.sum(axis=0).max() if spec.sampling == "cyclic" else table.max(axis=1).sum()
        return (Gaussian(mu=round_up(math.sqrt(float(worst)))),)

    @staticmethod
    def _sampled_parts(constants: Constants, spec: NoisyGradientSpec) -> tuple[PrivacyPart, ...]:
        size = spec.divisor(constants.n)
        sampling, sensitivity = spec.sampling, constants.gradient_sensitivity
        if sampling == "poisson" and constants.adjacency == "replace-one":
            # both gradients and their difference are bounded by the sensitivity: the curve of C_q(G), as without
            # replacement; opposite-records is sharper (docs/theory/accountant.md, section 5)
            sampling, sensitivity = "without-replacement", max(sensitivity, constants.lipschitz)
        scale = size / sensitivity * (1 - 1e-9)
        return tuple(
            SampledGaussian(
                rate=size / constants.n,
                noise_multiplier=noise * scale,
                sampling=sampling,
                count=count,
            )
            for noise, count in count_noise_levels(spec).items()
        )


class OppositeRecords(
    NoisyGradientTheorem, name="opposite-records", proof="docs/theory/accountant.md, section 5"
):
    """Composition for Poisson batches under replace-one, at the worst pair of records: two opposite gradients.

    Every iterate may be public. A step is (1 - q) N(0) + q N(v) against (1 - q) N(0) + q N(w), |v|, |w| <= L / b.

    A test that accepts N(v) with probability Phi(u) accepts N(0) with at least Phi(u - L / (b sigma)) and N(w) with
    at least Phi(u - 2 L / (b sigma)); half-lines between v = L / b and w = -L / b attain both at once.
    """

    holds_for_rounded_noise = True
    reference = (
        "Neyman and Pearson (1933); Zhu, Dong and Wang (2022), Theorem 10; for groups of records, Schuchardt, Stoian, "
        "Kosmala and Guennemann (2024)"
    )

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        spec.check_combination(constants)
        if spec.sampling != "poisson" or constants.adjacency != "replace-one":
            raise self.refuse(
                f"it is about Poisson batches under replace-one, not sampling={spec.sampling!r} under "
                f"{constants.adjacency}",
                "Use the bound for that sampling.",
            )
        check_composable_steps(self, constants, spec)
        size = spec.divisor(constants.n)
        scale = size / constants.lipschitz * (1 - 1e-9)
        parts = tuple(
            OppositeMixtures(rate=size / constants.n, noise_multiplier=noise * scale, count=count)
            for noise, count in count_noise_levels(spec).items()
        )
        return self.guarantee(constants, spec, parts)
