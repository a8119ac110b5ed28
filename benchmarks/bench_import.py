"""Start-up."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from _measure import Row, readable


def _start(code: str) -> float:
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def rows() -> list[Row]:
    """Time of a fresh interpreter with the import, less that of one without."""
    empty = _start("pass")
    found = []
    for code, limit in (
        ("import dplangevin", 0.5),
        ("from dplangevin import account", None),
        ("import dplangevin.cli.main", None),
    ):
        spent = max(_start(code) - empty, 0.0)
        asked = "" if limit is None else f"< {readable(limit)}"
        met = None if limit is None else spent < limit
        found.append(Row(what=f"`{code}`", asked=asked, measured=readable(spent), met=met))
    return found
