"""`dplangevin doctor`: versions, arithmetic, kernels, generator, clock and ledger in one table."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dplangevin.ledger.inspection import Diagnosis

_NEEDED = ("numpy", "scipy", "scikit-learn", "dp-accounting")
_OPTIONAL = (
    "pandas", "pyarrow", "polars", "duckdb", "numba", "dask", "psycopg", "cryptography", "randomgen", "matplotlib",
)  # fmt: skip


def doctor(
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            help="URL of a ledger to look at.",
            metavar="URL",
            envvar="DPLANGEVIN_LEDGER",
            show_envvar=True,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Is everything in place for a release? Exit code 2 when something is not; nothing is changed."""
    from dplangevin.ledger.inspection import inspect

    found = [*_versions(), _arithmetic(), _kernels(), _generator(), _clock()]
    if ledger is not None:
        found += inspect(ledger)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found], indent=2))
    else:
        width = max(len(each.what) for each in found)
        for each in found:
            typer.echo(f"{each.what:<{width}}  {each.state:<7}  {each.words}")
    if any(each.state == "failure" for each in found):
        raise typer.Exit(2)


def _finding(what: str, state: str, words: str) -> Diagnosis:
    from dplangevin.ledger.inspection import Diagnosis

    return Diagnosis(what=what, state=state, words=words)


def _versions() -> list[Diagnosis]:
    from dplangevin._version import __version__

    where = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    found = [_finding("dplangevin", "ok", f"{__version__} on {where}")]
    for names, absent in ((_NEEDED, "failure"), (_OPTIONAL, "ok")):
        versions = {name: _version(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        shown = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
        words = shown + (f"; not installed: {', '.join(missing)}" if missing else "")
        what = "libraries" if names is _NEEDED else "optional libraries"
        found.append(_finding(what, absent if missing else "ok", words))
    return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _arithmetic() -> Diagnosis:
    """Bounds rest on IEEE doubles that round to nearest and keep subnormal numbers."""
    import numpy as np

    tiny = np.array([5e-324]) * 1.0
    exact = sys.float_info.mant_dig == 53 and 1.0 + 2.0**-53 == 1.0 and 1.0 + 3 * 2.0**-53 == 1.0 + 2.0**-51
    if not exact or not tiny[0] > 0:
        words = (
            "not IEEE double precision, or some library flushes small numbers to zero: bounds may not hold"
        )
        return _finding("arithmetic", "failure", words)
    return _finding("arithmetic", "ok", "IEEE double precision, subnormal numbers kept")


def _kernels() -> Diagnosis:
    from dplangevin.data._kernels import kernel_for, threads
    from dplangevin.problem import Logistic

    kernel = kernel_for(Logistic(), 2**40)
    stated = os.environ.get("DPLANGEVIN_KERNEL", "auto")
    return _finding("kernels", "ok", f"{kernel.describe()} for large data ({stated}); threads: {threads()}")


def _generator() -> Diagnosis:
    first, second = os.urandom(32), os.urandom(32)
    if first == second or len(set(first)) < 8:
        return _finding("generator", "failure", "the operating system's random bytes repeat; release nothing")
    from dplangevin._rng import generator

    name = type(generator()[0].bit_generator).__name__
    return _finding(
        "generator", "ok", f"operating system's bytes for secure noise; {name} seeded by them for plain"
    )


def _clock() -> Diagnosis:
    now = datetime.now(UTC)
    sane = now.year >= 2025
    return _finding("system clock", "ok" if sane else "warning", now.isoformat(timespec="seconds"))
