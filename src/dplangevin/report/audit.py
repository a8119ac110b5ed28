"""The faces of an AuditResult: text for a terminal, and the document that HTML, Markdown and JSON are written from."""

from __future__ import annotations

import math
from typing import Any

from dplangevin.audit.attack import CHOOSING
from dplangevin.audit.result import AuditResult
from dplangevin.report import html
from dplangevin.report.document import Bullets, Cell, Document, Facts, Figure, Number, Section, Text
from dplangevin.report.text import number

_MEANING = (
    "A lower bound is not a guarantee: an attack that fails proves nothing about better attacks.",
    "Every statement holds with the stated confidence for this canary; a claim is about every pair of neighbours, so "
    "one canary is enough to refute it and none is enough to prove it.",
    "The test that decides compares one measured pair of error rates with the claim's whole trade-off curve.",
)


def verdict(result: AuditResult) -> str:
    """One sentence."""
    if result.claimed is None:
        return f"Nothing was claimed; epsilon is at least {number(result.epsilon_lower, down=True)}."
    sure = "by integration" if result.confidence == 1 else f"at confidence {result.confidence:g}"
    if result.refuted:
        return f"REFUTED: the claim is false, {sure}."
    return f"Not refuted, {sure}: this attack is consistent with the claim."


def rows(result: AuditResult) -> list[tuple[str, Cell]]:
    """What is shown of an audit, in order."""
    shown: list[tuple[str, Cell]] = []
    if result.claimed is not None:
        shown.append(("claimed epsilon", Number(value=float(result.claimed["epsilon"]))))
    shown.append(("audited epsilon, at least", Number(value=result.epsilon_lower, down=True)))
    if result.claimed_mu is not None:
        shown.append(("claimed mu (Gaussian DP)", Number(value=result.claimed_mu)))
    shown.append(("audited mu, at least", Number(value=result.mu_lower, down=True)))
    if result.exact_ratio is not None:
        shown.append(("exact / claimed mu of the worst case", Number(value=result.exact_ratio, down=True)))
    shown += [
        ("delta", Number(value=result.delta)),
        (
            "confidence",
            f"{result.confidence:g}" + (" (numerical integration)" if result.confidence == 1 else ""),
        ),
        ("method", result.method),
        ("runs", Number(value=float(result.runs))),
        ("canary", result.canary),
    ]
    if result.claimed is not None:
        shown += [("theorem of the claim", str(result.claimed["theorem"]))]
        shown += [("adjacency", str(result.claimed["adjacency"]))]
    return shown


def plain_text(result: AuditResult) -> str:
    """The audit for a terminal."""
    facts = rows(result)
    width = max(len(name) for name, _ in facts)
    lines = [f"{name:<{width}}  {value}" for name, value in facts]
    return "\n".join([verdict(result), "", *lines])


def audit_document(result: AuditResult) -> Document:
    """The audit as a document with the trade-off curve, claimed and audited."""
    sections = [Section(title="Verdict", blocks=(Text(words=verdict(result)), Facts(rows=rows(result))))]
    if result.allowed or result.measured:
        sections.append(Section(title="Trade-off curve", blocks=(_figure(result),)))
    sections.append(Section(title="What this means", blocks=(Bullets(items=(*_MEANING, *_gap(result))),)))
    return Document(
        title="Privacy audit", sections=sections, plain=_plain(result), footer="Written by dplangevin."
    )


def _plain(result: AuditResult) -> dict[str, Any]:
    return {
        "audit": result.to_dict(),
        "trade_off": {"claimed": list(result.allowed), "measured": list(result.measured)},
    }


def _certifying(result: AuditResult) -> int:
    """Runs on each of the two data sets that certify; 0 where nothing was sampled in that way."""
    return result.runs // 2 * (CHOOSING - 1) // CHOOSING if result.method == "many-run" else 0


def _gap(result: AuditResult) -> list[str]:
    """Why an audited epsilon stays below the claimed one although nothing is wrong."""
    runs, claimed = _certifying(result), result.claimed_epsilon
    if claimed is None or result.refuted or not runs or result.epsilon_lower >= claimed:
        return []
    size = -math.expm1(math.log((1 - result.confidence) / 2) / runs)
    best = math.log(max(1 - size - result.delta, size) / size)
    words = [
        "An audited epsilon far below the claimed one is what honest noise looks like: the claim covers the worst "
        f"event down to a probability of delta = {result.delta:.3g}, while runs show typical events only.",
        f"With so many runs no attack could certify more than epsilon = {number(best, down=True)} at this confidence, "
        "even if it recognised every single run.",
    ]
    if result.claimed_mu is not None:
        words.append("The fairer comparison is that of mu, which is decided by typical events.")
    return words


def _band(result: AuditResult) -> tuple[html.Band, ...]:
    """Where the attack's true curve lies with the audit's confidence, at all points at once.

    Dvoretzky, Kiefer and Wolfowitz with Massart's constant, for each of the two error rates at half of the risk.
    """
    runs = _certifying(result)
    if not runs or not result.measured:
        return ()
    shift = math.sqrt(math.log(4 / (1 - result.confidence)) / (2 * runs))
    curve = sorted((size, 1 - power) for size, power in result.measured)
    curve = [(0.0, 1.0), *curve, (1.0, 0.0)]
    upper = [(min(1.0, x + shift), min(1.0, y + shift)) for x, y in curve]
    lower = [(max(0.0, x - shift), max(0.0, y - shift)) for x, y in curve]
    label = f"where it may truly be ({result.confidence:.0%}, {runs:,} runs a side)"
    return (html.Band(label=label, outline=[*upper, *reversed(lower)], style=1),)


def _figure(result: AuditResult) -> Figure:
    """Missed members against false alarms: the claim's curve is the floor of every attack."""
    lines = []
    if result.allowed:
        floor = [(size, 1 - power) for size, power in result.allowed]
        lines.append(html.Line(label="claimed: no attack may be below", points=floor, style=0))
    if result.measured:
        curve = [(size, 1 - power) for size, power in result.measured]
        lines.append(html.Line(label="measured: this attack", points=curve, style=1))
    if result.claimed is not None:
        size, power = result.tested
        lines.append(
            html.Line(
                label="certified: the test that decides", points=[(size, 1 - power)], style=2, marker=True
            )
        )
    plot = html.Plot(
        lines=lines,
        x_label="false positive rate",
        y_label="false negative rate",
        words="Trade-off between the two errors of a test, claimed and audited",
        bands=_band(result),
    )
    place = "below the claimed curve: refuted" if result.refuted else "not below the claimed curve"
    return Figure(
        plot=plot,
        caption=f"The certified point has both error rates rounded against the attack; it lies {place}. The dashed "
        "curve is measured on a finite number of runs and may dip below the claim by chance; the point decides.",
    )
