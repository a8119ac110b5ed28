"""Spec of sums of contributions of either sign (slack, gap, gradient, flip levels), and their privacy.

Proof. Each total changes by at most D between neighbours: adding a record adds a contribution of at most unit in
absolute value; replacing one removes a contribution and adds another, and contributions of either sign may differ by
2 unit. A maximum of functions that each change by at most D changes by at most D, whatever their number. The points
are functions of public values and of earlier releases, so the composition is adaptive. A vector changes by one
contribution, or by the difference of two. The k-th smallest of functions that each change by at most D changes by at
most D too, so m of them are a vector with sqrt(m) times the unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dplangevin import _check
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.plan import (
    ANSWER_ASSUMPTIONS,
    Capabilities,
    CertifiedSpec,
    Theorem,
    noise_assumptions,
    round_up,
)
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


class SlackTheorem(Theorem[SlackSpec], name="noisy slack", proof="docs/theory/rashomon_region.md, section 1"):
    """Gaussian DP with mu = sensitivity / scale.

    Examples
    --------
    >>> slack = SlackSpec(unit=1.0, scale=4.0, adjacency="replace-one")
    >>> round(SlackTheorem().certify(None, slack).mu, 6)  # a contribution of -1 may become one of +1
    0.5
    """

    holds_for_rounded_noise = True
    reference = "Dong, Roth and Su (2022), Theorem 2.7 (Gaussian mechanism), with the sensitivity proved here"

    def derive_guarantee(self, constants: None, spec: SlackSpec) -> Guarantee:
        part = Gaussian(mu=round_up(spec.sensitivity / spec.scale))
        noise = noise_assumptions(ANSWER_ASSUMPTIONS, secure=spec.secure)
        return self.guarantee_of_answers(spec, part, (*spec.assumptions, *noise))
