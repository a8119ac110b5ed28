"""What is left, in words and numbers: for `remaining`, and for the sentence of a refused release."""

from __future__ import annotations

import math

from dplangevin.ledger._rows import WHOLE, Account
from dplangevin.ledger.entry import rounded_down
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.filter import FilterState, PrivacyFilter
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Approximate, BoundedRange, Pure

_MAX_REPEATED = 100


def count_more(rule: PrivacyFilter, state: FilterState, cost: Guarantee) -> int:
    """About how many more such releases fit: tried one by one, then extrapolated from the last charge."""
    for count in range(_MAX_REPEATED):
        charged = rule.charge(state, cost)
        if charged is None:
            return count
        before, state = state, charged[0]
        if state == before:  # it costs nothing
            return _MAX_REPEATED
    shares = [
        getattr(state, name) / (getattr(before, name) - getattr(state, name))
        for name in ("epsilon", "slack", "mu_squared")
        if getattr(before, name) and getattr(before, name) != getattr(state, name)
    ]
    return _MAX_REPEATED + int(min(shares, default=0))


def largest_fit(mu: float, delta: float) -> float:
    """The epsilon of a mu-GDP fit at delta, rounded down: a fit that asks for it is no dearer."""
    if not mu > 0 or delta <= 0:
        return 0.0
    epsilon = cv.gdp_epsilon(mu, delta)
    while epsilon > 0 and cv.gdp_mu(epsilon, delta) > mu:
        epsilon *= 1 - 1e-12
    return epsilon


def refusal(owner: Account, rule: PrivacyFilter, state: FilterState, cost: Guarantee, part: str) -> str:
    """Why the release does not fit, and the largest of its kind that would."""
    where = f"data set {owner.name!r}" + (f", part {part!r}" if part != WHOLE else "")
    return (
        f"this release does not fit in what is left of the budget of {where}: epsilon = {owner.epsilon:g}, "
        f"delta = {owner.delta:g} ({_unit(owner)}), after {owner.entries} releases. The release costs "
        f"{_price(cost, owner.delta)}; {_would_fit(owner, rule, state, cost)}. No record was read and nothing was "
        "charged."
    )


def _unit(owner: Account) -> str:
    rows = owner.max_rows_per_person
    return owner.adjacency + (f", for all {rows} rows of a person" if rows > 1 else "")


def _price(cost: Guarantee, delta: float) -> str:
    epsilon = cost.epsilon(delta)
    if math.isinf(epsilon) and delta == 0:
        return "no finite pure epsilon, which a budget with delta = 0 needs"
    words = f"epsilon = {epsilon:.6g} at delta = {delta:g}"
    return f"GDP mu = {cost.mu:.6g} ({words})" if delta > 0 and cost.mu is not None else words


def _would_fit(owner: Account, rule: PrivacyFilter, state: FilterState, cost: Guarantee) -> str:
    lost = cost.extra_delta + sum(part.count * part.floor() for part in cost.parts)
    if lost > state.slack:
        return (
            f"it may lose delta = {lost:.4g} outright, and {rounded_down(float(state.slack))} is left for that"
            + (" (declare a larger delta_share next time)" if state.is_split else "")
        )
    pairs = all(isinstance(part, Pure | BoundedRange | Approximate) for part in cost.parts)
    if owner.delta == 0 or pairs:
        size = rule.largest_pure(state)
        words, later = f"pure epsilon = {rounded_down(size)}", _before_split(state, size)
    else:
        size = rule.largest_mu(state)
        fit = rounded_down(largest_fit(size, owner.delta))
        words, later = f"GDP mu = {rounded_down(size)} (epsilon = {fit} at delta = {owner.delta:g})", ""
    if size < 1e-6 * owner.epsilon:
        return (
            f"nothing more fits (less than {words.split(' = ')[0]} = {1e-6 * owner.epsilon:g} is left){later}"
        )
    return f"a release of {words} or less would fit{later}"


def _before_split(state: FilterState, size: float) -> str:
    """Large pure releases fit better before the first release of another kind than after it."""
    before = state.epsilon_before_split
    if not state.is_split or before is None or before <= size:
        return ""
    return (
        f" (before the budget was split for the first release that was no pair: pure epsilon = "
        f"{rounded_down(float(before))}; next time release large counts first, or declare a pure_reserve)"
    )
