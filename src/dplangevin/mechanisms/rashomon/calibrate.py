"""Calibrate draws and chains of a Rashomon set, and bound how often they hit it, from public quantities only.

The hit bound: for F convex on a convex set, the volume V(s) of {F <= F* + s} has V^(1/p) concave, so dV / (s^(p-1)
ds) is decreasing, and the law exp(-beta h(F - F*)) puts at least A / (A + B) on the set, A = psi^p / p, B the
integral of s^(p-1) e^(-beta h(s)) over s > psi. Equality holds for cones. Proof: docs/theory/rashomon.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaincc, gammaln, logsumexp

from dplangevin import _check
from dplangevin._search import bisect_integers, bisect_safe_side, expand_bracket
from dplangevin.accounting import compose, conversions as cv, proximal_certificate as chain
from dplangevin.accounting.parts import BoundedRange
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.exponential.spec import (
    DrawTier,
    exponential_temperature,
    mean_gradient_sensitivity,
    total_variation_allowance,
)
from dplangevin.mechanisms.perturbation.spec import default_tolerance
from dplangevin.mechanisms.rashomon.spec import (
    LocalRange,
    RashomonChainSpec,
    RashomonSpec,
    capped_poincare_bound,
    local_range,
    minimum_error,
    poincare_bound,
    score_constants,
    start_log_ratio,
    start_scale,
)
from dplangevin.problem import Problem
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import full_lipschitz, has_interior_minimizers, max_excess
from dplangevin.problem.risk import hit_probability


def law_hit_probability(
    dimension: int, inverse_temperature: float, threshold: float, ramp: float = 0.0
) -> float:
    """Return a lower bound, rounded down, on the probability that one draw of the law lies in {F <= F* + psi}.

    Examples
    --------
    >>> round(law_hit_probability(20, 1500.0, 0.05), 4), round(law_hit_probability(20, 1500.0, 0.05, ramp=0.01), 4)
    (0.738, 0.231)
    """
    beta, psi = (
        _check.check_positive("inverse_temperature", inverse_temperature),
        _check.check_nonnegative("threshold", threshold),
    )
    tau, p = _check.check_nonnegative("ramp", ramp), _check.check_count("dimension", dimension)
    if psi == 0:
        return 0.0
    if tau == 0:
        return hit_probability(p, beta * psi) * (1 - 1e-9)
    # everything relative to psi: A = 1 / p
    nodes, weights = np.polynomial.legendre.leggauss(200)
    a = tau * (nodes + 1) / 2
    logs = (p - 1) * np.log1p(a / psi) - beta * a * (nodes + 1) / 4 + np.log(weights)  # beta a^2 / (2 tau)
    logs += math.log(tau) - math.log(2 * psi)
    beyond = _log_ramp_tail(p, beta, psi, tau)
    log_ratio = math.log(p) + float(logsumexp(np.append(logs, beyond)))
    return 0.0 if log_ratio > 700 else (1 - 1e-9) / (1 + math.exp(log_ratio))


def _log_ramp_tail(p: int, beta: float, psi: float, tau: float) -> float:
    """Bound log of the integral of (s / psi)^(p-1) e^(-beta (s - psi - tau/2)) ds / psi over s > psi + tau."""
    x = beta * (psi + tau)
    upper = float(gammaincc(p, x))
    if upper > 1e-290:
        log_gamma = float(gammaln(p)) + math.log(upper)
    elif x > p:
        # Gamma(p, x) <= x^p e^-x / (x - p + 1)
        log_gamma = p * math.log(x) - x - math.log(x - p + 1)
    else:
        return math.inf
    return log_gamma - p * math.log(beta * psi) + beta * (psi + tau / 2)


def chain_hit_probability(score_mean: float, slack: float, ramp: float) -> float:
    """Bound P(F - F* <= psi + slack) from below by 1 - E[h] / h(psi + slack) (Markov), E[h] the mean score.

    Examples
    --------
    >>> round(chain_hit_probability(0.01, 0.1, 0.0), 6), chain_hit_probability(1.0, 0.1, 0.0)
    (0.9, 0.0)
    """
    height = slack**2 / (2 * ramp) if slack <= ramp else slack - ramp / 2
    return max(0.0, 1 - _check.check_nonnegative("score_mean", score_mean) / height) if height > 0 else 0.0


def chain_score_mean(
    dimension: int,
    inverse_temperature: float,
    learning_rate: float,
    n_steps: int,
    diameter: float,
    smoothness: float,
    full_lipschitz: float,
) -> float:
    """Bound E[h(F - F*)] at a uniform point of the second half of the chain; a = eta beta is the learning rate.

    From E|theta_(k+1) - theta*|^2 <= E|theta_k - theta*|^2 - 2a E<g, theta_k - theta*> + a^2 E|g|^2 + 2 eta p,
    summed: (D^2 / (2 a m) + p / beta) / (1 - a M) over m steps for an M-smooth score (|g|^2 <= 2 M h, a M < 1), else
    D^2 / (2 a m) + p / beta + a L_F^2 / 2.
    """
    n_averaged = max(n_steps - n_steps // 2, 1)
    mean = diameter**2 / (2 * learning_rate * n_averaged) + dimension / inverse_temperature
    if learning_rate * smoothness < 1:
        return mean / (1 - learning_rate * smoothness)
    return mean + learning_rate * full_lipschitz**2 / 2


def format_rounded_down(probability: float) -> str:
    """Format a probability to four decimals, rounded down, for a sentence with "at least".

    Examples
    --------
    >>> format_rounded_down(0.59778), format_rounded_down(1e-9)
    ('0.5977', '0')
    """
    return f"{math.floor(1e4 * probability) / 1e4:.4g}"


CHAIN_DELTA_FRACTION = 0.05  # of delta, for the total variation of certified chains
DENSITY_ERROR_FRACTION = 0.0005  # of one draw's epsilon, for the density error of pure chains
MAX_CHAIN_STEPS = 2000
MAX_LENGTHENINGS = 4  # how often four times as many steps are tried in search of a positive hit bound


def budget_per_draw(epsilon: float, delta: float, n_models: int, *, approximate: bool = False) -> float:
    """Return the largest bounded range of one draw such that n_models of them compose to (epsilon, delta).

    delta = 0: epsilon / n_models. Otherwise the composition is inverted numerically; `approximate` inverts only
    n_models e^2 / 8 zCDP, which never gives more.

    Examples
    --------
    >>> round(budget_per_draw(1.0, 0.0, 5), 6), round(budget_per_draw(1.0, 1e-6, 100), 4)
    (0.2, 0.0441)
    """
    plain = epsilon / n_models
    if delta == 0:
        return plain

    def meets_target(value: float) -> bool:
        if approximate:
            return cv.zcdp_delta(n_models * value**2 / 8, epsilon) <= delta
        return compose.compose_delta((BoundedRange(value=value, count=n_models),), epsilon) <= delta

    high = expand_bracket(lambda value: value >= 1e3 or not meets_target(value), 2 * plain)
    assert high is not None
    return bisect_safe_side(meets_target, high / 2, high, relative=1e-4)


def draw_temperature(constants: Constants, tolerance: float, budget: float) -> float:
    """Return the largest inverse temperature whose draw has bounded range `budget`, error of the minimum included."""
    return exponential_temperature(constants, budget, minimum_error(constants, tolerance))


def find_local_temperature(
    constants: Constants,
    *,
    threshold: float,
    tolerance: float,
    epsilon: float,
    delta: float,
    n_models: int = 1,
) -> float:
    """Return the largest inverse temperature found whose n_models draws are (epsilon, delta) by the local bound.

    About epsilon / (Delta sqrt(2 psi / m)) for one draw. The value returned was checked, so that the search need not
    be monotone. 0 where no value meets the target.
    """
    sensitivity, m = mean_gradient_sensitivity(constants), constants.strong_convexity
    if delta == 0 or not m > 0 or not threshold > 0 or constants.dimension is None:
        return 0.0
    shape = LocalRange(
        dimension=constants.dimension,
        inverse_temperature=1.0,
        threshold=threshold,
        strong_convexity=m,
        gradient_sensitivity=sensitivity,
        diameter=constants.diameter,
        minimum_error=minimum_error(constants, tolerance),
    )

    def meets_target(log_beta: float) -> bool:
        try:
            draw = replace(shape, inverse_temperature=math.exp(log_beta))
            if n_models == 1:
                return draw.delta(epsilon) <= delta
            return compose.compose_delta((replace(draw.profile(), count=n_models),), epsilon) <= delta
        except AssumptionFailed:
            return False

    high = math.log(3 * epsilon / (sensitivity * min(math.sqrt(2 * threshold / m), constants.diameter)))
    low = high - math.log(3.0 * 30 * n_models)
    if meets_target(high):
        return math.exp(high)
    if not meets_target(low):
        return 0.0
    n_rounds = 24 if n_models == 1 else 13
    for _ in range(n_rounds):
        middle = (low + high) / 2
        low, high = (middle, high) if meets_target(middle) else (low, middle)
    return math.exp(low)


def calibrate_draws(
    problem: Problem,
    *,
    threshold: float,
    n_models: int,
    epsilon: float,
    delta: float,
    tier: DrawTier,
    ramp: float = 0.0,
) -> RashomonSpec:
    """Calibrate n_models draws of the flat score, at the stated tier, to (epsilon, delta) for all together."""
    constants, tolerance = problem.constants, default_tolerance(problem.constants)
    if tier == "certified" and delta == 0:
        raise InvalidParameter(
            "tier='certified' needs delta > 0; use tier='pure' (or 'exact') for a pure guarantee."
        )
    draws_delta = delta * (1 - CHAIN_DELTA_FRACTION) if tier == "certified" else delta
    budget = budget_per_draw(epsilon, draws_delta, n_models)
    if tier == "pure":
        budget /= 1 + 4.1 * DENSITY_ERROR_FRACTION
    beta = draw_temperature(constants, tolerance, budget)
    if tier != "pure" and ramp == 0:
        # the profile is interpolated on the safe side: allow for it
        local = find_local_temperature(
            constants, threshold=threshold, tolerance=tolerance, epsilon=epsilon * (1 - 3e-3), delta=draws_delta,
            n_models=n_models,
        )  # fmt: skip
        beta = max(beta, local)
    plain = RashomonSpec(
        n_models=n_models,
        threshold=threshold,
        inverse_temperature=beta,
        tolerance=tolerance,
        max_excess=max_excess(problem),
        ramp=ramp,
        target_epsilon=epsilon,
    )
    if tier == "exact":
        return plain
    goal = DENSITY_ERROR_FRACTION * budget
    if tier == "certified":
        goal = total_variation_allowance(CHAIN_DELTA_FRACTION * delta * 0.99, epsilon) / n_models
    return _add_chain(constants, plain, tier, goal)


def score_curvature(constants: Constants) -> float:
    """Return the curvature of the score that describes how many proposals a chain needs (measured).

    The flat part has none: they correspond to about a quarter of the mean curvature.
    """
    return (constants.strong_convexity + constants.data_smoothness / (constants.dimension or 1)) / 4


def _add_chain(constants: Constants, plain: RashomonSpec, tier: DrawTier, goal: float) -> RashomonSpec:
    """Add the step size with the least expected work, and the number of steps that the certificate needs."""
    beta, psi, p = plain.inverse_temperature, plain.threshold, constants.dimension or 1
    ratio = start_log_ratio(p, beta, psi, plain.max_excess)
    error = minimum_error(constants, plain.tolerance)
    rate, cap = poincare_bound(constants, beta, psi + plain.ramp / 2 + error), math.inf
    if tier == "certified" and plain.ramp == 0:
        excess_cap = _find_excess_cap(
            local_range(constants, plain),
            goal / 4,
            start_scale(p, beta, psi, plain.max_excess) * plain.max_excess - psi,
        )
        capped = capped_poincare_bound(constants, psi + excess_cap + error)
        if capped < rate:
            rate, cap, goal = capped, excess_cap, goal / 2

    def steps_needed(eta: float) -> int:
        if tier == "pure":
            return chain.sup_norm_steps(goal, ratio, eta, rate, constants.diameter)
        return chain.total_variation_steps(goal, ratio, eta, rate)

    curvature = beta * score_curvature(constants)
    eta = chain.best_step_size(steps_needed, rate, 0.0, curvature, p)
    return replace(plain, tier=tier, step_size=eta, n_steps=steps_needed(eta), excess_cap=cap)


def _find_excess_cap(draw: LocalRange, goal: float, least: float) -> float:
    """Return an excess above the threshold, at least `least`, beyond which the law has at most this probability."""
    cap = max(draw.dimension / draw.inverse_temperature, 2 * least)
    while draw.tail_mass(cap) > goal:
        cap *= 1.25
    return cap


def calibrate_chains(
    problem: Problem,
    *,
    threshold: float,
    n_models: int,
    epsilon: float,
    delta: float,
    ramp: float,
    n_steps: int | None = None,
) -> RashomonChainSpec:
    """Calibrate chains that are private by their own noise: learning rate 1 / (2 M), steps from the risk bound.

    The bound on the mean score decreases with the number of steps, up to the one that minimizes the risk bound, and
    with the learning rate: where the first choice has a hit bound of 0, longer runs are tried until it is positive.
    """
    if delta == 0:
        raise InvalidParameter("the process tier adds Gaussian noise: state delta > 0, or use route='pure'.")
    constants, full = problem.constants, full_lipschitz(problem)
    if not math.isfinite(full):
        raise AssumptionFailed("the process tier's sensitivity needs a bounded set; state radius.")
    trial = RashomonChainSpec(
        n_models=n_models,
        threshold=threshold,
        inverse_temperature=1.0,
        tolerance=default_tolerance(constants),
        full_lipschitz=full,
        step_size=1.0,
        n_steps=2,
        ramp=ramp,
        interior_minimizers=ramp == 0 and has_interior_minimizers(problem),
    )
    score = score_constants(constants, trial)
    rate = 1 / (2 * (score.smoothness if math.isfinite(score.smoothness) else constants.smoothness))
    sensitivity = score.gradient_sensitivity / constants.n
    mu = cv.gdp_mu(epsilon, delta) / math.sqrt(n_models) * (1 - 1e-6)
    time = math.sqrt(2) * constants.diameter * mu / (sensitivity * math.sqrt(problem.dimension))

    def make_spec(rate: float, max_steps: int) -> RashomonChainSpec:
        steps = n_steps or int(min(max(10, round(time / rate)), max_steps))
        # Gaussian composition at learning rate a = eta beta: mu^2 = beta Delta^2 a K / 2
        beta = 2 * mu**2 / (sensitivity**2 * rate * steps)
        return replace(trial, inverse_temperature=beta, step_size=rate / beta, n_steps=max(2, steps))

    spec = make_spec(rate, MAX_CHAIN_STEPS)
    for times in range(1, MAX_LENGTHENINGS + 1):
        if n_steps is not None or chain_hit_bound(constants, spec) > 0:
            break
        other = make_spec(rate / min(2**times, 4), 4**times * MAX_CHAIN_STEPS)
        if chain_hit_bound(constants, other) > 0:
            spec = other
    if not spec.inverse_temperature > 0:
        raise CalibrationFailed("epsilon is too small for double precision; raise it.")
    return spec


def chain_hit_bound(constants: Constants, spec: RashomonChainSpec) -> float:
    """Return a lower bound on the probability that a chain ends within 2 psi of the minimum."""
    mean = chain_score_mean(
        constants.dimension or 1,
        spec.inverse_temperature,
        spec.step_size * spec.inverse_temperature,
        spec.n_steps,
        constants.diameter,
        score_constants(constants, spec).smoothness,
        spec.full_lipschitz,
    )
    return chain_hit_probability(mean, spec.threshold, spec.ramp)


MIN_USEFUL_HIT_PROBABILITY = 0.5
"""Draws that fall in the set less often than this say more about the noise than about the set."""


@dataclass(frozen=True, kw_only=True)
class SamplingAdvice:
    """The hit bound of a number of models, a threshold and a budget, and the nearest choices that are worth running.

    Parameters
    ----------
    hit_probability : a draw falls in the set with at least this probability (route "pure").
    inverse_temperature : of one draw.
    max_models : the largest K that is worth running at this threshold and budget, 0 when none is.
    min_threshold, min_epsilon : the smallest threshold, and the smallest budget, worth running with this K.
    """

    n: int
    dimension: int
    threshold: float
    n_models: int
    epsilon: float
    delta: float
    inverse_temperature: float
    hit_probability: float
    max_models: int
    min_threshold: float
    min_epsilon: float

    @property
    def is_worth_running(self) -> bool:
        """Whether draws fall in the set often enough to describe it."""
        return self.hit_probability >= MIN_USEFUL_HIT_PROBABILITY

    def __str__(self) -> str:
        budget = f"epsilon = {self.epsilon:g}" + (f", delta = {self.delta:g}" if self.delta else " (pure)")
        lines = [
            f"At n = {self.n}, p = {self.dimension}, psi = {self.threshold:g}, {self.n_models} model(s) under {budget} "
            f"in all, the draws fall in the set with probability at least {format_rounded_down(self.hit_probability)}.",
        ]
        if self.is_worth_running:
            lines.append(
                f"Worth running (at least {MIN_USEFUL_HIT_PROBABILITY:g}); up to {self.max_models} models would be."
            )
        else:
            models_text = f"at most {self.max_models} model(s)" if self.max_models else "no number of models"
            lines.append(
                f"Not worth running as it is (below {MIN_USEFUL_HIT_PROBABILITY:g}): {models_text} at this psi and "
                f"budget, or psi of at least {self.min_threshold:.3g} or epsilon of at least {self.min_epsilon:.3g} "
                "with this many."
            )
        return "\n".join(lines)


def advise_sampling(
    constants: Constants, *, threshold: float, n_models: int, epsilon: float, delta: float = 0.0
) -> SamplingAdvice:
    """Return what is worth running for these public constants (dimension, ridge and a bounded set are needed).

    Examples
    --------
    >>> constants = Constants(n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, diameter=2.0,
    ...                       dimension=10)
    >>> print(advise_sampling(constants, threshold=0.05, n_models=5, epsilon=1.0))
    At n = 30000, p = 10, psi = 0.05, 5 model(s) under epsilon = 1 (pure) in all, the draws fall in the set with
    probability at least 0.8686.
    Worth running (at least 0.5); up to 20 models would be.
    """
    psi, models = _check.check_nonnegative("threshold", threshold), _check.check_count("n_models", n_models)
    budget = _check.check_positive("epsilon", epsilon)
    tolerance, p = default_tolerance(constants), constants.dimension or 1

    def hit_probability(count: int, psi: float, epsilon: float) -> float:
        beta = draw_temperature(
            constants, tolerance, budget_per_draw(epsilon, delta, count, approximate=True)
        )
        return law_hit_probability(p, beta, psi)

    beta = draw_temperature(constants, tolerance, budget_per_draw(budget, delta, models))

    return SamplingAdvice(
        n=constants.n,
        dimension=p,
        threshold=psi,
        n_models=models,
        epsilon=budget,
        delta=delta,
        inverse_temperature=beta,
        hit_probability=law_hit_probability(p, beta, psi),
        max_models=_find_max_count(
            lambda count: hit_probability(count, psi, budget) >= MIN_USEFUL_HIT_PROBABILITY
        ),
        min_threshold=_find_min_value(
            lambda value: hit_probability(models, value, budget) >= MIN_USEFUL_HIT_PROBABILITY, max(psi, 1e-6)
        ),
        min_epsilon=_find_min_value(
            lambda value: hit_probability(models, psi, value) >= MIN_USEFUL_HIT_PROBABILITY, budget
        )
        if psi > 0
        else float("inf"),
    )


def _find_max_count(is_good: Callable[[int], bool], cap: int = 10_000) -> int:
    """Return the largest count up to cap for which a decreasing predicate holds, 0 when it does not hold for 1."""
    if not is_good(1):
        return 0
    high = expand_bracket(lambda count: not is_good(count), 2, cap)
    if high is None and is_good(cap):
        return cap
    return bisect_integers(is_good, (high or cap) // 2, high or cap)


def _find_min_value(is_good: Callable[[float], bool], start: float) -> float:
    """Return the smallest value for which an increasing predicate holds, to three digits; inf beyond 1e6 * start."""
    high = expand_bracket(is_good, start, 1e6 * start)
    if high is None:
        return float("inf")
    low = high / 2
    while is_good(low):
        low, high = low / 2, low
        if low < 1e-9 * start:
            return high
    return bisect_safe_side(is_good, high, low, relative=0.002, geometric=True)
