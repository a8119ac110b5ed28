"""The report on a Rashomon region: whom an equally good model would treat differently, by how much, and why."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from dplangevin._version import __version__
from dplangevin.rashomon.region import RashomonRegion
from dplangevin.rashomon.region_table import RegionLevel, RegionTable, flip_level_texts
from dplangevin.report.answer import format_header, format_number
from dplangevin.report.document import (
    Block,
    BulletList,
    Cell,
    Document,
    FactTable,
    Figure,
    Headline,
    Paragraph,
    ReportNumber,
    ReportTable,
    Section,
)
from dplangevin.report.plots import Line, Plot, RangePlot, RangeRow
from dplangevin.report.rashomon import ledger_rows

VERSION = 1
MAX_SHOWN_INPUTS = 12  # applicants and columns in a picture
MAX_DECIDING_COLUMNS, MAX_OTHER_COLUMNS = 3, 6  # columns named for an applicant, and others shown


def region_document(region: RashomonRegion, table: RegionTable, inputs: str = "") -> Document:
    """Return the report on a fitted region and public inputs; `inputs` describes their source."""
    plain = region_plain(region, table, inputs)
    sections = [
        Section(title=_question_text(table), blocks=_input_section(table, plain)),
        Section(title="How differently, over all inputs", blocks=_overall_section(table, plain)),
        Section(title="Which columns decide", blocks=_column_section(table)),
    ]
    if table.level().fairness:
        sections.append(
            Section(title="Fairness gaps over equally good models", blocks=[_fairness_section(table)])
        )
    sections += [
        Section(
            title="What is certified, and what is not",
            blocks=[_status_section(table), Paragraph(text=table.sentence)],
        ),
        Section(title="Guarantee, and what was released", blocks=[_guarantee_section(plain)]),
        Section(title="Holds when", blocks=[BulletList(items=region.privacy_.hypotheses)]),
    ]
    return Document(
        title="Equally good models, and whom they treat differently",
        sections=sections,
        plain=plain,
        headlines=[
            Headline(
                label="Privacy cost, epsilon",
                value=ReportNumber(value=plain["guarantee"]["epsilon"]),
                meaning=f"an upper bound for everything on this page, {plain['guarantee']['adjacency']}",
            ),
            *_decision_headlines(table, plain),
            Headline(
                label="Certified models",
                value=ReportNumber(value=plain["certified_points"]),
                meaning="every range below is attained by models whose loss is certified",
            ),
        ],
        footer=f"Written by dplangevin {__version__} on {plain['created']} from the released centre, curvature and "
        "slack only.",
    )


def _decision_headlines(table: RegionTable, plain: dict[str, Any]) -> list[Headline]:
    """Return how many inputs an equally good model decides otherwise, for classifiers."""
    level = next(i for i, each in enumerate(table.levels) if each is _shown_level(table))
    numbers = plain["multiplicity"]["levels"][level]
    if "ambiguity" not in numbers:
        return []
    meaning = f"at least this fraction of the inputs, by a model within psi = {numbers['threshold']:g}"
    value = ReportNumber(value=numbers["ambiguity"], down=True)
    return [Headline(label="Decided otherwise", value=value, meaning=meaning)]


def region_plain(region: RashomonRegion, table: RegionTable, inputs: str = "") -> dict[str, Any]:
    """Return the same facts as plain data: what --json prints and what the page embeds."""
    plan = region.plan_
    return {
        **format_header("region", VERSION),
        "model": type(region.center_).__name__,
        "objective": f"{plan.objective}{', targets scaled to [-1, 1]' if table.public.half_range != 1 else ''}",
        "route": "region",
        "thresholds": list(plan.thresholds),
        "models": len(region.models_),
        "certified_points": int(region.release_.scales.size),
        "unidentified_directions": len(region.unidentified_),
        "gap_bound": region.gap_bound_,
        "min_threshold": plan.min_threshold,
        "guarantee": region.privacy_.to_dict(plan.center.delta),
        "ledger_head": region.ledger_head_,
        "inputs": inputs or f"{len(table.center)} public inputs",
        "multiplicity": table.to_dict(),
        "applicants": _most_divided_inputs(table),
    }


def _shown_level(table: RegionTable) -> RegionLevel:
    """Return the level that plots show: the smallest at which some decision changes, else the largest."""
    for level in table.levels:
        if level.decision_changes is not None and level.decision_changes.any():
            return level
    return table.levels[-1]


def _most_divided_inputs(table: RegionTable) -> list[dict[str, Any]]:
    """Return the inputs that an equally good model decides otherwise, widest range first.

    For regressors these are the inputs with the widest ranges.
    """
    level = _shown_level(table)
    width = level.high - level.low
    order = np.argsort(-width, kind="stable")
    if level.decision_changes is not None:
        order = np.array([i for i in order if level.decision_changes[i]], int)
    rows = []
    for i in order[:MAX_SHOWN_INPUTS]:
        row: dict[str, Any] = {
            "input": int(i),
            "threshold": level.threshold,
            "released": float(table.center[i]),
            "low": float(level.low[i]),
            "high": float(level.high[i]),
            "influential_columns": [
                name for name, _ in table.influential_columns(int(i))[:MAX_DECIDING_COLUMNS]
            ],
            "values": table.public.values[int(i)],
        }
        if table.decisions is not None:
            row["decision"] = str(table.decisions[i])
        if table.flip_costs is not None:
            row["flip_cost"] = float(table.flip_costs[i])
        rows.append(row)
    return rows


def _question_text(table: RegionTable) -> str:
    kind = "decided" if table.decisions is not None else "predicted"
    return f"Who would be {kind} differently by an equally good model"


def _input_section(table: RegionTable, plain: dict[str, Any]) -> list[Block]:
    level, applicants = _shown_level(table), plain["applicants"]
    blocks: list[Block] = [Paragraph(text=f"Inputs: {plain['inputs']}.")]
    if level.decision_changes is not None:
        for each in table.levels:
            count = int(each.decision_changes.sum()) if each.decision_changes is not None else 0
            blocks.append(
                Paragraph(
                    text=f"At least {count:,} of {len(table.center):,} ({100 * count / len(table.center):.0f}%) get "
                    f"another decision from some model whose objective is within {each.threshold:g} of that of "
                    f"{table.reference}."
                )
            )
    if not applicants:
        return [*blocks, Paragraph(text="No certified model decides any of these inputs otherwise.")]
    border = _decision_border(table)
    deciding = Counter(name for row in applicants for name in row["influential_columns"])

    def distinctness(name: str) -> tuple[int, int]:  # columns that tell the rows apart come first
        return -len({row["values"][name] for row in applicants}), -deciding[name]

    naming_columns = sorted(deciding, key=distinctness)[:MAX_DECIDING_COLUMNS]
    rows = [
        RangeRow(
            name=", ".join(row["values"][column] for column in naming_columns),
            low=row["low"],
            middle=row["released"],
            high=row["high"],
            crosses_border=table.decisions is not None,
        )
        for row in applicants
    ]
    picture = RangePlot(
        rows=rows,
        x_label=_scale_name(table),
        description="Range of each of these inputs over equally good models",
        border=border,
        limits=(0.0, 1.0) if _is_probability(table) else None,
    )
    caption = (
        f"psi = {level.threshold:g}. Rows are named by {', '.join(naming_columns)}. The circle is the released model, "
        "the bar is the range of certified models."
    )
    if table.decisions is not None and border is None:
        caption += " All of them are decided otherwise by some certified model."
    if border is not None:
        caption += " Where a bar crosses the dashed line, the choice of model decides."
    blocks += [Figure(plot=picture, caption=caption), _input_sentences(applicants)]
    if table.flip_costs is not None:
        blocks.append(
            Paragraph(
                text="The flip cost of an input is how much worse, on the scale of psi, a model must be to decide "
                "it otherwise. It is an estimate; the ranges are certified."
            )
        )
    return blocks


def _decision_border(table: RegionTable) -> float | None:
    """Return the value at which a decision changes; None with more than two classes, where the largest wins."""
    if table.decisions is None or len(table.public.classes or ()) > 2:
        return None
    return 0.5 if _is_probability(table) else 0.0


def _input_sentences(inputs: list[dict[str, Any]]) -> BulletList:
    """Return a sentence for each applicant: the decision, the range, the columns that decide it, and the values."""
    items = []
    for row in inputs:
        released = (
            f"the released model predicts {row['decision']} ({row['released']:.3g})"
            if "decision" in row
            else f"the released model predicts {row['released']:.4g}"
        )
        others = [name for name in row["values"] if name not in row["influential_columns"]]
        values = ", ".join(f"{name} = {row['values'][name]}" for name in row["influential_columns"])
        rest = ", ".join(f"{name} = {row['values'][name]}" for name in others[:MAX_OTHER_COLUMNS])
        cost = f" Flip cost about {row['flip_cost']:.2g} (estimate)." if "flip_cost" in row else ""
        items.append(
            f"{values}{f' (and {rest})' if rest else ''}: {released}, equally good models "
            f"{format_number(row['low'])} to "
            f"{format_number(row['high'], down=True)} (certified), mostly decided by "
            f"{', '.join(row['influential_columns'])}.{cost}"
        )
    return BulletList(items=items)


def _overall_section(table: RegionTable, plain: dict[str, Any]) -> list[Block]:
    level = _shown_level(table)
    order = np.argsort(table.center, kind="stable")
    fraction = (np.arange(len(order)) + 1) / len(order)
    stride = max(1, len(order) // 200)
    lines = [
        Line(
            label=label,
            points=list(zip(fraction[::stride].tolist(), values[order][::stride].tolist(), strict=True)),
            style=i,
        )
        for i, (label, values) in enumerate(
            (
                ("released model", table.center),
                ("highest certified", level.high),
                ("lowest certified", level.low),
            )
        )
    ]
    plot = Plot(
        lines=lines,
        x_label="inputs, from the lowest to the highest",
        y_label=_scale_name(table),
        description="Ranges of all inputs over equally good models",
    )
    return [
        Figure(plot=plot, caption=f"Every public input at psi = {level.threshold:g}."),
        _number_section(table, plain),
        *(Paragraph(text=f"{text[0].upper()}{text[1:]}.") for text in flip_level_texts(table.flip_levels)),
    ]


def _number_section(table: RegionTable, plain: dict[str, Any]) -> ReportTable:
    names = {
        "ambiguity": ("inputs decided otherwise by some model (ambiguity)", "certified, at least"),
        "max_ambiguity": (
            "inputs decided otherwise by any model of the set, upper bound",
            "certified, at most",
        ),
        "discrepancy": ("decisions changed by one model, most (discrepancy)", "certified, at least"),
        "mean_width": ("width of an input's range, mean", "certified"),
        "max_width": ("width of an input's range, largest", "certified"),
        "mean_outer_width": ("width of the range of ALL models of the set, mean", "certified, at most"),
        "mean_capacity": ("effective number of classes per input (capacity), mean", "certified, at least"),
        "mean_scale": ("fraction of the proposed region that is certified, mean", "released"),
    }
    levels = plain["multiplicity"]["levels"]
    rows: list[list[Cell]] = [
        [label, *(ReportNumber(value=level[name], down="at most" not in status) for level in levels), status]
        for name, (label, status) in names.items()
        if all(name in level for level in levels)
    ]
    return ReportTable(
        headers=["", *(f"psi = {level['threshold']:g}" for level in levels), "status"], rows=rows
    )


def _column_section(table: RegionTable) -> list[Block]:
    level, names = _shown_level(table), table.coefficient_names
    middle = table.coefficients
    order = np.argsort(-np.abs(level.coefficients).max(axis=1), kind="stable")[: MAX_SHOWN_INPUTS + 3]
    signs = level.sign_changes
    rows = [
        RangeRow(
            name=names[i],
            low=float(level.coefficients[i, 0]),
            middle=float(middle[i]),
            high=float(level.coefficients[i, 1]),
            crosses_border=bool(signs[i]),
        )
        for i in order
    ]
    blocks: list[Block] = [
        Paragraph(
            text=f"{int(signs.sum())} of {len(names)} coefficients are positive under one equally good model and "
            f"negative under another (psi = {level.threshold:g}): the data do not decide their sign."
        ),
        Figure(
            plot=RangePlot(
                rows=rows, x_label="coefficient", description="Ranges of coefficients", border=0.0
            ),
            caption="Certified ranges of the largest coefficients; the circle is the released model.",
        ),
    ]
    if level.reliance is not None:
        order = np.argsort(-level.reliance[:, 1], kind="stable")[: MAX_SHOWN_INPUTS + 3]
        reliance_rows = [
            RangeRow(
                name=table.column_names[i],
                low=float(level.reliance[i, 0]),
                middle=float(level.reliance[i].mean()),
                high=float(level.reliance[i, 1]),
            )
            for i in order
        ]
        explanation = "Loss when a column is permuted between inputs, divided by the loss; 1 means unused."
        blocks.append(
            Figure(
                plot=RangePlot(
                    rows=reliance_rows, x_label="importance", description="Ranges of importance", border=1.0
                ),
                caption=f"{explanation} Certified ranges over equally good models; the circle is their middle.",
            )
        )
    return blocks


def _fairness_section(table: RegionTable) -> ReportTable:
    rows: list[list[Cell]] = [
        [
            f"{name} gap, psi = {level.threshold:g}",
            ReportNumber(value=low),
            ReportNumber(value=high, down=True),
            "certified",
        ]
        for level in table.levels
        for name, (low, high) in level.fairness.items()
    ]
    return ReportTable(headers=("gap", "lowest", "highest", "status"), rows=rows)


def _status_section(table: RegionTable) -> FactTable:
    level = table.level()
    values = {
        "ambiguity": level.ambiguity, "discrepancy": level.discrepancy, "capacity": level.capacity,
        "reliance": level.reliance, "fairness": level.fairness or None, "flip cost": table.flip_costs,
    }  # fmt: skip
    missing = {name for name, value in values.items() if value is None}
    return FactTable(rows=[(name, text) for name, text in table.status.items() if name not in missing])


def _guarantee_section(plain: dict[str, Any]) -> FactTable:
    guarantee = plain["guarantee"]
    rows: list[tuple[str, Cell]] = [
        ("epsilon, for everything on this page together", ReportNumber(value=guarantee["epsilon"])),
        ("delta", ReportNumber(value=guarantee["delta"])),
        ("adjacency", guarantee["adjacency"]),
        ("objective that psi is measured on", plain["objective"]),
        ("certified models", ReportNumber(value=plain["certified_points"])),
        (
            "directions whose eigenvalues are below the noise",
            ReportNumber(value=plain["unidentified_directions"]),
        ),
        ("smallest useful psi at this size and budget", ReportNumber(value=plain["min_threshold"])),
        ("theorem", guarantee["theorem"]),
        *ledger_rows(plain),
    ]
    if plain["gap_bound"] is not None:
        rows.insert(
            3, ("released model is worse than the best by at most", ReportNumber(value=plain["gap_bound"]))
        )
    return FactTable(rows=rows)


def _is_probability(table: RegionTable) -> bool:
    return bool(table.levels[0].capacity is not None)


def _scale_name(table: RegionTable) -> str:
    if _is_probability(table):
        classes = table.public.classes or ("",)
        return (
            f"probability of {classes[-1]}" if len(classes) == 2 else "probability of the released decision"
        )
    return "score" if table.decisions is not None else "predicted value"
