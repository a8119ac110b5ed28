"""Schedule: the public parameters of one algorithm family."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar


class Schedule(ABC):
    """Base of the frozen records that are accounted and executed as they stand."""

    mechanism: ClassVar[str]
    """Name of the mechanism that runs it."""
    release: str
    """What leaves the run."""
