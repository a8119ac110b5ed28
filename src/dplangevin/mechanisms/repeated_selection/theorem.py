"""Privacy of repeat-and-select: an upper bound from the Renyi curve of an attempt, and a lower bound on epsilon."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dplangevin._search import bisect_safe_side
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import RenyiCurve
from dplangevin.accounting.theorem import ANSWER_ASSUMPTIONS, Theorem, round_up
from dplangevin.mechanisms.repeated_selection.spec import RepeatedSelectionSpec

NEGATIVE_BINOMIAL_SHAPES = {"geometric": 1.0, "logarithmic": 0.0}


class RepeatedSelectionTheorem(Theorem[RepeatedSelectionSpec], name="repeat and select", proof=""):
    """Renyi curve of the best of K attempts, K from a Poisson or a truncated negative binomial law.

    With R(a) = a mu^2 / 2 the curve of an attempt and m the mean of K, at every order a > 1:
    Poisson: R(a) + m d + log(m) / (a - 1), where d is the attempt's delta at epsilon = log(1 + 1 / (a - 1));
    truncated negative binomial of shape s and parameter g: R(a) + log(m) / (a - 1)
    + (1 + s) min_b ((1 - 1/b) R(b) + log(1 / g) / b).

    Examples
    --------
    >>> spec = RepeatedSelectionSpec(mu=0.1, repetitions=10, adjacency="replace-one")
    >>> round(RepeatedSelectionTheorem().certify(None, spec).epsilon(1e-6), 3)
    0.898
    """

    reference = "Papernot and Steinke (2022), Theorems 2 and 6; Liu and Talwar (2019)"

    def derive_guarantee(self, constants: None, spec: RepeatedSelectionSpec) -> Guarantee:
        orders = cv.ORDERS[cv.ORDERS > 1]
        single = orders * cv.square_ratio_up(spec.mu, 2)
        curve = single + math.log(spec.repetitions) / (orders - 1)
        if spec.law == "poisson":
            near = np.log1p(1 / (orders - 1))
            curve = curve + spec.repetitions * np.array([cv.rdp_delta(orders, single, e) for e in near])
        else:
            spent = np.min((1 - 1 / orders) * single - math.log(spec.gamma) / orders)
            curve = curve + (1 + NEGATIVE_BINOMIAL_SHAPES[spec.law]) * spent
        curve = np.minimum.accumulate(curve[::-1])[::-1]  # divergences grow with the order
        return Guarantee(
            parts=(
                RenyiCurve(orders=tuple(orders.tolist()), values=tuple(round_up(float(v)) for v in curve)),
            ),
            adjacency=spec.adjacency,
            release=spec.release,
            theorem=self.name,
            reference=self.reference,
            conditions=spec.conditions,
            assumptions=(
                *spec.assumptions,
                *ANSWER_ASSUMPTIONS,
                "the number of attempts is secret, and so is their running time",
            ),
        )


def calibrate_attempt_mu(epsilon: float, delta: float, spec: RepeatedSelectionSpec) -> float:
    """Return the largest mu of an attempt with which the whole search meets (epsilon, delta); 0 if there is none."""
    from dataclasses import replace

    def meets_target(mu: float) -> bool:
        guarantee = RepeatedSelectionTheorem().certify(None, replace(spec, mu=mu))
        return guarantee.epsilon(delta) <= epsilon

    return bisect_safe_side(meets_target, 0.0, cv.gdp_mu(epsilon, delta), rounds=30)


Floats = NDArray[np.float64]
_N_CUTS = 400


def epsilon_lower_bound(constants: None, spec: RepeatedSelectionSpec, delta: float) -> float:
    """Return a lower bound on epsilon from attempts N(0, 1) against N(mu, 1) that release their score.

    The test is the best half-line: some score is above the cut with probability 1 - G(1 - q), G the generating
    function of K.
    """
    mu, mean = spec.mu, spec.repetitions
    max_cut = 4 + math.sqrt(2 * math.log(mean + 1))
    cuts = np.linspace(-max_cut, max_cut + min(mu, 1e6), _N_CUTS)
    high, low = (_probability_above(spec, ndtr(center - cuts)) for center in (mu, 0.0))
    power, size = np.concatenate([high, 1 - low]), np.concatenate([low, 1 - high])
    # differences from 1 lose digits: their error is subtracted from the power and added to the size
    gain = power * (1 - 1e-9) - 1e-12 - delta
    best = float(np.max(np.where(gain > 0, gain, 0.0) / (size * (1 + 1e-9) + 1e-12)))
    return math.log(best) if best > 1 else 0.0


def _probability_above(spec: RepeatedSelectionSpec, probability: Floats) -> Floats:
    """Return the probability that at least one of K attempts is above, where each is with the given probability."""
    if spec.law == "poisson":
        return np.asarray(-np.expm1(-spec.repetitions * probability))
    gamma = spec.gamma
    if spec.law == "geometric":
        return np.asarray(probability / (gamma + (1 - gamma) * probability))
    return np.asarray(np.log1p((1 / gamma - 1) * probability) / math.log(1 / gamma))
