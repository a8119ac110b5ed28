"""From a promise to a schedule: the inverse temperature that K draws, or K chains, may use. Public quantities only."""

from __future__ import annotations

import math
from dataclasses import replace

from dplangevin._search import bisected, grown_until
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.families._minimiser import default_tolerance
from dplangevin.families.draws.schedule import DrawTier
from dplangevin.families.draws.theorems.exponential_mechanism import exponential_temperature
from dplangevin.families.draws.theorems.sampler_certificates import total_variation_allowance
from dplangevin.families.rashomon.hit import chain_hit_probability, chain_score_mean
from dplangevin.families.rashomon.schedule import RashomonChainSchedule, RashomonSchedule
from dplangevin.families.rashomon.theorem import minimum_error, poincare, score_constants, start_ratio
from dplangevin.privacy import compose, conversions as cv, proximal_certificate as chain
from dplangevin.privacy.parts import BoundedRange
from dplangevin.problem import Problem
from dplangevin.problem.constants import Constants
from dplangevin.problem.reach import full_lipschitz, interior_minimisers, largest_excess

SAMPLER_SHARE = 0.05  # of delta, for the total variation of certified chains
DENSITY_ERROR = 0.0005  # of one draw's epsilon, for the density error of pure chains
MOST_CHAIN_STEPS = 2000
LONGER_RUNS = 4  # times that four times as many steps are tried for a positive hit bound


def per_draw(epsilon: float, delta: float, n_models: int, *, quick: bool = False) -> float:
    """The largest bounded range of one draw such that n_models of them meet (epsilon, delta).

    delta = 0: epsilon / n_models. Otherwise the composition of a guarantee, inverted; `quick` inverts only
    n_models e^2 / 8 zCDP, which is never larger.

    Examples
    --------
    >>> round(per_draw(1.0, 0.0, 5), 6), round(per_draw(1.0, 1e-6, 100), 4)
    (0.2, 0.0441)
    """
    plain = epsilon / n_models
    if delta == 0:
        return plain

    def met(value: float) -> bool:
        if quick:
            return cv.zcdp_delta(n_models * value**2 / 8, epsilon) <= delta
        return compose.delta((BoundedRange(value=value, count=n_models),), epsilon) <= delta

    high = grown_until(lambda value: value >= 1e3 or not met(value), 2 * plain)
    assert high is not None
    return bisected(met, high / 2, high, relative=1e-4)


def draw_temperature(constants: Constants, tolerance: float, budget: float) -> float:
    """The largest inverse temperature whose draw has bounded range `budget`, error of the minimum included."""
    return exponential_temperature(constants, budget, minimum_error(constants, tolerance))


def draw_schedule(
    problem: Problem,
    *,
    threshold: float,
    n_models: int,
    epsilon: float,
    delta: float,
    tier: DrawTier,
    ramp: float = 0.0,
) -> RashomonSchedule:
    """Draws of the flat score under (epsilon, delta) in all, at the stated tier."""
    constants, tolerance = problem.constants, default_tolerance(problem.constants)
    if tier == "certified" and delta == 0:
        raise InvalidParameter(
            "tier='certified' needs delta > 0; use tier='pure' (or 'exact') for a pure promise."
        )
    left = delta * (1 - SAMPLER_SHARE) if tier == "certified" else delta
    budget = per_draw(epsilon, left, n_models)
    if tier == "pure":
        budget /= 1 + 4.1 * DENSITY_ERROR
    beta = draw_temperature(constants, tolerance, budget)
    plain = RashomonSchedule(
        n_models=n_models,
        threshold=threshold,
        inverse_temperature=beta,
        tolerance=tolerance,
        excess=largest_excess(problem),
        ramp=ramp,
        at_epsilon=epsilon,
    )
    if tier == "exact":
        return plain
    goal = DENSITY_ERROR * budget
    if tier == "certified":
        goal = total_variation_allowance(SAMPLER_SHARE * delta * 0.99, epsilon) / n_models
    return _with_chain(constants, plain, tier, goal)


def _with_chain(
    constants: Constants, plain: RashomonSchedule, tier: DrawTier, goal: float
) -> RashomonSchedule:
    """The step size with the least expected work, and the proved number of steps."""
    beta, psi, p = plain.inverse_temperature, plain.threshold, constants.dimension or 1
    ratio = start_ratio(p, beta, psi, plain.excess)
    rate = poincare(constants, beta, psi + plain.ramp / 2 + minimum_error(constants, plain.tolerance))

    def steps(eta: float) -> int:
        if tier == "pure":
            return chain.sup_norm_steps(goal, ratio, eta, rate, constants.diameter)
        return chain.total_variation_steps(goal, ratio, eta, rate)

    # the flat part has no curvature: a quarter of the mean curvature is what proposals were seen to cost
    curvature = beta * constants.data_smoothness / (4 * p)
    eta = chain.best_step_size(steps, rate, 0.0, curvature, p)
    return replace(plain, tier=tier, step_size=eta, n_steps=steps(eta))


def chain_schedule(
    problem: Problem,
    *,
    threshold: float,
    n_models: int,
    epsilon: float,
    delta: float,
    ramp: float,
    n_steps: int | None = None,
) -> RashomonChainSchedule:
    """Chains whose noise is the privacy: learning rate 1 / (2 M) of the score, steps as its risk bound wants.

    The bound on the mean score falls with the number of steps until the risk bound has enough, and with the learning
    rate: where the first choice promises nothing, longer runs are tried until the hit bound is positive.
    """
    if delta == 0:
        raise InvalidParameter("the process tier adds Gaussian noise: state delta > 0, or use route='pure'.")
    constants, full = problem.constants, full_lipschitz(problem)
    if not math.isfinite(full):
        raise AssumptionFailed("the process tier's sensitivity needs a bounded set; state radius.")
    trial = RashomonChainSchedule(
        n_models=n_models,
        threshold=threshold,
        inverse_temperature=1.0,
        tolerance=default_tolerance(constants),
        full_lipschitz=full,
        step_size=1.0,
        n_steps=2,
        ramp=ramp,
        interior=ramp == 0 and interior_minimisers(problem),
    )
    score = score_constants(constants, trial)
    rate = 1 / (2 * (score.smoothness if math.isfinite(score.smoothness) else constants.smoothness))
    sensitivity = score.gradient_sensitivity / constants.n
    mu = cv.gdp_mu(epsilon, delta) / math.sqrt(n_models) * (1 - 1e-6)
    time = math.sqrt(2) * constants.diameter * mu / (sensitivity * math.sqrt(problem.dimension))

    def made_with(rate: float, most: int) -> RashomonChainSchedule:
        steps = n_steps or int(min(max(10, round(time / rate)), most))
        # Gaussian composition at learning rate a = eta beta: mu^2 = beta Delta^2 a K / 2
        beta = 2 * mu**2 / (sensitivity**2 * rate * steps)
        return replace(trial, inverse_temperature=beta, step_size=rate / beta, n_steps=max(2, steps))

    made = made_with(rate, MOST_CHAIN_STEPS)
    for times in range(1, LONGER_RUNS + 1):
        if n_steps is not None or chain_hit(constants, made) > 0:
            break
        other = made_with(rate / min(2**times, 4), 4**times * MOST_CHAIN_STEPS)
        if chain_hit(constants, other) > 0:
            made = other
    if not made.inverse_temperature > 0:
        raise CalibrationFailed("epsilon is too small for double precision; raise it.")
    return made


def chain_hit(constants: Constants, schedule: RashomonChainSchedule) -> float:
    """The bound on the chance that a chain ends within 2 psi."""
    mean = chain_score_mean(
        constants.dimension or 1,
        schedule.inverse_temperature,
        schedule.step_size * schedule.inverse_temperature,
        schedule.n_steps,
        constants.diameter,
        score_constants(constants, schedule).smoothness,
        schedule.full_lipschitz,
    )
    return chain_hit_probability(mean, schedule.threshold, schedule.ramp)
