"""Differentially private convex learning by Langevin diffusion.

Everything below is loaded on first use, so that `import dplangevin` costs almost nothing.

Examples
--------
>>> import dplangevin
>>> promise = dplangevin.account(n=10_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01,
...                              step_size=1.0, noise_scale=0.02, steps=float("inf"), delta=1e-6)
>>> round(promise.epsilon(), 3), promise.release
(0.574, 'last-iterate')
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dplangevin._version import __version__

if TYPE_CHECKING:
    from dplangevin._progress import watching
    from dplangevin.errors import (
        AssumptionFailed,
        BudgetExceeded,
        CalibrationFailed,
        ContradictionError,
        DplangevinError,
        InvalidParameter,
        LedgerError,
        NotPrivateError,
    )
    from dplangevin.estimators import (
        DPHuberRegressor,
        DPLinearSVC,
        DPLogisticRegression,
        DPPoissonRegressor,
        DPQuantileRegressor,
        DPRidge,
        SchemaEncoder,
    )
    from dplangevin.estimators.evaluation import learned_steps, private_score, private_selection
    from dplangevin.families.account import account
    from dplangevin.families.calibrate import calibrate
    from dplangevin.families.draws.plan_sampler import plan_sampler
    from dplangevin.families.noisy_gradient.lower_bounds import lower_bound_epsilon
    from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
    from dplangevin.ledger import Ledger
    from dplangevin.privacy.guarantee import Guarantee, NotPrivate
    from dplangevin.problem.constants import Constants
    from dplangevin.schema import Schema

_HOME = {
    "AssumptionFailed": "errors",
    "BudgetExceeded": "errors",
    "CalibrationFailed": "errors",
    "Constants": "problem.constants",
    "ContradictionError": "errors",
    "DPHuberRegressor": "estimators",
    "DPLinearSVC": "estimators",
    "DPLogisticRegression": "estimators",
    "DPPoissonRegressor": "estimators",
    "DPQuantileRegressor": "estimators",
    "DPRidge": "estimators",
    "DplangevinError": "errors",
    "Guarantee": "privacy.guarantee",
    "InvalidParameter": "errors",
    "Ledger": "ledger",
    "LedgerError": "errors",
    "NoisyGradientSchedule": "schedules",
    "NotPrivate": "privacy.guarantee",
    "NotPrivateError": "errors",
    "Schema": "schema",
    "SchemaEncoder": "estimators",
    "account": "families.account",
    "calibrate": "families.calibrate",
    "learned_steps": "estimators.evaluation",
    "lower_bound_epsilon": "families.noisy_gradient.lower_bounds",
    "plan_sampler": "families.draws.plan_sampler",
    "private_score": "estimators.evaluation",
    "private_selection": "estimators.evaluation",
    "watching": "_progress",
}

__all__ = [
    "AssumptionFailed",
    "BudgetExceeded",
    "CalibrationFailed",
    "Constants",
    "ContradictionError",
    "DPHuberRegressor",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPPoissonRegressor",
    "DPQuantileRegressor",
    "DPRidge",
    "DplangevinError",
    "Guarantee",
    "InvalidParameter",
    "Ledger",
    "LedgerError",
    "NoisyGradientSchedule",
    "NotPrivate",
    "NotPrivateError",
    "Schema",
    "SchemaEncoder",
    "__version__",
    "account",
    "calibrate",
    "learned_steps",
    "lower_bound_epsilon",
    "plan_sampler",
    "private_score",
    "private_selection",
    "watching",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dplangevin' has no attribute {name!r}")
    value = getattr(import_module(f"dplangevin.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
