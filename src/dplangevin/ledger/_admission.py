"""Admission: whether one more release fits, by replaying every entry through the privacy filter of the data set.

A record lies in one part of the data set, so each part has a filter state of its own, and so have the records in no
part (""): a release on a part is charged to that state, a release on the whole data set to all of them.

An entry states how it was charged, never how much: the amount follows from its guarantee. So no stored amount has to
be trusted, and two machines that round differently both stay below the same exact filter.

The composed cost is cached in memory and on disk, so that few entries are replayed. The file lies in the user's own
cache folder (mode 0600, no link, else it is not read): the process that reads it belongs to the user who wrote it, and
could as well skip the check of a budget. It is not in the ledger, where another user could raise what is left. A
cached state is used only with the ledger, library version and head it was made for, and that head must be on the
chain; new entries are replayed link by link, and a ledger that has lost or changed entries is refused.
`Ledger.verify` and `DatasetBudget.history` do not use the cache.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dplangevin import _files
from dplangevin._version import __version__
from dplangevin.accounting import conversions as cv, serialize
from dplangevin.accounting.filter import FilterState, PrivacyFilter
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Approximate, BoundedRange, PrivacyPart, Pure, merge_equal_parts
from dplangevin.errors import DplangevinError, LedgerError
from dplangevin.ledger import _heads, _rows
from dplangevin.ledger._rows import WHOLE_DATASET, DatasetRow
from dplangevin.ledger._store import Session
from dplangevin.ledger.entry import Charge, format_rounded_down, next_link

CostItem = tuple[tuple[PrivacyPart, ...], float]
"""The cost of a guarantee, its parts and additive delta, without its names: the items of a programme."""


@dataclass(frozen=True, kw_only=True)
class ReleaseProgram:
    """A fixed list of releases that one entry was charged for, on one part: the items that are not used yet."""

    part: str
    unused: tuple[CostItem, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class FilterStanding:
    """The state of a data set's filter after its entries.

    Parameters
    ----------
    states : what is left for each part, and for the records in no part ("").
    programs : declared programmes with unused items, by the number of their entry.
    n_over_budget : number of entries that did not fit the filter.
    """

    states: dict[str, FilterState]
    programs: dict[int, ReleaseProgram] = field(default_factory=dict)
    n_over_budget: int = 0

    def states_for(self, part: str) -> dict[str, FilterState]:
        """Return the states that a release on this part is charged to."""
        return (
            self.states
            if part == WHOLE_DATASET
            else {part: self.states.get(part, self.states[WHOLE_DATASET])}
        )


def declared_filter(dataset_row: DatasetRow) -> PrivacyFilter:
    """Return the filter that the owner declared."""
    return PrivacyFilter(
        epsilon=dataset_row.epsilon,
        delta=dataset_row.delta,
        delta_fraction=dataset_row.delta_share,
        pure_reserve=dataset_row.pure_reserve,
        split_at_once=dataset_row.expects == "counts",
    )


def admit(
    privacy_filter: PrivacyFilter, standing: FilterStanding, part: str, cost: Guarantee
) -> tuple[FilterStanding, dict[str, str]] | FilterState:
    """Return the standing after the release and how it was charged, or the state in which it does not fit."""
    states, charge_modes = dict(standing.states), {}
    with translate_composition_errors():
        for name, state in standing.states_for(part).items():
            charged = privacy_filter.charge(state, cost)
            if charged is None:
                return state
            states[name], charge_modes[name] = charged
    return replace(standing, states=states), charge_modes


def replay_entry(
    privacy_filter: PrivacyFilter,
    standing: FilterStanding,
    sequence: int,
    part: str,
    cost: Guarantee,
    plan: str,
) -> FilterStanding:
    """Return the standing after an entry of the ledger, whether or not it fits."""
    notes = _read_notes(plan)
    programs, program_number = standing.programs, notes.get("item_of")
    if isinstance(program_number, int):
        remaining_program = use_item(programs.get(program_number), part, cost_item(cost))
        if remaining_program is not None:  # it was charged with its programme
            return replace(standing, programs={**programs, program_number: remaining_program})
    states, fits, charge_modes = dict(standing.states), True, notes.get("charged")
    for name, state in standing.states_for(part).items():
        charged = _charge_again(privacy_filter, state, cost, _charge_mode(charge_modes, name))
        states[name], fits = (state.exhausted_state(), False) if charged is None else (charged, fits)
    items = _items_from_plain(notes.get("programme"), cost)
    if items and fits:
        programs = {**programs, sequence: ReleaseProgram(part=part, unused=items)}
    return FilterStanding(states=states, programs=programs, n_over_budget=standing.n_over_budget + (not fits))


def _charge_again(
    privacy_filter: PrivacyFilter, state: FilterState, cost: Guarantee, charge_mode: str | None
) -> FilterState | None:
    try:
        charged = privacy_filter.charge(state, cost, charge_mode) if charge_mode is not None else None
        charged = charged or privacy_filter.charge(state, cost)
    except (ArithmeticError, ValueError, MemoryError):  # its cost cannot be computed
        return None
    return None if charged is None else charged[0]


def _read_notes(plan: str) -> dict[str, Any]:
    if '"charged"' not in plan and '"item_of"' not in plan and '"programme"' not in plan:
        return {}
    try:
        notes = json.loads(plan)
    except (ValueError, RecursionError):
        return {}
    return notes if isinstance(notes, dict) else {}


def add_notes(plan: str, notes: dict[str, Any]) -> str:
    """Return the plan of an entry with a note on how it was charged; a plan that is no JSON object stays as it is."""
    try:
        fields = json.loads(plan)
    except (ValueError, RecursionError):
        return plan
    return json.dumps({**fields, **notes}) if notes and isinstance(fields, dict) else plan


def charge_modes_to_plain(charge_modes: dict[str, str]) -> str | dict[str, str]:
    """Return how an entry was charged, for its plan: one string where all parts agree, else one per part."""
    return next(iter(charge_modes.values())) if len(set(charge_modes.values())) == 1 else charge_modes


def _charge_mode(charge_modes: Any, name: str) -> str | None:
    charge_mode = (
        charge_modes.get(name, charge_modes.get(WHOLE_DATASET))
        if isinstance(charge_modes, dict)
        else charge_modes
    )
    return charge_mode if isinstance(charge_mode, str) else None


# --- programmes --------------------------------------------------------------------------------------------------


def cost_item(cost: Guarantee) -> CostItem:
    """Return the cost of a guarantee as an item of a programme."""
    return tuple(sorted(cost.parts, key=repr)), cost.extra_delta


def compose_costs(costs: list[Guarantee]) -> tuple[Guarantee, list[CostItem]]:
    """Return the composition of a fixed list, with the additive delta rounded up, and its items."""
    composed = costs[0]
    for cost in costs[1:]:
        composed = composed + cost
    exact = sum((Fraction(cost.extra_delta) for cost in costs), Fraction(0))
    extra = float(exact)
    if Fraction(extra) < exact:
        extra = math.nextafter(extra, math.inf)
    return replace(composed, extra_delta=extra), [cost_item(cost) for cost in costs]


def items_to_plain(items: list[CostItem]) -> list[dict[str, Any]]:
    """Return the items of a programme as plain data, for its plan."""
    return [{"parts": serialize.parts_to_json(parts), "extra_delta": extra} for parts, extra in items]


def _items_from_plain(plain: Any, cost: Guarantee) -> tuple[CostItem, ...]:
    """Return the items that an entry was charged for; none, unless its guarantee is their composition."""
    if not isinstance(plain, list) or not plain:
        return ()
    try:
        items = [
            (tuple(sorted(serialize.parts_from_json(item["parts"]), key=repr)), float(item["extra_delta"]))
            for item in plain
        ]
    except (DplangevinError, ValueError, TypeError, KeyError):
        return ()
    composed = merge_equal_parts(tuple(part for parts, _ in items for part in parts))
    extra = sum((Fraction(extra) for _, extra in items), Fraction(0))
    is_composition = sorted(composed, key=repr) == sorted(cost.parts, key=repr) and extra <= Fraction(
        cost.extra_delta
    )
    return tuple(items) if is_composition else ()


def use_item(program: ReleaseProgram | None, part: str, item: CostItem) -> ReleaseProgram | None:
    """Return the programme after one of its items is used; None when it holds no such item."""
    if program is None or program.part != part or item not in program.unused:
        return None
    index = program.unused.index(item)
    return replace(program, unused=program.unused[:index] + program.unused[index + 1 :])


@contextmanager
def translate_composition_errors() -> Iterator[None]:
    """Turn arithmetic errors, which extreme costs may cause, into a LedgerError that says nothing was charged."""
    try:
        yield
    except (ArithmeticError, ValueError, MemoryError) as error:
        raise LedgerError(
            f"this cost cannot be composed with earlier charges ({error}); nothing was charged."
        ) from error


_MAX_TRIED_RELEASES = 100


def count_more_releases(privacy_filter: PrivacyFilter, state: FilterState, cost: Guarantee) -> int:
    """Estimate how many more such releases fit: charged one by one, then extrapolated from the last charge."""
    for count in range(_MAX_TRIED_RELEASES):
        charged = privacy_filter.charge(state, cost)
        if charged is None:
            return count
        before, state = state, charged[0]
        if state == before:  # the release costs nothing
            return _MAX_TRIED_RELEASES
    remaining_counts = [
        getattr(state, name) / (getattr(before, name) - getattr(state, name))
        for name in ("epsilon", "slack", "mu_squared")
        if getattr(before, name) and getattr(before, name) != getattr(state, name)
    ]
    return _MAX_TRIED_RELEASES + int(min(remaining_counts, default=0))


def max_gdp_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of mu-GDP at delta, rounded down: a fit planned for this epsilon costs at most mu."""
    if not mu > 0 or delta <= 0:
        return 0.0
    epsilon = cv.gdp_epsilon(mu, delta)
    while epsilon > 0 and cv.gdp_mu(epsilon, delta) > mu:
        epsilon *= 1 - 1e-12
    return epsilon


def refusal_message(
    dataset_row: DatasetRow, privacy_filter: PrivacyFilter, state: FilterState, cost: Guarantee, part: str
) -> str:
    """Return why the release does not fit, and the largest of its kind that would."""
    where = f"data set {dataset_row.name!r}" + (f", part {part!r}" if part != WHOLE_DATASET else "")
    return (
        f"this release does not fit in what is left of the budget of {where}: epsilon = "
        f"{dataset_row.epsilon:g}, delta = {dataset_row.delta:g} ({_privacy_unit_text(dataset_row)}), after "
        f"{dataset_row.entries} releases. The release costs {_cost_text(cost, dataset_row.delta)}; "
        f"{_fitting_release_text(dataset_row, privacy_filter, state, cost)}. No record was read and nothing "
        "was charged."
    )


def _privacy_unit_text(dataset_row: DatasetRow) -> str:
    rows = dataset_row.max_rows_per_person
    return dataset_row.adjacency + (f", for all {rows} rows of a person" if rows > 1 else "")


def _cost_text(cost: Guarantee, delta: float) -> str:
    epsilon = cost.epsilon(delta)
    if math.isinf(epsilon) and delta == 0:
        return "no finite pure epsilon, which a budget with delta = 0 needs"
    epsilon_text = f"epsilon = {epsilon:.6g} at delta = {delta:g}"
    return f"GDP mu = {cost.mu:.6g} ({epsilon_text})" if delta > 0 and cost.mu is not None else epsilon_text


def _fitting_release_text(
    dataset_row: DatasetRow, privacy_filter: PrivacyFilter, state: FilterState, cost: Guarantee
) -> str:
    slack_needed = cost.extra_delta + sum(part.count * part.min_delta() for part in cost.parts)
    if slack_needed > state.slack:
        slack_left = format_rounded_down(float(state.slack))
        return f"it needs delta = {slack_needed:.4g} at every epsilon, and {slack_left} is left for that" + (
            " (declare a larger delta_share next time)" if state.is_split else ""
        )
    pairs = all(isinstance(part, Pure | BoundedRange | Approximate) for part in cost.parts)
    if dataset_row.delta == 0 or pairs:
        size = privacy_filter.largest_pure(state)
        release_text, split_text = (
            f"pure epsilon = {format_rounded_down(size)}",
            _before_split_text(state, size),
        )
    else:
        size = privacy_filter.largest_mu(state)
        fit = format_rounded_down(max_gdp_epsilon(size, dataset_row.delta))
        release_text, split_text = (
            f"GDP mu = {format_rounded_down(size)} (epsilon = {fit} at delta = {dataset_row.delta:g})",
            "",
        )
    threshold = 1e-6 * dataset_row.epsilon
    if size < threshold:
        return f"nothing more fits (less than {release_text.split(' = ')[0]} = {threshold:g} is left){split_text}"
    return f"a release of {release_text} or less would fit{split_text}"


def _before_split_text(state: FilterState, size: float) -> str:
    """Return a hint that larger pure releases would have fitted before the budget was split; "" where not."""
    epsilon_before = state.unsplit_epsilon
    if not state.is_split or epsilon_before is None or epsilon_before <= size:
        return ""
    return (
        " (before the budget was split for the first release that is no (epsilon, delta) pair: pure epsilon "
        f"= {format_rounded_down(float(epsilon_before))}; next time release large counts first, or declare a "
        "pure_reserve)"
    )


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
        standing, privacy_filter = cache.standing, declared_filter(dataset_row)
        costs = _rows.read_costs(session, dataset_row, new_links)
        for link, (part, cost) in zip(new_links, costs, strict=True):
            standing = replay_entry(privacy_filter, standing, link.sequence, part, cost, link.charge.plan)
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
        FilterStanding(states={WHOLE_DATASET: declared_filter(dataset_row).start()}),
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
