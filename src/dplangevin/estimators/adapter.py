"""Parts of the estimators that other packages use: reading, naming and encoding of rows and targets, and planning."""

from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._public_data import (
    have_shared_rows,
    plan_with_public_data,
    warn_about_shared_rows,
)
from dplangevin.estimators._reading import Outline, TargetEncoder, build_dataset
from dplangevin.estimators.call_context import WithCallContext, clone_for
from dplangevin.estimators.exports import INTERCEPT, encoded_column_names
from dplangevin.estimators.linear_models import DPLinearClassifier, DPLinearRegressor
from dplangevin.estimators.schema_encoder import monotone_columns

__all__ = [
    "INTERCEPT",
    "DPLinearClassifier",
    "DPLinearModel",
    "DPLinearRegressor",
    "Outline",
    "TargetEncoder",
    "WithCallContext",
    "build_dataset",
    "clone_for",
    "encoded_column_names",
    "have_shared_rows",
    "monotone_columns",
    "plan_with_public_data",
    "warn_about_shared_rows",
]
