"""Choose mechanism, clip, steps, noise and ridge from public quantities only, never from the data."""

from dplangevin.planner.fit_plan import MODELS, FitPlan, Request, plan_fit

__all__ = ["MODELS", "FitPlan", "Request", "plan_fit"]
