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
    """Where a budget stands.

    Parameters
    ----------
    spent_epsilon : composed epsilon of all entries at the budget's delta, rounded up.
    pure_epsilon, gaussian_mu : the largest pure, or GDP, release that still fits, rounded down.
    entries : number of charges.
    """

    epsilon: float
    delta: float
    adjacency: str
    max_rows_per_person: int
    entries: int
    spent_epsilon: float
    pure_epsilon: float
    gaussian_mu: float

    def would_fit(self) -> str:
        """What still fits, in words; rounded down, so that it does."""
        pure = f"pure epsilon = {rounded_down(self.pure_epsilon)}"
        return pure if self.delta == 0 else f"{pure}, or GDP mu = {rounded_down(self.gaussian_mu)}"


def rounded_down(size: float) -> str:
    """Four significant digits, never more than the number itself."""
    return f"{float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(repr(size))):.4g}"
