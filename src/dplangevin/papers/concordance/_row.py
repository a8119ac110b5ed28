"""Paper and Row: the columns of the concordance."""

from __future__ import annotations

from dataclasses import dataclass
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
