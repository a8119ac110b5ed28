"""The recipe of whitened descent: shares, looks and steps from public quantities."""

from __future__ import annotations

import math
from typing import Any

from dplangevin.errors import CalibrationFailed
from dplangevin.families.whitened.schedule import WhitenedSchedule
from dplangevin.planner import rules
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import Request, caution, clip_reason
from dplangevin.planner.rules import SHARE, Looks
from dplangevin.privacy.plan import Plan
from dplangevin.problem import Problem

STEPS = 32
QUICK = 16
"""Steps of ridge regression after two looks, which leave no direction flat: its curvature is known."""
APPROACH, APPROACH_SHARE = 6, 0.3
"""Of logistic regression after two looks: steps, and their share of the descent's budget, that tell how flat the loss
is (with rare labels, flatter than its bound by a factor of 10 and more)."""
BRISK = 12
"""Steps, the approach among them, where it is not."""
PATIENT = 64
"""The most steps where a pass is short and the signal above SHARP; STEPS elsewhere."""
TAIL = 2 / 3
SHARP = 400.0
"""Signal from which Poisson slopes are clipped later, and pinball losses smoothed less."""
NOISE_COST_QUADRATIC, NOISE_COST = 0.75, 1.7


def second_moments_pay(request: Request) -> bool:
    """Whether mechanism="auto" whitens: nothing is stated of how to fit, and second moments are worth their share."""
    return request.free and Looks.of(request).pay


def whitened_gd(request: Request) -> Recipe:
    """A tenth of the budget for second moments, the rest for accelerated steps in their coordinates."""
    looks = Looks.of(request)
    records = looks.records * math.sqrt(1 - SHARE)
    signal = records / request.columns
    # the bias of a clip or of a width falls with it
    sharpness = min(max(math.sqrt(signal / SHARP), 1.0), request.shape.largest_sharpness)
    # a clip at 1 is a bias of a softmax slope, which is left alone where the signal allows it
    free = not request.shape.clip_is_convex and signal >= request.shape.unclipped
    problem = request.problem(None if free else rules.clip(request.shape, signal), 0.0, sharpness)
    curvature, slopes = problem.loss.step_curvature, clip_reason(problem, signal)
    warned = caution(request, looks.records / request.columns)
    schedule = WhitenedSchedule(
        moment_noise_std=_noise(request, problem, SHARE / looks.number, moment=True),
        step_size=1 / (curvature * request.weight_bound),
        reach=request.shape.reach * min(1.0, 0.4 * signal),
        looks=looks.number,
        room=looks.room,
        shrink=request.shape.shrinks,
        **_phases(request, problem, looks, signal, sharpness),
    )
    return Recipe(
        model=request.model,
        reasons=_reasons(request, schedule, looks, signal, slopes),
        predicted_excess_risk=_risk(request, problem, records / looks.room),
        caution=warned,
        plan=Plan(problem=problem, schedule=schedule, delta=request.delta, theorem=request.theorem),
    )


def _phases(
    request: Request, problem: Problem, looks: Looks, signal: float, sharpness: float
) -> dict[str, Any]:
    """How the descent's share is spent: alike, or an approach first that tells how many steps follow.

    Time is T^2 times the step, and the steps of a pinball loss are as long as it is wide. Where a pass is short it gets
    more time as it gets sharper: both biases, of time and of width, then fall.
    """
    short, shape = request.n * request.columns <= rules.LONG_STEP, request.shape
    steps = math.ceil(STEPS * math.pow(sharpness, shape.steps_power if short else shape.steps_power_long))
    if looks.number == 2 and problem.loss.plain.is_quadratic:
        steps = QUICK
    if looks.number == 1 or not shape.adapts_steps:
        return {
            "n_steps": steps,
            "noise_std": _noise(request, problem, (1 - SHARE) / steps, moment=False),
            "average_from": steps - math.ceil(TAIL * steps),
        }
    shares = APPROACH_SHARE / APPROACH, (1 - APPROACH_SHARE) / (BRISK - APPROACH)
    first, later = (_noise(request, problem, (1 - SHARE) * share, moment=False) for share in shares)
    return {
        "n_steps": BRISK,
        "noise_std": later,
        "average_from": APPROACH,
        "approach": APPROACH,
        "approach_noise_std": first,
        "longest": PATIENT if short and signal >= SHARP else STEPS,
    }


def _noise(request: Request, problem: Problem, share: float, *, moment: bool) -> float:
    """The deviation at which one release costs this share of mu^2, a hair above for the accountant's rounding."""
    each = (request.mu * math.sqrt(share) - 2e-12) / (1 + 2e-9)
    if not each > 0:
        raise CalibrationFailed(
            f"epsilon = {request.epsilon:g} at delta = {request.delta:g} is too small for double precision; raise it."
        )
    sides = request.sides
    moved = math.sqrt(sides) if moment else sides * problem.constants.lipschitz / problem.row_norm
    return moved / (problem.n * each)


def _risk(request: Request, problem: Problem, records: float) -> float:
    """k p^2 C^2 / (M records^2) of noise in whitened coordinates, and 5% of p / (2 n) for weights of rows.

    k = T u N(u) / 2 hardly depends on T; u is the share of the largest curvature that the risk has: 1 for a squared
    loss, between .36 and .6 elsewhere.
    """
    constant = NOISE_COST_QUADRATIC if problem.loss.plain.is_quadratic else NOISE_COST
    noise = constant * request.columns * (problem.loss.slope_bound / records) ** 2
    return request.dimension * (noise / problem.loss.step_curvature + 0.05 / (2 * request.n))


def _reasons(
    request: Request, schedule: WhitenedSchedule, looks: Looks, signal: float, slopes: str
) -> tuple[str, ...]:
    times = "two second moments" if schedule.looks == 2 else "one second moment"
    steps = str(schedule.n_steps)
    if schedule.approach:
        steps += f" (up to {schedule.longest} where the first {schedule.approach} show a flat loss, at the same cost)"
    return (
        f"{slopes} (n mu / (s p) = {signal:.3g}, mu = {request.mu:.4g})",
        f"{SHARE:.0%} of mu^2 buys {times} of the rows: directions with more than {looks.edge / 2:.2g} of the squared "
        "row norm are resolved, and noise then costs every direction alike",
        f"{1 - SHARE:.0%} buys {steps} accelerated full-batch steps in those coordinates",
        f"the mean of the last {'half' if schedule.approach else 'two thirds'} of the iterates is released"
        + (
            ", shrunk where the path shows weak effects; both are free" if schedule.shrink else "; it is free"
        ),
    )
