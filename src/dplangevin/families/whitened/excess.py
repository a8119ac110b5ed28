"""What a fit is expected to have lost to noise and to early stopping, read off its released path: an estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dplangevin.families.whitened.geometry import Geometry
from dplangevin.families.whitened.response import response
from dplangevin.families.whitened.schedule import WhitenedSchedule
from dplangevin.problem import Problem

Floats = NDArray[np.float64]
NOISE, FLATTEST = 1.25, 10.0
"""Noise beyond the quadratic model's, and how much flatter the risk may be along the coefficients than across them."""
ROOMY, CUT_NOISE, CUT_ROWS = 0.4, 0.25, 0.03
"""Room beyond 1 from which weights of rows cost nothing; without any, what they add to the noise and, of p / (2 n), to
the excess."""
LEFT, SURE, BEYOND = 1.6, 1.0, 3.0
"""What is left per fall of the last third; deviations and expected noises which that fall must exceed to count.
All constants were chosen on generated tables."""
_NODES = np.linspace(-8, 8, 4001)
_NORMAL = np.exp(-(_NODES**2) / 2)
_NORMAL /= _NORMAL.sum()


def bend(score: float, along: bool = False) -> float:
    """Mean curvature of a logistic loss over its largest one, for normal scores of this root mean square: across the
    coefficients, or along them, where scores are largest."""
    chances = expit(min(score, 100.0) * _NODES)
    return float(4 * (_NORMAL * (_NODES**2 if along else 1.0)) @ (chances * (1 - chances)))


def two_digits(estimate: float) -> Floats:
    """An estimate as it is kept on a model: more digits would say nothing more about the risk."""
    return np.array(float(f"{estimate:.1e}"))


def last_third(steps: int) -> int:
    """The first of the steps (from 0) whose moves `fall` looks at; it needs the two iterates before it."""
    return 2 * steps // 3


def fall(
    path: Mapping[int, Floats], etas: Floats, noise: Callable[[int], float], steps: int
) -> tuple[float, float]:
    """How far the loss fell over the last third of the steps, and the deviation of that number.

    path : coordinates after each step. noise : deviation on a coordinate of the gradient of a step. A noisy gradient
    times the move that it made, less what its noise adds by moving along itself: eta noise^2 a coordinate.
    """
    start = np.zeros_like(etas)
    fallen = variance = 0.0
    for t in range(last_third(steps), steps):
        before, earlier, after = path.get(t - 1, start), path.get(t - 2, start), path[t]
        gradient = (before + t / (t + 3) * (before - earlier) - after) / etas
        move, square = after - before, noise(t) ** 2
        fallen -= float(gradient @ move) + square * float(etas.sum())
        variance += square * float(move @ move)
    return fallen, math.sqrt(variance)


def expected_excess(
    schedule: WhitenedSchedule,
    geometry: Geometry,
    etas: Floats,
    tail: Floats,
    path: Mapping[int, Floats],
    steps: int,
    problem: Problem,
) -> float | None:
    """Expected excess of the mean loss over its minimum, for a fit whose tail has the mean `tail` [p] in q.

    A quadratic risk with curvature h_j in coordinate j: sum h_j var_j / 2 for noise, one direction of them as flat as
    it is along the coefficients, and sum h_j (1 - phi_j)^2 q_j^2 / 2 for what the steps did not reach. Unresolved
    coordinates may be flatter than they were taken for: where the loss still falls along them, that is what tells.
    None for losses whose curvature is not known from the scores.
    """
    loss, law = problem.loss, problem.loss.law
    if law is None or loss.score_dimension > 1 or law.kind not in ("logistic", "affine"):
        return None
    moments, unresolved, bound = geometry.moments, ~geometry.spectrum.resolved, geometry.frame.bound
    square, share, score = float(moments @ tail**2), 1.0, 0.0
    for _ in range(3):  # scores without their noise, which depends on how flat the loss is
        if law.kind == "logistic" and score:
            share = bend(score)
        curvatures = share / schedule.step_size * moments
        seen = response(schedule.path(steps), np.minimum(etas * curvatures, 2.0))
        variances = (etas * bound * schedule.noise(steps - 1, steps)) ** 2 * seen.noise[:, 2, 2]
        score = math.sqrt(max(square - float(moments @ variances), 0.1 * square))
    flatter = 1.0
    if law.kind == "logistic":
        flatter += (min(share / bend(score, along=True), FLATTEST) - 1) / len(tail)
    room = bound / math.sqrt(float(moments.sum()))
    cut = float(np.clip(1 - (room - 1) / ROOMY, 0.0, 1.0))
    noise = NOISE * flatter * (1 + CUT_NOISE * cut) * float(curvatures @ variances) / 2
    reached = seen.reached[:, 2]
    squares = np.maximum(tail**2 - variances, 0.0) / np.maximum(reached, 0.05) ** 2
    missed = curvatures * (1 - reached) ** 2 * squares / 2
    fallen, deviation = fall(
        {t: q[unresolved] for t, q in path.items()}, etas[unresolved],
        lambda t: bound * schedule.noise(t, steps), steps,
    )  # fmt: skip
    short = float(missed.sum())
    if fallen > SURE * deviation + BEYOND * noise:
        short = float(missed[~unresolved].sum()) + LEFT * fallen
    lost = noise + short
    if schedule.shrink:  # towards 0, where as much would be lost as there is to gain
        gain = float(curvatures @ squares) / 2
        lost *= gain / (gain + lost) if gain else 1.0
    return lost + CUT_ROWS * cut * len(tail) / (2 * problem.n)
