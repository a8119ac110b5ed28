"""Import time."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

from _measure import Row, asked


def _start(code: str) -> float:
    """Return the median processor time of a new interpreter that runs `code`."""
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


def rows() -> list[Row]:
    """Measure a new interpreter with the import, minus one without."""
    empty = _start("pass")
    limit_by_code = {
        "import dplangevin": 0.5,
        "from dplangevin import account": None,
        "import dplangevin.cli.main": None,
    }
    return [
        asked(f"`{code}`", limit, max(_start(code) - empty, 0.0)) for code, limit in limit_by_code.items()
    ]
