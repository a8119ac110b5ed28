"""Fits whose error has a known distribution: their plans, and the posterior of the coefficients that follows.

Both share one (epsilon, delta); a fraction of the budget is spent on the curvature. Where the planner's choice can
release its curvature itself, it stays the choice. Elsewhere the fit is objective perturbation, followed by a release of
the curvature. Nothing here depends on the data.

Posterior of the coefficients given a released point and its noisy curvature: a linear model with a public prior.

Objective perturbation releases theta with sum_i grad loss_i(theta) + Lambda theta + b = 0. Linearized at the
population's theta_0, with H the curvature of the sum, g = sum_i grad loss_i(theta_0), and K the estimate of H from
its noisy release (`estimate_curvature`), E = K - H,

    K theta + Lambda theta  =  K theta_0 - g - b + E (theta - theta_0):

a linear observation of theta_0 whose errors have known distributions: g has covariance J, b that of the plan, and the
entries of E have the variances V that remain after estimation. theta - theta_0 = -H^-1 (Lambda theta + g + b) has two
parts. E times the second part is no error, since K^-1 (I + E H^-1) = H^-1: the error of the solution is, up to sign,

    H^-1 (g + b) + K^-1 E r,    r = H^-1 Lambda theta, the ridge's part,

so that E adds sum_j V_ij r_j^2 to coordinate i. The first term is computed with K in place of H, which changes a
standard error by the fraction sqrt(V_ii) / K_ii; V_ii times the coordinate's own variance is added for that.
(Counting all of E (theta - theta_0), as if it were independent of g + b, made intervals up to a tenth too wide.)

theta_0 has the prior N(0, tau^2): tau = reach / (2 row_norm), the public size of coefficients in the planner's rules,
or four times the root mean square of the estimated coefficients if that is larger (`_widen_prior`): with correlated
columns coefficients are larger than planned, and a narrower prior would shrink them to 0. A row's score then has
prior standard deviation tau |x|, however many coefficients there are.
With N the covariance of the errors, C = (K N^-1 K + tau^-2)^-1 is the posterior covariance of theta_0 and
C K N^-1 (K + Lambda) theta its mean. Where the records are informative, this is the usual estimate without the
ridge's bias; where they are not, it is the prior: a coefficient with more than a third of the prior's variance left
has an infinite interval. r and the variances are computed from the posterior itself, by fixed-point iteration.

Two kinds of directions are excluded first, because E would carry their prior uncertainty tau into all others:

- flat ones, in which no row of the schema differs from another (the indicators of a column sum to the constant),
  unless their released curvature stands above the noise. theta_0 is the solution of least norm: 0 there.
- coefficients whose own released curvature is within MIN_RESOLVED_DEVIATIONS deviations of 0. They keep the prior.

The curvature itself is estimated by shrinkage. Its diagonal stands well above the noise; off the diagonal, on the
scale of correlations, most entries are near 0. They are modelled as draws from a mixture of centered normals with
variances PRIOR_VARIANCES, whose weights are fitted to the released entries (Stephens 2017, False discovery rates: a
new deal). Each entry is replaced by its posterior mean and keeps its posterior variance. All of this is
post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainccinv, ndtr

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import bisect_arrays
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec, Plan
from dplangevin.accounting.registry import mechanisms_with
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.noisy_answers.curvature import ReleasedCurvature, class_contrasts, curvature_groups
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, calibrate_noisy_sums
from dplangevin.mechanisms.perturbation.spec import (
    ObjectivePerturbationSpec,
    calibrate_objective_perturbation,
)
from dplangevin.mechanisms.whitened.spec import CURVATURE_ROW_FACTOR
from dplangevin.planner.fit_plan import AUTO, FitPlan, Request, plan_request
from dplangevin.problem import Problem, WholeSpace

DEFAULT_CURVATURE_FRACTION = 0.05
LARGEST_FRACTION, MAX_RELATIVE_EDGE = 0.2, 0.5
"""Unless a fraction is stated, it is raised up to this one, until the spectrum of the noise reaches no further
than half of the curvature."""
MIN_OBJECTIVE_FRACTION, MAX_CURVATURE_FRACTION, TARGET_RELATIVE_NOISE = 0.15, 0.5, 0.2
"""With objective perturbation the curvature is released in the coordinates of the columns, and unless a fraction is
stated it gets more of the budget: 0.15, and with many coefficients up to a half, until its noise is at most a fifth of
the largest curvature that n records can have."""
MAX_COEF_NORM = 1000.0
"""Norm of the coefficients, for rows of norm 1, up to which intervals are valid."""
MAX_RELATIVE_NOISE = 1 / 3
"""A coefficient whose curvature is less than 3 standard deviations of its noise gets an infinite standard error."""


@dataclass(frozen=True, kw_only=True)
class IntervalPlan:
    """Plan of a fit and of its curvature release: charged together, run one after the other.

    Parameters
    ----------
    plan : of the fit.
    curvature : spec of the noisy curvature sums.

    Attributes
    ----------
    guarantee : of both releases, composed.
    """

    plan: Plan
    curvature: CertifiedSpec
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        both = self.plan.guarantee + self.curvature.guarantee
        _check.set_frozen(
            self, guarantee=replace(both, release="draw + noisy-answers", at_delta=self.plan.delta)
        )

    @property
    def noise_stds(self) -> list[float]:
        """Standard deviations of the noise on one entry of each of the curvature's sums."""
        sums = self.curvature.spec
        assert isinstance(sums, NoisySumsSpec)
        return [group.noise_std(sums.noise) for group in sums.groups]


def interval_budget_fraction(model: Any) -> float:
    """Return the fraction of the budget that a model spends on its intervals: 0 without them."""
    if not isinstance(model.intervals, bool | np.bool_):
        raise InvalidParameter(
            f"intervals must be True or False, got {model.intervals!r}; state the fraction of the budget to spend on "
            "them with interval_budget=."
        )
    if not model.intervals:
        return 0.0
    if model.interval_budget is None:
        return DEFAULT_CURVATURE_FRACTION
    return _check.check_open_unit("interval_budget", model.interval_budget)


def epsilon_left_for_fit(epsilon: float, delta: float, budget_fraction: float) -> float:
    """Return the epsilon left for the fit, which gets 1 - budget_fraction of mu^2 (of epsilon when delta = 0)."""
    if delta == 0:
        return (1 - budget_fraction) * epsilon
    return cv.gdp_epsilon(math.sqrt(1 - budget_fraction) * cv.gdp_mu(epsilon, delta), delta)


def plan_with_intervals(
    budget_fraction: float,
    request: Request,
    *,
    rows_per_person: int = 1,
    weighted: bool = False,
    is_fraction_stated: bool = True,
) -> tuple[FitPlan, IntervalPlan | None]:
    """Return the plan of a fit with intervals, and the joint plan with its curvature where that is a release apart.

    Together they cost the request's (epsilon, delta). Raise for options without intervals; nothing here depends on the
    data.

    Parameters
    ----------
    budget_fraction : of the budget, for the curvature.
    request : of the fit, with the (epsilon, delta) of both.
    rows_per_person : that the guarantee covers.
    weighted : whether records have weights, for which there are no intervals.
    is_fraction_stated : use `budget_fraction` as it is; otherwise a public rule may raise it for a noisy curvature.
    """
    own = mechanisms_with("curvature")
    if request.mechanism not in (AUTO, *own, *mechanisms_with("intervals")):
        raise InvalidParameter(
            f"intervals need a mechanism whose noise distribution is known ({', '.join(own)}, objective perturbation); "
            f"got mechanism={request.mechanism!r}. Leave mechanism='auto'."
        )
    if weighted or request.weight_bound != 1:
        raise InvalidParameter(
            "intervals need equally weighted records; leave sample_weight, class_weight and weight_bound out."
        )
    if not is_fraction_stated:
        budget_fraction = _raise_for_noise(budget_fraction, request)
    if (mechanism := _mechanism_with_curvature(request, budget_fraction)) is not None:
        return plan_request(replace(request, curvature_fraction=budget_fraction), mechanism), None
    return _plan_objective_perturbation(
        budget_fraction if is_fraction_stated else max(budget_fraction, MIN_OBJECTIVE_FRACTION),
        request,
        rows_per_person=rows_per_person,
        is_fraction_stated=is_fraction_stated,
    )


def _raise_for_noise(budget_fraction: float, request: Request) -> float:
    """Return a fraction at which noise leaves the curvature in whitened coordinates visible, at most LARGEST_FRACTION.

    There it is near M R^2 / p times the identity, and noise alone spreads its eigenvalues by sqrt(2 p) deviations.
    """
    if request.delta == 0:
        return budget_fraction
    size = request.n_columns
    unit = CURVATURE_ROW_FACTOR * size * math.sqrt(request.n_changed_records)
    edge = unit * math.sqrt(2 * size) / (request.n * request.mu * math.sqrt(budget_fraction))
    return max(budget_fraction, min(budget_fraction * (edge / MAX_RELATIVE_EDGE) ** 2, LARGEST_FRACTION))


def _mechanism_with_curvature(request: Request, budget_fraction: float) -> str | None:
    """Return the planner's choice if it can release its curvature for this model's intervals, else None."""
    loss, own = request.make_loss(request.needed_clip), mechanisms_with("curvature")
    if request.delta == 0 or loss.score_dimension > 1 or loss.unclipped_loss.slope_variance == "measured":
        if request.mechanism in own:
            raise InvalidParameter(
                f"mechanism={request.mechanism!r} has intervals for logistic, squared, Huber and Poisson losses with "
                "delta > 0; leave mechanism='auto', which then uses objective perturbation."
            )
        return None
    if request.mechanism != AUTO:
        return request.mechanism if request.mechanism in own else None
    epsilon = epsilon_left_for_fit(request.epsilon, request.delta, budget_fraction)
    name = plan_request(replace(request, epsilon=epsilon)).plan.spec.mechanism
    return name if name in own else None


def _plan_objective_perturbation(
    budget_fraction: float, request: Request, *, rows_per_person: int, is_fraction_stated: bool
) -> tuple[FitPlan, IntervalPlan]:
    """Return the fit plan and the joint plan of objective perturbation and of its curvature."""
    epsilon, delta = request.epsilon, request.delta
    if request.secure:
        raise InvalidParameter(
            "these intervals have no secure implementation: the curvature that they release is a sum in floating "
            "point. Leave them out with secure=True."
        )
    if rows_per_person > 1 and delta > 0:
        raise InvalidParameter(
            f"intervals with max_rows_per_person={rows_per_person} use objective perturbation here, which is available "
            "for pure epsilon-DP only; set delta=0."
        )
    epsilon_for_fit = epsilon_left_for_fit(epsilon, delta, budget_fraction)
    fit_plan = plan_request(
        replace(request, mechanism=ObjectivePerturbationSpec.mechanism, epsilon=epsilon_for_fit)
    )
    fit_plan = adapt_plan_for_intervals(fit_plan, epsilon_for_fit, request.alpha)
    interval_plan = add_curvature_release(fit_plan.plan, epsilon)
    wanted_fraction = min(
        MAX_CURVATURE_FRACTION,
        budget_fraction * _relative_curvature_noise(interval_plan) / TARGET_RELATIVE_NOISE,
    )
    if not is_fraction_stated and wanted_fraction > budget_fraction:
        return _plan_objective_perturbation(
            wanted_fraction, request, rows_per_person=rows_per_person, is_fraction_stated=True
        )
    return replace(
        fit_plan, warning=fit_plan.warning or _curvature_noise_warning(interval_plan)
    ), interval_plan


def interval_assumption(problem: Problem) -> str:
    """Return the assumptions of the intervals, which the guarantee does not need."""
    model = problem.loss.unclipped_loss.interval_model
    return (
        f"confidence intervals assume independent records, {model} and no clipped rows or targets; "
        "the guarantee assumes none of this"
    )


def _relative_curvature_noise(interval_plan: IntervalPlan) -> float:
    """Return the noise on the curvature over the largest mean curvature that n records can have.

    The noise is three standard deviations of one entry, or the largest eigenvalue of a random symmetric matrix.
    """
    problem = interval_plan.plan.problem
    classes, size = problem.loss.score_dimension, _n_curvature_rows(interval_plan)
    # With several classes, the trace of diag(p) - p p^T.
    max_mean_curvature = problem.loss.typical_curvature_bound if classes == 1 else 1 - 1 / classes
    noise = interval_plan.noise_stds[0] * max(1 / MAX_RELATIVE_NOISE, math.sqrt(2 * size))
    return noise * size / (problem.n * max_mean_curvature * problem.row_norm**2)


def _n_curvature_rows(interval_plan: IntervalPlan) -> int:
    problem = interval_plan.plan.problem
    return problem.n_columns * max(problem.loss.score_dimension - 1, 1)


def _curvature_noise_warning(interval_plan: IntervalPlan) -> str | None:
    """Return a warning if the noise dominates the curvature, else None."""
    size = _n_curvature_rows(interval_plan)
    if _relative_curvature_noise(interval_plan) <= 1:
        return None
    return (
        f"the noise on the {size} x {size} curvature matrix exceeds the largest curvature that "
        f"{interval_plan.plan.problem.n} records can have: expect infinite confidence intervals. More records, a "
        "larger epsilon or fewer coefficients help."
    )


@lru_cache(maxsize=64)
def adapt_plan_for_intervals(fit_plan: FitPlan, epsilon: float, alpha: float | None) -> FitPlan:
    """Return the fit plan with a consistent loss (gradients of likelihoods are not clipped) and a small ridge.

    The ridge Lambda = 10 rank M / epsilon spends about a tenth of epsilon on the determinant; it is so small that its
    bias can be removed.
    """
    problem, delta = fit_plan.plan.problem, fit_plan.plan.delta
    if not isinstance(problem.constraint, WholeSpace):
        raise InvalidParameter("intervals need an unconstrained fit; leave radius out.")
    loss = problem.loss.unclipped_loss.for_intervals
    problem = replace(problem, loss=loss, ridge=0.0)
    curvature = (problem.constants.hessian_rank or 1) * problem.constants.data_smoothness
    problem = replace(problem, ridge=10 * curvature / epsilon / problem.n if alpha is None else alpha)
    spec = calibrate_objective_perturbation(
        problem.constants, epsilon=epsilon, delta=delta, coef_bound=MAX_COEF_NORM / problem.row_norm
    )
    plan = Plan(problem=problem, spec=spec, delta=delta)
    return replace(
        fit_plan,
        plan=plan,
        reasons=(
            f"objective perturbation with {spec.noise} noise, whose distribution is exact, as intervals need (with "
            "delta > 0, logistic, ridge, Huber and Poisson fits that whiten need no other mechanism)",
            f"per-record gradients are at most {loss.slope_bound:.3g} times the row norm; ridge alpha = "
            f"{problem.ridge:.3g} per sample, whose bias the intervals remove",
            "the rest of the budget is spent on the curvature at the released point",
            "floating point, and no guarantee covers the low-order bits of its noise: the curvature that these "
            "intervals need is a sum in floating point",
        ),
    )


@lru_cache(maxsize=64)
def add_curvature_release(plan: Plan, epsilon: float) -> IntervalPlan:
    """Return the plan together with a curvature release that takes what is left of (epsilon, plan.delta)."""
    problem, delta = plan.problem, plan.delta
    if delta == 0:
        return _attach_curvature(plan, problem, epsilon - plan.guarantee.epsilon(0.0), 0.0)
    goal_mu, fit_mu = cv.gdp_mu(epsilon, delta), cv.gdp_mu(plan.guarantee.epsilon(delta), delta)
    mu = 0.95 * math.sqrt(max(goal_mu**2 - fit_mu**2, 0.0))
    best: IntervalPlan | None = None
    for _ in range(6):
        if not mu > 0:
            break
        candidate = _attach_curvature(plan, problem, cv.gdp_epsilon(mu, delta), delta)
        spent = candidate.guarantee.epsilon(delta)
        if spent <= epsilon:
            best = candidate
            if spent > 0.998 * epsilon:
                break
        fit_square = cv.gdp_mu(spent, delta) ** 2 - mu**2  # treats the fit as Gaussian, which it nearly is
        mu = 0.999 * math.sqrt(max(goal_mu**2 - fit_square, 0.0))
    if best is None:
        raise CalibrationFailed(
            f"no part of epsilon = {epsilon:g} is left for the curvature; raise interval_budget or epsilon."
        )
    return best


def _attach_curvature(plan: Plan, problem: Problem, epsilon: float, delta: float) -> IntervalPlan:
    """Return the plan with a curvature release calibrated to (epsilon, delta)."""
    curvature = calibrate_noisy_sums(
        curvature_groups(
            problem,
            dispersion=problem.loss.slope_variance == "proportional",
            slope_moment=problem.loss.slope_variance == "measured",
        ),
        epsilon=epsilon,
        delta=delta,
        noise="gamma" if delta == 0 else "gaussian",
        adjacency=problem.adjacency,
    )
    return IntervalPlan(plan=plan, curvature=CertifiedSpec(spec=curvature, delta=delta))


_N_NODES = 64


def half_width(level: float, sampling: ArrayLike, noise: ArrayLike, dimension: int | None = None) -> Floats:
    """Return t with P(|N(0, sampling^2) + noise| <= t) = level; `sampling` and `noise` are standard deviations.

    dimension = None: Gaussian noise. dimension = d: a linear function of noise with density exp(-|z| / scale) in d
    dimensions (Laplace noise for d = 1), which is a normal variable whose variance is Gamma((d + 1) / 2) distributed.

    Examples
    --------
    >>> f"{half_width(0.95, 3.0, 4.0):.2f} {half_width(0.95, 0.0, 2**0.5, 1):.2f}"  # 1.96 * 5; -log 0.05 = 2.996
    '9.80 3.00'
    """
    _check.check_open_unit("level", level)
    sampling_std, noise_std = np.broadcast_arrays(np.asarray(sampling, float), np.asarray(noise, float))
    mixture, weights = np.ones(1), np.ones(1)
    if dimension is not None:
        mixture, weights = _gamma_mixture((dimension + 1) / 2)
    spread = np.sqrt(sampling_std[..., None] ** 2 + noise_std[..., None] ** 2 * mixture)
    total = np.sqrt(sampling_std**2 + noise_std**2)
    finite = np.isfinite(total) & (total > 0)
    max_width = np.where(finite, total / math.sqrt(1 - level), 0.0)  # Chebyshev

    def reaches_level(width: Floats) -> NDArray[np.bool_]:
        return ~((2 * ndtr(width[..., None] / spread) - 1) @ weights < level)

    with np.errstate(invalid="ignore", divide="ignore"):
        widths = bisect_arrays(reaches_level, max_width, np.zeros(total.shape), rounds=32)
    return np.where(finite, widths, total)


def two_sided_p_values(
    estimate: ArrayLike, sampling: ArrayLike, noise: ArrayLike, dimension: int | None
) -> Floats:
    """Return the p-values P(|N(0, sampling^2) + noise| >= |estimate|), for the distribution of `half_width`.

    Examples
    --------
    >>> f"{two_sided_p_values(1.96, 0.6, 0.8, None):.3f} {two_sided_p_values(2.996, 0.0, 2**0.5, 1):.3f}"
    '0.050 0.050'
    """
    sampling_std, noise_std, value = np.broadcast_arrays(
        *(np.asarray(part, float) for part in (sampling, noise, estimate))
    )
    mixture, weights = np.ones(1), np.ones(1)
    if dimension is not None:
        mixture, weights = _gamma_mixture((dimension + 1) / 2)
    spread = np.sqrt(sampling_std[..., None] ** 2 + noise_std[..., None] ** 2 * mixture)
    with np.errstate(invalid="ignore", divide="ignore"):
        tails = 2 * ndtr(-np.abs(value)[..., None] / spread) @ weights
    return np.where(np.isfinite(sampling_std) & np.isfinite(noise_std), tails, 1.0)


@lru_cache(maxsize=64)
def _gamma_mixture(shape: float) -> tuple[Floats, Floats]:
    """Return nodes and weights for the mean over a Gamma(shape) variable of mean 1, dense in its upper tail."""
    rest = 1 - (np.arange(_N_NODES) + 0.5) / _N_NODES
    nodes = np.asarray(gammainccinv(shape, rest**3) / shape, np.float64)
    weights = rest**2 / np.sum(rest**2)
    return nodes, weights


def proportion_interval(
    estimate: float, size: float, noise: float, dimension: int | None, level: float
) -> tuple[float, float]:
    """Return the interval of all p whose own two-sided interval, N(0, p (1 - p) / size) plus noise, has the estimate.

    It is also valid for a mean of variables in [0, 1], whose variance is at most p (1 - p).
    """
    estimate = min(max(estimate, 0.0), 1.0)
    ends = []
    for end in (0.0, 1.0):
        p = estimate + (end - estimate) * np.linspace(0.0, 1.0, 33) ** 2
        slack = half_width(level, np.sqrt(p * (1 - p) / size), noise, dimension) - np.abs(estimate - p)
        if (slack >= 0).all():
            ends.append(end)
            continue
        after = max(int(np.argmax(slack < 0)), 1)  # slack[0] >= 0, since a width is never negative
        before = after - 1
        fraction = slack[before] / (slack[before] - slack[after])
        ends.append(float(p[before] + fraction * (p[after] - p[before])))
    return ends[0], ends[1]


PRIOR_VARIANCES = np.array([1e-6, 0.001, 0.004, 0.016, 0.064, 0.25])
MIN_SIGNAL_DEVIATIONS = 2.0
"""Diagonal entries are raised to at least this many noise standard deviations; eigenvalues below it are set to 0."""
_N_EM_ITERATIONS = 200


def estimate_curvature(matrix: Floats, noise_std: float) -> tuple[Floats, Floats]:
    """Return the posterior mean, and the variances of its entries, of a semidefinite matrix from its noisy release.

    `noise_std` is the standard deviation of the noise on the diagonal; off the diagonal the variance is half as
    large.
    """
    size = len(matrix)
    diagonal = np.maximum(np.diag(matrix), max(MIN_SIGNAL_DEVIATIONS * noise_std, 1e-300))
    scale = np.sqrt(np.outer(diagonal, diagonal))
    first, second = np.triu_indices(size, 1)
    mean, remaining_variances = _shrink_entries(
        (matrix / scale)[first, second], (noise_std / scale[first, second]) ** 2 / 2
    )
    correlations, correlation_variances = np.eye(size), np.zeros((size, size))
    correlations[first, second] = correlations[second, first] = mean
    correlation_variances[first, second] = correlation_variances[second, first] = remaining_variances
    values, vectors = np.linalg.eigh(correlations * scale)
    return (
        np.asarray((vectors * np.where(values > MIN_SIGNAL_DEVIATIONS * noise_std, values, 0.0)) @ vectors.T),
        np.asarray(correlation_variances * scale**2 + noise_std**2 * np.eye(size)),
    )


def _shrink_entries(entries: Floats, noise_variances: Floats) -> tuple[Floats, Floats]:
    """Return posterior means and variances of the entries, whose noise has these variances."""
    if not len(entries) or not noise_variances.any():
        return entries, np.zeros(len(entries))
    total = noise_variances[:, None] + PRIOR_VARIANCES
    logs = -0.5 * (np.log(total) + entries[:, None] ** 2 / total)
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    mixture_weights = np.full(len(PRIOR_VARIANCES), 1 / len(PRIOR_VARIANCES))
    for _ in range(_N_EM_ITERATIONS):
        responsibilities = likelihood * mixture_weights
        responsibilities /= responsibilities.sum(axis=1, keepdims=True)
        mixture_weights = (responsibilities.sum(axis=0) + 0.5) / (len(entries) + 0.5 * len(mixture_weights))
    means = entries[:, None] * PRIOR_VARIANCES / total
    mean = (responsibilities * means).sum(axis=1)
    return mean, (responsibilities * (noise_variances[:, None] * PRIOR_VARIANCES / total + means**2)).sum(
        axis=1
    ) - mean**2


MAX_PRIOR_FRACTION = 1 / 3
MIN_RESOLVED_DEVIATIONS = 2.5
"""A curvature stands above the noise if it is at least this many standard deviations of the noise."""
MIN_PRIOR_WIDTHS = 4.0
"""The prior is at least this many times as wide as the root mean square of the coefficients."""
_MAX_ITERATIONS = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """Posterior of the coefficients.

    Parameters
    ----------
    center : posterior mean, the center of the intervals.
    sampling, noise, prior : parts of its covariance: sampling, privacy noise, and the prior.
    scale : standard deviation of the prior.
    flat : [d, k], orthonormal directions about which nothing can be known; the center is 0 there.
    dispersion : estimate of sum h'^2 / sum h'', where both were released.
    resolved_fraction : released curvature of each coefficient over the least that stands above its noise, clipped to
        [0, 1] and rounded down to twentieths (one score only): the floating-point sums themselves are not stored.
    """

    center: Floats
    sampling: Floats
    noise: Floats
    prior: Floats
    scale: float
    flat: Floats
    dispersion: float | None = None
    resolved_fraction: Floats | None = None


def prior_scale(problem: Problem) -> float:
    """Return tau, the expected size of a coefficient in the planner's rules: half of its assumed bound."""
    defaults = problem.loss.unclipped_loss.defaults
    assert defaults is not None  # every loss with intervals belongs to a model
    return defaults.coef_bound / (2 * problem.row_norm)


def compute_posterior(
    interval_plan: IntervalPlan, theta: Floats, curvature: ReleasedCurvature, flat: Floats | None = None
) -> Posterior:
    """Return the posterior by post-processing of the two releases; several classes are computed in contrasts.

    `flat` are [n_columns, k], public directions in which the rows of a schema do not differ.
    """
    problem, noise_stds = interval_plan.plan.problem, interval_plan.noise_stds
    contrast_basis = class_contrasts(problem.loss.score_dimension)
    basis = np.asarray(np.kron(np.eye(problem.n_columns), contrast_basis), np.float64)
    curvature_diagonal = np.diag(curvature.matrix)
    is_unresolved = curvature_diagonal < MIN_RESOLVED_DEVIATIONS * noise_stds[0]
    flat_basis: Floats = np.zeros((len(curvature_diagonal), 0))
    if flat is not None:
        flat_basis = np.asarray(np.kron(flat, np.eye(contrast_basis.shape[1])), np.float64)
    flat_subspace = _unresolved_directions(
        curvature.matrix, flat_basis * ~is_unresolved[:, None], noise_stds[0]
    )
    subspace = _orthonormal_complement(
        np.column_stack([flat_subspace, np.eye(len(curvature_diagonal))[:, is_unresolved]])
    )
    subspace[is_unresolved] = 0.0
    inner, scale = _widen_prior(interval_plan, subspace, subspace.T @ (basis.T @ theta), curvature)
    rows, outer = basis @ subspace, basis[:, is_unresolved]
    spec = interval_plan.plan.spec
    assert isinstance(spec, ObjectivePerturbationSpec)
    release = (len(theta) + 1) * spec.release_density_scale**2
    return Posterior(
        center=rows @ inner.center,
        sampling=rows @ inner.sampling @ rows.T,
        noise=rows @ inner.noise @ rows.T + release * np.eye(len(theta)),
        prior=rows @ inner.prior @ rows.T + scale**2 * outer @ outer.T,
        scale=scale,
        flat=basis @ flat_subspace,
        dispersion=_estimate_dispersion(curvature, noise_stds),
        resolved_fraction=_round_down_to_twentieths(
            curvature_diagonal / (MIN_RESOLVED_DEVIATIONS * noise_stds[0])
        )
        if len(curvature_diagonal) == len(theta)
        else None,
    )


def _round_down_to_twentieths(values: Floats) -> Floats:
    return np.clip(np.floor(20 * values), 0, 20) / 20


class _SubspacePosterior(NamedTuple):
    center: Floats
    sampling: Floats
    noise: Floats
    prior: Floats


def _widen_prior(
    interval_plan: IntervalPlan, subspace: Floats, point: Floats, curvature: ReleasedCurvature
) -> tuple[_SubspacePosterior, float]:
    """Return the posterior under a prior at least MIN_PRIOR_WIDTHS times as wide as its coefficients, and that width.

    A prior narrower than the coefficients would shrink them to 0 and understate their variance. The width only grows,
    and depends on released values alone.
    """
    scale = prior_scale(interval_plan.plan.problem)
    for _ in range(_MAX_ITERATIONS):
        inner = _subspace_posterior(interval_plan, subspace, point, curvature, scale)
        variances = np.diag(inner.sampling + inner.noise + inner.prior)
        size = math.sqrt(max(float(np.mean(inner.center**2 - variances)) if len(variances) else 0.0, 0.0))
        if MIN_PRIOR_WIDTHS * size <= 1.01 * scale:
            break
        scale = MIN_PRIOR_WIDTHS * size
    return inner, scale


def _subspace_posterior(
    interval_plan: IntervalPlan, subspace: Floats, point: Floats, curvature: ReleasedCurvature, scale: float
) -> _SubspacePosterior:
    """Return the posterior in the coordinates `subspace`, whose orthonormal columns leave the noise unchanged."""
    problem, spec, noise_stds = (
        interval_plan.plan.problem,
        interval_plan.plan.spec,
        interval_plan.noise_stds,
    )
    assert isinstance(spec, ObjectivePerturbationSpec)
    size = problem.n_columns * problem.loss.score_dimension
    spread = spec.density_scale * (math.sqrt(size + 1) if spec.noise == "gamma" else 1.0)
    curvature_mean, curvature_variances = estimate_curvature(
        subspace.T @ curvature.matrix @ subspace, noise_stds[0]
    )
    gradient_covariance = _gradient_covariance(curvature, curvature_mean, subspace, noise_stds)
    observation = curvature_mean @ point + problem.n * problem.ridge * point
    unit, prior = np.eye(len(point)), scale**2
    squared_shift = own_variance = np.full(len(point), prior)
    for _ in range(_MAX_ITERATIONS):
        added = np.diag(
            spread**2 + curvature_variances @ squared_shift + np.diag(curvature_variances) * own_variance
        )
        weighted_curvature = np.linalg.solve(gradient_covariance + added, curvature_mean)
        covariance = np.linalg.inv(curvature_mean @ weighted_curvature + unit / prior)
        gain = covariance @ weighted_curvature.T
        middle = gain @ observation
        # How far the records, not the prior, determine each direction.
        data_fraction = unit - covariance / prior
        before = squared_shift + own_variance
        squared_shift = (data_fraction @ (point - middle)) ** 2
        own_variance = np.maximum(np.diag(data_fraction @ covariance @ data_fraction), 1e-12 * prior)
        if np.abs(squared_shift + own_variance - before).max(initial=0.0) <= 1e-6 * before.max(initial=1.0):
            break
    prior_leverage = unit - gain @ curvature_mean
    return _SubspacePosterior(
        middle,
        gain @ gradient_covariance @ gain.T,
        gain @ added @ gain.T,
        prior * prior_leverage @ prior_leverage.T,
    )


def _unresolved_directions(matrix: Floats, flat: Floats, noise_std: float) -> Floats:
    """Return an orthonormal basis of the flat directions, without those whose curvature stands above the noise."""
    if not flat.any():
        return np.zeros((len(flat), 0))
    vectors, sizes, _ = np.linalg.svd(flat, full_matrices=False)
    basis = vectors[:, sizes > 1e-9 * sizes[0]]
    values, turn = np.linalg.eigh(basis.T @ matrix @ basis)
    # sqrt(2 k) noise_std is the edge of the eigenvalues of a random symmetric matrix.
    max_noise_eigenvalue = noise_std * max(MIN_RESOLVED_DEVIATIONS, math.sqrt(2 * len(values)) + 1)
    return np.asarray(basis @ turn[:, values < max_noise_eigenvalue])


def _orthonormal_complement(directions: Floats) -> Floats:
    """Return an orthonormal basis of the complement of `directions`, each vector near one of the coordinates."""
    unit, rest = np.eye(len(directions)), directions.copy()
    drop = []
    for _ in range(directions.shape[1]):
        drop.append(int(np.argmax((rest * rest).sum(axis=1))))
        row = rest[drop[-1]] / np.linalg.norm(rest[drop[-1]])
        rest = rest - np.outer(rest @ row, row)
    projection = np.delete(unit - directions @ directions.T, drop, axis=1)
    left_vectors, _, right_vectors = np.linalg.svd(projection, full_matrices=False)
    return np.asarray(left_vectors @ right_vectors)


def _gradient_covariance(
    curvature: ReleasedCurvature, curvature_mean: Floats, subspace: Floats, noise_stds: list[float]
) -> Floats:
    """Return J: the curvature itself, a released multiple of it, or a matrix that was released itself."""
    if curvature.slope_moment is not None:
        values, vectors = np.linalg.eigh(subspace.T @ curvature.slope_moment @ subspace)
        return np.asarray((vectors * np.maximum(values, noise_stds[1])) @ vectors.T)
    return curvature_mean * (_estimate_dispersion(curvature, noise_stds) or 1.0)


def _estimate_dispersion(curvature: ReleasedCurvature, noise_stds: list[float]) -> float | None:
    """Return sum h'^2 / sum h'' where both were released, else None."""
    if curvature.squared_slopes is None or curvature.curvature_sum is None:
        return None
    return max(curvature.squared_slopes, noise_stds[1]) / max(curvature.curvature_sum, noise_stds[2])
