"""The schedule of output perturbation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.schedules.base import Schedule
from dplangevin.schedules.objective_perturbation import PERTURBATION_NOISES, PerturbationNoise


@dataclass(frozen=True, kw_only=True)
class OutputPerturbationSchedule(Schedule):
    """The minimiser of the problem plus noise, projected on the constraint.

    Parameters
    ----------
    noise_scale : of the noise on theta. "gamma": density proportional to exp(-|z| / noise_scale); "gaussian":
        N(0, noise_scale^2 I).
    tolerance : largest gradient norm of the SUM of losses (with the ridge) at the computed minimiser, modulo the
        normal cone of the constraint; a run that does not reach it releases nothing.
    noise : "gamma" for a pure promise, "gaussian" for GDP.
    iterations : None stops when the tolerance is met, so running time depends on the data; a number always does so many
        equal Newton iterations (unconstrained problems only).
    """

    mechanism: ClassVar[str] = "output-perturbation"
    noise_scale: float
    tolerance: float
    noise: PerturbationNoise = "gamma"
    release: Literal["draw"] = "draw"
    iterations: int | None = None

    def __post_init__(self) -> None:
        _check.put(self, noise_scale=_check.scale("noise_scale", self.noise_scale))
        _check.put(self, tolerance=_check.positive("tolerance", self.tolerance))
        _check.put(self, noise=_check.choice("noise", self.noise, PERTURBATION_NOISES))
        _check.put(self, release=_check.choice("release", self.release, ("draw",)))
        if self.iterations is not None:
            _check.put(self, iterations=_check.count("iterations", self.iterations))
