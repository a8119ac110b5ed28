"""Questions of the papers that are closed here, each by an exact computation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplangevin import DPLogisticRegression, DPModelSearch
from dplangevin.accounting.conversions import gdp_mu
from dplangevin.accounting.plan import Plan
from dplangevin.mechanisms.langevin.temperatures import choose_langevin_run
from dplangevin.papers import renyi_poisson, theorem_4
from dplangevin.problem import Ball, DataBounds, Logistic, Problem


@pytest.mark.parametrize(("steps", "ratio"), [(10, 0.8473), (100, 0.9600), (1000, 0.9958), (10_000, 0.9996)])
def test_averages_cost_as_much_as_the_path(steps: int, ratio: float) -> None:
    """|theta - x|^2 / 2, step size .1: exact mu^2 of the average over that of the path; the last stays at 19."""
    keep = 0.9
    # a unit shift in every step, unit noise in every step; the average of the iterates 1 .. K
    response = np.cumsum(keep ** np.arange(steps))[::-1] / steps  # of the noise of step 1, 2, ..., K
    average = response.sum() ** 2 / (response**2).sum()
    assert average / steps == pytest.approx(ratio, abs=2e-4)
    last = keep ** np.arange(steps)
    assert last.sum() ** 2 / (last**2).sum() <= 19.0 * (1 + 1e-12)


@pytest.mark.parametrize("n", [100, 10_000, 1_000_000])
def test_lemma_d_11_is_false_for_another_reason(n: int) -> None:
    """|theta - d|^2 / 2 with |d| <= 1: Gaussians of variance 1 / (beta M) at minimisers 2 apart, whatever n is."""
    beta, order, smoothness = 10.0, 2.0, 1.0
    exact = order * beta * smoothness * 2.0**2 / 2
    printed = order * (2 / n) * beta**2
    assert exact == 40.0
    assert exact > printed == pytest.approx(400 / n)


def test_theorem_f_2_fails_for_short_times() -> None:
    """(47) takes e^(m B_T) for e^(c sqrt T): with beta_t = t^a it holds at T = 2 only."""
    n, p, m, a = 1e6, 10, 0.1, 16.5
    time = 0.0012
    exponent = m * time ** (a + 1) / (a + 1)
    assert exponent < 1e-50  # the weights do not grow at all: nothing of the start is forgotten
    claimed = p * math.log(1e6) / (m * n**2)
    assert claimed < 1e-4 < 0.5 * m * 1.0 / math.expm1(exponent)


def test_lemma_31_holds_for_the_cone_measure() -> None:
    """|x_1|^p of the cone measure is Beta(1/p, (k - 1)/p), stochastically below Beta(1, (k - 1)/p)."""
    from scipy.stats import beta

    k, p = 10, 4
    levels = np.linspace(0.01, 0.99, 50)
    assert np.all(beta.sf(levels, 1 / p, (k - 1) / p) <= beta.sf(levels, 1, (k - 1) / p) + 1e-12)
    rng = np.random.default_rng(0)
    noise = rng.gamma(1 / p, size=(20_000, k))
    share = noise[:, 0] / noise.sum(axis=1)
    assert np.mean(share > 0.2) == pytest.approx(beta.sf(0.2, 1 / p, (k - 1) / p), abs=0.012)


@pytest.mark.parametrize(("p", "n"), [(1, 2000), (2, 6000), (3, 30_000)])
def test_a_hidden_bump_has_half_of_the_mass(p: int, n: int) -> None:
    """The hypothesis of the lower bound on evaluations: 4 k (log 2 + p log 4k - log v_p) <= beta (radial quadrature).

    Outside the bump the volume is at most 1 and the density 1.
    """
    beta = n / (2 * math.sqrt(p))  # epsilon = 1
    ball = math.pi ** (p / 2) / math.gamma(p / 2 + 1)
    k = max(k for k in range(1, 200) if 4 * k * (math.log(2) + p * math.log(4 * k) - math.log(ball)) <= beta)
    assert k >= 20
    r = (np.arange(20_000) + 0.5) / 20_000 / (2 * k)
    shells = p * ball * r ** (p - 1) * np.exp(beta * (1 / (2 * k) - r)) / (20_000 * 2 * k)
    inside = shells[r <= 1 / (4 * k)].sum()
    assert inside / (1 + shells.sum()) >= 0.5
    r, k = r * k / (4 * k), 4 * k  # four times as many bumps are too shallow
    shells = p * ball * r ** (p - 1) * np.exp(beta * (1 / (2 * k) - r)) / (20_000 * 2 * k)
    assert shells.sum() / (1 + shells.sum()) < 0.5


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 4.0), (0.001, 8.0)])
def test_lemma_2_6_up_to_its_largest_order(rate: float, noise: float) -> None:
    """S_a(q, sigma) <= 2 a q^2 / sigma^2 for a <= a*, in the larger direction too; far beyond a* it is false."""

    def is_allowed(order: float) -> bool:
        m = math.log(1 + 1 / (rate * (order - 1)))
        return order <= m * noise**2 / 2 - math.log(noise**2) and order <= (
            m**2 * noise**2 / 2 - math.log(5 * noise**2)
        ) / (m + math.log(rate * order) + 1 / (2 * noise**2))

    largest = max(order for order in np.geomspace(1.01, 1e4, 2000) if is_allowed(float(order)))
    for order in np.geomspace(1.01, largest, 12):
        assert renyi_poisson(float(order), rate, noise)[0] <= 2 * order * rate**2 / noise**2
    beyond = 40 * largest
    assert renyi_poisson(beyond, rate, noise)[0] > 2 * beyond * rate**2 / noise**2


@pytest.mark.parametrize(("n", "p", "ridge"), [(2000, 2, 0.5), (30_000, 10, 0.1), (100_000, 5, 0.02)])
def test_theorem_4_has_a_plan_with_a_smaller_bound(n: int, p: int, ridge: float) -> None:
    """The chosen last iterate has the guarantee of Theorem 4, and less than its risk 80 b d L^2 log(1/delta) / ..."""
    problem = Problem(
        loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=n, n_features=p, constraint=Ball(1 / ridge),
        ridge=ridge, fit_intercept=False,
    )  # fmt: skip
    choice = choose_langevin_run(problem, gdp_mu(1.0, 1e-6) * (1 - 1e-7), outputs=["last"])
    plan = Plan(problem=problem, spec=choice.spec, delta=1e-6, theorem=choice.theorem)
    printed = theorem_4(
        lipschitz=2.0,
        strong_convexity=ridge,
        smoothness=0.25 + ridge,
        dimension=p,
        n=n,
        epsilon=1.0,
        delta=1e-6,
    )  # its Lipschitz constant is that of the whole objective, on the ball of radius L / ridge
    assert plan.guarantee.epsilon() <= 1.0
    assert choice.excess_risk < 0.1 * printed.risk


@pytest.mark.parametrize("n_shifts", [1, 10, 1000])
def test_averaging_shifts_does_not_lower_the_sensitivity(n_shifts: int) -> None:
    """F = theta^2 / 2, F' = F + Delta theta: near the threshold every shifted point is outside for F, inside for F'."""
    sensitivity, psi, width = 1e-3, 0.02, 1e-5
    theta = math.sqrt(2 * psi) + 3e-5
    points = theta + width * np.clip(np.random.default_rng(0).standard_normal(n_shifts), -2, 2)

    def mean_gradient(slope: float) -> float:
        values = points**2 / 2 + slope * points + slope**2 / 2  # above the minimum -slope^2 / 2
        return float(np.mean((points + slope) * (values > psi)))

    sharp = math.sqrt(2 * psi)
    assert abs(mean_gradient(0.0) - mean_gradient(-sensitivity)) >= sharp > 100 * sensitivity


def test_an_unconstrained_problem_by_private_selection() -> None:
    """Problems with several norm bounds, one of which is selected: one guarantee covers all of it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, (400, 2))
    y = (X[:, 0] > 0).astype(int)
    search = DPModelSearch(
        DPLogisticRegression(data_norm=1.0, classes=[0, 1]), {"radius": [0.5, 8.0]}, epsilon=8.0, delta=1e-4,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    assert search.best_params_["radius"] in (0.5, 8.0)
    assert search.privacy_.epsilon() <= 8.0
