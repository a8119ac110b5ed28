"""Specs of the exponential, Gibbs and iterated exponential mechanisms, their options, and their privacy.

exact: the law itself. certified: after k steps the proximal chain is within total variation tau of the law, for every
data set, and delta grows by (1 + e^eps) tau. pure: its density is within a factor 1 +- zeta of the law's everywhere,
and epsilon grows by log((1 + zeta) / (1 - zeta)). tau and zeta follow from the worst-case constants and the spec.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from dplangevin import _check
from dplangevin.accounting import proximal_certificate as chain
from dplangevin.accounting.guarantee import Condition, Guarantee
from dplangevin.accounting.theorem import Capabilities, Spec, Theorem
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exponential.law_guarantees import (
    exponential_guarantee,
    gibbs_guarantee,
    transfer_sup_norm,
    transfer_total_variation,
)
from dplangevin.mechanisms.options import OptionReader, read_spec_fields, with_constants_options
from dplangevin.problem.constants import Constants

DrawTier = Literal["exact", "certified", "pure"]
DRAW_TIERS: tuple[DrawTier, ...] = ("exact", "certified", "pure")


def check_chain_fields(spec: Any, who: str) -> None:
    """Check step_size and n_steps, which only a chain has; `who` begins the error message."""
    if spec.tier != "exact":
        _check.validate_fields(spec, step_size=_check.check_scale, n_steps=_check.check_count)
    elif spec.step_size or spec.n_steps:
        raise InvalidParameter(f"{who} no step_size and no n_steps; leave them out.")


@dataclass(frozen=True, kw_only=True)
class DrawSpec(Spec):
    """One draw theta ~ exp(-beta F(theta)) on the set, exact or by the proximal chain.

    Parameters
    ----------
    inverse_temperature : beta.
    tier : "exact" (an exact rejection sampler), "certified" (proximal chain, close in total variation) or "pure"
        (the same chain, run until its density is uniformly close).
    step_size, n_steps : of the chain; 0 for an exact draw.
    grid : 0, or points per axis of a public grid that replaces the set (exact draws of nonconvex losses).
    padding : 0, or the least number of seconds that every run takes, whatever the data.
    """

    mechanism: ClassVar[str] = "exponential"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, population_risk=True)
    inverse_temperature: float
    tier: DrawTier = "exact"
    step_size: float = 0.0
    n_steps: int = 0
    grid: int = 0
    padding: float = 0.0
    release: Literal["draw"] = "draw"

    def __post_init__(self) -> None:
        beta = _check.check_scale("inverse_temperature", self.inverse_temperature)
        _check.set_frozen(
            self, inverse_temperature=beta, tier=_check.check_choice("tier", self.tier, DRAW_TIERS)
        )
        _check.set_frozen(self, grid=_check.check_count("grid", self.grid, minimum=0))
        _check.validate_fields(self, padding=_check.check_nonnegative)
        check_chain_fields(self, "an exact draw has")
        if self.grid == 1 or (self.grid and self.tier != "exact"):
            raise InvalidParameter("grid must be 0, or at least 2 points per axis with tier='exact'.")


@dataclass(frozen=True, kw_only=True)
class ExponentialSpec(DrawSpec):
    """The exponential mechanism: beta follows from the oscillation of F; pure guarantee, bounded sets only."""

    mechanism: ClassVar[str] = "exponential"


@dataclass(frozen=True, kw_only=True)
class GibbsSpec(DrawSpec):
    """The Gibbs mechanism: beta follows from the strong convexity of F; Gaussian guarantee, on any convex set."""

    mechanism: ClassVar[str] = "gibbs"


@dataclass(frozen=True, kw_only=True)
class IteratedExponentialSpec(Spec):
    """A draw on the ball, then draws on smaller and smaller balls around the last one (intersected with the first).

    Parameters
    ----------
    draws : one spec per stage, all of one tier, without grid or padding of their own.
    radii : radius of the ball around draw i on which draw i + 1 is made; one fewer than draws.
    padding : 0, or the least number of seconds that every run takes.
    release : "draw" releases the last draw; the guarantee also covers the earlier ones, which are its iterates.
    """

    mechanism: ClassVar[str] = "iterated-exponential"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, population_risk=True)
    draws: tuple[ExponentialSpec, ...]
    radii: tuple[float, ...] = ()
    padding: float = 0.0
    release: Literal["draw"] = "draw"

    def __post_init__(self) -> None:
        radii = tuple(_check.check_positive(f"radii[{i}]", radius) for i, radius in enumerate(self.radii))
        _check.set_frozen(self, radii=radii, padding=_check.check_nonnegative("padding", self.padding))
        if not self.draws or len(radii) != len(self.draws) - 1:
            raise InvalidParameter(f"{len(self.draws)} draws need one radius fewer, got {len(radii)}.")
        if len({draw.tier for draw in self.draws}) > 1 or any(
            draw.grid or draw.padding for draw in self.draws
        ):
            raise InvalidParameter(
                "the draws of an iterated mechanism share one tier and have no grid or padding of their own."
            )

    @property
    def tier(self) -> DrawTier:
        """The sampler tier of all stages."""
        return self.draws[0].tier

    def diameters(self, diameter: float) -> tuple[float, ...]:
        """Return a bound on the diameter of each stage's set, given that of the first."""
        return (diameter, *(min(diameter, 2 * radius) for radius in self.radii))


def _make_option_reader(law: type[DrawSpec]) -> OptionReader:
    """Return the option reader of a draw; the theorems check that the set is bounded or F strongly convex."""
    read = read_spec_fields(law, "inverse_temperature tier step_size n_steps")
    return with_constants_options(allowed="smoothness strong_convexity diameter dimension")(read)


read_exponential_options, read_gibbs_options = (
    _make_option_reader(ExponentialSpec),
    _make_option_reader(GibbsSpec),
)


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
