"""Price and Plan: runs accounted before any record is read. The object that is accounted is the one that runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from dplangevin.errors import InvalidParameter
from dplangevin.privacy.accountant import certify
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Price:
    """Public parameters with the guarantee that a theorem gives them; there is no way to state another one.

    Parameters
    ----------
    schedule : the public parameters of the run.
    delta : the delta at which the guarantee is reported.
    constants : of what is solved; None for noisy answers, whose schedules state their own neighbours.
    theorem : pin a theorem by name; None takes the tightest that applies.
    """

    schedule: Schedule
    delta: float
    constants: Constants = None  # type: ignore[assignment]
    theorem: str | None = None
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        guarantee = certify(self.constants, self.schedule, delta=self.delta, theorem=self.theorem)
        object.__setattr__(self, "guarantee", guarantee)
        object.__setattr__(self, "theorem", guarantee.theorem)


@dataclass(frozen=True, kw_only=True)
class Plan(Price):
    """A price with the problem it is for: it can be run on data of that problem, whose constants are used."""

    problem: Problem
    constants: Constants = field(init=False)

    def __post_init__(self) -> None:
        if type(self.problem) is not Problem:  # a class of one's own could state other constants than it has
            raise InvalidParameter(f"problem must be a Problem, got {type(self.problem).__name__}.")
        object.__setattr__(self, "constants", self.problem.constants)
        super().__post_init__()
