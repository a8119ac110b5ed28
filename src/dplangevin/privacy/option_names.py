"""Errors about the options of `account` and `calibrate` name the option, and the nearest one to a misspelt one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from dplangevin.errors import InvalidParameter

TARGETS = ("rdp", "mu", "zcdp")
QUESTION = ("delta", "epsilon", "theorem", *TARGETS)
"""What is asked of a run, beside the options that describe it."""


def check_names(
    options: Mapping[str, object], reader: Callable[..., Any], also: Iterable[str] = ()
) -> dict[str, object]:
    """The options that `reader` takes; raises when one is unknown or missing. `also` are taken elsewhere."""
    taken = inspect.signature(reader).parameters
    elsewhere = set(also)
    allowed = [*taken, *(name for name in elsewhere if name not in taken)]
    mechanism = options.get("mechanism")
    where = f" of mechanism={mechanism!r}" if isinstance(mechanism, str) else ""
    for name in options:
        if name not in allowed and name != "mechanism":
            near = get_close_matches(name, allowed, 1, 0.7)
            hint = (
                f"did you mean {near[0]}?"
                if near
                else f"the options are {', '.join(sorted(set(allowed) - set(TARGETS)))}."
            )
            raise InvalidParameter(f"{name} is not an option{where}; {hint}")
    missing = [
        name
        for name, parameter in taken.items()
        if parameter.default is inspect.Parameter.empty and options.get(name) is None
    ]
    if missing:
        raise InvalidParameter(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing{where.replace(' of ', ' for ')}."
        )
    return {name: value for name, value in options.items() if name in taken}
