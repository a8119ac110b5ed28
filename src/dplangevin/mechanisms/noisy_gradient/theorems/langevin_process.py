"""Privacy of Langevin diffusion and of SGLD as noisy gradient methods, in the papers' (beta, eta) parameters.

    diffusion:  d theta = -beta_t grad F dt + sqrt(2) dW (reflected on the set),
    SGLD:       theta <- project(theta - eta beta grad F(theta) + N(0, 2 eta I)).

Trajectory: Gaussian composition (Ganesh, Thakurta and Upadhyay 2022, lemma C.1, sharpened to GDP). Last
iterate: Bok, Su and Altschuler (2024) with optimal shifts. Delta is the sensitivity of grad F. The start
does not depend on the data. Lemma 3.1 of Ganesh, Thakurta and Upadhyay (2023) is not used: as printed
its beta is too large by a factor of 1.6 to 2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.theorem import COMMON_ASSUMPTIONS, round_up
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exponential.law_guarantees import mean_gradient_sensitivity
from dplangevin.mechanisms.noisy_gradient.theorems.composition import contraction_bound
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import best_restart_mu, same_start_mu
from dplangevin.problem.constants import Constants

TRAJECTORY_REFERENCE = "Ganesh, Thakurta and Upadhyay (2022), lemma C.1, as Gaussian differential privacy"
LAST_REFERENCE = "Bok, Su and Altschuler (2024), sections 3 and 4 (shifted interpolation)"
IDEAL_DIFFUSION_ASSUMPTION = (
    "the continuous diffusion is run exactly (no software does: use the SGLD guarantee of the run itself)"
)
PUBLIC_START_ASSUMPTION = "the start does not depend on the private data"
LAST_ITERATE_ASSUMPTION = (
    "only the last iterate is released: no other iterate, average or data-dependent stopping time"
)


def langevin_trajectory_guarantee(constants: Constants, squared_temperature_integral: float) -> Guarantee:
    """Return the guarantee of the whole path of the ideal diffusion: mu^2 = (Delta^2 / 2) integral of beta_t^2.

    Informational: no software runs the continuous diffusion.
    """
    integral = _check.check_positive("squared_temperature_integral", squared_temperature_integral)
    mu = mean_gradient_sensitivity(constants) * math.sqrt(integral / 2)
    return _make_guarantee(
        constants,
        mu,
        "trajectory",
        "Langevin trajectory",
        TRAJECTORY_REFERENCE,
        (IDEAL_DIFFUSION_ASSUMPTION, PUBLIC_START_ASSUMPTION),
    )


def langevin_last_iterate_guarantee(
    constants: Constants, inverse_temperature: float, time: float
) -> Guarantee:
    """Return the guarantee of the end point of the ideal diffusion: mu^2 = (beta Delta^2 / m) tanh(beta m T / 2).

    F is m-strongly convex; m = 0 gives the limit Delta^2 beta^2 T / 2. Informational, as above.
    """
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    t = _check.check_positive("time", time, infinite=True)
    _check_convex(constants, "the last-iterate bound")
    ridge, delta = constants.strong_convexity, mean_gradient_sensitivity(constants)
    square = (
        delta**2 * beta * math.tanh(beta * ridge * t / 2) / ridge if ridge > 0 else delta**2 * beta**2 * t / 2
    )
    return _make_guarantee(
        constants,
        math.sqrt(square),
        "last-iterate",
        "Langevin last iterate",
        LAST_REFERENCE,
        (IDEAL_DIFFUSION_ASSUMPTION, PUBLIC_START_ASSUMPTION, LAST_ITERATE_ASSUMPTION),
    )


def sgld_trajectory_guarantee(
    constants: Constants, inverse_temperature: ArrayLike, step_size: ArrayLike, n_steps: int
) -> Guarantee:
    """Return the guarantee of every iterate of SGLD: mu^2 = (Delta^2 / 2) sum_t beta_t^2 eta_t.

    It needs no convexity and is exact for the discrete chain. Averages, checkpoints, projections and stopping before
    n_steps are post-processing.
    """
    steps = _check.check_count("n_steps", n_steps)
    beta = _per_step_array("inverse_temperature", inverse_temperature, steps)
    eta = _per_step_array("step_size", step_size, steps)
    mu = mean_gradient_sensitivity(constants) * math.sqrt(float(np.sum(beta**2 * eta)) / 2)
    return _make_guarantee(
        constants, mu, "trajectory", "SGLD trajectory", TRAJECTORY_REFERENCE, (PUBLIC_START_ASSUMPTION,)
    )


def sgld_trajectory_temperature(constants: Constants, mu: float, step_size: float, n_steps: int) -> float:
    """Return the largest constant beta with a mu-GDP trajectory: mu sqrt(2 / (eta K)) / Delta."""
    delta = mean_gradient_sensitivity(constants)
    eta, steps = _check.check_positive("step_size", step_size), _check.check_count("n_steps", n_steps)
    beta = _check.check_positive("mu", mu) * math.sqrt(2 / (eta * steps)) / delta
    while round_up(delta * beta * math.sqrt(eta * steps / 2)) > mu:
        beta *= 1 - 1e-9
    return beta


def sgld_last_iterate_guarantee(
    constants: Constants, inverse_temperature: float, step_size: float, n_steps: int | float
) -> Guarantee:
    """Return the guarantee of the last iterate of SGLD, constant beta and eta, convex smooth F; a = eta beta.

    With c = max{|1 - a m|, |1 - a M|}: for c < 1, mu^2 = (beta^2 Delta^2 eta / 2) ((1 - c^K)/(1 + c^K))
    ((1 + c)/(1 - c)), bounded in K; on a set of finite diameter also min over t <= K of
    (c^t diam + s (1 - c^t)/(1 - c))^2 (1 - c^2) / ((1 - c^{2t}) sigma^2), s = a Delta, sigma^2 = 2 eta.
    """
    mu = _last_iterate_mu(constants, inverse_temperature, step_size, n_steps)
    assumptions = (PUBLIC_START_ASSUMPTION, LAST_ITERATE_ASSUMPTION)
    return _make_guarantee(constants, mu, "last-iterate", "SGLD last iterate", LAST_REFERENCE, assumptions)


def _last_iterate_mu(
    constants: Constants, inverse_temperature: float, step_size: float, n_steps: int | float
) -> float:
    beta = _check.check_positive("inverse_temperature", inverse_temperature)
    eta, steps = (
        _check.check_positive("step_size", step_size),
        _check.check_count_or_infinity("n_steps", n_steps),
    )
    _check_convex(constants, "the last-iterate bound")
    if constants.projection_error > 0:
        raise AssumptionFailed(
            "the last-iterate bound does not apply: the projection is not exact. Use the trajectory bound."
        )
    rate = contraction_bound(constants, eta * beta)
    if not rate <= 1:
        raise AssumptionFailed(
            f"the last-iterate bound does not apply: a step of eta beta = {eta * beta!r} is not a "
            f"contraction. Take eta beta <= 2/M = {2 / constants.smoothness!r}, or use the trajectory bound."
        )
    shift, noise = eta * beta * mean_gradient_sensitivity(constants), math.sqrt(2 * eta)
    fresh = same_start_mu(shift, noise, rate, steps)
    return min(fresh, best_restart_mu(shift, noise, rate, constants.diameter, steps))


def underdamped_trajectory_guarantee(
    constants: Constants, inverse_temperature: float, friction: float, inverse_mass: float, time: float
) -> Guarantee:
    """Return the guarantee of underdamped Langevin with exact steps: mu = beta Delta sqrt(tau mu_0 / (2 gamma)).

    Per unit of time the velocity's drift moves by mu_0 beta Delta against noise of variance 2 gamma mu_0.
    """
    strength = _check.check_positive("inverse_temperature", inverse_temperature) * mean_gradient_sensitivity(
        constants
    )
    gamma, mass = (
        _check.check_positive("friction", friction),
        _check.check_positive("inverse_mass", inverse_mass),
    )
    mu = strength * math.sqrt(_check.check_positive("time", time) * mass / (2 * gamma))
    return _make_guarantee(
        constants,
        mu,
        "trajectory",
        "underdamped trajectory",
        "Ganesh (2022, thesis), fact 15",
        (PUBLIC_START_ASSUMPTION,),
    )


def _per_step_array(name: str, value: ArrayLike, steps: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    numbers = np.asarray(value, float)
    if numbers.ndim > 1 or (numbers.ndim == 1 and numbers.size != steps):
        raise InvalidParameter(
            f"{name} must be one number or one per step ({steps}), got shape {numbers.shape}."
        )
    if not np.all(numbers > 0) or not np.all(np.isfinite(numbers)):
        raise InvalidParameter(f"{name} must be positive and finite, got {value!r}.")
    return np.broadcast_to(numbers, (steps,)).copy()


def _check_convex(constants: Constants, what: str) -> None:
    if not constants.convex:
        raise AssumptionFailed(f"{what} does not apply: the loss is not convex. Use the trajectory bound.")


def _make_guarantee(
    constants: Constants, mu: float, release: str, theorem: str, reference: str, assumptions: tuple[str, ...]
) -> Guarantee:
    if not math.isfinite(mu):
        raise AssumptionFailed(
            f"{theorem} gives no finite bound for this run. Give a finite number of steps, a ridge, or a bounded set."
        )
    return Guarantee(
        parts=(Gaussian(mu=round_up(mu)),),
        adjacency=constants.adjacency,
        release=release,
        theorem=theorem,
        reference=reference,
        assumptions=(*constants.assumptions, *assumptions, *COMMON_ASSUMPTIONS),
    )
