"""The report on one release, plan or model: its guarantee in plain words, curves, assumptions and signatures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dplangevin._version import __version__
from dplangevin.accounting.certificate import certificate_to_plain, check_guarantee
from dplangevin.accounting.guarantee import Guarantee, NotPrivate
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import InvalidParameter, NotPrivateError
from dplangevin.estimators.shapes import LEGEND, ColumnShape, flip_margin
from dplangevin.report.answer import format_header, format_number
from dplangevin.report.document import (
    Block,
    BulletList,
    Document,
    FactTable,
    Figure,
    Headline,
    Paragraph,
    Picture,
    ReportNumber,
    ReportTable,
    Section,
)
from dplangevin.report.plots import CurveRow, Line, Plot, plan_lower_bound, steps_rows
from dplangevin.signing import Signer, verify_file

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


_MAX_SHAPES = 40
_NO_BANDS_MESSAGE = (
    "There are no confidence bands: the model was fitted without intervals. Where few records lie, a curve is mostly "
    "noise and prior; intervals=True draws how far it may be off."
)


def shape_sections(model: Any, plain: dict[str, Any]) -> list[Section]:
    """Return the section on the shape functions of an additive model, if it is one, and add them to `plain`."""
    schema = getattr(model, "schema_", getattr(model, "schema", None))
    if not hasattr(model, "shapes") or not getattr(schema, "is_additive", False):
        return []
    shapes = sorted(model.shapes(), key=lambda shape: -shape.importance)
    plain["shapes"] = [shape.to_dict() for shape in shapes]
    has_bands = any(shape.low is not None for shape in shapes)
    rows = [(shape.name, ReportNumber(value=float(f"{shape.importance:.4g}"))) for shape in shapes]
    blocks: list[Block] = [
        Paragraph(
            text="The score is a sum of contributions, one per column, drawn below with the largest first."
        ),
        Paragraph(text=LEGEND if has_bands else _NO_BANDS_MESSAGE),
        ReportTable(headers=("column", "largest minus smallest contribution"), rows=rows),
        *(_shape_picture(shape) for shape in shapes[:_MAX_SHAPES]),
    ]
    return [Section(title="Contribution of each column", blocks=blocks)]


def _shape_picture(shape: ColumnShape) -> Figure:
    return Figure(plot=Picture(svg=shape.to_svg(), lines=_shape_lines(shape)), caption=shape.name)


def _shape_lines(shape: ColumnShape) -> tuple[str, ...]:
    values = shape.values if shape.values.ndim == 1 else shape.values[0]
    return tuple(
        f"{point if not isinstance(point, tuple) else ' x '.join(map(str, point))}: {value:.4g}"
        for point, value in zip(shape.points, values, strict=True)
    )


FLIP_PROBABILITIES = (0.25, 0.1, 0.05, 0.01)


def stability_sections(model: Any, plain: dict[str, Any]) -> list[Section]:
    """Return the section on how far decisions depend on the noise, where the fit knows it, and add it to `plain`."""
    noise = model.typical_score_noise() if hasattr(model, "typical_score_noise") else None
    if noise is None:
        return []
    margins = [flip_margin(probability, noise) for probability in FLIP_PROBABILITIES]
    plain["stability"] = {
        "score_noise": noise,
        "margins": dict(zip(map(str, FLIP_PROBABILITIES), margins, strict=True)),
    }
    rows = [
        (
            ReportNumber(value=probability),
            ReportNumber(value=margin),
            f"{1 / (1 + math.exp(margin)):.3f} to {1 / (1 + math.exp(-margin)):.3f}",
        )
        for probability, margin in zip(FLIP_PROBABILITIES, margins, strict=True)
    ]
    text = (
        "Another draw of the noise would decide otherwise for rows near the boundary. The noise of a typical score "
        f"there has a standard deviation of {noise:.3g}; below, the scores and predicted probabilities within which "
        "another draw decides otherwise with at least the stated probability; flip_probability(X) has it row by row."
    )
    table = ReportTable(
        headers=("probability of another decision", "|score| below", "predicted probability"), rows=rows
    )
    return [Section(title="How stable decisions are", blocks=[Paragraph(text=text), table])]


ALPHAS = tuple(float(a) for a in np.unique(np.r_[0.0, 0.001, 0.01, 0.05, np.linspace(0.0, 1.0, 41)]))


def tradeoff_at(guarantee: Guarantee, alphas: tuple[float, ...] = ALPHAS) -> tuple[float, ...]:
    """Return the trade-off function f at each alpha, see `Guarantee.tradeoff`."""
    return tuple(float(b) for b in guarantee.tradeoff(np.asarray(alphas)))


VERSION = 2  # 2 states attacks at several false positive rates
_FALSE_POSITIVE_RATES = (0.001, 0.01, 0.05)


def release_document(thing: Any, ledger: Any = None) -> Document:
    """Return the report on the guarantee of a release, a plan or a fitted model."""
    subject = report_subject(thing, ledger)
    guarantee = subject.guarantee
    delta = guarantee.at_delta or 0.0
    steps = _number_of_steps(subject)
    plan = subject.plan if subject.covers_everything else None  # the cost of a part would mislead
    rows = [] if plan is None else steps_rows(plan, delta, subject.rows_per_person)
    curve = tradeoff_at(guarantee)
    plain: dict[str, Any] = {
        **format_header("report", VERSION),
        "what": subject.what,
        "guarantee": guarantee.to_dict(delta),
        "odds_factor": _odds_factor(guarantee.epsilon(delta)),
        "attacks": [
            {"false_positive_rate": rate, "true_positive_rate": 1 - curve[ALPHAS.index(rate)]}
            for rate in _FALSE_POSITIVE_RATES
        ],
        "advantage": guarantee.advantage().advantage,
        "composition_epsilon": _composition_of(guarantee, delta),
        "certificate": certificate_to_plain(guarantee),
        "independent_check": check_guarantee(guarantee)[1],
        "lower_bound_epsilon": None,
        "seeded": subject.seeded,
        "steps": steps,
        "release_hash": subject.digest,
        "ledger_head": subject.ledger_head,
        "rows_per_person": subject.rows_per_person,
        "settings": _settings_plain(subject),
        "data_bounds": _bounds_plain(subject),
        "tradeoff": {"false_alarms": list(ALPHAS), "misses": list(curve)},
        "epsilon_against_steps": [_row_to_plain(row) for row in rows],
        "ledger": _budget_plain(subject.ledger),
    }
    if plan is not None and steps is not None and subject.rows_per_person == 1:
        plain["lower_bound_epsilon"] = plan_lower_bound(plan, steps, delta)
    sections = [
        Section(title="What an attacker can do", blocks=_attack_section(plain, curve)),
        Section(title="What is protected", blocks=[BulletList(items=protected_facts(subject))], tone="good"),
        Section(
            title="What is not protected",
            blocks=[BulletList(items=unprotected_facts(subject))],
            tone="warning",
        ),
        Section(title="The guarantee", blocks=_guarantee_section(subject, plain)),
        Section(title="What was spent, and what is left", blocks=_budget_section(plain["ledger"])),
        *stability_sections(thing, plain),
        *shape_sections(thing, plain),
        *([Section(title="Cost of more steps", blocks=_steps_section(rows, subject, plain))] if rows else []),
        Section(
            title="Holds when",
            blocks=[BulletList(items=guarantee.hypotheses or ("no further assumption is made",))],
        ),
        Section(title="Theorem", blocks=[Paragraph(text=_theorem_text(guarantee))]),
        *_facts_section("Stated bounds of the data", plain["data_bounds"]),
        *_facts_section("What ran", plain["settings"]),
        *(
            [Section(title="Why these choices", blocks=[BulletList(items=subject.notes)])]
            if subject.notes
            else []
        ),
    ]
    footer = f"Written by dplangevin {__version__} on {plain['created']}. Nothing here comes from the private data but "
    return Document(
        title=f"{subject.what}: privacy report",
        sections=sections,
        plain=plain,
        summary=_explain_odds(plain),
        headlines=_headlines(plain),
        footer=footer + "the hash of the release." if subject.digest else footer.removesuffix(" but ") + ".",
    )


def _number_of_steps(subject: ReportSubject) -> float | None:
    if subject.steps is not None:
        return subject.steps
    planned = getattr(getattr(subject.plan, "spec", None), "n_steps", None)
    return None if planned is None else float(planned) if math.isinf(planned) else int(planned)


def _guarantee_section(subject: ReportSubject, plain: dict[str, Any]) -> list[Paragraph | FactTable]:
    guarantee, epsilon, delta = subject.guarantee, plain["guarantee"]["epsilon"], plain["guarantee"]["delta"]
    rows: list[tuple[str, str | ReportNumber]] = [
        ("epsilon", ReportNumber(value=epsilon)),
        ("delta", ReportNumber(value=delta)),
    ]
    if plain["guarantee"]["mu"] is not None:
        rows.append(("mu (Gaussian DP)", ReportNumber(value=plain["guarantee"]["mu"])))
    if plain["composition_epsilon"] is not None:
        rows.append(("epsilon by plain composition", ReportNumber(value=plain["composition_epsilon"])))
    if plain["lower_bound_epsilon"] is not None:
        rows.append(
            (
                "lower bound (attained by some run)",
                ReportNumber(value=plain["lower_bound_epsilon"], down=True),
            )
        )
    if plain["steps"] is not None:
        rows.append(("steps", ReportNumber(value=plain["steps"])))
    rows += [
        ("neighbours", guarantee.adjacency),
        ("released", guarantee.release),
        ("arithmetic", guarantee.arithmetic),
        ("independent check", plain["independent_check"]),
    ]
    if subject.digest:
        rows.append(("hash of the release", subject.digest))
    if subject.ledger_head:
        rows.append(("charged under the ledger's head", subject.ledger_head))
    warnings = []
    if subject.seeded:
        text = "The noise came from a seed: the guarantee does not hold against anyone who knows it."
        warnings.append(Paragraph(text=text))
    if guarantee.arithmetic == "real":
        text = "The proof is for ideal real-valued noise; the program used floating point."
        warnings.append(Paragraph(text=text))
    return [*warnings, FactTable(rows=rows)]


def _headlines(plain: dict[str, Any]) -> list[Headline]:
    guarantee, attack, budget = plain["guarantee"], plain["attacks"][-1], plain["ledger"]
    delta = f" with delta = {guarantee['delta']:.3g}" if guarantee["delta"] else ", with delta = 0"
    headlines = [
        Headline(
            label="Privacy cost, epsilon",
            value=ReportNumber(value=guarantee["epsilon"]),
            meaning=f"an upper bound, proved{delta}, {guarantee['adjacency']}",
        ),
        Headline(
            label="An attack recognises",
            value=ReportNumber(value=attack["true_positive_rate"], percent=True),
            meaning="at most, of the records that were used, when it wrongly accuses "
            f"{attack['false_positive_rate']:.0%} of the others",
        ),
        Headline(
            label="Advantage of any attack",
            value=ReportNumber(value=plain["advantage"], percent=True),
            meaning="at most, over guessing whether a record was used",
        ),
    ]
    if budget is not None:
        value = ReportNumber(value=budget["epsilon"])
        meaning = f"epsilon of {budget['dataset']}; would still fit: {budget['fitting_text']}"
        headlines.append(Headline(label="Whole budget", value=value, meaning=meaning))
    return headlines


def _explain_odds(plain: dict[str, Any]) -> str:
    """Explain the guarantee to people who do not know what epsilon is."""
    guarantee, rows = plain["guarantee"], plain["rows_per_person"]
    unit = "one record" if rows == 1 else f"all records (at most {rows}) of one person"
    is_exchange = guarantee["adjacency"] == "replace-one"
    change = "were exchanged for any other" if is_exchange else "were left out or added"
    extra = f" plus a probability of {guarantee['delta']:.3g}," if guarantee["delta"] else ""
    return (
        f"If {unit} {change}, no conclusion drawn from this release would become more than "
        f"{format_number(plain['odds_factor'])} times as likely,{extra} whatever else is known about that "
        "person."
    )


def _attack_section(plain: dict[str, Any], curve: tuple[float, ...]) -> list[Block]:
    """Return the rates at which an attack recognises records that were used, and the curve of all of them."""
    rows = [
        (
            f"{attack['false_positive_rate']:.1%}",
            ReportNumber(value=attack["true_positive_rate"], percent=True),
        )
        for attack in plain["attacks"]
    ]
    text = (
        "An attack infers whether a record was used, knowing all others. Its true positive rate (TPR) is the fraction "
        "of records in use that it recognises, its false positive rate (FPR) that of others that it accuses."
    )
    headers = ("false positive rate", "true positive rate, at most")
    return [Paragraph(text=text), ReportTable(headers=headers, rows=rows), _tradeoff_section(curve)]


def protected_facts(subject: ReportSubject) -> tuple[str, ...]:
    """Return sentences on what the guarantee covers."""
    unit = (
        "a record"
        if subject.rows_per_person == 1
        else f"all of a person's records, up to {subject.rows_per_person}"
    )
    return (
        f"whether {unit} was used at all, and everything in it: features, target and weight",
        "against any attacker, whatever they know of the other records and whatever they compute from this release",
        f"as long as the run releases nothing but this: {subject.guarantee.release}",
    )


def unprotected_facts(subject: ReportSubject) -> tuple[str, ...]:
    """Return sentences on what the guarantee does not cover."""
    uncovered = [
        "what the release teaches about people in general, and hence about a person who shares those traits",
        "the public choices listed here (bounds, sizes, steps, noise); they must not come from the private data",
        "other releases about the same people: their costs add up (a ledger composes them)",
        "anything else that was observed: training scores, logs, error messages, running time",
    ]
    if subject.guarantee.adjacency == "replace-one":
        uncovered.append("the number of records")
    if subject.rows_per_person == 1:
        uncovered.append("people with several records, beyond one record each")
    if subject.guarantee.arithmetic == "real":
        uncovered.append("the low-order bits of floating-point numbers; secure=True protects them")
    if subject.seeded is not False:
        uncovered.append("the noise, from someone who knows a seed it was drawn with")
    return tuple(uncovered)


def _tradeoff_section(curve: tuple[float, ...]) -> Figure:
    return Figure(
        plot=Plot(
            lines=[
                Line(
                    label="this guarantee: no attack lies below", points=list(zip(ALPHAS, curve, strict=True))
                ),
                Line(label="perfect privacy", points=[(0.0, 1.0), (1.0, 0.0)], style=2),
            ],
            x_label="false positive rate",
            y_label="false negative rate",
            description="Trade-off curve of the guarantee",
        ),
        caption="The closer the curve is to the straight line, the less an attacker learns about any one record.",
    )


def _steps_section(
    rows: list[CurveRow], subject: ReportSubject, plain: dict[str, Any]
) -> list[Figure | ReportTable | Paragraph]:
    columns: tuple[tuple[str, str, int], ...] = (
        ("bound", subject.guarantee.theorem, 0),
        ("composition", "plain composition", 1),
        ("lower", "lower bound", 2),
    )
    composed = all(row.bound == row.composition for row in rows) and any(row.bound for row in rows)
    named = [
        entry
        for entry in columns
        if any(getattr(row, entry[0]) for row in rows) and not (composed and entry[0] == "composition")
    ]
    if composed:  # a few numbers say as much as a straight line
        rows, named[0] = _select_rows(rows, plain["steps"]), ("bound", "epsilon", 0)
    cells = [
        [
            ReportNumber(value=row.steps),
            *(_optional_number(getattr(row, key), key == "lower") for key, _, _ in named),
        ]
        for row in rows
    ]
    table = ReportTable(headers=("steps", *(label for _, label, _ in named)), rows=cells)
    return (
        [Paragraph(text=_explain_missing_plateau(subject)), table]
        if composed
        else [_plateau_figure(rows, named, plain), table]
    )


def _plateau_figure(rows: list[CurveRow], named: list[tuple[str, str, int]], plain: dict[str, Any]) -> Figure:
    lines = []
    for key, label, style in named:
        points = [(row.steps, getattr(row, key)) for row in rows if getattr(row, key)]
        lines.append(Line(label=label, points=points, style=style))
    this_run = [(row.steps, row.bound) for row in rows if row.steps == plain["steps"] and row.bound]
    lines += [Line(label="this run", points=this_run, marker=True)] if this_run else []
    delta = plain["guarantee"]["delta"]
    plot = Plot(
        lines=lines, x_label="number of steps", y_label=f"epsilon at delta = {delta:.3g}", log=True,
        description="Epsilon against the number of steps",
    )  # fmt: skip
    caption = "Epsilon of runs with these public parameters and more or fewer steps (of the model)."
    return Figure(plot=plot, caption=caption)


def _select_rows(rows: list[CurveRow], ran: float | None) -> list[CurveRow]:
    """Return about five of the rows, that of the run itself among them."""
    own_index = next((i for i, row in enumerate(rows) if row.steps == ran), len(rows) - 1)
    selected = set(range(0, len(rows), max(1, len(rows) // 4))) | {own_index, len(rows) - 1}
    return [rows[i] for i in sorted(selected)]


def _explain_missing_plateau(subject: ReportSubject) -> str:
    """Explain why epsilon of this run does not stop growing with the number of steps."""
    accelerated = getattr(getattr(subject.plan, "spec", None), "momentum", False)
    text = (
        "Every step of this run costs privacy, and more steps would cost more: it is accounted by composition. "
        "That epsilon stops growing is proved for steps without momentum on a convex loss, of which only the last "
        "iterate is released; "
    )
    if subject.guarantee.release in ("last-iterate", "last-state") and not accelerated:
        return text + "for so few steps composition is the sharper bound."
    text += f"this run releases: {subject.guarantee.release}" + (
        ", after accelerated steps" if accelerated else ""
    )
    return text + "."


def _optional_number(value: float | None, down: bool) -> str | ReportNumber:
    return "-" if value is None else ReportNumber(value=value, down=down)


def _budget_section(budget: dict[str, Any] | None) -> list[Paragraph | FactTable]:
    if budget is None:
        return [
            Paragraph(
                text="No ledger was given: the total cost of all releases about these data is not recorded."
            )
        ]
    rows: list[tuple[str, str | ReportNumber]] = [
        ("data set", budget["dataset"]),
        ("budget epsilon", ReportNumber(value=budget["epsilon"])),
        ("budget delta", ReportNumber(value=budget["delta"])),
        ("releases charged", ReportNumber(value=budget["entries"])),
        ("would still fit", budget["fitting_text"]),
        *([("head of the ledger", budget["head"])] if budget["head"] else []),
    ]
    return [FactTable(rows=rows)]


def _budget_plain(ledger: Any) -> dict[str, Any] | None:
    if ledger is None or not hasattr(ledger, "remaining"):
        return None
    remaining = ledger.remaining()
    return {
        "dataset": ledger.name,
        "epsilon": remaining.epsilon,
        "delta": remaining.delta,
        "entries": remaining.entries,
        "fitting_text": remaining.fitting_text(),
        "head": ledger.head() if hasattr(ledger, "head") else None,
    }


def _bounds_plain(subject: ReportSubject) -> dict[str, str]:
    problem = getattr(subject.plan, "problem", None)
    if problem is None:
        return {}
    return {
        "records": f"{problem.n}",
        "features": f"{problem.n_features}" + (" and an intercept" if problem.fit_intercept else ""),
        **public_settings(problem.bounds),
        "loss": repr(problem.loss),
        "constraint": repr(problem.constraint),
        "ridge": f"{problem.ridge:.6g}",
    }


def _settings_plain(subject: ReportSubject) -> dict[str, str]:
    spec = getattr(subject.plan, "spec", None)
    return dict(subject.settings) or (
        {} if spec is None else {"mechanism": spec.mechanism, **public_settings(spec)}
    )


def _facts_section(title: str, facts: dict[str, str]) -> list[Section]:
    rows = [(name.replace("_", " "), text) for name, text in facts.items()]
    return [Section(title=title, blocks=[FactTable(rows=rows)])] if rows else []


def _row_to_plain(row: CurveRow) -> dict[str, float | None]:
    return {
        "steps": row.steps,
        "epsilon": row.bound,
        "composition": row.composition,
        "lower_bound": row.lower,
    }


def _composition_of(guarantee: Guarantee, delta: float) -> float | None:
    composition = guarantee.composition
    return composition.epsilon(delta) if composition is not None and 0 < delta < 1 else None


def _odds_factor(epsilon: float) -> float:
    return math.exp(epsilon) if epsilon < 700 else math.inf


def _theorem_text(guarantee: Guarantee) -> str:
    return f"{guarantee.theorem}: {guarantee.reference}. This statement is {guarantee.origin}."


_MEANING = "Check a signature with `dplangevin verify FILE --key PUB` and the signer's own public key."


def signed_section(
    sign: str | Path | None, source: str | Path | None
) -> tuple[Signer | None, Section | None]:
    """Return the signer of the report and the section on signatures; None where there are none."""
    signer, rows = None if sign is None else Signer(sign), []
    if source is not None:
        try:
            signature = verify_file(source)
        except InvalidParameter as error:
            if "dplangevin[sign]" not in str(error):
                raise
            rows.append(
                (Path(source).name, "carries a signature that was not checked: the extra `sign` is missing")
            )
        else:
            rows += [] if signature is None else [(Path(source).name, str(signature))]
    if signer is not None:
        rows.append(
            ("this report", f"signed by {signer.name or 'someone without a name'} with the key {signer.key}")
        )
    if not rows:
        return signer, None
    return signer, Section(title="Signatures", blocks=[FactTable(rows=rows), Paragraph(text=_MEANING)])
