"""Posterior of the coefficients given a released point and its noisy curvature: a linear model with a public prior.

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
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainccinv, ndtr

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import bisect_arrays
from dplangevin.estimators._interval_plan import IntervalPlan
from dplangevin.mechanisms.noisy_answers.curvature import ReleasedCurvature, class_contrasts
from dplangevin.mechanisms.perturbation.spec import ObjectivePerturbationSpec
from dplangevin.problem import Problem

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
