"""One draw of exp(-beta F), as it is run: the law's promise, then what the sampler's tier makes of it.

exact: the law itself. certified: the proximal chain after k steps is within total variation tau of the law, for every
data set, and delta grows by (1 + e^eps) tau. pure: its density is within a factor 1 +- zeta of the law's everywhere,
and epsilon grows by log((1 + zeta) / (1 - zeta)). tau and zeta follow from the worst-case constants and the schedule.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dplangevin.errors import AssumptionFailed
from dplangevin.families.draws.schedule import DrawSchedule, IteratedExponentialSchedule
from dplangevin.families.draws.theorems.exponential_mechanism import exponential_mechanism
from dplangevin.families.draws.theorems.gibbs import gibbs_strongly_convex
from dplangevin.families.draws.theorems.sampler_certificates import (
    sup_norm_transfer,
    total_variation_transfer,
)
from dplangevin.privacy import proximal_certificate as chain
from dplangevin.privacy.conditions import Condition
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.theorem import Theorem
from dplangevin.problem.constants import Constants

REAL = "arithmetic is exact, the seed is secret"
PUBLIC = "n, bounds, inverse temperature, step size and number of steps are public and not chosen from the private data"
STARTS_AT_MINIMISER = Condition(
    kind="run-failure",
    text="the solver finding the minimiser that the chain starts from: a run that misses it stops and releases "
    "nothing, and that event is not covered",
)
MOST_CELL_AXES = 3
"""Parameters of a loss that is not convex for which the envelope of cells is an exact sampler."""


class ExponentialMechanismTheorem(Theorem[DrawSchedule], name="exponential-mechanism", proof=""):
    """beta * oscillation bounded range: pure epsilon and (epsilon^2 / 8)-zCDP. No convexity for an exact draw.

    Examples
    --------
    >>> from dplangevin.families.draws.schedule import ExponentialSchedule
    >>> constants = Constants(n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, diameter=2.0)
    >>> schedule = ExponentialSchedule(inverse_temperature=7500.0)
    >>> round(ExponentialMechanismTheorem().certify(constants, schedule).epsilon(), 6)
    1.0
    """

    reference = "McSherry and Talwar (2007), Theorem 6; bounded range by Durfee and Rogers (2019), section 4"

    def promise(self, constants: Constants, schedule: DrawSchedule) -> Guarantee:
        return _tiered(
            self, exponential_mechanism(constants, schedule.inverse_temperature), constants, schedule
        )


class StronglyConvexGibbs(Theorem[DrawSchedule], name="strongly-convex-gibbs", proof=""):
    """Delta sqrt(beta / m)-GDP for m-strongly convex F on any convex set.

    Examples
    --------
    >>> from dplangevin.families.draws.schedule import GibbsSchedule
    >>> constants = Constants(n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01)
    >>> law = StronglyConvexGibbs().certify(constants, GibbsSchedule(inverse_temperature=7500.0))
    >>> round(law.mu, 6)
    0.057735
    """

    reference = "Gopi, Lee and Liu (2022), Theorem 4.1"

    def promise(self, constants: Constants, schedule: DrawSchedule) -> Guarantee:
        if schedule.grid:
            raise self.refuse(
                "the draw is on a grid, which is not convex", "Use the exponential mechanism there."
            )
        if schedule.tier == "pure":
            raise self.refuse("the pure tier is for a pure promise", "Use tier='certified' or 'exact'.")
        return _tiered(
            self, gibbs_strongly_convex(constants, schedule.inverse_temperature), constants, schedule
        )


class IteratedExponential(
    Theorem[IteratedExponentialSchedule], name="iterated-exponential-mechanism", proof=""
):
    """The sum of the stages, each an exponential mechanism on a set of public diameter given the past.

    Adaptive composition: it holds whatever the radii, and whether or not the strong convexity is right.
    """

    reference = "Ganesh, Thakurta and Upadhyay (2022), Algorithm 3 and Theorem D.3"

    def promise(self, constants: Constants, schedule: IteratedExponentialSchedule) -> Guarantee:
        parts: list[Guarantee] = []
        for draw, diameter in zip(schedule.draws, schedule.diameters(constants.diameter), strict=True):
            here = replace(constants, diameter=diameter)
            parts.append(ExponentialMechanismTheorem().certify(here, replace(draw, padding=schedule.padding)))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return replace(total, theorem=self.name, reference=self.reference)


def total_variation(constants: Constants, schedule: DrawSchedule) -> float:
    """tau: how far the chain's output is from the law, in total variation, for every data set."""
    ratio, poincare = start_and_rate(constants, schedule.inverse_temperature)
    # a positive floor: underflow may not turn a certified draw into an exact one
    return max(chain.total_variation_after(schedule.n_steps, ratio, schedule.step_size, poincare), 1e-300)


def sup_norm(constants: Constants, schedule: DrawSchedule) -> float:
    """zeta: sup |density / law's density - 1| of the chain's output, for every data set."""
    ratio, poincare = start_and_rate(constants, schedule.inverse_temperature)
    return chain.sup_norm_after(schedule.n_steps, ratio, schedule.step_size, poincare, constants.diameter)


def start_and_rate(constants: Constants, beta: float) -> tuple[float, float]:
    """(w, C): log density ratio of the chain's start and Poincare constant of the law, worst case over data sets."""
    if not constants.convex:
        raise AssumptionFailed(
            "the proximal chain does not apply: the loss is not convex, so no rate is proved. Use an exact draw on a "
            "grid (few parameters), or Langevin diffusion with delta > 0."
        )
    if math.isinf(constants.smoothness):
        raise AssumptionFailed(
            "the proximal chain does not apply: no smoothness constant is known. Use a smooth loss, or smooth it."
        )
    if constants.dimension is None:
        raise AssumptionFailed(
            "the proximal chain's certificate needs the dimension; state it in the constants."
        )
    low, high = beta * constants.strong_convexity, beta * constants.smoothness
    ratio = chain.warm_start_ratio(high, low, constants.dimension, constants.diameter, chain.START_GAP)
    return ratio, chain.poincare_constant(low, constants.diameter)


def _tiered(
    theorem: Theorem[DrawSchedule], law: Guarantee, constants: Constants, schedule: DrawSchedule
) -> Guarantee:
    if schedule.tier == "exact":
        few = constants.dimension is not None and constants.dimension <= MOST_CELL_AXES
        if not (constants.convex or schedule.grid or few):
            raise theorem.refuse(
                "no exact sampler is known for a loss that is not convex and has more than three parameters",
                "Give grid= for a draw on a public grid, or use Langevin diffusion.",
            )
        found = law
        words: tuple[str, ...] = ("sampler tier exact: the draw has the law itself",)
    elif schedule.tier == "certified":
        found = total_variation_transfer(law, total_variation(constants, schedule))
        words = ("sampler tier certified: delta includes the sampler's total variation",)
    else:
        error = sup_norm(constants, schedule)
        if not error < 1:
            raise theorem.refuse(
                f"the chain is too short: {schedule.n_steps} steps give no sup-norm certificate below 1",
                "Raise n_steps, or let plan_sampler choose them.",
            )
        found = sup_norm_transfer(law, error)
        words = ("sampler tier pure: epsilon includes the sampler's density error, delta is 0",)
    of_sampler = found.assumptions[len(law.assumptions) :]
    return replace(
        found,
        theorem=theorem.name,
        reference=theorem.reference,
        assumptions=(*constants.assumptions, *words, *of_sampler, _time(schedule), REAL, PUBLIC),
        conditions=() if schedule.tier == "exact" else (STARTS_AT_MINIMISER,),
        at_delta=None,
    )


def _time(schedule: DrawSchedule) -> str:
    if schedule.padding > 0:
        return (
            f"every run takes at least {schedule.padding:g} seconds of wall time; a run that needs more shows that it "
            "does, and memory, power and finer traces are not observed"
        )
    return "running time and number of proposals depend on the data and are not observed"
