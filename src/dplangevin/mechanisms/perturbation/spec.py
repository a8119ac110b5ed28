"""The specs of objective and output perturbation, and their option readers for `account` and `calibrate`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.accounting.theorem import Capabilities, Spec
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.minimizer_tolerance import tolerance_or_default, total_ridge
from dplangevin.mechanisms.options import with_constants_options
from dplangevin.problem.constants import Constants

PerturbationNoise = Literal["gamma", "gaussian"]
PERTURBATION_NOISES: tuple[PerturbationNoise, ...] = ("gamma", "gaussian")


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbationSpec(Spec):
    """Objective perturbation: argmin of sum_i weight_i loss_i + (n ridge / 2) |theta|^2 + <b, theta>, plus noise.

    Everything is in units of the SUM of losses.

    Parameters
    ----------
    density_scale : s of the density of b, which is proportional to exp(-(|b| / s)^q / q): q = 1 for "gamma", so that
        |b| ~ Gamma(dimension, s); q = 2 for "gaussian", so that s is the standard deviation of an entry.
    tolerance : largest gradient norm at the computed minimiser; a run that does not reach it releases nothing.
    release_density_scale : scale of the exp(-|z| / scale) noise that hides how far the computed minimiser is from the
        exact one.
    noise : "gamma" for a pure guarantee, "gaussian" for (epsilon, delta).
    n_iterations : None stops when the tolerance is met, so running time depends on the data; a number runs exactly
        that many equal Newton iterations (unconstrained problems only).
    coef_bound : a minimiser of larger norm is scaled back to this norm. Then a tolerance for points of this norm is
        enough, instead of one for the longest minimiser of any data.
    secure : rows are whole numbers, and the ideal minimiser is rounded to a public grid exactly. Nothing hides the
        solver then, whose tolerance decides nothing: release_density_scale is 0.
    """

    mechanism: ClassVar[str] = "objective-perturbation"
    capabilities: ClassVar[Capabilities] = Capabilities(
        pure=True, secure=True, holds_beyond_n=True, intervals=True
    )
    density_scale: float
    tolerance: float
    release_density_scale: float = 0.0
    noise: PerturbationNoise = "gamma"
    release: Literal["draw"] = "draw"
    n_iterations: int | None = None
    coef_bound: float = math.inf
    secure: bool = False

    def __post_init__(self) -> None:
        _check.validate_fields(
            self,
            density_scale=_check.check_scale,
            tolerance=_check.check_positive,
            secure=_check.check_flag,
        )
        if not self.secure:
            _check.validate_fields(self, release_density_scale=_check.check_scale)
        elif self.release_density_scale != 0 or self.n_iterations is not None:
            raise InvalidParameter(
                "an exact minimiser needs no noise that hides the solver, and its solver takes as many steps as its "
                "rounding needs: leave release_density_scale and n_iterations out, or state secure=False."
            )
        _check.set_frozen(self, noise=_check.check_choice("noise", self.noise, PERTURBATION_NOISES))
        _check.set_frozen(self, release=_check.check_choice("release", self.release, ("draw",)))
        if self.coef_bound != math.inf:
            _check.validate_fields(self, coef_bound=_check.check_positive)
        if self.n_iterations is not None:
            _check.validate_fields(self, n_iterations=_check.check_count)


@dataclass(frozen=True, kw_only=True)
class OutputPerturbationSpec(Spec):
    """Output perturbation: the minimiser of the problem plus noise, projected on the constraint.

    Parameters
    ----------
    density_scale : s of the density of the noise on theta, proportional to exp(-(|z| / s)^q / q) as in
        `ObjectivePerturbationSpec`.
    tolerance : largest gradient norm of the SUM of losses (with the ridge) at the computed minimiser, modulo the
        normal cone of the constraint; a run that does not reach it releases nothing.
    noise : "gamma" for a pure guarantee, "gaussian" for GDP.
    n_iterations : None stops when the tolerance is met, so running time depends on the data; a number runs exactly
        that many equal Newton iterations (unconstrained problems only).
    secure : the minimiser is rounded to a public grid, and the noise is drawn exactly.
    """

    mechanism: ClassVar[str] = "output-perturbation"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, secure=True, holds_beyond_n=True)
    density_scale: float
    tolerance: float
    noise: PerturbationNoise = "gamma"
    release: Literal["draw"] = "draw"
    n_iterations: int | None = None
    secure: bool = False

    def __post_init__(self) -> None:
        _check.validate_fields(self, density_scale=_check.check_scale, tolerance=_check.check_positive)
        _check.set_frozen(self, noise=_check.check_choice("noise", self.noise, PERTURBATION_NOISES))
        _check.set_frozen(self, release=_check.check_choice("release", self.release, ("draw",)))
        _check.validate_fields(self, secure=_check.check_flag)
        if self.n_iterations is not None:
            _check.validate_fields(self, n_iterations=_check.check_count)


SOLVER_EPSILON = 0.01
"""The epsilon of the inexact minimiser of objective perturbation, unless release_density_scale is stated."""


@with_constants_options("smoothness strong_convexity dimension", "diameter", hessian_rank=1)
def read_objective_perturbation_options(
    constants: Constants,
    *,
    density_scale: float,
    noise: PerturbationNoise = "gaussian",
    tolerance: float | None = None,
    release_density_scale: float | None = None,
) -> ObjectivePerturbationSpec:
    """Return the spec of objective perturbation, in units of the SUM of losses."""
    dimension = constants.dimension or 1
    tilt = density_scale * (dimension + math.sqrt(70 * dimension) + 35)
    tolerance = tolerance_or_default(constants, tolerance, tilt)
    if release_density_scale is None:
        ridge = total_ridge(constants) if constants.strong_convexity > 0 else 1.0
        release_density_scale = 2 * tolerance / (ridge * SOLVER_EPSILON)
    return ObjectivePerturbationSpec(
        density_scale=density_scale,
        tolerance=tolerance,
        release_density_scale=release_density_scale,
        noise=noise,
    )


@with_constants_options("smoothness strong_convexity", "dimension diameter")
def read_output_perturbation_options(
    constants: Constants,
    *,
    density_scale: float,
    noise: PerturbationNoise = "gaussian",
    tolerance: float | None = None,
) -> OutputPerturbationSpec:
    """Return the spec of output perturbation."""
    tolerance = tolerance_or_default(constants, tolerance)
    return OutputPerturbationSpec(density_scale=density_scale, tolerance=tolerance, noise=noise)
