"""The one-step estimate of a whitened descent and its distribution: post-processing of the path and of a curvature.

Step t releases g_t = grad F(v_t) + xi_t at a known point v_t, with xi_t ~ N(0, s_t^2 I). F is the weighted mean loss in
whitened coordinates q, q* the minimiser of its expectation, H its curvature there. With weights om_t proportional to
1 / s_t^2 over the steps t >= a, and the noisy curvature K,

    K qbar - gbar  =  K q* - (xi + e) - (K - H)(q* - qbar),      qbar = sum om_t v_t,  gbar = sum om_t (g_t - rem_t),

where xi ~ N(0, s^2 I) with 1 / s^2 = sum 1 / s_t^2, and e = grad F(q*) has covariance J / n. Whatever steps, momentum
and convergence were, the points enter through the gradients at them alone: K^-1 (K qbar - gbar) is the minimiser plus
noise of ONE gradient that had nearly the whole budget of the descent. rem_t, the part of grad F(v_t) that is not linear
in v_t, is computed for elliptical rows (`EllipticalRows`); labels cancel in it.

K is the noisy curvature, shrunk towards a multiple of what elliptical rows would have, by James-Stein with known noise.
theta = B q has the prior N(0, tau^2), tau = coef_bound / row_norm or four times the root mean square of the
coefficients beyond noise, before anything is shrunk, if that is larger. docs/theory/one_step_intervals.md has the
derivation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.mechanisms.whitened.curvature import (
    EllipticalRows,
    WhitenedCurvature,
    describe_rows,
    limit_curvature,
)
from dplangevin.mechanisms.whitened.spec import CURVATURE_ROW_FACTOR
from dplangevin.mechanisms.whitened.whitening import WhitenedGeometry
from dplangevin.problem import Problem

MIN_RELATIVE_EIGENVALUE = 0.05
"""Smallest eigenvalue of the estimated curvature over that of its guess."""
MIN_TRACE_DEVIATIONS = 2.0
"""The guess has at least this many standard deviations of the noise of a trace."""
MAX_SIZE_FACTOR = 2.0
"""Largest factor by which the nonlinear part of elliptical rows is scaled to the released curvature."""
WINDOW_BIAS_FACTOR = 0.1
"""Weight of the squared nonlinearity, most of which is computed, against variance in the choice of the first step."""
PRIOR_SHARE = 1.0
"""Standard deviation of the public prior over the planner's bound on a coefficient of rows of norm 1."""
MIN_PRIOR_WIDTHS = 4.0
"""The prior is at least this many times as wide as the root mean square of the released coefficients."""
MIN_CURVED_DEVIATIONS = 2.5
"""A direction in which a schema's rows do not differ is flat unless its curvature exceeds so many deviations."""
MIN_COSINE = math.sqrt(0.5)
MIN_KNOWN_DEVIATIONS = 2.0
"""After two moment releases, a direction that stays below the noise of the second has a curvature worth using if that
is at least so many deviations. After one release most directions may be below it, and their mean is used."""
OUTSIDE_SPECTRUM = 1.1
"""An eigenvalue lies below the spectrum of noise if it is further from the mean than this many times its edge."""
MAX_DOUBT = 0.8
"""Largest relative effect of a curvature's noise for which Newton steps are lengthened."""
N_LAW_POINTS, LAW_RANGE = 64, 1e5
"""Curvatures for which the noise of the answer is tabulated, and the largest of them over the smallest."""
N_ROUNDS, N_CENTERS = 3, 3
"""Rounds for the error of the curvature, and points around which the loss is expanded: the released answer first, then
the same with the mean score of the estimate, as answers that have not converged are off above all there."""
AUXILIARY_PREFIX = "one_step_"


class DescentRecord(NamedTuple):
    """A finished descent, in whitened coordinates q.

    Parameters
    ----------
    points, gradients, noise_stds : points and noisy gradients [T, p], and the noise of each step.
    step_sizes : of each coordinate.
    tail_first : first step whose iterate is averaged.
    end : mean of the last iterates.
    answer : what was released.
    shrinkage : [p, p], by which the mean of the tail, relative to the start, was multiplied to give the answer.
    origin_noise : [p], standard deviation of the noise in the start, along the one direction in which it has any.
    """

    points: Floats
    gradients: Floats
    noise_stds: Floats
    step_sizes: Floats
    tail_first: int
    end: Floats
    answer: Floats
    shrinkage: Floats
    origin_noise: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class OneStepEstimate:
    """The one-step estimate of the coefficients and the parts of its covariance.

    Parameters
    ----------
    center : the estimate [p].
    sampling, noise, prior : covariances [p, p] due to sampling, to privacy noise, and to the prior.
    curvature : estimated curvature of the mean loss in theta, [p, p].
    answer_noise : covariance of the noise in the released coefficients, [p, p].
    prior_scale : standard deviation tau of the prior.
    flat : [p, k], orthonormal directions about which nothing can be known; the center is 0 there.
    dispersion : mean squared slope where it was released, else None.
    slope_ratio, slope_ratio_std : where squared slopes were released, the variance of the gradients over the curvature,
        1 or less for a likelihood, and its standard error due to noise.
    row_basis : of a logistic loss, [p, k]: x' row_basis is the whitened row x over the bound on its length.
    row_curvatures : [2, k, k], the curvature in these coordinates of q as it was released, and its shrunk estimate.
    curvature_noise : standard deviation of the noise on the diagonal of the former.
    noise_law : [2, m], curvatures, and the variance of the noise in the answer where all directions have this one.
    curvature_limit : the curvature of a row of length 1 that counted at most (`CurvatureLimit`).
    """

    ARRAY_NAMES: ClassVar[tuple[str, ...]] = (
        "center", "sampling", "noise", "prior", "curvature", "answer_noise", "flat", "row_basis", "row_curvatures",
        "noise_law",
    )  # fmt: skip
    center: Floats
    sampling: Floats
    noise: Floats
    prior: Floats
    curvature: Floats
    answer_noise: Floats
    prior_scale: float
    flat: Floats
    dispersion: float | None = None
    slope_ratio: float | None = None
    slope_ratio_std: float | None = None
    row_basis: Floats | None = None
    row_curvatures: Floats | None = None
    noise_law: Floats | None = None
    curvature_noise: float | None = None
    curvature_limit: float | None = None

    def to_arrays(self) -> dict[str, Floats]:
        """Return what a release keeps: single precision, whose rounding hides the last digits of noisy sums."""
        arrays = {name: value for name, value in vars(self).items() if value is not None}
        return {
            AUXILIARY_PREFIX + name: np.asarray(value, np.float32).astype(float)
            for name, value in arrays.items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> OneStepEstimate | None:
        """Return the estimate that a release kept; None where it released no curvature."""
        size = len(AUXILIARY_PREFIX)
        own = {name[size:]: value for name, value in arrays.items() if name.startswith(AUXILIARY_PREFIX)}
        if not own:
            return None
        arrays = {name: own.pop(name) for name in cls.ARRAY_NAMES if name in own}
        return cls(**arrays, **{name: float(value) for name, value in own.items()})  # type: ignore[arg-type]


def estimate_one_step(
    record: DescentRecord,
    geometry: WhitenedGeometry,
    curvature: WhitenedCurvature,
    problem: Problem,
    first_moment: Floats,
    flat_directions: Floats | None = None,
) -> OneStepEstimate:
    """Return the one-step estimate with its distribution, a function of released and public values alone.

    first_moment : the first noisy second moment of the rows. flat_directions : of a schema, see `OneStepEstimate`.
    """
    basis = geometry.transform.basis / problem.row_norm
    curved, flat = _separate_flat_directions(basis, curvature, flat_directions)
    inside, unknown = _separate_unknown_directions(curved, geometry, curvature)
    rows = describe_rows(geometry, problem, first_moment)
    guess = _guess_curvature(rows, geometry, curvature, record.answer, inside)
    # from here on coordinates are c = W' q, in which the noise is as white as in q
    released, left, first_root = shrink_curvature(
        inside.T @ curvature.matrix @ inside, guess, curvature.noise_std
    )
    first = _choose_first_step(record, geometry.moments, float(np.trace(released)) / len(released))
    weights = record.noise_stds[first:] ** -2.0
    variance = 1 / weights.sum()
    weights *= variance
    point, size = inside.T @ (weights @ record.points[first:]), len(released)
    gradients = inside.T @ (weights @ record.gradients[first:])
    ratio, ratio_std = _slope_ratio(curvature, released)
    to_theta = basis @ np.column_stack([inside, unknown])
    to_theta = to_theta - flat @ (flat.T @ to_theta)
    covariance = released / problem.n * (ratio or 1.0)
    estimates = (inside.T @ record.answer, point - np.linalg.solve(released, gradients))
    scale = max(
        _prior_scale(problem, released, covariance, variance, to_theta[:, :size], each) for each in estimates
    )
    prior, known = to_theta.T @ to_theta / scale**2, np.eye(to_theta.shape[1])[:, :size]
    center, lengthening = record.answer, _newton_step_lengthening(released, left, first_root)
    for _ in range(1 if rows is None else N_CENTERS):
        turn = _move_curvature(rows, record.answer, center, inside)
        matrix, root = turn @ released @ turn.T, turn @ first_root
        gradient_covariance = matrix / problem.n * (ratio or 1.0)
        remainder = weights @ _compute_remainders(rows, record, center, released, inside)[first:]
        observation = matrix @ point - gradients + inside.T @ remainder
        move, own = np.zeros(size), np.zeros(size)
        for _ in range(N_ROUNDS):
            doubt = left @ (lengthening @ root.T @ move) ** 2 + np.diag(left) * own
            noise = variance * np.eye(size) + (root * doubt) @ root.T
            weighted = np.linalg.solve(gradient_covariance + noise, matrix)
            covariance = np.asarray(np.linalg.inv(known @ (matrix @ weighted) @ known.T + prior), np.float64)
            gain = covariance @ known @ weighted.T
            middle = gain @ observation
            informed = (gain @ matrix)[:size]  # how far the records, not the prior, determine each direction
            move = informed @ (point - middle[:size])
            own = np.maximum(np.diag(root.T @ informed @ covariance[:size, :size] @ informed.T @ root), 0.0)
        if rows is not None:
            move_of_center = inside @ (middle[:size] - inside.T @ record.answer)
            spread = inside @ covariance[:size, :size] @ inside.T
            center = rows.move_center(record.answer, move_of_center, spread)
    noisy = curved.T @ curvature.matrix @ curved
    if unknown.shape[1]:
        guess = _guess_curvature(rows, geometry, curvature, record.answer, curved)
        released, left, first_root = shrink_curvature(noisy, guess, curvature.noise_std)
    unbiased = _correct_inverse(released, left, first_root)
    gain = to_theta @ gain
    leverage = to_theta @ covariance
    back = np.linalg.pinv(to_theta)[:size]
    of_decisions: dict[str, Any] = {}
    if rows is not None and rows.kind == "logistic":
        limit = limit_curvature(geometry, problem, first_moment, record.answer)
        of_decisions = {
            "row_basis": basis @ curved / geometry.transform.bound,
            "row_curvatures": np.array([noisy, unbiased]),
            "curvature_noise": curvature.noise_std,
            "noise_law": _tabulate_noise(record),
            "curvature_limit": CURVATURE_ROW_FACTOR * limit.largest,
        }
    return OneStepEstimate(
        center=to_theta @ middle,
        sampling=gain @ gradient_covariance @ gain.T,
        noise=gain @ noise @ gain.T,
        prior=leverage @ prior @ leverage.T,
        curvature=back.T @ matrix @ back,
        answer_noise=basis @ _answer_noise(record, curved @ unbiased @ curved.T) @ basis.T,
        prior_scale=scale,
        flat=flat,
        dispersion=curvature.mean_square,
        slope_ratio=ratio,
        slope_ratio_std=ratio_std,
        **of_decisions,
    )


def _slope_ratio(curvature: WhitenedCurvature, matrix: Floats) -> tuple[float | None, float | None]:
    """Return the variance of the gradients over the curvature and its standard error, where slopes were released."""
    if curvature.weighted_square is None:
        return None, None
    trace = float(np.trace(matrix))
    ratio = max(curvature.weighted_square, curvature.weighted_noise_std) / trace
    relative = math.hypot(
        curvature.weighted_noise_std / (ratio * trace),
        curvature.noise_std * math.sqrt(len(matrix)) / trace,
    )
    return ratio, ratio * relative


def _move_curvature(rows: EllipticalRows | None, start: Floats, end: Floats, inside: Floats) -> Floats:
    """Return T with which a curvature K at q = `start` becomes T K T' at `end`, as that of elliptical rows does."""
    if rows is None or start is end:
        return np.eye(inside.shape[1])
    before, after = (
        np.linalg.cholesky(inside.T @ rows.curvature_at(point) @ inside) for point in (start, end)
    )
    return np.asarray(after @ np.linalg.inv(before))


def _answer_noise(record: DescentRecord, curvature: Floats) -> Floats:
    """Return the covariance of the noise in the released mean of the tail, for a quadratic loss of this curvature.

    In coordinates E^-1/2 q, E the step sizes, and along the eigenvectors of E^1/2 K E^1/2, each is a recursion of its
    own: the weight of the noise of a step in the mean follows backwards from the last step, and that of the start after
    the first. The answer is the start plus the shrunk mean relative to it.
    """
    roots = np.sqrt(record.step_sizes)
    values, vectors = np.linalg.eigh(np.outer(roots, roots) * curvature)
    weights, of_start = _noise_weights(record, values)
    weights *= record.noise_stds[:, None]
    noise = (vectors.T * record.step_sizes) @ vectors
    to_q = record.shrinkage @ (roots[:, None] * vectors)
    reached = (to_q * (1 - of_start)) @ (vectors.T / roots)
    origin = record.origin_noise - reached @ record.origin_noise
    return np.asarray(to_q @ (weights.T @ weights * noise) @ to_q.T + np.outer(origin, origin))


def _tabulate_noise(record: DescentRecord) -> Floats:
    """Return [2, m]: curvatures, and the mean variance of the answer's noise where all directions have this one."""
    etas = record.step_sizes
    curvatures = 4 / 3 / float(etas.min()) * np.geomspace(1 / LAW_RANGE, 1.0, N_LAW_POINTS)
    weights, _ = _noise_weights(record, curvatures[:, None] * etas)
    variances = np.einsum("t,tij->ij", record.noise_stds**2, weights**2) * etas**2
    return np.array([curvatures, variances @ (record.shrinkage**2).sum(axis=0) / len(etas)])


def _noise_weights(record: DescentRecord, curvatures: Floats) -> tuple[Floats, Floats]:
    """Return the weights of each step's noise in the mean of the tail, and that of the start, for these curvatures."""
    curvatures, n_steps = np.clip(curvatures, 0.0, 4 / 3), len(record.points)
    share = 1 / (n_steps - record.tail_first)
    weights, current, later = np.zeros((n_steps, *curvatures.shape)), *np.zeros((2, *curvatures.shape))
    for t in reversed(range(n_steps)):
        weights[t] = current + (share if t >= record.tail_first else 0.0)
        propagated = (1 - curvatures) * weights[t]
        current, later = (1 + t / (t + 3)) * propagated + later, -t / (t + 3) * propagated
    return weights, current


def _correct_inverse(matrix: Floats, left: Floats, root: Floats) -> Floats:
    """Return a curvature whose inverse is unbiased to second order, for errors of these variances in `matrix`.

    With E the error, E[(H + E)^-1] = H^-1 + H^-1 E[E H^-1 E] H^-1 + ...: the last matrix is added to the curvature.
    """
    inverse = np.linalg.inv(root)
    scaled = np.linalg.inv(inverse @ matrix @ inverse.T)
    return np.asarray(matrix + (root * (left @ np.diag(scaled))) @ root.T)


def shrink_curvature(noisy: Floats, guess: Floats, noise_std: float) -> tuple[Floats, Floats, Floats]:
    """Return the curvature shrunk towards the guess L L', the variances left of its entries in L's coordinates, and L.

    noise_std : standard deviation of the noise on the diagonal of `noisy`; off it the variance is half as large.
    """
    size = len(noisy)
    root = np.linalg.cholesky(guess)
    inverse = np.linalg.inv(root)
    difference = inverse @ (noisy - guess) @ inverse.T
    products = inverse @ inverse.T
    diagonal = np.diag(products)
    noise = noise_std**2 * (np.outer(diagonal, diagonal) + products**2) / 2
    values, vectors = np.linalg.eigh(difference)
    edge = 2 * math.sqrt(float(noise.sum(axis=1).max()))
    outside = np.abs(values) > OUTSIDE_SPECTRUM * edge
    values, vectors = values[outside], vectors[:, outside]
    # noise moves an eigenvalue s of its own out to s + edge^2 / (4 s)
    values = (values + np.sign(values) * np.sqrt(values**2 - edge**2)) / 2
    seen, near = (vectors * values) @ vectors.T, (vectors**2).sum(axis=1)
    rest, total = difference - seen, float(noise.sum())
    spread = max(float((rest**2).sum()) - total, 0.0) / size**2 + 2 * total / size**3
    shares = spread / np.maximum(spread + noise, 1e-300)
    left = np.maximum(shares, np.minimum(near[:, None] + near, 1.0)) * noise
    values, vectors = np.linalg.eigh(np.eye(size) + seen + shares * rest)
    inner = (vectors * np.maximum(values, MIN_RELATIVE_EIGENVALUE)) @ vectors.T
    return np.asarray(root @ inner @ root.T), np.asarray(left), np.asarray(root)


def _newton_step_lengthening(matrix: Floats, left: Floats, root: Floats) -> Floats:
    """Return G, in the coordinates of L, by which a Newton step is longer at the end of a confidence interval.

    In a direction of curvature K with noise sigma, the minimiser r away has K r = g: with K - 1.96 sigma for K, r is
    longer by 1 / (1 - 1.96 sigma / K). Its mean with the other end is 1 / (1 - (1.96 sigma / K)^2) (Fieller).
    """
    inverse = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(inverse @ matrix @ inverse.T)
    squares = vectors**2
    variances = 2 * np.einsum("ik,ij,jk->k", squares, left, squares) - np.diag(left) @ squares**2
    shares = np.minimum(1.96**2 * variances / values**2, MAX_DOUBT)
    return np.asarray((vectors / (1 - shares)) @ vectors.T)


def _separate_flat_directions(
    basis: Floats, curvature: WhitenedCurvature, flat_directions: Floats | None
) -> tuple[Floats, Floats]:
    """Return orthonormal bases: of the coordinates q that scores depend on, and of the flat directions of theta.

    Scores do not change along B^-1 flat, so that gradients lie in its complement, where noise stays white. A direction
    whose released curvature stands above the noise (rows with unlisted categories) is not flat.
    """
    size = len(basis)
    if flat_directions is None or not flat_directions.size:
        return np.eye(size), np.zeros((size, 0))
    vectors, sizes, _ = np.linalg.svd(np.linalg.solve(basis, flat_directions), full_matrices=False)
    vectors = vectors[:, sizes > 1e-9 * sizes[0]]
    values, turn = np.linalg.eigh(vectors.T @ curvature.matrix @ vectors)
    edge = curvature.noise_std * max(MIN_CURVED_DEVIATIONS, math.sqrt(2 * len(values)) + 1)
    vectors = vectors @ turn[:, values < edge]
    if not vectors.shape[1]:
        return np.eye(size), np.zeros((size, 0))
    full = np.linalg.svd(vectors)[0]
    return full[:, vectors.shape[1] :], np.linalg.svd(basis @ vectors, full_matrices=False)[0]


def _separate_unknown_directions(
    inside: Floats, geometry: WhitenedGeometry, curvature: WhitenedCurvature
) -> tuple[Floats, Floats]:
    """Return `inside` without the directions whose second moment and curvature are both hidden by noise, and these.

    Nothing is known about the coefficients there but the prior: a curvature that noise made too large would make them
    look precise. Two signs of one that is nearly 0: it lies below the spectrum that noise alone gives to equal
    curvatures, and within a few deviations of 0; or, after two moment releases, the whole block does, as far as its
    noise lets eigenvalues differ.
    """
    nothing = np.zeros((len(inside), 0))
    vectors = _below_noise(inside, geometry)
    if not vectors.shape[1]:
        return inside, nothing
    block, noise_std = (
        _curvature_alone(inside.T @ curvature.matrix @ inside, vectors, curvature.noise_std),
        curvature.noise_std,
    )
    values, turn = np.linalg.eigh(block)
    edge = float(values.mean()) - OUTSIDE_SPECTRUM * noise_std * math.sqrt(2 * len(values))
    hidden = turn[:, values < min(edge, MIN_KNOWN_DEVIATIONS * noise_std)]
    if geometry.n_releases == 2:
        shrunk, share = _shrink_to_mean(block, noise_std)
        deviation = noise_std * math.sqrt(share + (1 - share) / len(values))
        below = shrunk.eigenvectors[:, shrunk.eigenvalues < MIN_KNOWN_DEVIATIONS * deviation]
        hidden = max(hidden, below, key=lambda basis: basis.shape[1])
    unknown = vectors @ hidden
    if not 0 < unknown.shape[1] < inside.shape[1]:
        return inside, nothing
    return inside @ np.linalg.svd(unknown)[0][:, unknown.shape[1] :], inside @ unknown


def _curvature_alone(matrix: Floats, vectors: Floats, noise_std: float) -> Floats:
    """Return what the block of a noisy curvature has of its own, when the other directions are free to compensate.

    The released geometry shows a weak direction tilted towards strong ones, whose curvature would hide that it is weak.
    The Schur complement removes it; what noise adds to the part that is removed is put back.
    """
    rest = np.linalg.svd(vectors)[0][:, vectors.shape[1] :]
    cross = vectors.T @ matrix @ rest
    values, turn = np.linalg.eigh(rest.T @ matrix @ rest)
    values = np.maximum(values, MIN_KNOWN_DEVIATIONS * noise_std)
    cross = cross @ turn
    expected = noise_std**2 / 2 * float((1 / values).sum()) * np.eye(len(cross))
    return np.asarray(vectors.T @ matrix @ vectors - (cross / values) @ cross.T + expected)


def _below_noise(inside: Floats, geometry: WhitenedGeometry) -> Floats:
    """Return an orthonormal basis, in coordinates `inside`, of the directions whose second moment is below its noise.

    Most of a direction must lie inside: flat directions are below the noise as well, and are known only roughly there.
    """
    vectors, cosines, _ = np.linalg.svd(inside.T[:, ~geometry.spectrum.above_noise], full_matrices=False)
    return np.asarray(vectors[:, cosines > MIN_COSINE])


def _shrink_to_mean(block: Floats, noise_std: float) -> tuple[Any, float]:
    """Return eigenvalues and eigenvectors of a noisy block, shrunk towards their mean, and the share that was left.

    Where the block differs from a multiple of the identity by no more than its noise, all eigenvalues are their mean.
    """
    size = len(block)
    mean = np.trace(block) / size * np.eye(size)
    noise = noise_std**2 * size * (size + 1) / 2
    spread = max(float(((block - mean) ** 2).sum()) - noise, 0.0)
    share = spread / max(spread + noise, 1e-300)
    return np.linalg.eigh(mean + share * (block - mean)), share


def _guess_curvature(
    rows: EllipticalRows | None,
    geometry: WhitenedGeometry,
    curvature: WhitenedCurvature,
    answer: Floats,
    inside: Floats,
) -> Floats:
    """Return the curvature of elliptical rows, scaled to the traces of the released one, in the coordinates `inside`.

    Directions whose second moment stands above its noise, and the others, are scaled separately.
    """
    if rows is None:
        guess = np.diag(geometry.moments)
    else:
        guess = rows.curvature_at(answer)
    guess, released = inside.T @ guess @ inside, inside.T @ curvature.matrix @ inside
    below = _below_noise(inside, geometry)
    low = below @ below.T
    scale = np.zeros_like(guess)
    for part in (np.eye(len(guess)) - low, low):
        if (size := float(np.trace(part))) > 0.5:
            trace = max(
                float(np.sum(part * released)), MIN_TRACE_DEVIATIONS * curvature.noise_std * math.sqrt(size)
            )
            scale += math.sqrt(trace / float(np.sum(part * guess))) * part
    return np.asarray(scale @ guess @ scale)


def _compute_remainders(
    rows: EllipticalRows | None, record: DescentRecord, center: Floats, matrix: Floats, inside: Floats
) -> Floats:
    """Return, for each step, the part of the gradient at its point that is not linear around the center.

    matrix : the curvature at the released answer, to which that of elliptical rows is scaled.
    """
    if rows is None:
        return np.zeros_like(record.points)
    modelled = inside.T @ rows.curvature_at(record.answer) @ inside
    size = min(float(np.trace(matrix)) / max(float(np.trace(modelled)), 1e-300), MAX_SIZE_FACTOR)
    slope, curvature = rows.law_at(rows.root * center)
    parts = [
        rows.law_at(rows.root * point)[0] - slope - curvature @ (rows.root * (point - center))
        for point in record.points
    ]
    return np.asarray(size * np.array(parts) * rows.root)


def _choose_first_step(record: DescentRecord, moments: Floats, curvature: float) -> int:
    """Return the first step that is used: earlier ones add noise budget, but lie further from the end of the path."""
    n_steps, size = len(record.points), len(moments)
    distances = 0.5 * curvature * ((record.points - record.end) ** 2 @ moments)
    precisions = record.noise_stds**-2.0
    best, chosen = math.inf, max(n_steps - 2, 0)
    for first in range(min(2, chosen), max(n_steps - 2, 1)):
        total = precisions[first:].sum()
        bias = float(precisions[first:] @ distances[first:]) / total
        error = 1 / total + WINDOW_BIAS_FACTOR * bias**2 / size
        if error < best:
            best, chosen = error, first
    return chosen


def _prior_scale(
    problem: Problem, matrix: Floats, covariance: Floats, variance: float, to_theta: Floats, estimate: Floats
) -> float:
    """Return tau: public, or wider if these coefficients are large beyond their noise, which weights them."""
    defaults = problem.loss.unclipped_loss.defaults
    assert defaults is not None  # every loss with intervals belongs to a model
    gain = to_theta @ np.linalg.inv(matrix)
    noise = np.einsum("ij,jk,ik->i", gain, covariance + variance * np.eye(len(matrix)), gain)
    squares = (to_theta @ estimate) ** 2 - noise
    size = math.sqrt(max(float(np.mean(squares)), float(np.average(squares, weights=1 / noise)), 0.0))
    return max(PRIOR_SHARE * defaults.coef_bound / problem.row_norm, MIN_PRIOR_WIDTHS * size)
