"""The chain of hashes over the entries of a data set: who knows a head notices a ledger that is older, or another one.

The first link is a hash of the declared budget, every further one of the link before and the entry. Nothing in it is
secret: it is evidence against accidents and silent restores, and whoever holds a head outside the database has it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from dplangevin.errors import InvalidParameter

_HEAD = re.compile(r"(0|[1-9][0-9]{0,17})-([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What is appended: everything of an entry but its place. The token is kept as a hash."""

    dataset: str
    token: str
    part: str
    label: str
    created: str
    guarantee: str
    plan: str
    library: str


def genesis(identity: str, name: str, budget: tuple[Any, ...]) -> str:
    """The first link: which ledger, which data set, which budget."""
    return _hash("dplangevin-ledger", identity, name, *(repr(value) for value in budget))


def link(before: str, sequence: int, charge: Charge) -> str:
    """The next link. No field holds a line break, so the text tells the fields apart."""
    return _hash(
        before,
        str(sequence),
        charge.token,
        charge.part,
        charge.label,
        charge.created,
        charge.guarantee,
        charge.plan,
        charge.library,
    )


def hashed_token(token: str) -> str:
    """How a token is kept: who reads the ledger cannot speak for a run."""
    return _hash("token", token)


def head_text(sequence: int, chain: str) -> str:
    """A head as people carry it: the number of entries and the last link."""
    return f"{sequence}-{chain}"


def parsed_head(text: Any) -> tuple[int, str]:
    """The number of entries and the link of a head."""
    found = _HEAD.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidParameter(
            f"{text!r:.100} is not the head of a ledger; it looks like 12-<64 hexadecimal digits>, see `ledger head`."
        )
    return int(found[1]), found[2]


def _hash(*fields: str) -> str:
    return hashlib.sha256("\n".join(fields).encode("utf-8")).hexdigest()
