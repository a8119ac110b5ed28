"""ReportSubject: what every report shows of a release, a plan, a model or a guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from dplangevin.accounting.guarantee import Guarantee, NotPrivate
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import InvalidParameter, NotPrivateError

_MAX_TEXT_LENGTH = 12


@dataclass(frozen=True, kw_only=True)
class ReportSubject:
    """A release, a plan or a fitted model: its guarantee, its plan where known, and what ran.

    Parameters
    ----------
    what : name of the subject, for the title.
    guarantee : its guarantee.
    plan : its plan; None where only the guarantee is known (a loaded model file).
    seeded : whether the noise came from a user's seed; None when nothing ran yet or it is not recorded.
    steps : number of steps that ran.
    digest : hash of the release, as in the ledger.
    ledger_head : head of the ledger's chain after the release was charged.
    rows_per_person : largest number of a person's rows that the guarantee covers.
    covers_everything : whether the plan is all that was charged; otherwise its own cost is too small.
    notes : further sentences.
    ledger : a budget with `remaining()`, or None.
    settings : public settings of the run as text.
    """

    what: str
    guarantee: Guarantee
    plan: CertifiedSpec | None = None
    seeded: bool | None = None
    steps: int | None = None
    digest: str | None = None
    ledger_head: str | None = None
    rows_per_person: int = 1
    covers_everything: bool = True
    notes: tuple[str, ...] = ()
    ledger: Any = None
    settings: Mapping[str, str] = field(default_factory=dict)


def report_subject(thing: Any, ledger: Any = None) -> ReportSubject:
    """Return the report subject of a release, plan, FitPlan, fitted estimator, count table or guarantee."""
    if isinstance(thing, Guarantee):
        return ReportSubject(
            what="A guarantee", guarantee=thing, rows_per_person=thing.rows_per_person, ledger=ledger
        )
    if hasattr(thing, "get_params"):
        return _subject_of_estimator(thing, ledger)
    if isinstance(thing, CertifiedSpec):
        return ReportSubject(
            what=f"A plan of {thing.spec.mechanism}",
            guarantee=_proved_guarantee(thing.guarantee),
            plan=thing,
            ledger=ledger,
        )
    if hasattr(thing, "reasons") and isinstance(getattr(thing, "plan", None), CertifiedSpec):
        return ReportSubject(
            what=f"A plan for {thing.model}", guarantee=_proved_guarantee(thing.plan.guarantee), plan=thing.plan,
            notes=tuple(thing.reasons), ledger=ledger,
        )  # fmt: skip
    plan = getattr(thing, "plan", None) or getattr(thing, "mechanism", None)
    guarantee = getattr(thing, "guarantee", None) or getattr(plan, "guarantee", None)
    if plan is None or not isinstance(guarantee, (Guarantee, NotPrivate)):
        raise InvalidParameter(
            f"no report can be written about a {type(thing).__name__}; give a release, a plan, a fitted estimator or a "
            "guarantee."
        )
    spec = getattr(plan, "spec", plan)
    return ReportSubject(
        what=f"A release by {getattr(spec, 'mechanism', type(plan).__name__)}",
        guarantee=_proved_guarantee(guarantee),
        plan=plan if isinstance(plan, CertifiedSpec) else None,
        seeded=getattr(thing, "seeded", None),
        steps=getattr(thing, "n_steps", None),
        rows_per_person=getattr(guarantee, "rows_per_person", 1),
        digest=thing.digest() if hasattr(thing, "digest") else None,
        ledger_head=getattr(thing, "ledger_head", None),
        ledger=ledger,
        settings=public_settings(spec),
    )


def _subject_of_estimator(model: Any, ledger: Any) -> ReportSubject:
    if not isinstance(getattr(model, "privacy_", None), (Guarantee, NotPrivate)):
        raise InvalidParameter(
            f"{type(model).__name__} has no guarantee yet; call fit before reporting on it."
        )
    fit_plan = getattr(model, "plan_", None)
    plan = getattr(fit_plan, "plan", None)
    return ReportSubject(
        what=f"A model fitted by {type(model).__name__}",
        guarantee=_proved_guarantee(model.privacy_),
        plan=plan if isinstance(plan, CertifiedSpec) else None,
        seeded=None if getattr(model, "random_state", None) is None else True,
        steps=getattr(model, "n_iter_", None),
        ledger_head=getattr(model, "ledger_head_", None),
        rows_per_person=int(getattr(model, "max_rows_per_person", 1)),
        covers_everything=isinstance(plan, CertifiedSpec) and _is_whole_guarantee(plan, model.privacy_),
        notes=tuple(getattr(fit_plan, "reasons", ())) or tuple(str(fit_plan or "").splitlines()),
        ledger=ledger if ledger is not None else getattr(model, "ledger", None),
    )


def _is_whole_guarantee(plan: CertifiedSpec, guarantee: Any) -> bool:
    """Return whether the guarantee is exactly that of the plan, with nothing composed onto it."""
    own = plan.guarantee.group(getattr(guarantee, "rows_per_person", 1))
    return bool(own.parts == getattr(guarantee, "parts", None) and own.adjacency == guarantee.adjacency)


def public_settings(value: Any) -> dict[str, str]:
    """Return the public fields of a dataclass as short text."""
    if not is_dataclass(value):
        return {}
    texts = {}
    for each in fields(value):
        if not each.init:  # follows from the others
            continue
        item = getattr(value, each.name)
        if isinstance(item, (str, bool, int, float, np.number)) or item is None:
            texts[each.name] = _short_text(item)
        elif isinstance(item, tuple) and all(isinstance(x, (str, int, float)) for x in item):
            shown = ", ".join(_short_text(x) for x in item[:_MAX_TEXT_LENGTH])
            texts[each.name] = shown + (f", ... ({len(item)})" if len(item) > _MAX_TEXT_LENGTH else "")
    return {name: text for name, text in texts.items() if text not in ("", "None")}


def _short_text(item: Any) -> str:
    return f"{item:.6g}" if isinstance(item, float) else str(item)


def _proved_guarantee(guarantee: Guarantee | NotPrivate) -> Guarantee:
    if isinstance(guarantee, NotPrivate):
        raise NotPrivateError(f"there is no guarantee to report: {guarantee.reason}")
    return guarantee
