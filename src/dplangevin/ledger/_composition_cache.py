"""The composed cost of a data set's entries, cached in memory and on disk, so that few entries are replayed.

The file lies in the user's own cache folder (mode 0600, no link, else it is not read): the process that reads it
belongs to the user who wrote it, and could as well skip the check of a budget. It is not in the ledger, where another
user could raise what is left. A cached state is used only with the ledger, library version and head it was made for,
and that head must be on the chain; new entries are replayed link by link, and a ledger that has lost or changed
entries is refused. `Ledger.verify` and `DatasetBudget.history` do not use the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dplangevin import _files
from dplangevin._version import __version__
from dplangevin.accounting import serialize
from dplangevin.accounting.filter import FilterState
from dplangevin.errors import DplangevinError, LedgerError
from dplangevin.ledger import _admission, _heads, _rows
from dplangevin.ledger._admission import FilterStanding, ReleaseProgram, items_to_plain
from dplangevin.ledger._rows import WHOLE_DATASET, DatasetRow
from dplangevin.ledger._store import Session
from dplangevin.ledger.entry import Charge, next_link

CACHE_FORMAT = 3
MIN_NEW_ENTRIES_TO_SAVE = 256
"""Number of new entries after which the file is written again: replaying them takes some hundredths of a second."""
_MAX_STATES = 1000
_MAX_FILE_BYTES = 64 * _files.MEGABYTE
_FOLDER_VARIABLE = "DPLANGEVIN_CACHE"


def load_standing(url: str, genesis: str) -> tuple[int, str, FilterStanding] | None:
    """Return the saved number of entries, head and standing; None where there is no valid file."""
    path = _cache_path(url, genesis)
    if path is None:
        return None
    try:
        checksum, _, text = _files.read_private_text(
            path, "a saved filter state", max_bytes=_MAX_FILE_BYTES
        ).partition("\n")
        if checksum != _checksum(text):
            return None
        plain = json.loads(text)
        if [plain[name] for name in _KEY_FIELDS] != list(_key_values(url, genesis)):
            return None
        standing = _standing_from_plain(plain["standing"])
        return (int(plain["sequence"]), str(plain["head"]), standing) if "" in standing.states else None
    except (OSError, DplangevinError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
        return None


def write_standing(url: str, genesis: str, sequence: int, head: str, standing: FilterStanding) -> None:
    """Save the standing; where it cannot be written, do nothing."""
    path = _cache_path(url, genesis)
    if path is None or len(standing.states) > _MAX_STATES:
        return
    plain: dict[str, Any] = dict(zip(_KEY_FIELDS, _key_values(url, genesis), strict=True))
    with suppress(OSError, DplangevinError, ValueError, ArithmeticError, MemoryError):
        plain |= {"sequence": sequence, "head": head, "standing": _standing_to_plain(standing)}
        text = json.dumps(plain)
        if len(text) < _MAX_FILE_BYTES:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _files.replace_atomically(path, 0o600) as draft:
                draft.write_text(f"{_checksum(text)}\n{text}", encoding="utf-8")


_AMOUNT_FIELDS = ("epsilon", "slack", "mu_squared", "unsplit_epsilon")


def _standing_to_plain(standing: FilterStanding) -> dict[str, Any]:
    """Return the standing as plain data; fractions are exact."""
    return {
        "states": {
            part: [
                None if getattr(state, name) is None else str(getattr(state, name)) for name in _AMOUNT_FIELDS
            ]
            for part, state in standing.states.items()
        },
        "programs": [
            [number, program.part, items_to_plain(list(program.unused))]
            for number, program in standing.programs.items()
        ],
        "n_over_budget": standing.n_over_budget,
    }


def _standing_from_plain(plain: dict[str, Any]) -> FilterStanding:
    states = {}
    for part, amounts in plain["states"].items():
        exact = [None if amount is None else Fraction(amount) for amount in amounts]
        if any(amount is not None and amount < 0 for amount in exact):
            raise ValueError("an amount is negative")
        states[str(part)] = FilterState(**dict(zip(_AMOUNT_FIELDS, exact, strict=True)))  # type: ignore[arg-type]
    programs = {
        int(number): ReleaseProgram(
            part=str(part),
            unused=tuple(
                (serialize.parts_from_json(item["parts"]), float(item["extra_delta"])) for item in items
            ),
        )
        for number, part, items in plain["programs"]
    }
    return FilterStanding(states=states, programs=programs, n_over_budget=int(plain["n_over_budget"]))


_KEY_FIELDS = ("format", "library", "ledger", "genesis")


def _key_values(url: str, genesis: str) -> tuple[int, str, str, str]:
    return CACHE_FORMAT, __version__, hashlib.sha256(url.encode()).hexdigest(), genesis


def _checksum(text: str) -> str:
    """Return a checksum against accidental damage; it contains no secret."""
    return hashlib.sha256(text.encode()).hexdigest()


def _cache_path(url: str, genesis: str) -> Path | None:
    """Return the path of the file: in DPLANGEVIN_CACHE ("off": None), else in the user's cache folder."""
    stated_folder = os.environ.get(_FOLDER_VARIABLE)
    if stated_folder == "off":
        return None
    try:
        folder = stated_folder or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # a user without a home folder
        return None
    name = hashlib.sha256(f"{url}\n{genesis}".encode()).hexdigest()[:32]
    return Path(folder) / "dplangevin" / f"ledger-{name}.json"


_MAX_DATASETS_IN_MEMORY = 32
_caches: OrderedDict[tuple[str, str], CompositionCache] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class CompositionCache:
    """The standing of a data set at a head of its chain; `memo` holds results derived from it."""

    sequence: int
    head: str
    standing: FilterStanding
    n_saved: int = 0  # number of entries whose replay is saved on this user's disk
    memo: dict[Any, Any] = field(default_factory=dict)


def caches_in_memory(url: str) -> dict[str, CompositionCache]:
    """Return the caches of a ledger, taken before a transaction begins: the database is then as new or newer."""
    with _lock:
        return {genesis: cache for (cached_url, genesis), cache in _caches.items() if cached_url == url}


def read_composition(
    session: Session, url: str, dataset_row: DatasetRow, caches: dict[str, CompositionCache]
) -> CompositionCache:
    """Return the composition at the head of the data set; every link that is not cached is checked."""
    restores, was_restored = _heads.check_head(session, url, dataset_row)
    if was_restored:
        caches = {}
        clear_caches()
    cache = caches.get(dataset_row.genesis) or _load_saved_cache(session, url, dataset_row)
    if cache.sequence > dataset_row.entries or (
        cache.sequence == dataset_row.entries and cache.head != dataset_row.head
    ):
        raise LedgerError(
            f"the ledger is older than it was, or another one: this process has seen {cache.sequence} "
            f"entries of data set {dataset_row.name!r}, and they are not there now. An old copy may have "
            "been restored: see `dplangevin ledger verify`. Nothing was charged."
        )
    new_links = _rows.read_links(session, dataset_row, cache.sequence, cache.head)
    if new_links:
        standing, privacy_filter = cache.standing, _admission.declared_filter(dataset_row)
        costs = _rows.read_costs(session, dataset_row, new_links)
        for link, (part, cost) in zip(new_links, costs, strict=True):
            standing = _admission.replay_entry(
                privacy_filter, standing, link.sequence, part, cost, link.charge.plan
            )
        cache = CompositionCache(dataset_row.entries, dataset_row.head, standing, cache.n_saved)
    _remember_cache(url, dataset_row, cache)
    _heads.remember_head(dataset_row.genesis, dataset_row.entries, dataset_row.head, restores)
    return cache


def remember_appended(
    url: str, dataset_row: DatasetRow, cache: CompositionCache, charge: Charge, after: FilterStanding
) -> None:
    """Add the entry that this process has just written to the cache."""
    sequence = dataset_row.entries + 1
    head = next_link(dataset_row.head, sequence, charge)
    _remember_cache(url, dataset_row, CompositionCache(sequence, head, after, cache.n_saved))
    _heads.remember_head(dataset_row.genesis, sequence, head)


def save_cache(url: str, dataset_row: DatasetRow, cache: CompositionCache) -> CompositionCache:
    """Save the cache for the next process where many entries are new; return the cache."""
    if cache.sequence - cache.n_saved < MIN_NEW_ENTRIES_TO_SAVE:
        return cache
    write_standing(url, dataset_row.genesis, cache.sequence, cache.head, cache.standing)
    cache = replace(cache, n_saved=cache.sequence)  # also where it could not be written: it is tried once
    _remember_cache(url, dataset_row, cache)
    return cache


def _load_saved_cache(session: Session, url: str, dataset_row: DatasetRow) -> CompositionCache:
    """Return the cache that an earlier process of this user saved, if its head is on the chain; else an empty one."""
    saved = (
        load_standing(url, dataset_row.genesis) if dataset_row.entries >= MIN_NEW_ENTRIES_TO_SAVE else None
    )
    if saved is not None:
        sequence, head, standing = saved
        chain_rows = session.query(
            "SELECT chain FROM dplangevin_entry WHERE dataset = ? AND sequence = ?",
            dataset_row.name,
            sequence,
        )
        if sequence <= dataset_row.entries and [tuple(row) for row in chain_rows] == [(head,)]:
            return CompositionCache(sequence, head, standing, sequence)
    return CompositionCache(
        0,
        dataset_row.genesis,
        FilterStanding(states={WHOLE_DATASET: _admission.declared_filter(dataset_row).start()}),
    )


def _remember_cache(url: str, dataset_row: DatasetRow, cache: CompositionCache) -> None:
    key = (url, dataset_row.genesis)
    with _lock:
        newest = _caches.get(key)
        if newest is None or newest.sequence <= cache.sequence:
            _caches[key] = cache
        _caches.move_to_end(key)
        while len(_caches) > _MAX_DATASETS_IN_MEMORY:
            _caches.popitem(last=False)


def clear_caches() -> None:
    """Clear the caches in memory: the next operation reads the database, as a new process would."""
    with _lock:
        _caches.clear()


def _reset_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # another thread may hold the lock at the moment of the fork
    os.register_at_fork(after_in_child=_reset_lock)
