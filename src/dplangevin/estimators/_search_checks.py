"""Check that a model matches a table, from what is public about both, before anything is charged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dplangevin.errors import InvalidParameter
from dplangevin.estimators.schema_encoder import as_schema
from dplangevin.tables import is_frame, is_streamed


def check_model_matches_table(model: Any, X: Any, y: Any = None) -> None:
    """Raise if the model is not fitted, or was fitted on other columns than X has; no record is read."""
    if isinstance(model, BaseEstimator):
        try:
            check_is_fitted(model)
        except NotFittedError:
            raise InvalidParameter(f"the {type(model).__name__} is not fitted yet; fit it first.") from None
    columns = None
    if not is_streamed(X):
        named = X.keys() if isinstance(X, Mapping) and is_frame(X) else getattr(X, "columns", None)
        columns = None if named is None else [str(name) for name in named]
    schema = getattr(model, "schema_", getattr(model, "schema", None))
    if schema is not None:
        if columns is not None:
            as_schema(schema).validate(columns)
        return
    names = getattr(model, "feature_names_in_", None)
    if names is not None and columns is not None:
        absent = [str(name) for name in names if str(name) not in columns]
        if absent:
            raise InvalidParameter(
                f"the {type(model).__name__} was fitted on {', '.join(map(repr, absent))}, and the table has no such "
                "column."
            )
    n_expected: int | None = getattr(model, "n_features_in_", None)
    shape: tuple[int, ...] = getattr(X, "shape", ())
    has_no_target = not isinstance(y, str)  # otherwise the table holds the target too
    if (
        names is None
        and has_no_target
        and n_expected is not None
        and len(shape) == 2
        and shape[1] != n_expected
    ):
        raise InvalidParameter(
            f"the {type(model).__name__} was fitted on {n_expected} columns, and X has {shape[1]}; pass the same "
            "columns."
        )
