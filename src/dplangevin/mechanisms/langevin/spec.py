"""Specs of Langevin diffusion, by inverse temperature and time: the run in steps, and the continuous process."""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass, field, fields
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.accounting.theorem import Capabilities, Spec
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_gradient.spec import (
    BatchOrder,
    IterateWeights,
    NoisyGradientSpec,
    Sampling,
    StartKind,
)
from dplangevin.mechanisms.options import with_constants_options
from dplangevin.problem.constants import Constants

LANGEVIN_WEIGHTS: tuple[IterateWeights, ...] = ("uniform", "geometric")


@dataclass(frozen=True, kw_only=True)
class LangevinSpec(NoisyGradientSpec):
    """Langevin steps theta <- project(theta - eta_t beta_t grad F(theta) + N(0, 2 eta_t I)) on the full batch.

    They start at 0, projected. The same run as noisy gradient descent has the learning rate `step_size` = eta_t beta_t
    and the noise `noise_std` = sqrt(2 / eta_t) / beta_t on the mean gradient; both are computed.

    Parameters
    ----------
    inverse_temperature : beta_t, a number or one per step (see `power_temperatures`).
    time_step : eta_t, a number or one per step. time : instead of it, the length T of the run, so that
        eta = T / n_steps.
    n_steps, release, checkpoints, start_scale : as in `NoisyGradientSpec`. With release="trajectory" every iterate is
        public, so that the run may be stopped at any time.
    weights : of the average of the iterates that steps lead to: "uniform", or "geometric", proportional to
        a_t / ((1 - a_0 ridge) ... (1 - a_t ridge)) with a_t = eta_t beta_t, for strongly convex objectives.

    Examples
    --------
    >>> spec = LangevinSpec(inverse_temperature=100.0, time=0.5, n_steps=50)
    >>> spec.time_step, spec.step_size, round(spec.noise_std, 6), spec.total_time
    (0.01, 1.0, 0.141421, 0.5)
    """

    mechanism: ClassVar[str] = "langevin"
    capabilities: ClassVar[Capabilities] = Capabilities(
        population_risk=True, holds_beyond_n=True, checkpoints=True, stated_parameters=True
    )
    inverse_temperature: float | tuple[float, ...] = 0.0
    time_step: float | tuple[float, ...] = 0.0
    time: InitVar[float | None] = None
    step_size: float | tuple[float, ...] = field(init=False)
    noise_std: float | tuple[float, ...] = field(init=False)
    batch_size: int | None = field(init=False, default=None)
    sampling: Sampling = field(init=False, default="full")
    average_from: int = field(init=False, default=0)
    momentum: bool = field(init=False, default=False)
    order: BatchOrder = field(init=False, default="public")
    start: StartKind = field(init=False, default="data-independent")
    secure: bool = field(init=False, default=False)

    def __post_init__(self, time: float | None) -> None:
        _check.validate_fields(self, n_steps=_check.check_count_or_infinity)
        if (time is None) == (self.time_step == 0.0):
            raise InvalidParameter("state exactly one of time, the length of the run, and time_step.")
        if time is not None:
            if math.isinf(self.n_steps):
                raise InvalidParameter("a run of any number of steps has no time; state time_step instead.")
            _check.set_frozen(self, time_step=_check.check_scale("time", time) / self.n_steps)
        _check.validate_fields(
            self, inverse_temperature=_check.check_per_step, time_step=_check.check_per_step
        )
        for name in ("inverse_temperature", "time_step"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.n_steps:
                raise InvalidParameter(f"{name} has {len(value)} entries, but n_steps is {self.n_steps}.")
        weights = _check.check_choice("weights", self.weights, LANGEVIN_WEIGHTS)
        if self.release != "average":  # `replace` may change what is released
            weights = "uniform"
        eta, beta = np.asarray(self.time_step), np.asarray(self.inverse_temperature)
        _check.set_frozen(
            self,
            weights=weights,
            step_size=(eta * beta).tolist(),
            noise_std=(np.sqrt(2.0 / eta) / beta).tolist(),
        )
        NoisyGradientSpec.__post_init__(self)

    @property
    def total_time(self) -> float:
        """T, the sum of the time steps; infinity for a run of any number of steps."""
        if isinstance(self.time_step, tuple):
            return math.fsum(self.time_step)
        return float(self.time_step * self.n_steps)

    def to_descent(self) -> NoisyGradientSpec:
        """Return the same run as noisy gradient descent, stated by learning rate and noise."""
        names = [item.name for item in fields(NoisyGradientSpec)]
        return NoisyGradientSpec(**{name: getattr(self, name) for name in names})


def power_temperatures(peak: float, exponent: float, n_steps: int) -> tuple[float, ...]:
    """Return beta_t = peak ((t + 1) / K)^exponent, t < K: b (t/T)^a of the diffusion, for exponent > -1/2."""
    peak, steps = _check.check_positive("peak", peak), _check.check_count("n_steps", n_steps)
    _check_exponent(exponent)
    fractions: NDArray[np.float64] = (np.arange(1, steps + 1) / steps) ** exponent
    return tuple((peak * fractions).tolist())


def _check_exponent(exponent: float) -> float:
    if not exponent > -0.5:
        raise InvalidParameter(
            f"exponent must exceed -1/2 (the privacy integral diverges), got {exponent!r}."
        )
    return float(exponent)


@dataclass(frozen=True, kw_only=True)
class DiffusionSpec(Spec):
    """The diffusion d theta = -beta_t grad F dt + sqrt(2) dW itself, beta_t = beta (t / T)^a, reflected on the set.

    No software runs it: it is accounted, so that a run in steps can be compared with its limit, but not executed.

    Parameters
    ----------
    inverse_temperature : beta. exponent : a; 0 for a constant temperature.
    time : T; infinity is the stationary law exp(-beta F).
    release : "last-iterate", the end point, or "trajectory", the whole path.
    """

    mechanism: ClassVar[str] = "langevin-diffusion"
    capabilities: ClassVar[Capabilities] = Capabilities()
    inverse_temperature: float
    time: float
    exponent: float = 0.0
    release: Literal["last-iterate", "trajectory"] = "last-iterate"

    def __post_init__(self) -> None:
        _check.validate_fields(self, inverse_temperature=_check.check_scale)
        _check.set_frozen(
            self,
            time=_check.check_positive("time", self.time, infinite=True),
            exponent=_check_exponent(self.exponent),
            release=_check.check_choice("release", self.release, ("last-iterate", "trajectory")),
        )

    @property
    def squared_temperature_integral(self) -> float:
        """The integral of beta_t^2 over the run: beta^2 T / (2a + 1)."""
        return self.inverse_temperature**2 * self.time / (2 * self.exponent + 1)


@with_constants_options("", "smoothness strong_convexity diameter log_sobolev")
def read_langevin_options(
    constants: Constants,
    *,
    inverse_temperature: float,
    n_steps: int | float,
    time: float | None = None,
    time_step: float | None = None,
    exponent: float = 0.0,
    release: Literal["last-iterate", "average", "checkpoints", "trajectory"] = "last-iterate",
    checkpoints: tuple[int, ...] = (),
) -> LangevinSpec:
    """Read the options of a run in steps; with an exponent, beta_t = inverse_temperature (t / T)^exponent."""
    steps = _check.check_count_or_infinity("n_steps", n_steps)
    beta: float | tuple[float, ...] = inverse_temperature
    if exponent:
        if math.isinf(steps):
            raise InvalidParameter("an exponent needs a finite number of steps.")
        beta = power_temperatures(inverse_temperature, exponent, int(steps))
    if time is None and time_step is None:
        raise InvalidParameter("state time, the length of the run, or time_step.")
    spec = LangevinSpec(
        inverse_temperature=beta,
        n_steps=steps,
        time=time,
        time_step=0.0 if time_step is None else time_step,
        release=release,
        checkpoints=tuple(int(step) for step in checkpoints),
    )
    spec.check_combination(constants)
    return spec


@with_constants_options("", "smoothness strong_convexity diameter log_sobolev")
def read_langevin_diffusion_options(
    constants: Constants,
    *,
    inverse_temperature: float,
    time: float,
    exponent: float = 0.0,
    release: Literal["last-iterate", "trajectory"] = "last-iterate",
) -> DiffusionSpec:
    """Read the options of the continuous process."""
    return DiffusionSpec(
        inverse_temperature=inverse_temperature, time=time, exponent=exponent, release=release
    )
