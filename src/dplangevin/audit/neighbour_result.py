"""NeighbourResult: which record changed what, in canary names and row numbers, never in cells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Effect = Literal["changed", "rows", "columns", "distance", "raised", "warned"]
_MOST_LINES, _MOST_ROWS, _MOST_NAMES = 40, 5, 6


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One neighbour on which a pipeline treated somebody else differently.

    Parameters
    ----------
    container : how the table was built. column, canary, row : what was put where (row: number of the replaced record).
    effect : "changed" (other rows have other results), "rows" or "columns" (the result has another number or other
        names of them), "distance" (beyond the bound), "raised", or "warned".
    others : numbers of the other rows that changed. detail : types, counts or a distance; never a cell.
    """

    container: str
    column: str
    canary: str
    row: int
    effect: Effect
    others: tuple[int, ...] = ()
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {**self.__dict__, "others": list(self.others)}


@dataclass(frozen=True, kw_only=True, repr=False)
class NeighbourResult:
    """What neighbouring tables showed about a pipeline. A pass is no proof: other records may still be read together.

    Parameters
    ----------
    findings : one for every neighbour that shows a fault.
    n_records : rows of the table. n_neighbours : tables that were compared with it.
    containers : how tables were built. skipped : containers on which the pipeline does not run, with the error's type.
    """

    findings: tuple[Finding, ...]
    n_records: int
    n_neighbours: int
    containers: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def passed(self) -> bool:
        """True when no record changed anything but its own row."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "passed": self.passed,
            "n_records": self.n_records,
            "n_neighbours": self.n_neighbours,
            "containers": list(self.containers),
            "skipped": dict(self.skipped),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def to_json(self) -> str:
        """The result as JSON text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=True)

    def __repr__(self) -> str:
        bad, size = len({_place(finding) for finding in self.findings}), f"{self.n_records} records"
        lines = [f"FAILED on {bad} of {self.n_neighbours} neighbours ({size})"]
        if self.passed:
            lines = [f"passed: no record changed another's result ({self.n_neighbours} neighbours, {size})"]
        groups: dict[tuple[Any, ...], list[Finding]] = {}
        for finding in self.findings:
            kind = (
                finding.container,
                finding.column,
                finding.effect,
                finding.row,
                len(finding.others),
                finding.detail,
            )
            groups.setdefault(kind, []).append(finding)
        lines += [_line(group) for group in list(groups.values())[:_MOST_LINES]]
        if len(groups) > _MOST_LINES:
            lines.append(f"  ... and {len(groups) - _MOST_LINES} more kinds; see findings")
        lines.append("  tables built as: " + ", ".join(self.containers))
        lines += [f"  not run on {name}: the pipeline raises {error}" for name, error in self.skipped]
        return "\n".join(lines)


def _place(finding: Finding) -> tuple[str, str, str, int]:
    return finding.container, finding.column, finding.canary, finding.row


def _line(group: Sequence[Finding]) -> str:
    first = group[0]
    names = ", ".join(finding.canary for finding in group[:_MOST_NAMES])
    if len(group) > _MOST_NAMES:
        names += f" and {len(group) - _MOST_NAMES} more"
    rows = ", ".join(map(str, first.others[:_MOST_ROWS])) + ("..." if len(first.others) > _MOST_ROWS else "")
    words = {
        "changed": f"{len(first.others)} other rows changed ({rows})",
        "rows": "the number of rows changed",
        "columns": "the columns changed",
        "distance": "the result moved beyond the bound",
        "raised": "raised",
        "warned": "warnings changed",
    }[first.effect]
    detail = f": {first.detail}" if first.detail else ""
    return f"  {first.container}, {first.column or 'whole record'}: {words}{detail}; by row {first.row} = {names}"
