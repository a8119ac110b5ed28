"""Noisy moments of bounded records: G = sum w x x^T (symmetric, Frobenius-isotropic noise) and c = sum w y x."""

from __future__ import annotations

import math

from dplangevin import _check
from dplangevin.errors import CalibrationFailed
from dplangevin.families._minimiser import deflated
from dplangevin.families.moments.schedule import SufficientStatisticsSchedule
from dplangevin.privacy.conversions import gdp_mu
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian
from dplangevin.privacy.theorem import Theorem, inflated
from dplangevin.problem.constants import Constants

SECURE_WORDS = (
    "a record's integers depend on that record and public values only: elementwise operations give the same answer "
    "wherever a record stands",
)


class SufficientStatisticsTheorem(
    Theorem[SufficientStatisticsSchedule],
    name="sufficient-statistics",
    proof="docs/theory/planner.md, section 4",
):
    """One Gaussian mechanism on (G, c), each in units of its own noise; mu is the largest joint shift, exactly.

    A record contributes (w x x^T, w y x) with |x| <= B, |y| <= Y, 0 <= w <= W, i.e. (u u^T, t u) with u = sqrt(w) x,
    t = sqrt(w) y. In units of the noises a shift is |dG|_F^2 / gram_noise_std^2 + |dc|^2 / cross_noise_std^2.
    add-remove: g + h with g = (W B^2 / gram_noise_std)^2 and h = (W B Y / cross_noise_std)^2.
    replace-one: |u u^T - v v^T|_F^2 = |u|^4 + |v|^4 - 2 <u, v>^2 and |t u - t' v|^2 = t^2 |u|^2 + t'^2 |v|^2 -
    2 t t' <u, v>; the worst t = -+t' are extreme, the worst u, v are long, and with |<u, v>| = s W B^2 the sum is
    2 g (1 - s^2) + 2 h (1 + s), largest on [0, 1] at s = min(1, h / (2 g)). It is attained in two dimensions.
    A secure run has the same shifts: it rounds (u, t) towards zero, to whole numbers that are checked against B and Y.
    """

    reference = (
        "Dwork, Talwar, Thakurta and Zhang (2014), Analyze Gauss, with the exact joint sensitivity; "
        "Dong, Roth and Su (2022), Theorem 2.7"
    )
    beyond_n = "the moments are sums: one record's part does not depend on the others"

    def promise(self, constants: Constants, schedule: SufficientStatisticsSchedule) -> Guarantee:
        mu = inflated(joint_shift(self, constants, schedule))
        return self.guarantee(
            constants, schedule, (Gaussian(mu=mu),), SECURE_WORDS if schedule.secure else ()
        )


def joint_shift(
    theorem: SufficientStatisticsTheorem, constants: Constants, schedule: SufficientStatisticsSchedule
) -> float:
    """mu: the largest shift of the two moments in units of their noise."""
    if constants.row_norm is None or constants.label_bound is None:
        raise theorem.refuse(
            "the largest row norm or the largest |label| is not stated",
            "Build the plan from a Problem, or state row_norm and label_bound.",
        )
    square = constants.weight_bound * constants.row_norm * constants.row_norm
    product = constants.weight_bound * constants.row_norm * constants.label_bound
    gram, cross = square / schedule.gram_noise_std, product / schedule.cross_noise_std
    if constants.adjacency == "add-remove":
        return math.hypot(gram, cross)
    angle = min(1.0, (cross / gram) * (cross / gram) / 2)
    return math.sqrt(2) * math.hypot(
        gram * math.sqrt((1 - angle) * (1 + angle)), cross * math.sqrt(1 + angle)
    )


def calibrated_sufficient_statistics(
    constants: Constants, *, epsilon: float, delta: float, cross_share: float = 0.5, secure: bool = False
) -> SufficientStatisticsSchedule:
    """The schedule that meets (epsilon, delta), cross_share of mu^2 (counted under add-remove) going to c.

    The eigenvalue floor is the size of the noise on G: its largest eigenvalue is near gram_noise_std sqrt(2 dimension).
    """
    _check.positive("epsilon", epsilon)
    _check.open_unit("delta", delta)
    share = _check.open_unit("cross_share", cross_share)
    mu = deflated(gdp_mu(epsilon, delta))
    if constants.dimension is None or not mu > 0:
        raise CalibrationFailed("the dimension must be stated and epsilon must be within double precision.")
    theorem = SufficientStatisticsTheorem()

    def schedule(scale: float) -> SufficientStatisticsSchedule:
        gram = scale * constants.weight_bound * (constants.row_norm or 1.0) ** 2 / math.sqrt(1 - share)
        cross = scale * constants.weight_bound * (constants.row_norm or 1.0) * (constants.label_bound or 1.0)
        return SufficientStatisticsSchedule(
            gram_noise_std=gram,
            cross_noise_std=cross / math.sqrt(share),
            eigenvalue_floor=gram * math.sqrt(2 * (constants.dimension or 1)),
            secure=secure,
        )

    return schedule(joint_shift(theorem, constants, schedule(1.0)) / mu)
