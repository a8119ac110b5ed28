"""How a fit begins: nothing of an earlier release stands beside a later promise, and a plain search is warned of."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SAID = (
    "this fit is one of many of a plain search, cross-validation, ensemble or calibration: k fits cost k releases, and "
    "scores and whatever else is learned from private rows are not covered at all. Use DPSearchCV, which has one "
    "promise for the whole, or a ledger that adds them up."
)
_MANY = tuple(
    f"sklearn.{name}"
    for name in (
        "model_selection", "calibration", "ensemble", "multiclass", "multioutput", "feature_selection",
        "semi_supervised",
    )
)  # fmt: skip
_said = False


def warn_of_plain_search(paid: bool) -> None:
    """Warn once in a process when something of scikit-learn that fits many calls `fit` and no ledger counts."""
    global _said
    if paid or _said:
        return
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(_MANY):
            _said = True
            warnings.warn(SAID, UserWarning, stacklevel=3)
            return
        frame = frame.f_back  # type: ignore[assignment]


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
