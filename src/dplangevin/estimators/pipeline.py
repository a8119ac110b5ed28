"""Pipeline: scikit-learn's, whose guarantee says what its steps may do with the records."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from sklearn import pipeline as sklearn_pipeline

from dplangevin.estimators._begin import WithCallContext, call_conditions, in_pipeline
from dplangevin.estimators._pipeline import find_cross_row_steps, find_refusing_steps
from dplangevin.privacy.conditions import Condition, merge_conditions


class Pipeline(sklearn_pipeline.Pipeline):  # type: ignore[misc]
    """scikit-learn's Pipeline with a check of its steps before the private fit at its end.

    The guarantee of the last step is about the rows that it is handed. It is one about the records only if each of
    these rows comes from one record alone: this class knows a list of such row-wise steps, and every other step
    makes the guarantee of the last step conditional. A strict data set of a ledger then refuses it before
    anything is charged. scikit-learn's own Pipeline has no such check.

    Parameters
    ----------
    steps, transform_input, memory, verbose : as in scikit-learn.

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

    _hands_rows_on: ClassVar[bool] = True  # for the list of row-wise steps, which a derived class is not on

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Fit the steps one after the other; the last one is told what those before it may have done."""
        last = _private_last_step(self)
        # where a pipeline around this one has stated its conditions, it has looked at these steps too
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
    """A `Pipeline` of these steps, named as scikit-learn names them."""
    named = sklearn_pipeline.make_pipeline(*steps).steps
    return Pipeline(named, memory=memory, verbose=verbose)


def upstream_conditions(pipeline: Any, listed: bool = False) -> tuple[Condition, ...]:
    """What the steps before the last one make a guarantee conditional on; `listed` where the rows are a list."""
    conditions = []
    if crossing := find_cross_row_steps(pipeline, listed):
        conditions.append(
            Condition(
                kind="upstream-steps",
                text=f"{', '.join(crossing)} of the pipeline reading each row by itself: it may carry one record into "
                "the rows of others (it learns from them, or is not on the list of row-wise steps), and no guarantee "
                "covers that. Use a public schema (SchemaEncoder), or a step of the list in docs/sharp_edges.md",
            )
        )
    conditions += [
        Condition(
            kind="record-errors",
            text=f"{name} of the pipeline reading every row: it fails on one that it cannot read, and that error "
            "depends on the records. Use a public schema (SchemaEncoder)",
        )
        for name in find_refusing_steps(pipeline, listed)
    ]
    return tuple(conditions)


def _private_last_step(pipeline: Any) -> Any:
    """The estimator of this library at the end of the pipeline, or of the pipelines at its end; None for others."""
    last = pipeline
    while isinstance(last, sklearn_pipeline.Pipeline):
        if not last.steps:
            return None
        last = last.steps[-1][1]
    return last if isinstance(last, WithCallContext) else None
