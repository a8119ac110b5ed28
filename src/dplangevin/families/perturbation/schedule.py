"""The schedule of objective perturbation.

The schedule of output perturbation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.schedule import Capabilities, Schedule

PerturbationNoise = Literal["gamma", "gaussian"]
PERTURBATION_NOISES: tuple[PerturbationNoise, ...] = ("gamma", "gaussian")


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbationSchedule(Schedule):
    """argmin of sum_i weight_i loss_i + (n ridge / 2) |theta|^2 + <b, theta>, plus a little noise.

    Everything is in units of the SUM of losses.

    Parameters
    ----------
    density_scale : s of the density of b, which is proportional to exp(-(|b| / s)^q / q): q = 1 for "gamma", so that
        |b| ~ Gamma(dimension, s); q = 2 for "gaussian", so that s is the standard deviation of an entry.
    tolerance : largest gradient norm at the computed minimiser; a run that does not reach it releases nothing.
    release_density_scale : scale of the exp(-|z| / scale) noise that hides how far the computed minimiser is from the
        exact one.
    noise : "gamma" for a pure promise, "gaussian" for (epsilon, delta).
    iterations : None stops when the tolerance is met, so running time depends on the data; a number always does so many
        equal Newton iterations (unconstrained problems only).
    reach : a longer minimiser is scaled back to this norm. So a tolerance for points of this norm is enough, instead of
        one for the longest minimiser any data could have.
    """

    mechanism: ClassVar[str] = "objective-perturbation"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, holds_beyond_n=True, intervals=True)
    density_scale: float
    tolerance: float
    release_density_scale: float
    noise: PerturbationNoise = "gamma"
    release: Literal["draw"] = "draw"
    iterations: int | None = None
    reach: float = math.inf

    def __post_init__(self) -> None:
        _check.each(
            self, density_scale=_check.scale, tolerance=_check.positive, release_density_scale=_check.scale
        )
        _check.put(self, noise=_check.choice("noise", self.noise, PERTURBATION_NOISES))
        _check.put(self, release=_check.choice("release", self.release, ("draw",)))
        if self.reach != math.inf:
            _check.each(self, reach=_check.positive)
        if self.iterations is not None:
            _check.each(self, iterations=_check.count)


@dataclass(frozen=True, kw_only=True)
class OutputPerturbationSchedule(Schedule):
    """The minimiser of the problem plus noise, projected on the constraint.

    Parameters
    ----------
    density_scale : s of the density of the noise on theta, proportional to exp(-(|z| / s)^q / q) as above.
    tolerance : largest gradient norm of the SUM of losses (with the ridge) at the computed minimiser, modulo the
        normal cone of the constraint; a run that does not reach it releases nothing.
    noise : "gamma" for a pure promise, "gaussian" for GDP.
    iterations : None stops when the tolerance is met, so running time depends on the data; a number always does so many
        equal Newton iterations (unconstrained problems only).
    secure : the minimiser is rounded to a public grid, and Gaussian noise on the grid is drawn exactly.
    """

    mechanism: ClassVar[str] = "output-perturbation"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, secure=True, holds_beyond_n=True)
    density_scale: float
    tolerance: float
    noise: PerturbationNoise = "gamma"
    release: Literal["draw"] = "draw"
    iterations: int | None = None
    secure: bool = False

    def __post_init__(self) -> None:
        _check.each(self, density_scale=_check.scale, tolerance=_check.positive)
        _check.put(self, noise=_check.choice("noise", self.noise, PERTURBATION_NOISES))
        _check.put(self, release=_check.choice("release", self.release, ("draw",)))
        _check.each(self, secure=_check.flag)
        if self.secure and self.noise == "gamma":
            raise InvalidParameter(
                "gamma noise has no secure form: its entries depend on one another and no exact sampler of their "
                "rounded law is here. Use noise='gaussian', with delta > 0."
            )
        if self.iterations is not None:
            _check.each(self, iterations=_check.count)
