"""A fit begins anew: nothing of an earlier release stands beside a later promise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def anew(model: Any) -> Iterator[None]:
    """Without what an earlier fit left; a fit that fails gives it back, since it was paid for."""
    earlier = _taken(model)
    try:
        yield
    except BaseException:
        _taken(model)
        vars(model).update(earlier)
        raise


def _taken(model: Any) -> dict[str, Any]:
    names = [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]
    return {name: vars(model).pop(name) for name in names}
