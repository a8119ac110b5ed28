"""The schedule of whitened descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.schedule import Schedule

LOOKS = (1, 2)


@dataclass(frozen=True, kw_only=True)
class WhitenedSchedule(Schedule):
    """One or two noisy second moments of the rows, then n_steps noisy gradient steps in coordinates made from them.

    Rows are counted in units of the largest one, x / row_norm, of norm at most 1. With B the matrix of the coordinates
    (theta = B q / row_norm), R > 0 the bound on whitened rows and w(x) = min(1, R / |B' x|) a weight of x alone,

        moments    mean x x' + moment_noise (Z + Z') / 2, the second one of w B' x / R
        gradients  mean w r B' x / R + noise_scale N(0, I),  r the slope of the loss at the score of the row

    where a mean is a sum over the public divisor n. B, R and w are functions of the released moments.

    Parameters
    ----------
    moment_noise : standard deviation on a diagonal entry of a moment; entries off it get 1 / sqrt 2 of it.
    noise_scale : standard deviation on a coordinate of a mean gradient, in units of R.
    n_steps : accelerated steps. looks : moments that are bought.
    room : R in units of the expected length of a whitened row. Rows beyond it count less, which biases the minimiser.
    step_size : the longest step in a direction of second moment 1; 1 / (curvature of the loss x weight bound).
    reach : standard deviation that the noise may reach in a coefficient (rows of norm 1), which shortens steps.
    average_from : first step (from 0) of the tail that is averaged.
    shrink : whether weights of the iterates by empirical Bayes follow (post-processing, no privacy depends on it).
    """

    mechanism: ClassVar[str] = "whitened-gd"
    pure: ClassVar[bool] = False
    moment_noise: float
    noise_scale: float
    n_steps: int
    step_size: float
    reach: float
    looks: int = 1
    room: float = 1.0
    average_from: int = 0
    shrink: bool = False
    release: Literal["noisy-answers"] = "noisy-answers"

    def __post_init__(self) -> None:
        _check.put(self, moment_noise=_check.scale("moment_noise", self.moment_noise))
        _check.put(self, noise_scale=_check.scale("noise_scale", self.noise_scale))
        _check.put(self, n_steps=_check.count("n_steps", self.n_steps))
        _check.put(self, step_size=_check.positive("step_size", self.step_size))
        _check.put(self, reach=_check.positive("reach", self.reach))
        _check.put(self, looks=_check.count("looks", self.looks))
        _check.put(self, room=_check.positive("room", self.room))
        _check.put(self, average_from=_check.count("average_from", self.average_from, least=0))
        _check.put(self, shrink=_check.flag("shrink", self.shrink))
        _check.put(self, release=_check.choice("release", self.release, ("noisy-answers",)))
        if self.looks not in LOOKS:
            raise InvalidParameter(f"looks must be 1 or 2, got {self.looks!r}.")
        if self.average_from >= self.n_steps:
            raise InvalidParameter(
                f"average_from = {self.average_from} leaves nothing to average of n_steps = {self.n_steps}."
            )
