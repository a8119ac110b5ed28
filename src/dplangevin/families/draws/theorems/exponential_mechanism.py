"""The exponential mechanism on a convex body: exp(-beta score) is beta * oscillation bounded range.

Proof. log of the density ratio of neighbours is -beta g + constant with g = F(.; D) - F(.; D'), so it lies
in an interval of length beta (max g - min g), and g is (gradient sensitivity)-Lipschitz on the body. No
convexity, no smoothness, no range of the loss is used. A nondecreasing 1-Lipschitz function of F - min F
(threshold, ramp) keeps the interval.

References: McSherry and Talwar (2007); Ganesh, Thakurta and Upadhyay (2022), theorems D.1 and D.5, with
the factor 2 made explicit; Durfee and Rogers (2019) and Cesar and Rogers (2021) for bounded range.
"""

from __future__ import annotations

from dplangevin import _check
from dplangevin.errors import AssumptionFailed
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import BoundedRange
from dplangevin.privacy.theorem import inflated
from dplangevin.problem.constants import Constants

NAME = "exponential mechanism"
REFERENCE = "McSherry and Talwar (2007), Theorem 6; bounded range by Durfee and Rogers (2019), section 4"
DRAW_ASSUMPTIONS = (
    "the draw is exact in real arithmetic, from a secret seed",
    "running time and number of proposals are not observed",
    "n, bounds and inverse temperature are public and not chosen from the private data",
)


def mean_gradient_sensitivity(constants: Constants) -> float:
    """sup |grad F(theta; D) - grad F(theta; D')| over neighbours: the per-record sensitivity over n."""
    return constants.gradient_sensitivity / constants.n


def oscillation(constants: Constants) -> float:
    """sup over neighbours of max g - min g on the set: Delta * diameter (2 L diam / n under replace-one)."""
    if constants.diameter == float("inf"):
        raise AssumptionFailed(
            f"{NAME} does not apply: the parameter set is unbounded, so one record moves the score without limit. "
            "Constrain the parameter to a ball or box."
        )
    return mean_gradient_sensitivity(constants) * constants.diameter


def exponential_mechanism(
    constants: Constants, inverse_temperature: float, minimum_error: float = 0.0
) -> Guarantee:
    """The promise of one exact draw of exp(-beta F) on the set: beta (oscillation + minimum_error) bounded range.

    minimum_error : for scores max{F, F* + psi} or ramps of F - F*: a data-independent cap on the error of the
        computed minimum F* that the solver always meets. 0 for the plain score.
    """
    beta = _check.positive("inverse_temperature", inverse_temperature)
    error = _check.nonnegative("minimum_error", minimum_error)
    return Guarantee(
        parts=(BoundedRange(value=inflated(beta * (oscillation(constants) + error))),),
        adjacency=constants.adjacency,
        release="draw",
        theorem=NAME,
        reference=REFERENCE,
        assumptions=(*constants.assumptions, *DRAW_ASSUMPTIONS),
        at_delta=0.0,
    )


def exponential_temperature(constants: Constants, epsilon: float, minimum_error: float = 0.0) -> float:
    """The largest inverse temperature whose draw is epsilon bounded range: epsilon / (oscillation + minimum_error)."""
    target = _check.positive("epsilon", epsilon)
    width = oscillation(constants) + _check.nonnegative("minimum_error", minimum_error)
    beta = target / width
    while inflated(beta * width) > target:
        beta *= 1 - 1e-9
    return beta
