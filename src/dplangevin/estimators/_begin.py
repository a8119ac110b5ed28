"""How a fit begins: nothing of an earlier release stands beside a later promise, and a plain search is warned of.

What a promise hangs on as a whole because of how the fit was called is found here; a strict data set refuses it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from sklearn.pipeline import Pipeline

from dplangevin.errors import InvalidParameter
from dplangevin.estimators._pipeline import find_cross_row_steps, find_refusing_steps
from dplangevin.privacy.conditions import Condition

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
ROWS_COUNTED = Condition(
    kind="public-row-count",
    text="the number of rows being public, although add-remove neighbours differ in it: it became the divisor of the "
    "mean; state n= to avoid it",
)
PREPARED = (
    "{} of the pipeline may carry one record into the rows of others (it learns from them, or is not on the list of "
    "row-wise steps), and no promise covers that: use a public schema (SchemaEncoder), or a step of the list in "
    "docs/sharp_edges.md"
)
REFUSING = "{} of the pipeline fails on a row that it cannot read, and that error tells of the row"
HANDED = (
    "{} called this fit: which rows, labels and weights it hands over may depend on several records (splits by label, "
    "draws, targets or features that it learned), and no promise covers that: fit the model itself, or use DPSearchCV"
)
_HARMLESS = ("pipeline", "base", "utils")
"""Modules of scikit-learn that hand every record on as it is; what a pipeline learned is looked at by itself."""
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


def hanging(model: Any) -> tuple[Condition, ...]:
    """The conditions of a fit that is running now."""
    counted = (ROWS_COUNTED,) if model.adjacency == "add-remove" and model.n is None else ()
    return (
        *(
            Condition(kind="upstream-steps", text=f"the table being public before this step: {words}")
            for words in _before()
        ),
        *counted,
        *(
            Condition(kind="record-errors", text=f"every row being readable: {REFUSING.format(name)}")
            for name in _steps_that(find_refusing_steps)
        ),
    )


def settle(model: Any) -> None:
    """Before anything is charged: a strict data set refuses conditions, and a pipeline that learned is told."""
    if model._strict() and model.adjacency == "add-remove" and model.n is None:
        raise InvalidParameter(
            "this data set is strict and for add-remove, where the number of rows is private: state n=, the public "
            "divisor of the mean. Nothing was charged."
        )
    for name in _steps_that(find_refusing_steps) if model._strict() else ():
        raise InvalidParameter(
            f"this data set is strict, and {REFUSING.format(name)}: use a public schema. Nothing was charged."
        )
    for words in _before():
        if model._strict():
            raise InvalidParameter(f"this data set is strict, and {words}. Nothing was charged.")
        warnings.warn(f"the promise of this fit is conditional: {words}.", UserWarning, stacklevel=4)


def _before() -> tuple[str, ...]:
    """What scikit-learn did with the records before this fit: steps that are not row-wise, and other callers."""
    callers: dict[str, None] = {}
    for frame in _foreign_frames():
        module = frame.f_globals.get("__name__", "").split(".")
        if module[0] == "sklearn" and len(module) > 1 and module[1] not in _HARMLESS:
            callers[".".join(module[:2])] = None
    steps = _steps_that(find_cross_row_steps)
    both = (PREPARED, steps), (HANDED, callers)
    return tuple(words.format(", ".join(found)) for words, found in both if found)


def _steps_that(find: Callable[[Any, bool], tuple[str, ...]]) -> tuple[str, ...]:
    """The names that `find` gives for the pipelines whose last step is being fitted now."""
    names: dict[str, None] = {}
    for frame in _foreign_frames():
        if isinstance(caller := frame.f_locals.get("self"), Pipeline):
            names.update(dict.fromkeys(find(caller, isinstance(frame.f_locals.get("X"), list | tuple))))
    return tuple(names)


def _foreign_frames() -> Iterator[FrameType]:
    """The frames of other libraries that led here: f_locals would keep what a frame of ours lets go of."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").split(".")[0] != "dplangevin":
            yield frame
        frame = frame.f_back
