"""Admission: whether one more release fits, by replaying every entry through the privacy filter of the data set.

A record lies in one part of the data set, so each part has a filter state of its own, and so have the records in no
part (""): a release on a part is charged to that state, a release on the whole data set to all of them.

An entry states how it was charged, never how much: the amount follows from its guarantee. So no stored amount has to
be trusted, and two machines that round differently both stay below the same exact filter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dplangevin.accounting import conversions as cv, serialize
from dplangevin.accounting.filter import FilterState, PrivacyFilter
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Approximate, BoundedRange, PrivacyPart, Pure, merge_equal_parts
from dplangevin.errors import DplangevinError, LedgerError
from dplangevin.ledger._rows import WHOLE_DATASET, DatasetRow
from dplangevin.ledger.entry import format_rounded_down

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
