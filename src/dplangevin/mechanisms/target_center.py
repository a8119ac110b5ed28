"""The center and the spread of a numeric target, each chosen among public candidates by report noisy max.

For losses whose best constant is a quantile, or near one. A mean with noise in proportion to the stated range says
nothing where targets lie in a hundredth of it. A choice among candidates is off by a number of records instead of by a
part of the range, whatever the range is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from dplangevin._arrays import Floats
from dplangevin._rng import noise_observer
from dplangevin.data.dataset import Dataset
from dplangevin.mechanisms.constant_model import WEIGHT_BITS, ConstantModel
from dplangevin.mechanisms.mechanism import NoiseDraws
from dplangevin.mechanisms.noisy_answers.mechanism import permute_and_flip
from dplangevin.mechanisms.noisy_answers.spec import CenterScales
from dplangevin.problem import Problem

LEVEL_BITS = 10
"""Binary digits of the level of a quantile, so that sums are of whole numbers, at most 2^(WEIGHT_BITS + LEVEL_BITS)."""
N_CENTERS = 1024
"""Candidates for the center: the middles of as many equal cells of the stated range."""
N_SPREADS = 21
"""Candidates for the spread: the width of the stated range, and fractions of it that fall by factors of sqrt 2."""
SPREAD_LEVEL = 0.75
"""Fraction of the records within the spread of the center."""
_DEVIATIONS = 1.1503
"""Standard deviations of a normal law within which this fraction lies."""


class TargetCenter(NamedTuple):
    """A released center of the targets, and the distance from it within which SPREAD_LEVEL of them lie."""

    center: float
    spread: float


def release_target_center(
    data: Dataset, draws: NoiseDraws, scales: CenterScales, *, is_exact: bool
) -> TargetCenter:
    """Choose the center and the spread with exponential noise of these scales, in records.

    A candidate's score is minus how far the weight of the targets up to it is from its part of the whole weight. A
    record of the largest weight changes that by at most 1, added, removed or replaced (docs/theory/planner.md, section
    6).
    """
    level = data.problem.loss.center_level
    assert level is not None
    low, high = data.problem.bounds.label_range
    centers = low + (high - low) * (np.arange(N_CENTERS) + 0.5) / N_CENTERS
    center = float(centers[_choose_quantile(data, None, centers, level, draws, scales.center, is_exact)])
    spreads = (high - low) * 2.0 ** (-np.arange(N_SPREADS)[::-1] / 2)
    chosen = _choose_quantile(data, center, spreads, SPREAD_LEVEL, draws, scales.spread, is_exact)
    return TargetCenter(center, float(spreads[chosen]))


def _choose_quantile(
    data: Dataset,
    center: float | None,
    candidates: Floats,
    level: float,
    draws: NoiseDraws,
    scale: float,
    is_exact: bool,
) -> int:
    """Return the index of a candidate whose part of the weight lies near the level, by report noisy max."""
    weights = data.sum_over_blocks(sum_weights_up_to, center, candidates, whole=True)
    one = 1 << LEVEL_BITS
    part = min(max(round(level * one), 1), one - 1)
    totals = -np.abs(weights[:-1] * one - weights[-1] * part)
    whole_scale = scale * 2.0 ** (WEIGHT_BITS + LEVEL_BITS)
    if is_exact:
        index = permute_and_flip(totals, whole_scale, draws.source)
    else:
        index = int(np.argmax(totals + whole_scale * draws.rng.standard_exponential(len(totals))))
    observer = noise_observer.get()
    return index if observer is None else int(observer.observe_choice(totals, index, whole_scale))


def sum_weights_up_to(data: Dataset, center: float | None, candidates: Floats) -> Floats:
    """Return the weight of the targets up to each candidate, and of all of them: whole numbers.

    With a center, targets count by their distance from it. A record of the largest weight counts 2^WEIGHT_BITS.
    """
    bound, one, seen = data.problem.bounds.weight_bound, float(1 << WEIGHT_BITS), 0
    total = np.zeros(len(candidates) + 1, np.int64)
    for block in data.pieces():
        labels = np.asarray(block.labels, np.float64)
        values = labels if center is None else np.abs(labels - center)
        weights = np.ones(len(labels)) if block.weights is None else np.asarray(block.weights, np.float64)
        whole = np.floor(one * np.clip(weights / bound, 0.0, 1.0))
        first = np.searchsorted(candidates, values, side="left")
        total += np.bincount(first, whole, minlength=len(total)).astype(np.int64)
        seen += len(labels)
    data.check_row_count(seen)
    return np.cumsum(total)


def constant_of_center(problem: Problem, released: TargetCenter, scale: float) -> ConstantModel:
    """Return the constant model at a released center, for a loss that suits the spread (see `Loss.suit_spread`).

    Targets count as normal: for the curvature, the fraction of them where the loss is curved, and for the uncertainty,
    how far the center is off by the number of records that the noise stands for.
    """
    near = 2 * float(ndtr(_DEVIATIONS * problem.loss.curved_distance / released.spread)) - 1
    density = _DEVIATIONS / math.sqrt(2 * math.pi) / released.spread
    uncertainty = math.sqrt(2) * scale / (problem.n * density)
    variance = (released.spread / _DEVIATIONS) ** 2
    return ConstantModel(np.array([released.center]), near, True, uncertainty, variance)
