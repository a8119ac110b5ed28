"""The spec of underdamped Langevin, and its option reader for `account` and `calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.accounting.theorem import Capabilities, Spec
from dplangevin.mechanisms.options import read_spec_fields, with_constants_options


@dataclass(frozen=True, kw_only=True)
class UnderdampedSpec(Spec):
    """Underdamped Langevin: dx = v dt, dv = -gamma v dt - u beta grad F(x) dt + sqrt(2 gamma u) dW.

    The gradient is frozen during a step.

    Parameters
    ----------
    inverse_temperature : beta; the law of x tends to exp(-beta F), up to the bias of the steps.
    friction, inverse_mass : gamma and u.
    step_size, n_steps : length and number of the steps, each drawn exactly.
    release : the last position; the guarantee covers every position and velocity.
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
        _check.set_frozen(
            self,
            inverse_temperature=_check.check_scale("inverse_temperature", self.inverse_temperature),
            friction=_check.check_scale("friction", self.friction),
            inverse_mass=_check.check_scale("inverse_mass", self.inverse_mass),
            step_size=_check.check_scale("step_size", self.step_size),
            n_steps=_check.check_count("n_steps", self.n_steps),
            release=_check.check_choice("release", self.release, ("last-iterate",)),
        )


read_underdamped_options = with_constants_options()(
    read_spec_fields(UnderdampedSpec, "inverse_temperature step_size n_steps friction inverse_mass")
)
