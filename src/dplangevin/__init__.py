"""Differentially private convex learning by Langevin diffusion.

Every public name is loaded on first use, so `import dplangevin` costs almost nothing.

Examples
--------
>>> import dplangevin
>>> guarantee = dplangevin.account(n=10_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01,
...                                step_size=1.0, noise_std=0.02, n_steps=float("inf"), delta=1e-6)
>>> round(guarantee.epsilon(), 3), guarantee.release
(0.574, 'last-iterate')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplangevin._lazy import attach_lazy_names
from dplangevin._version import __version__ as __version__

if TYPE_CHECKING:
    from dplangevin._progress import progress as progress
    from dplangevin.accounting.guarantee import Guarantee as Guarantee, NotPrivate as NotPrivate
    from dplangevin.accounting.plan import (
        CertifiedSpec as CertifiedSpec,
        Plan as Plan,
        load_plan as load_plan,
        save_plan as save_plan,
    )
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
    from dplangevin.estimators.call_context import Pipeline as Pipeline, make_pipeline as make_pipeline
    from dplangevin.estimators.epsilon_choice import choose_epsilon as choose_epsilon
    from dplangevin.estimators.evaluation import (
        find_learned_steps as find_learned_steps,
        private_score as private_score,
        private_selection as private_selection,
    )
    from dplangevin.estimators.fit_preview import check_schema as check_schema, preview_fit as preview_fit
    from dplangevin.estimators.model_file import load_model as load_model, save_model as save_model
    from dplangevin.estimators.model_search import DPModelSearch as DPModelSearch
    from dplangevin.ledger import Ledger as Ledger
    from dplangevin.mechanisms.account import account as account, calibrate as calibrate
    from dplangevin.mechanisms.exponential.sampler_plans import plan_sampler as plan_sampler
    from dplangevin.mechanisms.mechanism import run_plan as run_plan
    from dplangevin.mechanisms.noisy_gradient.lower_bounds import lower_bound_epsilon as lower_bound_epsilon
    from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec as NoisyGradientSpec
    from dplangevin.planner.fit_plan import Request as Request, plan_fit as plan_fit
    from dplangevin.problem.constants import Constants as Constants
    from dplangevin.schema import Schema as Schema

__getattr__, __dir__, __all__ = attach_lazy_names(__name__)
