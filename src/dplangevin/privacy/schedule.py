"""Schedule: the public parameters of one algorithm family."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from dplangevin.problem.constants import Constants


class Schedule(ABC):
    """Base of the frozen records that are accounted and executed as they stand."""

    mechanism: ClassVar[str]
    """Name of the mechanism that runs it."""
    pure: ClassVar[bool] = True
    """Whether a promise at delta = 0 may be asked for."""
    stands_alone: ClassVar[bool] = False
    """Whether it states its own neighbours: no problem and no constants are needed to price it."""
    release: str
    """What leaves the run."""
    secure: bool = False
    """Whether its noise is drawn exactly, as ideal noise on whole numbers looks after rounding."""

    def check_meaningful(self, constants: Constants) -> None:  # noqa: B027 - most kinds have nothing to refuse
        """Refuse combinations for which no theorem exists, whatever the numbers."""
