"""Where two outputs differ, bit by bit, however they are nested."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_MAX_SHOWN = 8
_MAX_DEPTH = 12


def differences(first: Any, second: Any, *, ignore: tuple[str, ...] = ()) -> list[str]:
    """Places and values that differ, the first few of them; generators and callables are not compared."""
    return [
        text for text, _ in zip(_walk("output", first, second, ignore, 0), range(_MAX_SHOWN), strict=False)
    ]


def _walk(place: str, a: Any, b: Any, ignore: tuple[str, ...], depth: int) -> Iterator[str]:
    if a is b or depth > _MAX_DEPTH:
        return
    if type(a) is not type(b):
        yield f"{place}: {type(a).__name__} against {type(b).__name__}"
    elif isinstance(a, np.ndarray):
        yield from _arrays(place, a, b)
    elif isinstance(a, (bool, int, str, bytes, np.generic)) or a is None:
        same = a == b or (isinstance(a, np.floating) and np.isnan(a) and np.isnan(b))
        if not same:
            yield f"{place}: {_shown(a)} against {_shown(b)}"
    elif isinstance(a, float):
        if not (a == b or (math.isnan(a) and math.isnan(b))):
            yield f"{place}: {a!r} against {b!r}"
    elif isinstance(a, dict):
        if list(a) != list(b):
            yield f"{place}: keys differ"
            return
        for key in a:
            if key not in ignore:
                yield from _walk(f"{place}[{key!r}]", a[key], b[key], ignore, depth + 1)
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b):
            yield f"{place}: {len(a)} against {len(b)} entries"
            return
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from _walk(f"{place}[{index}]", left, right, ignore, depth + 1)
    elif not (callable(a) or isinstance(a, (np.random.Generator, np.random.BitGenerator))):
        yield from _objects(place, a, b, ignore, depth)


def _arrays(place: str, a: Any, b: Any) -> Iterator[str]:
    if a.shape != b.shape or a.dtype != b.dtype:
        yield f"{place}: {a.dtype}{a.shape} against {b.dtype}{b.shape}"
    elif a.dtype == object:
        yield from _walk(place, a.tolist(), b.tolist(), (), 0)
    elif not np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
        where = int(np.flatnonzero((a != b).ravel())[0]) if a.size else 0
        yield f"{place}: entry {where} is {a.ravel()[where]!r} against {b.ravel()[where]!r}"


def _objects(place: str, a: Any, b: Any, ignore: tuple[str, ...], depth: int) -> Iterator[str]:
    names = set(getattr(a, "__dict__", {})) | set(getattr(b, "__dict__", {}))
    if is_dataclass(a) and not isinstance(a, type):
        names |= {each.name for each in fields(a)}
    if not names:
        if type(a).__repr__ is not object.__repr__ and repr(a) != repr(b):  # type: ignore[comparison-overlap]
            yield f"{place}: {_shown(a)} against {_shown(b)}"
        return
    absent = object()
    for name in sorted(names - set(ignore)):
        left, right = getattr(a, name, absent), getattr(b, name, absent)
        yield from _walk(f"{place}.{name}", left, right, ignore, depth + 1)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
