"""The report on a Rashomon set: what equally good models disagree on, the promise, and the bound on hitting the set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dplangevin._version import __version__
from dplangevin.rashomon import Cloud, Multiplicity, RashomonSampler
from dplangevin.report.document import (
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

VERSION = 1
BINS = 20
SHOWN = 15  # inputs and columns in a table


def rashomon_document(sampler: RashomonSampler, multiplicity: Multiplicity, inputs: str = "") -> Document:
    """Everything said of a fitted sampler and of its models on public inputs; `inputs` says where these come from."""
    plain = rashomon_plain(sampler, multiplicity, inputs)
    sections = [
        Section(title="What is promised, and what was drawn", blocks=[_promise(plain), *_hit(plain)]),
        Section(title="How much the models disagree", blocks=_disagreement(plain)),
        Section(title="Scores", blocks=[_scores(plain), _widths(plain)]),
        *(
            [Section(title="Who would get a different decision", blocks=_who(plain))]
            if plain["changed"]
            else []
        ),
        Section(title="Coefficients over the models", blocks=[_ranges(multiplicity.coefficients)]),
    ]
    if multiplicity.reliance is not None:
        words = "Mean loss when a column is exchanged between inputs, over the mean loss as it is; 1 means unused."
        sections.append(
            Section(
                title="Importance over the models", blocks=[Text(words=words), _ranges(multiplicity.reliance)]
            )
        )
    if multiplicity.fairness is not None:
        sections.append(Section(title="Fairness gaps over the models", blocks=_fairness(plain)))
    sections.append(Section(title="Holds when", blocks=[Bullets(items=sampler.privacy_.hypotheses)]))
    return Document(
        title=f"Rashomon set of {len(sampler.models_)} models",
        sections=sections,
        plain=plain,
        footer=f"Written by dplangevin {__version__} on {plain['created']}. Of the private data it uses the released "
        "models only.",
    )


def rashomon_plain(sampler: RashomonSampler, multiplicity: Multiplicity, inputs: str = "") -> dict[str, Any]:
    """The same facts as plain data: what --json prints and what the page embeds."""
    recipe = sampler.plan_
    schedule, delta = recipe.schedule, recipe.plan.delta
    means, edges = np.histogram(multiplicity.spread.mean, BINS)
    widths, width_edges = np.histogram(multiplicity.spread.width, BINS)
    return {
        **stamp("rashomon", VERSION),
        "model": multiplicity.model_name,
        "route": recipe.route,
        "tier": schedule.tier,
        "threshold": schedule.threshold,
        "models": schedule.n_models,
        "inverse_temperature": schedule.inverse_temperature,
        "hit_probability": recipe.hit_probability,
        "hit_threshold": recipe.hit_threshold,
        "hit_bound": recipe.sentence(),
        "advice": str(recipe.advice),
        "guarantee": sampler.privacy_.to_dict(delta),
        "ledger_head": sampler.ledger_head_,
        "inputs": inputs or f"{multiplicity.scores.shape[1]} public inputs",
        "multiplicity": multiplicity.to_dict(),
        "scores": {"edges": edges.tolist(), "counts": means.tolist()},
        "widths": {"edges": width_edges.tolist(), "counts": widths.tolist()},
        "changed": _changed(multiplicity),
    }


def _changed(multiplicity: Multiplicity) -> list[dict[str, Any]]:
    """The inputs whose decision is most divided, at most SHOWN of them."""
    if multiplicity.decisions is None:
        return []
    divided = multiplicity.disagreement
    order = [int(i) for i in np.argsort(-divided, kind="stable")[:SHOWN] if divided[i] > 0]
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


def under_head(plain: dict[str, Any]) -> list[tuple[str, Cell]]:
    """The row that says which ledger paid, where one did."""
    head = plain["ledger_head"]
    return [("charged under the ledger's head", head)] if head else []


def _promise(plain: dict[str, Any]) -> Facts:
    promise = plain["guarantee"]
    return Facts(
        rows=[
            ("models", Number(value=plain["models"])),
            ("epsilon, all models together", Number(value=promise["epsilon"])),
            ("delta", Number(value=promise["delta"])),
            ("adjacency", promise["adjacency"]),
            ("route and tier", f"{plain['route']}, {plain['tier']}"),
            ("threshold psi", Number(value=plain["threshold"])),
            (
                "probability that a model is in the set, at least",
                Number(value=plain["hit_probability"], down=True),
            ),
            ("theorem", promise["theorem"]),
            *under_head(plain),
        ]
    )


def _hit(plain: dict[str, Any]) -> list[Text]:
    words = [Text(words=plain["hit_bound"])]
    if plain["hit_probability"] < 0.5:
        words.append(
            Text(
                words="Caution: the bound is low, so much of the disagreement below may be the noise of the privacy "
                f"mechanism and not multiplicity. {plain['advice']}"
            )
        )
    return words


def _disagreement(plain: dict[str, Any]) -> list[Text | Facts]:
    names = {
        "ambiguity": "inputs whose decision depends on the model (ambiguity)",
        "discrepancy": "decisions that differ between two models, at most (discrepancy)",
        "mean_disagreement": "chance that two models decide differently, mean",
        "mean_capacity": "classes left open per input (Rashomon capacity), mean",
        "largest_capacity": "classes left open, largest",
        "mean_width": "width of the viable range of scores, mean",
        "largest_width": "width of the viable range, largest",
    }
    table = plain["multiplicity"]
    rows = [(words, Number(value=table[name])) for name, words in names.items() if name in table]
    return [Text(words=f"Inputs: {plain['inputs']}. No private record was read for this."), Facts(rows=rows)]


def _bars(table: dict[str, Any], label: str) -> list[tuple[float, float]]:
    """The outline of a histogram."""
    edges, counts = table["edges"], table["counts"]
    points = [(edges[0], 0.0)]
    for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
        points += [(left, float(count)), (right, float(count))]
    return [*points, (edges[-1], 0.0)]


def _histogram(table: dict[str, Any], x_label: str, words: str, caption: str) -> Figure:
    line = Line(label=x_label, points=_bars(table, x_label))
    return Figure(plot=Plot(lines=[line], x_label=x_label, y_label="inputs", words=words), caption=caption)


def _scores(plain: dict[str, Any]) -> Figure:
    return _histogram(
        plain["scores"], "mean score of an input", "Histogram of mean scores", "Mean score over the models."
    )


def _widths(plain: dict[str, Any]) -> Figure:
    return _histogram(
        plain["widths"],
        "highest minus lowest score",
        "Histogram of the widths of viable ranges",
        "How far the choice of model moves an input's score.",
    )


def _who(plain: dict[str, Any]) -> list[Text | ReportTable]:
    rows: list[list[Cell]] = [
        [
            f"input {row['input']}",
            *(Number(value=row[name]) for name in ("disagreement", "low", "mean", "high")),
        ]
        for row in plain["changed"]
    ]
    words = "The inputs on which the models are most divided: an equally good model would decide differently."
    headers = ("input", "two models disagree", "lowest score", "mean score", "highest score")
    return [Text(words=words), ReportTable(headers=headers, rows=rows)]


def _ranges(cloud: Cloud) -> ReportTable:
    order: Sequence[int] = np.argsort(-np.abs(cloud.middle), kind="stable").tolist()
    rows: list[list[Cell]] = [
        [cloud.names[i], *(Number(value=float(side[i])) for side in (cloud.low, cloud.middle, cloud.high))]
        for i in order[: 2 * SHOWN]
    ]
    return ReportTable(headers=("column", "lowest", "median", "highest"), rows=rows)


def _fairness(plain: dict[str, Any]) -> list[Text | ReportTable]:
    table = plain["multiplicity"]["fairness"]
    names = {"demographic_parity": "demographic parity gap", "equalised_odds": "equalised odds gap"}
    rows: list[list[Cell]] = [
        [words, Number(value=table[name]["low"]), Number(value=table[name]["high"])]
        for name, words in names.items()
        if name in table
    ]
    source = "private records, at the cost stated" if table["used_private_data"] else "public inputs"
    words = f"Groups {', '.join(table['groups'])}; measured on {source}."
    return [Text(words=words), ReportTable(headers=("gap", "lowest", "highest"), rows=rows)]
