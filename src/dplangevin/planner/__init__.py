"""Data-independent choices: mechanism, clip, steps, noise and ridge from public quantities only."""

from dplangevin.planner.choose import MECHANISMS, MODELS, choose
from dplangevin.planner.recipe import Recipe

__all__ = ["MECHANISMS", "MODELS", "Recipe", "choose"]
