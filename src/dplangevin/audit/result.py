"""AuditResult: what an attack proves, beside what was claimed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """A lower bound on the privacy loss of a run, beside the claim.

    Parameters
    ----------
    epsilon_lower : no claim of (epsilon, delta) with a smaller epsilon holds, with the stated confidence.
    mu_lower : no claim of mu-GDP with a smaller mu holds, with the same confidence.
    refuted : the claim itself is false, with the same confidence. One test decides: the best cut against the
        claim's whole trade-off curve, which for a GDP claim is the test on mu.
    delta, confidence, runs : of the audit; confidence 1 where densities were integrated instead of sampled.
    method, canary : how, and on which pair of neighbouring data sets.
    claimed : the claim as JSON data (None when nothing was claimed).
    exact_ratio : exact value over claimed value (in mu, or in epsilon), where the exact law is known.
    tested : size and power (false and true positive rate) of the test that decides, both to the safe side.
    measured, allowed : points (size, power) measured, and allowed by the claim, for the picture.
    """

    epsilon_lower: float
    mu_lower: float
    delta: float
    confidence: float
    runs: int
    refuted: bool
    method: str = "many-run"
    canary: str = ""
    claimed: dict[str, Any] | None = None
    exact_ratio: float | None = None
    tested: tuple[float, float] = (1.0, 0.0)
    measured: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    allowed: tuple[tuple[float, float], ...] = field(default=(), repr=False)

    @property
    def claimed_epsilon(self) -> float | None:
        """The claimed epsilon at the audit's delta."""
        return None if self.claimed is None else float(self.claimed["epsilon"])

    @property
    def claimed_mu(self) -> float | None:
        """The claimed mu, when the claim is Gaussian."""
        return None if self.claimed is None else self.claimed["mu"]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "epsilon_lower": self.epsilon_lower,
            "mu_lower": self.mu_lower,
            "delta": self.delta,
            "confidence": self.confidence,
            "runs": self.runs,
            "refuted": self.refuted,
            "method": self.method,
            "canary": self.canary,
            "claimed": self.claimed,
            "exact_ratio": self.exact_ratio,
            "tested": {"false_positive_rate": self.tested[0], "true_positive_rate": self.tested[1]},
        }
