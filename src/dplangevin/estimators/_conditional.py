"""What a promise hangs on as a whole because of how a fit was called; a strict data set refuses it."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from sklearn.pipeline import Pipeline

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
HANDED = (
    "{} called this fit: which rows, labels and weights it hands over may depend on several records (splits by label, "
    "draws, targets or features that it learned), and no promise covers that: fit the model itself, or use DPSearchCV"
)
_HARMLESS = ("pipeline", "base", "utils")
"""Modules of scikit-learn that hand every record on as it is; what a pipeline learned is looked at by itself."""


def hanging(model: Any) -> tuple[str, ...]:
    """The conditions of a fit that is running now."""
    counted = (COUNTED,) if model.adjacency == "add-remove" and model.n is None else ()
    return (
        *(f"{CONDITIONAL}the table being public before this step: {words}" for words in _before()),
        *counted,
    )


def settle(model: Any) -> None:
    """Before anything is charged: a strict data set refuses conditions, and a pipeline that learned is told."""
    if model._strict() and model.adjacency == "add-remove" and model.n is None:
        raise InvalidParameter(
            "this data set is strict and for add-remove, where the number of rows is private: state n=, the public "
            "divisor of the mean. Nothing was charged."
        )
    for words in _before():
        if model._strict():
            raise InvalidParameter(f"this data set is strict, and {words}. Nothing was charged.")
        warnings.warn(f"the promise of this fit is conditional: {words}.", UserWarning, stacklevel=4)


def _before() -> tuple[str, ...]:
    """What scikit-learn did with the records before this fit: steps of pipelines that learned, and other callers."""
    steps: dict[str, None] = {}
    callers: dict[str, None] = {}
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "").split(".")
        if isinstance(caller := frame.f_locals.get("self"), Pipeline):
            steps.update(dict.fromkeys(learned_steps(caller)))
        elif module[0] == "sklearn" and len(module) > 1 and module[1] not in _HARMLESS:
            callers[".".join(module[:2])] = None
        frame = frame.f_back  # type: ignore[assignment]
    both = (PREPARED, steps), (HANDED, callers)
    return tuple(words.format(", ".join(found)) for words, found in both if found)
