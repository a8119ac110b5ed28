"""The schedule of underdamped Langevin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.privacy.schedule import Capabilities, Schedule


@dataclass(frozen=True, kw_only=True)
class UnderdampedSchedule(Schedule):
    """dx = v dt, dv = -gamma v dt - u beta grad F(x) dt + sqrt(2 gamma u) dW, the gradient frozen during a step.

    Parameters
    ----------
    inverse_temperature : beta; the law of x tends to exp(-beta F), up to the bias of the steps.
    friction, inverse_mass : gamma and u. step_size, n_steps : of the steps, each drawn exactly.
    release : the last position; the promise covers every position and velocity.
    """

    mechanism: ClassVar[str] = "underdamped"
    capabilities: ClassVar[Capabilities] = Capabilities()
    inverse_temperature: float
    friction: float = 2.0
    inverse_mass: float = 1.0
    step_size: float
    n_steps: int
    release: Literal["last-iterate"] = "last-iterate"

    def __post_init__(self) -> None:
        _check.put(
            self,
            inverse_temperature=_check.scale("inverse_temperature", self.inverse_temperature),
            friction=_check.scale("friction", self.friction),
            inverse_mass=_check.scale("inverse_mass", self.inverse_mass),
            step_size=_check.scale("step_size", self.step_size),
            n_steps=_check.count("n_steps", self.n_steps),
            release=_check.choice("release", self.release, ("last-iterate",)),
        )
