"""Data-independent choices: mechanism, clip, steps, noise and ridge from public quantities only."""

from dplangevin.planner.choose import choose
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import MECHANISMS, MODELS, Request

__all__ = ["MECHANISMS", "MODELS", "Recipe", "Request", "choose"]
