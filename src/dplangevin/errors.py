"""The errors of the library: what went wrong, the value got, and how to fix it."""

from __future__ import annotations


class DplangevinError(Exception):
    """Base of every error this library raises on purpose."""


class InvalidParameter(DplangevinError, ValueError):
    """A parameter is outside its domain; the text names it, the value, and the fix."""


class AssumptionFailed(DplangevinError):
    """A theorem was asked about a run that does not satisfy one of its hypotheses."""


class CalibrationFailed(DplangevinError):
    """No public parameters meet the requested guarantee."""


class BudgetExceeded(DplangevinError):
    """The release would cost more than the data set's ledger has left."""


class NotPrivateError(DplangevinError):
    """A privacy parameter was asked of something that has no proved guarantee."""


class LedgerError(DplangevinError):
    """The ledger's database cannot be used as it is; the text says whether something was charged.

    token : set when a charge was made, or perhaps made; `budget.charged(token)` settles which.
    """

    token: str | None = None


class ContradictionError(DplangevinError):
    """The library claims more privacy than a run with the same public numbers has: a fault to report, not to catch."""
