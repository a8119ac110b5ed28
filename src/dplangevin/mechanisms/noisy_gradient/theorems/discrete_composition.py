"""Composition of rounded Gaussian noise on integer gradient sums: the theorem of secure mode."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dplangevin import _check
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.theorem import COMMON_ASSUMPTIONS, SECURE_NOISE, Theorem, round_up
from dplangevin.errors import CalibrationFailed
from dplangevin.mechanisms.minimizer_tolerance import round_down
from dplangevin.mechanisms.noisy_gradient.spec import DiscreteGradientSpec
from dplangevin.problem.constants import Constants

SECURE_ASSUMPTIONS = (
    SECURE_NOISE,
    "noise is added to sums of integer vectors whose norm is bounded exactly, in integers; no exact real "
    "arithmetic is assumed",
    "a record's integers depend on that record and public values only: elementwise operations give the same "
    "result at every position",
    COMMON_ASSUMPTIONS[1],
)
_GRADIENT_ROUNDING = 2.0**-30  # above the relative rounding of one record's gradient in double precision
_MAX_INTEGER_NORM = 2**25 - 1  # squares of such vectors are integers that doubles represent exactly


class DiscreteComposition(
    Theorem[DiscreteGradientSpec], name="discrete-composition", proof="docs/theory/secure_noise.md"
):
    """mu-GDP, mu^2 = participations Delta^2 / sigma^2: Delta the sensitivity in INTEGERS, sigma = 2^resolution.

    Gaussian noise that is rounded to integers and added to integers is the Gaussian mechanism with its output
    rounded, so a step in which a record takes part is (Delta / sigma)-GDP. A record's integers z have |z|^2 <= bound
    (`integer_bound`, enforced by the mechanism): Delta^2 is 4 bound (replace-one) or bound (add-remove). This
    includes the cost of the grid: rounding d entries moves a vector by at most sqrt(d) / 2. With cyclic or shuffled
    batches a record takes part once an epoch.
    """

    is_plain_composition = True
    reference = (
        "Dong, Roth and Su (2022), Theorem 2.7 and Corollary 3.3 (Gaussian mechanism, post-processing, composition); "
        "docs/theory/secure_noise.md"
    )

    def derive_guarantee(self, constants: Constants, spec: DiscreteGradientSpec) -> Guarantee:
        if spec.sampling != "full" and constants.adjacency == "add-remove":
            raise self.refuse(
                f"sampling={spec.sampling!r} is not defined under add-remove adjacency",
                "Use sampling='full', or adjacency='replace-one'.",
            )
        if spec.divisor(constants.n) > constants.n:
            raise self.refuse(
                f"batch_size = {spec.batch_size} is larger than n = {constants.n}", "Lower batch_size."
            )
        squared_mu = _squared_step_mu(constants, integer_bound(constants, spec), spec)
        mu = round_up(math.sqrt(_round_up_fraction(_n_participations(constants, spec) * squared_mu)))
        guarantee = self.guarantee(constants, spec, (Gaussian(mu=mu),))
        return replace(
            guarantee, assumptions=(*constants.assumptions, *SECURE_ASSUMPTIONS), arithmetic="discrete-grid"
        )


def integer_bound(constants: Constants, spec: DiscreteGradientSpec) -> int:
    """Return the largest |z|^2 of an admissible record's integers; longer records are dropped."""
    return squared_norm_bound(DiscreteComposition(), constants, spec.grid(constants.n))


def squared_norm_bound(theorem: Theorem[Any], constants: Constants, grid: float) -> int:
    """Return the bound |z| <= (1 + slack) L / grid + sqrt(d) / 2, squared and rounded up."""
    if constants.dimension is None:
        raise theorem.refuse(
            "the number of parameters is not stated", "Build the plan from a Problem, or state dimension."
        )
    length = (
        constants.lipschitz * (1 + _GRADIENT_ROUNDING) / grid + math.sqrt(constants.dimension) / 2
        if grid > 0
        else math.inf
    )
    if not length <= _MAX_INTEGER_NORM or constants.n * length > 2.0**61:
        raise theorem.refuse(
            f"integer vectors of norm {length:.3g} for each of {constants.n} records are too large for exact sums",
            "Lower resolution, or raise noise_std.",
        )
    return math.ceil(Fraction(length * (1 + 1e-12)) ** 2)


def _n_participations(constants: Constants, spec: DiscreteGradientSpec) -> int:
    if spec.sampling == "full":
        return spec.n_steps
    return math.ceil(spec.n_steps / math.ceil(constants.n / spec.divisor(constants.n)))


def _squared_step_mu(constants: Constants, bound: int, spec: DiscreteGradientSpec) -> Fraction:
    """Return (Delta / sigma)^2."""
    return Fraction(_n_changed_records(constants) ** 2 * bound, 4**spec.resolution)


def _n_changed_records(constants: Constants) -> int:
    return 2 if constants.adjacency == "replace-one" else 1


def calibrate_discrete_gradient(
    constants: Constants, spec: DiscreteGradientSpec, *, epsilon: float, delta: float
) -> DiscreteGradientSpec:
    """Return the spec with the least noise (to about 1e-9) that meets (epsilon, delta)."""
    _check.check_positive("epsilon", epsilon)
    _check.check_open_unit("delta", delta)
    if constants.dimension is None:
        raise CalibrationFailed(
            "the dimension is not stated; build the plan from a Problem, or state dimension."
        )
    times = _n_participations(constants, spec)
    noise = calibrate_grid_noise(constants, times, spec.resolution, epsilon=epsilon, delta=delta)
    calibrated = replace(spec, noise_std=noise / spec.divisor(constants.n))
    spent = DiscreteComposition().certify(constants, calibrated).epsilon(delta)
    if not spent <= epsilon:
        raise CalibrationFailed(
            f"the calibrated noise costs epsilon = {spent:.9g}, above {epsilon:.9g}; raise epsilon slightly."
        )
    return calibrated


def calibrate_grid_noise(
    constants: Constants, times: int, resolution: int, *, epsilon: float, delta: float
) -> float:
    """Return the noise on a gradient SUM, in 2^resolution grid steps, that meets (epsilon, delta)."""
    dimension = constants.dimension or 1
    mu = round_down(cv.gdp_mu(epsilon, delta))
    length = mu / math.sqrt(times) * 2.0**resolution / _n_changed_records(constants)
    usable_length = length * (1 - 1e-9) - math.sqrt(dimension) / 2 - 1
    if not usable_length > 0:
        raise CalibrationFailed(
            f"epsilon = {epsilon:g} is too small for noise of 2^{resolution} grid steps on {dimension} parameters; "
            "raise resolution."
        )
    return constants.lipschitz * (1 + 2 * _GRADIENT_ROUNDING) * 2.0**resolution / usable_length


def _round_up_fraction(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)
