"""What the steps of a pipeline do with records before its last step: what they learned, and which are row-wise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, PolynomialFeatures
from sklearn.utils import get_tags

from dplangevin.estimators.schema_encoder import SchemaEncoder

HASHING = (HashingVectorizer, FeatureHasher)  # they take a list item by item, and give sparse matrices
ROW_WISE = (Normalizer, Binarizer, PolynomialFeatures, AdditiveChi2Sampler, *HASHING)
"""Steps of scikit-learn whose parameters are stated and whose row is a function of that row alone.

Exactly these classes: a derived one may do anything. Besides them SchemaEncoder, FunctionTransformer without a
function, "passthrough" and "drop", and Pipeline, FeatureUnion and ColumnTransformer of such steps, the last with stated
columns.
"""


def learned_steps(pipeline: Any) -> tuple[str, ...]:
    """Names of the steps of a fitted pipeline that hold something learned from data, apart from its last step.

    A step counts when it is fitted (has attributes besides its parameters), scikit-learn says it needs fitting, and it
    is not one of this library's; also when it is no estimator of scikit-learn's, so that none of this is known.
    Column transformers, unions and pipelines are looked into; a search over parameters counts as a step, since it chose
    by data.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import FunctionTransformer, StandardScaler
    >>> from sklearn.linear_model import LogisticRegression
    >>> pipeline = make_pipeline(FunctionTransformer(), StandardScaler(), LogisticRegression())
    >>> learned_steps(pipeline.fit([[0.0], [1.0]], [0, 1]))
    ('standardscaler',)
    """
    if hasattr(pipeline, "cv_results_"):
        return (type(pipeline).__name__, *learned_steps(getattr(pipeline, "best_estimator_", None)))
    steps = getattr(pipeline, "steps", None)
    if steps is None:
        return ()
    found = [name for step, part in steps[:-1] for name in _learned(step, part)]
    return (*found, *learned_steps(steps[-1][1]))


def _learned(name: str, step: Any) -> list[str]:
    inner = getattr(step, "steps", None)
    if inner is None:
        inner = getattr(step, "transformers_", getattr(step, "transformer_list", None))
    if inner is not None:
        return [f"{name}/{found}" for entry in inner for found in _learned(entry[0], entry[1])]
    if isinstance(step, str) or step is None or type(step).__module__.split(".")[0] == "dplangevin":
        return []
    if not isinstance(step, BaseEstimator):
        return [name]
    fitted = vars(step).keys() - step.get_params(deep=False).keys()
    return [name] if fitted and get_tags(step).requires_fit else []


def find_cross_row_steps(pipeline: Any, listed: bool = False) -> tuple[str, ...]:
    """Names of the steps before the last one that are not known to be row-wise: a promise is conditional on them.

    Nothing is tried out, since a trial could only refuse: a step counts unless it is one of the list (see ROW_WISE).

    listed : the rows are given as a list, which scikit-learn reads as a whole: then its steps of numbers count too.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> steps = make_pipeline(Normalizer(), FunctionTransformer(), FunctionTransformer(abs), None)
    >>> find_cross_row_steps(steps)
    ('functiontransformer-2',)
    """
    return tuple(name for name, known in _steps_before_last(pipeline, listed) if not known)


def find_refusing_steps(pipeline: Any, listed: bool = False) -> tuple[str, ...]:
    """Names of the row-wise steps that end the fit with an error at a row that they cannot read."""
    return tuple(name for name, known in _steps_before_last(pipeline, listed) if known == "refuses")


def find_foreign_steps(model: Any) -> tuple[str, ...]:
    """Names of the steps of a fitted pipeline that run code of its user's: whether it is row-wise is not known.

    A fitted step of scikit-learn looks at each row by itself when it transforms; a function of one's own need not.
    """
    steps = [*model.steps[:-1]] if isinstance(model, Pipeline) else []
    return tuple(name for step, part in steps for name in _foreign(step, part))


def _foreign(name: str, step: Any) -> Iterator[str]:
    inner = getattr(step, "steps", getattr(step, "transformers_", getattr(step, "transformer_list", None)))
    if inner is not None:
        for entry in inner:
            yield from _foreign(f"{name}/{entry[0]}", entry[1])
    elif step is not None and not isinstance(step, str):
        known = type(step).__module__.partition(".")[0] in ("sklearn", "dplangevin")
        if not known or (isinstance(step, FunctionTransformer) and step.func is not None):
            yield name


def _steps_before_last(pipeline: Any, listed: bool) -> Iterator[tuple[str, str]]:
    if not _is_known_pipeline(pipeline):
        yield type(pipeline).__name__, ""
    for name, step in pipeline.steps[:-1]:
        yield from _row_wise(name, step, listed)
    if isinstance(pipeline.steps[-1][1], Pipeline):
        yield from _steps_before_last(pipeline.steps[-1][1], listed)


def _is_known_pipeline(step: Any) -> bool:
    """scikit-learn's Pipeline or this library's, which hand rows from step to step; a derived one may do anything."""
    return type(step) is Pipeline or "_hands_rows_on" in vars(type(step))


def _row_wise(name: str, step: Any, listed: bool) -> Iterator[tuple[str, str]]:
    """Each step inside `step` by name: "total", "refuses" (row-wise, but it fails on some rows) or "" (not known)."""
    if _is_known_pipeline(step) or type(step) is FeatureUnion:
        parts = [*(step.transformer_list if type(step) is FeatureUnion else step.steps)]
    elif type(step) is ColumnTransformer:
        parts = [(each, part) for each, part, columns in step.transformers]
        parts += [] if isinstance(step.remainder, str) else [("remainder", step.remainder)]
        chosen = any(
            callable(columns) for _, _, columns in step.transformers
        )  # by the types, which rows decide
        hashed = step.sparse_threshold != 0 and any(type(part) in HASHING for _, part in parts)
        if listed or chosen or hashed:  # sparse or dense is decided by all rows
            yield name, ""
    else:
        yield name, _reading_of_rows(step, listed)
        return
    for each, part in parts:
        yield from _row_wise(f"{name}/{each}", part, listed)


def _reading_of_rows(step: Any, listed: bool) -> str:
    if (
        step is None
        or type(step) is SchemaEncoder
        or (isinstance(step, str) and step in ("passthrough", "drop"))
    ):
        return "total"
    if type(step) is FunctionTransformer and step.func is None:
        if not step.validate:
            return "total"
        return "" if listed else "refuses"
    known = type(step) in ROW_WISE and not (listed and type(step) not in HASHING)
    return "refuses" if known else ""
