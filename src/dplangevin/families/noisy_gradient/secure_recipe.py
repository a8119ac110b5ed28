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
from dplangevin.planner.request import AUTO, Request
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.registry import recipes_with

PLAIN, BATCHED = "noisy-gd", "noisy-sgd"


def noisy_gd_secure(request: Request) -> Recipe:
    """Noisy gradient descent in integers; whatever has no secure form is refused by name."""
    if request.mechanism not in (AUTO, PLAIN, BATCHED):
        raise AssumptionFailed(
            f"secure mode has no proof for mechanism={request.mechanism!r}: its noise is real-valued and passes "
            f"through a minimiser, a sampler or coordinates made from it. Use {PLAIN!r}, {BATCHED!r} or one of "
            f"{', '.join(recipes_with('secure'))}, or leave it at {AUTO!r}."
        )
    if request.theorem not in (None, DiscreteComposition.name):
        raise AssumptionFailed(
            f"secure mode has no proof by theorem={request.theorem!r}, which is about real-valued noise; leave theorem "
            f"out, or pin {DiscreteComposition.name!r}."
        )
    if request.delta == 0:
        raise InvalidParameter(
            "secure mode adds Gaussian noise to gradients and needs delta > 0; state a delta."
        )
    batched = request.mechanism == BATCHED
    if batched and request.adjacency == "add-remove":
        raise AssumptionFailed("secure noisy-sgd needs adjacency='replace-one'; or use mechanism='noisy-gd'.")
    plain = descents.noisy_gd(replace(request, theorem=None, secure=False, mechanism=PLAIN))
    real, problem = plain.plan.schedule, plain.plan.problem
    assert isinstance(real, NoisyGradientSchedule)
    assert isinstance(real.step_size, float)
    assert isinstance(real.noise_std, float)
    schedule = DiscreteGradientSchedule(
        step_size=real.step_size,
        noise_std=real.noise_std,
        n_steps=int(real.n_steps),
        release=real.release,
        average_from=real.average_from,
        momentum=real.momentum,
    )
    if batched:
        schedule = _batched(request, schedule)
    schedule = calibrated_discrete_gradient(
        problem.constants, schedule, epsilon=request.epsilon, delta=request.delta
    )
    dearer = schedule.noise_std / real.noise_std
    return replace(
        plain,
        plan=Plan(problem=problem, schedule=schedule, delta=request.delta),
        reasons=(
            *plain.reasons[:1],
            f"{schedule.n_steps} steps of size {schedule.step_size:.3g} on "
            + (
                "the whole data"
                if schedule.batch_size is None
                else f"shuffled batches of {schedule.batch_size} rows"
            ),
            f"secure: exact noise, 2^{schedule.resolution} grid steps wide, {dearer:.3g} times that of real-valued "
            "noise (plain composition and rounding included); second moments of the rows and weights of the iterates "
            "have no secure form yet, so directions are not equalised",
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
