"""The page docs/support.md: rendered from trials, and read back by the tests."""

from __future__ import annotations

import re
from pathlib import Path

from support._trials import FEATURES, NO_OPTION, YES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "support.md"
HEAD = """# What works with what

Every cell was tried with a small run that requested the feature, and whose release shows it. **yes**: it works.
**refused**: nothing is released, and the error of the footnote (its first sentence) is raised; below it is the theorem
or the open item that it rests on. **-**: there is no such option, and Python rejects the keyword. `make support` writes
this page, and a test compares it with new runs.

Estimators leave the mechanism to the planner; the rows `mechanism="..."` name one, in `DPLogisticRegression`
(`sufficient-statistics` in `DPRidge`). `DPModelSearch`, `RashomonSampler` and `RashomonRegion` take the options that
they do not have themselves from their estimator. "Rows per person" is a stated bound, "person" a column that enforces
it.
"""
REASONS: tuple[tuple[str, str], ...] = (
    (
        "the table must be an array, rows, a dictionary of columns",
        "open item: a reader of this container here.",
    ),
    (
        "mechanism='...' cannot guarantee pure epsilon",
        "theorem: Gaussian noise has no finite epsilon at delta = 0 (Dong, Roth and Su 2022); sums with pure "
        "noise are open ([exact sums](theory/exact_sums.md), section 11).",
    ),
    (
        "intervals need a mechanism whose noise distribution",
        "open item: the law of this estimate's error. It is derived for those that are named "
        "([one-step intervals](theory/one_step_intervals.md)).",
    ),
    (
        "mechanism = '...' does not use public_data",
        "theorem: `public-mirror-descent` is about mirror descent alone ([public data](public_data.md)).",
    ),
    (
        "no group guarantee is proved for pld parts",
        "open item: the group profile of a sampled Gaussian ([people](theory/people.md), section 3).",
    ),
    (
        "person= supports full batches only",
        "theorem: amplification is by samples of rows ([people](theory/people.md)); samples of persons are open.",
    ),
    (
        "secure=True has no proof here: the noise of mechanism='...'",
        "open item: enclosures of a potential, and shifts of rounded Langevin states "
        "([exact sums](theory/exact_sums.md), sections 8, 9 and 11).",
    ),
    (
        "mechanism='...' is proved for at most n records",
        "theorem: contraction and curvature bounds are of means over at most n records "
        "([Langevin and Gibbs](theory/langevin_and_gibbs.md), section 1).",
    ),
    (
        "with 2 rows per person the fit would cost",
        "open item: planning these draws for a group; the cost is that of group privacy.",
    ),
    (
        "delta must be strictly between 0 and 1",
        "theorem: the selection is proved for attempts that are mu-GDP "
        "([selection](theory/selection.md), section 1).",
    ),
    ("a search takes a table in memory or files", "open item: candidates on a cluster."),
    (
        "intervals of the estimator does not go with a search",
        "theorem: the chosen attempt is the best of several, so that the law of one fit's error is not its own "
        "([selection](theory/selection.md)); intervals after a selection are open.",
    ),
    (
        "public_data of the estimator does not go with a search",
        "open item: tuning on public data inside attempts.",
    ),
    (
        "secure is not supported for draws from a Rashomon set",
        "open item: enclosures of the potential of a draw ([exact sums](theory/exact_sums.md), section 9).",
    ),
    ("class_weight is not supported here", "open item: bounds of draws and regions for weighted records."),
    (
        "max_rows_per_person must be 1 here",
        "open item: a group guarantee of draws ([Rashomon draws](theory/rashomon.md), section 5).",
    ),
    (
        "a Rashomon set needs stated bounds",
        "open item: charging a learned schema together with the set; learned in a separate fit, both compose.",
    ),
    (
        "intervals is not supported for draws",
        "theorem: a draw's spread is that of the set, not of an estimate ([Rashomon "
        "draws](theory/rashomon.md), section 2).",
    ),
    (
        "public_data is not supported for draws",
        "theorem: draws have no public data in their law ([Rashomon draws](theory/rashomon.md), section 1).",
    ),
    (
        "a region needs delta > 0",
        "theorem: Gaussian noise has no finite epsilon at delta = 0; a curvature with pure noise is open "
        "([exact sums](theory/exact_sums.md), section 11).",
    ),
    (
        "intervals and compare are not supported by a region",
        "theorem: a region is about all good models, with certificates of its own "
        "([regions](theory/rashomon_region.md)).",
    ),
    (
        "this schema is to be learned",
        "theorem: learning is a release of its own ([learned schemas](theory/learned_schema.md), "
        "section 1); in counts it is open.",
    ),
    (
        "count_file reads Parquet, Arrow or text files",
        "not a limit: `count_queries` and `count_marginals` take tables; on clusters open.",
    ),
    (
        "values that nobody lists need delta > 0",
        "theorem: under pure epsilon a value of one person cannot be told from a common one "
        "([learned schemas](theory/learned_schema.md), section 5).",
    ),
)
"""Why a refusal stands, by how its message begins: a theorem, or an open item."""
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
    footnotes = [f"{number}. {message}\n   *{_reason(message)}*" for message, number in notes.items()]
    return "\n".join([HEAD, *lines, "", "## Refusals and their messages", "", *footnotes]) + "\n"


def _reason(message: str) -> str:
    """Return the theorem or the open item behind a refusal; one without either is an error."""
    [reason] = [why for start, why in REASONS if message.startswith(start)]
    return reason[0].upper() + reason[1:].rstrip(".")


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
