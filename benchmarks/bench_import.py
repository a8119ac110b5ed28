"""Start-up."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

from _measure import Row, asked


def _start(code: str) -> float:
    """Median processor time of a fresh interpreter that runs `code`."""
    taken = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(taken)


def rows() -> list[Row]:
    """Time of a fresh interpreter with the import, less that of one without."""
    empty = _start("pass")
    wanted = {
        "import dplangevin": 0.5,
        "from dplangevin import account": None,
        "import dplangevin.cli.main": None,
    }
    return [asked(f"`{code}`", limit, max(_start(code) - empty, 0.0)) for code, limit in wanted.items()]
