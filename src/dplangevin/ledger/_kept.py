"""Where a long ledger stands, kept between processes, so that a new one does not replay ten thousand entries.

It lies in the user's own cache folder, and that decides who is believed: the process that reads it belongs to the user
who wrote it, and could as well be made to skip the check of a budget. Nobody else can write it (the file is the user's,
of mode 0600, no link, or it is not read), and it is not in the ledger, where another spender could raise what is left.
It is used only for the very ledger, library and head it was made for, that head must be on the ledger's chain, and
whatever does not agree is replayed anew from the entries. `Ledger.verify` and `history` never look at it.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from dplangevin import _files
from dplangevin._version import __version__
from dplangevin.errors import DplangevinError
from dplangevin.ledger._admission import Programme, Standing, items_text
from dplangevin.privacy import serialize
from dplangevin.privacy.filter import FilterState

FORMAT = 2
WORTH = 256
"""New entries after which it is written again: replaying them takes some hundredths of a second."""
_MOST_STATES = 1000
_LARGEST = 64 * _files.MEGABYTE
_VARIABLE = "DPLANGEVIN_CACHE"


def load(url: str, genesis: str) -> tuple[int, str, Standing] | None:
    """Number of entries, head and standing as they were kept; None where nothing is, or anything is wrong with it."""
    path = _path(url, genesis)
    if path is None:
        return None
    try:
        seal, _, text = _files.read_private(path, "a kept filter state", most=_LARGEST).partition("\n")
        if seal != _seal(text):
            return None
        plain = json.loads(text)
        if [plain[name] for name in _BOUND] != list(_bound(url, genesis)):
            return None
        standing = _read_standing(plain["standing"])
        return (int(plain["sequence"]), str(plain["head"]), standing) if "" in standing.states else None
    except (OSError, DplangevinError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
        return None


def save(url: str, genesis: str, sequence: int, head: str, standing: Standing) -> None:
    """Keep the standing; where it cannot be kept, nothing happens."""
    path = _path(url, genesis)
    if path is None or len(standing.states) > _MOST_STATES:
        return
    plain: dict[str, Any] = dict(zip(_BOUND, _bound(url, genesis), strict=True))
    with suppress(OSError, DplangevinError, ValueError, ArithmeticError, MemoryError):
        plain |= {"sequence": sequence, "head": head, "standing": _plain(standing)}
        text = json.dumps(plain)
        if len(text) < _LARGEST:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _files.replacing(path, 0o600) as draft:
                draft.write_text(f"{_seal(text)}\n{text}", encoding="utf-8")


_AMOUNTS = ("epsilon", "slack", "mu_squared", "epsilon_before_split")


def _plain(standing: Standing) -> dict[str, Any]:
    """As words and numbers; fractions are exact."""
    return {
        "states": {
            part: [None if getattr(state, name) is None else str(getattr(state, name)) for name in _AMOUNTS]
            for part, state in standing.states.items()
        },
        "programmes": [
            [number, programme.part, items_text(list(programme.unused))]
            for number, programme in standing.programmes.items()
        ],
        "unfitting": standing.unfitting,
    }


def _read_standing(plain: dict[str, Any]) -> Standing:
    states = {}
    for part, amounts in plain["states"].items():
        exact = [None if amount is None else Fraction(amount) for amount in amounts]
        if any(amount is not None and amount < 0 for amount in exact):
            raise ValueError("less than nothing is left")
        states[str(part)] = FilterState(**dict(zip(_AMOUNTS, exact, strict=True)))  # type: ignore[arg-type]
    programmes = {
        int(number): Programme(
            part=str(part),
            unused=tuple(
                (serialize.loads_parts(item["parts"]), float(item["extra_delta"])) for item in items
            ),
        )
        for number, part, items in plain["programmes"]
    }
    return Standing(states=states, programmes=programmes, unfitting=int(plain["unfitting"]))


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
