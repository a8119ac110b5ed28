"""Guarantees, releases and audits as text, JSON, plots and reports; every number comes from other packages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dplangevin._lazy import attach_lazy_names

if TYPE_CHECKING:
    from dplangevin.report.answer import write_plot as write_plot
    from dplangevin.report.audit import audit_document as audit_document
    from dplangevin.report.document import Document as Document, write_document as write_document
    from dplangevin.report.plots import (
        BudgetDisplay as BudgetDisplay,
        RangePlot as RangePlot,
        RangeRow as RangeRow,
        ShapeDisplay as ShapeDisplay,
        StabilityDisplay as StabilityDisplay,
        TradeoffDisplay as TradeoffDisplay,
    )
    from dplangevin.report.rashomon import rashomon_document as rashomon_document
    from dplangevin.report.region import region_document as region_document
    from dplangevin.report.release import release_document as release_document


def write_report(
    subject: Any,
    path: str | Path,
    *,
    ledger: Any = None,
    sign: str | Path | None = None,
    source: str | Path | None = None,
) -> Path:
    """Write a report on a release, a plan, an estimator, a guarantee or an audit to one self-contained file.

    Parameters
    ----------
    subject : a release, plan, fitted estimator, guarantee or AuditResult.
    path : file to write; its suffix chooses the format: .html (no network access, no scripts), .md or .json.
    ledger : budget of the data set, whose remainder is shown; by default that of the estimator.
    sign : file of a private key: the report names the signer and carries the signature.
    source : file that the subject was read from: the report names who signed it.

    Returns
    -------
    The path of the report.
    """
    from dplangevin.audit.attacks import AuditResult
    from dplangevin.report.document import check_report_path, write_document
    from dplangevin.report.release import signed_section

    signer, section = signed_section(sign, source)
    if isinstance(subject, AuditResult):
        from dplangevin.report.audit import audit_document

        return write_document(audit_document(subject), check_report_path(path), section, signer)
    from dplangevin.report.release import release_document

    return write_document(release_document(subject, ledger), check_report_path(path), section, signer)


__getattr__, __dir__, __all__ = attach_lazy_names(__name__)
__all__ += ["write_report"]
