"""The schedule of whitened objective perturbation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.families.perturbation.schedule import ObjectivePerturbationSchedule
from dplangevin.privacy.schedule import Capabilities, Schedule


@dataclass(frozen=True, kw_only=True)
class WhitenedObjectiveSchedule(Schedule):
    """A noisy second moment of the rows, then a tilted minimisation in coordinates made from it; all of it pure.

        moment     mean x x' / row_norm^2 + moment_density_scale (V - W), V and W of density exp(-tr)
        minimiser  argmin_q sum_i weight_i w(x_i) loss_i(T q) + (n ridge / 2) |q|^2 + <b, q>, plus a little noise

    T is a function of the released moment, and w(x) = min(1, (row_norm / |T' x|)^2) a weight of x alone, so that
    the constants of the problem hold in q. Released is theta = T q.

    Parameters
    ----------
    moment_density_scale : scale of the noise on the mean, for rows in units of the largest one.
    ridge : per sample, on q.
    density_scale : s of the density of b, proportional to exp(-|b| / s), on the SUM of losses.
    tolerance, release_density_scale, iterations, reach : of the minimiser q, as in ObjectivePerturbationSchedule.
    """

    mechanism: ClassVar[str] = "whitened-objective"
    capabilities: ClassVar[Capabilities] = Capabilities(
        pure=True, holds_beyond_n=True, ridge_and_radius=False
    )
    moment_density_scale: float
    ridge: float
    density_scale: float
    tolerance: float
    release_density_scale: float
    release: Literal["noisy-answers"] = "noisy-answers"
    iterations: int | None = None
    reach: float = math.inf

    def __post_init__(self) -> None:
        _check.put(self, moment_density_scale=_check.scale("moment_density_scale", self.moment_density_scale))
        _check.put(self, ridge=_check.scale("ridge", self.ridge))
        _check.put(self, release=_check.choice("release", self.release, ("noisy-answers",)))
        checked = self.objective
        for name in ("density_scale", "tolerance", "release_density_scale", "iterations", "reach"):
            _check.put(self, **{name: getattr(checked, name)})

    @property
    def objective(self) -> ObjectivePerturbationSchedule:
        """The second release: objective perturbation, in q."""
        return ObjectivePerturbationSchedule(
            density_scale=self.density_scale,
            tolerance=self.tolerance,
            release_density_scale=self.release_density_scale,
            iterations=self.iterations,
            reach=self.reach,
        )
