"""Spender: who pays for a release. The ledger implements it; mechanisms only know these two calls."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from dplangevin.privacy.guarantee import Guarantee

R = TypeVar("R")


def under_head(release: R, head: object) -> R:
    """The release, carrying the head of the books it was charged under as `ledger_head` (None without a ledger)."""
    object.__setattr__(release, "ledger_head", head if isinstance(head, str) else None)
    return release


class Priced(Protocol):
    """Anything that will be released and knows what it costs: a Plan, a noisy sum, a private selection."""

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises."""
        ...


@runtime_checkable
class Spender(Protocol):
    """A budget. The cost is reserved before any record is read and never given back by a crash."""

    def reserve(self, plan: Priced) -> str:
        """Charge the plan's guarantee, or raise BudgetExceeded; returns a token."""
        ...

    def commit(self, token: str, release_hash: str) -> str | None:
        """Note which release the reserved cost paid for; returns the head of the books it was charged under."""
        ...


@runtime_checkable
class TokenSpender(Spender, Protocol):
    """A budget that can be asked twice: after a crash nobody may know whether `reserve` came through."""

    def reserve_under(self, token: str, plan: Priced) -> None:
        """As reserve, under the caller's token; a token that has paid for the same cost already costs nothing."""
        ...
