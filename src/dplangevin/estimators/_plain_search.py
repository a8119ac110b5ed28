"""Searches, ensembles and the like of scikit-learn fit many times, and every fit is a release: said once."""

from __future__ import annotations

import sys
import warnings

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
