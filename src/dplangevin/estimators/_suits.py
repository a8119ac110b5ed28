"""Whether a model can answer for a table, from what is public about both: asked before anything is charged."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dplangevin.errors import InvalidParameter
from dplangevin.estimators.schema_encoder import as_schema


def check_suits(model: Any, X: Any, y: Any = None) -> None:
    """Refuse a model that is not fitted, or that was fitted on other columns than X has. No record is read."""
    if isinstance(model, BaseEstimator):
        try:
            check_is_fitted(model)
        except NotFittedError:
            raise InvalidParameter(f"the {type(model).__name__} is not fitted yet; fit it first.") from None
    columns = [str(name) for name in X.columns] if hasattr(X, "columns") else None
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
    wanted: int | None = getattr(model, "n_features_in_", None)
    shape: tuple[int, ...] = getattr(X, "shape", ())
    alone = not isinstance(y, str)  # else the table holds the target too
    if names is None and alone and wanted is not None and len(shape) == 2 and shape[1] != wanted:
        raise InvalidParameter(
            f"the {type(model).__name__} was fitted on {wanted} columns, and X has {shape[1]}; give the same columns."
        )
