"""The spec of whitened objective perturbation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.accounting.theorem import Capabilities, Spec
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.perturbation.spec import ObjectivePerturbationSpec


@dataclass(frozen=True, kw_only=True)
class WhitenedObjectiveSpec(Spec):
    """A noisy second moment of the rows, then objective perturbation in whitened coordinates, both with pure DP.

        moment     mean x x' / row_norm^2 + moment_density_scale (V - W), V and W of density exp(-tr)
        minimiser  argmin_q sum_i weight_i w(x_i) loss_i(T q) + (n ridge / 2) |q|^2 + <b, q>, plus a little noise

    T is a function of the released moment, and w(x) = min(1, (row_norm / |T' x|)^2) a weight of x alone, so that
    the constants of the problem hold in q. Released is theta = T q. With count_density_scale, noisy counts of the
    classes come first, and the ridge draws q towards the constant model they give.

    Parameters
    ----------
    moment_density_scale : scale of the noise on the mean, for rows in units of the largest norm.
    ridge : per sample, on q.
    density_scale : s of the density of b, proportional to exp(-|b| / s), on the SUM of losses.
    tolerance, release_density_scale, n_iterations, coef_bound : of the minimiser q, as in ObjectivePerturbationSpec.
    count_density_scale : scale of the noise on the means of weight x indicator of the classes, of density exp(-|z| /
        scale); None releases no counts.
    secure : rows, moments and counts are whole numbers, noise is drawn exactly, and the ideal minimiser is rounded to a
        public grid; release_density_scale is then 0.
    recount_density_scale : the same for a second count, which may take the place of the minimiser where noise would
        hide what it adds to the constant model; it costs no more. None never counts again.
    """

    mechanism: ClassVar[str] = "whitened-objective"
    capabilities: ClassVar[Capabilities] = Capabilities(
        pure=True, secure=True, holds_beyond_n=True, ridge_and_radius=False
    )
    moment_density_scale: float
    ridge: float
    density_scale: float
    tolerance: float
    release_density_scale: float = 0.0
    release: Literal["noisy-answers"] = "noisy-answers"
    n_iterations: int | None = None
    coef_bound: float = math.inf
    count_density_scale: float | None = None
    recount_density_scale: float | None = None
    secure: bool = False

    def __post_init__(self) -> None:
        for name in ("count_density_scale", "recount_density_scale"):
            if getattr(self, name) is not None:
                _check.set_frozen(self, **{name: _check.check_scale(name, getattr(self, name))})
        if self.recount_density_scale is not None and self.count_density_scale is None:
            raise InvalidParameter("a second count needs a first one, which decides on it.")
        _check.set_frozen(
            self, moment_density_scale=_check.check_scale("moment_density_scale", self.moment_density_scale)
        )
        _check.set_frozen(self, ridge=_check.check_scale("ridge", self.ridge))
        _check.set_frozen(self, release=_check.check_choice("release", self.release, ("noisy-answers",)))
        checked = self.objective_spec
        for name in (
            "density_scale", "tolerance", "release_density_scale", "n_iterations", "coef_bound", "secure"
        ):  # fmt: skip
            _check.set_frozen(self, **{name: getattr(checked, name)})

    @property
    def objective_spec(self) -> ObjectivePerturbationSpec:
        """The second release: objective perturbation, in q."""
        return ObjectivePerturbationSpec(
            density_scale=self.density_scale,
            tolerance=self.tolerance,
            release_density_scale=self.release_density_scale,
            n_iterations=self.n_iterations,
            coef_bound=self.coef_bound,
            secure=self.secure,
        )
