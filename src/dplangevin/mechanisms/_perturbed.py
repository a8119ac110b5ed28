"""What one-shot mechanisms share: the checks before the data are touched, and the release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms._charged import charged
from dplangevin.mechanisms.release import Release
from dplangevin.mechanisms.run_state import RunState
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.spender import Spender
from dplangevin.samplers.gamma_norm import gamma_norm
from dplangevin.schedules import Schedule

Floats = NDArray[np.float64]
S = TypeVar("S", bound=Schedule)


def checked(plan: Plan, data: Dataset, family: type[S]) -> S:
    """The plan's schedule, when it belongs to this family and the data to the plan's problem."""
    schedule, problem = plan.schedule, plan.problem
    if not isinstance(schedule, family):
        raise InvalidParameter(f"this plan is for {schedule.mechanism}, not for {family.mechanism}.")
    if problem is None:
        raise InvalidParameter("this plan has constants but no problem, so it can be priced but not run.")
    if data.problem != problem:
        raise InvalidParameter(
            "the data set was prepared for another problem than the plan's; build it from plan.problem."
        )
    return schedule


def release_once(
    plan: Plan,
    data: Dataset,
    family: type[S],
    answer: Callable[[S, Dataset, np.random.Generator], Floats],
    random_state: object,
    ledger: Spender | None,
    keeper: RunState | None,
    iterates: Mapping[int, Floats] | None = None,
) -> Release:
    """Run `answer` once on the data of the plan's problem and release the result, projected on the constraint.

    keeper : makes a run that was interrupted start again with the same noise and the same charge.
    iterates : filled by `answer` with what else the promise covers.
    """
    schedule = checked(plan, data, family)

    def make(rng: np.random.Generator, seeded: bool) -> Release:
        value = data.problem.constraint.project(answer(schedule, data, rng))
        steps = max(1, len(iterates or {}))
        return Release(value=value, plan=plan, seeded=seeded, n_steps=steps, iterates=iterates or {})

    return charged(plan, data, make, random_state, ledger, keeper)


def perturbation(noise: str, dimension: int, scale: float, rng: np.random.Generator) -> Floats:
    """Gaussian noise, or noise with density proportional to exp(-|z| / scale)."""
    if noise == "gaussian":
        return scale * rng.standard_normal(dimension)
    return gamma_norm(dimension, scale, 1, rng)[:, 0]
