"""Privacy of the slack: a Gaussian mechanism of sensitivity D = unit (add-remove) or 2 unit (replace-one).

Proof. Each total changes by at most D between neighbours: adding a record adds a contribution of at most unit in
absolute value; replacing one removes a contribution and adds another, and contributions of either sign may differ by
2 unit. A maximum of functions that each change by at most D changes by at most D, whatever their number. The points
are functions of public values and of earlier releases, so the composition is adaptive. A vector changes by one
contribution, or by the difference of two. The k-th smallest of functions that each change by at most D changes by at
most D too, so m of them are a vector with sqrt(m) times the unit.
"""

from __future__ import annotations

from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.theorem import ANSWER_ASSUMPTIONS, Theorem, noise_assumptions, round_up
from dplangevin.mechanisms.rashomon_region.spec import SlackSpec


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
