"""Print the installed versions as constraints for `make`: the lock file of development."""

from __future__ import annotations

import sys
from importlib.metadata import distributions

HEADER = (
    "# Versions with which the tests ran (Python {}.{}); constraints of the Makefile, renewed by `make lock`."
)


def main() -> None:
    print(HEADER.format(*sys.version_info[:2]))
    versions = {item.metadata["Name"]: item.version for item in distributions()}
    for name in sorted(versions, key=str.lower):
        if name not in ("dplangevin", "pip", "setuptools"):
            print(f"{name}=={versions[name]}")


if __name__ == "__main__":
    main()
