"""Constraints for pip: the lowest versions that pyproject.toml declares for users; development tools are not pinned."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

DEVELOPMENT_EXTRAS = ("dev", "docs", "bench", "dist", "demo")


def pins(text: str) -> list[str]:
    """Return name==version for each name>=version of the dependencies and of the extras that users install."""
    project = tomllib.loads(text)["project"]
    requirements = list(project["dependencies"])
    for extra, entries in project["optional-dependencies"].items():
        requirements += [] if extra in DEVELOPMENT_EXTRAS else entries
    matches = (re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", entry) for entry in requirements)
    return [f"{match[1]}=={match[2]}" for match in matches if match is not None]


if __name__ == "__main__":
    print(
        "\n".join(pins((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")))
    )
