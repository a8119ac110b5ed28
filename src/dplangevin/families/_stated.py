"""What readers of options share: the constants of a problem, stated as numbers."""

from __future__ import annotations

import math

from dplangevin.problem.constants import Constants


def stated_constants(
    n: int,
    lipschitz: float,
    adjacency: str,
    smoothness: float = math.inf,
    strong_convexity: float = 0.0,
    diameter: float = math.inf,
    dimension: int | None = None,
    hessian_rank: int | None = None,
) -> Constants:
    """The constants of a run as options state them."""
    return Constants(
        n=n,
        lipschitz=lipschitz,
        smoothness=smoothness,
        strong_convexity=strong_convexity,
        diameter=diameter,
        adjacency=adjacency,  # type: ignore[arg-type]
        dimension=dimension,
        hessian_rank=hessian_rank,
    )
