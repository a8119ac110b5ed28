"""How a fit was called: nothing of an earlier release stands beside a later guarantee, and conditions are explicit.

What scikit-learn did with the records before it called `fit` is not searched for: it is stated by whoever knows it.
- scikit-learn's meta-estimators (searches, cross-validation, ensembles, stacking, one-vs-rest, transformed targets) fit
  a clone, never the estimator that they were given. A clone is marked, and its fits are conditional.
- This library's own classes clone with `clone_for`, which passes on how they were called themselves.
- This library's Pipeline looks at its steps and states their conditions on its last step.
- From version 1.9 on, scikit-learn's own Pipeline leaves a callback context on its last step. Its steps are not in it,
  so that the fit is conditional on all of them. Older versions leave nothing: what happens before `fit` is then the
  caller's responsibility, as it is for plain code (docs/sharp_edges.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from sklearn.base import clone

from dplangevin.errors import InvalidParameter
from dplangevin.privacy.conditions import Condition, merge_conditions

M = TypeVar("M")

ROWS_COUNTED = Condition(
    kind="public-row-count",
    text="the number of rows being public, although add-remove neighbours differ in it: it became the divisor of the "
    "mean; state n= to avoid it",
)
FITTED_AS_CLONE = Condition(
    kind="outer-estimator",
    text="rows, labels and weights being handed on record by record: this estimator was made by sklearn.clone, as in "
    "searches, cross-validation and ensembles, whose splits, draws, targets and features may depend on several "
    "records, whose k fits cost k releases, and whose scores are not covered. Call fit on an estimator that you "
    "constructed, or use DPSearchCV",
)
UNCHECKED_META_ESTIMATOR = Condition(
    kind="upstream-steps",
    text="a scikit-learn meta-estimator handing on every row by itself: its steps before this fit may carry one record "
    "into the rows of others, and they are not known here. dplangevin.Pipeline checks its steps",
)


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


class WithCallContext:
    """What an estimator knows about how its `fit` is called."""

    _call_conditions: tuple[Condition, ...] = ()
    """What whoever made this object stated about its fits."""
    _pipeline_conditions: tuple[Condition, ...] | None = None
    """What this library's Pipeline states while it fits; None outside of one."""

    def __sklearn_clone__(self) -> Self:
        made: Self = super().__sklearn_clone__()  # type: ignore[misc]
        made._call_conditions = (FITTED_AS_CLONE,)
        return made


def call_conditions(model: Any) -> tuple[Condition, ...]:
    """What the fits of this object are conditional on because of who calls them."""
    steps = getattr(model, "_pipeline_conditions", None)
    if steps is None:
        in_sklearn = getattr(model, "_parent_callback_ctx", None) is not None
        steps = (UNCHECKED_META_ESTIMATOR,) if in_sklearn else ()
    return merge_conditions(getattr(model, "_call_conditions", ()), steps)


def clone_for(owner: Any, estimator: M) -> M:
    """A clone that a class of this library fits itself: it is called as `owner` is (None: by this library alone)."""
    made: Any = clone(estimator)
    made.__dict__.pop("_call_conditions", None)
    if conditions := call_conditions(owner):
        made._call_conditions = conditions
    return made  # type: ignore[no-any-return]


@contextmanager
def in_pipeline(model: Any, conditions: tuple[Condition, ...]) -> Iterator[None]:
    """While this library's Pipeline fits its last step: the conditions that its steps bring."""
    outer = model._pipeline_conditions
    model._pipeline_conditions = merge_conditions(outer or (), conditions)
    try:
        yield
    finally:
        if outer is None:
            del model._pipeline_conditions
        else:
            model._pipeline_conditions = outer


def hanging(model: Any) -> tuple[Condition, ...]:
    """The conditions of a fit that is running now."""
    counted = (ROWS_COUNTED,) if model.adjacency == "add-remove" and model.n is None else ()
    return merge_conditions(call_conditions(model), counted)


def settle(model: Any) -> None:
    """Before anything is charged: a strict data set refuses conditions, and others are warned of."""
    if model._strict() and model.adjacency == "add-remove" and model.n is None:
        raise InvalidParameter(
            "this data set is strict and for add-remove, where the number of rows is private: state n=, the public "
            "divisor of the mean. Nothing was charged."
        )
    for condition in call_conditions(model):
        if model._strict():
            raise InvalidParameter(
                f"this data set is strict, and the guarantee would be {condition}. Nothing was charged."
            )
        if condition.kind != "record-errors":  # what a step refuses is known to whoever chose it
            warnings.warn(f"the guarantee of this fit is {condition}.", UserWarning, stacklevel=4)
