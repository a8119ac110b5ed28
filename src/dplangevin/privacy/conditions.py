"""Conditions: what a guarantee depends on as a whole, as typed objects that nothing has to parse.

An assumption of a guarantee is information (which noise, which numbers are public). A condition is more: where it does
not hold, or where the run ends by an error that depends on the records, the guarantee says nothing. A strict data set
of a ledger accepts guarantees without conditions only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dplangevin.errors import InvalidParameter

ConditionKind = Literal[
    "public-labels",  # the set of labels was read from the targets
    "public-row-count",  # the number of rows became the divisor, and neighbours differ in it
    "upstream-steps",  # steps before the model that may carry one record into the rows of others
    "outer-estimator",  # another estimator may have chosen rows, labels or weights
    "record-errors",  # an error that depends on the records
    "run-failure",  # a run that stops without a release, which may depend on the records
    "file-integrity",  # a file that nothing shows to be as it was written
    "stated-in-words",  # an entry of an older ledger, whose condition is known as a sentence only
]
CONDITION_KINDS: tuple[ConditionKind, ...] = get_args(ConditionKind)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition of a guarantee.

    Parameters
    ----------
    kind : one of `CONDITION_KINDS`; programs decide by it.
    text : continues "conditional on", for people; nothing is decided by it.

    Examples
    --------
    >>> print(Condition(kind="public-labels", text="the set of labels being public"))
    conditional on the set of labels being public
    """

    kind: ConditionKind
    text: str

    def __post_init__(self) -> None:
        if self.kind not in CONDITION_KINDS:
            raise InvalidParameter(
                f"the kind of a condition must be one of {', '.join(CONDITION_KINDS)}; got {self.kind!r}."
            )
        if not isinstance(self.text, str) or not self.text:
            raise InvalidParameter("the text of a condition must be a sentence.")

    def __str__(self) -> str:
        return f"conditional on {self.text}"

    def to_dict(self) -> dict[str, str]:
        """Plain data, ready for JSON."""
        return {"kind": self.kind, "text": self.text}


def merge_conditions(*groups: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """All conditions of several guarantees, each once."""
    return tuple(dict.fromkeys(condition for group in groups for condition in group))
