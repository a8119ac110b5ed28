"""The spec of mirror descent with a mirror map made from public data, and its privacy: adaptive Gaussian steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.accounting.conversions import gdp_mu
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.plan import Capabilities, Spec, Theorem, round_down, round_up
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.problem.constants import Constants

StepMode = Literal["mirror", "mix", "gradient"]
STEP_MODES: tuple[StepMode, ...] = ("mirror", "mix", "gradient")


@dataclass(frozen=True, kw_only=True)
class PublicMirrorSpec(Spec):
    """Mirror descent on full-batch noisy gradients N_t = G_t + Z_t, Z_t ~ N(0, noise_std_t^2 I), from a public start.

    mirror: theta+ = argmin over the set of eta_t <N_t, u> + B_Psi(u, theta), Psi the public mirror map.
    mix: theta+ = project(theta - eta_t (a_t N_t + (1 - a_t) grad Psi(theta))).
    gradient: theta+ = project(theta - eta_t N_t), noisy gradient descent from a warm start.
    G_t is the sum of the private records' gradients over the public n, plus the ridge's gradient once.

    Parameters
    ----------
    step_size : eta_t, a number or one number per step.
    noise_std : standard deviation of the noise on the MEAN gradient, a number or one number per step.
    n_steps : number of steps; 0 releases the public minimiser and reads no private record.
    mode : "mirror", "mix" or "gradient", as above.
    mixing : a_t in (0, 1], a number or one per step, for mode="mix" only.
    release : "last-iterate", or "average" of the iterates from average_from (from 0) on. Every function of the
        iterates costs the same.
    secure : whether gradients are summed in integers, with exactly drawn Gaussian noise rounded to integers.
    """

    mechanism: ClassVar[str] = "public-mirror-descent"
    capabilities: ClassVar[Capabilities] = Capabilities(secure=True, holds_beyond_n=True, checkpoints=True)
    step_size: float | tuple[float, ...]
    noise_std: float | tuple[float, ...]
    n_steps: int
    mode: StepMode = "mirror"
    mixing: float | tuple[float, ...] | None = None
    release: Literal["last-iterate", "average"] = "last-iterate"
    average_from: int = 0
    secure: bool = False

    def __post_init__(self) -> None:
        _check.validate_fields(
            self, secure=_check.check_flag, step_size=_check.check_per_step, noise_std=_check.check_per_step
        )
        _check.set_frozen(self, n_steps=_check.check_count("n_steps", self.n_steps, minimum=0))
        _check.set_frozen(self, mode=_check.check_choice("mode", self.mode, STEP_MODES))
        _check.set_frozen(
            self, release=_check.check_choice("release", self.release, ("last-iterate", "average"))
        )
        _check.set_frozen(self, average_from=_check.check_count("average_from", self.average_from, minimum=0))
        self._check_mixing()
        for name in ("step_size", "noise_std", "mixing"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.n_steps:
                raise InvalidParameter(
                    f"{name} has {len(value)} entries but n_steps is {self.n_steps}; give one number, or one per step."
                )
        if self.release == "average" and self.average_from >= max(self.n_steps, 1):
            raise InvalidParameter(
                f"average_from = {self.average_from} leaves nothing to average of n_steps = {self.n_steps}."
            )

    def _check_mixing(self) -> None:
        if self.mode != "mix":
            if self.mixing is not None:
                raise InvalidParameter(
                    f"mixing has no meaning with mode={self.mode!r}; leave it out or set mode='mix'."
                )
            return
        if self.mixing is None:
            raise InvalidParameter(
                "mode='mix' needs mixing, the weight in (0, 1] of the noisy private gradient."
            )
        _check.validate_fields(self, mixing=_check.check_per_step)
        if np.max(self.mixing) > 1:
            raise InvalidParameter(f"mixing must be at most 1, got {self.mixing!r}.")

    def per_step_values(self, name: Literal["step_size", "noise_std", "mixing"]) -> NDArray[np.float64]:
        """Return the value of this field for each step."""
        value = getattr(self, name)
        return np.broadcast_to(np.asarray(1.0 if value is None else value, float), (self.n_steps,)).copy()


PUBLIC_DATA_ASSUMPTIONS = (
    "only the private data set is protected; the public data set is not protected at all",
    "the mirror map, the start and every choice of the run depend on public data and public numbers only",
    "no record is in both data sets: a record that is public has no protection",
)


class PublicMirrorDescentTheorem(Theorem[PublicMirrorSpec], name="public-mirror-descent", proof=""):
    """mu-GDP with mu^2 = sum_t (Delta / (n sigma_t))^2: given the public data a step is a Gaussian mechanism.

    Delta is the sensitivity of the gradient SUM: 2 L under replace-one, L under add-remove with the public divisor n.
    Mirror steps, mixing, projections and averages are post-processing; neither convexity nor an exact solver is
    needed. Theorem 74's sigma^2 = 8 L^2 T log(1/delta) / (epsilon n)^2 is larger, and is not valid for every epsilon.
    """

    reference = (
        "Ganesh (2022), Algorithm 1 and Theorem 74; the noise by Dong, Roth and Su (2022), Theorem 3.2"
    )
    holds_beyond_n = "every step adds noise to a sum over records divided by the public n"
    secure_holds_beyond_n = True
    holds_for_rounded_noise = True

    def derive_guarantee(self, constants: Constants, spec: PublicMirrorSpec) -> Guarantee:
        noises = spec.per_step_values("noise_std")
        with np.errstate(over="ignore", divide="ignore"):
            mu = float(np.linalg.norm(constants.gradient_sensitivity / constants.n / noises))
        return self.guarantee(constants, spec, (Gaussian(mu=round_up(mu)),), PUBLIC_DATA_ASSUMPTIONS)


def calibrate_mirror_noise(constants: Constants, n_steps: int, *, epsilon: float, delta: float) -> float:
    """Return noise_std = Delta sqrt(T) / (n mu(epsilon, delta)), slightly larger for the accountant's rounding.

    Examples
    --------
    >>> constants = Constants(n=10_000, lipschitz=0.03)
    >>> f"{calibrate_mirror_noise(constants, 60, epsilon=1.0, delta=1e-5):.7e}"
    '1.7338409e-04'
    """
    _check.check_positive("epsilon", epsilon)
    _check.check_open_unit("delta", delta)
    steps = max(_check.check_count("n_steps", n_steps, minimum=0), 1)
    mu = round_down(gdp_mu(epsilon, delta))
    if not mu > 0:
        raise CalibrationFailed(
            f"epsilon = {epsilon:g} at delta = {delta:g} is too small for double precision; raise it."
        )
    return constants.gradient_sensitivity * math.sqrt(steps) / (constants.n * mu)
