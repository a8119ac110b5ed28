"""Specs of noisy gradient descent: in floating point, and exactly on an integer grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.accounting.theorem import Capabilities, Spec
from dplangevin.errors import InvalidParameter
from dplangevin.problem.constants import Constants

Sampling = Literal["full", "cyclic", "shuffle", "without-replacement", "poisson"]
SAMPLINGS: tuple[Sampling, ...] = ("full", "cyclic", "shuffle", "without-replacement", "poisson")
ReleaseMode = Literal["last-iterate", "average", "checkpoints", "trajectory", "last-state"]
RELEASE_MODES: tuple[ReleaseMode, ...] = (
    "last-iterate",
    "average",
    "checkpoints",
    "trajectory",
    "last-state",
)
STATE_GRADIENT_ERROR = 2.0**-36
"""Largest error of the mean gradients between states, in units of the bound on one record's gradient."""
IterateWeights = Literal["uniform", "geometric", "gated"]
ITERATE_WEIGHTS: tuple[IterateWeights, ...] = ("uniform", "geometric", "gated")
BatchOrder = Literal["public", "secret"]
StartKind = Literal["data-independent", "unknown"]


@dataclass(frozen=True, kw_only=True)
class NoisyGradientSpec(Spec):
    """Projected noisy gradient descent: theta <- project(theta - eta_t (G_t + Z_t)), Z_t ~ N(0, noise_std_t^2 I).

    G_t is the sum of the batch's gradients over the public divisor batch_size, plus the ridge's gradient once.

    Parameters
    ----------
    step_size : eta_t, a number or one number per step.
    noise_std : standard deviation of the noise on the MEAN gradient, a number or one number per step.
    n_steps : number of steps; infinity asks the accountant for a bound that holds for every number of steps.
    batch_size : public divisor (expected size for Poisson); None for the whole data set.
    sampling : full; cyclic (fixed partition, same order each epoch); shuffle (fresh uniform permutation each
        epoch); without-replacement (fresh uniform subset each step); poisson (each record independently).
    release : what is released. Averages are functions of the whole path and are accounted as such. "last-state" is the
        last iterate of an exact run whose iterates lie on public grids, as theorems that hide iterates need.
    checkpoints : the steps whose iterates are released, when release is "checkpoints".
    average_from : first step (from 0) of the tail that is averaged, when release is "average".
    weights : of the average: "uniform" over the iterates after step average_from; "geometric", over all that steps
        lead to, with weights proportional to a_t / ((1 - a_0 ridge) ... (1 - a_t ridge)), a_t the step sizes, for
        strongly convex objectives; "gated", uniform from average_from on unless the path indicates weak effects, then
        by empirical Bayes (momentum, full batch).
    momentum : Nesterov momentum t / (t + 3); accounted by composition only.
    order : for cyclic, whether the partition comes from a "secret" uniform permutation drawn by the mechanism.
    start : "unknown" when the starting point may depend on the private data (a warm start not accounted for).
    start_scale : standard deviation of a Gaussian start around 0, projected on the set; 0 starts at 0.
    secure : whether gradients are summed in integers and their noise is drawn exactly on a public grid. Its size and
        the sensitivity are the same; of the theorems that hide iterates `optimal-shift` covers it, for "last-state".
    """

    mechanism: ClassVar[str] = "noisy-gradient"
    capabilities: ClassVar[Capabilities] = Capabilities(secure=True, holds_beyond_n=True, checkpoints=True)
    step_size: float | tuple[float, ...]
    noise_std: float | tuple[float, ...]
    n_steps: int | float
    batch_size: int | None = None
    sampling: Sampling = "full"
    release: ReleaseMode = "last-iterate"
    checkpoints: tuple[int, ...] = ()
    average_from: int = 0
    momentum: bool = False
    order: BatchOrder = "public"
    start: StartKind = "data-independent"
    start_scale: float = 0.0
    weights: IterateWeights = "uniform"
    secure: bool = False

    def __post_init__(self) -> None:
        _check.validate_fields(
            self,
            step_size=_check.check_per_step,
            noise_std=_check.check_per_step,
            n_steps=_check.check_count_or_infinity,
        )
        _check.set_frozen(self, sampling=_check.check_choice("sampling", self.sampling, SAMPLINGS))
        _check.set_frozen(self, release=_check.check_choice("release", self.release, RELEASE_MODES))
        _check.set_frozen(self, order=_check.check_choice("order", self.order, ("public", "secret")))
        _check.set_frozen(
            self, start=_check.check_choice("start", self.start, ("data-independent", "unknown"))
        )
        _check.validate_fields(self, start_scale=_check.check_nonnegative, secure=_check.check_flag)
        _check.set_frozen(self, weights=_check.check_choice("weights", self.weights, ITERATE_WEIGHTS))
        _check.set_frozen(self, average_from=_check.check_count("average_from", self.average_from, minimum=0))
        self._check_batches()
        self._check_lengths()
        self._check_release()

    def _check_batches(self) -> None:
        if self.sampling == "full":
            if self.batch_size is not None:
                raise InvalidParameter(
                    f"batch_size = {self.batch_size!r} has no meaning with sampling='full'; "
                    "leave it out or choose another sampling."
                )
        elif self.batch_size is None:
            raise InvalidParameter(f"sampling={self.sampling!r} needs a batch_size.")
        else:
            _check.validate_fields(self, batch_size=_check.check_count)

    def _check_lengths(self) -> None:
        for name in ("step_size", "noise_std"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.n_steps:
                raise InvalidParameter(
                    f"{name} has {len(value)} entries but n_steps is {self.n_steps}; give one number, or one per step."
                )

    def _check_release(self) -> None:
        if self.release == "last-state" and (not self.secure or self.sampling != "full" or self.momentum):
            raise InvalidParameter(
                "release='last-state' is of exact runs (secure=True) of plain full-batch steps; use 'last-iterate'."
            )
        if self.release == "checkpoints":
            steps = tuple(_check.check_count("checkpoints", step) for step in self.checkpoints)
            if not steps or any(b <= a for a, b in pairwise(steps)) or steps[-1] > self.n_steps:
                raise InvalidParameter(
                    f"checkpoints must be increasing steps between 1 and n_steps = {self.n_steps}; "
                    f"got {self.checkpoints!r}."
                )
            _check.set_frozen(self, checkpoints=steps)
        elif self.checkpoints:
            raise InvalidParameter("checkpoints were given; set release='checkpoints' to have them covered.")
        if self.release == "average" and self.average_from >= self.n_steps:
            raise InvalidParameter(
                f"average_from = {self.average_from} leaves nothing to average of n_steps = {self.n_steps}."
            )
        self._check_weights()

    def _check_weights(self) -> None:
        if self.weights == "uniform":
            return
        if self.weights == "gated":
            if (
                self.release != "average"
                or not self.momentum
                or self.sampling != "full"
                or not self.is_constant
            ):
                raise InvalidParameter(
                    "gated weights need release='average', momentum, full batches, one step size and one noise_std."
                )
            return
        if self.release != "average" or self.average_from:
            raise InvalidParameter(
                f"weights={self.weights!r} are of the average of all iterates; use release='average' and "
                "average_from=0, or leave weights out."
            )
        if self.weights == "geometric" and self.momentum:
            raise InvalidParameter("geometric weights need plain steps, without momentum.")

    def check_combination(self, constants: Constants) -> None:
        """Refuse combinations of sampling, adjacency and batch size for which no theorem exists."""
        sampling, adjacency, size = self.sampling, constants.adjacency, self.batch_size
        if size is not None and size > constants.n:
            raise InvalidParameter(f"batch_size = {size} is larger than n = {constants.n}; lower batch_size.")
        if sampling in ("cyclic", "shuffle", "without-replacement") and adjacency == "add-remove":
            raise InvalidParameter(
                f"sampling={sampling!r} is not defined under adjacency='add-remove' (removing a record moves others "
                "between batches); use adjacency='replace-one', or sampling='poisson' or 'full'."
            )

    @classmethod
    def from_diffusion(
        cls,
        *,
        step_size: float,
        sigma: float,
        n_steps: int | float,
        strong_convexity: float = 0.0,
        release: ReleaseMode = "last-iterate",
    ) -> NoisyGradientSpec:
        """Return the spec of theta - eta grad + sqrt(2 eta) sigma N(0, I), as in Chourasia, Ye and Shokri (2021).

        With strong_convexity > 0 the run starts at N(0, 2 sigma^2 / strong_convexity), as in that paper.
        """
        step = _check.check_scale("step_size", step_size)
        scale = _check.check_positive("sigma", sigma)
        curvature = _check.check_nonnegative("strong_convexity", strong_convexity)
        return cls(
            step_size=step,
            noise_std=scale * math.sqrt(2 / step),
            n_steps=n_steps,
            release=release,
            start_scale=scale * math.sqrt(2 / curvature) if curvature else 0.0,
        )

    @property
    def is_constant(self) -> bool:
        """Whether step size and noise are the same at every step."""
        return not isinstance(self.step_size, tuple) and not isinstance(self.noise_std, tuple)

    @property
    def time_step(self) -> float | tuple[float, ...]:
        """eta_t of the same run as Langevin steps, theta - eta beta grad + N(0, 2 eta): (step_size noise_std)^2/2."""
        return _number_or_tuple(np.multiply(self.step_size, self.noise_std) ** 2 / 2)

    @property
    def inverse_temperature(self) -> float | tuple[float, ...]:
        """beta_t of the same run as Langevin steps: 2 / (step_size noise_std^2)."""
        return _number_or_tuple(2.0 / np.multiply(self.step_size, np.square(self.noise_std)))

    def divisor(self, n: int) -> int:
        """Return the public divisor of the gradient sum."""
        return n if self.batch_size is None else self.batch_size

    def step_sizes(self) -> NDArray[np.float64]:
        """Return eta_t for every step (finite n_steps only)."""
        return np.broadcast_to(np.asarray(self.step_size, float), (int(self.n_steps),)).copy()

    def noise_stds(self) -> NDArray[np.float64]:
        """Return noise_std_t for every step (finite n_steps only)."""
        return np.broadcast_to(np.asarray(self.noise_std, float), (int(self.n_steps),)).copy()


def _number_or_tuple(values: NDArray[np.float64]) -> float | tuple[float, ...]:
    plain = values.tolist()
    return tuple(plain) if isinstance(plain, list) else float(plain)
