"""Guarantees as plain JSON and back: exact, with a version, every type and range checked on the way out and in.

Numbers are written with the shortest decimal that reads back to the same double; infinity is the string "inf"; NaN
does not exist. Nothing but numbers, words and lists is ever built from a file, so a file cannot run code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dplangevin import _plain as r
from dplangevin._plain import Reader
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.conditions import CONDITION_KINDS, Condition
from dplangevin.privacy.generalized_gaussian_part import CorrectedNoise, GeneralizedGaussian
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.opposite_mixtures import OppositeMixtures
from dplangevin.privacy.parts import (
    Approximate,
    BoundedRange,
    Concentrated,
    Gaussian,
    Part,
    Profile,
    Pure,
    Renyi,
    SampledGaussian,
)
from dplangevin.problem.constants import ADJACENCIES

VERSION = 2  # 2 added the conditions: a guarantee that could not name them is not taken for one without any
_FORMAT = "dplangevin-guarantee"
_DEEPEST = 2  # a guarantee may carry plain composition beside it, and that one nothing


def dumps(guarantee: Guarantee) -> str:
    """JSON text of a guarantee; equal guarantees give equal text.

    Examples
    --------
    >>> promise = Guarantee(parts=(Gaussian(mu=0.1),), adjacency="replace-one", release="draw", theorem="composition",
    ...                     reference="Dong, Roth and Su (2022)")
    >>> loads(dumps(promise)) == promise
    True
    """
    return r.canonical(to_plain(guarantee)).decode("ascii")


def loads(text: str) -> Guarantee:
    """The guarantee in JSON text; raises InvalidParameter on anything `dumps` would not write."""
    return from_plain(r.parse(text, "the guarantee"))


def dumps_parts(parts: Iterable[Part]) -> str:
    """JSON text of parts alone, for what is kept beside guarantees."""
    return r.canonical([_part_to_plain("part", part) for part in parts]).decode("ascii")


def loads_parts(text: str) -> tuple[Part, ...]:
    """The parts in what `dumps_parts` wrote."""
    found: tuple[Part, ...] = r.list_of(_read_part)("parts", r.parse(text, "the parts"))
    return found


def to_plain(guarantee: Guarantee) -> dict[str, Any]:
    """A guarantee as dictionaries, lists, words and finite numbers."""
    if not isinstance(guarantee, Guarantee):
        raise InvalidParameter(f"only a Guarantee can be written, got {type(guarantee).__name__}.")
    return {"format": _FORMAT, "version": VERSION, **_guarantee_to_plain(guarantee, "guarantee", 1)}


def from_plain(plain: Any) -> Guarantee:
    """The guarantee in what `to_plain` wrote."""
    record = dict(r.check_version(plain, "a guarantee", VERSION, _FORMAT, oldest=VERSION))
    del record["format"], record["version"]
    return _guarantee_from_plain(record, "guarantee", 1)


# --- parts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """How one class of parts is written: its fields besides count, and what ties them together."""

    part: type[Part]
    fields: Mapping[str, Reader]
    law: Callable[[str, Any], None] = lambda where, part: None


def _renyi_law(where: str, part: Renyi) -> None:
    _same_length(where, part.orders, part.values)
    _ordered(f"{where}.orders", part.orders, strictly=True)


def _profile_law(where: str, part: Profile) -> None:
    _same_length(where, part.epsilons, part.deltas)
    _ordered(f"{where}.epsilons", part.epsilons, strictly=True)
    _ordered(f"{where}.deltas, read backwards,", part.deltas[::-1])


def _answers_law(where: str, part: GeneralizedGaussian) -> None:
    if part.changed > part.answers:
        raise InvalidParameter(f"{where}: {part.changed} of {part.answers} answers cannot change.")


def _same_length(where: str, first: tuple[float, ...], second: tuple[float, ...]) -> None:
    if len(first) != len(second):
        raise InvalidParameter(f"{where} pairs lists of {len(first)} and {len(second)} entries.")


def _ordered(where: str, values: tuple[float, ...], *, strictly: bool = False) -> None:
    if any(b < a or (strictly and b == a) for a, b in pairwise(values)):
        raise InvalidParameter(f"{where} must {'increase' if strictly else 'not decrease'}.")


def _noise(where: str, value: Any) -> Part:
    part = _read_part(where, value)
    if not isinstance(part, GeneralizedGaussian):
        raise InvalidParameter(f"{where} must be generalised Gaussian noise, got {type(part).__name__}.")
    return part


_KINDS: dict[str, _Kind] = {
    "pure": _Kind(Pure, {"value": r.cost}),
    "bounded-range": _Kind(BoundedRange, {"value": r.cost}),
    "gaussian": _Kind(Gaussian, {"mu": r.cost}),
    "concentrated": _Kind(Concentrated, {"rho": r.cost}),
    "renyi": _Kind(
        Renyi, {"orders": r.list_of(r.above_one, least=1), "values": r.list_of(r.cost, least=1)}, _renyi_law
    ),
    "sampled-gaussian": _Kind(
        SampledGaussian,
        {
            "rate": r.rate,
            "noise_multiplier": r.positive,
            "sampling": r.one_of("poisson", "without-replacement"),
        },
    ),
    "opposite-mixtures": _Kind(OppositeMixtures, {"rate": r.rate, "noise_multiplier": r.positive}),
    "profile": _Kind(
        Profile,
        {"epsilons": r.list_of(r.cost, least=1), "deltas": r.list_of(r.probability, least=1)},
        _profile_law,
    ),
    "approximate": _Kind(Approximate, {"value": r.cost, "slack": r.probability}),
    "generalized-gaussian": _Kind(
        GeneralizedGaussian,
        {"p": r.at_least_one, "shift": r.cost, "changed": r.whole(0), "answers": r.whole(1)},
        _answers_law,
    ),
    "corrected-noise": _Kind(
        CorrectedNoise,
        {"noise": _noise, "hits": r.whole(0), "search_epsilon": r.cost, "answer_epsilon": r.cost},
    ),
}
"""Every class of parts, by the name it has in a file. A test fails when one is missing."""

_NAMES = {kind.part: name for name, kind in _KINDS.items()}


def _part_to_plain(where: str, part: Any) -> dict[str, Any]:
    name = _NAMES.get(type(part))
    if name is None:
        raise InvalidParameter(f"{where}: a {type(part).__name__} part has no JSON form.")
    kind = _KINDS[name]
    plain: dict[str, Any] = {"kind": name, "count": r.whole(1)(f"{where}.count", part.count)}
    for field, read in kind.fields.items():
        value = read(f"{where}.{field}", getattr(part, field))
        plain[field] = _part_to_plain(where, value) if isinstance(value, Part) else _plain(value)
    kind.law(where, part)
    return plain


def _read_part(where: str, value: Any) -> Part:
    if isinstance(value, Part):
        return value
    record = dict(r.mapping(where, value))
    name = record.pop("kind", None)
    if not isinstance(name, str) or name not in _KINDS:
        raise InvalidParameter(f"{where}.kind must be one of {', '.join(_KINDS)}; got {name!r}.")
    kind = _KINDS[name]
    read = r.record(where, record, {"count": r.whole(1), **kind.fields})
    part = kind.part(**read)
    kind.law(where, part)
    return part


def _plain(value: Any) -> Any:
    if isinstance(value, Condition):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return "inf" if value == math.inf else value


# --- the guarantee -----------------------------------------------------------------------------------------------


def _read_condition(where: str, value: Any) -> Condition:
    if isinstance(value, Condition):
        return value
    return Condition(**r.record(where, value, {"kind": r.one_of(*CONDITION_KINDS), "text": r.words}))


_FIELDS: dict[str, Reader] = {
    "parts": r.list_of(_read_part),
    "adjacency": r.one_of(*ADJACENCIES),
    "release": r.words,
    "theorem": r.words,
    "reference": r.words,
    "conditions": r.list_of(_read_condition),
    "assumptions": r.list_of(r.words),
    "arithmetic": r.one_of("real", "discrete-grid"),
    "extra_delta": r.cost,
    "at_delta": r.optional(r.probability),
}


def _guarantee_to_plain(guarantee: Guarantee, where: str, depth: int) -> dict[str, Any]:
    _not_too_deep(where, depth)
    plain: dict[str, Any] = {}
    for name, read in _FIELDS.items():
        plain[name] = _plain(read(f"{where}.{name}", getattr(guarantee, name)))
    plain["parts"] = [_part_to_plain(f"{where}.parts[{i}]", part) for i, part in enumerate(guarantee.parts)]
    if guarantee.rows_per_person > 1:
        plain["rows_per_person"] = r.whole(1)(f"{where}.rows_per_person", guarantee.rows_per_person)
    beside = guarantee.composition
    if beside is not None:
        plain["composition"] = _guarantee_to_plain(beside, f"{where}.composition", depth + 1)
    return plain


def _guarantee_from_plain(value: Any, where: str, depth: int) -> Guarantee:
    _not_too_deep(where, depth)
    record = dict(r.mapping(where, value))
    beside = record.pop("composition", None)
    rows = r.whole(1)(f"{where}.rows_per_person", record.pop("rows_per_person", 1))
    read = {**r.record(where, record, _FIELDS), "rows_per_person": rows}
    if beside is not None:
        read["composition"] = _guarantee_from_plain(beside, f"{where}.composition", depth + 1)
    return Guarantee(**read)


def _not_too_deep(where: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise InvalidParameter(f"{where} nests guarantees too deeply.")
