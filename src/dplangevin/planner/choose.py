"""choose: a calibrated plan from public quantities only."""

from __future__ import annotations

import math
from typing import Any

from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.planner import rules
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import Request
from dplangevin.privacy.registry import recipe_named, recipe_names, schedule_types, theorems_for

SECURE_TOO = ("sufficient-statistics", "output-perturbation")
"""Mechanisms whose recipes plan secure runs themselves."""
_SECURE = "noisy-gd-secure"
ANY_NUMBER = (
    "noisy-gd", "whitened-gd", "noisy-sgd", "output-perturbation", "objective-perturbation", "whitened-objective",
    "sufficient-statistics",
)  # fmt: skip
"""Mechanisms with a theorem that holds for more records than the public divisor n."""
POPULATION = ("exponential", "gibbs", "iterated-exponential", "langevin")
"""Mechanisms whose stability is proved, and whose ridge can be chosen for new records."""
"""Models whose default fit under a pure promise may buy a second moment."""
WHITENED = {"whitened-gd": "noisy-gd", "whitened-objective": "objective-perturbation"}
"""Mechanisms in stretched coordinates, in which a stated ridge or radius would be none, and what to use instead."""
GAUSSIAN_ONLY = ("noisy-gd", "whitened-gd", "noisy-sgd", "sufficient-statistics")


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


def _mechanism(request: Request) -> str:
    """The mechanism that is planned; what it cannot promise is refused."""
    mechanism = request.mechanism
    if mechanism == _SECURE:
        raise InvalidParameter(
            f"mechanism={_SECURE!r} is what secure=True runs: ask for secure=True, with mechanism='auto' or 'noisy-gd'."
        )
    if request.secure and mechanism not in SECURE_TOO:
        mechanism = _SECURE
    else:
        mechanism = _automatic(request) if mechanism == "auto" else mechanism
        if request.objective == "population" and mechanism not in POPULATION:
            raise InvalidParameter(
                f"objective='population' is for draws: use mechanism='auto' or one of {', '.join(POPULATION)}."
            )
        if mechanism in GAUSSIAN_ONLY and request.delta == 0:
            raise InvalidParameter(
                f"mechanism={mechanism!r} adds Gaussian noise and cannot promise pure epsilon; state a delta, or use "
                "mechanism='whitened-objective', 'objective-perturbation' or 'output-perturbation'."
            )
    if request.more_rows and mechanism not in ANY_NUMBER:
        what = "secure=True" if request.secure else f"mechanism={mechanism!r}"
        raise InvalidParameter(
            f"{what} is proved for at most n records, and with a stated n the data may hold more: leave n out (the "
            f"number of rows is then public), or use one of {', '.join(ANY_NUMBER)}."
        )
    if mechanism in WHITENED and (request.alpha is not None or request.radius is not None):
        raise InvalidParameter(
            f"mechanism={mechanism!r} has neither ridge nor radius; leave alpha and radius out, or use "
            f"mechanism={WHITENED[mechanism]!r}."
        )
    return mechanism


def _automatic(request: Request) -> str:
    """The mechanism of a pinned theorem; else whitened descent (pure: a whitened objective) where second moments of the
    rows are worth their share, else objective perturbation where Gamma-norm noise pays, else descent."""
    if request.theorem is not None:
        known = recipe_names()
        pinned = (
            kind.mechanism
            for kind in schedule_types()
            if kind.mechanism in known and request.theorem in theorems_for(kind)
        )
        return next(pinned, "noisy-gd")
    if request.objective == "population":
        return "exponential" if request.delta == 0 else "langevin"
    if request.free and request.delta > 0 and rules.Looks.of(request).pay:
        return "whitened-gd"
    pure = request.free and request.delta == 0 and request.shape.whitens_purely
    if pure and rules.PureLook.of(request).pay:
        return "whitened-objective"
    return "objective-perturbation" if _pure_pays(request) else "noisy-gd"


def _pure_pays(request: Request) -> bool:
    if request.delta == 0:
        return True
    return (
        request.alpha is None
        and math.isfinite(request.loss(None).curvature_bound)
        and rules.pure_pays(request.dimension, request.epsilon, request.mu)
    )
