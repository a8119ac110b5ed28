"""Recipe: what the planner chose, why, and what to expect."""

from __future__ import annotations

from dataclasses import dataclass

from dplangevin.privacy.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A calibrated plan with the reasons for its choices. Everything in it is public.

    Parameters
    ----------
    model : the model's name.
    plan : problem, schedule and guarantee; the guarantee's epsilon is at most the one asked.
    reasons : what was chosen and why, one sentence each.
    predicted_excess_risk : expected excess of the mean loss over its minimum, in units of the scaled target. An
        estimate (see `planner.risk`), not a bound.
    caution : what n or epsilon would do, when noise is expected to drown the signal; None otherwise.

    What prediction needs is in plan.problem.loss: a logistic slope clipped at C is calibrated for odds r(-z) / r(z)
    with r(z) = min(C, sigmoid(-z)); C = 1 is the usual sigmoid.
    """

    model: str
    plan: Plan
    reasons: tuple[str, ...]
    predicted_excess_risk: float
    caution: str | None = None

    def __str__(self) -> str:
        promise, problem = self.plan.guarantee, self.plan.problem
        lines = [
            f"Plan for {self.model}: {self.plan.schedule.mechanism}, n = {problem.n}, {problem.n_features} features",
            f"  promise: {promise.in_short}",
            *(f"  {reason}" for reason in self.reasons),
            f"  predicted excess risk (estimate): {self.predicted_excess_risk:.3g}",
        ]
        if self.caution is not None:
            lines.append(f"  caution: {self.caution}")
        return "\n".join(lines)
