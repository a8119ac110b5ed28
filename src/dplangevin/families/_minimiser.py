"""What the theorems about a computed minimiser share: strong convexity, and a tolerance that doubles can reach."""

from __future__ import annotations

import math
from typing import Any

from dplangevin.privacy.conditions import Condition
from dplangevin.privacy.theorem import Theorem
from dplangevin.problem.constants import Constants

ROOM = 16
"""Where the data may hold more than n records, tolerances leave room for so many times n."""


def planned_records(constants: Constants) -> int:
    """The number of records that a tolerance is chosen for; the certificate of a run counts those it saw."""
    return constants.n * (ROOM if constants.more_rows else 1)


def rounding_floor(constants: Constants, records: int) -> float:
    """Bound on the rounding error of a gradient sum over blocks of 4096 records, N L 2^-41 (1 + N / 2^24)."""
    return records * constants.lipschitz * 2.0**-41 * (1 + records / 2.0**24)


def default_tolerance(constants: Constants, tilt: float = 0.0, reach: float = math.inf) -> float:
    """A gradient norm that doubles reach: eight times a bound on the rounding error of a gradient.

    The gradient is that of sum loss_i + (Lambda / 2) |theta|^2 + <b, theta> with |b| <= tilt, at its minimiser, whose
    norm is at most (n L + tilt) / Lambda (n: `planned_records`). A minimiser scaled back to `reach` counts as one of
    that norm, twice.
    """
    records = planned_records(constants)
    slopes, terms = records * constants.lipschitz + tilt, (constants.dimension or 1) + 8
    longest = slopes / total_ridge(constants)
    size, factor = (longest, 8) if longest <= 2 * reach else (reach, 16)
    scores = records * constants.data_smoothness * size
    return factor * (rounding_floor(constants, records) + 2.0**-53 * terms * (scores + 2 * slopes))


def stated_tolerance(constants: Constants, tolerance: float | None, tilt: float = 0.0) -> float:
    """The tolerance as stated, or the default; without strong convexity theorems refuse whatever it is."""
    if tolerance is not None:
        return tolerance
    return default_tolerance(constants, tilt) if constants.strong_convexity > 0 else 1e-6


def total_ridge(constants: Constants) -> float:
    """Lambda, the strong convexity of the SUM of losses plus the ridge, rounded down."""
    return constants.n * constants.strong_convexity * (1 - 1e-15)


def check_minimiser(theorem: Theorem[Any], constants: Constants, tolerance: float) -> None:
    """The hypotheses under which the minimiser is unique and known within tolerance / Lambda."""
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
    least = 2 * rounding_floor(constants, planned_records(constants))
    if tolerance < least:
        raise theorem.refuse(
            f"tolerance = {tolerance:g} is below what double precision can certify for this n and these bounds",
            f"Raise tolerance to at least {least:g}.",
        )


def deflated(value: float) -> float:
    """The largest number that `inflated` keeps at most value."""
    return (value - 2e-12) / (1 + 2e-9)


def words(iterations: int | None, *more: str) -> tuple[str, ...]:
    """What a promise about a computed minimiser assumes: of its tolerance, and of its time."""
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
