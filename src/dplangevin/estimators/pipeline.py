"""Pipeline of scikit-learn with a check of its steps, on which the guarantee of the last step depends."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from sklearn import pipeline as sklearn_pipeline

from dplangevin.accounting.guarantee import Condition, merge_conditions
from dplangevin.estimators._call_context import (
    WithCallContext,
    call_conditions,
    find_cross_row_steps,
    find_failing_steps,
    in_pipeline,
)
from dplangevin.estimators._documentation import DocumentationLinkMixin


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
