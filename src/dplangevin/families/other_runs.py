"""The mechanisms without steps, for `account` and `calibrate`: from their options to what is accounted and executed."""

from __future__ import annotations

from collections.abc import Mapping

from dplangevin.errors import InvalidParameter
from dplangevin.families._stated import OPTION_NAMES
from dplangevin.privacy.option_names import QUESTION, check_names
from dplangevin.privacy.registry import options_named
from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants

Described = tuple[Constants | None, Schedule]


def described_other(options: Mapping[str, object]) -> Described:
    """The public values of a run without steps; errors name the option."""
    read, _ = options_named(str(options["mechanism"]))
    chosen = {name: value for name, value in options.items() if value is not None}
    try:
        described: Described = read(**check_names(chosen, read, QUESTION))
    except InvalidParameter as error:
        words = str(error)
        for field, option in OPTION_NAMES.items():
            words = words.replace(field, option)
        raise InvalidParameter(words) from None
    return described
