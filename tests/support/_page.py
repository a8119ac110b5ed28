"""docs/support.md: written from trials, and read back by the tests."""

from __future__ import annotations

import re
from pathlib import Path

from support._trials import FEATURES, NO_OPTION, YES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "support.md"
HEAD = """# What works with what

Every cell was tried: a small run that really asked for the feature, and whose release shows it. **yes** works.
**refused** releases nothing and raises the error of its footnote (its first sentence). **-** means that there is no
such option: Python itself refuses the keyword. `make support` writes this page, and a test compares it with new runs.

Estimators leave the mechanism to the planner; the rows `mechanism="..."` ask for one by name, in `DPLogisticRegression`
(`sufficient-statistics` in `DPRidge`). `DPSearchCV`, `RashomonSampler` and `RashomonRegion` take from their estimator
what they do not take themselves. "Rows per person" is a stated bound, "person" a column that enforces it.
"""
_REFUSED = re.compile(r"refused \[(\d+)\]")

Cells = dict[tuple[str, str], str]


def general(row: str, words: str) -> str:
    """A refusal without the name of the mechanism that was asked for: rows share footnotes."""
    asked = re.fullmatch(r'mechanism="(.*)"', row)
    return words.replace(f"'{asked[1]}'", "'...'") if asked else words


def rendered(cells: Cells) -> str:
    """The page."""
    notes: dict[str, int] = {}
    lines = [f"| | {' | '.join(FEATURES)} |", f"|---|{'---|' * len(FEATURES)}"]
    for row in dict.fromkeys(row for row, _ in cells):
        shown = []
        for feature in FEATURES:
            found = cells[row, feature]
            if found not in (YES, NO_OPTION):
                words = general(row, found)
                found = f"refused [{notes.setdefault(words, len(notes) + 1)}]"
            shown.append("-" if found == NO_OPTION else found)
        lines.append(f"| `{row}` | {' | '.join(shown)} |")
    footnotes = [f"{number}. {words}" for words, number in notes.items()]
    return "\n".join([HEAD, *lines, "", "## Refusals, in the words of the library", "", *footnotes]) + "\n"


def written() -> Cells:
    """The cells of the page as it stands."""
    text = PAGE.read_text(encoding="utf-8")
    notes = dict(re.findall(r"^(\d+)\. (.*)$", text, re.MULTILINE))
    cells: Cells = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            row, *shown = [part.strip() for part in line.strip("|").split(" | ")]
            for feature, found in zip(FEATURES, shown, strict=True):
                note = _REFUSED.fullmatch(found)
                words = notes[note[1]] if note else found
                cells[row.strip("`"), feature] = NO_OPTION if words == "-" else words
    return cells
