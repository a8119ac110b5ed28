"""Data-independent choices: mechanism, clip, steps, noise and ridge from public quantities only."""

from dplangevin.planner.choose import choose
from dplangevin.planner.iterated import plan_iterated
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import MECHANISMS, MODELS, Request
from dplangevin.planner.samplers import SamplerPlan, plan_sampler

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
