"""The schedule of Langevin diffusion as noisy gradient flow, discretised (SGLD)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.schedules.base import Schedule
from dplangevin.schedules.noisy_gradient import RELEASE_MODES, ReleaseMode

Weights = Literal["uniform", "geometric"]


@dataclass(frozen=True, kw_only=True)
class LangevinSchedule(Schedule):
    """theta <- project(theta - eta_t beta_t grad F(theta) + N(0, 2 eta_t I)), full batch, from theta = 0 projected.

    Parameters
    ----------
    inverse_temperature : beta_t, a number or one per step (see `power_temperatures`).
    step_size : eta_t, a number or one per step; a_t = eta_t beta_t is the learning rate.
    n_steps : number of steps.
    release : "trajectory" (everything, stop whenever), "average", "checkpoints" or "last-iterate".
    weights : of the average of the iterates 0 .. n_steps - 1: "uniform", or "geometric", proportional to
        (1 - a ridge)^-(t + 1), for strongly convex objectives.
    checkpoints : the steps that are released, with release="checkpoints".
    """

    mechanism: ClassVar[str] = "langevin"
    inverse_temperature: float | tuple[float, ...]
    step_size: float | tuple[float, ...]
    n_steps: int
    release: ReleaseMode = "last-iterate"
    weights: Weights = "uniform"
    checkpoints: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check.put(self, inverse_temperature=_check.per_step("inverse_temperature", self.inverse_temperature))
        _check.put(self, step_size=_check.per_step("step_size", self.step_size))
        _check.put(self, n_steps=_check.count("n_steps", self.n_steps))
        _check.put(self, release=_check.choice("release", self.release, RELEASE_MODES))
        _check.put(self, weights=_check.choice("weights", self.weights, ("uniform", "geometric")))
        for name in ("inverse_temperature", "step_size"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.n_steps:
                raise InvalidParameter(f"{name} has {len(value)} entries, but n_steps is {self.n_steps}.")
        if self.weights == "geometric" and not self.constant:
            raise InvalidParameter("geometric weights need one inverse_temperature and one step_size.")
        steps = tuple(_check.count("checkpoints", step) for step in self.checkpoints)
        ordered = all(a < b for a, b in pairwise(steps)) and (not steps or steps[-1] <= self.n_steps)
        if (self.release == "checkpoints") != bool(steps) or not ordered:
            raise InvalidParameter(
                f"checkpoints must be increasing steps up to n_steps = {self.n_steps}, given exactly when "
                f"release='checkpoints'; got {self.checkpoints!r} with release={self.release!r}."
            )
        _check.put(self, checkpoints=steps)

    @property
    def tier(self) -> str:
        """The noise of the process is the privacy."""
        return "process"

    @property
    def constant(self) -> bool:
        """True when neither temperature nor step varies."""
        return not isinstance(self.inverse_temperature, tuple) and not isinstance(self.step_size, tuple)


def power_temperatures(peak: float, exponent: float, n_steps: int) -> tuple[float, ...]:
    """beta_t = peak ((t + 1) / K)^exponent, t < K: the schedule b (t/T)^a of the diffusion, for exponent > -1/2."""
    peak, steps = _check.positive("peak", peak), _check.count("n_steps", n_steps)
    if not exponent > -0.5:
        raise InvalidParameter(
            f"exponent must exceed -1/2 (the privacy integral diverges), got {exponent!r}."
        )
    shares: NDArray[np.float64] = (np.arange(1, steps + 1) / steps) ** exponent
    return tuple((peak * shares).tolist())
