"""The recipe of Langevin chains: the sampler's process tier."""

from dplangevin.families.draws.recipe import langevin

__all__ = ["langevin"]
