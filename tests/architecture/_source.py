"""What the architecture tests read: the repository's own files."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dplangevin"
_SKIPPED = {".git", ".venv", ".peers", "__pycache__", "build", "dist", "node_modules", "site"}
_TEXT = {".py", ".md", ".toml", ".txt", ".json", ".svg", ".yml", ".yaml", ".cfg", ".html", ""}


def modules() -> list[Path]:
    """Every module of the package."""
    return sorted(SOURCE.rglob("*.py"))


def python_files() -> list[Path]:
    """Every Python file of the repository."""
    return [path for path in text_files() if path.suffix == ".py"]


def text_files() -> list[Path]:
    """Every text file a clone would hold (caches and environments left out)."""
    found = []
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = any(part in _SKIPPED or part.endswith(("_cache", ".egg-info")) for part in parts)
        if not hidden and ".hypothesis" not in parts and path.is_file() and path.suffix in _TEXT:
            found.append(path)
    return found


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name(path: Path) -> str:
    """A path as the reader of a failure wants it."""
    return str(path.relative_to(ROOT))
