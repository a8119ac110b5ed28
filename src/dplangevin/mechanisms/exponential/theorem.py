"""Privacy of one draw from exp(-beta F) as it is run: the guarantee of the law, corrected for the sampler's tier.

exact: the law itself. certified: after k steps the proximal chain is within total variation tau of the law, for every
data set, and delta grows by (1 + e^eps) tau. pure: its density is within a factor 1 +- zeta of the law's everywhere,
and epsilon grows by log((1 + zeta) / (1 - zeta)). tau and zeta follow from the worst-case constants and the spec.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dplangevin.accounting import proximal_certificate as chain
from dplangevin.accounting.conditions import Condition
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.theorem import Theorem
from dplangevin.errors import AssumptionFailed
from dplangevin.mechanisms.exponential.law_guarantees import (
    exponential_guarantee,
    gibbs_guarantee,
    transfer_sup_norm,
    transfer_total_variation,
)
from dplangevin.mechanisms.exponential.spec import DrawSpec, IteratedExponentialSpec
from dplangevin.problem.constants import Constants

EXACT_ARITHMETIC_ASSUMPTION = "arithmetic is exact, the seed is secret"
PUBLIC_PARAMETERS_ASSUMPTION = (
    "n, bounds, inverse temperature, step size and number of steps are public and not chosen from the private "
    "data"
)
STARTS_AT_MINIMIZER = Condition(
    kind="run-failure",
    text="the solver finding the minimiser that the chain starts from: a run that misses it stops and releases "
    "nothing, and that event is not covered",
)
MAX_CELL_AXES = 3
"""Maximum number of parameters of a nonconvex loss for which the piecewise envelope is an exact sampler."""


class ExponentialMechanismTheorem(Theorem[DrawSpec], name="exponential-mechanism", proof=""):
    """Bounded range beta * oscillation: pure epsilon and (epsilon^2 / 8)-zCDP. An exact draw needs no convexity.

    Examples
    --------
    >>> from dplangevin.mechanisms.exponential.spec import ExponentialSpec
    >>> constants = Constants(n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, diameter=2.0)
    >>> spec = ExponentialSpec(inverse_temperature=7500.0)
    >>> round(ExponentialMechanismTheorem().certify(constants, spec).epsilon(), 6)
    1.0
    """

    reference = "McSherry and Talwar (2007), Theorem 6; bounded range by Durfee and Rogers (2019), section 4"

    def derive_guarantee(self, constants: Constants, spec: DrawSpec) -> Guarantee:
        return _apply_sampler_tier(
            self, exponential_guarantee(constants, spec.inverse_temperature), constants, spec
        )


class StronglyConvexGibbs(Theorem[DrawSpec], name="strongly-convex-gibbs", proof=""):
    """Delta sqrt(beta / m)-GDP for m-strongly convex F on any convex set.

    Examples
    --------
    >>> from dplangevin.mechanisms.exponential.spec import GibbsSpec
    >>> constants = Constants(n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01)
    >>> guarantee = StronglyConvexGibbs().certify(constants, GibbsSpec(inverse_temperature=7500.0))
    >>> round(guarantee.mu, 6)
    0.057735
    """

    reference = "Gopi, Lee and Liu (2022), Theorem 4.1"

    def derive_guarantee(self, constants: Constants, spec: DrawSpec) -> Guarantee:
        if spec.grid:
            raise self.refuse(
                "the draw is on a grid, which is not convex", "Use the exponential mechanism there."
            )
        if spec.tier == "pure":
            raise self.refuse("the pure tier is for a pure guarantee", "Use tier='certified' or 'exact'.")
        return _apply_sampler_tier(
            self, gibbs_guarantee(constants, spec.inverse_temperature), constants, spec
        )


class IteratedExponential(Theorem[IteratedExponentialSpec], name="iterated-exponential-mechanism", proof=""):
    """Adaptive composition of the stages, each an exponential mechanism on a set of public diameter given the past.

    It holds whatever the radii, and whether or not the stated strong convexity is correct.
    """

    reference = "Ganesh, Thakurta and Upadhyay (2022), Algorithm 3 and Theorem D.3"

    def derive_guarantee(self, constants: Constants, spec: IteratedExponentialSpec) -> Guarantee:
        parts: list[Guarantee] = []
        for draw, diameter in zip(spec.draws, spec.diameters(constants.diameter), strict=True):
            stage_constants = replace(constants, diameter=diameter)
            stage_spec = replace(draw, padding=spec.padding)
            parts.append(ExponentialMechanismTheorem().certify(stage_constants, stage_spec))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return replace(total, theorem=self.name, reference=self.reference)


def chain_total_variation(constants: Constants, spec: DrawSpec) -> float:
    """Return tau, a bound for every data set on the total variation between the chain's output and the law."""
    ratio, poincare = chain_start_and_rate(constants, spec.inverse_temperature)
    # a positive floor, so that underflow does not turn a certified draw into an exact one
    return max(chain.total_variation_after(spec.n_steps, ratio, spec.step_size, poincare), 1e-300)


def chain_sup_norm(constants: Constants, spec: DrawSpec) -> float:
    """Return zeta, a bound for every data set on sup |density / law's density - 1| of the chain's output."""
    ratio, poincare = chain_start_and_rate(constants, spec.inverse_temperature)
    return chain.sup_norm_after(spec.n_steps, ratio, spec.step_size, poincare, constants.diameter)


def chain_start_and_rate(constants: Constants, beta: float) -> tuple[float, float]:
    """Return (w, C), worst over data sets: log density ratio of the chain's start, Poincare constant of the law."""
    if not constants.convex:
        raise AssumptionFailed(
            "the proximal chain does not apply: the loss is not convex, so no rate is proved. Use an exact draw on a "
            "grid (few parameters), or Langevin diffusion with delta > 0."
        )
    if math.isinf(constants.smoothness):
        raise AssumptionFailed(
            "the proximal chain does not apply: no smoothness constant is known. Use a smooth loss, or smooth it."
        )
    if constants.dimension is None:
        raise AssumptionFailed(
            "the proximal chain's certificate needs the dimension; state it in the constants."
        )
    low, high = beta * constants.strong_convexity, beta * constants.smoothness
    ratio = chain.warm_start_ratio(high, low, constants.dimension, constants.diameter, chain.MAX_START_GAP)
    return ratio, chain.poincare_constant(low, constants.diameter)


def _apply_sampler_tier(
    theorem: Theorem[DrawSpec], law: Guarantee, constants: Constants, spec: DrawSpec
) -> Guarantee:
    if spec.tier == "exact":
        has_cell_sampler = constants.dimension is not None and constants.dimension <= MAX_CELL_AXES
        if not (constants.convex or spec.grid or has_cell_sampler):
            raise theorem.refuse(
                "no exact sampler is known for a loss that is not convex and has more than three parameters",
                "State grid= for a draw on a public grid, or use Langevin diffusion.",
            )
        guarantee = law
        tier_assumptions: tuple[str, ...] = ("sampler tier exact: the draw has exactly the target law",)
    elif spec.tier == "certified":
        guarantee = transfer_total_variation(law, chain_total_variation(constants, spec))
        tier_assumptions = ("sampler tier certified: delta includes the sampler's total variation",)
    else:
        error = chain_sup_norm(constants, spec)
        if not error < 1:
            raise theorem.refuse(
                f"the chain is too short: {spec.n_steps} steps give no sup-norm certificate below 1",
                "Raise n_steps, or let plan_sampler choose them.",
            )
        guarantee = transfer_sup_norm(law, error)
        tier_assumptions = ("sampler tier pure: epsilon includes the sampler's density error, delta is 0",)
    of_sampler = guarantee.assumptions[len(law.assumptions) :]
    return replace(
        guarantee,
        theorem=theorem.name,
        reference=theorem.reference,
        assumptions=(
            *constants.assumptions,
            *tier_assumptions,
            *of_sampler,
            _timing_assumption(spec),
            EXACT_ARITHMETIC_ASSUMPTION,
            PUBLIC_PARAMETERS_ASSUMPTION,
        ),
        conditions=() if spec.tier == "exact" else (STARTS_AT_MINIMIZER,),
        at_delta=None,
    )


def _timing_assumption(spec: DrawSpec) -> str:
    if spec.padding > 0:
        return (
            f"every run takes at least {spec.padding:g} seconds of wall time; a run that needs more reveals that it "
            "does, and memory, power and finer traces are not observed"
        )
    return "running time and number of proposals depend on the data and are not observed"
