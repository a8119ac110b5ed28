"""Poisson batches under replace-one: composition of the worst pair of records, two opposite gradients."""

from __future__ import annotations

from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._base import NoisyGradientTheorem
from dplangevin.families.noisy_gradient.theorems.composition import noises, require_steps_that_add_up
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.opposite_mixtures import OppositeMixtures
from dplangevin.problem.constants import Constants


class OppositeRecords(
    NoisyGradientTheorem, name="opposite-records", proof="docs/theory/accountant.md, section 5"
):
    """Every iterate may be public: each step is (1 - q) N(0) + q N(v) against (1 - q) N(0) + q N(w), |v|, |w| <= L / b.

    A test that accepts N(v) with probability Phi(u) accepts N(0) with at least Phi(u - L / (b sigma)) and N(w) with at
    least Phi(u - 2 L / (b sigma)); half-lines between v = L / b and w = -L / b attain both at once.
    """

    reference = (
        "Neyman and Pearson (1933); Zhu, Dong and Wang (2022), Theorem 10; for groups of records, Schuchardt, Stoian, "
        "Kosmala and Guennemann (2024)"
    )

    def promise(self, constants: Constants, schedule: NoisyGradientSchedule) -> Guarantee:
        schedule.check_meaningful(constants)
        if schedule.sampling != "poisson" or constants.adjacency != "replace-one":
            raise self.refuse(
                f"it is about Poisson batches under replace-one, not sampling={schedule.sampling!r} under "
                f"{constants.adjacency}",
                "Use the bound for that sampling.",
            )
        require_steps_that_add_up(self, constants, schedule)
        size = schedule.divisor(constants.n)
        scale = size / constants.lipschitz * (1 - 1e-9)
        parts = tuple(
            OppositeMixtures(rate=size / constants.n, noise_multiplier=noise * scale, count=count)
            for noise, count in noises(schedule).items()
        )
        return self.guarantee(constants, schedule, parts)
