"""The schedule of the slack: one number that bounds how far the worst of many public points is from its threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dplangevin import _check
from dplangevin.families.noisy_answers.schedule import AnswerSchedule


@dataclass(frozen=True, kw_only=True)
class SlackSchedule(AnswerSchedule):
    """max over public points v of sum_i t_v(record i), plus Gaussian noise, where -unit <= t_v <= unit.

    Parameters
    ----------
    unit : bound on the ABSOLUTE share of one record in each total; shares may have either sign.
    scale : standard deviation of the noise on the maximum of the totals.
    """

    mechanism: ClassVar[str] = "noisy-slack"
    pure: ClassVar[bool] = False
    unit: float
    scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.put(self, unit=_check.positive("unit", self.unit))
        _check.put(self, scale=_check.positive("scale", self.scale))

    @property
    def reach(self) -> float:
        """The largest move of the maximum between neighbours: a share leaves, and under replace-one another comes."""
        return (2.0 if self.adjacency == "replace-one" else 1.0) * self.unit

    @property
    def sizes(self) -> tuple[int, ...]:
        """One number."""
        return (1,)
