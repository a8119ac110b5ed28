"""Schedules of private draws from a Rashomon set: models whose objective is within a threshold of the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.families.draws.schedule import DRAW_TIERS, DrawTier, check_chain
from dplangevin.privacy.schedule import Capabilities, Schedule


@dataclass(frozen=True, kw_only=True)
class RashomonSchedule(Schedule):
    """n_models independent draws of exp(-beta h(F - F*)) on the set, h flat up to the threshold psi.

    h(a) = max(a - psi, 0), or with a ramp tau > 0: 0 up to psi, (a - psi)^2 / (2 tau) up to psi + tau, then
    a - psi - tau/2. F* is F at a computed minimiser.

    Parameters
    ----------
    n_models : K, number of draws. threshold : psi. ramp : tau, 0 for the sharp threshold.
    inverse_temperature : beta.
    tolerance : largest gradient norm of the SUM of losses (with the ridge) at the computed minimiser, modulo the normal
        cone; a run that misses it releases nothing.
    excess : a bound on sup F - inf F over the set (see problem.reach); the run refuses a problem with a larger one.
    tier : "exact", "certified" (proximal chain, total variation) or "pure" (proximal chain, density everywhere).
    step_size, n_steps : of the proximal chain; 0 for exact draws.
    at_epsilon : an epsilon at which a certified promise is stated without rounding; others are interpolated upwards.
    """

    mechanism: ClassVar[str] = "rashomon"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True)
    n_models: int
    threshold: float
    inverse_temperature: float
    tolerance: float
    excess: float
    ramp: float = 0.0
    tier: DrawTier = "exact"
    step_size: float = 0.0
    n_steps: int = 0
    at_epsilon: float = 1.0
    release: Literal["draw"] = "draw"

    def __post_init__(self) -> None:
        _common(self)
        _check.put(self, tier=_check.choice("tier", self.tier, DRAW_TIERS))
        _check.each(self, excess=_check.scale, at_epsilon=_check.positive)
        _check.put(self, release=_check.choice("release", self.release, ("draw",)))
        check_chain(self, "exact draws have")


@dataclass(frozen=True, kw_only=True)
class RashomonChainSchedule(Schedule):
    """n_models chains theta <- project(theta - eta beta grad h(F - F*)(theta) + N(0, 2 eta I)).

    The chains' own noise is the privacy. They start at 0 and stop after a number of steps drawn uniformly from
    n_steps/2, ..., n_steps - 1 by a public coin. Parameters as in RashomonSchedule, and

    full_lipschitz : L_F of the full F on the set, regulariser included (a bound).
    interior : every data set's minimiser is a zero of the gradient; needed by the sharp threshold (ramp = 0).
    step_size : eta; eta beta is the learning rate. n_steps : the most steps a chain makes.
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
    interior: bool = False
    release: Literal["last-iterate", "trajectory"] = "last-iterate"

    def __post_init__(self) -> None:
        _common(self)
        _check.each(self, full_lipschitz=_check.scale, step_size=_check.scale, n_steps=_check.count)
        _check.put(self, release=_check.choice("release", self.release, ("last-iterate", "trajectory")))

    @property
    def tier(self) -> str:
        """The noise of the process is the privacy."""
        return "process"


def _common(schedule: RashomonSchedule | RashomonChainSchedule) -> None:
    _check.put(schedule, n_models=_check.count("n_models", schedule.n_models))
    _check.put(schedule, threshold=_check.nonnegative("threshold", schedule.threshold))
    _check.put(schedule, ramp=_check.nonnegative("ramp", schedule.ramp))
    beta = _check.scale("inverse_temperature", schedule.inverse_temperature)
    _check.put(schedule, inverse_temperature=beta, tolerance=_check.positive("tolerance", schedule.tolerance))
