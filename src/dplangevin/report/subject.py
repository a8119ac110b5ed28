"""Subject: whatever can be reported on, seen through what every report shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from dplangevin.errors import InvalidParameter, NotPrivateError
from dplangevin.privacy.guarantee import Guarantee, NotPrivate
from dplangevin.privacy.plan import Price

_MOST = 12


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A release, a plan or a fitted model: its promise, its plan where known, and what ran.

    Parameters
    ----------
    what : in words. guarantee : the promise. plan : None where only the promise is known (a loaded model file).
    seeded : the noise came from a user's seed; None when nothing ran yet or it is not recorded.
    steps : number of steps that ran. digest : hash of the release, as in the ledger.
    rows_per_person : the promise is for all rows of a person who owns so many.
    whole : whether the plan is all that was spent; else its own costs say too little.
    ledger_head : the head of the ledger's chain after the release was charged.
    notes : more sentences; ledger : a budget with `remaining()`, or None.
    """

    what: str
    guarantee: Guarantee
    plan: Price | None = None
    seeded: bool | None = None
    steps: int | None = None
    digest: str | None = None
    ledger_head: str | None = None
    rows_per_person: int = 1
    whole: bool = True
    notes: tuple[str, ...] = ()
    ledger: Any = None
    settings: Mapping[str, str] = field(default_factory=dict)


def subject_of(thing: Any, ledger: Any = None) -> Subject:
    """The subject behind a release, plan, recipe, fitted estimator, count table or guarantee."""
    if isinstance(thing, Guarantee):
        return Subject(
            what="A promise", guarantee=thing, rows_per_person=thing.rows_per_person, ledger=ledger
        )
    if hasattr(thing, "get_params"):
        return _estimator(thing, ledger)
    if isinstance(thing, Price):
        return Subject(
            what=f"A plan of {thing.schedule.mechanism}",
            guarantee=_proved(thing.guarantee),
            plan=thing,
            ledger=ledger,
        )
    if hasattr(thing, "reasons") and isinstance(getattr(thing, "plan", None), Price):
        return Subject(
            what=f"A plan for {thing.model}", guarantee=_proved(thing.plan.guarantee), plan=thing.plan,
            notes=tuple(thing.reasons), ledger=ledger,
        )  # fmt: skip
    priced = getattr(thing, "plan", None) or getattr(thing, "mechanism", None)
    found = getattr(thing, "guarantee", None) or getattr(priced, "guarantee", None)
    if priced is None or not isinstance(found, (Guarantee, NotPrivate)):
        raise InvalidParameter(
            f"no report can be written about a {type(thing).__name__}; give a release, a plan, a fitted estimator or a "
            "guarantee."
        )
    schedule = getattr(priced, "schedule", priced)
    return Subject(
        what=f"A release by {getattr(schedule, 'mechanism', type(priced).__name__)}",
        guarantee=_proved(found),
        plan=priced if isinstance(priced, Price) else None,
        seeded=getattr(thing, "seeded", None),
        steps=getattr(thing, "n_steps", None),
        rows_per_person=getattr(found, "rows_per_person", 1),
        digest=thing.digest() if hasattr(thing, "digest") else None,
        ledger_head=getattr(thing, "ledger_head", None),
        ledger=ledger,
        settings=settings_of(schedule),
    )


def _estimator(model: Any, ledger: Any) -> Subject:
    if not isinstance(getattr(model, "privacy_", None), (Guarantee, NotPrivate)):
        raise InvalidParameter(f"{type(model).__name__} has no promise yet; call fit before reporting on it.")
    recipe = getattr(model, "plan_", None)
    plan = getattr(recipe, "plan", None)
    return Subject(
        what=f"A model fitted by {type(model).__name__}",
        guarantee=_proved(model.privacy_),
        plan=plan if isinstance(plan, Price) else None,
        seeded=None if getattr(model, "random_state", None) is None else True,
        steps=getattr(model, "n_iter_", None),
        ledger_head=getattr(model, "ledger_head_", None),
        rows_per_person=int(getattr(model, "max_rows_per_person", 1)),
        whole=isinstance(plan, Price) and _spent_by(plan, model.privacy_),
        notes=tuple(getattr(recipe, "reasons", ())) or tuple(str(recipe or "").splitlines()),
        ledger=ledger if ledger is not None else getattr(model, "ledger", None),
    )


def _spent_by(plan: Price, promise: Any) -> bool:
    """Whether the promise is that of the plan, and of nothing beside."""
    own = plan.guarantee.group(getattr(promise, "rows_per_person", 1))
    return bool(own.parts == getattr(promise, "parts", None) and own.adjacency == promise.adjacency)


def settings_of(value: Any) -> dict[str, str]:
    """The public fields of a frozen record as short text."""
    if not is_dataclass(value):
        return {}
    found = {}
    for each in fields(value):
        if not each.init:  # follows from the others
            continue
        item = getattr(value, each.name)
        if isinstance(item, (str, bool, int, float, np.number)) or item is None:
            found[each.name] = _short(item)
        elif isinstance(item, tuple) and all(isinstance(x, (str, int, float)) for x in item):
            shown = ", ".join(_short(x) for x in item[:_MOST])
            found[each.name] = shown + (f", ... ({len(item)})" if len(item) > _MOST else "")
    return {name: words for name, words in found.items() if words not in ("", "None")}


def _short(item: Any) -> str:
    return f"{item:.6g}" if isinstance(item, float) else str(item)


def _proved(guarantee: Guarantee | NotPrivate) -> Guarantee:
    if isinstance(guarantee, NotPrivate):
        raise NotPrivateError(f"there is no promise to report: {guarantee.reason}")
    return guarantee
