"""What the ledger tells: one entry per release, and what is left."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from typing import Any

from dplangevin.ledger._chain import head_text
from dplangevin.privacy import serialize
from dplangevin.privacy.guarantee import Guarantee


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One charge: paid before the data was read, whether or not a release came of it.

    Parameters
    ----------
    sequence : 1, 2, 3, ... within the data set; this, and not the clock, orders entries.
    part : the disjoint part that was used; "" is the whole data set.
    label : the user's words on who and what.
    created, released : the writer's clock (UTC), for people.
    guarantee : what was charged.
    plan : the public parameters of the run.
    library : the version of dplangevin that wrote the entry.
    release_hash : SHA-256 of the released numbers; None when the run never came back.
    chain : hash of this entry and of all before it.
    """

    dataset: str
    sequence: int
    part: str
    label: str
    created: str
    guarantee: Guarantee
    plan: dict[str, Any]
    library: str
    release_hash: str | None
    released: str | None
    chain: str

    @property
    def head(self) -> str:
        """The head of the data set's chain after this entry."""
        return head_text(self.sequence, self.chain)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "sequence": self.sequence,
            "part": self.part,
            "label": self.label,
            "created": self.created,
            "theorem": self.guarantee.theorem,
            "guarantee": serialize.to_plain(self.guarantee),
            "plan": self.plan,
            "library": self.library,
            "release_hash": self.release_hash,
            "released": self.released,
            "head": self.head,
        }


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """What is left of a budget, for whoever asks next. There is no "spent epsilon": a running figure is no guarantee,
    since a spender may stop when it happens to be small. The guarantee is the budget.

    Parameters
    ----------
    epsilon, delta : the budget, which everything released together keeps.
    entries : number of charges.
    pure_epsilon, gaussian_mu : the largest pure, or GDP, release that still fits, rounded down.
    gaussian_epsilon : epsilon of that GDP release (a fit) at the budget's delta, rounded down.
    more_like_last : about how many more releases like the last one fit; None where there is no last one.
    unused_items : releases that declared programmes have paid for and that were not made yet.
    unfitting : entries that are there although the filter has no room for them (entered afterwards, or admitted by an
        older version under the rule of fixed costs); the budget itself is then not a guarantee.
    fixed_cost_entries : the first so many entries were admitted under the rule of fixed costs, which holds for releases
        that were planned beforehand.
    """

    epsilon: float
    delta: float
    adjacency: str
    max_rows_per_person: int
    entries: int
    pure_epsilon: float
    gaussian_mu: float
    gaussian_epsilon: float
    more_like_last: int | None = None
    unused_items: int = 0
    unfitting: int = 0
    fixed_cost_entries: int = 0

    def would_fit(self) -> str:
        """What still fits, in words; rounded down, so that it does."""
        pure = f"pure epsilon = {rounded_down(self.pure_epsilon)}"
        if self.delta > 0:
            fit = f"one fit of epsilon = {rounded_down(self.gaussian_epsilon)} at delta = {self.delta:g}"
            pure = f"{fit} (GDP mu = {rounded_down(self.gaussian_mu)}), or {pure}"
        like = "" if self.more_like_last is None else f"; about {self.more_like_last} more like the last one"
        items = f"; {self.unused_items} releases of declared programmes" if self.unused_items else ""
        return pure + like + items

    def rule(self) -> str:
        """Under which rule entries were admitted that the filter does not answer for, in words; "" where none were."""
        found = []
        if self.fixed_cost_entries:
            found.append(f"the first {self.fixed_cost_entries} were admitted under the rule of fixed costs")
        if self.unfitting:
            found.append(f"{self.unfitting} are there although the filter has no room for them")
        return "; ".join(found)


def rounded_down(size: float) -> str:
    """Four significant digits, never more than the number itself."""
    return f"{float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(repr(size))):.4g}"
