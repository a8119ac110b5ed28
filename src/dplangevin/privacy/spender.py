"""Spender: who pays for a release. The ledger implements it; mechanisms only know these two calls."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dplangevin.privacy.plan import Plan


@runtime_checkable
class Spender(Protocol):
    """A budget. The cost is reserved before any record is read and never given back by a crash."""

    def reserve(self, plan: Plan) -> str:
        """Charge the plan's guarantee, or raise BudgetExceeded; returns a token."""
        ...

    def commit(self, token: str, release_hash: str) -> None:
        """Note which release the reserved cost paid for."""
        ...
