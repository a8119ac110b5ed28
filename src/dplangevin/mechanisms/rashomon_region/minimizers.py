"""Minimisers near a centre whose error is bounded on every data set, in the arithmetic that runs.

A released minimum may be off by a part of one record's contribution, and the sensitivity counts it. So the bound must
hold whatever the records are: a public number k of accelerated projected gradient steps within the ball |d| <= rho
(or a part of it that is closed and convex) leaves F(c + d) - min F of at most

    2 M rho^2 / (k + 1)^2 + k 2 rho e,

e a bound on the error of every computed gradient. Slopes come from `enclosed_slopes`, and no accuracy of a library is
assumed. Gradients are added in whole numbers, so that neither the order of the records nor their number enlarges e.
Proof: docs/theory/rashomon_region.md, section 10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Dataset
from dplangevin.data.integer_grids import Words, WordSum, carry, to_integers
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exact_minimizer import (
    check_enclosable_value,
    enclosed_losses,
    enclosed_slopes,
)
from dplangevin.mechanisms.rashomon_region.objective import RegionObjective
from dplangevin.problem import Loss

ROUNDING_TOLERANCE = 0.02
"""Error of rounding in a minimum, in units of one record's largest contribution: sensitivities count twice as much."""
_ROWS_PER_SUM = 512
_GRADIENT_BITS = 43  # a sum of 512 slopes of at most 1 in steps of 2^-43 is below 2^53
_EXCESS_BITS = 32
_CACHED_SCORES = 1 << 13  # whose slopes are made at once
_UNIT = 2.0**-53

Projection = Callable[[Floats], Floats]
"""Project each column onto its closed convex part of the ball |d| <= rho."""


def has_proved_minimum(loss: Loss) -> bool:
    """Return whether slopes and values of this loss have a proved error."""
    try:
        check_enclosable_value(loss)
    except AssumptionFailed:
        return False
    return True


def minimize_near(
    data: Dataset,
    objective: RegionObjective,
    center: Floats,
    start: Floats,
    project: Projection,
    rho: float,
    steps: int,
    *,
    proved: bool = True,
) -> Floats:
    """Return the minimising d[dimension, k] after `steps` accelerated projected gradient steps from `start`.

    proved : gradients with a proved error; otherwise those of the data set's kernels, a few times faster.
    """
    point = ahead = start
    momentum = 1.0
    for _ in range(steps):
        if proved:
            gradient = _mean_gradients(data, objective, center, ahead, rho)
        else:
            theta = center[:, None] + ahead
            gradient = data.gradient_sum(objective.loss, theta) / objective.n + objective.ridge * theta
        next_point = project(np.nan_to_num(ahead - gradient / objective.smoothness))
        next_momentum = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = next_point + (momentum - 1) / next_momentum * (next_point - point)
        point, momentum = next_point, next_momentum
    return point


def excess_totals(
    data: Dataset, objective: RegionObjective, center: Floats, moves: Floats, limit: float
) -> Floats:
    """Return n (F(c + d) - F(c)) / limit of each column d, from whole contributions, clipped record by record."""
    sums = data.sum_over_blocks(excess_steps, objective, center, moves, limit)
    penalty = objective.penalty_difference(center, center[:, None] + moves)
    return np.asarray(sums * 2.0**-_EXCESS_BITS + objective.n * penalty / limit)


def rounding_error(objective: RegionObjective, center: Floats, rho: float, steps: int, limit: float) -> float:
    """Bound what rounding adds to a minimum of `excess_totals`, whatever the (at most n) records are.

    Infinite where no error is proved. Public once the centre is.
    """
    loss, norm, ridge = objective.loss, objective.row_norm, objective.ridge
    if not has_proved_minimum(loss):
        return math.inf
    classes, columns = objective.n_classes, objective.n_columns
    size = float(np.linalg.norm(center)) + 4 * rho
    score, label = norm * size * (1 + 1e-9), objective.label_bound
    slope, curvature = loss.slope_bound_within(score, label), loss.curvature_bound
    shift = 0.0 if loss.slope_formula is None else abs(loss.slope_formula.shift)
    several = 1.0 if classes == 1 else (classes + 3) * math.sqrt(classes)
    moved = (columns + 4) * _UNIT * score  # a score, of a sum of products in doubles
    each = several * (
        2.0**-47 * (1 + shift + label + slope + curvature * (score + label)) + curvature * moved
    )
    steepest = norm * slope + ridge * size
    summed = norm * slope * 2.0**-43 * (1 + math.sqrt(columns * classes) / 2) + 2.0**-49 * steepest
    smooth = objective.smoothness
    moves = (columns * classes + 12) * 2.0**-49 * (smooth * rho + steepest) * (rho + steepest / smooth)
    per_step = 2 * rho * (norm * each + summed + 2.0**-51 * smooth * size) + moves
    value = 2 * several * (2.0**-46 * (1 + (slope + shift) * (score + label + 2)) + slope * moved)
    value += 2.0**-46 * ridge * size**2 + (columns * classes + 12) * 2.0**-50 * rho * steepest
    return objective.n * ((steps * per_step + value) / limit + 2.0**-_EXCESS_BITS) + 2.0**-20


def _mean_gradients(
    data: Dataset, objective: RegionObjective, center: Floats, moves: Floats, rho: float
) -> Floats:
    """Return the gradients of F at c + d for every column d, |d| <= 3 rho."""
    theta = center[:, None] + moves
    score = objective.row_norm * (float(np.linalg.norm(center)) + 4 * rho)
    slope = objective.loss.slope_bound_within(score, objective.label_bound)
    sums = data.sum_over_blocks(gradient_steps, objective, theta, slope)
    unit = slope * objective.row_norm * 2.0**-_GRADIENT_BITS
    return np.asarray(
        to_integers(carry(sums)).astype(np.float64) * unit / objective.n + objective.ridge * theta
    )


def gradient_steps(data: Dataset, objective: RegionObjective, points: Floats, max_slope: float) -> Words:
    """Return sum slope x / (max_slope row_norm) at points [dimension, k] in steps of 2^-43, as words [2, dimension, k].

    The sum over up to 512 records is in doubles, and rounded to a step.
    """
    total, n_rows = WordSum(points.shape), 0
    scale = 2.0**_GRADIENT_BITS / (max_slope * objective.row_norm)
    for rows, labels in _pieces(data):
        slopes = np.clip(_slopes(objective, _scores(objective, rows, points), labels), -max_slope, max_slope)
        total.add(np.rint((rows.T @ slopes.reshape(len(rows), -1)).reshape(points.shape) * scale))
        n_rows += len(labels)
    data.check_row_count(n_rows)
    return total.words()


def excess_steps(
    data: Dataset, objective: RegionObjective, center: Floats, moves: Floats, limit: float
) -> Words:
    """Return sum_i clip(l(x'(c + d)) - l(x'c), -limit, limit) / limit in steps of 2^-32, for every column d."""
    total, n_rows = np.zeros(moves.shape[1], np.int64), 0
    for rows, labels in _pieces(data):
        base = _scores(objective, rows, center[:, None])
        points = _scores(objective, rows, moves) + base
        increase = _losses(objective, points, labels) - _losses(objective, base, labels)
        steps = np.rint(np.clip(increase, -limit, limit) * (2.0**_EXCESS_BITS / limit))
        total += np.clip(steps, -(2.0**_EXCESS_BITS), 2.0**_EXCESS_BITS).astype(np.int64).sum(axis=0)
        n_rows += len(labels)
    data.check_row_count(n_rows)
    return total


def _pieces(data: Dataset) -> Iterator[tuple[Floats, Floats]]:
    """Rows and labels of up to 512 records."""
    for block in data.blocks():
        if block.weights is not None:
            raise InvalidParameter("a region needs equally weighted records; leave sample_weight out.")
        for start in range(0, len(block.labels), _ROWS_PER_SUM):
            part = slice(start, start + _ROWS_PER_SUM)
            yield block.rows[part].astype(np.float64, copy=False), np.asarray(block.labels[part], np.float64)


def _scores(objective: RegionObjective, rows: Floats, points: Floats) -> Floats:
    """Scores [rows, k] at points [dimension, k], or [rows, classes, k]."""
    flat = np.nan_to_num(rows @ points.reshape(objective.n_columns, -1), posinf=1e150, neginf=-1e150)
    shape = (objective.n_classes,) if objective.n_classes > 1 else ()
    return flat.reshape(len(rows), *shape, -1)


def _slopes(objective: RegionObjective, scores: Floats, labels: Floats) -> Floats:
    """Slopes at scores of `_scores`, which are overwritten; with a proved error where there is one."""
    loss = objective.loss
    if not has_proved_minimum(loss):
        return np.nan_to_num(loss.slope(scores, labels[:, None]))
    if objective.n_classes == 1:
        step = max(1, _CACHED_SCORES // scores.shape[1])
        for start in range(0, len(scores), step):
            part = slice(start, start + step)
            scores[part] = enclosed_slopes(loss, scores[part], np.zeros(1), labels[part, None])
        return scores
    each = [enclosed_slopes(loss, one, np.zeros_like(one), labels) for one in np.moveaxis(scores, 2, 0)]
    return np.stack(each, axis=2)


def _losses(objective: RegionObjective, scores: Floats, labels: Floats) -> Floats:
    """Losses [rows, k] at scores of `_scores`."""
    if objective.n_classes > 1:
        scores = np.moveaxis(scores, 1, 2)
    if has_proved_minimum(objective.loss):
        return enclosed_losses(objective.loss, scores, labels[:, None])
    with np.errstate(over="ignore", invalid="ignore"):
        return np.nan_to_num(objective.loss.value(scores, labels[:, None]), posinf=1e300, neginf=-1e300)
