"""The slack is a Gaussian mechanism whose reach is one share (add-remove) or two (replace-one).

Proof. Each total moves by at most `reach` between neighbours: adding a record adds a share of at most unit in absolute
value; replacing one takes a share away and adds another, and shares of either sign may differ by 2 unit. A maximum of
functions that each move by at most `reach` moves by at most `reach`, whatever their number. The points are functions of
public values and of earlier releases, so the composition is adaptive. A vector moves by the length of one share, or by
that of a difference of two. The k-th smallest of functions that each move by at most `reach` moves by no more either,
so m of them are a vector with sqrt(m) times the unit.
"""

from __future__ import annotations

from dplangevin.families.rashomon_region.schedule import SlackSchedule
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian
from dplangevin.privacy.theorem import ANSWER_ASSUMPTIONS, Theorem, inflated


class SlackTheorem(
    Theorem[SlackSchedule], name="noisy slack", proof="docs/theory/rashomon_region.md, section 1"
):
    """mu = reach / scale.

    Examples
    --------
    >>> slack = SlackSchedule(unit=1.0, scale=4.0, adjacency="replace-one")
    >>> round(SlackTheorem().certify(None, slack).mu, 6)  # a share of -1 may become one of +1
    0.5
    """

    reference = "Dong, Roth and Su (2022), Theorem 2.7 (Gaussian mechanism), with the sensitivity proved here"

    def promise(self, constants: None, schedule: SlackSchedule) -> Guarantee:
        part = Gaussian(mu=inflated(schedule.reach / schedule.scale))
        return self.of_answers(schedule, part, (*schedule.assumptions, *ANSWER_ASSUMPTIONS))
