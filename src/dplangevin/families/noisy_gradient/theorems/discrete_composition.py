"""Composition of discrete Gaussian noise on integer gradient sums: the accounting of secure mode."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from dplangevin import _check
from dplangevin._search import bisected
from dplangevin.errors import CalibrationFailed
from dplangevin.families.noisy_gradient.discrete_schedule import DiscreteGradientSchedule
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Concentrated
from dplangevin.privacy.theorem import COMMON_ASSUMPTIONS, Theorem
from dplangevin.problem.constants import Constants

SECURE_ASSUMPTIONS = (
    "noise is drawn exactly from the discrete Gaussian law, from the operating system's cryptographic generator",
    "records meet the noise as vectors of integers whose norm is enforced in integers; no real arithmetic is assumed",
    "a record's integers depend on that record and public values only: elementwise operations give the same answer "
    "wherever a record stands",
    COMMON_ASSUMPTIONS[1],
)
_SLACK = 2.0**-30  # above the relative rounding of one record's gradient in double precision
_LONGEST = 2**25 - 1  # squares of such vectors are whole numbers that doubles hold exactly


class DiscreteComposition(Theorem[DiscreteGradientSchedule]):
    """rho-zCDP, rho = participations Delta^2 / (2 sigma^2): Delta the sensitivity in INTEGERS, sigma = 2^resolution.

    An integer shift m of a discrete Gaussian has Renyi divergence at most alpha m^2 / (2 sigma^2), and independent
    entries add up, so a step in which a record takes part is Delta^2 / (2 sigma^2)-zCDP. A record's integers z
    have |z|^2 <= bound (`integer_bound`, enforced by the mechanism): Delta^2 is 4 bound (replace-one) or bound
    (add-remove). The grid's cost is inside: rounding d entries moves a vector by at most sqrt(d) / 2. With cyclic or
    shuffled batches a record takes part once an epoch.
    """

    name = "discrete-composition"
    reference = (
        "Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Proposition 5; "
        "Bun and Steinke (2016), Lemma 2.3; docs/theory/secure_noise.md"
    )
    proof = "docs/theory/secure_noise.md"

    def certify(self, constants: Constants, schedule: DiscreteGradientSchedule) -> Guarantee:
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
        rho = _rounded_up(_participations(constants, schedule) * each)
        found = self.guarantee(constants, schedule, (Concentrated(rho=rho),))
        return replace(
            found, assumptions=(*constants.assumptions, *SECURE_ASSUMPTIONS), arithmetic="discrete-grid"
        )


def integer_bound(constants: Constants, schedule: DiscreteGradientSchedule) -> int:
    """The largest |z|^2 of one record's integers: no admissible record is longer, and longer ones are not counted.

    |z| <= (1 + slack) L / grid + sqrt(d) / 2, squared and rounded up.
    """
    if constants.dimension is None:
        raise DiscreteComposition().refuse(
            "the number of parameters is not stated", "Build the plan from a Problem, or state dimension."
        )
    grid = schedule.grid(constants.n)
    length = (
        constants.lipschitz * (1 + _SLACK) / grid + math.sqrt(constants.dimension) / 2
        if grid > 0
        else math.inf
    )
    if not length <= _LONGEST or constants.n * length > 2.0**61:
        raise DiscreteComposition().refuse(
            f"integers of length {length:.3g} for each of {constants.n} records are too long for exact sums",
            f"Lower resolution = {schedule.resolution}, or raise noise_scale.",
        )
    return math.ceil(Fraction(length * (1 + 1e-12)) ** 2)


def _participations(constants: Constants, schedule: DiscreteGradientSchedule) -> int:
    if schedule.sampling == "full":
        return schedule.n_steps
    return math.ceil(schedule.n_steps / math.ceil(constants.n / schedule.divisor(constants.n)))


def _step(constants: Constants, bound: int, schedule: DiscreteGradientSchedule) -> Fraction:
    sides = 4 if constants.adjacency == "replace-one" else 1
    return Fraction(sides * bound, 2 * 4**schedule.resolution)


def calibrated_discrete_gradient(
    constants: Constants, schedule: DiscreteGradientSchedule, *, epsilon: float, delta: float
) -> DiscreteGradientSchedule:
    """The schedule with the least noise (to about 1e-9) that meets (epsilon, delta)."""
    _check.positive("epsilon", epsilon)
    _check.open_unit("delta", delta)
    if constants.dimension is None:
        raise CalibrationFailed("the dimension must be stated.")
    sides = 2 if constants.adjacency == "replace-one" else 1
    rho = _largest_rho(epsilon, delta)
    length = math.sqrt(2 * rho / _participations(constants, schedule)) * 2.0**schedule.resolution / sides
    room = length * (1 - 1e-9) - math.sqrt(constants.dimension) / 2 - 1
    if not room > 0:
        raise CalibrationFailed(
            f"epsilon = {epsilon:g} leaves no room on a grid of 2^{schedule.resolution} steps for "
            f"{constants.dimension} parameters; raise resolution."
        )
    noise = (
        constants.lipschitz
        * (1 + 2 * _SLACK)
        * 2.0**schedule.resolution
        / (schedule.divisor(constants.n) * room)
    )
    found = replace(schedule, noise_scale=noise)
    spent = DiscreteComposition().certify(constants, found).epsilon(delta)
    if not spent <= epsilon:
        raise CalibrationFailed(
            f"the noise found costs epsilon = {spent:.9g}, above {epsilon:.9g}; raise epsilon a little."
        )
    return found


def _largest_rho(epsilon: float, delta: float) -> float:
    """rho with epsilon(rho, delta) <= epsilon, by bisection from below."""
    rho = bisected(lambda rho: cv.zcdp_epsilon(rho, delta) <= epsilon, 0.0, epsilon, rounds=200)
    return rho * (1 - 1e-9)


def _rounded_up(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)
