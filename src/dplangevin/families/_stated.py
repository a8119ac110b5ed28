"""What readers of options share: the constants of a problem, stated as numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants

OPTION_NAMES = {"n_steps": "steps", "n_models": "models"}
"""Fields that `account` and `calibrate` know under another name."""
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


def fields_of(schedule: type[Schedule], names: str) -> Callable[..., Schedule]:
    """A reader whose options are these fields of the schedule, with their defaults, as `account` spells them."""
    asked = {OPTION_NAMES.get(name, name): name for name in names.split()}
    known = inspect.signature(schedule).parameters

    def read(_: Constants, **options: Any) -> Schedule:
        return schedule(**{asked[option]: value for option, value in options.items()})

    taken = [known[name].replace(name=option) for option, name in asked.items()]
    first = inspect.Parameter("_", inspect.Parameter.POSITIONAL_ONLY)
    read.__signature__ = inspect.Signature([first, *taken])  # type: ignore[attr-defined]
    return read
