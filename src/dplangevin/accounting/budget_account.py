"""Protocols of a privacy budget that releases are charged to. The ledger implements them; mechanisms know no more."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from dplangevin.accounting.guarantee import Guarantee

R = TypeVar("R")


def attach_ledger_head(release: R, head: object) -> R:
    """Store the head of the ledger after the charge as `ledger_head` (None without a ledger); return the release."""
    object.__setattr__(release, "ledger_head", head if isinstance(head, str) else None)
    return release


class Chargeable(Protocol):
    """Anything that can be charged for, because it has a guarantee: a Plan, a noisy sum, a private selection."""

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the release, which is what is charged."""
        ...


@runtime_checkable
class BudgetAccount(Protocol):
    """A budget. The cost is charged before any record is read, and a crash does not give it back."""

    def reserve(self, plan: Chargeable) -> str:
        """Charge the plan's guarantee, or raise BudgetExceeded; return a token for `commit`."""
        ...

    def commit(self, token: str, release_hash: str) -> str | None:
        """Note the hash of the release charged under this token; return the ledger's head after the charge."""
        ...


@runtime_checkable
class ResumableAccount(BudgetAccount, Protocol):
    """A budget whose charge can be repeated safely: after a crash it may be unknown whether `reserve` succeeded."""

    def reserve_with_token(self, token: str, plan: Chargeable) -> None:
        """Charge under the caller's token; a second call with the same token and cost charges nothing."""
        ...
