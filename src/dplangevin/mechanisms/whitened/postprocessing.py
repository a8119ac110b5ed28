"""Post-processing of whitened descent: empirical-Bayes shrinkage of the iterates, and an estimate of the excess risk.

All of it is computed from noisy gradients that composition covers. Windows are means of the iterates (see
`window_response`); a hypothesis fixes the size of the coefficients (a normal prior with standard deviation sd each,
rows of norm 1) and the curvature of the risk; the posterior given the windows weights the windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from dplangevin._arrays import Floats
from dplangevin.mechanisms.constant_model import normalize_logs
from dplangevin.mechanisms.whitened.spec import DescentPath, WhitenedSpec, window_response
from dplangevin.mechanisms.whitened.whitening import WhitenedGeometry
from dplangevin.problem import Problem

NOISE_FACTOR, MAX_FLATNESS_RATIO = 1.25, 10.0
"""Factor on the noise of the quadratic model, and largest ratio of curvatures across and along the coefficients."""
MIN_UNCUT_EXCESS_NORM, CUT_NOISE_INCREASE, CUT_EXCESS_FRACTION = 0.4, 0.25, 0.03
"""Row norm factor, less 1, from which weights of rows cost nothing; at factor 1, what they add to the noise and, as a
fraction of p / (2 n), to the excess."""
REMAINING_PER_DECREASE, MIN_DECREASE_IN_DEVIATIONS, MIN_DECREASE_IN_NOISE = 1.6, 1.0, 3.0
"""Remaining excess per decrease over the last third; how many standard deviations and expected noise losses that
decrease must exceed to count. All constants were chosen on generated tables."""
_NORMAL_NODES = np.linspace(-8, 8, 4001)
_NORMAL_WEIGHTS = np.exp(-(_NORMAL_NODES**2) / 2)
_NORMAL_WEIGHTS /= _NORMAL_WEIGHTS.sum()


def mean_curvature_ratio(score: float, along: bool = False) -> float:
    """Return the mean curvature of a logistic loss over its largest one, for normal scores of this root mean square.

    The curvature is taken across the coefficients, or along them, where scores are largest.
    """
    probabilities = expit(min(score, 100.0) * _NORMAL_NODES)
    return float(
        4 * (_NORMAL_WEIGHTS * (_NORMAL_NODES**2 if along else 1.0)) @ (probabilities * (1 - probabilities))
    )


def round_to_two_digits(estimate: float) -> Floats:
    """Return an estimate rounded to two digits, as stored on a model; more digits would not be meaningful."""
    return np.array(float(f"{estimate:.1e}"))


def last_third_start(steps: int) -> int:
    """Return the first step (from 0) that `loss_decrease` uses; it also needs the two iterates before it."""
    return 2 * steps // 3


def loss_decrease(
    path: Mapping[int, Floats], etas: Floats, noise: Callable[[int], float], steps: int
) -> tuple[float, float]:
    """Estimate the decrease of the loss over the last third of the steps, and the standard deviation of the estimate.

    It sums the noisy gradients times the moves they caused, corrected for the noise's product with itself: eta
    noise^2 per coordinate.

    Parameters
    ----------
    path : coordinates after each step.
    etas : step size of each coordinate.
    noise : step -> standard deviation of the noise on a coordinate of its gradient.
    steps : number of steps.
    """
    start = np.zeros_like(etas)
    decrease = variance = 0.0
    for t in range(last_third_start(steps), steps):
        before, earlier, after = path.get(t - 1, start), path.get(t - 2, start), path[t]
        gradient = (before + t / (t + 3) * (before - earlier) - after) / etas
        move, square = after - before, noise(t) ** 2
        decrease -= float(gradient @ move) + square * float(etas.sum())
        variance += square * float(move @ move)
    return decrease, math.sqrt(variance)


def estimate_excess(
    spec: WhitenedSpec,
    geometry: WhitenedGeometry,
    etas: Floats,
    tail: Floats,
    path: Mapping[int, Floats],
    steps: int,
    problem: Problem,
    mean_curvature: float = 1.0,
) -> float | None:
    """Estimate the excess of the mean loss over its minimum, for a fit whose tail has the mean `tail` [p] in q.

    A quadratic risk with curvature h_j in coordinate j: sum h_j var_j / 2 for noise, one direction of them as flat as
    it is along the coefficients, and sum h_j (1 - phi_j)^2 q_j^2 / 2 for what the steps did not reach. Coordinates
    whose eigenvalues are below the noise may be flatter than assumed: where the loss still falls along them, that
    decrease is used instead. None for losses whose curvature is not known from the scores.

    mean_curvature : at the start of the descent, to which `tail` and `path` are relative, over its bound.
    """
    loss, slope_formula = problem.loss, problem.loss.slope_formula
    if slope_formula is None or loss.score_dimension > 1 or slope_formula.kind not in ("logistic", "affine"):
        return None
    moments, below_noise, bound = geometry.moments, ~geometry.spectrum.above_noise, geometry.transform.bound
    square, curvature_ratio, score = float(moments @ tail**2), 1.0, 0.0
    for _ in range(3):  # fixed point: the noise in the scores depends on how flat the loss is
        if slope_formula.kind == "logistic" and score:
            curvature_ratio = mean_curvature_ratio(score)
        curvatures = mean_curvature * curvature_ratio / spec.step_size * moments
        windows = window_response(spec.descent_path(steps), np.minimum(etas * curvatures, 2.0))
        variances = (etas * bound * spec.noise_at_step(steps - 1, steps)) ** 2 * windows.noise[:, 2, 2]
        score = math.sqrt(max(square - float(moments @ variances), 0.1 * square))
    flatness_factor = 1.0
    if slope_formula.kind == "logistic":
        flatness_factor += (
            min(curvature_ratio / mean_curvature_ratio(score, along=True), MAX_FLATNESS_RATIO) - 1
        ) / len(tail)
    row_norm_factor = bound / math.sqrt(float(moments.sum()))
    cut = float(np.clip(1 - (row_norm_factor - 1) / MIN_UNCUT_EXCESS_NORM, 0.0, 1.0))
    noise = (
        NOISE_FACTOR * flatness_factor * (1 + CUT_NOISE_INCREASE * cut) * float(curvatures @ variances) / 2
    )
    reached = windows.reached_fraction[:, 2]
    squares = np.maximum(tail**2 - variances, 0.0) / np.maximum(reached, 0.05) ** 2
    missed_parts = curvatures * (1 - reached) ** 2 * squares / 2
    decrease, deviation = loss_decrease(
        {t: q[below_noise] for t, q in path.items()}, etas[below_noise],
        lambda t: bound * spec.noise_at_step(t, steps), steps,
    )  # fmt: skip
    bias = float(missed_parts.sum())
    if decrease > MIN_DECREASE_IN_DEVIATIONS * deviation + MIN_DECREASE_IN_NOISE * noise:
        bias = float(missed_parts[~below_noise].sum()) + REMAINING_PER_DECREASE * decrease
    excess = noise + bias
    if spec.shrink:  # shrinking to 0 loses at most the whole gain
        gain = float(curvatures @ squares) / 2
        excess *= gain / (gain + excess) if gain else 1.0
    return excess + CUT_EXCESS_FRACTION * cut * len(tail) / (2 * problem.n)


_CovarianceFunction = Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]
EXPECTED_COEF_SIZE = 5.0
"""Expected size of the coefficients (half of the coefficient bound of logistic regression)."""
WIDE_PRIOR = 2.0
"""Standard deviation of the logarithm of that size after one moment release: there may be no effects at all."""
COEF_DEVIATIONS = 2.0 ** (np.arange(-6, 13) / 2)
CURVATURE_FRACTIONS = (1.0, 0.6, 0.36, 0.2)
"""Mean curvature of the loss as a fraction of its largest one."""
MOMENT_DECAYS = (0.0, 0.5, 1.0, 1.5, 2.5)
MAX_WEAK_DEVIATION = 6.0
"""Largest standard deviation of the coefficients at which effects count as weak."""


class ShrinkageResult(NamedTuple):
    """The shrunk coefficients, the posterior probability that effects are weak, and the matrix that shrank the tail."""

    value: Floats
    weak_probability: float
    linear_map: Floats | None = None


def shrink_windows(
    windows: Floats,
    geometry: WhitenedGeometry,
    steps: Floats,
    noise: float,
    slope: float,
    path: DescentPath,
    records: float,
) -> ShrinkageResult:
    """Return lambda E[q | windows] + (1 - lambda) w_3, lambda the posterior probability of sd <= MAX_WEAK_DEVIATION.

    Parameters
    ----------
    windows : [3, p], the means of the windows in q.
    steps : step size of each coordinate.
    noise : standard deviation of the noise on a coordinate of the last gradient.
    slope : the largest curvature of the loss in the score.
    records : the public number n of records: the minimiser over n records has a sampling variance of
        1 / (n curvature), which the windows cannot tell from a coefficient.
    """
    covariances = partial(_window_covariances, noise=noise, path=path, records=records)
    above_noise = geometry.spectrum.above_noise
    prior = 1 / np.einsum("ij,ij->j", geometry.transform.basis, geometry.transform.basis)
    logs = np.empty((len(CURVATURE_FRACTIONS), len(MOMENT_DECAYS), len(COEF_DEVIATIONS)))
    means = np.zeros((len(CURVATURE_FRACTIONS), len(COEF_DEVIATIONS), windows.shape[1]))
    parts = []
    for i, fraction in enumerate(CURVATURE_FRACTIONS):
        fit, means[i][:, above_noise] = _fit_above_noise(
            windows[:, above_noise], fraction * slope * geometry.moments[above_noise], prior[above_noise],
            steps[above_noise], covariances,
        )  # fmt: skip
        for j, decay in enumerate(MOMENT_DECAYS):
            more, middle, right = _fit_below_noise(
                windows[:, ~above_noise], _guess_moments(geometry, decay) * fraction * slope, prior[~above_noise],
                steps[~above_noise], covariances,
            )  # fmt: skip
            parts.append((middle, right))
            logs[i, j] = fit + more - (np.log(COEF_DEVIATIONS / EXPECTED_COEF_SIZE) / WIDE_PRIOR) ** 2 / 2
    posterior = normalize_logs(logs)
    weak_probability = float(posterior[..., COEF_DEVIATIONS <= MAX_WEAK_DEVIATION].sum())
    expected = np.einsum("id,idp->p", posterior.sum(axis=1), means)
    if not above_noise.all():
        chances = posterior.reshape(len(parts), -1)
        middle = np.einsum("kd,kdjl->jl", chances, np.array([part[0] for part in parts]))
        right = np.einsum("kd,kdj->j", chances, np.array([part[1] for part in parts]))
        expected[~above_noise] = solve_regularized(middle, right) @ windows[:, ~above_noise]
    return ShrinkageResult(
        weak_probability * expected + (1 - weak_probability) * windows[2], weak_probability
    )


def shrink_tail(
    tail: Floats,
    geometry: WhitenedGeometry,
    steps: Floats,
    noise: float,
    slope: float,
    path: DescentPath,
    records: float,
) -> ShrinkageResult:
    """Shrink the tail in fully whitened coordinates, where it has converged: the minimiser plus noise of known size.

    The prior is exchangeable along the principal axes of the rows, not along those of the second moment release,
    whose eigenvalues are nearly equal. The curvature follows from the scores, whose root mean square is |tail|.
    """
    _, lengths, axes = np.linalg.svd(geometry.transform.basis)
    rotated_tail, etas = axes @ tail, np.exp(axes**2 @ np.log(steps))
    curvature = slope * mean_curvature_ratio(float(np.linalg.norm(tail)))
    expected = window_response(path, np.minimum(etas * curvature, 2.0))
    reached, squares = expected.reached_fraction[:, -1], COEF_DEVIATIONS[:, None] ** 2 * lengths**-2
    spread = (etas * noise) ** 2 * expected.noise[:, -1, -1] + reached**2 / (records * curvature)
    joint = squares * reached**2 + spread
    logs = (
        -(np.log(joint) + rotated_tail**2 / joint).sum(axis=1) / 2
        - np.log(COEF_DEVIATIONS / EXPECTED_COEF_SIZE) ** 2 / 2
    )
    posterior = normalize_logs(logs)
    weak_probability = float(posterior[COEF_DEVIATIONS <= MAX_WEAK_DEVIATION].sum())
    factors = posterior @ (squares * reached / joint)
    correction = weak_probability * (factors * rotated_tail - rotated_tail)
    linear_map = np.eye(len(tail)) + weak_probability * (axes.T * (factors - 1)) @ axes
    return ShrinkageResult(tail + correction @ axes, weak_probability, linear_map)


STEP_CURVATURE_POWER = 0.25
"""Power of the mean curvature to which steps adapt where a class is rare: rows whose scores noise has raised have more
of it, above all where a column is rare as well, and steps for the mean would overshoot there."""


BALANCED_SCORE = 0.4
"""Prior standard deviation of the score of a constant model where no class is rare: a share of .4, of two classes."""
MAX_EXPLAINED = 2.0
"""Variance of scores, noise included, over that of the targets, beyond which second moments are not believed."""


class DescentStart(NamedTuple):
    """The constant model at which a descent starts: a function of noisy counts, or 0.

    Parameters
    ----------
    center : the model, in q [p, K].
    unit : q [p] of the constant score 1; zeros where no column is known to be constant.
    mean_curvature : of the loss at the constant model, over its bound.
    uncertainty : standard deviation of the noise on the score of the model; infinite where nothing but the descent
        tells the constant.
    is_best : whether the model is the best constant; else the descent's mean score is kept.
    is_counted : whether it is the model of the counts, so that an answer may return to it; else it is 0, or shrunk.
    target_variance : of the targets around the model, for a loss that is flat far from them; infinite elsewhere.
    """

    center: Floats
    unit: Floats
    mean_curvature: float = 1.0
    uncertainty: float = 0.0
    is_best: bool = True
    is_counted: bool = True
    target_variance: float = math.inf

    def noise_factor(self, square: float, variance: float) -> float:
        """Return by how much larger the noise in scores may be than this variance, where their own is `square`.

        A loss with bounded slopes has curvature where targets are near the score. Those of normal targets and of
        scores that are noise have a normal difference, whose density at 0 falls as the root of the sum of both
        variances, so that noise of the variance V is V_0 (1 + V / s^2), s^2 that of the targets. And no scores explain
        more than the targets vary: where they seem to by far, second moments are smaller than assumed, by that ratio at
        least, and noise is larger by its square.
        """
        left = 1 - variance / self.target_variance
        excess = square / (MAX_EXPLAINED * self.target_variance)
        return max(1.0, excess) ** 2 / left if left > 0 else math.inf

    @property
    def step_curvature(self) -> float:
        """The curvature that steps allow for, over the bound of the loss."""
        return math.pow(min(1.0, self.mean_curvature), STEP_CURVATURE_POWER)

    def shrink(self) -> DescentStart:
        """Return the posterior mean of the model for classes none of which is rare, as a start alone."""
        kept = BALANCED_SCORE**2 / (BALANCED_SCORE**2 + self.uncertainty**2)
        return DescentStart(
            kept * self.center, self.unit, uncertainty=kept * self.uncertainty, is_counted=False
        )

    def split(self, deviation: Floats, moments: Floats) -> tuple[Floats, Floats]:
        """Return the mean score of a deviation [p] or [p, K] in q, and the rest, whose scores have the mean 0."""
        weights = moments * self.unit
        shift = weights @ deviation / max(float(weights @ self.unit), 1e-300)
        return np.asarray(shift), np.asarray(deviation - np.multiply.outer(self.unit, shift))


class ScoreNoise(NamedTuple):
    """What noise of known size does to the scores of a window's mean.

    Parameters
    ----------
    moments : second moment of each coordinate. steps : step size of each coordinate.
    gradient_noise : standard deviation of the noise on a coordinate of the last gradient.
    curvature : mean curvature of the loss in the score.
    path : whose last window it is about.
    """

    moments: Floats
    steps: Floats
    gradient_noise: float
    curvature: float
    path: DescentPath

    def variance(self) -> float:
        """Return the variance that noise alone gives to the scores."""
        response = window_response(self.path, np.minimum(self.steps * self.curvature * self.moments, 2.0))
        return float(self.moments @ ((self.steps * self.gradient_noise) ** 2 * response.noise[:, -1, -1]))


MIN_COUNT_DOUBT = 0.5
"""Squared uncertainty of the constant model's score, over the noise on one coordinate of the scores, from which
counting the classes again is worth more than further steps."""


def is_better_counted(deviation: Floats, start: DescentStart, noise: ScoreNoise) -> bool:
    """Return whether an iterate shows no gain over the constant model, whose own score is uncertain."""
    variance, (size, n_scores) = noise.variance(), deviation.shape
    if start.uncertainty**2 < MIN_COUNT_DOUBT * variance / size:
        return False
    _, rest = start.split(deviation, noise.moments)
    square = float((noise.moments @ rest**2).sum())
    return gain_factor(square, n_scores * variance, 2 / (size * n_scores)) == 0


TYPICAL_SIGNAL, SIGNAL_DEVIATIONS = 1.0, 3.0
"""Variance of scores that features are believed to have without evidence, and the standard deviations of noise beyond
which more counts as seen."""


def gain_factor(square: float, variance: float, relative_variance: float) -> float:
    """Return the factor S / (S + V) by which to multiply a deviation from the constant model; 0 within the noise.

    D^2 (`square`) is the variance of the scores, and V (`variance`) the mean of the part of it that noise has, whose
    relative variance r is 2 / p for p normal coordinates: up to (1 + sqrt(2 r)) V there is no gain to be seen. Beyond
    that the signal S is D^2 - V, which gives the James-Stein factor, but where it exceeds TYPICAL_SIGNAL only as much
    of it as is more than SIGNAL_DEVIATIONS above the noise: of strong noise a long tail would pass for strong signal,
    and probabilities grow exponentially in the scores.
    """
    if not square > (1 + math.sqrt(2 * relative_variance)) * variance:
        return 0.0
    seen = square - (1 + SIGNAL_DEVIATIONS * math.sqrt(relative_variance)) * variance
    signal = min(square - variance, max(TYPICAL_SIGNAL, seen))
    return signal / (signal + variance)


def limit_deviation(shrunk: Floats, tail: Floats, start: DescentStart, noise: ScoreNoise) -> Floats:
    """Return a deviation from the constant model that is no longer than its James-Stein estimate.

    The tail is better than the constant model only where the variance D^2 of its scores is more than twice that of
    noise alone, V; (1 - V / D^2)_+ tail is no worse than either, up to the noise of two coordinates
    (docs/theory/planner.md, section 5).

    Parameters
    ----------
    shrunk, tail : deviations [p] from the constant model in q, after and before shrinkage.
    """
    moments, variance = noise.moments, noise.variance()
    shift, rest = start.split(tail, moments)
    square = float(moments @ rest**2)
    if not square > 0:
        return np.zeros_like(tail)
    variance *= start.noise_factor(square, variance)
    _, shrunk_rest = start.split(shrunk, moments)
    factor = math.sqrt(float(moments @ shrunk_rest**2) / square)
    limit = gain_factor(square, variance, 2 / len(tail))
    if factor > limit:
        shrunk_rest, factor = shrunk_rest * (limit / factor), limit
    return np.asarray(shrunk_rest + _kept_shift(factor, start, variance / len(tail)) * shift * start.unit)


def limit_class_deviation(tail: Floats, start: DescentStart, noise: ScoreNoise) -> Floats:
    """Return the James-Stein estimate of a deviation [p, K] of several scores from the constant model."""
    n_scores, variance = tail.shape[1], noise.variance()
    shift, rest = start.split(tail, noise.moments)
    square = float((noise.moments @ rest**2).sum())
    factor = gain_factor(square, n_scores * variance, 2 / tail.size) if square > 0 else 0.0
    kept = _kept_shift(factor, start, variance / len(tail))
    return np.asarray(factor * rest + np.multiply.outer(start.unit, kept * shift))


WEAK_SCORE_VARIANCE = 2.5
"""Variance of scores up to which the correction for clipped softmax slopes is at least half: larger scores belong to
classes that are well separated, where early stopping makes scores too small rather than too large (by measurement)."""
_N_SCORE_DRAWS = 512


def calibrate_clipped_scores(q: Floats, start: DescentStart, moments: Floats, shares: Floats) -> Floats:
    """Return q [p, K] whose softmax is calibrated, where the slopes of a softmax loss were clipped to a small norm.

    Slopes p - e_y clipped to norm C have the mean 0 given the features where the probabilities are proportional to p_y
    |p - e_y| and not to p_y. For K alike classes and small scores this multiplies scores by 1 - 1 / (K - 1), and it
    raises rare classes. So the scores are multiplied by that, and their means are set so that the mean probabilities of
    normal scores of the released variance are the noisy shares. For large scores both corrections vanish.
    """
    n_classes = q.shape[1]
    shift, rest = start.split(q, moments)
    covariance = (rest.T * moments) @ rest
    spread = float(np.trace(covariance)) / n_classes
    weight = 1 / (1 + (spread / WEAK_SCORE_VARIANCE) ** 2)
    factor = 1 - weight / (n_classes - 1)
    values, vectors = np.linalg.eigh(covariance)
    draws = np.random.default_rng(0).standard_normal((_N_SCORE_DRAWS, n_classes))  # public numbers
    scores = factor * (draws * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    means = shift.copy()
    for _ in range(100):
        means += 0.5 * np.log(shares / softmax(scores + means, axis=1).mean(axis=0))
    means = (1 - weight) * (shift - shift.mean()) + weight * (means - means.mean())
    return np.asarray(factor * rest + np.multiply.outer(start.unit, means))


class ScoreVariance(NamedTuple):
    """What noise alone does to the scores of a minimiser, weighted by their curvature.

    Parameters
    ----------
    weights : of each score [K], of mean 1: its curvature, over the mean one.
    total : weighted sum of the variances that noise gives to the scores.
    relative_variance : of that sum, for one draw of the noise.
    kept : fraction that an earlier shrinkage left of a deviation.
    """

    weights: Floats
    total: float
    relative_variance: float
    kept: float


def shrink_to_constant(
    deviation: Floats,
    start: DescentStart,
    moments: Floats,
    groups: Sequence[tuple[NDArray[np.bool_], ScoreVariance]],
    mean_variance: float,
) -> Floats:
    """Return the James-Stein estimate of a deviation [p, K], by groups of coordinates with known noise.

    mean_variance : that noise gives to the mean score.
    """
    shift, rest = start.split(deviation, moments)
    shrunk = rest.copy()
    larger = start.noise_factor(float((moments @ rest**2).sum()), sum(noise.total for _, noise in groups))
    for group, noise in groups:
        square = float(moments[group] @ rest[group] ** 2 @ noise.weights)
        factor = gain_factor(square, larger * noise.total, noise.relative_variance) / noise.kept
        shrunk[group] *= min(1.0, factor)
    before, after = (float((moments @ each**2).sum()) for each in (rest, shrunk))
    kept_shift = _kept_shift(math.sqrt(after / before) if before else 0.0, start, larger * mean_variance)
    return np.asarray(shrunk + np.multiply.outer(start.unit, kept_shift * shift))


def _kept_shift(factor: float, start: DescentStart, variance: float) -> float:
    """Return the fraction of the mean score to keep when the rest of the scores is multiplied by `factor`.

    The mean compensates for the variance of the scores, which is multiplied by the square of it; beyond that it
    corrects a noisy share, if that is more uncertain than the mean itself, of this variance.
    """
    if not start.is_best:
        return 1.0
    doubt = start.uncertainty**2
    correction = 1.0 if math.isinf(doubt) else doubt / (doubt + variance) if doubt else 0.0
    return factor**2 + (1 - factor**2) * correction


def _guess_moments(geometry: WhitenedGeometry, decay: float) -> Floats:
    """Guess second moments below the noise that decay as i^-decay, none beyond the edge of the noise."""
    spectrum = geometry.spectrum
    below_noise = ~spectrum.above_noise
    count = int(below_noise.sum())
    if not count:
        return np.empty(0)
    shape = np.arange(1.0, count + 1) ** -decay
    moments = shape / shape.sum() * geometry.moments[below_noise].sum()
    scale = geometry.moments[below_noise][0] / spectrum.values[below_noise][0]
    return np.asarray(np.minimum(moments, spectrum.edge * scale))


def _window_covariances(
    curvatures: Floats, steps: Floats, *, noise: float, path: DescentPath, records: float
) -> tuple[Floats, Floats, Floats]:
    """Return, for each coordinate, phi phi', the covariance due to noise and sampling, and phi."""
    windows = window_response(path, steps * curvatures)
    outer = windows.reached_fraction[:, :, None] * windows.reached_fraction[:, None, :]
    sample = (1 / (records * curvatures))[:, None, None] * outer
    return outer, ((steps * noise) ** 2)[:, None, None] * windows.noise + sample, windows.reached_fraction


def _fit_above_noise(
    windows: Floats, curvatures: Floats, prior: Floats, steps: Floats, covariances: _CovarianceFunction
) -> tuple[Floats, Floats]:
    """Return log-likelihoods and posterior means for each prior deviation, where eigenvalues are above the noise."""
    squares = COEF_DEVIATIONS**2
    outer, spread, reached = covariances(curvatures, steps)
    # [d, p, 3, 3]
    joint = _add_small_ridge(squares[:, None, None, None] * prior[:, None, None] * outer + spread)
    values = windows.T[None, :, :, None]
    inverse = np.linalg.solve(joint, np.broadcast_to(values, (*joint.shape[:2], 3, 1)))[..., 0]
    fit = np.einsum("dpj,jp->dp", inverse, windows) + np.linalg.slogdet(joint)[1]
    means = squares[:, None] * prior * np.einsum("dpj,pj->dp", inverse, reached)
    return -fit.sum(axis=1) / 2, means


def _fit_below_noise(
    windows: Floats, curvatures: Floats, prior: Floats, steps: Floats, covariances: _CovarianceFunction
) -> tuple[Floats, Floats, Floats]:
    """Return log-likelihoods where eigenvalues are below the noise, known up to order, and parts of the weights."""
    if not windows.size:
        zero = np.zeros(len(COEF_DEVIATIONS))
        return zero, np.zeros((len(zero), 3, 3)), np.zeros((len(zero), 3))
    outer, spread, reached = covariances(curvatures, steps)
    return fit_window_weights(
        windows, curvatures, prior[:, None, None] * outer, spread, prior[:, None] * reached, COEF_DEVIATIONS
    )


def fit_window_weights(
    windows: Floats, curvatures: Floats, outer: Floats, spread: Floats, right: Floats, deviations: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return -(p/2) log det K - tr(K^-1 W W')/2 for each deviation, and B, c of the weights B^-1 c.

    These weights minimise the expected curvature-weighted error.
    """
    squares, count = deviations**2, windows.shape[1]
    joint = _add_small_ridge(squares[:, None, None] * outer.mean(axis=0) + spread.mean(axis=0))
    gram = windows @ windows.T
    fit = np.trace(np.linalg.solve(joint, np.broadcast_to(gram, joint.shape)), axis1=1, axis2=2)
    log = -(count * np.linalg.slogdet(joint)[1] + fit) / 2
    weighted = curvatures[:, None, None]
    middle = squares[:, None, None] * (weighted * outer).sum(axis=0) + (weighted * spread).sum(axis=0)
    return log, middle, squares[:, None] * (curvatures[:, None] * right).sum(axis=0)


def solve_regularized(middle: Floats, right: Floats) -> Floats:
    """Return B^-1 c, with a tiny ridge on B."""
    return np.asarray(np.linalg.solve(_add_small_ridge(middle), right))


def _add_small_ridge(matrices: Floats) -> Floats:
    """Return the matrices plus a tiny ridge: windows of few steps are nearly collinear."""
    scale = np.trace(matrices, axis1=-2, axis2=-1)[..., None, None]
    return np.asarray(matrices + 1e-9 / 3 * scale * np.eye(3))
