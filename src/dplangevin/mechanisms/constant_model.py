"""The constant model: shares of the classes (or a mean target) from noisy counts, and the score that fits them best.

A fit that knows the shares starts at the constant model, assumes the curvature there and shrinks towards it: where a
class is rare, coefficients start far from the minimiser, and the loss is flatter than its bound by a factor of 1 / (4
share).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Dataset
from dplangevin.mechanisms.mechanism import NoiseDraws
from dplangevin.problem import Problem
from dplangevin.sampling.exact_noise import add_rounded_gaussian_noise

WEIGHT_BITS = 20
"""Binary digits of a record's weight in units of the largest one: sums of classes are sums of whole numbers."""
TARGET_PRIOR_POWER = 1.0
"""Of the prior on a mean target in its stated range: it is rarely near an end, as a rare class is."""
MAX_SUM_DEVIATIONS = 2.0
"""Standard deviations of its noise within which the noisy sum of all classes counts as that of n unweighted records."""
KNOT_RATIO, MAX_LOWEST_KNOT = 5.0, 20.0
"""Of neighbouring knots of a rate, and a largest rate up to which there are none in between: most counts lie below the
lowest, so that nothing is lost where the upper ones count as empty."""
EMPTY_KNOT_DEVIATIONS = 3.0
"""Standard deviations of its noise below which the share of an upper knot counts as nothing."""
_MAX_SCORE = 40.0
_N_SHARES = 801
_HALVINGS = 4
"""Halvings of an interval whose possible middles are evaluated in one call."""


def sum_class_weights(data: Dataset) -> Any:
    """Return the total weight of each class, whole numbers in units of 2^-WEIGHT_BITS of the largest weight.

    A numeric target counts for the two of `target_knots` that it lies between, in proportion to how near it is to
    them: the mean target is that of the knots. A record adds whole numbers of sum, and so of norm, at most
    2^WEIGHT_BITS, a function of that record alone; with a replaced record the sums move by at most sqrt(2)
    2^WEIGHT_BITS.
    """
    bounds, knots = data.problem.bounds, target_knots(data.problem)
    one, seen, n_classes = float(1 << WEIGHT_BITS), 0, bounds.classes or len(knots)
    total = np.zeros(n_classes, np.int64)
    for block in data.pieces():
        labels = np.asarray(block.labels, np.float64)
        weights = np.ones(len(labels)) if block.weights is None else np.asarray(block.weights, np.float64)
        weights = one * np.clip(weights / bounds.weight_bound, 0.0, 1.0)
        if bounds.classes is None:
            below = np.clip(np.searchsorted(knots, labels, side="right") - 1, 0, n_classes - 2)
            parts = np.clip((labels - knots[below]) / (knots[below + 1] - knots[below]), 0.0, 1.0)
            whole = np.bincount(below, np.floor(weights * (1 - parts)), minlength=n_classes)
            whole += np.bincount(below + 1, np.floor(weights * parts), minlength=n_classes)
        else:
            whole = np.bincount(labels.astype(np.intp), np.floor(weights), minlength=n_classes)[:n_classes]
        total += whole.astype(np.int64)
        seen += len(labels)
    data.check_row_count(seen)
    return total


def target_knots(problem: Problem) -> Floats:
    """Return the values for which a numeric target counts: the ends of its range, and for a rate values in between.

    The noise of a mean is proportional to the range. Rates may be far below the largest one, and what matters is their
    ratio, so knots fall by factors of KNOT_RATIO: where the upper ones are empty, the mean has the noise of the lower.
    """
    low, high = problem.bounds.label_range
    knots = [high]
    if problem.bounds.classes is None and problem.loss.unclipped_loss.log_link:
        while knots[-1] > max(MAX_LOWEST_KNOT, 2 * KNOT_RATIO * low):
            knots.append(knots[-1] / KNOT_RATIO)
    return np.array([low, *reversed(knots)])


def count_scale(problem: Problem) -> float:
    """Return what a sum of `sum_class_weights` is divided by to give the mean of weight x indicator over n."""
    return problem.n * float(1 << WEIGHT_BITS) / problem.bounds.weight_bound


def release_mean_counts(data: Dataset, draws: NoiseDraws, noise_std: float, *, is_exact: bool) -> Floats:
    """Release the mean of weight x indicator of each class, with this noise on each."""
    exact, scale = data.sum_over_blocks(sum_class_weights, whole=True), count_scale(data.problem)
    if is_exact:
        return add_rounded_gaussian_noise(exact, np.asarray(0), noise_std * scale, draws.source) / scale
    return np.asarray(exact / scale + noise_std * draws.rng.standard_normal(exact.shape))


class ShareEstimate(NamedTuple):
    """Estimated shares of the classes, positive and of sum 1, and the standard deviation of the noise on each."""

    shares: Floats
    noise_std: float


def estimate_shares(means: Floats, noise_std: float, n: int, prior_power: float = -0.5) -> ShareEstimate:
    """Return the shares of the classes from noisy means of weight x indicator.

    Each is a posterior mean, the best prediction in log-loss, on shares s between 1 / (2 n) and 1 - 1 / (2 n), with a
    prior proportional to (s (1 - s))^prior_power; -1/2 is that of Jeffreys. Far above the noise it is the noisy share.

    Without weights the means of n records have the sum 1. Where the noisy sum agrees with that, it is taken for 1, and
    what noise added to it is taken off all classes alike: of two classes, each keeps half of the noise's variance.
    """
    n_classes, total = len(means), float(means.sum())
    if abs(total - 1) <= MAX_SUM_DEVIATIONS * math.sqrt(n_classes) * noise_std:
        means, share_noise = means + (1 - total) / n_classes, noise_std * math.sqrt(1 - 1 / n_classes)
        variances = np.full(n_classes, share_noise**2)
    else:
        total = max(total, noise_std, 1e-300)
        means, share_noise = means / total, noise_std / total
        others = np.clip(1 - means, 0.0, 1.0) ** 2 + (n_classes - 1) * np.clip(means, 0.0, 1.0) ** 2
        variances = np.maximum(share_noise**2 * others, 1e-300)
    least = 1 / (2 * max(n, 2))
    estimates = []
    for mean, variance in zip(means.tolist(), variances.tolist(), strict=True):
        middle, reach = float(np.clip(mean, least, 1 - least)), 8 * math.sqrt(variance)
        ends = np.clip([middle - reach, middle + reach], least, 1 - least)
        # Jeffreys' prior is uniform in the angle whose sine squared is the share
        low, high = np.arcsin(np.sqrt(ends)).tolist()
        shares = np.sin(np.linspace(low, high, _N_SHARES)) ** 2
        logs = -((mean - shares) ** 2) / (2 * variance) + (prior_power + 0.5) * np.log(shares * (1 - shares))
        estimates.append(float(normalize_logs(logs) @ shares))
    return ShareEstimate(np.asarray(estimates) / math.fsum(estimates), share_noise)


def estimate_model_shares(problem: Problem, means: Floats, noise_std: float) -> ShareEstimate:
    """Return the shares of a problem's classes, or of the knots of its target, of which empty upper ones have none."""
    size = len(means)
    if problem.bounds.classes is None:
        while size > 2 and means[size - 1] < EMPTY_KNOT_DEVIATIONS * noise_std:
            size -= 1
    estimate = estimate_shares(means[:size], noise_std, problem.n, _prior_power(problem))
    return estimate._replace(shares=np.concatenate([estimate.shares, np.zeros(len(means) - size)]))


def normalize_logs(logs: Floats) -> Floats:
    """Return weights of sum 1 from their logarithms, finite or -inf.

    The logsumexp of scipy, which is for arrays of all kinds, gives the same and takes several times as long.
    """
    top = logs.max()
    is_top = logs == top
    n_top = np.count_nonzero(is_top)
    rest = np.exp(np.where(is_top, -np.inf, logs) - top).sum()
    return np.asarray(np.exp(logs - (np.log1p(rest / n_top) + np.log(float(n_top)) + top)))


def _prior_power(problem: Problem) -> float:
    """Return the power of the prior on shares: one that prefers the middle for a mean target, else Jeffreys'."""
    defaults = problem.loss.unclipped_loss.defaults
    return TARGET_PRIOR_POWER if defaults is not None and defaults.labels == "numbers" else -0.5


MIN_BALANCED_SHARE = 0.5
"""Share of the rarest class, over that of equal classes, above which classes count as balanced. Their constant model is
then hardly better than 0, and a return to it costs more than it saves: where noise is strong, features that go together
are seen in the answer long before its length differs from that of noise."""


def has_balanced_classes(problem: Problem, means: Floats, noise_std: float) -> bool:
    """Return whether noisy counts are those of classes none of which is rare: post-processing."""
    if problem.bounds.classes is None:
        return False
    shares = estimate_model_shares(problem, means, noise_std).shares
    return bool(shares.min() * len(shares) > MIN_BALANCED_SHARE)


class ConstantModel(NamedTuple):
    """Scores [K] of the best model without features, and the curvature of the loss there over its bound.

    is_best : whether no other constant has a smaller loss. A quantile, or the center of a Huber loss, does not follow
        from the mean target.
    uncertainty : standard deviation of what noise adds to the scores.
    target_variance : of the targets around the scores, where it is released; scores that differ by more have less
        curvature.
    """

    scores: Floats
    curvature_fraction: float
    is_best: bool = True
    uncertainty: float = 0.0
    target_variance: float = math.inf


def constant_of_counts(problem: Problem, means: Floats, noise_std: float) -> ConstantModel:
    """Return the constant model of noisy means of weight x indicator."""
    shares, noise = estimate_model_shares(problem, means, noise_std)
    return fit_constant(problem, shares)._replace(uncertainty=score_uncertainty(problem, shares, noise))


def fit_constant(problem: Problem, shares: Floats) -> ConstantModel:
    """Return the constant model of these shares: the zero of the mean slope, which increases with the score."""
    constant = _last_constant(problem, tuple(shares.tolist()))
    return constant._replace(scores=constant.scores.copy())


@lru_cache(maxsize=4)
def _last_constant(problem: Problem, values: tuple[float, ...]) -> ConstantModel:
    """Return the same for shares as numbers; a run asks for it before and after its second moments."""
    loss, shares = problem.loss, np.array(values)
    if loss.score_dimension > 1:
        logs = np.log(shares)
        return ConstantModel(logs - logs.mean(), 1.0)
    if (
        problem.bounds.classes is None
    ):  # the mean target stands for all of them, without a clip that would move it
        loss, labels = loss.unclipped_loss, np.array([shares @ target_knots(problem)])
        shares = np.ones(1)
    else:
        labels = np.arange(len(shares), dtype=np.float64)
    low, high = -_MAX_SCORE, _MAX_SCORE
    for _ in range(60 // _HALVINGS):
        middles = _halving_points(low, high)
        slopes = loss.slope(np.repeat(middles, len(labels)), np.tile(labels, len(middles)))
        at = 1  # the middles are a binary tree: below node k are 2 k and 2 k + 1
        while at <= len(middles):
            middle = middles[at - 1]
            slope = float(shares @ slopes[(at - 1) * len(labels) : at * len(labels)])
            low, high, at = (middle, high, 2 * at + 1) if slope < 0 else (low, middle, 2 * at)
    score = (low + high) / 2
    curvature = float(shares @ loss.curvature(np.full(len(labels), score), labels))
    return ConstantModel(
        np.array([score]), curvature / loss.step_curvature, _follows_from_mean(problem, score)
    )


def _follows_from_mean(problem: Problem, score: float) -> bool:
    """Return whether the mean slope at this score is a function of the mean target: the slope is affine in it."""
    if problem.bounds.classes is not None:
        return True
    low, high = problem.bounds.label_range
    targets = np.array([low, (low + high) / 2, high])
    slopes = problem.loss.unclipped_loss.slope(np.full(3, score), targets)
    return bool(abs(slopes[0] + slopes[2] - 2 * slopes[1]) <= 1e-9 * np.abs(slopes).max())


def _halving_points(low: float, high: float) -> list[float]:
    """Return every middle that _HALVINGS bisections of an interval can meet, level by level."""
    points, ends = [], [(low, high)]
    for _ in range(_HALVINGS):
        points += [(a + b) / 2 for a, b in ends]
        ends = [half for a, b in ends for half in ((a, (a + b) / 2), ((a + b) / 2, b))]
    return points


def score_uncertainty(problem: Problem, shares: Floats, noise: float) -> float:
    """Return the standard deviation of the constant model's score, for this noise on each share.

    A numeric target's mean has the noise of a share times its range, and so has the score, of counts (whose score is
    the logarithm of the mean) over the mean; a logarithm of odds has that of the rarest share, divided by it.
    """
    if problem.bounds.classes is None:
        knots = target_knots(problem)
        mean = float(shares @ knots) if problem.loss.unclipped_loss.log_link else 1.0
        return float(knots[shares > 0].max() - knots[0]) * noise / max(mean, 1e-12)
    return noise / float(shares.min())


def constant_coefficients(problem: Problem, scores: Floats) -> Floats:
    """Return theta [p, K] of a model with these scores on every row: only the constant column has coefficients."""
    assert problem.constant is not None
    theta = np.zeros((problem.n_columns, problem.loss.score_dimension))
    theta[-1] = scores / problem.constant
    return theta
