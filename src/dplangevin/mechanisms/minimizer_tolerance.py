"""Shared parts of the theorems about a computed minimiser: its hypotheses, and a tolerance that doubles can reach."""

from __future__ import annotations

import math
from typing import Any

from dplangevin.accounting.guarantee import Condition
from dplangevin.accounting.theorem import Theorem
from dplangevin.problem.constants import Constants

MAX_ROWS_FACTOR = 16
"""Where the data may hold more than n records, tolerances allow for this many times n."""


def planned_n_records(constants: Constants) -> int:
    """Return the number of records that a tolerance is chosen for; a run certifies for the number it read."""
    return constants.n * (MAX_ROWS_FACTOR if constants.allow_more_rows else 1)


def gradient_rounding_floor(constants: Constants, records: int) -> float:
    """Bound the rounding error of a gradient sum over blocks of 4096 records: N L 2^-41 (1 + N / 2^24)."""
    return records * constants.lipschitz * 2.0**-41 * (1 + records / 2.0**24)


def default_tolerance(constants: Constants, tilt: float = 0.0, coef_bound: float = math.inf) -> float:
    """Return a gradient norm that doubles can reach: eight times a bound on the rounding error of a gradient.

    The gradient is that of sum loss_i + (Lambda / 2) |theta|^2 + <b, theta> with |b| <= tilt, at its minimiser, whose
    norm is at most (n L + tilt) / Lambda (n: `planned_n_records`). A minimiser scaled back to `coef_bound`
    counts as one of that norm, twice.
    """
    records = planned_n_records(constants)
    slopes, terms = records * constants.lipschitz + tilt, (constants.dimension or 1) + 8
    longest = slopes / total_ridge(constants)
    size, factor = (longest, 8) if longest <= 2 * coef_bound else (coef_bound, 16)
    scores = records * constants.data_smoothness * size
    return factor * (gradient_rounding_floor(constants, records) + 2.0**-53 * terms * (scores + 2 * slopes))


def tolerance_or_default(constants: Constants, tolerance: float | None, tilt: float = 0.0) -> float:
    """Return the stated tolerance, or the default; without strong convexity theorems refuse either."""
    if tolerance is not None:
        return tolerance
    return default_tolerance(constants, tilt) if constants.strong_convexity > 0 else 1e-6


def total_ridge(constants: Constants) -> float:
    """Return Lambda, the strong convexity of the SUM of losses plus the ridge, rounded down."""
    return constants.n * constants.strong_convexity * (1 - 1e-15)


def check_minimizer_conditions(theorem: Theorem[Any], constants: Constants, tolerance: float) -> None:
    """Check the hypotheses under which the minimiser is unique and known within tolerance / Lambda."""
    if not constants.convex:
        raise theorem.refuse("the loss is not convex", "Use a convex loss, or noisy gradient descent.")
    if not constants.strong_convexity > 0:
        raise theorem.refuse(
            "the problem has no ridge, so its minimiser may jump", "State ridge > 0 in the problem."
        )
    if math.isinf(constants.smoothness):
        raise theorem.refuse("no smoothness constant is known", "Use a smooth loss, or smooth it.")
    if constants.projection_error > 0:
        raise theorem.refuse(
            f"the projection on the constraint is inexact (by {constants.projection_error:g})",
            "Use a constraint with an exact projection.",
        )
    least = 2 * gradient_rounding_floor(constants, planned_n_records(constants))
    if tolerance < least:
        raise theorem.refuse(
            f"tolerance = {tolerance:g} is below what double precision can certify for this n and these bounds",
            f"Raise tolerance to at least {least:g}.",
        )


def solver_assumptions(iterations: int | None, *more: str) -> tuple[str, ...]:
    """Return the assumptions of a guarantee about a computed minimiser, including on its running time."""
    time = "the time a run takes is not observed"
    if iterations is not None:
        time = (
            f"the solver does {iterations} equal iterations whatever the data; finer differences in time are not "
            "covered"
        )
    return *more, time


SOLVER_CONVERGES = Condition(
    kind="run-failure",
    text="the solver reaching its tolerance: a run that misses it stops and releases nothing, and that event is not "
    "covered",
)
