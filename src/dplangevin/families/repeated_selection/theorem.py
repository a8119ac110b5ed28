"""Privacy of repeat-and-select, by the Renyi curves of its attempts."""

from __future__ import annotations

import math

import numpy as np

from dplangevin._search import bisected
from dplangevin.families.repeated_selection.schedule import RepeatedSelectionSchedule
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Renyi
from dplangevin.privacy.theorem import ANSWER_ASSUMPTIONS, Theorem, inflated

SHAPES = {"geometric": 1.0, "logarithmic": 0.0}


class RepeatedSelectionTheorem(Theorem[RepeatedSelectionSchedule], name="repeat and select", proof=""):
    """The best of K attempts, K from a Poisson or a truncated negative binomial law.

    With R(a) = a mu^2 / 2 the curve of an attempt and m the mean of K, at every order a > 1:
    Poisson: R(a) + m d + log(m) / (a - 1), where d is the attempt's delta at epsilon = log(1 + 1 / (a - 1));
    truncated negative binomial of shape s and parameter g: R(a) + log(m) / (a - 1)
    + (1 + s) min_b ((1 - 1/b) R(b) + log(1 / g) / b).

    Examples
    --------
    >>> schedule = RepeatedSelectionSchedule(mu=0.1, repetitions=10, adjacency="replace-one")
    >>> round(RepeatedSelectionTheorem().certify(None, schedule).epsilon(1e-6), 3)
    0.898
    """

    reference = "Papernot and Steinke (2022), Theorems 2 and 6; Liu and Talwar (2019)"

    def promise(self, constants: None, schedule: RepeatedSelectionSchedule) -> Guarantee:
        orders = cv.ORDERS[cv.ORDERS > 1]
        single = orders * cv.square_over(schedule.mu, 2)
        curve = single + math.log(schedule.repetitions) / (orders - 1)
        if schedule.law == "poisson":
            near = np.log1p(1 / (orders - 1))
            curve = curve + schedule.repetitions * np.array([cv.rdp_delta(orders, single, e) for e in near])
        else:
            spent = np.min((1 - 1 / orders) * single - math.log(schedule.gamma) / orders)
            curve = curve + (1 + SHAPES[schedule.law]) * spent
        curve = np.minimum.accumulate(curve[::-1])[::-1]  # divergences grow with the order
        return Guarantee(
            parts=(Renyi(orders=tuple(orders.tolist()), values=tuple(inflated(float(v)) for v in curve)),),
            adjacency=schedule.adjacency,
            release=schedule.release,
            theorem=self.name,
            reference=self.reference,
            conditions=schedule.conditions,
            assumptions=(
                *schedule.assumptions,
                *ANSWER_ASSUMPTIONS,
                "the number of attempts is secret, and so is the time that they took",
            ),
        )


def attempt_mu(epsilon: float, delta: float, schedule: RepeatedSelectionSchedule) -> float:
    """The largest mu of an attempt with which the whole meets (epsilon, delta); 0 when there is none."""
    from dataclasses import replace

    def fits(mu: float) -> bool:
        found = RepeatedSelectionTheorem().certify(None, replace(schedule, mu=mu))
        return found.epsilon(delta) <= epsilon

    return bisected(fits, 0.0, cv.gdp_mu(epsilon, delta), rounds=30)
