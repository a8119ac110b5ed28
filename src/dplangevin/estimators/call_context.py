"""Conditions of a guarantee that follow from how `fit` was called, and a pipeline that checks its steps.

- scikit-learn's meta-estimators (searches, cross-validation, ensembles, stacking, one-vs-rest, transformed targets)
  fit a clone, never the estimator itself. A clone is marked, and the guarantees of its fits are conditional.
- This library's own classes clone with `clone_for`, which passes on how they were called themselves.
- This library's Pipeline checks its steps (are they row-wise?) and states their conditions on its last step.
- From version 1.9 on, scikit-learn's own Pipeline leaves a callback context on its last step, which does not name the
  other steps; the fit is then conditional on all of them. Older versions leave nothing: what happens before `fit` is
  the caller's responsibility, as for plain code (docs/sharp_edges.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self, TypeVar

from sklearn import pipeline as sklearn_pipeline
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.pipeline import FeatureUnion
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, PolynomialFeatures
from sklearn.utils import get_tags

from dplangevin.accounting.guarantee import Condition, merge_conditions
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._documentation import DocumentationLinkMixin
from dplangevin.estimators.schema_encoder import SchemaEncoder
from dplangevin.schema.schema import LEARN

M = TypeVar("M")

PUBLIC_ROW_COUNT = Condition(
    kind="public-row-count",
    text="the number of rows being public, although add-remove neighbours differ in it: it was used as the divisor "
    "of the mean; state n_public=, a number or 'learn', to avoid it",
)
FITTED_AS_CLONE = Condition(
    kind="outer-estimator",
    text="rows, labels and weights being passed on record by record: this estimator was made by sklearn.clone, as in "
    "searches, cross-validation and ensembles, whose splits, draws, targets and features may depend on several "
    "records, whose k fits cost k releases, and whose scores are not covered. Call fit on an estimator that you "
    "constructed, or use DPModelSearch",
)
UNCHECKED_META_ESTIMATOR = Condition(
    kind="upstream-steps",
    text="a scikit-learn meta-estimator transforming every row by itself: its steps before this fit are not known "
    "here, and one record may influence the rows of others. dplangevin.Pipeline checks its steps",
)


@contextmanager
def reset_fitted_attributes(model: Any) -> Iterator[None]:
    """Remove the fitted attributes of an earlier fit; restore them if this fit fails, since they were charged."""
    earlier = _pop_fitted_attributes(model)
    try:
        yield
    except BaseException:
        _pop_fitted_attributes(model)
        vars(model).update(earlier)
        raise


def _pop_fitted_attributes(model: Any) -> dict[str, Any]:
    names = [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]
    return {name: vars(model).pop(name) for name in names}


class WithCallContext(DocumentationLinkMixin):
    """Mixin that records the conditions under which `fit` is called."""

    _call_conditions: tuple[Condition, ...] = ()
    """Conditions stated by the code that created this object."""
    _pipeline_conditions: tuple[Condition, ...] | None = None
    """Conditions stated by this library's Pipeline while it fits; None outside of one."""

    def __sklearn_clone__(self) -> Self:
        copy: Self = super().__sklearn_clone__()  # type: ignore[misc]
        copy._call_conditions = (FITTED_AS_CLONE,)
        return copy


def call_conditions(model: Any) -> tuple[Condition, ...]:
    """Return the conditions of this object's fits that follow from its caller."""
    steps = getattr(model, "_pipeline_conditions", None)
    if steps is None:
        in_sklearn = getattr(model, "_parent_callback_ctx", None) is not None
        steps = (UNCHECKED_META_ESTIMATOR,) if in_sklearn else ()
    return merge_conditions(getattr(model, "_call_conditions", ()), steps)


def clone_for(owner: Any, estimator: M) -> M:
    """Return a clone that a class of this library fits; it inherits the call conditions of `owner` (None: none)."""
    copy: Any = clone(estimator)
    copy.__dict__.pop("_call_conditions", None)
    if conditions := call_conditions(owner):
        copy._call_conditions = conditions
    return copy  # type: ignore[no-any-return]


@contextmanager
def in_pipeline(model: Any, conditions: tuple[Condition, ...]) -> Iterator[None]:
    """Set the conditions of the pipeline's steps on its last step while that is fitted."""
    outer = model._pipeline_conditions
    model._pipeline_conditions = merge_conditions(outer or (), conditions)
    try:
        yield
    finally:
        if outer is None:
            del model._pipeline_conditions
        else:
            model._pipeline_conditions = outer


def learns_row_count(model: Any) -> bool:
    """Whether the fit learns the number of rows, within its guarantee."""
    return isinstance(model.n_public, str) and model.n_public == LEARN


def fit_conditions(model: Any) -> tuple[Condition, ...]:
    """Return the conditions of a fit that is running now."""
    uses_row_count = model.adjacency == "add-remove" and model.n_public is None
    return merge_conditions(call_conditions(model), (PUBLIC_ROW_COUNT,) if uses_row_count else ())


def check_fit_conditions(model: Any) -> None:
    """Raise for a strict data set if the fit has conditions, before anything is charged; warn for any other."""
    if model._has_strict_ledger() and model.adjacency == "add-remove" and model.n_public is None:
        raise InvalidParameter(
            "this data set is strict, and under add-remove the number of rows is private: state n_public=, the "
            "public divisor of the mean, or n_public='learn' in a single fit. Nothing was charged."
        )
    for condition in call_conditions(model):
        if model._has_strict_ledger():
            raise InvalidParameter(
                f"this data set is strict, and the guarantee would be {condition}. Nothing was charged."
            )
        if condition.kind != "record-errors":  # whoever chose a step knows on which rows it fails
            warnings.warn(f"the guarantee of this fit is {condition}.", UserWarning, stacklevel=4)


HASHING_STEPS = (HashingVectorizer, FeatureHasher)
"""Steps that read a list item by item, and return sparse matrices."""
ROW_WISE_STEPS = (Normalizer, Binarizer, PolynomialFeatures, AdditiveChi2Sampler, *HASHING_STEPS)
"""Steps of scikit-learn that learn nothing and whose output row is a function of the input row alone.

Exactly these classes: a subclass may do anything. Also row-wise are SchemaEncoder, FunctionTransformer without a
function, "passthrough" and "drop", and Pipeline, FeatureUnion and ColumnTransformer of such steps, the last with
stated columns.
"""


def find_learned_steps(pipeline: Any) -> tuple[str, ...]:
    """Return the names of the steps, before the last one, of a fitted pipeline that hold something learned from data.

    A step counts when it is fitted (has attributes besides its parameters), its scikit-learn tags say that it needs
    fitting, and it is not one of this library's; also when it is not a scikit-learn estimator, so that nothing is
    known about it. Column transformers, unions and pipelines are searched recursively; a parameter search counts as a
    step, since it chose by data.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import FunctionTransformer, StandardScaler
    >>> from sklearn.linear_model import LogisticRegression
    >>> pipeline = make_pipeline(FunctionTransformer(), StandardScaler(), LogisticRegression())
    >>> find_learned_steps(pipeline.fit([[0.0], [1.0]], [0, 1]))
    ('standardscaler',)
    """
    if hasattr(pipeline, "cv_results_"):
        return (type(pipeline).__name__, *find_learned_steps(getattr(pipeline, "best_estimator_", None)))
    steps = getattr(pipeline, "steps", None)
    if steps is None:
        return ()
    names = [name for step, part in steps[:-1] for name in _learned_step_names(step, part)]
    return (*names, *find_learned_steps(steps[-1][1]))


def _learned_step_names(name: str, step: Any) -> list[str]:
    """Return the names of the steps inside `step` that hold something learned from data."""
    inner = getattr(step, "steps", None)
    if inner is None:
        inner = getattr(step, "transformers_", getattr(step, "transformer_list", None))
    if inner is not None:
        return [f"{name}/{part}" for entry in inner for part in _learned_step_names(entry[0], entry[1])]
    if isinstance(step, str) or step is None or type(step).__module__.split(".")[0] == "dplangevin":
        return []
    if not isinstance(step, BaseEstimator):
        return [name]
    fitted = vars(step).keys() - step.get_params(deep=False).keys()
    return [name] if fitted and get_tags(step).requires_fit else []


def find_cross_row_steps(pipeline: Any, from_list: bool = False) -> tuple[str, ...]:
    """Return the names of the steps before the last one that are not known to be row-wise: conditions of a guarantee.

    A step counts unless it is in ROW_WISE_STEPS. Nothing is tested on examples: a test could only show that a step is
    not row-wise, never that it is.

    Parameters
    ----------
    pipeline : the pipeline, fitted or not.
    from_list : the rows are given as a list, which scikit-learn reads as a whole: then its numeric steps count too.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> steps = make_pipeline(Normalizer(), FunctionTransformer(), FunctionTransformer(abs), None)
    >>> find_cross_row_steps(steps)
    ('functiontransformer-2',)
    """
    return tuple(name for name, kind in _steps_before_last(pipeline, from_list) if not kind)


def find_failing_steps(pipeline: Any, from_list: bool = False) -> tuple[str, ...]:
    """Return the names of the row-wise steps that raise an error for a row that they cannot read."""
    return tuple(name for name, kind in _steps_before_last(pipeline, from_list) if kind == "may fail")


def find_foreign_steps(model: Any) -> tuple[str, ...]:
    """Return the names of the steps of a fitted pipeline that run the user's own code, which may not be row-wise.

    A fitted step of scikit-learn transforms each row by itself; a user's function need not.
    """
    steps = [*model.steps[:-1]] if isinstance(model, sklearn_pipeline.Pipeline) else []
    return tuple(name for step, part in steps for name in _foreign_step_names(step, part))


def _foreign_step_names(name: str, step: Any) -> Iterator[str]:
    inner = getattr(step, "steps", getattr(step, "transformers_", getattr(step, "transformer_list", None)))
    if inner is not None:
        for entry in inner:
            yield from _foreign_step_names(f"{name}/{entry[0]}", entry[1])
    elif step is not None and not isinstance(step, str):
        known = type(step).__module__.partition(".")[0] in ("sklearn", "dplangevin")
        if not known or (isinstance(step, FunctionTransformer) and step.func is not None):
            yield name


def _steps_before_last(pipeline: Any, from_list: bool) -> Iterator[tuple[str, str]]:
    if not _is_known_pipeline(pipeline):
        yield type(pipeline).__name__, ""
    for name, step in pipeline.steps[:-1]:
        yield from _classify_steps(name, step, from_list)
    if isinstance(pipeline.steps[-1][1], sklearn_pipeline.Pipeline):
        yield from _steps_before_last(pipeline.steps[-1][1], from_list)


def _is_known_pipeline(step: Any) -> bool:
    """Whether the step is exactly scikit-learn's Pipeline or this library's; a subclass may do anything."""
    return type(step) is sklearn_pipeline.Pipeline or "_is_known_pipeline" in vars(type(step))


def _classify_steps(name: str, step: Any, from_list: bool) -> Iterator[tuple[str, str]]:
    """Yield (name, kind) of each step inside `step`: "row-wise", "may fail" (row-wise, may raise) or "" (unknown)."""
    if _is_known_pipeline(step) or type(step) is FeatureUnion:
        parts = [*(step.transformer_list if type(step) is FeatureUnion else step.steps)]
    elif type(step) is ColumnTransformer:
        parts = [(each, part) for each, part, columns in step.transformers]
        parts += [] if isinstance(step.remainder, str) else [("remainder", step.remainder)]
        # A callable selects columns by their types, and sparse or dense output is decided by density: both
        # depend on all rows.
        chooses_by_type = any(callable(columns) for _, _, columns in step.transformers)
        may_be_sparse = step.sparse_threshold != 0 and any(type(part) in HASHING_STEPS for _, part in parts)
        if from_list or chooses_by_type or may_be_sparse:
            yield name, ""
    else:
        yield name, _row_handling(step, from_list)
        return
    for each, part in parts:
        yield from _classify_steps(f"{name}/{each}", part, from_list)


def _row_handling(step: Any, from_list: bool) -> str:
    """Return the kind of a single step: "row-wise", "may fail" or "" (unknown)."""
    if (
        step is None
        or type(step) is SchemaEncoder
        or (isinstance(step, str) and step in ("passthrough", "drop"))
    ):
        return "row-wise"
    if type(step) is FunctionTransformer and step.func is None:
        if not step.validate:
            return "row-wise"
        return "" if from_list else "may fail"
    known = type(step) in ROW_WISE_STEPS and not (from_list and type(step) not in HASHING_STEPS)
    return "may fail" if known else ""


class Pipeline(DocumentationLinkMixin, sklearn_pipeline.Pipeline):  # type: ignore[misc]
    """Pipeline of scikit-learn with a check of its steps before the private fit at its end.

    The guarantee of the last step is about the rows that it receives. It is a guarantee about the records only if
    each of these rows comes from one record alone: this class knows a list of such row-wise steps, and every other
    step makes the guarantee of the last step conditional. A strict data set of a ledger then raises an error before
    anything is charged. scikit-learn's own Pipeline has no such check. The parameters are those of scikit-learn's.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import FunctionTransformer
    >>> from dplangevin import DPRidge, make_pipeline
    >>> X = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    >>> ridge = DPRidge(data_norm=2.0, target_bounds=(-1, 1), bad_rows="zero", random_state=0)
    >>> make_pipeline(FunctionTransformer(), ridge).fit(X, X[:, 0])[-1].privacy_.is_unconditional
    True
    """

    # Looked up in this very class, not inherited: a subclass may do anything with the rows.
    _is_known_pipeline: ClassVar[bool] = True

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Fit the steps one after the other; conditions of the earlier steps enter the guarantee of the last one."""
        last = _private_last_step(self)
        # An enclosing pipeline that has set its conditions has checked these steps too.
        if last is None or last._pipeline_conditions is not None:
            super().fit(X, y, **params)
            return self
        conditions = merge_conditions(
            call_conditions(self), upstream_conditions(self, isinstance(X, list | tuple))
        )
        with in_pipeline(last, conditions):
            super().fit(X, y, **params)
        return self


def make_pipeline(*steps: Any, memory: Any = None, verbose: bool = False) -> Pipeline:
    """Return a `Pipeline` of these steps, named as by scikit-learn."""
    named = sklearn_pipeline.make_pipeline(*steps).steps
    return Pipeline(named, memory=memory, verbose=verbose)


def upstream_conditions(pipeline: Any, from_list: bool = False) -> tuple[Condition, ...]:
    """Return the conditions of the steps before the last one; `from_list` states that the rows are a list."""
    conditions = []
    if crossing := find_cross_row_steps(pipeline, from_list):
        conditions.append(
            Condition(
                kind="upstream-steps",
                text=f"{', '.join(crossing)} of the pipeline reading each row by itself: one record may influence "
                "the rows of others (the step learns from them, or is not on the list of row-wise steps), which no "
                "guarantee covers. Use a public schema (SchemaEncoder), or a step of the list in docs/sharp_edges.md",
            )
        )
    conditions += [
        Condition(
            kind="record-errors",
            text=f"{name} of the pipeline reading every row: it raises an error for a row that it cannot read, and "
            "that error depends on the records. Use a public schema (SchemaEncoder)",
        )
        for name in find_failing_steps(pipeline, from_list)
    ]
    return tuple(conditions)


def _private_last_step(pipeline: Any) -> Any:
    """Return the estimator of this library at the end of the (possibly nested) pipeline; None for other estimators."""
    last = pipeline
    while isinstance(last, sklearn_pipeline.Pipeline):
        if not last.steps:
            return None
        last = last.steps[-1][1]
    return last if isinstance(last, WithCallContext) else None
