"""Guarantees as plain JSON and back: exact and versioned, with every type and range checked in both directions.

Numbers are written with the shortest decimal that reads back to the same double; infinity is the string "inf"; NaN is
refused. Only numbers, strings and lists are built from a file, so a file cannot run code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from dplangevin import _plain as r
from dplangevin._plain import ValueReader
from dplangevin.accounting.generalized_gaussian import CorrectedNoise, GeneralizedGaussian
from dplangevin.accounting.guarantee import CONDITION_KINDS, Condition, Guarantee
from dplangevin.accounting.parts import (
    Approximate,
    BoundedRange,
    Concentrated,
    Gaussian,
    OppositeMixtures,
    PrivacyPart,
    Profile,
    Pure,
    RenyiCurve,
    SampledGaussian,
)
from dplangevin.errors import InvalidParameter
from dplangevin.problem.constants import ADJACENCIES

VERSION = 2  # 2 added the conditions: a guarantee of version 1 must not be read as one without conditions
_MAX_DEPTH = 2  # a guarantee may hold its plain composition, which holds no further one


def guarantee_to_json(guarantee: Guarantee) -> str:
    """Return the JSON text of a guarantee; equal guarantees give equal text.

    Examples
    --------
    >>> g = Guarantee(parts=(Gaussian(mu=0.1),), adjacency="replace-one", release="draw", theorem="composition",
    ...               reference="Dong, Roth and Su (2022)")
    >>> guarantee_from_json(guarantee_to_json(g)) == g
    True
    """
    return r.canonical_json(guarantee_to_plain(guarantee)).decode("ascii")


def guarantee_from_json(text: str) -> Guarantee:
    """Return the guarantee in JSON text; raise InvalidParameter on what `guarantee_to_json` would not write."""
    return guarantee_from_plain(r.parse_json(text, "the guarantee"))


def parts_to_json(parts: Iterable[PrivacyPart]) -> str:
    """Return the JSON text of parts alone."""
    return r.canonical_json([_part_to_plain("part", part) for part in parts]).decode("ascii")


def parts_from_json(text: str) -> tuple[PrivacyPart, ...]:
    """Return the parts in the text that `parts_to_json` wrote."""
    parts: tuple[PrivacyPart, ...] = r.list_reader(_read_part)("parts", r.parse_json(text, "the parts"))
    return parts


def guarantee_to_plain(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee as dictionaries, lists, strings and finite numbers."""
    if not isinstance(guarantee, Guarantee):
        raise InvalidParameter(f"only a Guarantee can be written, got {type(guarantee).__name__}.")
    return GUARANTEE_FORMAT.write(_write_guarantee(guarantee, "guarantee", 1))


def guarantee_from_plain(plain: Any) -> Guarantee:
    """Return the guarantee in the data that `guarantee_to_plain` returned."""
    record = GUARANTEE_FORMAT.read(GUARANTEE_FORMAT.check(plain))
    del record["format"], record["version"]
    return Guarantee(**record)


# --- parts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PartFormat:
    """How one class of parts is written: its fields besides count, and a check of their consistency."""

    part: type[PrivacyPart]
    fields: Mapping[str, ValueReader]
    check: Callable[[str, Any], None] = lambda where, part: None
    attributes: Mapping[str, str] = field(
        default_factory=dict
    )  # field in a file -> attribute of another name


def _check_renyi(where: str, part: RenyiCurve) -> None:
    _check_same_length(where, part.orders, part.values)
    _check_order(f"{where}.orders", part.orders, strictly=True)


def _check_profile(where: str, part: Profile) -> None:
    _check_same_length(where, part.epsilons, part.deltas)
    _check_order(f"{where}.epsilons", part.epsilons, strictly=True)
    _check_order(f"{where}.deltas, read backwards,", part.deltas[::-1])


def _check_answers(where: str, part: GeneralizedGaussian) -> None:
    if part.changed > part.answers:
        raise InvalidParameter(f"{where}: {part.changed} of {part.answers} answers cannot change.")


def _check_same_length(where: str, first: tuple[float, ...], second: tuple[float, ...]) -> None:
    if len(first) != len(second):
        raise InvalidParameter(f"{where} pairs lists of {len(first)} and {len(second)} entries.")


def _check_order(where: str, values: tuple[float, ...], *, strictly: bool = False) -> None:
    if any(b < a or (strictly and b == a) for a, b in pairwise(values)):
        raise InvalidParameter(f"{where} must {'increase' if strictly else 'not decrease'}.")


def _read_noise(where: str, value: Any) -> PrivacyPart:
    part = _read_part(where, value)
    if not isinstance(part, GeneralizedGaussian):
        raise InvalidParameter(f"{where} must be generalised Gaussian noise, got {type(part).__name__}.")
    return part


_PART_FORMATS: dict[str, _PartFormat] = {
    "pure": _PartFormat(Pure, {"value": r.read_cost}),
    "bounded-range": _PartFormat(BoundedRange, {"value": r.read_cost}),
    "gaussian": _PartFormat(Gaussian, {"mu": r.read_cost}),
    "concentrated": _PartFormat(Concentrated, {"rho": r.read_cost}),
    "renyi": _PartFormat(
        RenyiCurve,
        {
            "orders": r.list_reader(r.read_above_one, min_length=1),
            "values": r.list_reader(r.read_cost, min_length=1),
        },
        _check_renyi,
    ),
    "sampled-gaussian": _PartFormat(
        SampledGaussian,
        {
            "rate": r.read_rate,
            "noise_multiplier": r.read_positive,
            "sampling": r.choice_reader("poisson", "without-replacement"),
        },
    ),
    "opposite-mixtures": _PartFormat(
        OppositeMixtures, {"rate": r.read_rate, "noise_multiplier": r.read_positive}
    ),
    "profile": _PartFormat(
        Profile,
        {
            "epsilons": r.list_reader(r.read_cost, min_length=1),
            "deltas": r.list_reader(r.read_probability, min_length=1),
        },
        _check_profile,
    ),
    "approximate": _PartFormat(Approximate, {"value": r.read_cost, "slack": r.read_probability}),
    "generalized-gaussian": _PartFormat(
        GeneralizedGaussian,
        {
            "p": r.read_at_least_one,
            "shift": r.read_cost,
            "changed": r.whole_number_reader(0),
            "answers": r.whole_number_reader(1),
        },
        _check_answers,
    ),
    "corrected-noise": _PartFormat(
        CorrectedNoise,
        {
            "noise": _read_noise,
            "hits": r.whole_number_reader(0),
            "search_epsilon": r.read_cost,
            "answer_epsilon": r.read_cost,
        },
        attributes={"hits": "n_corrections"},  # existing ledgers hold "hits" under their hash chains
    ),
}
"""Every class of parts, by its name in a file. A test fails when one is missing."""

_PART_NAMES = {kind.part: name for name, kind in _PART_FORMATS.items()}


def _part_to_plain(where: str, part: Any) -> dict[str, Any]:
    name = _PART_NAMES.get(type(part))
    if name is None:
        raise InvalidParameter(f"{where}: a {type(part).__name__} part has no JSON form.")
    kind = _PART_FORMATS[name]
    plain: dict[str, Any] = {"kind": name, "count": r.whole_number_reader(1)(f"{where}.count", part.count)}
    for key, read in kind.fields.items():
        value = read(f"{where}.{key}", getattr(part, kind.attributes.get(key, key)))
        plain[key] = (
            _part_to_plain(where, value) if isinstance(value, PrivacyPart) else _value_to_plain(value)
        )
    kind.check(where, part)
    return plain


@r.describes(
    oneOf=[
        r.describe_record({"kind": r.choice_reader(name), "count": r.whole_number_reader(1), **kind.fields})
        for name, kind in _PART_FORMATS.items()
    ]
)
def _read_part(where: str, value: Any) -> PrivacyPart:
    if isinstance(value, PrivacyPart):
        return value
    record = dict(r.read_mapping(where, value))
    name = record.pop("kind", None)
    if not isinstance(name, str) or name not in _PART_FORMATS:
        raise InvalidParameter(f"{where}.kind must be one of {', '.join(_PART_FORMATS)}; got {name!r}.")
    kind = _PART_FORMATS[name]
    read = r.read_record(where, record, {"count": r.whole_number_reader(1), **kind.fields})
    part = kind.part(**{kind.attributes.get(key, key): item for key, item in read.items()})
    kind.check(where, part)
    return part


def _value_to_plain(value: Any) -> Any:
    if isinstance(value, Condition):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_value_to_plain(item) for item in value]
    return "inf" if value == math.inf else value


# --- the guarantee -----------------------------------------------------------------------------------------------


@r.describes(**r.describe_record({"kind": r.choice_reader(*CONDITION_KINDS), "text": r.read_text}))
def _read_condition(where: str, value: Any) -> Condition:
    if isinstance(value, Condition):
        return value
    return Condition(
        **r.read_record(where, value, {"kind": r.choice_reader(*CONDITION_KINDS), "text": r.read_text})
    )


_FIELDS: dict[str, ValueReader] = {
    "parts": r.list_reader(_read_part),
    "adjacency": r.choice_reader(*ADJACENCIES),
    "release": r.read_text,
    "theorem": r.read_text,
    "reference": r.read_text,
    "conditions": r.list_reader(_read_condition),
    "assumptions": r.list_reader(r.read_text),
    "arithmetic": r.choice_reader("real", "discrete-grid"),
    "extra_delta": r.read_cost,
    "at_delta": r.optional_reader(r.read_probability),
}
_OPTIONAL: dict[str, ValueReader] = {"rows_per_person": r.whole_number_reader(1)}


def _write_guarantee(guarantee: Guarantee, where: str, depth: int) -> dict[str, Any]:
    _check_depth(where, depth)
    plain: dict[str, Any] = {}
    for name, read in _FIELDS.items():
        plain[name] = _value_to_plain(read(f"{where}.{name}", getattr(guarantee, name)))
    plain["parts"] = [_part_to_plain(f"{where}.parts[{i}]", part) for i, part in enumerate(guarantee.parts)]
    if guarantee.rows_per_person > 1:
        plain["rows_per_person"] = r.whole_number_reader(1)(
            f"{where}.rows_per_person", guarantee.rows_per_person
        )
    composition = guarantee.composition
    if composition is not None:
        plain["composition"] = _write_guarantee(composition, f"{where}.composition", depth + 1)
    return plain


@r.describes(**r.describe_record(_FIELDS, _OPTIONAL))
def _read_composition(where: str, value: Any) -> Guarantee:
    """Read the plain composition of a guarantee, which holds no further one."""
    return Guarantee(**r.read_record(where, value, _FIELDS, _OPTIONAL))


GUARANTEE_FORMAT = r.FileFormat(
    what="a guarantee",
    layout="dplangevin-guarantee",
    version=VERSION,
    oldest=VERSION,
    fields=_FIELDS,
    optional={**_OPTIONAL, "composition": _read_composition},
)


def _check_depth(where: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidParameter(f"{where} nests guarantees too deeply.")
