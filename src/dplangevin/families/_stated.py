"""What readers of options share: the constants of a problem, stated as numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants

Reader = Callable[..., tuple[Constants, Schedule]]


def of_problem(
    needs: str = "", may: str = "", **otherwise: object
) -> Callable[[Callable[..., Schedule]], Reader]:
    """A reader (constants, *, its options) -> schedule, as one that takes the constants as options too.

    needs : constants that must be stated, beside n and lipschitz. may : those that can be, beside adjacency.
    otherwise : those with a default that `Constants` does not have.
    """
    needed = ("n", "lipschitz", *needs.split())
    optional = {**dict.fromkeys((*may.split(), "adjacency")), **otherwise}

    def reader(read: Callable[..., Schedule]) -> Reader:
        @wraps(read)
        def both(**options: Any) -> tuple[Constants, Schedule]:
            mine = {name: options.pop(name) for name in (*needed, *optional) if name in options}
            constants = Constants(**{**otherwise, **mine})
            return constants, read(constants, **options)

        keyword = inspect.Parameter.KEYWORD_ONLY
        _, *own = inspect.signature(read).parameters.values()
        both.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                *(inspect.Parameter(name, keyword) for name in needed),
                *(inspect.Parameter(name, keyword, default=value) for name, value in optional.items()),
                *own,
            ]
        )
        return both

    return reader
