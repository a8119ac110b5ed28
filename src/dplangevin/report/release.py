"""The report on one release: the promise in plain words, its curves, what it rests on and what it leaves out."""

from __future__ import annotations

import math
from typing import Any

from dplangevin._version import __version__
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.report.curve import CurveRow
from dplangevin.report.document import Bullets, Document, Facts, Figure, Number, ReportTable, Section, Text
from dplangevin.report.html import Line, Plot
from dplangevin.report.plain import stamp
from dplangevin.report.shapes import shape_sections
from dplangevin.report.steps import lower_bound, steps_rows
from dplangevin.report.subject import Subject, settings_of, subject_of
from dplangevin.report.text import number
from dplangevin.report.tradeoff import ALPHAS, missed

VERSION = 1
_ACCUSED = 0.05


def release_document(thing: Any, ledger: Any = None) -> Document:
    """Everything known about the promise of a release, a plan or a fitted model."""
    subject = subject_of(thing, ledger)
    guarantee = subject.guarantee
    delta = guarantee.at_delta or 0.0
    steps = _ran(subject)
    plan = subject.plan if subject.whole else None  # of a part of what was spent nothing is said
    rows = [] if plan is None else steps_rows(plan, delta, subject.rows_per_person)
    curve = missed(guarantee)
    plain: dict[str, Any] = {
        **stamp("report", VERSION),
        "what": subject.what,
        "guarantee": guarantee.to_dict(delta),
        "odds_factor": _odds(guarantee.epsilon(delta)),
        "recognised": {"wrongly_accused": _ACCUSED, "recognised": 1 - curve[ALPHAS.index(_ACCUSED)]},
        "composition_epsilon": _beside(guarantee, delta),
        "lower_bound_epsilon": None,
        "seeded": subject.seeded,
        "steps": steps,
        "release_hash": subject.digest,
        "ledger_head": subject.ledger_head,
        "rows_per_person": subject.rows_per_person,
        "settings": _settings(subject),
        "data_bounds": _bounds(subject),
        "tradeoff": {"false_alarms": list(ALPHAS), "misses": list(curve)},
        "epsilon_against_steps": [_plain_row(row) for row in rows],
        "ledger": _budget(subject.ledger),
    }
    if plan is not None and steps is not None and subject.rows_per_person == 1:
        plain["lower_bound_epsilon"] = lower_bound(plan, steps, delta)
    sections = [
        Section(title="What is promised", blocks=_promise(subject, plain)),
        Section(title="What an attacker can do at most", blocks=[_tradeoff(curve)]),
        *shape_sections(thing, plain),
        *([Section(title="What more steps cost", blocks=_steps(rows, subject, plain))] if rows else []),
        Section(title="What is protected", blocks=[Bullets(items=protected(subject))]),
        Section(title="What is not protected", blocks=[Bullets(items=not_protected(subject))]),
        Section(
            title="Holds when", blocks=[Bullets(items=guarantee.hypotheses or ("nothing more is assumed",))]
        ),
        Section(title="Theorem", blocks=[Text(words=_theorem(guarantee))]),
        *_facts("Stated bounds of the data", plain["data_bounds"]),
        *_facts("What ran", plain["settings"]),
        *(
            [Section(title="Why these choices", blocks=[Bullets(items=subject.notes)])]
            if subject.notes
            else []
        ),
        Section(title="Budget left", blocks=_left(plain["ledger"])),
    ]
    footer = f"Written by dplangevin {__version__} on {plain['created']}. Nothing here comes from the private data but "
    return Document(
        title=f"{subject.what}: privacy report",
        sections=sections,
        plain=plain,
        footer=footer + "the hash of the release." if subject.digest else footer.removesuffix(" but ") + ".",
    )


def _ran(subject: Subject) -> float | None:
    if subject.steps is not None:
        return subject.steps
    planned = getattr(getattr(subject.plan, "schedule", None), "n_steps", None)
    return None if planned is None else float(planned) if math.isinf(planned) else int(planned)


def _promise(subject: Subject, plain: dict[str, Any]) -> list[Text | Facts]:
    guarantee, promise = subject.guarantee, plain["guarantee"]
    epsilon, delta = promise["epsilon"], promise["delta"]
    rows: list[tuple[str, str | Number]] = [
        ("epsilon", Number(value=epsilon)),
        ("delta", Number(value=delta)),
    ]
    if promise["mu"] is not None:
        rows.append(("mu (Gaussian privacy)", Number(value=promise["mu"])))
    if plain["composition_epsilon"] is not None:
        rows.append(("epsilon by plain composition", Number(value=plain["composition_epsilon"])))
    if plain["lower_bound_epsilon"] is not None:
        rows.append(
            ("lower bound (some run really costs it)", Number(value=plain["lower_bound_epsilon"], down=True))
        )
    if plain["steps"] is not None:
        rows.append(("steps", Number(value=plain["steps"])))
    rows += [
        ("neighbours", guarantee.adjacency),
        ("released", guarantee.release),
        ("arithmetic", guarantee.arithmetic),
    ]
    if subject.digest:
        rows.append(("hash of the release", subject.digest))
    if subject.ledger_head:
        rows.append(("charged under the ledger's head", subject.ledger_head))
    return [Text(words=words) for words in plain_words(subject, plain)] + [Facts(rows=rows)]


def plain_words(subject: Subject, plain: dict[str, Any]) -> list[str]:
    """The promise for people who do not know what epsilon is."""
    promise, one = plain["guarantee"], "one record"
    if subject.rows_per_person > 1:
        one = f"all records (at most {subject.rows_per_person}) of one person"
    change = (
        "were exchanged for any other" if promise["adjacency"] == "replace-one" else "were left out or added"
    )
    words = f"If {one} {change}, no conclusion drawn from this release would become more than "
    words += f"{number(plain['odds_factor'])} times as likely, whatever else is known about that person"
    words += (
        f"; this may fail with a probability of at most {promise['delta']:.3g}." if promise["delta"] else "."
    )
    share = plain["recognised"]["recognised"]
    said = (
        f"An attacker who wants to know whether a record was used and is wrong about {_ACCUSED:.0%} of those who were "
        f"not recognises at most {min(1.0, math.ceil(share * 1000) / 1000):.1%} of those who were."
    )
    cautions = []
    if subject.seeded:
        cautions.append(
            "The noise came from a seed: whoever knows the seed can undo it, and the promise is void for them."
        )
    if promise["arithmetic"] == "real":
        cautions.append("The proof is for ideal real-valued noise; the program used double precision.")
    return [words, said, *cautions]


def protected(subject: Subject) -> tuple[str, ...]:
    """What the promise covers."""
    one = (
        "a record"
        if subject.rows_per_person == 1
        else f"all of a person's records, up to {subject.rows_per_person}"
    )
    return (
        f"whether {one} was used at all, and everything in it: features, target and weight",
        "against any attacker, whatever they know of the other records and whatever they compute from this release",
        f"as long as only this leaves the run: {subject.guarantee.release}",
    )


def not_protected(subject: Subject) -> tuple[str, ...]:
    """What the promise leaves out."""
    uncovered = [
        "what the release teaches about people in general, and hence about a person who shares those traits",
        "the public choices listed here (bounds, sizes, steps, noise); they must not come from the private data",
        "other releases about the same people: their costs add up (a ledger keeps the sum)",
        "anything else that was looked at: training scores, logs, error messages, running time",
    ]
    if subject.guarantee.adjacency == "replace-one":
        uncovered.append("the number of records")
    if subject.rows_per_person == 1:
        uncovered.append("people with several records, beyond one record each")
    if subject.guarantee.arithmetic == "real":
        uncovered.append("the low-order bits of floating-point numbers; secure mode closes this")
    if subject.seeded is not False:
        uncovered.append("the noise, from someone who knows a seed it was drawn with")
    return tuple(uncovered)


def _tradeoff(curve: tuple[float, ...]) -> Figure:
    return Figure(
        plot=Plot(
            lines=[
                Line(
                    label="this promise: no attack lies below", points=list(zip(ALPHAS, curve, strict=True))
                ),
                Line(label="perfect privacy", points=[(0.0, 1.0), (1.0, 0.0)], style=2),
            ],
            x_label="share of others wrongly accused",
            y_label="share of members missed",
            words="Trade-off curve of the promise",
        ),
        caption="The closer the curve is to the straight line, the less an attacker learns about any one record.",
    )


def _steps(
    rows: list[CurveRow], subject: Subject, plain: dict[str, Any]
) -> list[Figure | ReportTable | Text]:
    every: tuple[tuple[str, str, int], ...] = (
        ("bound", subject.guarantee.theorem, 0),
        ("composition", "plain composition", 1),
        ("lower", "lower bound", 2),
    )
    composed = all(row.bound == row.composition for row in rows) and any(row.bound for row in rows)
    named = [
        entry
        for entry in every
        if any(getattr(row, entry[0]) for row in rows) and not (composed and entry[0] == "composition")
    ]
    if composed:  # a straight line says nothing: a few numbers do
        rows, named[0] = _few(rows, plain["steps"]), ("bound", "epsilon", 0)
    cells = [
        [Number(value=row.steps), *(_some(getattr(row, key), key == "lower") for key, _, _ in named)]
        for row in rows
    ]
    table = ReportTable(headers=("steps", *(label for _, label, _ in named)), rows=cells)
    return [Text(words=_no_plateau(subject)), table] if composed else [_plateau(rows, named, plain), table]


def _plateau(rows: list[CurveRow], named: list[tuple[str, str, int]], plain: dict[str, Any]) -> Figure:
    lines = []
    for key, label, style in named:
        points = [(row.steps, getattr(row, key)) for row in rows if getattr(row, key)]
        lines.append(Line(label=label, points=points, style=style))
    here = [(row.steps, row.bound) for row in rows if row.steps == plain["steps"] and row.bound]
    lines += [Line(label="this run", points=here, marker=True)] if here else []
    delta = plain["guarantee"]["delta"]
    plot = Plot(
        lines=lines, x_label="number of steps", y_label=f"epsilon at delta = {delta:.3g}", log=True,
        words="Epsilon against the number of steps",
    )  # fmt: skip
    caption = "Epsilon of runs with these public numbers and more or fewer steps (of the model)."
    return Figure(plot=plot, caption=caption)


def _few(rows: list[CurveRow], ran: float | None) -> list[CurveRow]:
    """About five of the rows, the run itself among them."""
    here = next((i for i, row in enumerate(rows) if row.steps == ran), len(rows) - 1)
    kept = set(range(0, len(rows), max(1, len(rows) // 4))) | {here, len(rows) - 1}
    return [rows[i] for i in sorted(kept)]


def _no_plateau(subject: Subject) -> str:
    """Why the picture in which epsilon stops growing is not drawn."""
    accelerated = getattr(getattr(subject.plan, "schedule", None), "momentum", False)
    words = (
        "Every step of this run costs privacy, and more steps would have cost more: it is accounted by composition. "
        "That epsilon stops growing is proved for plain steps on a convex loss of which the last iterate alone is "
        "released; "
    )
    if subject.guarantee.release == "last-iterate" and not accelerated:
        return words + "in so few steps there is little to forget, and composition is the sharper account."
    words += f"what leaves this run is: {subject.guarantee.release}" + (
        ", after accelerated steps" if accelerated else ""
    )
    return words + "."


def _some(value: float | None, down: bool) -> str | Number:
    return "-" if value is None else Number(value=value, down=down)


def _left(budget: dict[str, Any] | None) -> list[Text | Facts]:
    if budget is None:
        return [Text(words="No ledger was given: nobody keeps the sum of what was spent on these data.")]
    rows: list[tuple[str, str | Number]] = [
        ("data set", budget["dataset"]),
        ("budget epsilon", Number(value=budget["epsilon"])),
        ("budget delta", Number(value=budget["delta"])),
        ("releases charged", Number(value=budget["entries"])),
        ("would still fit", budget["would_fit"]),
        *([("head of the ledger", budget["head"])] if budget["head"] else []),
    ]
    return [Facts(rows=rows)]


def _budget(ledger: Any) -> dict[str, Any] | None:
    if ledger is None or not hasattr(ledger, "remaining"):
        return None
    left = ledger.remaining()
    return {
        "dataset": ledger.name,
        "epsilon": left.epsilon,
        "delta": left.delta,
        "entries": left.entries,
        "would_fit": left.would_fit(),
        "head": ledger.head() if hasattr(ledger, "head") else None,
    }


def _bounds(subject: Subject) -> dict[str, str]:
    problem = getattr(subject.plan, "problem", None)
    if problem is None:
        return {}
    return {
        "records": f"{problem.n}",
        "features": f"{problem.n_features}" + (" and an intercept" if problem.fit_intercept else ""),
        **settings_of(problem.bounds),
        "loss": repr(problem.loss),
        "constraint": repr(problem.constraint),
        "ridge": f"{problem.ridge:.6g}",
    }


def _settings(subject: Subject) -> dict[str, str]:
    schedule = getattr(subject.plan, "schedule", None)
    return dict(subject.settings) or (
        {} if schedule is None else {"mechanism": schedule.mechanism, **settings_of(schedule)}
    )


def _facts(title: str, facts: dict[str, str]) -> list[Section]:
    rows = [(name.replace("_", " "), words) for name, words in facts.items()]
    return [Section(title=title, blocks=[Facts(rows=rows)])] if rows else []


def _plain_row(row: CurveRow) -> dict[str, float | None]:
    return {
        "steps": row.steps,
        "epsilon": row.bound,
        "composition": row.composition,
        "lower_bound": row.lower,
    }


def _beside(guarantee: Guarantee, delta: float) -> float | None:
    beside = guarantee.composition
    return beside.epsilon(delta) if beside is not None and 0 < delta < 1 else None


def _odds(epsilon: float) -> float:
    return math.exp(epsilon) if epsilon < 700 else math.inf


def _theorem(guarantee: Guarantee) -> str:
    return f"{guarantee.theorem}: {guarantee.reference}. This statement is {guarantee.origin}."
