"""Paper and Row: the columns of the concordance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["full", "partial", "refused"]


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A source: its key in docs/references.bib, its heading and how to find it."""

    key: str
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
    """

    paper: str
    number: str
    says: str
    where: tuple[str, ...]
    test: str
    status: Status = "full"
    corrected: str = ""
    note: str = ""
