"""Plan: a run that is accounted before any record is read. The object that is accounted is the one that runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from dplangevin.errors import InvalidParameter
from dplangevin.privacy.accountant import certify
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import Problem
from dplangevin.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Public parameters with the guarantee that a theorem gives them; there is no way to state another one.

    Parameters
    ----------
    schedule : the public parameters of the run.
    delta : the delta at which the guarantee is reported.
    problem : what is solved; its constants are used. A plan without a problem can be priced but not run.
    constants : the constants, when there is no problem.
    theorem : pin a theorem by name; None takes the tightest that applies.
    """

    schedule: Schedule
    delta: float
    problem: Problem | None = None
    constants: Constants = None  # type: ignore[assignment]
    theorem: str | None = None
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        if self.problem is not None:
            if self.constants is not None and self.constants != self.problem.constants:
                raise InvalidParameter("constants differ from those of the problem; leave constants out.")
            object.__setattr__(self, "constants", self.problem.constants)
        if self.constants is None:
            raise InvalidParameter("a plan needs a problem, or constants.")
        guarantee = certify(self.constants, self.schedule, delta=self.delta, theorem=self.theorem)
        object.__setattr__(self, "guarantee", guarantee)
        object.__setattr__(self, "theorem", guarantee.theorem)
