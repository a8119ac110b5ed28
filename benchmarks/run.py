"""Run every bench_*.py in this folder and write RESULTS.md. Usage: python benchmarks/run.py [topic ...]

A topic is a file bench_<topic>.py with a docstring (its heading) and rows() -> list[Row].
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path

from _measure import Row

HERE = Path(__file__).parent
LIBRARIES = ("dplangevin", "numpy", "scipy", "dp-accounting", "matplotlib")

INTRODUCTION = """\
Time and memory on two small cores, compared with the targets that the project set itself ("met" says whether a target
was reached) and with other libraries where there is one to compare with. Written by `make bench`; the chart by
`make bench-charts`.

![time against the number of records, and fit time of several libraries](charts/time.svg)"""
UNITS = "Processor time of one thread, median of a few repeats; wall time where a row says so."


def machine() -> str:
    """Return processor and versions, without the name of the machine."""
    model = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.is_file():
        names = [
            line.split(":")[1] for line in facts.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0].strip() if names else model
    threads = os.environ.get("OMP_NUM_THREADS", "default")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in LIBRARIES)
    return (
        f"{model}, {os.cpu_count()} cores, {threads} BLAS thread(s), {platform.system()}; "
        f"Python {platform.python_version()}, {versions}."
    )


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table."""
    verdict = {True: "yes", False: "**no**", None: ""}
    lines = ["| what | target | reached | met | note |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.what} | {row.asked} | {row.measured} | {verdict[row.met]} | {row.note} |" for row in rows
    ]
    return "\n".join(lines)


def section(name: str) -> str:
    """Return the heading and the table of one topic."""
    module = importlib.import_module(name)
    return f"## {(module.__doc__ or name).splitlines()[0].rstrip('.')}\n\n{table(module.rows())}"


def main(wanted: Sequence[str]) -> None:
    """Measure and write; with topics named, only print those."""
    parts = ["# Speed and scale", INTRODUCTION, f"Measured in {date.today():%B %Y}. {UNITS} {machine()}"]
    for path in sorted(HERE.glob("bench_*.py")):
        topic = path.stem.removeprefix("bench_")
        if wanted and topic not in wanted:
            continue
        # a process each, so that memory of one topic is not measured by the next
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            parts.append(pool.submit(section, path.stem).result())
        print(parts[-1] + "\n", flush=True)
    if not wanted:
        (HERE / "RESULTS.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        print("wrote benchmarks/RESULTS.md")


if __name__ == "__main__":
    main(sys.argv[1:])
