"""Which K, psi and epsilon are worth running: the hit bound for every choice, before any record is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dplangevin import _check
from dplangevin._search import bisected, grown_until, whole_bisected
from dplangevin.families._minimiser import default_tolerance
from dplangevin.families.rashomon.calibrate import draw_temperature, per_draw
from dplangevin.families.rashomon.hit import law_hit_probability, rounded_down
from dplangevin.problem.constants import Constants

WORTHWHILE = 0.5
"""Draws that fall in the set less often than this tell more about the noise than about the set."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What a number of models, a threshold and a budget give, and the nearest choices that are worth running.

    hit_probability : a draw falls in the set with at least this probability (route "pure").
    inverse_temperature : of one draw. most_models : the largest K that is worth running at this threshold and budget, 0
        when none is. least_threshold : the smallest threshold worth running with this K; least_epsilon : the budget.
    """

    n: int
    dimension: int
    threshold: float
    n_models: int
    epsilon: float
    delta: float
    inverse_temperature: float
    hit_probability: float
    most_models: int
    least_threshold: float
    least_epsilon: float

    @property
    def worth_running(self) -> bool:
        """Whether draws fall in the set often enough to tell of it."""
        return self.hit_probability >= WORTHWHILE

    def __str__(self) -> str:
        budget = f"epsilon = {self.epsilon:g}" + (f", delta = {self.delta:g}" if self.delta else " (pure)")
        lines = [
            f"At n = {self.n}, p = {self.dimension}, psi = {self.threshold:g}, {self.n_models} model(s) under {budget} "
            f"in all, the draws fall in the set with probability at least {rounded_down(self.hit_probability)}.",
        ]
        if self.worth_running:
            lines.append(
                f"Worth running (at least {WORTHWHILE:g}); up to {self.most_models} models would be."
            )
        else:
            most = f"at most {self.most_models} model(s)" if self.most_models else "no number of models"
            lines.append(
                f"Not worth running as it is (below {WORTHWHILE:g}): {most} at this psi and budget, or psi of "
                f"at least {self.least_threshold:.3g} or epsilon of at least {self.least_epsilon:.3g} with this many."
            )
        return "\n".join(lines)


def advise(
    constants: Constants, *, threshold: float, n_models: int, epsilon: float, delta: float = 0.0
) -> Advice:
    """What is worth running for these public constants (dimension, ridge and a bounded set are needed).

    Examples
    --------
    >>> constants = Constants(n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, diameter=2.0,
    ...                       dimension=10)
    >>> print(advise(constants, threshold=0.05, n_models=5, epsilon=1.0))
    At n = 30000, p = 10, psi = 0.05, 5 model(s) under epsilon = 1 (pure) in all, the draws fall in the set with
    probability at least 0.8686.
    Worth running (at least 0.5); up to 20 models would be.
    """
    psi, models = _check.nonnegative("threshold", threshold), _check.count("n_models", n_models)
    budget = _check.positive("epsilon", epsilon)
    tolerance, p = default_tolerance(constants), constants.dimension or 1

    def hit(count: int, psi: float, epsilon: float) -> float:
        beta = draw_temperature(constants, tolerance, per_draw(epsilon, delta, count, quick=True))
        return law_hit_probability(p, beta, psi)

    beta = draw_temperature(constants, tolerance, per_draw(budget, delta, models))

    return Advice(
        n=constants.n,
        dimension=p,
        threshold=psi,
        n_models=models,
        epsilon=budget,
        delta=delta,
        inverse_temperature=beta,
        hit_probability=law_hit_probability(p, beta, psi),
        most_models=_most(lambda count: hit(count, psi, budget) >= WORTHWHILE),
        least_threshold=_least(lambda value: hit(models, value, budget) >= WORTHWHILE, max(psi, 1e-6)),
        least_epsilon=_least(lambda value: hit(models, psi, value) >= WORTHWHILE, budget)
        if psi > 0
        else float("inf"),
    )


def _most(good: Callable[[int], bool], cap: int = 10_000) -> int:
    """The largest count that is good (goodness falls with the count), 0 when 1 is not; searched up to cap."""
    if not good(1):
        return 0
    high = grown_until(lambda count: not good(count), 2, cap)
    if high is None and good(cap):
        return cap
    return whole_bisected(good, (high or cap) // 2, high or cap)


def _least(good: Callable[[float], bool], start: float) -> float:
    """The smallest value that is good (goodness grows with the value), to three digits; infinity beyond 1e6 starts."""
    high = grown_until(good, start, 1e6 * start)
    if high is None:
        return float("inf")
    low = high / 2
    while good(low):
        low, high = low / 2, low
        if low < 1e-9 * start:
            return high
    return bisected(good, high, low, relative=0.002, geometric=True)
