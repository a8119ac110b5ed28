"""Data-independent choices: mechanism, clip, steps, noise and ridge from public quantities only."""

from dplangevin.families.draws.plan_iterated import plan_iterated
from dplangevin.families.draws.plan_sampler import SamplerPlan, plan_sampler
from dplangevin.planner.choose import choose
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import MECHANISMS, MODELS, Request

__all__ = [
    "MECHANISMS",
    "MODELS",
    "Recipe",
    "Request",
    "SamplerPlan",
    "choose",
    "plan_iterated",
    "plan_sampler",
]
