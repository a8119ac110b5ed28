"""What the architecture tests read: the repository's own files."""

from __future__ import annotations

import ast
import os
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dplangevin"
_SKIPPED = {".git", ".venv", ".peers", "__pycache__", "build", "dist", "node_modules", "site", ".hypothesis"}
_TEXT = {".py", ".md", ".toml", ".txt", ".json", ".svg", ".yml", ".yaml", ".cfg", ".html", ""}


def modules() -> list[Path]:
    """Every module of the package."""
    return sorted(SOURCE.rglob("*.py"))


def python_files() -> list[Path]:
    """Every Python file of the repository."""
    return [path for path in text_files() if path.suffix == ".py"]


@cache
def text_files() -> list[Path]:
    """Every text file a clone would hold; caches and environments are not entered."""
    found = []
    for folder, inner, files in os.walk(ROOT):
        inner[:] = [
            each for each in inner if each not in _SKIPPED and not each.endswith(("_cache", ".egg-info"))
        ]
        found += [Path(folder, file) for file in files if Path(file).suffix in _TEXT and file not in _SKIPPED]
    return sorted(found)


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name(path: Path) -> str:
    """A path as the reader of a failure wants it."""
    return str(path.relative_to(ROOT))
