"""The specs of objective and output perturbation, their options, and their privacy with a computed minimiser.

Objective perturbation. With Phi(theta) = sum_i loss_i + (Lambda / 2) |theta|^2, the minimiser of Phi + <b, theta>
solves b = -grad Phi, a bijection, so its density is noise_density(-grad Phi(theta)) det(Hessian of Phi)(theta).
Between neighbours the first factor moves by the change of a gradient, the second by at most (1 + M / Lambda)^rank,
once: both neighbours are a common part A >= Lambda I plus one positive semidefinite term each, and
det(A + h) / det(A + h') <= det(A + h) / det A.

Output perturbation. The minimisers over any closed convex set satisfy

    |theta - theta'| <= |grad Phi - grad Phi'|(theta') / Lambda <= Delta / Lambda,

with Phi the sum of losses plus the ridge and Lambda = n ridge: add the two variational inequalities and use strong
monotonicity. A point with a gradient (modulo the normal cone) of norm at most tolerance is within tolerance / Lambda
of the minimiser, so the computed points differ by at most S = (Delta + 2 tolerance) / Lambda. The tolerance is
checked with a bound on the rounding error of the gradient, so this holds for the points in doubles. A secure run
rounds them to a public grid and adds exact noise to integers: they differ by at most S + grid sqrt(d).

Exact objective perturbation releases a rounding of the ideal minimiser (`dplangevin.mechanisms.exact_minimizer`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import bisect_safe_side, expand_bracket
from dplangevin.accounting.conversions import gdp_delta, gdp_mu
from dplangevin.accounting.guarantee import Condition, Guarantee
from dplangevin.accounting.parts import Gaussian, Profile, Pure
from dplangevin.accounting.plan import (
    Capabilities,
    Spec,
    Theorem,
    public_noise_grid,
    round_down,
    round_up,
)
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.options import with_constants_options
from dplangevin.mechanisms.whitened.spec import EXACT_RECORD_ASSUMPTION
from dplangevin.problem.constants import Constants

MAX_ROWS_FACTOR = 16
"""Where the data may hold more than n records, tolerances allow for this many times n."""


def planned_n_records(constants: Constants) -> int:
    """Return the number of records that a tolerance is chosen for; a run certifies for the number it read."""
    return constants.n * (MAX_ROWS_FACTOR if constants.allow_more_rows else 1)


def gradient_rounding_floor(constants: Constants, records: int) -> float:
    """Bound the rounding error of a gradient sum over blocks of 4096 records: N L 2^-41 (1 + N / 2^24)."""
    return records * constants.lipschitz * 2.0**-41 * (1 + records / 2.0**24)


def default_tolerance(constants: Constants, tilt: float = 0.0, coef_bound: float = math.inf) -> float:
    """Return a gradient norm that doubles can reach: eight times a bound on the rounding error of a gradient.

    The gradient is that of sum loss_i + (Lambda / 2) |theta|^2 + <b, theta> with |b| <= tilt, at its minimiser, whose
    norm is at most (n L + tilt) / Lambda (n: `planned_n_records`). A minimiser scaled back to `coef_bound`
    counts as one of that norm, twice.
    """
    records = planned_n_records(constants)
    slopes, terms = records * constants.lipschitz + tilt, (constants.dimension or 1) + 8
    longest = slopes / total_ridge(constants)
    size, factor = (longest, 8) if longest <= 2 * coef_bound else (coef_bound, 16)
    scores = records * constants.data_smoothness * size
    return factor * (gradient_rounding_floor(constants, records) + 2.0**-53 * terms * (scores + 2 * slopes))


def tolerance_or_default(constants: Constants, tolerance: float | None, tilt: float = 0.0) -> float:
    """Return the stated tolerance, or the default; without strong convexity theorems refuse either."""
    if tolerance is not None:
        return tolerance
    return default_tolerance(constants, tilt) if constants.strong_convexity > 0 else 1e-6


def total_ridge(constants: Constants) -> float:
    """Return Lambda, the strong convexity of the SUM of losses plus the ridge, rounded down."""
    return constants.n * constants.strong_convexity * (1 - 1e-15)


def check_minimizer_conditions(theorem: Theorem[Any], constants: Constants, tolerance: float) -> None:
    """Check the hypotheses under which the minimiser is unique and known within tolerance / Lambda."""
    if not constants.convex:
        raise theorem.refuse("the loss is not convex", "Use a convex loss, or noisy gradient descent.")
    if not constants.strong_convexity > 0:
        raise theorem.refuse(
            "the problem has no ridge, so its minimiser may jump", "State ridge > 0 in the problem."
        )
    if math.isinf(constants.smoothness):
        raise theorem.refuse("no smoothness constant is known", "Use a smooth loss, or smooth it.")
    if constants.projection_error > 0:
        raise theorem.refuse(
            f"the projection on the constraint is inexact (by {constants.projection_error:g})",
            "Use a constraint with an exact projection.",
        )
    least = 2 * gradient_rounding_floor(constants, planned_n_records(constants))
    if tolerance < least:
        raise theorem.refuse(
            f"tolerance = {tolerance:g} is below what double precision can certify for this n and these bounds",
            f"Raise tolerance to at least {least:g}.",
        )


def solver_assumptions(iterations: int | None, *more: str) -> tuple[str, ...]:
    """Return the assumptions of a guarantee about a computed minimiser, including on its running time."""
    time = "the time a run takes is not observed"
    if iterations is not None:
        time = (
            f"the solver does {iterations} equal iterations whatever the data; finer differences in time are not "
            "covered"
        )
    return *more, time


SOLVER_CONVERGES = Condition(
    kind="run-failure",
    text="the solver reaching its tolerance: a run that misses it stops and releases nothing, and that event is not "
    "covered",
)


PerturbationNoise = Literal["gamma", "gaussian"]
PERTURBATION_NOISES: tuple[PerturbationNoise, ...] = ("gamma", "gaussian")


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbationSpec(Spec):
    """Objective perturbation: argmin of sum_i weight_i loss_i + (n ridge / 2) |theta|^2 + <b, theta>, plus noise.

    Everything is in units of the SUM of losses.

    Parameters
    ----------
    density_scale : s of the density of b, which is proportional to exp(-(|b| / s)^q / q): q = 1 for "gamma", so that
        |b| ~ Gamma(dimension, s); q = 2 for "gaussian", so that s is the standard deviation of an entry.
    tolerance : largest gradient norm at the computed minimiser; a run that does not reach it releases nothing.
    release_density_scale : scale of the exp(-|z| / scale) noise that hides how far the computed minimiser is from the
        exact one.
    noise : "gamma" for a pure guarantee, "gaussian" for (epsilon, delta).
    n_iterations : None stops when the tolerance is met, so running time depends on the data; a number runs exactly
        that many equal Newton iterations (unconstrained problems only).
    coef_bound : a minimiser of larger norm is scaled back to this norm. Then a tolerance for points of this norm is
        enough, instead of one for the longest minimiser of any data.
    secure : rows are whole numbers, and the ideal minimiser is rounded to a public grid exactly. Nothing hides the
        solver then, whose tolerance decides nothing: release_density_scale is 0.
    """

    mechanism: ClassVar[str] = "objective-perturbation"
    capabilities: ClassVar[Capabilities] = Capabilities(
        pure=True, secure=True, holds_beyond_n=True, intervals=True
    )
    density_scale: float
    tolerance: float
    release_density_scale: float = 0.0
    noise: PerturbationNoise = "gamma"
    release: Literal["draw"] = "draw"
    n_iterations: int | None = None
    coef_bound: float = math.inf
    secure: bool = False

    def __post_init__(self) -> None:
        _check.validate_fields(
            self,
            density_scale=_check.check_scale,
            tolerance=_check.check_positive,
            secure=_check.check_flag,
        )
        if not self.secure:
            _check.validate_fields(self, release_density_scale=_check.check_scale)
        elif self.release_density_scale != 0 or self.n_iterations is not None:
            raise InvalidParameter(
                "an exact minimiser needs no noise that hides the solver, and its solver takes as many steps as its "
                "rounding needs: leave release_density_scale and n_iterations out, or state secure=False."
            )
        _check.set_frozen(self, noise=_check.check_choice("noise", self.noise, PERTURBATION_NOISES))
        _check.set_frozen(self, release=_check.check_choice("release", self.release, ("draw",)))
        if self.coef_bound != math.inf:
            _check.validate_fields(self, coef_bound=_check.check_positive)
        if self.n_iterations is not None:
            _check.validate_fields(self, n_iterations=_check.check_count)


@dataclass(frozen=True, kw_only=True)
class OutputPerturbationSpec(Spec):
    """Output perturbation: the minimiser of the problem plus noise, projected on the constraint.

    Parameters
    ----------
    density_scale : s of the density of the noise on theta, proportional to exp(-(|z| / s)^q / q) as in
        `ObjectivePerturbationSpec`.
    tolerance : largest gradient norm of the SUM of losses (with the ridge) at the computed minimiser, modulo the
        normal cone of the constraint; a run that does not reach it releases nothing.
    noise : "gamma" for a pure guarantee, "gaussian" for GDP.
    n_iterations : None stops when the tolerance is met, so running time depends on the data; a number runs exactly
        that many equal Newton iterations (unconstrained problems only).
    secure : the minimiser is rounded to a public grid, and the noise is drawn exactly.
    """

    mechanism: ClassVar[str] = "output-perturbation"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, secure=True, holds_beyond_n=True)
    density_scale: float
    tolerance: float
    noise: PerturbationNoise = "gamma"
    release: Literal["draw"] = "draw"
    n_iterations: int | None = None
    secure: bool = False

    def __post_init__(self) -> None:
        _check.validate_fields(self, density_scale=_check.check_scale, tolerance=_check.check_positive)
        _check.set_frozen(self, noise=_check.check_choice("noise", self.noise, PERTURBATION_NOISES))
        _check.set_frozen(self, release=_check.check_choice("release", self.release, ("draw",)))
        _check.validate_fields(self, secure=_check.check_flag)
        if self.n_iterations is not None:
            _check.validate_fields(self, n_iterations=_check.check_count)


SOLVER_EPSILON = 0.01
"""The epsilon of the inexact minimiser of objective perturbation, unless release_density_scale is stated."""


@with_constants_options("smoothness strong_convexity dimension", "diameter", hessian_rank=1)
def read_objective_perturbation_options(
    constants: Constants,
    *,
    density_scale: float,
    noise: PerturbationNoise = "gaussian",
    tolerance: float | None = None,
    release_density_scale: float | None = None,
) -> ObjectivePerturbationSpec:
    """Return the spec of objective perturbation, in units of the SUM of losses."""
    dimension = constants.dimension or 1
    tilt = density_scale * (dimension + math.sqrt(70 * dimension) + 35)
    tolerance = tolerance_or_default(constants, tolerance, tilt)
    if release_density_scale is None:
        ridge = total_ridge(constants) if constants.strong_convexity > 0 else 1.0
        release_density_scale = 2 * tolerance / (ridge * SOLVER_EPSILON)
    return ObjectivePerturbationSpec(
        density_scale=density_scale,
        tolerance=tolerance,
        release_density_scale=release_density_scale,
        noise=noise,
    )


@with_constants_options("smoothness strong_convexity", "dimension diameter")
def read_output_perturbation_options(
    constants: Constants,
    *,
    density_scale: float,
    noise: PerturbationNoise = "gaussian",
    tolerance: float | None = None,
) -> OutputPerturbationSpec:
    """Return the spec of output perturbation."""
    tolerance = tolerance_or_default(constants, tolerance)
    return OutputPerturbationSpec(density_scale=density_scale, tolerance=tolerance, noise=noise)


class ObjectivePerturbationTheorem(
    Theorem[ObjectivePerturbationSpec],
    name="objective-perturbation",
    proof="docs/theory/planner.md, section 1",
):
    """Pure DP: Delta / density_scale + rank log(1 + M / Lambda) + 2 tolerance / (Lambda release_density_scale).

    For the logistic loss the first two terms are bounded together, by less: `gamma_minimizer_cost`.

    An exact run releases a rounding of the ideal minimiser, so its last term is 0. M is the curvature of one record
    (its row norm squared), Lambda = n ridge. A convex constraint is allowed: add k dist(theta, set)^2 / 2 to both
    objectives, which changes nothing in the proof, and let k grow.
    """

    holds_for_rounded_noise = True
    secure_holds_beyond_n = True
    reference = (
        "Chaudhuri, Monteleoni and Sarwate (2011), Theorem 9, with the determinant counted once; "
        "Kifer, Smith and Thakurta (2012), Theorem 2 (constraints)"
    )
    holds_beyond_n = (
        "neighbours share a part of curvature at least Lambda = n ridge, whatever the number of other records"
    )

    def derive_guarantee(self, constants: Constants, spec: ObjectivePerturbationSpec) -> Guarantee:
        if spec.noise != "gamma":
            raise self.refuse(f"noise={spec.noise!r} gives no pure guarantee", "Use noise='gamma'.")
        _, solver = curvature_and_solver_costs(self, constants, spec)
        total = round_up(gamma_minimizer_cost(constants, spec.density_scale) + solver)
        return self.guarantee(
            constants,
            spec,
            (Pure(value=total),),
            minimizer_assumptions(spec),
            conditions=minimizer_conditions(spec),
        )


class GaussianObjectivePerturbation(
    Theorem[ObjectivePerturbationSpec],
    name="gaussian-objective-perturbation",
    proof="docs/theory/planner.md, section 2",
):
    """(epsilon, delta)-DP with Gaussian noise: a small multiple of the curve of one Gaussian mechanism.

    At the point theta the log density ratio of the noises is (2 <b, v> + |v|^2) / (2 density_scale^2), v the change
    of the gradient. v depends on b, but lies in a fixed polytope and the ratio is convex in v, so it is at most the
    largest of the ratios at the corners, each of which is that of a Gaussian mechanism.
    """

    holds_for_rounded_noise = True
    secure_holds_beyond_n = True
    reference = (
        "Kifer, Smith and Thakurta (2012), Theorem 2; Redberg, Koskela and Wang (2023); "
        "the corner bound is proved in docs/theory/planner.md"
    )
    holds_beyond_n = "as for the pure guarantee"

    def derive_guarantee(self, constants: Constants, spec: ObjectivePerturbationSpec) -> Guarantee:
        if spec.noise != "gaussian":
            raise self.refuse(f"noise={spec.noise!r} is not Gaussian", "Use noise='gaussian'.")
        curvature, solver = (round_up(cost) for cost in curvature_and_solver_costs(self, constants, spec))
        sensitivity = constants.lipschitz * (2 if constants.adjacency == "replace-one" else 1)
        mu = round_up(sensitivity / spec.density_scale)
        if mu > 30:
            raise self.refuse(
                f"the noise is {mu:g} times smaller than the sensitivity", "Raise density_scale."
            )
        grid = curvature + mu * mu / 2 + mu * np.linspace(0.0, 10.0, 400)
        grid = np.concatenate([np.linspace(0.0, grid[0], 20)[:-1], grid])
        deltas = np.minimum.accumulate(corner_profile(constants, mu, curvature, grid))
        part = Profile(epsilons=tuple((grid + solver).tolist()), deltas=tuple(deltas.tolist()))
        return self.guarantee(
            constants, spec, (part,), minimizer_assumptions(spec), conditions=minimizer_conditions(spec)
        )


def minimizer_assumptions(spec: ObjectivePerturbationSpec) -> tuple[str, ...]:
    """Return what is assumed about a perturbed minimiser."""
    exact = (EXACT_RECORD_ASSUMPTION, EXACT_MINIMIZER_ASSUMPTION) if spec.secure else ()
    return solver_assumptions(spec.n_iterations, *exact)


def minimizer_conditions(spec: ObjectivePerturbationSpec) -> tuple[Condition, ...]:
    """Return the conditions of a perturbed minimiser: an exact run is refined until it is decided, so has none."""
    return () if spec.secure else (SOLVER_CONVERGES,)


EXACT_MINIMIZER_ASSUMPTION = (
    "sums, products and quotients of doubles are rounded to the nearest (IEEE 754): the error of slopes is bounded by "
    "that alone"
)


def corner_profile(constants: Constants, mu: float, curvature: float, epsilons: Floats) -> Floats:
    """Return delta(eps) of the exact minimiser; H_mu is the curve of mu-GDP, r the rank, c the curvature cost.

    A record's gradients lie in a simplex of r + 1 corners. replace-one: (r + 1)^2 H_mu(eps - c); for r = 1 the four
    corners form a parallelogram, so 2 sup_q H_{mu sqrt q}(eps - c) + H_{mu sqrt(1 - q)}(eps - c). add-remove: without
    the record against with it (r + 1) H_mu(eps), and conversely (r + 1) H_mu(eps - c), for r = 1 and eps - c >=
    mu^2/2 only H_mu(eps - c), since the change of the gradient falls as <b, x> grows.
    """
    rank, later = constants.hessian_rank or 1, epsilons - curvature
    if constants.adjacency == "add-remove":
        with_record = (rank + 1) * gdp_delta(mu, later)
        if rank == 1:
            with_record = np.where(later >= mu * mu / 2, gdp_delta(mu, later), with_record)
        deltas = np.maximum((rank + 1) * gdp_delta(mu, epsilons), with_record)
    elif rank == 1:
        fractions = np.linspace(0.0, 1.0, 17)  # H grows with q: the upper ends of a cell bound it
        curves = np.array([2 * gdp_delta(mu * math.sqrt(fraction), later) for fraction in fractions])
        deltas = (curves[1:] + curves[:0:-1]).max(axis=0)
    else:
        deltas = (rank + 1) ** 2 * gdp_delta(mu, later)
    return np.asarray(np.minimum(1.0, deltas * (1 + 1e-9)))


def curvature_and_solver_costs(
    theorem: Theorem[ObjectivePerturbationSpec],
    constants: Constants,
    spec: ObjectivePerturbationSpec,
) -> tuple[float, float]:
    """Return the determinant and solver parts of epsilon, after checking their hypotheses."""
    check_minimizer_conditions(theorem, constants, spec.tolerance)
    if constants.hessian_rank is None or constants.dimension is None:
        raise theorem.refuse(
            "the rank of one record's Hessian or the dimension is not stated",
            "Build the plan from a Problem, or state hessian_rank and dimension.",
        )
    if spec.secure:
        return determinant_cost(constants), 0.0
    solver = 2 * spec.tolerance / (total_ridge(constants) * spec.release_density_scale)
    return determinant_cost(constants), solver


def determinant_cost(constants: Constants) -> float:
    """Return rank log(1 + M / Lambda): the cost of changing one record's Hessian, whatever the noise."""
    curvature = constants.data_smoothness + 1e-15 * constants.smoothness
    return (constants.hessian_rank or 1) * math.log1p(curvature / total_ridge(constants))


def gamma_minimizer_cost(constants: Constants, density_scale: float) -> float:
    """Return the cost of the exact minimiser with Gamma-norm noise: of its noise and its determinant together.

    They add up, except for a logistic loss: there the record that changes the determinant has a slope a of its own, at
    which its gradient is at most a L / C and its curvature a (1 - a) weight |x|^2, so that both are largest at once
    nowhere. With g' the gradient of the other record (none under add-remove) the cost is

        |g'| / s + max over a of a L / (C s) + log(1 + 4 a (1 - a) M / Lambda),      |g'| <= L.
    """
    separate = constants.gradient_sensitivity / density_scale + determinant_cost(constants)
    slope = constants.logistic_slope_bound
    if slope is None or slope <= 0.5 or constants.hessian_rank != 1:
        return separate
    other = constants.lipschitz / density_scale if constants.adjacency == "replace-one" else 0.0
    joint = _max_logistic_cost(
        constants.lipschitz / (slope * density_scale), 4 * math.expm1(determinant_cost(constants)), slope
    )
    return min(separate, other + joint)


def _max_logistic_cost(gradient: float, curvature: float, slope_bound: float) -> float:
    """Return max of f(a) = gradient a + log(1 + curvature a (1 - a)) for a in [1/2, slope_bound], from above.

    f is concave, so any of its tangents bounds it; the one at the root of f' is (nearly) flat.
    """
    half = (
        2 - gradient
    ) / 2  # f'(a) = 0: gradient curvature a^2 + curvature (2 - gradient) a = gradient + curvature
    root = (math.hypot(half, math.sqrt(gradient * (gradient / curvature + 1))) - half) / gradient
    a = min(max(root, 0.5), slope_bound)
    inside = 1 + curvature * a * (1 - a)
    tangent = gradient + curvature * (1 - 2 * a) / inside
    return gradient * a + math.log(inside) + max(tangent * (slope_bound - a), tangent * (0.5 - a))


def calibrate_objective_perturbation(
    constants: Constants,
    *,
    epsilon: float,
    delta: float = 0.0,
    solver_budget_fraction: float = 0.01,
    coef_bound: float = math.inf,
    secure: bool = False,
) -> ObjectivePerturbationSpec:
    """Return the spec with the least noise that meets (epsilon, delta) for the ridge of these constants.

    delta = 0 uses Gamma-norm noise, delta > 0 Gaussian noise; solver_budget_fraction of epsilon covers the solver,
    which costs nothing where the minimiser is rounded exactly (secure). A `coef_bound` that no minimiser of interest
    exceeds keeps the release noise small where the ridge is small.

    Examples
    --------
    >>> constants = Constants(n=1000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, dimension=5,
    ...                       hessian_rank=1)
    >>> spec = calibrate_objective_perturbation(constants, epsilon=1.0)
    >>> guarantee = ObjectivePerturbationTheorem().certify(constants, spec)
    >>> round(spec.density_scale, 4), round(guarantee.epsilon(), 6)
    (2.0719, 1.0)
    """
    _check.check_positive("epsilon", epsilon)
    solver = _check.check_open_unit("solver_budget_fraction", solver_budget_fraction) * round_down(epsilon)
    if secure:
        solver = 0.0
    if delta != 0:
        _check.check_open_unit("delta", delta)
    theorem = ObjectivePerturbationTheorem() if delta == 0 else GaussianObjectivePerturbation()
    check_minimizer_conditions(theorem, constants, default_tolerance(constants))
    remaining = round_down(epsilon) - solver - determinant_cost(constants)
    if not remaining > 0:
        enough = (
            constants.data_smoothness / constants.n / math.expm1(epsilon / 2 / (constants.hessian_rank or 1))
        )
        raise CalibrationFailed(
            f"epsilon = {epsilon:g} is below the cost of the determinant at ridge = {constants.strong_convexity:g}; "
            f"raise ridge (at {enough:g} half of epsilon is left for the noise)."
        )
    if delta == 0:
        separate = constants.gradient_sensitivity / remaining * (1 + 1e-14)
        if gamma_minimizer_cost(constants, separate) >= remaining + determinant_cost(constants):
            return _make_spec(constants, separate, solver, "gamma", coef_bound)
        budget = (remaining + determinant_cost(constants)) * (1 - 1e-14)
        scale = bisect_safe_side(
            lambda s: gamma_minimizer_cost(constants, s) <= budget, separate, separate / 1e3, relative=1e-12
        )
        return _make_spec(constants, scale, solver, "gamma", coef_bound)
    scale = _find_least_gaussian_noise(constants, epsilon - solver, delta)
    while True:
        spec = _make_spec(constants, scale, solver, "gaussian", coef_bound)
        if theorem.certify(constants, spec).epsilon(delta) <= epsilon:
            return spec
        scale *= 1 + 1e-5


def _make_spec(
    constants: Constants, scale: float, solver: float, noise: PerturbationNoise, coef_bound: float
) -> ObjectivePerturbationSpec:
    dimension = constants.dimension or 1
    tilt = scale * (dimension + math.sqrt(70 * dimension) + 35)  # |b| exceeds it once in 10^15 runs
    tolerance = default_tolerance(constants, tilt, coef_bound)
    if not solver:
        return ObjectivePerturbationSpec(
            density_scale=scale, tolerance=tolerance, noise=noise, coef_bound=coef_bound, secure=True
        )
    release_density_scale = 2 * tolerance / (total_ridge(constants) * solver) * (1 + 1e-14)
    return ObjectivePerturbationSpec(
        density_scale=scale,
        tolerance=tolerance,
        release_density_scale=release_density_scale,
        noise=noise,
        coef_bound=coef_bound,
    )


def _find_least_gaussian_noise(constants: Constants, epsilon: float, delta: float) -> float:
    """Return the least density_scale with delta(epsilon) <= delta for the exact minimiser, by bisection on mu."""
    curvature = determinant_cost(constants)
    sensitivity = constants.lipschitz * (2 if constants.adjacency == "replace-one" else 1)

    def meets_delta(mu: float) -> bool:
        return float(corner_profile(constants, mu, curvature, np.array([epsilon]))[0]) <= delta

    high = expand_bracket(lambda mu: not meets_delta(mu), 1.0)
    assert high is not None
    low = bisect_safe_side(meets_delta, high / 2 if high > 1 else 0.0, high, relative=1e-9)
    if low == 0:
        raise CalibrationFailed(
            "what is left of epsilon after the cost of the determinant is too small; raise the ridge."
        )
    return sensitivity / low


SOLVER_CERTIFICATE_ASSUMPTION = (
    "the solver's certificate bounds the rounding of its gradient in double precision (IEEE 754, sums in blocks)",
)


class OutputPerturbationTheorem(Theorem[OutputPerturbationSpec], name="output-perturbation", proof=""):
    """Cost S / density_scale: a pure epsilon with Gamma-norm noise, mu of GDP with Gaussian noise.

    Examples
    --------
    >>> constants = Constants(n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01)
    >>> spec = OutputPerturbationSpec(density_scale=1 / 150, tolerance=1e-7)
    >>> round(OutputPerturbationTheorem().certify(constants, spec).epsilon(), 6)
    1.0
    """

    holds_for_rounded_noise = True
    reference = "Chaudhuri, Monteleoni and Sarwate (2011), Theorem 6; Dong, Roth and Su (2022), Theorem 2.7"
    holds_beyond_n = (
        "Lambda = n ridge is public, Delta is that of one record; the solver certifies its point for the records "
        "it read"
    )

    def derive_guarantee(self, constants: Constants, spec: OutputPerturbationSpec) -> Guarantee:
        check_minimizer_conditions(self, constants, spec.tolerance)
        sensitivity = minimizer_sensitivity(constants, spec.tolerance)
        secure = SOLVER_CERTIFICATE_ASSUMPTION if spec.secure else ()
        if spec.secure:
            sensitivity += rounding_sensitivity(self, constants, spec.density_scale)
        cost = round_up(sensitivity / spec.density_scale)
        part = Pure(value=cost) if spec.noise == "gamma" else Gaussian(mu=cost)
        return self.guarantee(
            constants,
            spec,
            (part,),
            solver_assumptions(spec.n_iterations, *secure),
            conditions=(SOLVER_CONVERGES,),
        )


def minimizer_sensitivity(constants: Constants, tolerance: float) -> float:
    """Return (Delta + 2 tolerance) / Lambda, the largest distance between computed minimisers of neighbours."""
    return (constants.gradient_sensitivity + 2 * tolerance) / total_ridge(constants)


def rounding_sensitivity(
    theorem: Theorem[OutputPerturbationSpec], constants: Constants, deviation: float
) -> float:
    """Return grid sqrt(d): rounding each of two points to the grid moves it by at most half of that."""
    if constants.dimension is None:
        raise theorem.refuse("the number of parameters is not stated", "Build the plan from a Problem.")
    if math.isfinite(constants.diameter):
        raise theorem.refuse(
            "the rounding of a projection is not bounded, so a secure minimiser has no constraint",
            "Leave radius out.",
        )
    longest = constants.n * constants.lipschitz / total_ridge(constants)
    if not longest / public_noise_grid(deviation) <= 2.0**51:
        raise theorem.refuse(
            "the grid of the noise is too fine for the longest minimiser", "Raise the ridge."
        )
    return public_noise_grid(deviation) * math.sqrt(constants.dimension) * (1 + 1e-12)


def calibrate_output_perturbation(
    constants: Constants, *, epsilon: float, delta: float = 0.0, secure: bool = False
) -> OutputPerturbationSpec:
    """Return the spec with the least noise that meets (epsilon, delta): Gamma-norm for delta = 0, else Gaussian."""
    _check.check_positive("epsilon", epsilon)
    tolerance = default_tolerance(constants)
    check_minimizer_conditions(OutputPerturbationTheorem(), constants, tolerance)
    cost = round_down(epsilon if delta == 0 else gdp_mu(epsilon, delta))
    if not cost > 0:
        raise CalibrationFailed(f"epsilon = {epsilon:g} is too small for double precision; raise epsilon.")
    scale = minimizer_sensitivity(constants, tolerance) / cost
    if secure:  # the grid is at most 2^-20 of the noise
        rounding_fraction = 2.0**-20 * math.sqrt(constants.dimension or 1) / cost
        if not rounding_fraction < 0.5:
            raise CalibrationFailed("epsilon is too small for the grid of secure noise; raise it.")
        scale *= (1 + 1e-9) / (1 - rounding_fraction * (1 + 1e-9))
    return OutputPerturbationSpec(
        density_scale=scale,
        tolerance=tolerance,
        noise="gamma" if delta == 0 else "gaussian",
        secure=secure,
    )
