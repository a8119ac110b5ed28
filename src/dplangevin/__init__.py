"""Differentially private convex learning by Langevin diffusion.

Everything below is loaded on first use, so that `import dplangevin` costs almost nothing.

Examples
--------
>>> import dplangevin
>>> promise = dplangevin.account(n=10_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01,
...                              step_size=1.0, noise_std=0.02, steps=float("inf"), delta=1e-6)
>>> round(promise.epsilon(), 3), promise.release
(0.574, 'last-iterate')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplangevin._lazy import attach
from dplangevin._version import __version__ as __version__

if TYPE_CHECKING:
    from dplangevin._progress import watching as watching
    from dplangevin.errors import (
        AssumptionFailed as AssumptionFailed,
        BudgetExceeded as BudgetExceeded,
        CalibrationFailed as CalibrationFailed,
        ContradictionError as ContradictionError,
        DplangevinError as DplangevinError,
        InvalidParameter as InvalidParameter,
        LedgerError as LedgerError,
        NotPrivateError as NotPrivateError,
    )
    from dplangevin.estimators import (
        DPAdditiveClassifier as DPAdditiveClassifier,
        DPAdditiveRegressor as DPAdditiveRegressor,
        DPHuberRegressor as DPHuberRegressor,
        DPLinearSVC as DPLinearSVC,
        DPLogisticRegression as DPLogisticRegression,
        DPPoissonRegressor as DPPoissonRegressor,
        DPQuantileRegressor as DPQuantileRegressor,
        DPRidge as DPRidge,
        SchemaEncoder as SchemaEncoder,
    )
    from dplangevin.estimators.epsilon_choice import epsilon_for as epsilon_for
    from dplangevin.estimators.evaluation import (
        learned_steps as learned_steps,
        private_score as private_score,
        private_selection as private_selection,
    )
    from dplangevin.estimators.model_file import load_model as load_model, save_model as save_model
    from dplangevin.estimators.pipeline import Pipeline as Pipeline, make_pipeline as make_pipeline
    from dplangevin.estimators.schema_check import check_schema as check_schema
    from dplangevin.estimators.search import DPSearchCV as DPSearchCV
    from dplangevin.families.account import account as account
    from dplangevin.families.calibrate import calibrate as calibrate
    from dplangevin.families.draws.plan_sampler import plan_sampler as plan_sampler
    from dplangevin.families.mechanism import run as run
    from dplangevin.families.noisy_gradient.lower_bounds import lower_bound_epsilon as lower_bound_epsilon
    from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule as NoisyGradientSchedule
    from dplangevin.ledger import Ledger as Ledger
    from dplangevin.planner.choose import choose as choose
    from dplangevin.planner.request import Request as Request
    from dplangevin.privacy.guarantee import Guarantee as Guarantee, NotPrivate as NotPrivate
    from dplangevin.privacy.plan import Plan as Plan, Price as Price
    from dplangevin.privacy.plan_file import load_plan as load_plan, save_plan as save_plan
    from dplangevin.problem.constants import Constants as Constants
    from dplangevin.schema import Schema as Schema

__getattr__, __dir__, __all__ = attach(__name__)
