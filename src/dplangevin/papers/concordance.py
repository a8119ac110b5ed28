"""The concordance: every statement of the five papers, the code that implements it, its correction and its test.

statements.toml holds the rows; `python -m dplangevin.papers.concordance` prints docs/papers.md.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

Status = Literal["full", "partial", "refused"]
Use = Literal["runs on data", "computes a bound", "printed formula", "refused"]
_FORMULA_HOME = "dplangevin.papers:"
_PRINTED = ("paper_", "printed_", "chourasia_", "theorem_4", "lemma_6", "thesis_")


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A source: its key in docs/references.bib, title, authors and year, its short heading and how to find it."""

    key: str
    title: str
    authors: str
    year: int
    heading: str
    link: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One numbered statement of a paper.

    Parameters
    ----------
    paper : key of docs/references.bib. number : as the paper counts it.
    says : the statement in one line.
    where : importable names, "package.module:name", or commands, "dplangevin reproduce NAME".
    status : "full": implemented with every constant; "partial": `note` says what is missing; "refused": `note` proves
        why.
    test : the id of a test that fails without it.
    corrected : the error in the printed form ("" when there is none). note : see status.
    example : a command line that runs or accounts it.
    """

    paper: str
    number: str
    says: str
    where: tuple[str, ...]
    test: str
    status: Status = "full"
    corrected: str = ""
    note: str = ""
    example: str = ""

    @property
    def use(self) -> Use:
        """What the library does with the statement, by where it is: the first that applies."""
        if self.status == "refused":
            return "refused"
        if any(":" not in place or not place.startswith(_FORMULA_HOME) for place in self.where):
            return "runs on data"
        names = [place.rpartition(":")[2] for place in self.where]
        return "printed formula" if all(name.startswith(_PRINTED) for name in names) else "computes a bound"

    @property
    def command(self) -> str:
        """A line to run: the stated example, the command that redraws it, or the help of what computes it."""
        if self.example:
            return self.example
        for place in self.where:
            if ":" not in place:
                return f"{place} --quick"
        module, _, name = self.where[0].partition(":")
        return f'python -c "from {module} import {name}; help({name})"'


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing that a reader of the papers would look for, and the rows that answer it."""

    name: str
    rows: tuple[Row, ...]

    @property
    def status(self) -> str:
        """ "full", "refused", "full and refused" by its rows, or "partial" if one of them is."""
        statuses = {row.status for row in self.rows}
        return "partial" if "partial" in statuses else " and ".join(sorted(statuses))

    @property
    def uses(self) -> str:
        """What the library does with its rows, the strongest first."""
        order = ("runs on data", "computes a bound", "printed formula", "refused")
        return ", ".join(use for use in order if any(row.use == use for row in self.rows))


_HEAD = """# The papers: every statement, and where it is

Written by `python -m dplangevin.papers.concordance`; do not edit. A row is a theorem, an algorithm, a figure or a
table of one of the five papers that this library builds on: its statement, what was corrected, the name that computes
or runs it, and the test that would fail without it. "Full" means that it is implemented with every constant; "partial"
says what is missing; "refused" says why, with the proof. The [errata](errata.md) explain the corrections, pictures are
in the [gallery](gallery.md), and [references.bib](references.bib) lists all papers that are cited anywhere. On the
command line, `dplangevin papers` lists the papers, `dplangevin papers search WORD` finds statements, `dplangevin papers
show "Theorem 3.1"` prints one with a line to run, and `dplangevin papers tour` walks through [the universality of
Langevin diffusion](universality.md). The column "use": a statement **runs on data**, **computes a bound**, is kept as a
**printed formula** for comparison only, or is **refused**.
"""

_STORY = """## How the results connect

One question runs through four of the papers: two runs of a noisy iteration differ in one record; how well can they be
distinguished from the LAST iterate alone?

1. **Fixed shifts.** Amplification by iteration (Feldman, Mironov, Talwar and Thakurta, 2018; Altschuler and Talwar,
   2022, Proposition 2.8) shifts one run towards the other by a part a_t of its distance at each step, at the cost
   a_t^2 / (2 v_t^2); contractions do the rest. The shifts are fixed in advance, and the sum grows with the run.
   Proposition 3.2 starts at distance D in the middle of the run: on a bounded set the cost stops growing.
2. **The best shifts** solve a quadratic program. Its solution is geometric: plot the cumulated distances against the
   cumulated noise; the slopes of the greatest convex minorant are the shifts (`hull_energy`, "optimal shift").
3. **Shifted interpolation** (Bok, Su and Altschuler, 2024) shows that the same shifts cost as much as one Gaussian:
   mu-GDP with mu^2 the energy of the minorant, at every order and every epsilon at once. For a strongly convex loss
   and a constant step it is a closed form that tends to a limit: Corollary 1 of Chourasia, Ye and Shokri (2021) is
   1.6 to 4 times larger. In continuous time it is (beta Delta^2 / m) tanh(beta m T / 2), which replaces Lemmas I.1
   and I.2 of Ganesh, Thakurta and Upadhyay (2022), and for T to infinity it is the privacy of the Gibbs distribution.
4. **Exact for quadratics.** For |theta - x|^2 / 2 the last iterate is a Gaussian, so its privacy is known exactly;
   the bound equals it. Figure 2 of Chourasia, Ye and Shokri (2021) therefore shows the slack of its own lower bound.
5. **Blocks.** Without strong convexity, on a bounded set, mu-GDP is not tight: the walk forgets its start, so its
   guarantee is nearly pure. The block recursion (this library) feeds the delta(eps) profile of one block into the
   next and gets an epsilon of 2.2 where shifts give 5.8.

The thesis enters from the other side: draws of exp(-beta F) instead of last iterates (chapter 3), counts instead of
fits (chapter 2), and public data that adapt the noise (chapter 4).
"""


def render_page(papers: Sequence[Paper], rows: Sequence[Row], items: Sequence[Item]) -> str:
    """Return the whole page."""
    rows_by_status = Counter(row.status for row in rows)
    counts = ", ".join(f"{rows_by_status[status]} {status}" for status in ("full", "partial", "refused"))
    titles = "\n".join(
        f"- *{paper.title}*, by {paper.authors}; {paper.year}, <{paper.link}>" for paper in papers
    )
    uses = Counter(row.use for row in rows)
    used = ", ".join(f"{count} {use}" for use, count in uses.most_common())
    parts = [
        _HEAD,
        titles + "\n",
        f"{len(rows)} rows: {counts}; {used}.\n",
        _STORY,
        _render_items(papers, items),
    ]
    parts += [_render_section(paper, [row for row in rows if row.paper == paper.key]) for paper in papers]
    return "\n".join(parts)


def _render_items(papers: Sequence[Paper], items: Sequence[Item]) -> str:
    """Return the checklist: every item with the statements that answer it."""
    sources = {paper.key: paper.heading.split(":")[0] for paper in papers}
    statuses = Counter(item.status for item in items)
    counts = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    lines = [
        f"## Checklist: {len(items)} items\n",
        "What a reader would look for, listed from the papers alone. Each item leads to rows of the tables below; it\n"
        f"is full when all of them are, and a refusal is proved in its row. {counts}.\n",
        "| item | source | status | use | statements |",
        "|---|---|---|---|---|",
    ]
    for item in items:
        places = "; ".join(dict.fromkeys(sources[row.paper] for row in item.rows))
        numbers = "; ".join(row.number for row in item.rows)
        cells = (item.name, places, item.status, item.uses, numbers)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _render_section(paper: Paper, rows: Sequence[Row]) -> str:
    lines = [
        f"## {paper.heading}\n",
        f"*{paper.title}*, by {paper.authors}; {paper.year}. [{paper.key}](references.bib), <{paper.link}>\n",
        "| number | what it says | use | where | corrected | status | test |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_render_row(row) for row in rows)]) + "\n"


def _render_row(row: Row) -> str:
    where = ", ".join(f"`{name.replace(':', '.')}`" for name in row.where)
    status = row.status + (f": {row.note}" if row.note else "")
    cells = (
        row.number,
        row.says,
        row.use,
        where,
        row.corrected,
        status,
        f"`{row.test.removeprefix('tests/')}`",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


_STATED = tomllib.loads(files("dplangevin.papers").joinpath("statements.toml").read_text(encoding="utf-8"))

PAPERS: tuple[Paper, ...] = tuple(
    Paper(**{name: value for name, value in each.items() if name != "row"}) for each in _STATED["paper"]
)
ROWS: tuple[Row, ...] = tuple(
    Row(paper=each["key"], **{**row, "where": tuple(row["where"])})
    for each in _STATED["paper"]
    for row in each["row"]
)


def _find_row(reference: str) -> Row:
    index, _, number = reference.partition(":")
    key = PAPERS[int(index) - 1].key
    return next(row for row in ROWS if (row.paper, row.number) == (key, number))


ITEMS: tuple[Item, ...] = tuple(
    Item(name=each["name"], rows=tuple(map(_find_row, each["rows"]))) for each in _STATED["item"]
)


def render_concordance() -> str:
    """Return the text of docs/papers.md."""
    return render_page(PAPERS, ROWS, ITEMS)


if __name__ == "__main__":
    print(render_concordance(), end="")
