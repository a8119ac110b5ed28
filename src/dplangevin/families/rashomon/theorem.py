"""Private draws from a Rashomon set, as they are run. Proofs: docs/theory/rashomon.md.

The score h(F - F*) is a nondecreasing 1-Lipschitz function of F - F*, so one exact draw of exp(-beta h) has bounded
range beta (oscillation + e), e the largest error of the computed F*. The proximal chain's distance to that law follows
from two data-independent numbers: the start's log density ratio w and a Poincare constant C. K draws compose through
k * guarantee.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

import numpy as np

from dplangevin.errors import AssumptionFailed
from dplangevin.families._minimiser import SOLVER_CONVERGES, check_minimiser, total_ridge
from dplangevin.families.draws.theorems.draws import PUBLIC, REAL
from dplangevin.families.draws.theorems.exponential_mechanism import exponential_mechanism
from dplangevin.families.draws.theorems.gibbs import ramp_sensitivity, threshold_sensitivity
from dplangevin.families.draws.theorems.sampler_certificates import (
    sup_norm_transfer,
    total_variation_transfer,
)
from dplangevin.families.noisy_gradient.theorems.langevin_process import sgld_last_iterate, sgld_trajectory
from dplangevin.families.rashomon.schedule import RashomonChainSchedule, RashomonSchedule
from dplangevin.privacy import proximal_certificate as chain
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.theorem import COMMON_ASSUMPTIONS, Theorem
from dplangevin.problem.constants import Constants

NO_PEEKING = (
    "nothing that depends on the data is said of the draws: membership, training loss, acceptance, time"
)


def minimum_error(constants: Constants, tolerance: float) -> float:
    """e: how far above F* the computed minimum can be, tolerance^2 / (2 n Lambda) with Lambda = n ridge."""
    return tolerance**2 / (2 * constants.n * total_ridge(constants)) * (1 + 1e-12)


def start_scale(dimension: int, inverse_temperature: float, threshold: float, excess: float) -> float:
    """s of the start: the set shrunk by s towards the computed minimiser, where F <= F* + s excess by convexity."""
    return min(1.0, max(threshold, dimension / inverse_temperature) / excess)


def start_ratio(dimension: int, inverse_temperature: float, threshold: float, excess: float) -> float:
    """w of that start: p log(1/s) + beta (s excess - psi)+, the same for every data set.

    Examples
    --------
    >>> round(start_ratio(10, 300.0, 0.05, 2.0), 4)  # s = psi / excess: the whole start lies in the set
    36.8888
    """
    s = start_scale(dimension, inverse_temperature, threshold, excess)
    inside = inverse_temperature * max(s * excess - threshold, 0.0)
    return (dimension * math.log(1 / s) + inside) * (1 + 1e-12) + 1e-12


def poincare(constants: Constants, inverse_temperature: float, plateau: float) -> float:
    """C of exp(-beta h): diameter^2 / pi^2, or exp(beta plateau) / (beta m) (Holley and Stroock) where that is smaller.

    plateau bounds the oscillation of h(a) - a: psi + tau/2 + e.
    """
    flat = chain.poincare_constant(0.0, constants.diameter)
    exponent, ridge = inverse_temperature * plateau, inverse_temperature * constants.strong_convexity
    return min(flat, math.exp(exponent) / ridge) if ridge > 0 and exponent < 50 else flat


def sampler_error(constants: Constants, schedule: RashomonSchedule) -> float:
    """Of one draw and every data set: total variation (certified) or sup |density ratio - 1| (pure); 0 when exact."""
    if schedule.tier == "exact":
        return 0.0
    assert constants.dimension is not None
    beta, psi = schedule.inverse_temperature, schedule.threshold
    ratio = start_ratio(constants.dimension, beta, psi, schedule.excess)
    plateau = psi + schedule.ramp / 2 + minimum_error(constants, schedule.tolerance)
    rate = poincare(constants, beta, plateau)
    if schedule.tier == "pure":
        return chain.sup_norm_after(schedule.n_steps, ratio, schedule.step_size, rate, constants.diameter)
    # a positive floor: underflow may not turn a certified draw into an exact one
    return max(chain.total_variation_after(schedule.n_steps, ratio, schedule.step_size, rate), 1e-300)


class RashomonDrawsTheorem(
    Theorem[RashomonSchedule], name="rashomon-draws", proof="docs/theory/rashomon.md, section 1"
):
    """K draws of exp(-beta h(F - F*)), each beta (oscillation + e) bounded range, with the sampler's error included.

    Examples
    --------
    >>> constants = Constants(n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, diameter=2.0,
    ...                       dimension=20)
    >>> schedule = RashomonSchedule(n_models=5, threshold=0.05, inverse_temperature=1500.0, tolerance=1e-6,
    ...                             excess=2.1)
    >>> round(RashomonDrawsTheorem().certify(constants, schedule).epsilon(0.0), 6)
    1.0
    """

    reference = "Ganesh, Thakurta and Upadhyay (2023), Theorem 2.1; bounded range: Durfee and Rogers (2019), section 4"

    def promise(self, constants: Constants, schedule: RashomonSchedule) -> Guarantee:
        check_minimiser(self, constants, schedule.tolerance)
        if constants.dimension is None:
            raise self.refuse("the dimension is not known", "State it in the constants.")
        law = exponential_mechanism(
            constants, schedule.inverse_temperature, minimum_error(constants, schedule.tolerance)
        )
        error, count = sampler_error(constants, schedule), schedule.n_models
        if schedule.tier == "exact":
            found, words = count * law, "sampler tier exact: every draw has the law itself"
        elif schedule.tier == "certified":
            with np.errstate(over="ignore"):  # e^eps of a promise that is no promise
                found = total_variation_transfer(count * law, min(count * error, 1.0), schedule.at_epsilon)
            words = f"sampler tier certified: each draw is within total variation {error:.3g} of the law"
        else:
            if not error < 1:
                raise self.refuse("the proximal chain is too short for a pure promise", "Raise n_steps.")
            found = count * sup_norm_transfer(law, error, keep_range=True)
            words = f"sampler tier pure: each density is within a factor 1 +- {error:.3g} of the law's"
        return replace(
            found,
            theorem=self.name,
            reference=self.reference,
            conditions=(SOLVER_CONVERGES,),
            assumptions=(*constants.assumptions, words, NO_PEEKING, REAL, PUBLIC),
            at_delta=None,
        )


class RashomonChainsTheorem(
    Theorem[RashomonChainSchedule], name="rashomon-chains", proof="docs/theory/rashomon.md, section 4"
):
    """K chains with the gradient of the score: Gaussian composition over steps, or the convex last-iterate bound.

    Composition covers every point of every chain, so whole trajectories may be released at its price.

    Sensitivity of the gradient: Delta + L_F (oscillation + e) / tau for a ramp; for the sharp threshold max{Delta,
    min(L_F, Delta + sqrt(2 M (psi + e)))}, which needs interior minimisers.
    """

    reference = "Ganesh, Thakurta and Upadhyay (2023), Theorem 2.3, corrected; Bok, Su and Altschuler (2024)"

    def promise(self, constants: Constants, schedule: RashomonChainSchedule) -> Guarantee:
        check_minimiser(self, constants, schedule.tolerance)
        beta, eta, steps = schedule.inverse_temperature, schedule.step_size, schedule.n_steps
        score = score_constants(constants, schedule)
        offers = [sgld_trajectory(score, beta, eta, steps)]
        if schedule.ramp > 0 and schedule.release == "last-iterate":
            # any number of steps up to n_steps: the bound at the most steps covers the public stopping time
            with contextlib.suppress(AssumptionFailed):
                offers.append(sgld_last_iterate(score, beta, eta, steps))
        best = min(offers, key=lambda g: g.mu or 0.0)
        return replace(
            schedule.n_models * best,
            release=schedule.release,
            theorem=self.name,
            reference=self.reference,
            conditions=(SOLVER_CONVERGES,),
            assumptions=(*constants.assumptions, NO_PEEKING, *COMMON_ASSUMPTIONS),
        )


def score_constants(constants: Constants, schedule: RashomonChainSchedule) -> Constants:
    """The constants of the score h(F - F*) whose gradient the chains follow; hypotheses are checked here."""
    error = minimum_error(constants, schedule.tolerance)
    theorem, full = RashomonChainsTheorem(), schedule.full_lipschitz
    half = constants.diameter / 2  # some point of the set is at least so far from 0
    least = constants.lipschitz + constants.strong_convexity * half
    if not full >= least * (1 - 1e-9):
        raise theorem.refuse(
            f"full_lipschitz = {full:g} is below lipschitz + ridge * diameter / 2 = {least:g}",
            "State that of the whole objective, ridge included (problem.reach.full_lipschitz).",
        )
    if schedule.interior and constants.strong_convexity * half < constants.lipschitz * (1 - 1e-9):
        raise theorem.refuse(
            "interior=True, but the set is too small to hold the ball of radius lipschitz / ridge",
            "Raise the radius or alpha, or use route='pure'.",
        )
    if schedule.ramp > 0:
        sensitivity = ramp_sensitivity(constants, schedule.ramp, full, error)
        smoothness = constants.smoothness + full**2 / schedule.ramp
    else:
        if not schedule.interior:
            raise theorem.refuse(
                "the trajectory route needs every data set's minimiser to be a zero of the gradient (radius at least "
                "lipschitz / ridge around 0); at a minimiser on the boundary one record moves the drift by L_F",
                "Raise the radius or alpha, or use route='pure', which needs no such hypothesis.",
            )
        sensitivity = threshold_sensitivity(constants, schedule.threshold + error, full, True)
        smoothness = math.inf
    total = sensitivity * constants.n
    return replace(
        constants,
        lipschitz=max(constants.lipschitz, total),
        gradient_sensitivity=total,
        smoothness=smoothness,
        strong_convexity=0.0,
        hessian_rank=None,
    )
