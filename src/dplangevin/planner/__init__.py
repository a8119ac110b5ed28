"""Data-independent choices: mechanism, clip, steps, noise and ridge from public quantities only."""

from dplangevin.planner.choose import choose
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import MODELS, Request

__all__ = ["MODELS", "Recipe", "Request", "choose"]
