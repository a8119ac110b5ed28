"""Optional packages, with an error that names the extra to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dplangevin.errors import InvalidParameter


def optional(module: str, what: str) -> Any:
    """The module, imported now; `what` says what it is needed for."""
    try:
        return import_module(module)
    except ImportError:
        package = module.split(".")[0]
        raise InvalidParameter(
            f'{what} needs the package {package}; install it with: pip install "dplangevin[queries]".'
        ) from None
