"""Entries of the ledger, the hash chain over them, and what is left of a budget.

The first link of a data set's chain is a hash of the declared budget, every further one a hash of the previous link
and the entry. Nothing in it is secret: whoever holds a head outside the database can detect an older or another
ledger.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from typing import Any

from dplangevin.accounting import serialize
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.errors import InvalidParameter

_HEAD_PATTERN = re.compile(r"(0|[1-9][0-9]{0,17})-([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What is appended to the ledger: an entry without its number and link. The token is stored as a hash."""

    dataset: str
    token: str
    part: str
    label: str
    created: str
    guarantee: str
    plan: str
    library: str


def first_link(identity: str, name: str, budget: tuple[Any, ...]) -> str:
    """Return the first link of a chain: a hash of the ledger's identity, the data set's name and its budget."""
    return _hash_fields("dplangevin-ledger", identity, name, *(repr(value) for value in budget))


def next_link(previous_link: str, sequence: int, charge: Charge) -> str:
    """Return the next link of a chain. No field holds a line break, so line breaks separate the fields."""
    return _hash_fields(
        previous_link,
        str(sequence),
        charge.token,
        charge.part,
        charge.label,
        charge.created,
        charge.guarantee,
        charge.plan,
        charge.library,
    )


def hash_token(token: str) -> str:
    """Return the hash under which a token is stored: readers of the ledger cannot act for a run."""
    return _hash_fields("token", token)


def format_head(sequence: int, chain: str) -> str:
    """Return a head as text: the number of entries and the last link."""
    return f"{sequence}-{chain}"


def parse_head(text: Any) -> tuple[int, str]:
    """Return the number of entries and the link of a head."""
    match = _HEAD_PATTERN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidParameter(
            f"{text!r:.100} is not the head of a ledger, which looks like 12-<64 hexadecimal digits>; see "
            "`ledger head`."
        )
    return int(match[1]), match[2]


def _hash_fields(*fields: str) -> str:
    return hashlib.sha256("\n".join(fields).encode("utf-8")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One charge, made before the data were read, whether or not a release followed.

    Parameters
    ----------
    dataset : name of the data set.
    sequence : 1, 2, 3, ... within the data set; it, and not the time, orders entries.
    part : the disjoint part that was used; "" is the whole data set.
    label : who charged and for what, as the user stated it.
    created, released : times by the writer's clock (UTC), for information.
    guarantee : what was charged.
    plan : the public parameters of the run.
    library : the version of dplangevin that wrote the entry.
    release_hash : SHA-256 of the released numbers; None when no release was noted.
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
        return format_head(self.sequence, self.chain)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {
            "sequence": self.sequence,
            "part": self.part,
            "label": self.label,
            "created": self.created,
            "theorem": self.guarantee.theorem,
            "guarantee": serialize.guarantee_to_plain(self.guarantee),
            "plan": self.plan,
            "library": self.library,
            "release_hash": self.release_hash,
            "released": self.released,
            "head": self.head,
        }


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """What is left of a budget.

    There is no "spent epsilon": a running total is no guarantee, since a user may stop when it happens to be small.
    The guarantee is the budget.

    Parameters
    ----------
    epsilon, delta : the budget, which all releases together satisfy.
    adjacency, max_rows_per_person : the adjacency and the number of rows per person of the budget.
    entries : number of charges.
    pure_epsilon, gaussian_mu : the largest pure, or GDP, release that still fits, rounded down.
    gaussian_epsilon : epsilon of that GDP release (a fit) at the budget's delta, rounded down.
    n_more_like_last : about how many more releases like the last one fit; None where there is no last one.
    n_unused_items : releases that were charged with declared programmes and are not made yet.
    n_over_budget : entries that do not fit the filter (entered afterwards, or admitted by an older version under the
        rule of fixed costs); the budget itself is then not a guarantee.
    n_fixed_cost_entries : this many first entries were admitted under the rule of fixed costs, which is valid for
        releases that were planned beforehand.
    """

    epsilon: float
    delta: float
    adjacency: str
    max_rows_per_person: int
    entries: int
    pure_epsilon: float
    gaussian_mu: float
    gaussian_epsilon: float
    n_more_like_last: int | None = None
    n_unused_items: int = 0
    n_over_budget: int = 0
    n_fixed_cost_entries: int = 0

    def fitting_text(self) -> str:
        """Return a phrase on what still fits; rounded down, so that it does."""
        pure = f"pure epsilon = {format_rounded_down(self.pure_epsilon)}"
        if self.delta > 0:
            fit = (
                f"one fit of epsilon = {format_rounded_down(self.gaussian_epsilon)} at delta = {self.delta:g}"
            )
            pure = f"{fit} (GDP mu = {format_rounded_down(self.gaussian_mu)}), or {pure}"
        like_text = (
            "" if self.n_more_like_last is None else f"; about {self.n_more_like_last} more like the last one"
        )
        items = f"; {self.n_unused_items} releases of declared programmes" if self.n_unused_items else ""
        return pure + like_text + items

    def exceptions_text(self) -> str:
        """Return a phrase on entries that the filter did not admit; "" where there are none."""
        texts = []
        if self.n_fixed_cost_entries:
            texts.append(f"the first {self.n_fixed_cost_entries} were admitted under the rule of fixed costs")
        if self.n_over_budget:
            texts.append(f"{self.n_over_budget} do not fit the filter")
        return "; ".join(texts)


def format_rounded_down(size: float) -> str:
    """Format a number with four significant digits, rounded down."""
    return f"{float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(repr(size))):.4g}"
