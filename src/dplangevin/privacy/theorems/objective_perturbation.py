"""Objective perturbation: privacy of the minimiser of a randomly tilted objective.

With Phi(theta) = sum_i loss_i + (Lambda / 2) |theta|^2, the minimiser of Phi + <b, theta> solves b = -grad Phi, a
bijection, so its density is noise_density(-grad Phi(theta)) det(Hessian of Phi)(theta). Between neighbours the first
factor moves by the change of a gradient, the second by at most (1 + M / Lambda)^rank, once: both neighbours are a
common part A >= Lambda I plus one positive semidefinite term each, and det(A + h) / det(A + h') <= det(A + h) / det A.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc, gammaln

from dplangevin import _check
from dplangevin.errors import CalibrationFailed
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Profile, Pure
from dplangevin.privacy.theorem import TheoremFor, inflated
from dplangevin.privacy.theorems._minimiser import (
    ASSUMPTIONS,
    check_minimiser,
    default_tolerance,
    deflated,
    total_ridge,
)
from dplangevin.problem.constants import Constants
from dplangevin.schedules import ObjectivePerturbationSchedule

Floats = NDArray[np.float64]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


class ObjectivePerturbation(TheoremFor[ObjectivePerturbationSchedule]):
    """Delta / noise_scale + rank log(1 + M / Lambda) + 2 tolerance / (Lambda release_noise), with delta = 0.

    M is the curvature of one record (its row norm squared), Lambda = n ridge. A convex constraint is allowed: add
    k dist(theta, set)^2 / 2 to both objectives, which changes nothing in the proof, and let k grow.
    """

    name = "objective-perturbation"
    reference = (
        "Chaudhuri, Monteleoni and Sarwate (2011), Theorem 9, with the determinant counted once; "
        "Kifer, Smith and Thakurta (2012), Theorem 2 (constraints)"
    )

    def certify(self, constants: Constants, schedule: ObjectivePerturbationSchedule) -> Guarantee:
        if schedule.noise != "gamma":
            raise self.refuse(f"noise={schedule.noise!r} gives no pure promise", "Use noise='gamma'.")
        fixed = fixed_cost(self, constants, schedule)
        total = inflated(constants.gradient_sensitivity / schedule.noise_scale + fixed)
        return self.guarantee(constants, schedule, (Pure(value=total),), ASSUMPTIONS)


class GaussianObjectivePerturbation(TheoremFor[ObjectivePerturbationSchedule]):
    """delta(eps) = E max(0, 1 - exp(eps - fixed - mu R - mu^2 / 2)), mu = Delta / noise_scale, R ~ chi(k).

    fixed is the determinant and solver part of the pure theorem. At the point theta the log density ratio of the
    noises is (2 <b, v> + |v|^2) / (2 noise_scale^2), where v, the change of the gradient, may depend on b but lies in
    a fixed space of dimension k (that of one record's gradients, or of two under replace-one) and in the ball of
    radius Delta: it is at most mu R + mu^2 / 2 with R the norm of b's projection on the space over noise_scale.
    """

    name = "gaussian-objective-perturbation"
    reference = (
        "Kifer, Smith and Thakurta (2012); Redberg, Koskela and Wang (2023); chi bound proved in docs/theory/planner.md"
    )

    def certify(self, constants: Constants, schedule: ObjectivePerturbationSchedule) -> Guarantee:
        if schedule.noise != "gaussian":
            raise self.refuse(f"noise={schedule.noise!r} is not Gaussian", "Use noise='gaussian'.")
        fixed = inflated(fixed_cost(self, constants, schedule))
        assert constants.hessian_rank is not None and constants.dimension is not None
        space = constants.hessian_rank * (2 if constants.adjacency == "replace-one" else 1)
        space = min(space, constants.dimension)
        mu = inflated(constants.gradient_sensitivity / schedule.noise_scale)
        grid = fixed + mu * mu / 2 + mu * np.linspace(0.0, math.sqrt(space) + 9.0, 400)
        grid = np.concatenate([np.linspace(0.0, grid[0], 20)[:-1], grid])
        deltas = np.minimum.accumulate(chi_profile(mu, space, grid - fixed))
        part = Profile(epsilons=tuple(grid.tolist()), deltas=tuple(deltas.tolist()))
        return self.guarantee(constants, schedule, (part,), ASSUMPTIONS)


def fixed_cost(
    theorem: TheoremFor[ObjectivePerturbationSchedule], constants: Constants, schedule: ObjectivePerturbationSchedule
) -> float:
    """The determinant part and the solver part, after checking their hypotheses."""
    check_minimiser(theorem, constants, schedule.tolerance)
    if constants.hessian_rank is None or constants.dimension is None:
        raise theorem.refuse(
            "the rank of one record's Hessian or the dimension is not stated",
            "Build the plan from a Problem, or state hessian_rank and dimension.",
        )
    return determinant_cost(constants) + 2 * schedule.tolerance / (total_ridge(constants) * schedule.release_noise)


def determinant_cost(constants: Constants) -> float:
    """rank log(1 + M / Lambda): what the change of one record's Hessian costs, whatever the noise."""
    curvature = constants.data_smoothness + 1e-15 * constants.smoothness
    return (constants.hessian_rank or 1) * math.log1p(curvature / total_ridge(constants))


def chi_profile(mu: float, space: int, epsilons: Floats) -> Floats:
    """E max(0, 1 - exp(eps - mu R - mu^2 / 2)), R ~ chi(space), rounded up; the integrand is positive."""
    excess = np.asarray(epsilons, float) - mu * mu / 2
    first = np.maximum(excess / mu, 0.0)[:, None]
    width = 12.0 + math.sqrt(space)
    r = first + width * (_NODES + 1) / 2
    with np.errstate(divide="ignore"):
        log_density = (space - 1) * np.log(r) - r * r / 2 + (1 - space / 2) * math.log(2) - gammaln(space / 2)
    loss = -np.expm1(np.minimum(excess[:, None] - mu * r, 0.0))
    inside = (np.exp(log_density) * loss) @ _WEIGHTS * (width / 2)
    beyond = gammaincc(space / 2, (first[:, 0] + width) ** 2 / 2)
    return np.asarray(np.minimum(1.0, inside * (1 + 1e-9) + beyond))


def calibrated_objective_perturbation(
    constants: Constants, *, epsilon: float, delta: float = 0.0, solver_share: float = 0.01
) -> ObjectivePerturbationSchedule:
    """The schedule with the least noise that meets (epsilon, delta) for the ridge of these constants.

    delta = 0 uses Gamma-norm noise, delta > 0 Gaussian noise; solver_share of epsilon pays for the solver.

    Examples
    --------
    >>> constants = Constants(n=1000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, dimension=5, hessian_rank=1)
    >>> schedule = calibrated_objective_perturbation(constants, epsilon=1.0)
    >>> round(schedule.noise_scale, 4), round(ObjectivePerturbation().certify(constants, schedule).epsilon(), 6)
    (2.0722, 1.0)
    """
    _check.positive("epsilon", epsilon)
    share = _check.open_unit("solver_share", solver_share)
    theorem = ObjectivePerturbation() if delta == 0 else GaussianObjectivePerturbation()
    check_minimiser(theorem, constants, default_tolerance(constants))
    left = deflated(epsilon) * (1 - share) - determinant_cost(constants)
    if not left > 0:
        least = constants.data_smoothness / constants.n / math.expm1(epsilon / 2 / (constants.hessian_rank or 1))
        raise CalibrationFailed(
            f"epsilon = {epsilon:g} is below the cost of the curvature at ridge = {constants.strong_convexity:g}; "
            f"raise ridge (at {least:g} half of epsilon is left for the noise)."
        )

    def schedule(scale: float) -> ObjectivePerturbationSchedule:
        tolerance = max(default_tolerance(constants), 2.0**-44 * (constants.dimension or 1) * scale)
        paid = total_ridge(constants) * share * deflated(epsilon)
        return ObjectivePerturbationSchedule(
            noise_scale=scale, tolerance=tolerance, release_noise=2 * tolerance / paid * (1 + 1e-14),
            noise="gamma" if delta == 0 else "gaussian",
        )

    if delta == 0:
        return schedule(constants.gradient_sensitivity / left * (1 + 1e-14))
    _check.open_unit("delta", delta)
    low, high = 0.0, constants.gradient_sensitivity / left
    while theorem.certify(constants, schedule(high)).epsilon(delta) > epsilon:
        low, high = high, 2 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        enough = theorem.certify(constants, schedule(middle)).epsilon(delta) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
        if high - low <= 1e-6 * high:
            break
    return schedule(high)
