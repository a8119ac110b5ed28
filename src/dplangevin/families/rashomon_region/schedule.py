"""The schedule of signed answers: the slack (the worst of many public points), a gap, a gradient, or flip costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_answers.schedule import AnswerSchedule
from dplangevin.privacy.plan import Price
from dplangevin.privacy.schedule import Capabilities


def slack_of(price: Price) -> SlackSchedule:
    """The schedule of a price that is one of signed answers."""
    assert isinstance(price.schedule, SlackSchedule)
    return price.schedule


@dataclass(frozen=True, kw_only=True)
class SlackSchedule(AnswerSchedule):
    """max over public points v of sum_i t_v(record i), or a vector sum_i t(record i), plus Gaussian noise.

    Parameters
    ----------
    unit : bound on the ABSOLUTE share (or on the Euclidean length of the vector) of one record; either sign.
    scale : standard deviation of the noise on each answer. answers : 1 for a maximum, the length of a vector.
    """

    mechanism: ClassVar[str] = "noisy-slack"
    capabilities: ClassVar[Capabilities] = Capabilities(needs_no_problem=True)
    unit: float
    scale: float
    answers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.each(self, unit=_check.scale, scale=_check.scale, answers=_check.count)
        if self.secure:
            raise InvalidParameter("a noisy slack has no secure form: its shares are no whole numbers.")

    @property
    def reach(self) -> float:
        """The largest move between neighbours: a share leaves, and under replace-one another comes."""
        return (2.0 if self.adjacency == "replace-one" else 1.0) * self.unit

    @property
    def sizes(self) -> tuple[int, ...]:
        """One array."""
        return (self.answers,)
