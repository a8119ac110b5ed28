"""SGLD as it is run: the whole trajectory, or the last iterate alone."""

from __future__ import annotations

from dataclasses import replace

from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.theorem import TheoremFor
from dplangevin.privacy.theorems.langevin_process import (
    LAST_REFERENCE,
    TRAJECTORY_REFERENCE,
    sgld_last_iterate,
    sgld_trajectory,
)
from dplangevin.problem.constants import Constants
from dplangevin.schedules import LangevinSchedule

TIER = "sampler tier process: the noise of the run is the privacy, whatever law it is close to"


class LangevinTrajectory(TheoremFor[LangevinSchedule]):
    """mu^2 = (Delta^2 / 2) sum beta_t^2 eta_t for every iterate at once; any loss, any function of the path.

    Examples
    --------
    >>> constants = Constants(n=1000, lipschitz=1.0)
    >>> schedule = LangevinSchedule(inverse_temperature=100.0, step_size=1e-3, n_steps=50, release="trajectory")
    >>> round(LangevinTrajectory().certify(constants, schedule).mu, 6)
    0.031623
    """

    name = "langevin-trajectory"
    reference = TRAJECTORY_REFERENCE

    def certify(self, constants: Constants, schedule: LangevinSchedule) -> Guarantee:
        found = sgld_trajectory(constants, schedule.inverse_temperature, schedule.step_size, schedule.n_steps)
        words = "iterates may be looked at while it runs, and it may stop at any time up to n_steps"
        return _named(self, found, schedule, words)


class LangevinLastIterate(TheoremFor[LangevinSchedule]):
    """Bounded in the number of steps for strongly convex losses, or convex ones on a bounded set."""

    name = "langevin-last-iterate"
    reference = LAST_REFERENCE

    def certify(self, constants: Constants, schedule: LangevinSchedule) -> Guarantee:
        if schedule.release != "last-iterate":
            raise self.refuse(
                f"release={schedule.release!r} shows more than the last iterate",
                "Use release='last-iterate', or the trajectory bound.",
            )
        beta, eta = schedule.inverse_temperature, schedule.step_size
        if isinstance(beta, tuple) or isinstance(eta, tuple):
            raise self.refuse(
                "temperature or step size varies", "Use constant ones, or the trajectory bound."
            )
        return _named(self, sgld_last_iterate(constants, beta, eta, schedule.n_steps), schedule)


def _named(
    theorem: TheoremFor[LangevinSchedule], found: Guarantee, schedule: LangevinSchedule, *words: str
) -> Guarantee:
    return replace(
        found,
        theorem=theorem.name,
        reference=theorem.reference,
        release=schedule.release,
        assumptions=(*found.assumptions, TIER, *words),
    )
