"""Questions of the papers that are closed here, each by an exact computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from dplangevin import DPLogisticRegression, DPModelSearch
from dplangevin.accounting.conversions import gdp_delta, gdp_mu
from dplangevin.accounting.plan import Plan, certify_plan
from dplangevin.mechanisms import NoisyGradientSpec
from dplangevin.mechanisms.langevin.temperatures import choose_langevin_run
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import same_start_mu
from dplangevin.papers import (
    lemma_2_6,
    lemma_2_6_max_order,
    log_sobolev_information,
    propagate_log_sobolev,
    renyi_from_profile,
    renyi_poisson,
    theorem_4,
)
from dplangevin.problem import Ball, DataBounds, Logistic, Problem
from dplangevin.problem.constants import Constants


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


@pytest.mark.parametrize(
    ("ridge", "time"), [(0.0, 0.5), (0.0, 6.0), (0.05, 3.0), (0.3, 1.0), (0.3, 40.0), (2.0, 3.0)]
)
def test_the_last_iterate_has_more_noise_than_one_newton_step(ridge: float, time: float) -> None:
    """A quadratic of curvature 1: variance of the last iterate over the square of what it reaches, at equal mu."""
    steps = 20_000
    eta = time / steps
    budget = (
        same_start_mu(1.0, 1.0, 1 - eta * ridge, steps) ** 2
    )  # of a gradient, in units of one with all of it
    powers = (1 - eta * (1 + ridge)) ** np.arange(steps, dtype=float)
    reached = eta * powers.sum()
    variance = eta**2 * budget * (powers**2).sum() / reached**2
    forget = math.tanh(ridge * time / 2) * (1 + ridge) / ridge if ridge else time / 2
    assert variance == pytest.approx(forget / math.tanh((1 + ridge) * time / 2), rel=2e-3)
    assert variance > 1


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

    largest = lemma_2_6_max_order(rate, noise)

    def is_allowed(order: float) -> bool:
        m = math.log(1 + 1 / (rate * (order - 1)))
        return order <= m * noise**2 / 2 - math.log(noise**2) and order <= (
            m**2 * noise**2 / 2 - math.log(5 * noise**2)
        ) / (m + math.log(rate * order) + 1 / (2 * noise**2))

    assert is_allowed(largest)
    assert not is_allowed(largest * (1 + 1e-6))
    for order in np.geomspace(1.01, largest, 12):
        closed = lemma_2_6(float(order), rate, noise)
        assert renyi_poisson(float(order), rate, noise)[0] <= closed == 2 * order * rate**2 / noise**2
    assert math.isinf(lemma_2_6(1.01 * largest, rate, noise))
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


def test_log_sobolev_constants_of_gaussian_chains_are_exact() -> None:
    """Lemmas 8 and 9 along x <- (1 - eta m) x + N(0, v): the law is Gaussian with constant 1 / variance."""
    factors, noises = np.array([0.9, 0.5, 1.2, 0.99]), np.array([0.3, 0.1, 2.0, 0.01])
    variance, exact = 0.7, []
    for factor, noise in zip(factors, noises, strict=True):
        variance = factor**2 * variance + noise
        exact.append(1 / variance)
    np.testing.assert_allclose(propagate_log_sobolev(1 / 0.7, factors, noises), exact, rtol=1e-12)
    # Lemma 5: m / (2 sigma^2) is kept by every step, and forgotten starts tend to at least it
    m, eta, sigma = 0.5, 0.4, 1.3
    floor = m / (2 * sigma**2)
    from_start = propagate_log_sobolev(floor, np.full(200, 1 - eta * m), np.full(200, 2 * eta * sigma**2))
    from_point = propagate_log_sobolev(math.inf, np.full(200, 1 - eta * m), np.full(200, 2 * eta * sigma**2))
    assert np.all(from_start >= floor * (1 - 1e-12))
    assert np.all(from_point >= from_start * (1 - 1e-12))


@pytest.mark.parametrize("curvature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("order", [1.5, 2.0, 5.0])
def test_lemma_3_for_log_concave_laws(curvature: float, order: float) -> None:
    """I / E >= (2 c / a^2)(R + a (a - 1) R'), by quadrature; equality for Gaussians, and 2c is refuted."""
    x = np.linspace(-14, 14, 40_001)

    def law(potential: np.ndarray) -> np.ndarray:
        weights = np.exp(-(potential - potential.min()))
        return np.asarray(weights / np.trapezoid(weights, x))

    for kink in (0.0, 0.8):  # |potential''| >= curvature: c = curvature for the second law (Bakry and Emery)
        second = law(curvature * x**2 / 2 + kink * np.logaddexp(0, 3 * x))
        first = law(curvature * (x - 0.4) ** 2 / 2 + kink * np.logaddexp(0, 2 * x))
        log_ratio = np.log(first) - np.log(second)

        def divergence(a: float, second: np.ndarray = second, log_ratio: np.ndarray = log_ratio) -> float:
            return math.log(np.trapezoid(second * np.exp(a * log_ratio), x)) / (a - 1)

        tilted = second * np.exp(order * log_ratio)
        information = np.trapezoid(tilted * np.gradient(log_ratio, x) ** 2, x) / np.trapezoid(tilted, x)
        slope = (divergence(order + 1e-5) - divergence(order - 1e-5)) / 2e-5
        least = log_sobolev_information(order, divergence(order), slope, curvature)
        assert information >= least * (1 - 1e-5)
        if not kink:
            assert information == pytest.approx(least, rel=1e-4)
            assert information < log_sobolev_information(order, divergence(order), slope, 2 * curvature)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_a_profile_bounds_renyi_divergence(mu: float) -> None:
    """From the exact profile of a Gaussian back to a mu^2 / 2, from above; half of the integrand is refuted."""
    eps = np.linspace(0, 60 * max(mu, 1), 4001)
    deltas = np.array([*(gdp_delta(mu, e) for e in eps[:-1]), 0.0])
    for order in (1.5, 2.0, 4.0):
        bound = renyi_from_profile(order, eps, deltas)
        assert order * mu**2 / 2 <= bound <= order * mu**2 / 2 * 1.25 + 0.01
    assert renyi_from_profile(2.0, eps, deltas / 2) < mu**2
    assert math.isinf(renyi_from_profile(2.0, eps[:10], deltas[:10]))


def test_adaptive_step_sizes_do_not_level_off_with_n() -> None:
    """Steps that look at hidden iterates carry one bit of the whole history into the last one, however large n is.

    All losses are 0 but one record's, +-L theta, on [-1, 1]. Phase 1 takes equal steps and adds up the increments of
    the iterates near the middle; after T1 steps the sum tells the two data sets apart as well as composition does
    (mu = sqrt(T1) s / v, s ~ 1 / n). Phase 2 takes long or short steps by its sign, which the last iterate shows
    whether or not the record still acts. With T1 ~ n^2 the leak is the same for every n, and the bound for step sizes
    that are fixed in advance tends to 0. The history itself is simulated for n = 10.
    """
    laws, grid = [], np.linspace(-1, 1, 401)
    edges = np.concatenate([[-np.inf], (grid[1:] + grid[:-1]) / 2, [np.inf]])
    for noise in (0.02, 0.2):  # phase 2: two steps from the middle
        kernel = np.diff(ndtr((edges[None, :] - grid[:, None]) / noise), axis=1)
        laws.append(kernel[200] @ kernel)
    leaks = []
    for n in (1e3, 1e6):
        shift, noise = 0.1 / n, 0.1
        n_steps = (4 * noise / shift) ** 2  # a 4-GDP history: its sign is wrong with probability .023
        right = float(ndtr(math.sqrt(n_steps) * shift / noise / 2))
        first, second = (p * laws[0] + (1 - p) * laws[1] for p in (right, 1 - right))
        leaks.append(float(np.maximum(first - math.e * second, 0).sum()))  # delta at epsilon = 1
        fixed = certify_plan(
            Constants(n=int(n), lipschitz=1.0, smoothness=1.0, diameter=2.0),
            NoisyGradientSpec(
                n_steps=math.inf, step_size=0.05, noise_std=2.0
            ),  # the same shift and noise per step
            delta=1e-6,
        )
        assert fixed.delta(1.0) < 1e-3
    assert leaks[0] == pytest.approx(leaks[1], rel=1e-6)
    assert leaks[0] > 0.4
    rng, short = np.random.default_rng(0), []
    for sign in (1, -1):
        theta, history = np.zeros(1000), np.zeros(1000)
        for _ in range(2400):
            middle = np.abs(theta) < 0.5
            step = 0.1 * rng.standard_normal(1000) + sign * 0.1 / 10 / 2
            history += step * middle  # no projection is active there, so that the iterates show the step
            theta = np.clip(theta + step, -1, 1)
        short.append(np.mean(history > 0))
    assert short[0] - math.e * short[1] > 0.5  # standard error .03


def test_steps_that_expand_level_off_on_a_bounded_set() -> None:
    """Without convexity (c = 1.2) the guarantee stops growing, and exact walks in a double well are below it."""
    constants = Constants(n=100, lipschitz=1.0, smoothness=2.0, diameter=2.0, convex=False)
    options = {"step_size": 0.1, "noise_std": 6.0}
    found = [
        certify_plan(constants, NoisyGradientSpec(n_steps=steps, **options), delta=1e-6).epsilon()
        for steps in (10, 1000, 100_000, math.inf)
    ]
    assert found == sorted(found)
    assert found[-1] < math.inf
    composed = certify_plan(
        constants, NoisyGradientSpec(n_steps=100_000, **options), delta=1e-6, theorem="composition"
    )
    assert found[2] < 0.5 * composed.epsilon()
    grid = np.linspace(-1, 1, 401)
    edges = np.concatenate([[-np.inf], (grid[1:] + grid[:-1]) / 2, [np.inf]])
    laws = []
    for sign in (1, -1):  # F = x^4 / 12 - x^2 / 2 + a record: |F''| <= 1, a double well with a barrier at 0
        centers = grid - 0.1 * (grid**3 / 3 - grid) + sign * 0.1 / 100
        kernel = np.diff(ndtr((edges[None, :] - centers[:, None]) / 0.6), axis=1)
        laws.append(np.linalg.matrix_power(kernel, 1000)[200])
    ratio = np.abs(np.log(laws[0] / laws[1]))
    assert float(ratio.max()) <= found[1]
