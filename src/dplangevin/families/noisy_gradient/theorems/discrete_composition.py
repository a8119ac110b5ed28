"""Composition of rounded Gaussian noise on integer gradient sums: the accounting of secure mode."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dplangevin import _check
from dplangevin.errors import CalibrationFailed
from dplangevin.families._minimiser import deflated
from dplangevin.families.noisy_gradient.discrete_schedule import DiscreteGradientSchedule
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian
from dplangevin.privacy.theorem import COMMON_ASSUMPTIONS, SECURE_NOISE, Theorem, inflated
from dplangevin.problem.constants import Constants

SECURE_ASSUMPTIONS = (
    SECURE_NOISE,
    "records meet the noise as vectors of integers whose norm is enforced in integers; no real arithmetic is assumed",
    "a record's integers depend on that record and public values only: elementwise operations give the same answer "
    "wherever a record stands",
    COMMON_ASSUMPTIONS[1],
)
_SLACK = 2.0**-30  # above the relative rounding of one record's gradient in double precision
_LONGEST = 2**25 - 1  # squares of such vectors are whole numbers that doubles hold exactly


class DiscreteComposition(
    Theorem[DiscreteGradientSchedule], name="discrete-composition", proof="docs/theory/secure_noise.md"
):
    """mu-GDP, mu^2 = participations Delta^2 / sigma^2: Delta the sensitivity in INTEGERS, sigma = 2^resolution.

    Gaussian noise that is rounded to integers and added to integers is the Gaussian mechanism with its output rounded,
    so a step in which a record takes part is (Delta / sigma)-GDP. A record's integers z have |z|^2 <= bound
    (`integer_bound`, enforced by the mechanism): Delta^2 is 4 bound (replace-one) or bound (add-remove). The grid's
    cost is inside: rounding d entries moves a vector by at most sqrt(d) / 2. With cyclic or shuffled batches a record
    takes part once an epoch.
    """

    is_plain_composition = True
    reference = (
        "Dong, Roth and Su (2022), Theorem 2.7 and Corollary 3.3 (Gaussian mechanism, post-processing, composition); "
        "docs/theory/secure_noise.md"
    )

    def promise(self, constants: Constants, schedule: DiscreteGradientSchedule) -> Guarantee:
        if schedule.sampling != "full" and constants.adjacency == "add-remove":
            raise self.refuse(
                f"sampling={schedule.sampling!r} is not defined under add-remove adjacency",
                "Use sampling='full', or adjacency='replace-one'.",
            )
        if schedule.divisor(constants.n) > constants.n:
            raise self.refuse(
                f"batch_size = {schedule.batch_size} is larger than n = {constants.n}", "Lower batch_size."
            )
        each = _step(constants, integer_bound(constants, schedule), schedule)
        mu = inflated(math.sqrt(_rounded_up(_participations(constants, schedule) * each)))
        found = self.guarantee(constants, schedule, (Gaussian(mu=mu),))
        return replace(
            found, assumptions=(*constants.assumptions, *SECURE_ASSUMPTIONS), arithmetic="discrete-grid"
        )


def integer_bound(constants: Constants, schedule: DiscreteGradientSchedule) -> int:
    """The largest |z|^2 of one record's integers: no admissible record is longer, and longer ones are not counted."""
    return record_bound(DiscreteComposition(), constants, schedule.grid(constants.n))


def record_bound(theorem: Theorem[Any], constants: Constants, grid: float) -> int:
    """|z| <= (1 + slack) L / grid + sqrt(d) / 2, squared and rounded up."""
    if constants.dimension is None:
        raise theorem.refuse(
            "the number of parameters is not stated", "Build the plan from a Problem, or state dimension."
        )
    length = (
        constants.lipschitz * (1 + _SLACK) / grid + math.sqrt(constants.dimension) / 2
        if grid > 0
        else math.inf
    )
    if not length <= _LONGEST or constants.n * length > 2.0**61:
        raise theorem.refuse(
            f"integers of length {length:.3g} for each of {constants.n} records are too long for exact sums",
            "Lower resolution, or raise noise_std.",
        )
    return math.ceil(Fraction(length * (1 + 1e-12)) ** 2)


def _participations(constants: Constants, schedule: DiscreteGradientSchedule) -> int:
    if schedule.sampling == "full":
        return schedule.n_steps
    return math.ceil(schedule.n_steps / math.ceil(constants.n / schedule.divisor(constants.n)))


def _step(constants: Constants, bound: int, schedule: DiscreteGradientSchedule) -> Fraction:
    """(Delta / sigma)^2."""
    return Fraction(_sides(constants) ** 2 * bound, 4**schedule.resolution)


def _sides(constants: Constants) -> int:
    return 2 if constants.adjacency == "replace-one" else 1


def calibrated_discrete_gradient(
    constants: Constants, schedule: DiscreteGradientSchedule, *, epsilon: float, delta: float
) -> DiscreteGradientSchedule:
    """The schedule with the least noise (to about 1e-9) that meets (epsilon, delta)."""
    _check.positive("epsilon", epsilon)
    _check.open_unit("delta", delta)
    if constants.dimension is None:
        raise CalibrationFailed("the dimension must be stated.")
    times = _participations(constants, schedule)
    noise = noise_on_grid(constants, times, schedule.resolution, epsilon=epsilon, delta=delta)
    found = replace(schedule, noise_std=noise / schedule.divisor(constants.n))
    spent = DiscreteComposition().certify(constants, found).epsilon(delta)
    if not spent <= epsilon:
        raise CalibrationFailed(
            f"the noise found costs epsilon = {spent:.9g}, above {epsilon:.9g}; raise epsilon a little."
        )
    return found


def noise_on_grid(
    constants: Constants, times: int, resolution: int, *, epsilon: float, delta: float
) -> float:
    """The noise on a gradient SUM, 2^resolution grid steps, that meets (epsilon, delta) for a record used so often."""
    dimension = constants.dimension or 1
    mu = deflated(cv.gdp_mu(epsilon, delta))
    length = mu / math.sqrt(times) * 2.0**resolution / _sides(constants)
    room = length * (1 - 1e-9) - math.sqrt(dimension) / 2 - 1
    if not room > 0:
        raise CalibrationFailed(
            f"epsilon = {epsilon:g} leaves no room on a grid of 2^{resolution} steps for {dimension} parameters; "
            "raise resolution."
        )
    return constants.lipschitz * (1 + 2 * _SLACK) * 2.0**resolution / room


def _rounded_up(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)
