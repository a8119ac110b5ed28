"""Recipes of secure mode: the same descents, with exact discrete noise and the cost of its grid."""

from __future__ import annotations

import math
from dataclasses import replace

from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.families.noisy_gradient import recipe as descents
from dplangevin.families.noisy_gradient.discrete_schedule import DiscreteGradientSchedule
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems.discrete_composition import (
    DiscreteComposition,
    calibrated_discrete_gradient,
)
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import Request
from dplangevin.privacy.plan import Plan

BATCHED = "noisy-sgd"


def secure_recipe(request: Request) -> Recipe:
    """Noisy gradient descent in integers; whatever has no secure form is refused by name."""
    if request.mechanism not in ("auto", "noisy-gd", BATCHED):
        raise AssumptionFailed(
            f"secure mode has no proof for mechanism={request.mechanism!r}: its noise is real-valued. Use 'noisy-gd' "
            "or 'noisy-sgd', or leave it at 'auto'."
        )
    if request.theorem not in (None, DiscreteComposition.name):
        raise AssumptionFailed(
            f"secure mode has no proof by theorem={request.theorem!r}, which is about real-valued noise; leave theorem "
            f"out, or pin {DiscreteComposition.name!r}."
        )
    if request.delta == 0:
        raise InvalidParameter("secure mode adds discrete Gaussian noise and needs delta > 0; state a delta.")
    batched = request.mechanism == BATCHED
    if batched and request.adjacency == "add-remove":
        raise AssumptionFailed("secure noisy-sgd needs adjacency='replace-one'; or use mechanism='noisy-gd'.")
    plain = descents.noisy_gd(replace(request, theorem=None, secure=False))
    way, problem = plain.plan.schedule, plain.plan.problem
    assert isinstance(way, NoisyGradientSchedule)
    assert isinstance(way.step_size, float)
    assert isinstance(way.noise_scale, float)
    schedule = DiscreteGradientSchedule(
        step_size=way.step_size,
        noise_scale=way.noise_scale,
        n_steps=int(way.n_steps),
        release=way.release,
        average_from=way.average_from,
        momentum=way.momentum,
    )
    if batched:
        schedule = _batched(request, schedule)
    found = calibrated_discrete_gradient(
        problem.constants, schedule, epsilon=request.epsilon, delta=request.delta
    )
    dearer = found.noise_scale / way.noise_scale
    return replace(
        plain,
        plan=Plan(problem=problem, schedule=found, delta=request.delta),
        reasons=(
            *plain.reasons[:1],
            f"{found.n_steps} steps of size {found.step_size:.3g} on "
            + (
                "the whole data"
                if found.batch_size is None
                else f"shuffled batches of {found.batch_size} rows"
            ),
            f"secure: exact discrete noise, 2^{found.resolution} grid steps wide, {dearer:.3g} times that of "
            "real-valued noise (zCDP accounting and rounding included)",
        ),
        predicted_excess_risk=plain.predicted_excess_risk * max(1.0, dearer) ** 2,
    )


def _batched(request: Request, schedule: DiscreteGradientSchedule) -> DiscreteGradientSchedule:
    """As many epochs of shuffled batches as the plain recipe for batches has; its steps shrink to the same time."""
    size = max(1, request.n // descents.BATCHES)
    steps = descents.EPOCHS * math.ceil(request.n / size)
    shrunk = schedule.step_size * min(1.0, (schedule.n_steps / steps) ** 2)
    return replace(
        schedule,
        step_size=shrunk,
        n_steps=steps,
        batch_size=size,
        sampling="shuffle",
        average_from=steps - math.ceil(request.shape.tail * steps),
    )
