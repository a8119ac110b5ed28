"""The composition of a long ledger, kept between processes, so that a new one does not compose ten thousand entries.

It lies in the user's own cache folder, and that decides who is believed: the process that reads it belongs to the user
who wrote it, and could as well be made to skip the check of a budget. Nobody else can write it (the file is the user's,
of mode 0600, no link, or it is not read), and it is not in the ledger, where another spender could lower a bill by it.
It is used only for the very ledger, library and head it was made for, that head must be on the ledger's chain, and
whatever does not agree is composed anew from the entries. `Ledger.verify` and `history` never look at it.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from dplangevin import _files
from dplangevin._version import __version__
from dplangevin.errors import DplangevinError
from dplangevin.ledger._bill import Bill

FORMAT = 1
WORTH = 256
"""New entries after which it is written again: composing them takes a tenth of a second."""
_MOST_BILLS = 32
_LARGEST = 64 * _files.MEGABYTE
_VARIABLE = "DPLANGEVIN_CACHE"


def load(url: str, genesis: str, grid: float) -> tuple[int, str, dict[str, Bill]] | None:
    """Number of entries, head and bills as they were kept; None where nothing is, or anything is wrong with it."""
    path = _path(url, genesis)
    if path is None:
        return None
    try:
        seal, _, text = _files.read_private(path, "a kept composition", most=_LARGEST).partition("\n")
        if seal != _seal(text):
            return None
        plain = json.loads(text)
        if [plain[name] for name in _BOUND] != list(_bound(url, genesis)):
            return None
        bills = {str(part): Bill.from_plain(each) for part, each in plain["bills"].items()}
        found = int(plain["sequence"]), str(plain["head"]), bills
    except (OSError, DplangevinError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
        return None
    return found if all(each.grid == grid for each in bills.values()) and "" in bills else None


def save(url: str, genesis: str, sequence: int, head: str, bills: dict[str, Bill]) -> None:
    """Compose what is not yet composed, and keep it; where it cannot be kept, nothing happens."""
    path = _path(url, genesis)
    if path is None or len(bills) > _MOST_BILLS:
        return
    plain: dict[str, Any] = dict(zip(_BOUND, _bound(url, genesis), strict=True))
    with suppress(OSError, DplangevinError, ValueError, ArithmeticError, MemoryError):
        plain |= {
            "sequence": sequence,
            "head": head,
            "bills": {part: each.to_plain() for part, each in bills.items()},
        }
        text = json.dumps(plain)
        if len(text) < _LARGEST:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _files.replacing(path, 0o600) as draft:
                draft.write_text(f"{_seal(text)}\n{text}", encoding="utf-8")


_BOUND = ("format", "library", "ledger", "genesis")


def _bound(url: str, genesis: str) -> tuple[int, str, str, str]:
    return FORMAT, __version__, hashlib.sha256(url.encode()).hexdigest(), genesis


def _seal(text: str) -> str:
    """Against accidents; no secret is in it."""
    return hashlib.sha256(text.encode()).hexdigest()


def _path(url: str, genesis: str) -> Path | None:
    """Where it is kept: DPLANGEVIN_CACHE ("off": nowhere), else the user's cache folder."""
    stated = os.environ.get(_VARIABLE)
    if stated == "off":
        return None
    try:
        folder = stated or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return None
    name = hashlib.sha256(f"{url}\n{genesis}".encode()).hexdigest()[:32]
    return Path(folder) / "dplangevin" / f"ledger-{name}.json"
