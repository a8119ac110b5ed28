"""Recipe: what the planner chose, why, and what to expect."""

from __future__ import annotations

from dataclasses import dataclass

from dplangevin.privacy.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A calibrated plan with the reasons for its choices.

    predicted_excess_risk is an estimate from public quantities (see `planner.rules`), not a bound.
    """

    model: str
    plan: Plan
    reasons: tuple[str, ...]
    predicted_excess_risk: float

    def __str__(self) -> str:
        promise, problem = self.plan.guarantee, self.plan.problem
        assert problem is not None
        delta = promise.at_delta or 0.0
        budget = f"epsilon = {promise.epsilon(delta):.4g}" + (
            f", delta = {delta:.3g}" if delta else " (pure)"
        )
        lines = [
            f"Plan for {self.model}: {self.plan.schedule.mechanism}, n = {problem.n}, {problem.n_features} features",
            f"  promise: {budget}, {promise.adjacency}, theorem {promise.theorem}",
            *(f"  {reason}" for reason in self.reasons),
            f"  predicted excess risk (estimate): {self.predicted_excess_risk:.3g}",
        ]
        return "\n".join(lines)
