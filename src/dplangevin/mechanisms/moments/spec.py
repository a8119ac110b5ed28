"""The spec of least squares from noisy moments of bounded records, and its privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.accounting.conversions import gdp_mu
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.plan import Capabilities, Spec, Theorem, round_down, round_up
from dplangevin.errors import CalibrationFailed
from dplangevin.problem.constants import Constants


@dataclass(frozen=True, kw_only=True)
class SufficientStatisticsSpec(Spec):
    """Least squares from noisy G = sum w x x^T and c = sum w y x: (G_floored + n ridge I) theta = c.

    Parameters
    ----------
    gram_noise_std : standard deviation of the noise on a diagonal entry of G. Off-diagonal entries get gram_noise_std
        / sqrt 2, so that the noise is isotropic in the Frobenius norm.
    cross_noise_std : standard deviation of the noise on an entry of c.
    eigenvalue_floor : eigenvalues of the noisy G below it are raised to it, so that the equations can always be
        solved. It affects accuracy only; no privacy depends on it.
    secure : whether records are rounded to integers, their moments summed exactly, and the noise drawn exactly.
    """

    mechanism: ClassVar[str] = "sufficient-statistics"
    capabilities: ClassVar[Capabilities] = Capabilities(secure=True, holds_beyond_n=True)
    gram_noise_std: float
    cross_noise_std: float
    eigenvalue_floor: float
    secure: bool = False
    release: Literal["noisy-answers"] = "noisy-answers"

    def __post_init__(self) -> None:
        _check.validate_fields(self, gram_noise_std=_check.check_scale, cross_noise_std=_check.check_scale)
        _check.validate_fields(self, eigenvalue_floor=_check.check_positive, secure=_check.check_flag)
        _check.set_frozen(self, release=_check.check_choice("release", self.release, ("noisy-answers",)))


RECORD_ROUNDING_ASSUMPTION = (
    "a record's integers depend on that record and public values only: elementwise operations give the same "
    "result at every position",
)


class SufficientStatisticsTheorem(
    Theorem[SufficientStatisticsSpec],
    name="sufficient-statistics",
    proof="docs/theory/planner.md, section 4",
):
    """One Gaussian mechanism on (G, c), each in units of its own noise; mu is the exact joint sensitivity.

    A record contributes (w x x^T, w y x) with |x| <= B, |y| <= Y, 0 <= w <= W, i.e. (u u^T, t u) with u = sqrt(w) x,
    t = sqrt(w) y. In units of the noises a shift is |dG|_F^2 / gram_noise_std^2 + |dc|^2 / cross_noise_std^2.
    add-remove: g + h with g = (W B^2 / gram_noise_std)^2 and h = (W B Y / cross_noise_std)^2.
    replace-one: |u u^T - v v^T|_F^2 = |u|^4 + |v|^4 - 2 <u, v>^2 and |t u - t' v|^2 = t^2 |u|^2 + t'^2 |v|^2 -
    2 t t' <u, v>; the worst t = -+t' are extreme, the worst u, v are long, and with |<u, v>| = s W B^2 the sum is
    2 g (1 - s^2) + 2 h (1 + s), largest on [0, 1] at s = min(1, h / (2 g)). It is attained in two dimensions.
    A secure run has the same shifts: it rounds (u, t) towards zero, to integers that are checked against B and Y.
    """

    holds_for_rounded_noise = True
    reference = (
        "Dwork, Talwar, Thakurta and Zhang (2014), Analyze Gauss, with the exact joint sensitivity; "
        "Dong, Roth and Su (2022), Theorem 2.7"
    )
    holds_beyond_n = "the moments are sums: one record's term does not depend on the others"

    def derive_guarantee(self, constants: Constants, spec: SufficientStatisticsSpec) -> Guarantee:
        mu = round_up(joint_sensitivity(self, constants, spec))
        return self.guarantee(
            constants, spec, (Gaussian(mu=mu),), RECORD_ROUNDING_ASSUMPTION if spec.secure else ()
        )


def joint_sensitivity(
    theorem: SufficientStatisticsTheorem, constants: Constants, spec: SufficientStatisticsSpec
) -> float:
    """Return mu, the largest joint shift of the two moments in units of their noise."""
    if constants.row_norm is None or constants.label_bound is None:
        raise theorem.refuse(
            "the largest row norm or the largest |label| is not stated",
            "Build the plan from a Problem, or state row_norm and label_bound.",
        )
    square = constants.weight_bound * constants.row_norm * constants.row_norm
    product = constants.weight_bound * constants.row_norm * constants.label_bound
    gram, cross = square / spec.gram_noise_std, product / spec.cross_noise_std
    if constants.adjacency == "add-remove":
        return math.hypot(gram, cross)
    angle = min(1.0, (cross / gram) * (cross / gram) / 2)
    return math.sqrt(2) * math.hypot(
        gram * math.sqrt((1 - angle) * (1 + angle)), cross * math.sqrt(1 + angle)
    )


def calibrate_sufficient_statistics(
    constants: Constants,
    *,
    epsilon: float,
    delta: float,
    cross_budget_fraction: float = 0.5,
    secure: bool = False,
) -> SufficientStatisticsSpec:
    """Return the spec that meets (epsilon, delta), with cross_budget_fraction of mu^2 (under add-remove) spent on c.

    The eigenvalue floor is the size of the noise on G: its largest eigenvalue is near
    gram_noise_std sqrt(2 dimension).
    """
    _check.check_positive("epsilon", epsilon)
    _check.check_open_unit("delta", delta)
    fraction = _check.check_open_unit("cross_budget_fraction", cross_budget_fraction)
    mu = round_down(gdp_mu(epsilon, delta))
    if constants.dimension is None or not mu > 0:
        raise CalibrationFailed("the dimension must be stated and epsilon must be within double precision.")
    theorem = SufficientStatisticsTheorem()

    def make_spec(scale: float) -> SufficientStatisticsSpec:
        gram = scale * constants.weight_bound * (constants.row_norm or 1.0) ** 2 / math.sqrt(1 - fraction)
        cross = scale * constants.weight_bound * (constants.row_norm or 1.0) * (constants.label_bound or 1.0)
        return SufficientStatisticsSpec(
            gram_noise_std=gram,
            cross_noise_std=cross / math.sqrt(fraction),
            eigenvalue_floor=gram * math.sqrt(2 * (constants.dimension or 1)),
            secure=secure,
        )

    return make_spec(joint_sensitivity(theorem, constants, make_spec(1.0)) / mu)
