"""Sentences that several recipes say."""

from __future__ import annotations

import math

from dplangevin.planner.request import Request
from dplangevin.problem import Problem


def clip_reason(problem: Problem, signal: float) -> str:
    """Why the slope is bounded as it is."""
    state = (
        "noise dominates"
        if signal < 30
        else "signal and noise are comparable"
        if signal < 100
        else "signal dominates"
    )
    return f"slopes are bounded by {problem.loss.slope_bound:.3g}: {state}"


def caution(request: Request, signal: float) -> str | None:
    """What n would lift the signal above the noise, when it is not."""
    if signal >= 1:
        return None
    rows = math.ceil(request.n / signal)
    return (
        f"n = {request.n} rows are few for {request.dimension} parameters at epsilon = {request.epsilon:g}: expect "
        f"little more than the intercept; about n = {rows} rows, or an epsilon {1 / signal:.2g} times larger, would do."
    )
