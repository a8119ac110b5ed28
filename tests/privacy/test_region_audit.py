"""A pure centre composed with the region's noise, attacked exactly: counted as Gaussian it breaks the guarantee.

The worst pure centre is randomised response; beside Gaussian noise of mu its exact delta(eps) is
p gdp_delta(mu, eps - eps1) + (1 - p) gdp_delta(mu, eps + eps1), p = e^eps1 / (1 + e^eps1).
"""

from __future__ import annotations

import math

import pytest

from dplangevin.accounting.compose import gaussian_mu
from dplangevin.accounting.conversions import gdp_delta, gdp_mu
from dplangevin.mechanisms.rashomon_region.objective import RegionObjective
from dplangevin.mechanisms.rashomon_region.planning import center_epsilon, plan_region
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Logistic

DELTA = 1e-5


def exact_delta(pure: float, mu: float, epsilon: float) -> float:
    """gdp_delta continued to negative eps by delta(-e) = 1 - e^-e + e^-e delta(e)."""

    def curve(value: float) -> float:
        if value >= 0:
            return float(gdp_delta(mu, value))
        return 1 - math.exp(value) + math.exp(value) * float(gdp_delta(mu, -value))

    share = math.exp(pure) / (1 + math.exp(pure))
    # against side 0, whose answer "1" has probability 1 - share: weights of the two answers under side 1
    return share * curve(epsilon - pure) + (1 - share) * curve(epsilon + pure)


@pytest.mark.parametrize(("n", "p", "epsilon"), [(500, 3, 1.0), (2000, 5, 4.0)])
def test_a_pure_centre_is_composed_and_not_counted_as_gaussian(n: int, p: int, epsilon: float) -> None:
    centre = plan_fit(
        model="logistic", n=n, n_features=p, epsilon=center_epsilon(epsilon, DELTA), delta=DELTA,
        adjacency="replace-one", data_norm=1.0, fit_intercept=False, mechanism="objective-perturbation",
    ).plan  # fmt: skip
    pure = centre.guarantee.epsilon(0.0)
    assert centre.guarantee.mu is None
    assert math.isfinite(pure)
    plan = plan_region(
        centre,
        RegionObjective.from_problem(centre.problem, Logistic(), 0.0),
        thresholds=(0.05,),
        epsilon=epsilon,
        delta=DELTA,
    )
    rest = gaussian_mu(plan.curvature.guarantee.parts + plan.slack.guarantee.parts)
    assert rest is not None
    assert exact_delta(pure, rest, epsilon) <= DELTA  # the honest plan
    wrong = math.sqrt(0.5) * gdp_mu(epsilon, DELTA)
    assert exact_delta(pure, wrong, epsilon) > 1.2 * DELTA  # the broken one
    assert rest < wrong
