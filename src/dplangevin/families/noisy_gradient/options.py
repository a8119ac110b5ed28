"""Noisy gradient runs from the options of `account`: numbers, one number a step, or formulas in the step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_gradient.expression import per_step
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.privacy.option_names import QUESTION, check_names
from dplangevin.problem.constants import Constants

MECHANISMS = ("noisy-gd", "noisy-sgd")
"""Full batches, and mini-batches."""


def describe(
    *,
    n: int,
    lipschitz: float,
    noise_std: float | str | Sequence[float],
    step_size: float | str | Sequence[float],
    steps: int | float,
    mechanism: str | None = None,
    batch_size: int | None = None,
    sampling: str | None = None,
    smoothness: float = math.inf,
    strong_convexity: float = 0.0,
    diameter: float = math.inf,
    adjacency: str = "replace-one",
    release: str = "last-iterate",
    checkpoints: Sequence[int] = (),
    momentum: bool = False,
) -> tuple[Constants, NoisyGradientSchedule]:
    """The public values of a run, from the options of the command line.

    noise_std and step_size may be formulas in the step t, such as "0.5/sqrt(t)".
    """
    steps = _check.count_or_infinity("steps", steps)
    if sampling is None:
        if mechanism == "noisy-sgd" or batch_size is not None:
            raise InvalidParameter(
                "sampling is missing; say how batches are drawn: cyclic, shuffle, without-replacement or poisson."
            )
        sampling = "full"
    if mechanism is not None:
        _check.choice("mechanism", mechanism, MECHANISMS)
        if (mechanism == "noisy-gd") != (sampling == "full"):
            raise InvalidParameter(
                f"mechanism={mechanism!r} does not fit sampling={sampling!r}; noisy-gd uses the full batch, "
                "noisy-sgd a mini-batch."
            )
    constants = Constants(
        n=n, lipschitz=lipschitz, smoothness=smoothness, strong_convexity=strong_convexity, diameter=diameter,
        adjacency=adjacency,  # type: ignore[arg-type]
    )  # fmt: skip
    schedule = NoisyGradientSchedule(
        step_size=_per_step("step_size", step_size, steps),  # type: ignore[arg-type]
        noise_std=_per_step("noise_std", noise_std, steps),  # type: ignore[arg-type]
        n_steps=steps,
        batch_size=batch_size,
        sampling=sampling,  # type: ignore[arg-type]
        release=release,  # type: ignore[arg-type]
        checkpoints=tuple(checkpoints),
        momentum=momentum,
    )
    schedule.check_meaningful(constants)
    return constants, schedule


def _per_step(name: str, value: float | str | Sequence[float], steps: float) -> float | Sequence[float]:
    return per_step(name, value, steps) if isinstance(value, str) else value


def described(options: Mapping[str, object]) -> tuple[Constants, NoisyGradientSchedule]:
    """`describe`, with errors that name the option of the command line."""
    chosen = check_names(options, describe, QUESTION)
    try:
        return describe(**chosen)  # type: ignore[arg-type]
    except InvalidParameter as error:
        raise InvalidParameter(str(error).replace("n_steps", "steps")) from None
