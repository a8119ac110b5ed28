"""Scikit-learn estimators that fit under a stated privacy guarantee, with nothing to tune on private data."""

from dplangevin.estimators._documentation import EXPECTED_FAILED_CHECKS
from dplangevin.estimators.additive import DPAdditiveClassifier, DPAdditiveRegressor
from dplangevin.estimators.exports import TRUSTED_TYPES
from dplangevin.estimators.linear_models import (
    DPHuberRegressor,
    DPLinearSVC,
    DPLogisticRegression,
    DPPoissonRegressor,
    DPQuantileRegressor,
    DPRidge,
)
from dplangevin.estimators.schema_encoder import SchemaEncoder

__all__ = [
    "EXPECTED_FAILED_CHECKS",
    "TRUSTED_TYPES",
    "DPAdditiveClassifier",
    "DPAdditiveRegressor",
    "DPHuberRegressor",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPPoissonRegressor",
    "DPQuantileRegressor",
    "DPRidge",
    "SchemaEncoder",
]
