"""What a pure fit is expected to lose to noise and to its ridge: rough before it, from what it released after it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dplangevin.families.whitened.geometry import Spectrum
from dplangevin.families.whitened_objective.schedule import WhitenedObjectiveSchedule
from dplangevin.problem import Loss, Problem

Floats = NDArray[np.float64]
BEFORE, AFTER = (3.0, 1.0), (2.0, 4.0)
"""Times the noise and the bias of the quadratic model; chosen on generated tables."""
USUAL, LARGEST = {"logistic": 1.0, "affine": 0.15}, 6.0
"""Root mean square of the scores, where nothing is released yet (of a target scaled to [-1, 1]), and at most."""


def planned_excess(schedule: WhitenedObjectiveSchedule, problem: Problem) -> float | None:
    """From public numbers: as if coordinates were white. No such number tells what stays unresolved."""
    if (kind := _kind(problem.loss)) is None:
        return None
    white = np.full(problem.n_columns, 1 / problem.n_columns)
    return _lost(schedule, problem, white, np.full_like(white, USUAL[kind] ** 2), BEFORE)


def expected_excess(
    schedule: WhitenedObjectiveSchedule, problem: Problem, found: Spectrum, q: Floats, power: float
) -> float | None:
    """From the released spectrum and minimiser: post-processing. Unresolved coordinates count as they are guessed."""
    if _kind(problem.loss) is None:
        return None
    moments = found.values ** (1 - 2 * power)
    return _lost(schedule, problem, moments / moments.sum(), (q * problem.row_norm) ** 2, AFTER)


def _lost(
    schedule: WhitenedObjectiveSchedule,
    problem: Problem,
    moments: Floats,
    squares: Floats,
    times: tuple[float, float],
) -> float:
    """Expected excess of the mean loss, rows of norm 1, for a quadratic risk of curvature h = n k moment in q:

    the minimiser of h (q - q*)^2 / 2 + Lambda q^2 / 2 + b q is off by (Lambda q* + b) / (h + Lambda).
    """
    curvature = _curvature(problem.loss, min(float(np.sqrt(moments @ squares)), LARGEST))
    unit = problem.row_norm * problem.bounds.weight_bound
    h, ridge = problem.n * curvature * moments, problem.n * schedule.ridge / (unit * problem.row_norm)
    noise = (schedule.density_scale / unit) ** 2 * (len(moments) + 1)
    lost = h / (h + ridge) ** 2 * (times[0] * noise + times[1] * ridge**2 * squares)
    return float(lost.sum() / (2 * problem.n))


def _kind(loss: Loss) -> str | None:
    """Of a loss whose curvature is known from its scores; None for others."""
    law = None if loss.score_dimension > 1 else loss.law
    return law.kind if law is not None and law.kind in USUAL else None


def _curvature(loss: Loss, score: float) -> float:
    """Mean curvature of the loss for normal scores of this root mean square, labels as likely as they say."""
    law = loss.law
    assert law is not None
    if law.kind == "affine":
        return law.scale
    nodes = np.linspace(-8, 8, 2001)
    weights, scores = np.exp(-(nodes**2) / 2), score * nodes
    chances = expit(scores)
    bends = [law.curvature(scores, np.full(len(nodes), label)) for label in (0.0, 1.0)]
    return float(weights @ ((1 - chances) * bends[0] + chances * bends[1]) / weights.sum())
