"""Certificates: a guarantee with the constants and the spec of each release that it was derived from, as plain JSON.

`dplangevin_check`, which imports nothing of this package, derives the guarantee from a certificate again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:
    from dplangevin.accounting.guarantee import Guarantee

FORMAT, VERSION = "dplangevin-certificate", 1
_OTHER_DELTA = 1e-6  # at which epsilon is stated where the guarantee names no delta
_WORDS = ("assumptions", "conditions")  # sentences, from which nothing is derived


@dataclass(frozen=True)
class Derivation:
    """How the guarantee of one release was derived: the theorem, and what it was applied to.

    Parameters
    ----------
    theorem : its name.
    constants : of the problem, as an object or as read from a file; None for answers.
    spec : the public parameters of the release, as an object or as read from a file.
    group : the guarantee is for all of this many records.
    count : the release was made as often as this.
    """

    theorem: str
    constants: Any
    spec: Any
    group: int = 1
    count: int = 1

    def to_plain(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {
            "theorem": self.theorem,
            "constants": value_to_plain(self.constants, leave_out=_WORDS),
            "spec": value_to_plain(self.spec, leave_out=_WORDS),
            "group": self.group,
            "count": self.count,
        }


def join_derivations(first: tuple[Derivation, ...], second: tuple[Derivation, ...]) -> tuple[Derivation, ...]:
    """Return the derivations of a composition: none where those of one guarantee are not known."""
    return first + second if first and second else ()


def group_derivations(derivations: Iterable[Derivation], size: int) -> tuple[Derivation, ...]:
    """Return the derivations of the guarantee for groups of records."""
    return tuple(replace(each, group=size) for each in derivations)


def repeat_derivations(derivations: Iterable[Derivation], times: int) -> tuple[Derivation, ...]:
    """Return the derivations of the guarantee for a release that is made this many times as often."""
    return tuple(replace(each, count=times * each.count) for each in derivations)


def certificate_to_plain(guarantee: Guarantee) -> dict[str, Any] | None:
    """Return the certificate of a guarantee as plain data; None where it is not known how it was derived.

    Every number is a double, thus an exact rational, and every cost an upper bound.
    """
    from dplangevin.accounting import serialize

    if not guarantee.derivations:
        return None
    delta = guarantee.at_delta or 0.0
    if math.isinf(guarantee.epsilon(delta)):
        delta = _OTHER_DELTA
    epsilon = guarantee.epsilon(delta)
    plain = serialize.guarantee_to_plain(replace(guarantee, composition=None))
    try:
        releases = [each.to_plain() for each in guarantee.derivations]
    except InvalidParameter:  # a spec with values that no file holds, of which nothing could be derived
        return None
    if math.isinf(epsilon):
        return None
    return {
        "format": FORMAT,
        "version": VERSION,
        "adjacency": guarantee.adjacency,
        "rows_per_person": guarantee.rows_per_person,
        "epsilon": epsilon,
        "delta": delta,
        "extra_delta": plain["extra_delta"],
        "parts": plain["parts"],
        "releases": releases,
    }


def derivations_from_plain(certificate: Any) -> tuple[Derivation, ...]:
    """Return the derivations in a certificate that was read from a file; they are checked by `check_guarantee`."""
    releases = certificate.get("releases") if isinstance(certificate, Mapping) else None
    names = [item.name for item in fields(Derivation)]
    if not isinstance(releases, list) or any(
        not isinstance(each, Mapping) or set(each) != set(names) for each in releases
    ):
        raise InvalidParameter("the certificate is damaged: it lists no releases.")
    return tuple(Derivation(**each) for each in releases)


def check_guarantee(guarantee: Guarantee) -> tuple[float | None, str]:
    """Derive a guarantee again with the independent checker; return its epsilon, and a sentence.

    The epsilon is None where the checker has no rule; what it contradicts is an error.
    """
    import dplangevin_check

    certificate = certificate_to_plain(guarantee)
    if certificate is None:
        return None, "not checked independently: how it was derived is not recorded"
    try:
        [epsilon] = dplangevin_check.check(certificate)
    except dplangevin_check.NotCovered as error:
        return None, f"not checked independently: {error}"
    except dplangevin_check.Refused as error:
        raise InvalidParameter(
            f"the independent checker does not derive this guarantee: {error}. It was altered, or this is a fault of "
            "the library: please report it."
        ) from None
    return epsilon, f"checked independently: dplangevin-check derives epsilon = {epsilon:.6g}"


def value_to_plain(value: Any, *, leave_out: tuple[str, ...] = ()) -> Any:
    """Return a dataclass of public parameters as dictionaries, lists, strings and finite numbers."""
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        values = {
            item.name: value_to_plain(getattr(value, item.name))
            for item in fields(value)
            if item.init and item.name not in leave_out
        }
        return {"type": type(value).__name__, **values}
    if isinstance(value, (tuple, list)):
        return [value_to_plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InvalidParameter(f"a file of public parameters cannot hold a {type(value).__name__}.")
