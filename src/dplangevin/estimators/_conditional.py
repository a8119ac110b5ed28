"""What a promise hangs on as a whole because of how a fit was called; a strict data set refuses it."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from dplangevin.errors import InvalidParameter
from dplangevin.estimators._pipeline import learned_steps
from dplangevin.privacy.theorem import CONDITIONAL

COUNTED = (
    f"{CONDITIONAL}the number of rows being public, although add-remove neighbours differ in it: it became the divisor "
    "of the mean; state n= to avoid it"
)
PREPARED = (
    "{} of the pipeline learned from the rows that it was given, and no promise covers that: use a public schema "
    "(SchemaEncoder), or steps that learn nothing"
)


def hanging(model: Any) -> tuple[str, ...]:
    """The conditions of a fit that is running now."""
    counted = (COUNTED,) if model.adjacency == "add-remove" and model.n is None else ()
    steps = _steps_before()
    if not steps:
        return counted
    return (
        f"{CONDITIONAL}the table being public before this step: {PREPARED.format(', '.join(steps))}",
        *counted,
    )


def settle(model: Any) -> None:
    """Before anything is charged: a strict data set refuses conditions, and a pipeline that learned is told."""
    if model._strict() and model.adjacency == "add-remove" and model.n is None:
        raise InvalidParameter(
            "this data set is strict and for add-remove, where the number of rows is private: state n=, the public "
            "divisor of the mean. Nothing was charged."
        )
    steps = _steps_before()
    if not steps:
        return
    words = PREPARED.format(", ".join(steps))
    if model._strict():
        raise InvalidParameter(f"this data set is strict, and {words}. Nothing was charged.")
    warnings.warn(f"the promise of this fit is conditional: {words}.", UserWarning, stacklevel=4)


def _steps_before() -> tuple[str, ...]:
    """Steps of the scikit-learn pipelines that are being fitted, as far as they hold something learned."""
    found: dict[str, None] = {}
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "sklearn.pipeline" and "self" in frame.f_locals:
            found.update(dict.fromkeys(learned_steps(frame.f_locals["self"])))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)
