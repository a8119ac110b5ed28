"""The report on models drawn from a Rashomon set: where they disagree, and the guarantee of the release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dplangevin._version import __version__
from dplangevin.rashomon import ModelValues, Multiplicity, RashomonSampler
from dplangevin.report.answer import format_header
from dplangevin.report.document import (
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
from dplangevin.report.plots import Line, Plot

VERSION = 1
N_BINS = 20
MAX_SHOWN_INPUTS = 15  # inputs and columns in a table


def rashomon_document(sampler: RashomonSampler, multiplicity: Multiplicity, inputs: str = "") -> Document:
    """Return the report on a fitted sampler and its models on public inputs; `inputs` describes their source."""
    plain = rashomon_plain(sampler, multiplicity, inputs)
    sections = [
        Section(
            title="Guarantee, and what was drawn",
            blocks=[_guarantee_section(plain), *_hit_section(plain)],
        ),
        Section(title="How much the models disagree", blocks=_disagreement_section(plain)),
        Section(title="Scores", blocks=[_score_section(plain), _width_section(plain)]),
        *(
            [Section(title="Who would get a different decision", blocks=_input_section(plain))]
            if plain["changed"]
            else []
        ),
        Section(title="Coefficients over the models", blocks=[_importance_ranges(multiplicity.coefficients)]),
    ]
    if multiplicity.reliance is not None:
        explanation = (
            "Mean loss when a column is permuted between inputs, divided by the mean loss; 1 means unused."
        )
        sections.append(
            Section(
                title="Importance over the models",
                blocks=[Paragraph(text=explanation), _importance_ranges(multiplicity.reliance)],
            )
        )
    if multiplicity.fairness is not None:
        sections.append(Section(title="Fairness gaps over the models", blocks=_fairness_section(plain)))
    sections.append(Section(title="Holds when", blocks=[BulletList(items=sampler.privacy_.hypotheses)]))
    return Document(
        title=f"Rashomon set of {len(sampler.models_)} models",
        sections=sections,
        plain=plain,
        headlines=[
            Headline(
                label="Privacy cost, epsilon",
                value=ReportNumber(value=plain["guarantee"]["epsilon"]),
                meaning=f"an upper bound for all models together, {plain['guarantee']['adjacency']}",
            ),
            Headline(
                label="Models drawn",
                value=ReportNumber(value=plain["models"]),
                meaning=f"each is in the set with a probability of at least {plain['hit_probability']:.3g}",
            ),
        ],
        footer=f"Written by dplangevin {__version__} on {plain['created']} from the released models only; no private "
        "record was read.",
    )


def rashomon_plain(sampler: RashomonSampler, multiplicity: Multiplicity, inputs: str = "") -> dict[str, Any]:
    """Return the same facts as plain data: what --json prints and what the page embeds."""
    plan = sampler.plan_
    spec, delta = plan.spec, plan.plan.delta
    means, edges = np.histogram(multiplicity.spread.mean, N_BINS)
    widths, width_edges = np.histogram(multiplicity.spread.width, N_BINS)
    return {
        **format_header("rashomon", VERSION),
        "model": multiplicity.model_name,
        "route": plan.route,
        "tier": spec.tier,
        "threshold": spec.threshold,
        "models": spec.n_models,
        "inverse_temperature": spec.inverse_temperature,
        "hit_probability": plan.hit_probability,
        "hit_threshold": plan.hit_threshold,
        "hit_bound": plan.describe_hit_bound(),
        "advice": str(plan.advice),
        "guarantee": sampler.privacy_.to_dict(delta),
        "ledger_head": sampler.ledger_head_,
        "inputs": inputs or f"{multiplicity.scores.shape[1]} public inputs",
        "multiplicity": multiplicity.to_dict(),
        "scores": {"edges": edges.tolist(), "counts": means.tolist()},
        "widths": {"edges": width_edges.tolist(), "counts": widths.tolist()},
        "changed": _most_divided_inputs(multiplicity),
    }


def _most_divided_inputs(multiplicity: Multiplicity) -> list[dict[str, Any]]:
    """Return the inputs on whose decision the models disagree most, at most MAX_SHOWN_INPUTS of them."""
    if multiplicity.decisions is None:
        return []
    divided = multiplicity.disagreement
    order = [int(i) for i in np.argsort(-divided, kind="stable")[:MAX_SHOWN_INPUTS] if divided[i] > 0]
    return [
        {
            "input": i,
            "disagreement": float(divided[i]),
            "low": float(multiplicity.spread.low[i]),
            "mean": float(multiplicity.spread.mean[i]),
            "high": float(multiplicity.spread.high[i]),
        }
        for i in order
    ]


def ledger_rows(plain: dict[str, Any]) -> list[tuple[str, Cell]]:
    """Return the row that names the ledger's head after the charge, where there was one."""
    head = plain["ledger_head"]
    return [("charged under the ledger's head", head)] if head else []


def _guarantee_section(plain: dict[str, Any]) -> FactTable:
    guarantee = plain["guarantee"]
    return FactTable(
        rows=[
            ("models", ReportNumber(value=plain["models"])),
            ("epsilon, all models together", ReportNumber(value=guarantee["epsilon"])),
            ("delta", ReportNumber(value=guarantee["delta"])),
            ("adjacency", guarantee["adjacency"]),
            ("route and tier", f"{plain['route']}, {plain['tier']}"),
            ("threshold psi", ReportNumber(value=plain["threshold"])),
            (
                "probability that a model is in the set, at least",
                ReportNumber(value=plain["hit_probability"], down=True),
            ),
            ("theorem", guarantee["theorem"]),
            *ledger_rows(plain),
        ]
    )


def _hit_section(plain: dict[str, Any]) -> list[Paragraph]:
    paragraphs = [Paragraph(text=plain["hit_bound"])]
    if plain["hit_probability"] < 0.5:
        paragraphs.append(
            Paragraph(
                text="Warning: the bound is low, so much of the disagreement below may be the noise of the privacy "
                f"mechanism and not multiplicity. {plain['advice']}"
            )
        )
    return paragraphs


def _disagreement_section(plain: dict[str, Any]) -> list[Paragraph | FactTable]:
    names = {
        "ambiguity": "inputs whose decision depends on the model (ambiguity)",
        "discrepancy": "decisions that differ between two models, at most (discrepancy)",
        "mean_disagreement": "probability that two models decide differently, mean",
        "mean_capacity": "effective number of classes per input (Rashomon capacity), mean",
        "max_capacity": "effective number of classes, largest",
        "mean_width": "width of the viable range of scores, mean",
        "max_width": "width of the viable range, largest",
    }
    table = plain["multiplicity"]
    rows = [(label, ReportNumber(value=table[name])) for name, label in names.items() if name in table]
    return [
        Paragraph(text=f"Inputs: {plain['inputs']}. No private record was read for this."),
        FactTable(rows=rows),
    ]


def _histogram_outline(table: dict[str, Any], label: str) -> list[tuple[float, float]]:
    """Return the outline of a histogram."""
    edges, counts = table["edges"], table["counts"]
    points = [(edges[0], 0.0)]
    for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
        points += [(left, float(count)), (right, float(count))]
    return [*points, (edges[-1], 0.0)]


def _histogram_figure(table: dict[str, Any], x_label: str, description: str, caption: str) -> Figure:
    line = Line(label=x_label, points=_histogram_outline(table, x_label))
    return Figure(
        plot=Plot(lines=[line], x_label=x_label, y_label="inputs", description=description), caption=caption
    )


def _score_section(plain: dict[str, Any]) -> Figure:
    return _histogram_figure(
        plain["scores"], "mean score of an input", "Histogram of mean scores", "Mean score over the models."
    )


def _width_section(plain: dict[str, Any]) -> Figure:
    return _histogram_figure(
        plain["widths"],
        "highest minus lowest score",
        "Histogram of the widths of viable ranges",
        "How much an input's score depends on the choice of model.",
    )


def _input_section(plain: dict[str, Any]) -> list[Paragraph | ReportTable]:
    rows: list[list[Cell]] = [
        [
            f"input {row['input']}",
            *(ReportNumber(value=row[name]) for name in ("disagreement", "low", "mean", "high")),
        ]
        for row in plain["changed"]
    ]
    text = "The inputs on which the models disagree most: an equally good model would decide differently."
    headers = ("input", "two models disagree", "lowest score", "mean score", "highest score")
    return [Paragraph(text=text), ReportTable(headers=headers, rows=rows)]


def _importance_ranges(model_values: ModelValues) -> ReportTable:
    order: Sequence[int] = np.argsort(-np.abs(model_values.median), kind="stable").tolist()
    rows: list[list[Cell]] = [
        [
            model_values.names[i],
            *(
                ReportNumber(value=float(side[i]))
                for side in (model_values.minimum, model_values.median, model_values.maximum)
            ),
        ]
        for i in order[: 2 * MAX_SHOWN_INPUTS]
    ]
    return ReportTable(headers=("column", "lowest", "median", "highest"), rows=rows)


def _fairness_section(plain: dict[str, Any]) -> list[Paragraph | ReportTable]:
    table = plain["multiplicity"]["fairness"]
    names = {"demographic_parity": "demographic parity gap", "equalized_odds": "equalised odds gap"}
    rows: list[list[Cell]] = [
        [label, ReportNumber(value=table[name]["low"]), ReportNumber(value=table[name]["high"])]
        for name, label in names.items()
        if name in table
    ]
    source = "private records, at the stated cost" if table["used_private_data"] else "public inputs"
    text = f"Groups {', '.join(table['groups'])}; measured on {source}."
    return [Paragraph(text=text), ReportTable(headers=("gap", "lowest", "highest"), rows=rows)]
