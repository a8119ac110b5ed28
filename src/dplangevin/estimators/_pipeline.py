"""What a fitted pipeline learned from data before its last step."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils import get_tags


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
