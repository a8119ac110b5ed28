"""Spec of sums of contributions of either sign: slack (a maximum over public points), gap, gradient, flip levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dplangevin import _check
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.accounting.theorem import Capabilities
from dplangevin.mechanisms.noisy_answers.spec import AnswerSpec

CONTRIBUTION_STEP = 2.0**-20
"""The step of contributions of at most 1 in exact runs: whole numbers of steps are summed without rounding."""


def slack_spec(certified: CertifiedSpec) -> SlackSpec:
    """Return the SlackSpec that was certified."""
    assert isinstance(certified.spec, SlackSpec)
    return certified.spec


@dataclass(frozen=True, kw_only=True)
class SlackSpec(AnswerSpec):
    """The maximum over public points v of sum_i t_v(record i), or a vector sum_i t(record i), plus Gaussian noise.

    Parameters
    ----------
    unit : bound on the ABSOLUTE value (or on the L2 norm of the vector) of one record's contribution; either sign.
    scale : standard deviation of the noise on each answer.
    answers : 1 for a maximum, the dimension of a vector.
    secure : contributions are whole multiples of CONTRIBUTION_STEP, and noise is drawn exactly.
    """

    mechanism: ClassVar[str] = "noisy-slack"
    capabilities: ClassVar[Capabilities] = Capabilities(secure=True, needs_no_problem=True)
    unit: float
    scale: float
    answers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.validate_fields(
            self, unit=_check.check_scale, scale=_check.check_scale, answers=_check.check_count
        )

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity: one contribution is removed, and under replace-one another is added."""
        return (2.0 if self.adjacency == "replace-one" else 1.0) * self.unit

    @property
    def sizes(self) -> tuple[int, ...]:
        """All answers are in one array."""
        return (self.answers,)
