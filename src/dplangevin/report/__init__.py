"""Faces of a guarantee: text, JSON, pictures and reports. Nothing here proves anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dplangevin._lazy import attach

if TYPE_CHECKING:
    from dplangevin.report.audit import audit_document as audit_document
    from dplangevin.report.document import Document as Document, write_document as write_document
    from dplangevin.report.plot import write_plot as write_plot
    from dplangevin.report.ranges import Range as Range, RangePlot as RangePlot, range_svg as range_svg
    from dplangevin.report.rashomon import rashomon_document as rashomon_document
    from dplangevin.report.region import region_document as region_document
    from dplangevin.report.release import release_document as release_document


def write(
    subject: Any,
    path: str | Path,
    *,
    ledger: Any = None,
    sign: str | Path | None = None,
    source: str | Path | None = None,
) -> Path:
    """Write a report on a release, a plan, an estimator, a guarantee or an audit to one self-contained file.

    The suffix chooses the form: .html (no network, no scripts), .md or .json. `ledger` is the budget of the data set,
    whose remains are shown; an estimator's own is found. `sign` is a private key's file: the report names the signer
    and carries the signature. `source` is the file that the subject was read from: the report says who signed it.
    """
    from dplangevin.audit.result import AuditResult
    from dplangevin.report.document import checked_path, write_document
    from dplangevin.report.signed import signed_section

    signer, section = signed_section(sign, source)
    if isinstance(subject, AuditResult):
        from dplangevin.report.audit import audit_document

        return write_document(audit_document(subject), checked_path(path), section, signer)
    from dplangevin.report.release import release_document

    return write_document(release_document(subject, ledger), checked_path(path), section, signer)


__getattr__, __dir__, __all__ = attach(__name__)
__all__ += ["write"]
