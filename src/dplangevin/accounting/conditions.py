"""Conditions of a guarantee, as typed objects.

An assumption of a guarantee is information (which noise, which parameters are public). A condition is stronger: where
it does not hold, or where the run ends with an error that depends on the records, there is no guarantee. A strict
data set of a ledger accepts only guarantees without conditions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dplangevin.errors import InvalidParameter

ConditionKind = Literal[
    "public-labels",  # the set of labels was read from the targets
    "public-row-count",  # the number of rows became the divisor, and neighbouring data sets differ in it
    "upstream-steps",  # steps before the model that may spread one record over the rows of others
    "outer-estimator",  # another estimator may have chosen rows, labels or weights
    "record-errors",  # an error that depends on the records
    "run-failure",  # a run that stops without a release, which may depend on the records
    "unchecked-hypothesis",  # a hypothesis of a theorem that nothing in this project can check
    "file-integrity",  # a file without proof that it is as it was written
    "stated-in-words",  # an entry of an older ledger, whose condition is known as a sentence only
]
CONDITION_KINDS: tuple[ConditionKind, ...] = get_args(ConditionKind)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition of a guarantee.

    Parameters
    ----------
    kind : one of `CONDITION_KINDS`, for programs.
    text : the continuation of "conditional on", for people; no decision depends on it.

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
            raise InvalidParameter(f"the text of a condition must not be empty, got {self.text!r}.")

    def __str__(self) -> str:
        return f"conditional on {self.text}"

    def to_dict(self) -> dict[str, str]:
        """Return plain data, ready for JSON."""
        return {"kind": self.kind, "text": self.text}


def merge_conditions(*groups: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Return the conditions of several guarantees, each once."""
    return tuple(dict.fromkeys(condition for group in groups for condition in group))
