"""Specs of the exponential, Gibbs and iterated exponential mechanisms, their options, and their privacy.

Privacy guarantees of one draw from exp(-beta F): of the exact law, and of a sampler certified to be close to it.

On a bounded set the draw has bounded range beta * oscillation. Proof: the log density ratio of neighbours is -beta g
+ constant with g = F(.; D) - F(.; D'), so it lies in an interval of length beta (max g - min g), and g is (gradient
sensitivity)-Lipschitz on the set. Neither convexity nor smoothness nor a bounded loss is used. A nondecreasing
1-Lipschitz function of F - min F (threshold, ramp) preserves the interval. References: McSherry and Talwar (2007);
Ganesh, Thakurta and Upadhyay (2022), theorems D.1 and D.5, with the factor 2 made explicit; Durfee and Rogers (2019)
and Cesar and Rogers (2021) for bounded range.

For strongly convex F the draw is Delta sqrt(beta / m)-GDP, where Delta is the sensitivity of grad F (Gopi, Lee and
Liu 2022, theorem 4.1; Bok, Su and Altschuler 2024, section 5; exact for quadratics). With a log-Sobolev constant c
and a G-Lipschitz log ratio it is G^2 / (2c)-zCDP. Theorem 2.7 of Ganesh, Thakurta and Upadhyay (2023) is false as
printed for small epsilon and is not used.

A sampler's certificate must hold for EVERY admissible data set; one-sided Renyi closeness implies nothing.

exact: the law itself. certified: after k steps the proximal chain is within total variation tau of the law, for every
data set, and delta grows by (1 + e^eps) tau. pure: its density is within a factor 1 +- zeta of the law's everywhere,
and epsilon grows by log((1 + zeta) / (1 - zeta)). tau and zeta follow from the worst-case constants and the spec.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from dplangevin import _check
from dplangevin.accounting import proximal_certificate as chain
from dplangevin.accounting.guarantee import Condition, Guarantee
from dplangevin.accounting.parts import (
    Approximate,
    BoundedRange,
    Concentrated,
    Gaussian,
    PrivacyPart,
    Profile,
    Pure,
)
from dplangevin.accounting.plan import Capabilities, Spec, Theorem, round_up
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.options import OptionReader, read_spec_fields, with_constants_options
from dplangevin.problem.constants import Constants

EXPONENTIAL_THEOREM = "exponential mechanism"
EXPONENTIAL_REFERENCE = (
    "McSherry and Talwar (2007), Theorem 6; bounded range by Durfee and Rogers (2019), section 4"
)
DRAW_ASSUMPTIONS = (
    "the draw is exact in real arithmetic, from a secret seed",
    "running time and number of proposals are not observed",
    "n, bounds and inverse temperature are public and not chosen from the private data",
)


def mean_gradient_sensitivity(constants: Constants) -> float:
    """Return sup |grad F(theta; D) - grad F(theta; D')| over neighbours: the sensitivity of the sum divided by n."""
    return constants.gradient_sensitivity / constants.n


def score_oscillation(constants: Constants) -> float:
    """Return the supremum over neighbours of max g - min g: Delta * diameter (2 L diam / n under replace-one).

    Where values are clipped to an interval of width b, it is 2 b / n (b / n under add-remove), without any gradient.
    """
    if constants.value_oscillation is not None:
        return constants.value_oscillation / constants.n
    if constants.diameter == float("inf"):
        raise AssumptionFailed(
            f"{EXPONENTIAL_THEOREM} does not apply: the parameter set is unbounded, so one record can change the score "
            "without limit. Constrain the parameter to a ball or box."
        )
    return mean_gradient_sensitivity(constants) * constants.diameter


def exponential_guarantee(
    constants: Constants, inverse_temperature: float, minimum_error: float = 0.0
) -> Guarantee:
    """Return the guarantee of one exact draw of exp(-beta F): bounded range beta (oscillation + minimum_error).

    Parameters
    ----------
    minimum_error : for scores max{F, F* + psi} or ramps of F - F*, a data-independent bound on the error of the
        computed minimum F* that the solver always meets; 0 for the plain score.
    """
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    error = _check.check_nonnegative("minimum_error", minimum_error)
    return Guarantee(
        parts=(BoundedRange(value=round_up(beta * (score_oscillation(constants) + error))),),
        adjacency=constants.adjacency,
        release="draw",
        theorem=EXPONENTIAL_THEOREM,
        reference=EXPONENTIAL_REFERENCE,
        assumptions=(*constants.assumptions, *DRAW_ASSUMPTIONS),
        at_delta=0.0,
    )


def exponential_temperature(constants: Constants, epsilon: float, minimum_error: float = 0.0) -> float:
    """Return the largest inverse temperature with bounded range epsilon: epsilon / (oscillation + minimum_error)."""
    target = _check.check_positive("epsilon", epsilon)
    width = score_oscillation(constants) + _check.check_nonnegative("minimum_error", minimum_error)
    beta = target / width
    while round_up(beta * width) > target:
        beta *= 1 - 1e-9
    return beta


def gibbs_guarantee(constants: Constants, inverse_temperature: float) -> Guarantee:
    """Return the guarantee of one exact draw of exp(-beta F), F m-strongly convex on a convex set.

    It is mu-GDP with mu = Delta sqrt(beta / m).
    """
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    ridge = _check_strong_convexity(constants, "the Gibbs law's Gaussian differential privacy")
    mu = round_up(mean_gradient_sensitivity(constants) * math.sqrt(beta / ridge))
    return _make_guarantee(
        constants, Gaussian(mu=mu), "strongly convex Gibbs law", "Gopi, Lee and Liu (2022), theorem 4.1"
    )


def gibbs_temperature(constants: Constants, mu: float) -> float:
    """Return the largest inverse temperature whose Gibbs law is mu-GDP: m mu^2 / Delta^2."""
    target = _check.check_positive("mu", mu)
    ridge = _check_strong_convexity(constants, "the Gibbs law's Gaussian differential privacy")
    delta = mean_gradient_sensitivity(constants)
    beta = ridge * (target / delta) ** 2
    while round_up(delta * math.sqrt(beta / ridge)) > target:
        beta *= 1 - 1e-9
    return beta


def log_sobolev_constant(
    inverse_temperature: float, strong_convexity: float, threshold: float = 0.0, smoothing: float = 0.0
) -> float:
    """Return the log-Sobolev constant c of exp(-beta max{F, F* + threshold}), F m-strongly convex.

    c is normalised by KL <= E|grad log ratio|^2 / (2c). Bakry-Emery gives beta m, and Holley-Stroock the factor
    exp(-oscillation of the perturbation): beta m exp(-beta threshold) while beta threshold <= 1, m / (e threshold)
    beyond. `smoothing` adds the oscillation M p lambda^2 / 2 of a Gaussian smoothing of width lambda (the first form
    then holds for every beta).
    """
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    ridge = _check.check_positive("strong_convexity", strong_convexity)
    psi, extra = (
        _check.check_nonnegative("threshold", threshold),
        _check.check_nonnegative("smoothing", smoothing),
    )
    if extra == 0 and beta * psi > 1:
        return ridge / (math.e * psi)
    return beta * ridge * math.exp(-beta * (psi + extra))


def log_sobolev_guarantee(
    constants: Constants, inverse_temperature: float, score_sensitivity: float, log_sobolev: float
) -> Guarantee:
    """Return the guarantee of one exact draw of exp(-beta score): (beta score_sensitivity)^2 / (2c)-zCDP.

    Parameters
    ----------
    score_sensitivity : bound on |grad score(.; D) - grad score(.; D')| over neighbours on the set.
    log_sobolev : c, a log-Sobolev constant that holds for the law of every data set.
    """
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    gap = beta * _check.check_positive("score_sensitivity", score_sensitivity)
    rho = round_up(gap**2 / (2 * _check.check_positive("log_sobolev", log_sobolev)))
    return _make_guarantee(
        constants,
        Concentrated(rho=rho),
        "Gibbs law with a log-Sobolev inequality",
        "Herbst's argument, Ledoux (1999), with explicit constants",
    )


def threshold_sensitivity(
    constants: Constants, threshold: float, full_lipschitz: float, interior_minimizers: bool
) -> float:
    """Return the sensitivity of grad F 1[F > F* + psi]: max{Delta, min(L_F, Delta + sqrt(2 M psi))}.

    Needs F convex, and for the second form grad F = 0 at the minimiser of EVERY data set (for instance a
    ball of radius at least L/m around the ridge's centre) and F smooth everywhere. Otherwise max{Delta,
    L_F}: at a minimiser on the boundary the gradient jumps by up to L_F, the Lipschitz constant of the full F.
    """
    psi = _check.check_nonnegative("threshold", threshold)
    full = _check.check_positive("full_lipschitz", full_lipschitz)
    if not constants.convex:
        raise AssumptionFailed(
            "the thresholded score's sensitivity does not apply: the loss is not convex, so the set {F > F* + psi} may "
            "change by more than a gradient's width. Use the exponential mechanism's pure guarantee."
        )
    delta = mean_gradient_sensitivity(constants)
    if psi == 0:
        return delta
    inside = delta + math.sqrt(2 * constants.smoothness * psi) if interior_minimizers else math.inf
    return max(delta, min(full, inside))


def ramp_sensitivity(
    constants: Constants, ramp: float, full_lipschitz: float, minimum_error: float = 0.0
) -> float:
    """Return the gradient sensitivity of a ramp of width tau of F - F*: Delta + L_F (oscillation + error) / tau."""
    tau = _check.check_positive("ramp", ramp)
    full = _check.check_positive("full_lipschitz", full_lipschitz)
    width = score_oscillation(constants) + _check.check_nonnegative("minimum_error", minimum_error)
    return mean_gradient_sensitivity(constants) + full * width / tau


def thresholded_gibbs_guarantee(
    constants: Constants,
    inverse_temperature: float,
    threshold: float,
    full_lipschitz: float,
    interior_minimizers: bool,
    minimum_error: float = 0.0,
) -> Guarantee:
    """Return the guarantee of one exact draw of exp(-beta max{F, F* + psi}).

    It is the smaller, in zCDP, of the log-Sobolev and the bounded-range guarantee. With an inexact F* the threshold
    is at most minimum_error higher, which enters both.
    """
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    ridge = _check_strong_convexity(constants, "the thresholded Gibbs law")
    psi = _check.check_nonnegative("threshold", threshold) + _check.check_nonnegative(
        "minimum_error", minimum_error
    )
    sensitivity = threshold_sensitivity(constants, psi, full_lipschitz, interior_minimizers)
    log_sobolev = log_sobolev_guarantee(constants, beta, sensitivity, log_sobolev_constant(beta, ridge, psi))
    bounded_range = exponential_guarantee(constants, beta, minimum_error)
    epsilon = bounded_range.epsilon(0.0)
    rho = sum(part.rho for part in log_sobolev.parts if isinstance(part, Concentrated))
    return log_sobolev if rho < epsilon**2 / 8 else bounded_range


def _check_strong_convexity(constants: Constants, what: str) -> float:
    if not constants.convex:
        raise AssumptionFailed(
            f"{what} does not apply: the loss is not convex. Use the exponential mechanism's pure guarantee."
        )
    if constants.strong_convexity <= 0:
        raise AssumptionFailed(f"{what} does not apply: strong_convexity is 0. Add a ridge (alpha > 0).")
    return constants.strong_convexity


def _make_guarantee(constants: Constants, part: PrivacyPart, theorem: str, reference: str) -> Guarantee:
    return Guarantee(
        parts=(part,),
        adjacency=constants.adjacency,
        release="draw",
        theorem=theorem,
        reference=reference,
        assumptions=(*constants.assumptions, *DRAW_ASSUMPTIONS),
    )


_EPSILON_GRID = np.concatenate([[0.0], np.geomspace(1e-3, 30.0, 600)])


def transfer_total_variation(
    guarantee: Guarantee, total_variation: float, epsilon: float | None = None
) -> Guarantee:
    """Return the guarantee of a sampler within total variation tau of the law: (eps, delta + (1 + e^eps) tau).

    Parameters
    ----------
    guarantee : (eps, delta) of the law, for every eps.
    epsilon : a value at which the resulting curve is exact (elsewhere it is interpolated on the safe side).
    """
    tau = _check.check_nonnegative("total_variation", total_variation)
    if tau == 0:
        return guarantee
    at = guarantee.epsilon(0.0)
    exact = [value for value in (epsilon, at) if value is not None and math.isfinite(value)]
    # every point of a composition is a sum over a long distribution: a coarser grid there
    is_composed = sum(part.count for part in guarantee.parts) > 1
    grid = np.unique(np.concatenate([_EPSILON_GRID[:: 6 if is_composed else 1], exact]))
    deltas = np.array([guarantee.delta(float(e)) for e in grid]) + (1 + np.exp(grid)) * tau
    # delta(eps) is nonincreasing, so the bound at a smaller eps holds at all larger ones
    best = np.minimum.accumulate(np.minimum(deltas * (1 + 1e-12), 1.0))
    return _replace_parts(
        guarantee,
        (Profile(epsilons=tuple(grid.tolist()), deltas=tuple(best.tolist())),),
        f"the draw's law is within total variation {tau:.6g} of the target for every data set",
        "certified sampler",
    )


def total_variation_allowance(delta: float, epsilon: float) -> float:
    """Return the total variation tau that adds `delta` to a guarantee at epsilon: delta / (1 + e^eps), rounded down.

    Examples
    --------
    >>> round(total_variation_allowance(1e-6, 1.0) * 1e7, 4)
    2.6894
    """
    return (
        _check.check_open_unit("delta", delta)
        / (1 + math.exp(_check.check_nonnegative("epsilon", epsilon)))
        * (1 - 1e-9)
    )


def sup_norm_cost(sup_norm: float) -> float:
    """Return what a density known within a factor 1 +- zeta adds to epsilon: log((1 + zeta) / (1 - zeta))."""
    zeta = _check.check_nonnegative("sup_norm", sup_norm)
    if zeta >= 1:
        raise AssumptionFailed(f"the sup-norm certificate must be below 1, got {sup_norm!r}; run more steps.")
    return (math.log1p(zeta) - math.log1p(-zeta)) * (1 + 1e-12)


def transfer_sup_norm(guarantee: Guarantee, sup_norm: float, keep_range: bool = False) -> Guarantee:
    """Return the guarantee of a sampler whose density is within a factor [1 - zeta, 1 + zeta] of a pure law's.

    It is pure, with epsilon + log((1 + zeta) / (1 - zeta)). With `keep_range` a bounded-range guarantee stays one
    (which composes better) and grows by twice as much, because the log ratio may move by that much at each end.
    """
    cost = sup_norm_cost(sup_norm)
    _check_pure(guarantee, "the sup-norm certificate")
    if keep_range:
        if (
            len(guarantee.parts) != 1
            or not isinstance(guarantee.parts[0], BoundedRange)
            or guarantee.parts[0].count != 1
        ):
            raise AssumptionFailed(
                "keep_range needs one bounded-range draw; leave it out to get a pure guarantee."
            )
        parts: tuple[Pure | BoundedRange, ...] = (BoundedRange(value=guarantee.parts[0].value + 2 * cost),)
    else:
        parts = (Pure(value=guarantee.epsilon(0.0) + cost),)
    assumption = (
        f"the draw's density is within a factor 1 +- {sup_norm:.6g} of the target's for every data set"
    )
    return _replace_parts(guarantee, parts, assumption, "sup-norm certified sampler")


def cap_rejection(guarantee: Guarantee, failure_probability: float) -> Guarantee:
    """Return the guarantee of a rejection loop that stops after N proposals and then returns a fixed output.

    delta grows by sup_D (1 - acceptance)^N, which failure_probability must bound for every data set. This holds only
    for a pure law.
    """
    fail = _check.check_nonnegative("failure_probability", failure_probability)
    _check_pure(guarantee, "the cap's extra delta")
    assumption = f"the rejection loop fails with probability at most {fail:.6g} for every data set, with a fixed output"
    return replace(
        guarantee,
        extra_delta=guarantee.extra_delta + fail,
        assumptions=(*guarantee.assumptions, assumption),
        at_delta=None,
    )


def _check_pure(guarantee: Guarantee, what: str) -> None:
    if not math.isfinite(guarantee.epsilon(0.0)):
        raise AssumptionFailed(f"{what} needs a pure target (delta = 0); use the total-variation transfer.")


def _replace_parts(
    guarantee: Guarantee,
    parts: tuple[Profile | Pure | BoundedRange | Approximate, ...],
    assumption: str,
    name: str,
) -> Guarantee:
    return replace(
        guarantee,
        parts=parts,
        extra_delta=0.0,
        theorem=f"{guarantee.theorem}, {name}",
        assumptions=(*guarantee.assumptions, assumption),
        at_delta=0.0 if name in ("sup-norm certified sampler", "density error") else None,
        composition=None,
    )


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
