"""The sentence of a refused release: the budget, what was spent, and what would fit."""

from __future__ import annotations

import math

from dplangevin.ledger._admission import largest_gaussian, largest_pure
from dplangevin.ledger._bill import Bill
from dplangevin.ledger._rows import WHOLE, Account
from dplangevin.ledger.entry import rounded_down
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import BoundedRange, Pure


def refusal(owner: Account, spent: Bill, cost: Guarantee, part: str) -> str:
    """Why the release does not fit, and the largest of its kind that would."""
    where = f"data set {owner.name!r}" + (f", part {part!r}" if part != WHOLE else "")
    return (
        f"this release does not fit in the budget of {where}: epsilon = {owner.epsilon:g}, "
        f"delta = {owner.delta:g} ({_unit(owner)}). Spent: epsilon = {spent.epsilon(owner.delta):.6g} in "
        f"{owner.entries} releases. The release costs {_price(cost, owner.delta, spent)}; "
        f"{_would_fit(owner, spent, cost)}. No record was read and nothing was charged."
    )


def _unit(owner: Account) -> str:
    rows = owner.max_rows_per_person
    return owner.adjacency + (f", for all {rows} rows of a person" if rows > 1 else "")


def _price(cost: Guarantee, delta: float, spent: Bill) -> str:
    if delta > 0 and cost.mu is not None:
        return f"GDP mu = {cost.mu:.6g}"
    epsilon = Bill(grid=spent.grid).with_release(cost).epsilon(delta)
    if math.isinf(epsilon) and delta == 0:
        return "no finite pure epsilon, which a budget with delta = 0 needs"
    return f"epsilon = {epsilon:.6g} at delta = {delta:g}"


def _would_fit(owner: Account, spent: Bill, cost: Guarantee) -> str:
    if owner.delta == 0 or all(isinstance(part, (Pure, BoundedRange)) for part in cost.parts):
        name, size = "pure epsilon", largest_pure(spent, owner.epsilon, owner.delta)
    else:
        name, size = "GDP mu", largest_gaussian(spent, owner.epsilon, owner.delta)
    if size < 1e-6 * owner.epsilon:
        return f"nothing more fits (less than {name} = {1e-6 * owner.epsilon:g} is left)"
    return f"a release of {name} = {rounded_down(size)} or less would fit"
