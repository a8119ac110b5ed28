"""Specs of private draws and chains of a Rashomon set: models whose objective is within a threshold of the best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.accounting.theorem import Capabilities, Spec
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.exponential.spec import DRAW_TIERS, DrawTier, check_chain_fields
from dplangevin.mechanisms.minimizer_tolerance import tolerance_or_default
from dplangevin.mechanisms.options import with_constants_options
from dplangevin.problem.constants import Constants


@dataclass(frozen=True, kw_only=True)
class RashomonSpec(Spec):
    """Independent draws of exp(-beta h(F - F*)) on the set, with h flat up to the threshold psi.

    h(a) = max(a - psi, 0), or with a ramp tau > 0: 0 up to psi, (a - psi)^2 / (2 tau) up to psi + tau, then
    a - psi - tau/2. F* is F at a computed minimiser.

    Parameters
    ----------
    n_models : K, number of draws. threshold : psi. ramp : tau, 0 for the sharp threshold.
    inverse_temperature : beta.
    tolerance : largest gradient norm of the SUM of losses (with the ridge) at the computed minimiser, modulo the
        normal cone; a run that misses it releases nothing. Not used on a grid.
    max_excess : a bound on sup F - inf F over the set (see problem.problem.max_excess); a run refuses a problem with
        a larger one.
    tier : "exact", "certified" (proximal chain, total variation) or "pure" (proximal chain, density everywhere).
    step_size, n_steps : of the proximal chain; 0 for exact draws.
    target_epsilon : the epsilon at which a certified guarantee is exact; elsewhere it is interpolated upwards.
    grid : 0, or points per axis of a public grid that replaces the set; F* is then the minimum over the grid, exactly,
        and neither convexity nor a ridge is needed (exact draws of the sharp threshold).
    excess_cap : certified chains sample the law on {F <= F* + psi + excess_cap}, a set so small that they converge
        quickly; what the law puts beyond it counts as total variation. Infinity: the whole set.
    """

    mechanism: ClassVar[str] = "rashomon"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True)
    n_models: int
    threshold: float
    inverse_temperature: float
    tolerance: float
    max_excess: float
    ramp: float = 0.0
    tier: DrawTier = "exact"
    step_size: float = 0.0
    n_steps: int = 0
    target_epsilon: float = 1.0
    excess_cap: float = math.inf
    grid: int = 0
    release: Literal["draw"] = "draw"

    def __post_init__(self) -> None:
        _check_common_fields(self)
        _check.set_frozen(self, tier=_check.check_choice("tier", self.tier, DRAW_TIERS))
        _check.validate_fields(self, max_excess=_check.check_scale, target_epsilon=_check.check_positive)
        _check.set_frozen(self, release=_check.check_choice("release", self.release, ("draw",)))
        check_chain_fields(self, "exact draws have")
        _check.set_frozen(
            self, excess_cap=_check.check_positive("excess_cap", self.excess_cap, infinite=True)
        )
        _check.set_frozen(self, grid=_check.check_count("grid", self.grid, minimum=0))
        if self.grid == 1 or (self.grid and (self.tier != "exact" or self.ramp)):
            raise InvalidParameter(
                "grid must be 0, or at least 2 points per axis with tier='exact' and ramp=0."
            )
        if math.isfinite(self.excess_cap) and (self.tier != "certified" or self.ramp > 0):
            raise InvalidParameter("excess_cap is for certified chains of the sharp threshold; leave it out.")


@dataclass(frozen=True, kw_only=True)
class RashomonChainSpec(Spec):
    """Chains theta <- project(theta - eta beta grad h(F - F*)(theta) + N(0, 2 eta I)), n_models of them.

    The noise of the chains is what makes them private. They start at 0 and stop after a number of steps drawn
    uniformly and publicly from n_steps/2, ..., n_steps - 1.

    Parameters
    ----------
    n_models, threshold, inverse_temperature, tolerance, ramp : as in RashomonSpec.
    full_lipschitz : a bound on L_F, the Lipschitz constant of the full F on the set, regulariser included.
    interior_minimizers : every data set's minimiser is a zero of the gradient; required for the sharp threshold
        (ramp = 0).
    step_size : eta; eta beta is the learning rate. n_steps : the maximum number of steps of a chain.
    release : "last-iterate", the last points; "trajectory", every point of every chain.
    """

    mechanism: ClassVar[str] = "rashomon-chain"
    capabilities: ClassVar[Capabilities] = Capabilities()
    n_models: int
    threshold: float
    inverse_temperature: float
    tolerance: float
    full_lipschitz: float
    step_size: float
    n_steps: int
    ramp: float = 0.0
    interior_minimizers: bool = False
    release: Literal["last-iterate", "trajectory"] = "last-iterate"

    def __post_init__(self) -> None:
        _check_common_fields(self)
        _check.validate_fields(
            self, full_lipschitz=_check.check_scale, step_size=_check.check_scale, n_steps=_check.check_count
        )
        _check.set_frozen(
            self, release=_check.check_choice("release", self.release, ("last-iterate", "trajectory"))
        )

    @property
    def tier(self) -> str:
        """Always "process": the chains are private by their own noise."""
        return "process"


def _check_common_fields(spec: RashomonSpec | RashomonChainSpec) -> None:
    _check.set_frozen(spec, n_models=_check.check_count("n_models", spec.n_models))
    _check.set_frozen(spec, threshold=_check.check_nonnegative("threshold", spec.threshold))
    _check.set_frozen(spec, ramp=_check.check_nonnegative("ramp", spec.ramp))
    beta = _check.check_scale("inverse_temperature", spec.inverse_temperature)
    _check.set_frozen(
        spec, inverse_temperature=beta, tolerance=_check.check_positive("tolerance", spec.tolerance)
    )


@with_constants_options("smoothness strong_convexity diameter dimension")
def read_rashomon_options(
    constants: Constants,
    *,
    n_models: int,
    threshold: float,
    inverse_temperature: float,
    max_excess: float | None = None,
    ramp: float = 0.0,
    tolerance: float | None = None,
) -> RashomonSpec:
    """Read the options of exact draws of exp(-inverse_temperature h(F - F*)), with h flat up to the threshold."""
    if max_excess is None:  # a bound on sup F - inf F from the Lipschitz constant of the full F
        full_lipschitz = constants.lipschitz + constants.strong_convexity * constants.diameter
        max_excess = full_lipschitz * constants.diameter
    return RashomonSpec(
        n_models=n_models,
        threshold=threshold,
        inverse_temperature=inverse_temperature,
        tolerance=tolerance_or_default(constants, tolerance),
        max_excess=max_excess,
        ramp=ramp,
    )
