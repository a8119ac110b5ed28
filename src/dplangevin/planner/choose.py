"""choose: a calibrated plan from public quantities only."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import AUTO, Request
from dplangevin.privacy.registry import (
    automatic_recipes,
    default_recipe,
    recipe_about,
    recipe_capabilities,
    recipe_named,
    recipes_with,
    secure_recipe,
)


def choose(**options: Any) -> Recipe:
    """The recipe for a model on n rows under (epsilon, delta); delta = 0 asks for a pure promise.

    Options are the fields of `Request`. Nothing is measured from data. Raises when the asked mechanism cannot give
    the asked promise.

    Examples
    --------
    >>> recipe = choose(model="logistic", n=30_000, n_features=20, epsilon=1.0, delta=1e-6, adjacency="replace-one",
    ...                 data_norm=1.0, fit_intercept=False)
    >>> recipe.plan.schedule.n_steps, bool(recipe.plan.guarantee.epsilon() <= 1.0)
    (12, True)
    """
    return chosen(Request(**options))


def chosen(request: Request) -> Recipe:
    """The recipe for this request."""
    try:
        recipe: Recipe = recipe_named(_mechanism(request))(request)
        spent = recipe.plan.guarantee.epsilon(request.delta)
    except (ArithmeticError, RuntimeError) as error:
        raise CalibrationFailed(
            f"no plan can be computed in double precision for these numbers ({error}); choose epsilon, delta, n and "
            "the bounds closer to 1."
        ) from None
    if not spent <= request.epsilon:
        raise CalibrationFailed(
            f"theorem {recipe.plan.guarantee.theorem} gives epsilon = {spent:.6g} for this plan, above "
            f"{request.epsilon:.6g}; leave theorem out."
        )
    return recipe


def plan_gaussian_fit(request: Request, max_mu: float = math.inf) -> Recipe:
    """The recipe for this request; "auto" means the default mechanism where another one is not mu-GDP, mu <= max_mu.

    For fits whose guarantee is composed with Gaussian releases: a pure one composes badly with them.
    """
    recipe = chosen(request)
    mu = recipe.plan.guarantee.mu
    if request.mechanism == AUTO and request.theorem is None and (mu is None or not mu <= max_mu):
        recipe = chosen(replace(request, mechanism=default_recipe()))
    return recipe


def _mechanism(request: Request) -> str:
    """The mechanism that is planned; what it cannot guarantee is refused."""
    mechanism = request.mechanism
    if mechanism == secure_recipe():
        raise InvalidParameter(
            f"mechanism={mechanism!r} is what secure=True runs: ask for secure=True, with mechanism={AUTO!r} or "
            f"{default_recipe()!r}."
        )
    if request.secure and (mechanism == AUTO or not recipe_capabilities(mechanism).secure):
        mechanism = secure_recipe()
    else:
        mechanism = _automatic(request) if mechanism == AUTO else mechanism
        _check_objective(request, mechanism)
    able = recipe_capabilities(mechanism)
    if request.more_rows and not able.holds_beyond_n:
        what = "secure=True" if request.secure else f"mechanism={mechanism!r}"
        raise InvalidParameter(
            f"{what} is proved for at most n records, and with a stated n the data may hold more: leave n out (the "
            f"number of rows is then public), or use one of {', '.join(recipes_with('holds_beyond_n'))}."
        )
    if not able.ridge_and_radius and (request.alpha is not None or request.radius is not None):
        raise InvalidParameter(
            f"mechanism={mechanism!r} has neither ridge nor radius; leave alpha and radius out, or use "
            f"mechanism={_automatic(request)!r}."
        )
    return mechanism


def _check_objective(request: Request, mechanism: str) -> None:
    """Refuse what the mechanism has no theorem for: population risk, or a pure guarantee."""
    able = recipe_capabilities(mechanism)
    if request.objective == "population" and not able.population_risk:
        raise InvalidParameter(
            f"objective='population' is for draws: use mechanism={AUTO!r} or one of "
            f"{', '.join(recipes_with('population_risk'))}."
        )
    if request.delta == 0 and not able.pure:
        raise InvalidParameter(
            f"mechanism={mechanism!r} cannot promise pure epsilon; state a delta, or use one of "
            f"{', '.join(recipes_with('pure'))}."
        )


def _automatic(request: Request) -> str:
    """The mechanism of a pinned theorem; else the first in the order of preference that suits the request."""
    if request.theorem is not None:
        return recipe_about(request.theorem) or default_recipe()
    for name, suits in automatic_recipes():
        able = recipe_capabilities(name)
        covered = able.pure or request.delta > 0
        covered &= able.population_risk or request.objective != "population"
        if covered and suits(request):
            return name
    return default_recipe()
