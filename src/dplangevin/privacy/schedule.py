"""Schedule: the public parameters of one algorithm family, and what runs of that kind can do."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

from dplangevin.problem.constants import Constants


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a kind of run can do. Stated once, with its schedule, and read by everyone who chooses or refuses runs.

    Parameters
    ----------
    pure : a guarantee at delta = 0 may be asked for.
    secure : exact noise on an integer grid, from the operating system's generator.
    population_risk : its stability is proved, so that the ridge can be chosen for the risk on new records.
    holds_beyond_n : some theorem about it covers data with more records than the public divisor n.
    intervals : the law of its error is known exactly, as confidence intervals need.
    ridge_and_radius : a stated ridge and a stated radius mean what they say. They do not in whitened coordinates.
    random_batches : steps read random batches of rows, so that rows of one person cannot be kept together.
    checkpoints : a run in steps saves its position, so that commands keep a checkpoint of it by default.
    secure_resume : a secure run may continue from a saved position with fresh noise.
    needs_no_problem : it states its own neighbours and is accounted without a problem and its constants.
    """

    pure: bool = False
    secure: bool = False
    population_risk: bool = False
    holds_beyond_n: bool = False
    intervals: bool = False
    ridge_and_radius: bool = True
    random_batches: bool = False
    checkpoints: bool = False
    secure_resume: bool = False
    needs_no_problem: bool = False


class Schedule(ABC):
    """Base of the frozen records that are accounted and executed as they stand."""

    mechanism: ClassVar[str]
    """Name of the mechanism that runs it."""
    capabilities: ClassVar[Capabilities]
    """What runs of this kind can do."""
    release: str
    """What leaves the run."""
    secure: bool = False
    """Whether its noise is drawn exactly, as ideal noise on whole numbers looks after rounding."""

    def check_meaningful(self, constants: Constants) -> None:  # noqa: B027 - most kinds have nothing to refuse
        """Refuse combinations for which no theorem exists, whatever the numbers."""
