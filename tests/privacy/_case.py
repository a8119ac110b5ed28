"""One row of the audit table: a mechanism in a stated configuration, honest and sabotaged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dplangevin.audit import AuditResult, attack
from dplangevin.audit.search import scores
from dplangevin.privacy.guarantee import Guarantee

Draw = Callable[[int, int, np.random.Generator], np.ndarray]
CONFIDENCE = 0.999
"""Per audit. Two one-sided bounds must fail together, so a false alarm is in fact rarer; seeds are fixed."""
TIGHT = 0.7


@dataclass(frozen=True, kw_only=True)
class Case:
    """Draws are functions (side 0 or 1, runs, rng) -> scores [runs] or vectors [runs, dimension].

    covers : the classes this row is about. exact_ratio : exact value over claimed value (mu where the claim is GDP,
    epsilon at delta otherwise); None where only `loose` says what is known.
    slow : left to the long tests.
    sabotages : what was broken, by at least a factor 2 in mu (or in epsilon) unless `loose` says otherwise.
    """

    name: str
    configuration: str
    covers: tuple[str, ...]
    claim: Guarantee
    honest: Draw
    sabotages: Mapping[str, Draw]
    exact_ratio: float | None = None
    runs: int = 900
    loose: str = ""
    seed: int = 3
    slow: bool = False

    def audit(self, draw: Draw, seed: int, many: int) -> AuditResult:
        """Attack `many` times the stated number of runs a side."""
        rng = np.random.default_rng(seed)
        first, second = (np.asarray(draw(side, many * self.runs, rng), float) for side in (0, 1))
        if first.ndim == 2:
            first, second = scores(first, second, None)
        delta = self.claim.at_delta or 0.0
        return attack(
            first, second, self.claim, delta=delta, confidence=CONFIDENCE, canary=self.configuration
        )


def attained(case: Case, result: AuditResult) -> float:
    """Audited over claimed: in mu where the claim is Gaussian, in epsilon otherwise."""
    if result.claimed_mu:
        return result.mu_lower / result.claimed_mu
    claimed = result.claimed_epsilon
    return result.epsilon_lower / claimed if claimed else math.nan
