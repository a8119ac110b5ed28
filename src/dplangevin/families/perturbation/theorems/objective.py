"""Objective perturbation: privacy of the minimiser of a randomly tilted objective.

With Phi(theta) = sum_i loss_i + (Lambda / 2) |theta|^2, the minimiser of Phi + <b, theta> solves b = -grad Phi, a
bijection, so its density is noise_density(-grad Phi(theta)) det(Hessian of Phi)(theta). Between neighbours the first
factor moves by the change of a gradient, the second by at most (1 + M / Lambda)^rank, once: both neighbours are a
common part A >= Lambda I plus one positive semidefinite term each, and det(A + h) / det(A + h') <= det(A + h) / det A.
"""

from __future__ import annotations

import math

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import bisected, grown_until
from dplangevin.errors import CalibrationFailed
from dplangevin.families._minimiser import (
    SOLVER_CONVERGES,
    check_minimiser,
    default_tolerance,
    deflated,
    total_ridge,
    words,
)
from dplangevin.families.perturbation.schedule import ObjectivePerturbationSchedule, PerturbationNoise
from dplangevin.privacy.conversions import gdp_delta
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Profile, Pure
from dplangevin.privacy.theorem import Theorem, inflated
from dplangevin.problem.constants import Constants


class ObjectivePerturbationTheorem(
    Theorem[ObjectivePerturbationSchedule],
    name="objective-perturbation",
    proof="docs/theory/planner.md, section 1",
):
    """Delta / density_scale + rank log(1 + M / Lambda) + 2 tolerance / (Lambda release_density_scale), with delta = 0.

    M is the curvature of one record (its row norm squared), Lambda = n ridge. A convex constraint is allowed: add
    k dist(theta, set)^2 / 2 to both objectives, which changes nothing in the proof, and let k grow.
    """

    reference = (
        "Chaudhuri, Monteleoni and Sarwate (2011), Theorem 9, with the determinant counted once; "
        "Kifer, Smith and Thakurta (2012), Theorem 2 (constraints)"
    )
    beyond_n = (
        "neighbours share a part of curvature at least Lambda = n ridge, whatever the number of other records"
    )

    def promise(self, constants: Constants, schedule: ObjectivePerturbationSchedule) -> Guarantee:
        if schedule.noise != "gamma":
            raise self.refuse(f"noise={schedule.noise!r} gives no pure promise", "Use noise='gamma'.")
        noise = constants.gradient_sensitivity / schedule.density_scale
        total = inflated(noise + sum(fixed_costs(self, constants, schedule)))
        return self.guarantee(
            constants,
            schedule,
            (Pure(value=total),),
            words(schedule.iterations),
            conditions=(SOLVER_CONVERGES,),
        )


class GaussianObjectivePerturbation(
    Theorem[ObjectivePerturbationSchedule],
    name="gaussian-objective-perturbation",
    proof="docs/theory/planner.md, section 2",
):
    """(epsilon, delta) with Gaussian noise: a few times the curve of one Gaussian mechanism, see `corner_profile`.

    At the point theta the log density ratio of the noises is (2 <b, v> + |v|^2) / (2 density_scale^2), v the change of
    the gradient. v depends on b, but lies in a fixed polytope and the ratio is convex in v, so it is at most the
    largest of the ratios at the corners, each of which is that of a Gaussian mechanism.
    """

    reference = (
        "Kifer, Smith and Thakurta (2012), Theorem 2; Redberg, Koskela and Wang (2023); "
        "the corner bound is proved in docs/theory/planner.md"
    )
    beyond_n = "as for the pure promise"

    def promise(self, constants: Constants, schedule: ObjectivePerturbationSchedule) -> Guarantee:
        if schedule.noise != "gaussian":
            raise self.refuse(f"noise={schedule.noise!r} is not Gaussian", "Use noise='gaussian'.")
        curvature, solver = (inflated(cost) for cost in fixed_costs(self, constants, schedule))
        reach = constants.lipschitz * (2 if constants.adjacency == "replace-one" else 1)
        mu = inflated(reach / schedule.density_scale)
        if mu > 30:
            raise self.refuse(
                f"the noise is {mu:g} times smaller than one record's reach", "Raise density_scale."
            )
        grid = curvature + mu * mu / 2 + mu * np.linspace(0.0, 10.0, 400)
        grid = np.concatenate([np.linspace(0.0, grid[0], 20)[:-1], grid])
        deltas = np.minimum.accumulate(corner_profile(constants, mu, curvature, grid))
        part = Profile(epsilons=tuple((grid + solver).tolist()), deltas=tuple(deltas.tolist()))
        return self.guarantee(
            constants, schedule, (part,), words(schedule.iterations), conditions=(SOLVER_CONVERGES,)
        )


def corner_profile(constants: Constants, mu: float, curvature: float, epsilons: Floats) -> Floats:
    """delta(eps) of the exact minimiser; H_mu is the curve of mu-GDP, r the rank, c the curvature cost.

    A record's gradients lie in a simplex of r + 1 corners. replace-one: (r + 1)^2 H_mu(eps - c); for r = 1 the four
    corners form a parallelogram, so 2 sup_q H_{mu sqrt q}(eps - c) + H_{mu sqrt(1 - q)}(eps - c). add-remove: without
    the record against with it (r + 1) H_mu(eps), and conversely (r + 1) H_mu(eps - c), for r = 1 and eps - c >= mu^2/2
    only H_mu(eps - c), since the change of the gradient falls as <b, x> grows.
    """
    rank, later = constants.hessian_rank or 1, epsilons - curvature
    if constants.adjacency == "add-remove":
        with_record = (rank + 1) * gdp_delta(mu, later)
        if rank == 1:
            with_record = np.where(later >= mu * mu / 2, gdp_delta(mu, later), with_record)
        deltas = np.maximum((rank + 1) * gdp_delta(mu, epsilons), with_record)
    elif rank == 1:
        shares = np.linspace(0.0, 1.0, 17)  # H grows with q: the upper ends of a cell bound it
        curves = np.array([2 * gdp_delta(mu * math.sqrt(share), later) for share in shares])
        deltas = (curves[1:] + curves[:0:-1]).max(axis=0)
    else:
        deltas = (rank + 1) ** 2 * gdp_delta(mu, later)
    return np.asarray(np.minimum(1.0, deltas * (1 + 1e-9)))


def fixed_costs(
    theorem: Theorem[ObjectivePerturbationSchedule],
    constants: Constants,
    schedule: ObjectivePerturbationSchedule,
) -> tuple[float, float]:
    """The determinant part and the solver part, after checking their hypotheses."""
    check_minimiser(theorem, constants, schedule.tolerance)
    if constants.hessian_rank is None or constants.dimension is None:
        raise theorem.refuse(
            "the rank of one record's Hessian or the dimension is not stated",
            "Build the plan from a Problem, or state hessian_rank and dimension.",
        )
    solver = 2 * schedule.tolerance / (total_ridge(constants) * schedule.release_density_scale)
    return determinant_cost(constants), solver


def determinant_cost(constants: Constants) -> float:
    """rank log(1 + M / Lambda): what the change of one record's Hessian costs, whatever the noise."""
    curvature = constants.data_smoothness + 1e-15 * constants.smoothness
    return (constants.hessian_rank or 1) * math.log1p(curvature / total_ridge(constants))


def calibrated_objective_perturbation(
    constants: Constants,
    *,
    epsilon: float,
    delta: float = 0.0,
    solver_share: float = 0.01,
    reach: float = math.inf,
) -> ObjectivePerturbationSchedule:
    """The schedule with the least noise that meets (epsilon, delta) for the ridge of these constants.

    delta = 0 uses Gamma-norm noise, delta > 0 Gaussian noise; solver_share of epsilon pays for the solver. A `reach`
    that no minimiser of interest exceeds keeps the release noise small where the ridge is small.

    Examples
    --------
    >>> constants = Constants(n=1000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, dimension=5,
    ...                       hessian_rank=1)
    >>> schedule = calibrated_objective_perturbation(constants, epsilon=1.0)
    >>> guarantee = ObjectivePerturbationTheorem().certify(constants, schedule)
    >>> round(schedule.density_scale, 4), round(guarantee.epsilon(), 6)
    (2.0719, 1.0)
    """
    _check.positive("epsilon", epsilon)
    solver = _check.open_unit("solver_share", solver_share) * deflated(epsilon)
    if delta != 0:
        _check.open_unit("delta", delta)
    theorem = ObjectivePerturbationTheorem() if delta == 0 else GaussianObjectivePerturbation()
    check_minimiser(theorem, constants, default_tolerance(constants))
    left = deflated(epsilon) - solver - determinant_cost(constants)
    if not left > 0:
        enough = (
            constants.data_smoothness / constants.n / math.expm1(epsilon / 2 / (constants.hessian_rank or 1))
        )
        raise CalibrationFailed(
            f"epsilon = {epsilon:g} is below the cost of the curvature at ridge = {constants.strong_convexity:g}; "
            f"raise ridge (at {enough:g} half of epsilon is left for the noise)."
        )
    if delta == 0:
        return _schedule(
            constants, constants.gradient_sensitivity / left * (1 + 1e-14), solver, "gamma", reach
        )
    scale = _least_gaussian(constants, epsilon - solver, delta)
    while True:
        schedule = _schedule(constants, scale, solver, "gaussian", reach)
        if theorem.certify(constants, schedule).epsilon(delta) <= epsilon:
            return schedule
        scale *= 1 + 1e-5


def _schedule(
    constants: Constants, scale: float, solver: float, noise: PerturbationNoise, reach: float
) -> ObjectivePerturbationSchedule:
    dimension = constants.dimension or 1
    tilt = scale * (dimension + math.sqrt(70 * dimension) + 35)  # |b| exceeds it once in 10^15 runs
    tolerance = default_tolerance(constants, tilt, reach)
    release_density_scale = 2 * tolerance / (total_ridge(constants) * solver) * (1 + 1e-14)
    return ObjectivePerturbationSchedule(
        density_scale=scale,
        tolerance=tolerance,
        release_density_scale=release_density_scale,
        noise=noise,
        reach=reach,
    )


def _least_gaussian(constants: Constants, epsilon: float, delta: float) -> float:
    """The least density_scale with delta(epsilon) <= delta for the exact minimiser, by bisection on mu."""
    curvature = determinant_cost(constants)
    reach = constants.lipschitz * (2 if constants.adjacency == "replace-one" else 1)

    def fits(mu: float) -> bool:
        return float(corner_profile(constants, mu, curvature, np.array([epsilon]))[0]) <= delta

    high = grown_until(lambda mu: not fits(mu), 1.0)
    assert high is not None
    low = bisected(fits, high / 2 if high > 1 else 0.0, high, relative=1e-9)
    if low == 0:
        raise CalibrationFailed("what is left of epsilon after the curvature is too small; raise the ridge.")
    return reach / low
