"""Counts by their options, for `account` and `calibrate`."""

from __future__ import annotations

import math

from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_answers.schedule import LargestNormSchedule, NoisyAnswersSchedule


def counting(
    *,
    answers: int,
    sigma: float,
    changed: int | None = None,
    sensitivity: float = 1.0,
    p: float = 2.0,
    adjacency: str = "replace-one",
) -> tuple[None, NoisyAnswersSchedule]:
    """Answers plus generalised Gaussian noise of density exp(-(|x|_p / sigma)^p)."""
    if p == math.inf:
        raise InvalidParameter("p = inf, noise of the largest norm, is mechanism='largest-norm' here.")
    return None, NoisyAnswersSchedule(
        answers=answers,
        changed=answers if changed is None else changed,
        sensitivity=sensitivity,
        p=p,
        sigma=sigma,
        adjacency=adjacency,  # type: ignore[arg-type]
    )


def largest_norm(
    *,
    answers: int,
    scale: float,
    changed: int | None = None,
    sensitivity: float = 1.0,
    adjacency: str = "replace-one",
) -> tuple[None, LargestNormSchedule]:
    """Answers plus noise of density exp(-max(|x|_inf, |x|_1 / changed) / scale)."""
    return None, LargestNormSchedule(
        answers=answers,
        changed=answers if changed is None else changed,
        sensitivity=sensitivity,
        scale=scale,
        adjacency=adjacency,  # type: ignore[arg-type]
    )
