"""Choose mechanism, clip, steps, noise and ridge from public quantities only, never from the data."""

from dplangevin.planner.fit_plan import FitPlan, plan_fit
from dplangevin.planner.request import MODELS, Request

__all__ = ["MODELS", "FitPlan", "Request", "plan_fit"]
