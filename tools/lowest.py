"""Pins for pip: the lowest versions that pyproject.toml declares for users; development tools stay at their newest."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

TOOLS = ("dev", "docs", "bench", "dist", "demo")


def pins(text: str) -> list[str]:
    """name==version for each name>=version of the dependencies and of the extras that users install."""
    project = tomllib.loads(text)["project"]
    needed = list(project["dependencies"])
    for extra, entries in project["optional-dependencies"].items():
        needed += [] if extra in TOOLS else entries
    found = (re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", entry) for entry in needed)
    return [f"{match[1]}=={match[2]}" for match in found if match is not None]


if __name__ == "__main__":
    print(
        "\n".join(pins((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")))
    )
