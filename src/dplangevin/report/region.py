"""The report on a region of good models: who would be treated differently by an equally good model, how, and why."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from dplangevin._version import __version__
from dplangevin.rashomon.region import RashomonRegion
from dplangevin.rashomon.region_levels import RegionLevel
from dplangevin.rashomon.region_table import RegionTable, flip_words
from dplangevin.report.document import (
    Block,
    Bullets,
    Cell,
    Document,
    Facts,
    Figure,
    Number,
    ReportTable,
    Section,
    Text,
)
from dplangevin.report.html import Line, Plot
from dplangevin.report.plain import stamp
from dplangevin.report.ranges import Range, RangePlot
from dplangevin.report.rashomon import under_head
from dplangevin.report.text import number

VERSION = 1
SHOWN = 12  # applicants and columns in a picture
DECIDING, MORE = 3, 6  # columns named for an applicant, and others shown


def region_document(region: RashomonRegion, table: RegionTable, inputs: str = "") -> Document:
    """Everything said of a fitted region and of public inputs; `inputs` says where these come from."""
    plain = region_plain(region, table, inputs)
    sections = [
        Section(title=_question(table), blocks=_who(table, plain)),
        Section(title="How differently, over all inputs", blocks=_overall(table, plain)),
        Section(title="Which columns decide", blocks=_columns(table)),
    ]
    if table.level().fairness:
        sections.append(Section(title="Fairness gaps over equally good models", blocks=[_fairness(table)]))
    sections += [
        Section(
            title="What is certified, and what is not", blocks=[_status(table), Text(words=table.sentence)]
        ),
        Section(title="What is promised, and what was released", blocks=[_promise(plain)]),
        Section(title="Holds when", blocks=[Bullets(items=region.privacy_.hypotheses)]),
    ]
    return Document(
        title="Equally good models, and whom they treat differently",
        sections=sections,
        plain=plain,
        footer=f"Written by dplangevin {__version__} on {plain['created']}. Of the private data it uses the released "
        "centre, curvature and slack only.",
    )


def region_plain(region: RashomonRegion, table: RegionTable, inputs: str = "") -> dict[str, Any]:
    """The same facts as plain data: what --json prints and what the page embeds."""
    plan = region.plan_
    return {
        **stamp("region", VERSION),
        "model": type(region.centre_).__name__,
        "objective": f"{plan.objective}{', targets scaled to [-1, 1]' if table.public.half != 1 else ''}",
        "route": "region",
        "thresholds": list(plan.thresholds),
        "models": len(region.models_),
        "certified_points": int(region.release_.scales.size),
        "unidentified_directions": len(region.unidentified_),
        "gap_bound": region.gap_bound_,
        "least_threshold": plan.least_threshold,
        "guarantee": region.privacy_.to_dict(plan.centre.delta),
        "ledger_head": region.ledger_head_,
        "inputs": inputs or f"{len(table.centre)} public inputs",
        "multiplicity": table.to_dict(),
        "applicants": _applicants(table),
    }


def _level(table: RegionTable) -> RegionLevel:
    """The level that pictures show: the smallest at which some decision changes, else the largest."""
    for level in table.levels:
        if level.changes is not None and level.changes.any():
            return level
    return table.levels[-1]


def _applicants(table: RegionTable) -> list[dict[str, Any]]:
    """The inputs that an equally good model decides otherwise (regressors: moves most), most divided first."""
    level = _level(table)
    width = level.high - level.low
    chosen = np.argsort(-width, kind="stable")
    if level.changes is not None:
        chosen = np.array([i for i in chosen if level.changes[i]], int)
    made = []
    for i in chosen[:SHOWN]:
        row: dict[str, Any] = {
            "input": int(i),
            "threshold": level.threshold,
            "released": float(table.centre[i]),
            "low": float(level.low[i]),
            "high": float(level.high[i]),
            "deciding": [name for name, _ in table.deciding(int(i))[:DECIDING]],
            "values": table.public.values[int(i)],
        }
        if table.decisions is not None:
            row["decision"] = str(table.decisions[i])
        if table.flip_costs is not None:
            row["flip_cost"] = float(table.flip_costs[i])
        made.append(row)
    return made


def _question(table: RegionTable) -> str:
    kind = "decided" if table.decisions is not None else "predicted"
    return f"Who would be {kind} differently by an equally good model"


def _who(table: RegionTable, plain: dict[str, Any]) -> list[Block]:
    level, found = _level(table), plain["applicants"]
    blocks: list[Block] = [Text(words=f"Inputs: {plain['inputs']}.")]
    if level.changes is not None:
        for each in table.levels:
            count = int(each.changes.sum()) if each.changes is not None else 0
            blocks.append(
                Text(
                    words=f"At least {count:,} of {len(table.centre):,} ({100 * count / len(table.centre):.0f}%) get "
                    f"another decision from some model whose objective is within {each.threshold:g} of that of "
                    f"{table.reference}."
                )
            )
    if not found:
        return [*blocks, Text(words="No certified model decides any of these inputs otherwise.")]
    border = _border(table)
    deciding = Counter(
        name for row in found for name in row["deciding"]
    )  # those that tell the rows apart, first
    named = sorted(deciding, key=lambda name: (-len({row["values"][name] for row in found}), -deciding[name]))
    named = named[:DECIDING]
    rows = [
        Range(
            name=", ".join(row["values"][column] for column in named),
            low=row["low"],
            middle=row["released"],
            high=row["high"],
            strong=table.decisions is not None,
        )
        for row in found
    ]
    picture = RangePlot(
        rows=rows,
        x_label=_scale(table),
        words="Range of each of these inputs over equally good models",
        border=border,
        limits=(0.0, 1.0) if _probabilities(table) else None,
    )
    caption = (
        f"psi = {level.threshold:g}. Rows are named by {', '.join(named)}. The circle is the released model; the bar, "
        "what certified models say."
    )
    if table.decisions is not None and border is None:
        caption += " All of them are decided otherwise by some certified model."
    if border is not None:
        caption += " A bar that crosses the dashed line is decided by the choice of model."
    blocks += [Figure(plot=picture, caption=caption), _people(found)]
    if table.flip_costs is not None:
        blocks.append(
            Text(
                words="The flip cost of an input says how much worse, on the scale of psi, a model must be to decide "
                "it otherwise. It is an estimate; the ranges are certified."
            )
        )
    return blocks


def _border(table: RegionTable) -> float | None:
    """Where a decision changes; with more than two classes the largest of several probabilities decides."""
    if table.decisions is None or len(table.public.classes or ()) > 2:
        return None
    return 0.5 if _probabilities(table) else 0.0


def _people(found: list[dict[str, Any]]) -> Bullets:
    """Each applicant in a sentence: the decision, the range, the columns that decide it, and all values."""
    items = []
    for row in found:
        says = (
            f"the released model says {row['decision']} ({row['released']:.3g})"
            if "decision" in row
            else (f"the released model says {row['released']:.4g}")
        )
        others = [name for name in row["values"] if name not in row["deciding"]]
        values = ", ".join(f"{name} = {row['values'][name]}" for name in row["deciding"])
        rest = ", ".join(f"{name} = {row['values'][name]}" for name in others[:MORE])
        cost = f" Flip cost about {row['flip_cost']:.2g} (estimate)." if "flip_cost" in row else ""
        items.append(
            f"{values}{f' (and {rest})' if rest else ''}: {says}, equally good models say {number(row['low'])} to "
            f"{number(row['high'], down=True)} (certified), mostly decided by {', '.join(row['deciding'])}.{cost}"
        )
    return Bullets(items=items)


def _overall(table: RegionTable, plain: dict[str, Any]) -> list[Block]:
    level = _level(table)
    order = np.argsort(table.centre, kind="stable")
    share = (np.arange(len(order)) + 1) / len(order)
    every = max(1, len(order) // 200)
    lines = [
        Line(
            label=label,
            points=list(zip(share[::every].tolist(), values[order][::every].tolist(), strict=True)),
            style=i,
        )
        for i, (label, values) in enumerate(
            (
                ("released model", table.centre),
                ("highest certified", level.high),
                ("lowest certified", level.low),
            )
        )
    ]
    plot = Plot(
        lines=lines,
        x_label="inputs, from the lowest to the highest",
        y_label=_scale(table),
        words="Ranges of all inputs over equally good models",
    )
    return [
        Figure(plot=plot, caption=f"Every public input at psi = {level.threshold:g}."),
        _numbers(table, plain),
        *(Text(words=f"{words[0].upper()}{words[1:]}.") for words in flip_words(table.flip_levels)),
    ]


def _numbers(table: RegionTable, plain: dict[str, Any]) -> ReportTable:
    names = {
        "ambiguity": ("inputs decided otherwise by some model (ambiguity)", "certified, at least"),
        "most_ambiguity": (
            "inputs decided otherwise by any model of the set, no more than",
            "certified, at most",
        ),
        "discrepancy": ("decisions changed by one model, most (discrepancy)", "certified, at least"),
        "mean_width": ("width of an input's range, mean", "certified"),
        "largest_width": ("width of an input's range, largest", "certified"),
        "mean_outer_width": ("width of the range of ALL models of the set, mean", "certified, at most"),
        "mean_capacity": ("classes left open per input (capacity), mean", "certified, at least"),
        "mean_scale": ("share of the tried region that is certified, mean", "released"),
    }
    levels = plain["multiplicity"]["levels"]
    rows: list[list[Cell]] = [
        [words, *(Number(value=level[name], down="at most" not in status) for level in levels), status]
        for name, (words, status) in names.items()
        if all(name in level for level in levels)
    ]
    return ReportTable(
        headers=["", *(f"psi = {level['threshold']:g}" for level in levels), "status"], rows=rows
    )


def _columns(table: RegionTable) -> list[Block]:
    level, names = _level(table), table.coefficient_names
    middle = table.coefficients
    order = np.argsort(-np.abs(level.coefficients).max(axis=1), kind="stable")[: SHOWN + 3]
    signs = level.sign_changes
    rows = [
        Range(
            name=names[i],
            low=float(level.coefficients[i, 0]),
            middle=float(middle[i]),
            high=float(level.coefficients[i, 1]),
            strong=bool(signs[i]),
        )
        for i in order
    ]
    blocks: list[Block] = [
        Text(
            words=f"{int(signs.sum())} of {len(names)} coefficients are positive under one equally good model and "
            f"negative under another (psi = {level.threshold:g}): the data do not decide their sign."
        ),
        Figure(
            plot=RangePlot(rows=rows, x_label="coefficient", words="Ranges of coefficients", border=0.0),
            caption="Certified ranges of the largest coefficients; the circle is the released model.",
        ),
    ]
    if level.reliance is not None:
        order = np.argsort(-level.reliance[:, 1], kind="stable")[: SHOWN + 3]
        shown = [
            Range(
                name=table.column_names[i],
                low=float(level.reliance[i, 0]),
                middle=float(level.reliance[i].mean()),
                high=float(level.reliance[i, 1]),
            )
            for i in order
        ]
        words = "Loss when a column is exchanged between inputs, over the loss as it is; 1 means unused."
        blocks.append(
            Figure(
                plot=RangePlot(rows=shown, x_label="importance", words="Ranges of importance", border=1.0),
                caption=f"{words} Certified ranges over equally good models; the circle is their middle.",
            )
        )
    return blocks


def _fairness(table: RegionTable) -> ReportTable:
    rows: list[list[Cell]] = [
        [
            f"{name} gap, psi = {level.threshold:g}",
            Number(value=low),
            Number(value=high, down=True),
            "certified",
        ]
        for level in table.levels
        for name, (low, high) in level.fairness.items()
    ]
    return ReportTable(headers=("gap", "lowest", "highest", "status"), rows=rows)


def _status(table: RegionTable) -> Facts:
    level = table.level()
    given = {
        "ambiguity": level.ambiguity, "discrepancy": level.discrepancy, "capacity": level.capacity,
        "reliance": level.reliance, "fairness": level.fairness or None, "flip cost": table.flip_costs,
    }  # fmt: skip
    skipped = {name for name, value in given.items() if value is None}
    return Facts(rows=[(name, words) for name, words in table.status.items() if name not in skipped])


def _promise(plain: dict[str, Any]) -> Facts:
    promise = plain["guarantee"]
    rows: list[tuple[str, Cell]] = [
        ("epsilon, for everything on this page together", Number(value=promise["epsilon"])),
        ("delta", Number(value=promise["delta"])),
        ("adjacency", promise["adjacency"]),
        ("objective that psi is measured on", plain["objective"]),
        ("certified models", Number(value=plain["certified_points"])),
        ("directions that the noise hides", Number(value=plain["unidentified_directions"])),
        ("smallest psi worth asking at this size and budget", Number(value=plain["least_threshold"])),
        ("theorem", promise["theorem"]),
        *under_head(plain),
    ]
    if plain["gap_bound"] is not None:
        rows.insert(3, ("released model is worse than the best by at most", Number(value=plain["gap_bound"])))
    return Facts(rows=rows)


def _probabilities(table: RegionTable) -> bool:
    return bool(table.levels[0].capacity is not None)


def _scale(table: RegionTable) -> str:
    if _probabilities(table):
        classes = table.public.classes or ("",)
        return (
            f"probability of {classes[-1]}" if len(classes) == 2 else "probability of the released decision"
        )
    return "score" if table.decisions is not None else "predicted value"
