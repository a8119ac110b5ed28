"""An AuditResult as text for a terminal, and as a document for HTML, Markdown and JSON."""

from __future__ import annotations

import math
from typing import Any

from dplangevin.audit.attacks import CHOOSING_STRIDE, AuditResult
from dplangevin.report.answer import format_number
from dplangevin.report.document import (
    BulletList,
    Cell,
    Document,
    FactTable,
    Figure,
    Headline,
    ReportNumber,
    Section,
)
from dplangevin.report.plots import Band, Line, Plot

_MEANING = (
    "A lower bound is not a guarantee: an attack that fails proves nothing about better attacks.",
    "Every statement holds with the stated confidence for this canary; the claim is about every pair of neighbours, so "
    "one canary is enough to refute it and none is enough to prove it.",
    "The deciding test compares one measured pair of error rates with the claim's whole trade-off curve.",
)


def audit_verdict(result: AuditResult) -> str:
    """Return the verdict in one sentence."""
    if result.claimed is None:
        return f"Nothing was claimed; epsilon is at least {format_number(result.epsilon_lower, down=True)}."
    certainty = "by integration" if result.confidence == 1 else f"at confidence {result.confidence:g}"
    if result.refuted:
        return f"REFUTED: the claim is false, {certainty}."
    return f"Not refuted, {certainty}: this attack is consistent with the claim."


def audit_rows(result: AuditResult) -> list[tuple[str, Cell]]:
    """Return the names and values of an audit's results, in the order in which they are shown."""
    rows: list[tuple[str, Cell]] = []
    if result.claimed is not None:
        rows.append(("claimed epsilon", ReportNumber(value=float(result.claimed["epsilon"]))))
    rows.append(("audited epsilon, at least", ReportNumber(value=result.epsilon_lower, down=True)))
    if result.claimed_mu is not None:
        rows.append(("claimed mu (Gaussian DP)", ReportNumber(value=result.claimed_mu)))
    rows.append(("audited mu, at least", ReportNumber(value=result.mu_lower, down=True)))
    if result.exact_ratio is not None:
        rows.append(
            ("exact / claimed mu of the worst case", ReportNumber(value=result.exact_ratio, down=True))
        )
    rows += [
        ("delta", ReportNumber(value=result.delta)),
        (
            "confidence",
            f"{result.confidence:g}" + (" (numerical integration)" if result.confidence == 1 else ""),
        ),
        ("method", result.method),
        ("runs", ReportNumber(value=float(result.runs))),
        ("canary", result.canary),
    ]
    if result.claimed is not None:
        rows += [("theorem of the claim", str(result.claimed["theorem"]))]
        rows += [("adjacency", str(result.claimed["adjacency"]))]
    return rows


def audit_text(result: AuditResult) -> str:
    """Return the audit as text for a terminal."""
    facts = audit_rows(result)
    width = max(len(name) for name, _ in facts)
    lines = [f"{name:<{width}}  {value}" for name, value in facts]
    return "\n".join([audit_verdict(result), "", *lines])


def audit_document(result: AuditResult) -> Document:
    """Return the audit as a document with the claimed and the audited trade-off curve."""
    sections = [
        Section(
            title="What was measured",
            blocks=(FactTable(rows=audit_rows(result)),),
        )
    ]
    if result.allowed or result.measured:
        sections.append(Section(title="Trade-off curve", blocks=(_tradeoff_figure(result),)))
    sections.append(
        Section(title="What this means", blocks=(BulletList(items=(*_MEANING, *_explain_gap(result))),))
    )
    claimed = result.claimed_epsilon
    headlines = [
        Headline(
            label="Claimed epsilon",
            value="nothing was claimed" if claimed is None else ReportNumber(value=claimed),
            meaning="an upper bound, if the claim is true",
        ),
        Headline(
            label="Audited epsilon",
            value=ReportNumber(value=result.epsilon_lower, down=True),
            meaning="at least this much leaks, "
            + ("by integration" if result.confidence == 1 else "by a test"),
        ),
    ]
    return Document(
        title="Privacy audit",
        sections=sections,
        plain=_audit_plain(result),
        headlines=headlines,
        summary=audit_verdict(result),
        footer="Written by dplangevin.",
    )


def _audit_plain(result: AuditResult) -> dict[str, Any]:
    return {
        "audit": result.to_dict(),
        "trade_off_curve": {"claimed": list(result.allowed), "measured": list(result.measured)},
    }


def _n_certifying_runs(result: AuditResult) -> int:
    """Return the runs on each of the two data sets that certify the bound; 0 for other methods than many-run."""
    return result.runs // 2 * (CHOOSING_STRIDE - 1) // CHOOSING_STRIDE if result.method == "many-run" else 0


def _explain_gap(result: AuditResult) -> list[str]:
    """Explain why an audited epsilon stays below the claimed one although nothing is wrong."""
    runs, claimed = _n_certifying_runs(result), result.claimed_epsilon
    if claimed is None or result.refuted or not runs or result.epsilon_lower >= claimed:
        return []
    size = -math.expm1(math.log((1 - result.confidence) / 2) / runs)
    best = math.log(max(1 - size - result.delta, size) / size)
    sentences = [
        "An audited epsilon far below the claimed one is normal for a correct mechanism: the claim covers the worst "
        f"event down to a probability of delta = {result.delta:.3g}, while runs show typical events only.",
        f"With this number of runs no attack could certify more than epsilon = {format_number(best, down=True)} "
        "at this "
        "confidence, even if it classified every run correctly.",
    ]
    if result.claimed_mu is not None:
        sentences.append("The fairer comparison is that of mu, which is decided by typical events.")
    return sentences


def _confidence_band(result: AuditResult) -> tuple[Band, ...]:
    """Return a simultaneous confidence band for the attack's true curve, at the audit's confidence.

    The band is that of Dvoretzky, Kiefer and Wolfowitz with Massart's constant, for each of the two error rates at
    half of the risk.
    """
    runs = _n_certifying_runs(result)
    if not runs or not result.measured:
        return ()
    shift = math.sqrt(math.log(4 / (1 - result.confidence)) / (2 * runs))
    curve = sorted((size, 1 - power) for size, power in result.measured)
    curve = [(0.0, 1.0), *curve, (1.0, 0.0)]
    upper = [(min(1.0, x + shift), min(1.0, y + shift)) for x, y in curve]
    lower = [(max(0.0, x - shift), max(0.0, y - shift)) for x, y in curve]
    label = f"{result.confidence:.0%} confidence band ({runs:,} runs on each data set)"
    return (Band(label=label, outline=[*upper, *reversed(lower)], style=1),)


def _tradeoff_figure(result: AuditResult) -> Figure:
    """Draw false negative against false positive rates; the claim's curve bounds every attack from below."""
    lines = []
    if result.allowed:
        floor = [(size, 1 - power) for size, power in result.allowed]
        lines.append(Line(label="claimed: no attack may lie below", points=floor, style=0))
    if result.measured:
        curve = [(size, 1 - power) for size, power in result.measured]
        lines.append(Line(label="measured: this attack", points=curve, style=1))
    if result.claimed is not None:
        size, power = result.tested
        lines.append(
            Line(label="certified: the deciding test", points=[(size, 1 - power)], style=2, marker=True)
        )
    plot = Plot(
        lines=lines,
        x_label="false positive rate",
        y_label="false negative rate",
        description="Trade-off between the two errors of a test, claimed and audited",
        bands=_confidence_band(result),
    )
    verdict = "below the claimed curve: refuted" if result.refuted else "not below the claimed curve"
    return Figure(
        plot=plot,
        caption=f"The certified point has both error rates rounded against the attack; it lies {verdict}. The dashed "
        "curve is measured on a finite number of runs and may dip below the claim by chance; the point decides.",
    )
