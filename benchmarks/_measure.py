"""Timing and the rows of the results table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure: what, how much was asked for, how much was measured (seconds unless `measured` says otherwise)."""

    what: str
    asked: str
    measured: str
    met: bool | None = None
    note: str = ""


def seconds(work: Callable[[], object], *, repeats: int = 5, warm: bool = True) -> float:
    """Median wall time of `work`; once before, unmeasured, when `warm`."""
    if warm:
        work()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def timed(what: str, limit: float, work: Callable[[], object], *, repeats: int = 5, note: str = "") -> Row:
    """A row that asks `work` to take less than `limit` seconds."""
    spent = seconds(work, repeats=repeats)
    return Row(
        what=what, asked=f"< {readable(limit)}", measured=readable(spent), met=spent < limit, note=note
    )


def readable(value: float) -> str:
    """0.0123 -> 12.3 ms."""
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"
