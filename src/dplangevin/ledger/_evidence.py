"""Is this the ledger that releases were made under? Heads that people hold, against the chains that are there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dplangevin import _files, _plain
from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger import _rows
from dplangevin.ledger._chain import head_text, parsed_head
from dplangevin.ledger._store import Session
from dplangevin.ledger._stored_guarantee import convert_stored_guarantee
from dplangevin.privacy.guarantee import Guarantee


def verify(session: Session, heads: Iterable[str], shown: str) -> dict[str, str]:
    """Check every link of every data set, and that each head is on a chain; returns the present heads."""
    now, known, entered = {}, set(), set()
    for name in _rows.names(session):
        owner = _rows.existing(session, name)
        now[name] = head_text(owner.entries, owner.head)
        known.add(head_text(0, owner.genesis))
        chained = _rows.links(session, owner)
        for each in chained:
            known.add(head_text(each.sequence, each.chain))
            if '"lost_head"' in each.charge.plan:
                entered.add(str(_rows.plan_in(name, each.charge.plan).get("lost_head")))
        for _ in _rows.costs(session, owner, chained):
            pass
    for head in heads:
        parsed_head(head)
        if head not in known and head not in entered:
            raise LedgerError(
                f"the ledger {shown} does not hold {head[:20]}...: it is older than a release made under this "
                "head, or another ledger. Find the newest copy; what no copy holds is entered again with "
                "`dplangevin ledger enter`. Until then do not spend."
            )
    return now


def as_heads(expect: str | Iterable[str] | None) -> list[str]:
    """One head or several."""
    if expect is None:
        return []
    return [expect] if isinstance(expect, str) else list(expect)


def head_in(path: Path) -> str:
    """The head in a model file or a JSON report."""
    head = _read(path).get("ledger_head")
    if not isinstance(head, str):
        raise InvalidParameter(
            f"{path} carries no head of a ledger: it was made without one, or by an older version."
        )
    return head


def entered_file(path: Path) -> tuple[Guarantee, str, str | None]:
    """What a model file says of its release: the guarantee, a hash of its numbers, the head it was made under."""
    found = _read(path)
    guarantee = convert_stored_guarantee(found.get("guarantee"))
    if not isinstance(guarantee, Guarantee):
        raise InvalidParameter(f"{path} carries no promise that could be entered.")
    numbers = json.dumps([found.get("coefficients"), found.get("intercept")])
    head = found.get("ledger_head")
    return guarantee, hashlib.sha256(numbers.encode()).hexdigest(), head if isinstance(head, str) else None


def _read(path: Path) -> dict[str, Any]:
    found = _files.read_plain(path, "the file")
    if not isinstance(found, dict):
        raise InvalidParameter(f"{path} is not a model file or a JSON report.")
    _plain.check_digest(found, f"the file {str(path)!r}")
    return found
