"""What packages above the estimators need of them: how rows and targets are read, named and turned into a fit."""

from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._begin import WithCallContext, clone_for
from dplangevin.estimators._classifier import DPLinearClassifier
from dplangevin.estimators._monotone import monotone_columns
from dplangevin.estimators._names import INTERCEPT, column_names
from dplangevin.estimators._public import shares_rows, tuned_plan, warn_shared
from dplangevin.estimators._reading import Outline, TargetEncoder, dataset_of
from dplangevin.estimators._regressor import DPLinearRegressor

__all__ = [
    "INTERCEPT",
    "DPLinearClassifier",
    "DPLinearModel",
    "DPLinearRegressor",
    "Outline",
    "TargetEncoder",
    "WithCallContext",
    "clone_for",
    "column_names",
    "dataset_of",
    "monotone_columns",
    "shares_rows",
    "tuned_plan",
    "warn_shared",
]
