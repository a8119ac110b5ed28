"""The schedule of noisy gradient descent in integers: secure mode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_gradient.schedule import RELEASE_MODES, NoisyGradientSchedule, ReleaseMode
from dplangevin.privacy.schedule import Capabilities, Schedule

DiscreteSampling = Literal["full", "cyclic", "shuffle"]
DISCRETE_SAMPLINGS: tuple[DiscreteSampling, ...] = ("full", "cyclic", "shuffle")


@dataclass(frozen=True, kw_only=True)
class DiscreteGradientSchedule(Schedule):
    """theta <- project(theta - eta (grid (S_t + Z_t) / divisor + ridge theta)), S_t and Z_t vectors of integers.

    S_t is the sum over the batch of round(gradient / grid), Z_t has independent Gaussian entries of deviation
    2^resolution that are rounded to integers, and grid = noise_std divisor / 2^resolution is public. So the noise on
    the MEAN gradient has the standard deviation noise_std, as in `NoisyGradientSchedule`, and lies on a grid
    2^resolution times finer.

    Parameters
    ----------
    step_size, noise_std, n_steps, batch_size, release, checkpoints, average_from, momentum : as there; n_steps is
        finite and there is one step size and one noise_std.
    sampling : full, cyclic or shuffle: nothing is proved here about random batches of discrete noise.
    resolution : finer grids cost less (an entry is rounded by half a grid step) up to what 64-bit sums can hold.
    """

    mechanism: ClassVar[str] = "discrete-gradient"
    capabilities: ClassVar[Capabilities] = Capabilities(secure=True, checkpoints=True, secure_resume=True)
    step_size: float
    noise_std: float
    n_steps: int
    batch_size: int | None = None
    sampling: DiscreteSampling = "full"
    release: ReleaseMode = "last-iterate"
    checkpoints: tuple[int, ...] = ()
    average_from: int = 0
    momentum: bool = False
    resolution: int = 20

    def __post_init__(self) -> None:
        _check.each(self, step_size=_check.scale, noise_std=_check.scale, n_steps=_check.count)
        _check.put(self, release=_check.choice("release", self.release, RELEASE_MODES))
        if self.sampling in ("poisson", "without-replacement"):
            raise InvalidParameter(
                f"sampling={self.sampling!r} is refused in secure mode: no amplification by sampling is proved for the "
                "discrete noise. Use sampling='full', 'cyclic' or 'shuffle'."
            )
        _check.put(self, sampling=_check.choice("sampling", self.sampling, DISCRETE_SAMPLINGS))
        _check.each(self, resolution=_check.count)
        if self.resolution > 40:
            raise InvalidParameter(f"resolution must be at most 40, got {self.resolution!r}.")
        plain = self.real()  # the rest is checked as for real-valued noise
        _check.put(
            self, batch_size=plain.batch_size, checkpoints=plain.checkpoints, average_from=plain.average_from
        )

    def real(self) -> NoisyGradientSchedule:
        """The same descent with real-valued noise; for comparison and for the parts that do not touch noise."""
        shared = {name: value for name, value in vars(self).items() if name != "resolution"}
        return NoisyGradientSchedule(**shared)

    def divisor(self, n: int) -> int:
        """The public divisor of the gradient sum."""
        return n if self.batch_size is None else self.batch_size

    def grid(self, n: int) -> float:
        """The public grid of the gradient SUM."""
        return self.noise_std * self.divisor(n) / 2.0**self.resolution

    @property
    def output_grid(self) -> float:
        """The public grid of what is released: a power of two far below the noise of one step."""
        return 2.0 ** (math.floor(math.log2(self.step_size * self.noise_std)) - 20)
