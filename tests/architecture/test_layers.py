"""Imports go downward only, accounting never sees data, and nothing heavy is imported before it is used."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from architecture._source import ROOT

HEAVY = ("scipy", "sklearn", "dp_accounting", "matplotlib", "pandas")


def test_import_contracts() -> None:
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
        "--no-cache",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* kept, 0 broken", done.stdout)


def _heavy_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import dplangevin", set()),
        ("import dplangevin.cli.main", set()),
        (
            "from dplangevin.cli.main import run_command_line; assert run_command_line(['--version']) == 0",
            set(),
        ),
        (
            "from dplangevin.cli.main import run_command_line; assert run_command_line(['account', '--help']) == 0",
            set(),
        ),
        ("import dplangevin.accounting.plan", {"scipy"}),
        ("import dplangevin.report.answer", {"scipy"}),
    ],
)
def test_heavy_imports_wait_until_they_are_needed(code: str, allowed: set[str]) -> None:
    assert _heavy_after(code) <= allowed


def test_the_probe_sees_heavy_imports() -> None:
    assert _heavy_after("import scipy") == {"scipy"}
