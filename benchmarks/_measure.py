"""Timing, and the rows of the results table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure: what was measured, its target and the measured value."""

    what: str
    asked: str
    measured: str
    met: bool | None = None
    note: str = ""


def seconds(work: Callable[[], object], *, repeats: int = 5) -> float:
    """Return the median processor time of `work`, which other jobs on the machine disturb less than wall time."""
    work()  # first-time imports and tables are not counted
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def timed(
    what: str, limit: float | None, work: Callable[[], object], *, repeats: int = 5, note: str = ""
) -> Row:
    """Measure `work` and return a row with the target of less than `limit` seconds; None only measures."""
    return asked(what, limit, seconds(work, repeats=repeats), note)


def asked(what: str, limit: float | None, spent: float, note: str = "") -> Row:
    """Return the row of a time that was measured already."""
    if limit is None:
        return Row(what=what, asked="", measured=readable(spent), note=note)
    return Row(
        what=what, asked=f"< {readable(limit)}", measured=readable(spent), met=spent < limit, note=note
    )


def readable(value: float) -> str:
    """Return a time with its unit: 12.3 ms for 0.0123."""
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"
