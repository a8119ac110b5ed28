"""scikit-learn estimators that fit under a stated guarantee, with nothing to tune on private data."""

from dplangevin.estimators.additive import DPAdditiveClassifier, DPAdditiveRegressor
from dplangevin.estimators.huber import DPHuberRegressor
from dplangevin.estimators.linear_svc import DPLinearSVC
from dplangevin.estimators.logistic import DPLogisticRegression
from dplangevin.estimators.poisson import DPPoissonRegressor
from dplangevin.estimators.quantile import DPQuantileRegressor
from dplangevin.estimators.ridge import DPRidge
from dplangevin.estimators.schema_encoder import SchemaEncoder

__all__ = [
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
