"""`dplangevin doctor`: check versions, arithmetic, kernels, random generator, clock and ledger."""

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

from dplangevin.cli.option_groups import AsJson

if TYPE_CHECKING:
    from dplangevin.ledger.ledger import Diagnosis

_REQUIRED_LIBRARIES = ("numpy", "scipy", "scikit-learn", "dp-accounting")
_OPTIONAL_LIBRARIES = (
    "pandas", "pyarrow", "polars", "duckdb", "numba", "dask", "psycopg", "cryptography", "randomgen", "matplotlib",
)  # fmt: skip


def run_doctor(
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            help="URL of a ledger to inspect.",
            metavar="URL",
            envvar="DPLANGEVIN_LEDGER",
            show_envvar=True,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that this installation is fit for releases. Exit code 2 if not; nothing is changed."""
    from dplangevin.ledger.ledger import inspect_ledger

    diagnoses = [
        *_check_versions(),
        _check_arithmetic(),
        _check_kernels(),
        _check_generator(),
        _check_clock(),
    ]
    if ledger is not None:
        diagnoses += inspect_ledger(ledger)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in diagnoses], indent=2))
    else:
        width = max(len(each.subject) for each in diagnoses)
        for each in diagnoses:
            typer.echo(f"{each.subject:<{width}}  {each.status:<7}  {each.message}")
    if any(each.status == "failure" for each in diagnoses):
        raise typer.Exit(2)


def _make_diagnosis(subject: str, status: str, message: str) -> Diagnosis:
    from dplangevin.ledger.ledger import Diagnosis

    return Diagnosis(subject=subject, status=status, message=message)


def _check_versions() -> list[Diagnosis]:
    from dplangevin._version import __version__

    python_version = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    diagnoses = [_make_diagnosis("dplangevin", "ok", f"{__version__} on {python_version}")]
    for names, status_if_missing in ((_REQUIRED_LIBRARIES, "failure"), (_OPTIONAL_LIBRARIES, "ok")):
        versions = {name: _installed_version(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        shown = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
        versions_text = shown + (f"; not installed: {', '.join(missing)}" if missing else "")
        subject = "libraries" if names is _REQUIRED_LIBRARIES else "optional libraries"
        diagnoses.append(_make_diagnosis(subject, status_if_missing if missing else "ok", versions_text))
    return diagnoses


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _check_arithmetic() -> Diagnosis:
    """Check that numbers are IEEE doubles, rounded to nearest, with subnormal numbers: the bounds rely on it."""
    import numpy as np

    tiny = np.array([5e-324]) * 1.0
    exact = sys.float_info.mant_dig == 53 and 1.0 + 2.0**-53 == 1.0 and 1.0 + 3 * 2.0**-53 == 1.0 + 2.0**-51
    if not exact or not tiny[0] > 0:
        message = (
            "not IEEE double precision, or some library flushes small numbers to zero: bounds may not hold"
        )
        return _make_diagnosis("arithmetic", "failure", message)
    return _make_diagnosis("arithmetic", "ok", "IEEE double precision, subnormal numbers kept")


def _check_kernels() -> Diagnosis:
    from dplangevin.data.kernels import choose_kernel, thread_count
    from dplangevin.problem import Logistic

    kernel = choose_kernel(Logistic(), 2**40)
    stated = os.environ.get("DPLANGEVIN_KERNEL", "auto")
    return _make_diagnosis(
        "kernels", "ok", f"{kernel.describe()} for large data ({stated}); threads: {thread_count()}"
    )


def _check_generator() -> Diagnosis:
    first, second = os.urandom(32), os.urandom(32)
    if first == second or len(set(first)) < 8:
        return _make_diagnosis(
            "generator", "failure", "the random bytes of the operating system repeat; release nothing"
        )
    from dplangevin._rng import make_generator

    name = type(make_generator()[0].bit_generator).__name__
    return _make_diagnosis(
        "generator",
        "ok",
        f"random bytes of the operating system for secure noise; {name}, seeded by them, otherwise",
    )


def _check_clock() -> Diagnosis:
    now = datetime.now(UTC)
    sane = now.year >= 2025
    return _make_diagnosis("system clock", "ok" if sane else "warning", now.isoformat(timespec="seconds"))
