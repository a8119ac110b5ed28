"""Does one more release fit, whatever made the spender ask for it? Every entry is replayed through the privacy filter.

A record lies in one part of the data set, so each part has a filter state of its own, and so has the rest (""): a
release on a part moves that state, a release on the whole data set moves all of them.

An entry says how it was charged, never how much: the amount follows from its guarantee. So a replay needs to believe
nobody, and two machines that round differently stay below one and the same exact filter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dplangevin.errors import DplangevinError, LedgerError
from dplangevin.ledger._rows import WHOLE, Account
from dplangevin.privacy import serialize
from dplangevin.privacy.filter import FilterState, PrivacyFilter
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Part, merged

Item = tuple[tuple[Part, ...], float]
"""A guarantee as a programme knows it: what it costs, and nothing of what it is called."""


@dataclass(frozen=True, kw_only=True)
class Programme:
    """A fixed list of costs that one entry has paid for: which are not used yet."""

    part: str
    unused: tuple[Item, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Standing:
    """Where a data set stands after its entries.

    Parameters
    ----------
    states : what is left of each part, and of the rest.
    programmes : those with unused items, by the number of their entry.
    unfitting : number of entries that are there although the filter had no room for them.
    """

    states: dict[str, FilterState]
    programmes: dict[int, Programme] = field(default_factory=dict)
    unfitting: int = 0

    def on(self, part: str) -> dict[str, FilterState]:
        """The states that a release on this part moves."""
        return self.states if part == WHOLE else {part: self.states.get(part, self.states[WHOLE])}


def rule_of(owner: Account) -> PrivacyFilter:
    """The filter that the owner declared."""
    return PrivacyFilter(
        epsilon=owner.epsilon,
        delta=owner.delta,
        delta_share=owner.delta_share,
        pure_reserve=owner.pure_reserve,
        split_at_once=owner.expects == "counts",
    )


def admit(
    rule: PrivacyFilter, standing: Standing, part: str, cost: Guarantee
) -> tuple[Standing, dict[str, str]] | FilterState:
    """The standing after the release and how it was charged; the state in which it does not fit, where there is one."""
    states, ways = dict(standing.states), {}
    with composing():
        for name, state in standing.on(part).items():
            charged = rule.charge(state, cost)
            if charged is None:
                return state
            states[name], ways[name] = charged
    return replace(standing, states=states), ways


def replay(
    rule: PrivacyFilter, standing: Standing, sequence: int, part: str, cost: Guarantee, plan: str
) -> Standing:
    """The standing after an entry that is there, whether or not there was room for it."""
    notes = _notes(plan)
    programmes, item = standing.programmes, notes.get("item_of")
    if isinstance(item, int):
        rest = without_item(programmes.get(item), part, item_of(cost))
        if rest is not None:  # it was paid for with its programme
            return replace(standing, programmes={**programmes, item: rest})
    states, fits, ways = dict(standing.states), True, notes.get("charged")
    for name, state in standing.on(part).items():
        charged = _charge_again(rule, state, cost, _way(ways, name))
        states[name], fits = (state.exhaust(), False) if charged is None else (charged, fits)
    items = _items(notes.get("programme"), cost)
    if items and fits:
        programmes = {**programmes, sequence: Programme(part=part, unused=items)}
    return Standing(states=states, programmes=programmes, unfitting=standing.unfitting + (not fits))


def _charge_again(
    rule: PrivacyFilter, state: FilterState, cost: Guarantee, how: str | None
) -> FilterState | None:
    try:
        charged = rule.charge(state, cost, how) if how is not None else None
        charged = charged or rule.charge(state, cost)
    except (ArithmeticError, ValueError, MemoryError):  # nobody knows what it costs
        return None
    return None if charged is None else charged[0]


def _notes(plan: str) -> dict[str, Any]:
    if '"charged"' not in plan and '"item_of"' not in plan and '"programme"' not in plan:
        return {}
    try:
        found = json.loads(plan)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def with_notes(plan: str, notes: dict[str, Any]) -> str:
    """The plan of an entry with how it was charged; a plan that is no record stays as it is, and is charged anew."""
    try:
        known = json.loads(plan)
    except (ValueError, RecursionError):
        return plan
    return json.dumps({**known, **notes}) if notes and isinstance(known, dict) else plan


def ways_text(ways: dict[str, str]) -> str | dict[str, str]:
    """How an entry was charged, as its plan says it: one word where all parts agree."""
    return next(iter(ways.values())) if len(set(ways.values())) == 1 else ways


def _way(ways: Any, name: str) -> str | None:
    found = ways.get(name, ways.get(WHOLE)) if isinstance(ways, dict) else ways
    return found if isinstance(found, str) else None


# --- programmes --------------------------------------------------------------------------------------------------


def item_of(cost: Guarantee) -> Item:
    """What a programme knows of a guarantee."""
    return tuple(sorted(cost.parts, key=repr)), cost.extra_delta


def compose_items(costs: list[Guarantee]) -> tuple[Guarantee, list[Item]]:
    """The composition of a fixed list, additive deltas rounded up, and its items."""
    together = costs[0]
    for cost in costs[1:]:
        together = together + cost
    exact = sum((Fraction(cost.extra_delta) for cost in costs), Fraction(0))
    extra = float(exact)
    if Fraction(extra) < exact:
        extra = math.nextafter(extra, math.inf)
    return replace(together, extra_delta=extra), [item_of(cost) for cost in costs]


def items_text(items: list[Item]) -> list[dict[str, Any]]:
    """The items of a programme, as its plan says them."""
    return [{"parts": serialize.dumps_parts(parts), "extra_delta": extra} for parts, extra in items]


def _items(plain: Any, cost: Guarantee) -> tuple[Item, ...]:
    """The items that an entry has paid for; none, unless its guarantee is their composition."""
    if not isinstance(plain, list) or not plain:
        return ()
    try:
        items = [
            (tuple(sorted(serialize.loads_parts(each["parts"]), key=repr)), float(each["extra_delta"]))
            for each in plain
        ]
    except (DplangevinError, ValueError, TypeError, KeyError):
        return ()
    together = merged(tuple(part for parts, _ in items for part in parts))
    extra = sum((Fraction(extra) for _, extra in items), Fraction(0))
    paid = sorted(together, key=repr) == sorted(cost.parts, key=repr) and extra <= Fraction(cost.extra_delta)
    return tuple(items) if paid else ()


def without_item(programme: Programme | None, part: str, item: Item) -> Programme | None:
    """The programme after an item of it is used; None when it holds none like it."""
    if programme is None or programme.part != part or item not in programme.unused:
        return None
    place = programme.unused.index(item)
    return replace(programme, unused=programme.unused[:place] + programme.unused[place + 1 :])


@contextmanager
def composing() -> Iterator[None]:
    """Costs of extreme sizes may not be composed in double precision: an error of the ledger, and no charge."""
    try:
        yield
    except (ArithmeticError, ValueError, MemoryError) as error:
        raise LedgerError(
            f"this cost cannot be composed with what was spent ({error}); nothing was charged."
        ) from error
