"""run: the mechanism that a plan's schedule belongs to."""

from __future__ import annotations

from dplangevin.data.dataset import Dataset
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.families.release import Release
from dplangevin.families.run_state import StatePath
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.registry import mechanism_for
from dplangevin.privacy.spender import Spender


def run(
    plan: Plan,
    data: Dataset,
    random_state: object = None,
    *,
    ledger: Spender | None = None,
    secure: bool = False,
    state: StatePath = None,
    rows_per_person: int | None = None,
) -> Release:
    """Run a plan on data with the mechanism its schedule belongs to.

    secure=True insists on noise that is exact in integers: a plan whose proof is about real-valued noise is refused.
    state names a private file from which the same call goes on after a crash: with the same noise, charged once.
    rows_per_person is to whom the request promises, where it says so; the ledger must say the same.
    """
    if secure and plan.guarantee.arithmetic != "discrete-grid":
        raise AssumptionFailed(
            f"secure mode has no proof for {plan.guarantee.theorem} ({plan.schedule.mechanism}): its noise is "
            "real-valued. Plan with a DiscreteGradientSchedule, a schedule with secure=True, or secure=True of an "
            "estimator; hidden-state bounds, Gamma noise and draws have no secure form."
        )
    mechanism = mechanism_for(type(plan.schedule))
    if mechanism is None:
        raise InvalidParameter(
            "this plan needs a public mirror map; use PublicMirrorDescent(mirror).run(plan, data)."
        )
    release: Release = mechanism.run(
        plan, data, random_state, ledger=ledger, state=state, rows_per_person=rows_per_person
    )
    return release
