"""The errors of the library. Their messages say what went wrong, which value caused it, and how to fix it."""

from __future__ import annotations


class DplangevinError(Exception):
    """Base class of the errors that this library raises on purpose."""


class InvalidParameter(DplangevinError, ValueError):
    """A parameter is outside its domain; the message names the parameter, the value and the fix."""


class AssumptionFailed(DplangevinError):
    """A run does not satisfy a hypothesis of the theorem that was to certify it."""


class CalibrationFailed(DplangevinError):
    """No public parameters meet the requested guarantee."""


class BudgetExceeded(DplangevinError):
    """The release would cost more than is left of the data set's budget."""


class NotPrivateError(DplangevinError):
    """A privacy parameter was requested of a run or an object without a proved guarantee."""


class LedgerError(DplangevinError):
    """The ledger's database cannot be used as it is; the message says whether the budget was charged.

    Attributes
    ----------
    token : set when a charge was made, or may have been made; `budget.was_charged(token)` tells which. Else None.
    """

    token: str | None = None


class ContradictionError(DplangevinError):
    """A claimed epsilon is below what a run with the same public parameters leaks: a bug to report, not to catch."""
