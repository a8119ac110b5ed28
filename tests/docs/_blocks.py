"""Fenced code blocks of the documentation."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "theory").glob("*.md")),
]  # tutorials: test_tutorials.py
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of one language, in order."""
    return [body for found, body in _FENCE.findall(page.read_text(encoding="utf-8")) if found == language]


def commands(page: Path) -> list[list[str]]:
    """Arguments of every `$ dplangevin ...` line in console blocks; a trailing backslash continues a line."""
    lines = "\n".join(blocks(page, "console")).replace("\\\n", " ").splitlines()
    return [shlex.split(line)[2:] for line in lines if line.startswith("$ dplangevin ")]
