"""Option readers of `account` and `calibrate` for mechanisms without steps: from options to constants and a spec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from dplangevin.accounting.plan import Spec
from dplangevin.accounting.registry import option_reader_for
from dplangevin.accounting.target import QUESTION_OPTIONS, check_option_names
from dplangevin.problem.constants import Constants

OptionReader = Callable[..., tuple[Constants, Spec]]


def with_constants_options(
    required: str = "", allowed: str = "", **defaults: object
) -> Callable[[Callable[..., Spec]], OptionReader]:
    """Decorate a reader (constants, *, options) -> spec so that it takes the constants as options too.

    Parameters
    ----------
    required : names of the constants that must be stated, besides n and lipschitz.
    allowed : names of the optional ones, besides adjacency.
    **defaults : constants with a default other than that of `Constants`.
    """
    required_names = ("n", "lipschitz", *required.split())
    optional = {**dict.fromkeys((*allowed.split(), "adjacency")), **defaults}

    def decorate(read: Callable[..., Spec]) -> OptionReader:
        @wraps(read)
        def read_with_constants(**options: Any) -> tuple[Constants, Spec]:
            constants_options = {
                name: options.pop(name) for name in (*required_names, *optional) if name in options
            }
            constants = Constants(**{**defaults, **constants_options})
            return constants, read(constants, **options)

        keyword = inspect.Parameter.KEYWORD_ONLY
        _, *spec_parameters = inspect.signature(read).parameters.values()
        read_with_constants.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                *(inspect.Parameter(name, keyword) for name in required_names),
                *(inspect.Parameter(name, keyword, default=value) for name, value in optional.items()),
                *spec_parameters,
            ]
        )
        return read_with_constants

    return decorate


def read_spec_fields(spec_type: type[Spec], names: str) -> Callable[..., Spec]:
    """Return a reader whose options are these fields of the spec, with their defaults, as `account` names them."""
    names_list = names.split()
    signature = inspect.signature(spec_type).parameters

    def read(_: Constants, **options: Any) -> Spec:
        return spec_type(**options)

    first = inspect.Parameter("_", inspect.Parameter.POSITIONAL_ONLY)
    read.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [first, *(signature[name] for name in names_list)]
    )
    return read


RunInputs = tuple[Constants | None, Spec]


def read_mechanism_options(options: Mapping[str, object]) -> RunInputs:
    """Return the constants and the spec of a mechanism without steps; errors name the option."""
    read, _ = option_reader_for(str(options["mechanism"]))
    given_options = {name: value for name, value in options.items() if value is not None}
    run_inputs: RunInputs = read(**check_option_names(given_options, read, QUESTION_OPTIONS))
    return run_inputs
