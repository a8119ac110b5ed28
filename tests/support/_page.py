"""The page docs/support.md: rendered from trials, and read back by the tests."""

from __future__ import annotations

import re
from pathlib import Path

from support._trials import FEATURES, NO_OPTION, YES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "support.md"
HEAD = """# What works with what

Every cell was tried with a small run that requested the feature, and whose release shows it. **yes**: it works.
**refused**: nothing is released, and the error of the footnote (its first sentence) is raised. **-**: there is no
such option, and Python rejects the keyword. `make support` writes this page, and a test compares it with new runs.

Estimators leave the mechanism to the planner; the rows `mechanism="..."` name one, in `DPLogisticRegression`
(`sufficient-statistics` in `DPRidge`). `DPModelSearch`, `RashomonSampler` and `RashomonRegion` take the options that
they do not have themselves from their estimator. "Rows per person" is a stated bound, "person" a column that enforces
it.
"""
_REFUSED = re.compile(r"refused \[(\d+)\]")

Cells = dict[tuple[str, str], str]


def generalize_refusal(row: str, message: str) -> str:
    """Return a refusal without the name of the row's mechanism, so that rows share footnotes."""
    match = re.fullmatch(r'mechanism="(.*)"', row)
    return message.replace(f"'{match[1]}'", "'...'") if match else message


def render_page(cells: Cells) -> str:
    """Return the text of the page."""
    notes: dict[str, int] = {}
    lines = [f"| | {' | '.join(FEATURES)} |", f"|---|{'---|' * len(FEATURES)}"]
    for row in dict.fromkeys(row for row, _ in cells):
        texts = []
        for feature in FEATURES:
            text = cells[row, feature]
            if text not in (YES, NO_OPTION):
                message = generalize_refusal(row, text)
                text = f"refused [{notes.setdefault(message, len(notes) + 1)}]"
            texts.append("-" if text == NO_OPTION else text)
        lines.append(f"| `{row}` | {' | '.join(texts)} |")
    footnotes = [f"{number}. {message}" for message, number in notes.items()]
    return "\n".join([HEAD, *lines, "", "## Refusals and their messages", "", *footnotes]) + "\n"


def read_page() -> Cells:
    """Return the cells of the present page."""
    text = PAGE.read_text(encoding="utf-8")
    notes = dict(re.findall(r"^(\d+)\. (.*)$", text, re.MULTILINE))
    cells: Cells = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            row, *texts = [part.strip() for part in line.strip("|").split(" | ")]
            for feature, text in zip(FEATURES, texts, strict=True):
                note = _REFUSED.fullmatch(text)
                message = notes[note[1]] if note else text
                cells[row.strip("`"), feature] = NO_OPTION if message == "-" else message
    return cells
