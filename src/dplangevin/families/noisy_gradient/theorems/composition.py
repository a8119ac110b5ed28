"""Plain composition: every iterate may be public; needs neither convexity nor smoothness (B0)."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._base import NoisyGradientTheorem
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Part, SampledGaussian
from dplangevin.privacy.theorem import inflated
from dplangevin.problem.constants import Constants


def require_steps_that_add_up(
    theorem: NoisyGradientTheorem, constants: Constants, schedule: NoisyGradientSchedule
) -> None:
    """Finitely many steps from a public start."""
    schedule.check_meaningful(constants)
    if math.isinf(schedule.n_steps):
        raise theorem.refuse(
            "it grows without bound in the number of steps", "Give a finite number of steps."
        )
    theorem.public_start(
        schedule, "Compose with the guarantee of the warm start, or bound the diameter and use optimal-shift."
    )


def noises(schedule: NoisyGradientSchedule) -> Counter[float]:
    """How many steps have which noise."""
    if isinstance(schedule.noise_std, tuple):
        return Counter(schedule.noise_std)
    return Counter({schedule.noise_std: int(schedule.n_steps)})


class Composition(NoisyGradientTheorem, name="composition", proof=""):
    """Adaptive composition of the Gaussian mechanism over the steps in which a record takes part.

    full: mu^2 = sum_t (Delta / (n sigma_t))^2. cyclic, shuffle: one participation per epoch, the worst position.
    without-replacement: the symmetric curve of C_q(G) per step. poisson: the sampled Gaussian per step; under
    replace-one the curve of C_q(G) again.
    """

    is_plain_composition = True
    former_names = ("langevin-trajectory",)
    reference = (
        "Dong, Roth and Su (2022), Theorem 3.2; Mironov, Talwar and Zhang (2019), section 3; Zhu, Dong and Wang "
        "(2022), Theorem 10"
    )

    def any_number(self, schedule: NoisyGradientSchedule) -> bool:
        """A step's sum moves by one record's gradient, drawn with probability batch / n, whatever the others."""
        return schedule.sampling in ("full", "poisson")

    def promise(self, constants: Constants, schedule: NoisyGradientSchedule) -> Guarantee:
        require_steps_that_add_up(self, constants, schedule)
        per_step = (
            constants.gradient_sensitivity / schedule.divisor(constants.n) / schedule.noise_stds()
            if not schedule.constant
            else None
        )
        if schedule.sampling == "full":
            return self.guarantee(constants, schedule, self._gaussian(constants, schedule, per_step))
        if schedule.sampling in ("cyclic", "shuffle"):
            return self.guarantee(constants, schedule, self._epochs(constants, schedule, per_step))
        return self.guarantee(constants, schedule, self._sampled(constants, schedule))

    @staticmethod
    def _mu(constants: Constants, schedule: NoisyGradientSchedule) -> float:
        return constants.gradient_sensitivity / (schedule.divisor(constants.n) * float(schedule.noise_std))  # type: ignore[arg-type]

    def _gaussian(
        self, constants: Constants, schedule: NoisyGradientSchedule, per_step: np.ndarray | None
    ) -> tuple[Part, ...]:
        if per_step is None:
            return (Gaussian(mu=inflated(self._mu(constants, schedule)), count=int(schedule.n_steps)),)
        return (Gaussian(mu=inflated(float(np.linalg.norm(per_step)))),)

    def _epochs(
        self, constants: Constants, schedule: NoisyGradientSchedule, per_step: np.ndarray | None
    ) -> tuple[Part, ...]:
        length = math.ceil(constants.n / schedule.divisor(constants.n))
        if per_step is None:
            epochs = math.ceil(schedule.n_steps / length)
            return (Gaussian(mu=inflated(self._mu(constants, schedule)), count=epochs),)
        padded = np.zeros(math.ceil(len(per_step) / length) * length)
        padded[: len(per_step)] = per_step
        table = padded.reshape(-1, length) ** 2
        worst = table.sum(axis=0).max() if schedule.sampling == "cyclic" else table.max(axis=1).sum()
        return (Gaussian(mu=inflated(math.sqrt(float(worst)))),)

    @staticmethod
    def _sampled(constants: Constants, schedule: NoisyGradientSchedule) -> tuple[Part, ...]:
        size = schedule.divisor(constants.n)
        sampling, reach = schedule.sampling, constants.gradient_sensitivity
        if sampling == "poisson" and constants.adjacency == "replace-one":
            # both records' gradients and their difference are within `reach`: the curve of C_q(G), as without
            # replacement; opposite-records is sharper (docs/theory/accountant.md, section 5)
            sampling, reach = "without-replacement", max(reach, constants.lipschitz)
        scale = size / reach * (1 - 1e-9)
        return tuple(
            SampledGaussian(
                rate=size / constants.n,
                noise_multiplier=noise * scale,
                sampling=sampling,
                count=count,
            )
            for noise, count in noises(schedule).items()
        )
