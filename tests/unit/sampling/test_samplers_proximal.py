"""The proximal sampler: its oracle, its certificate's arithmetic, its start."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from dplangevin.accounting.proximal_certificate import (
    best_step_size,
    contraction_factor,
    expected_proposals,
    poincare_constant,
    sup_norm_after,
    sup_norm_steps,
    total_variation_after,
    total_variation_steps,
    uniform_start_ratio,
)
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.sampling.langevin import approximate_minimizer, make_warm_start
from dplangevin.sampling.potential import FunctionPotential
from dplangevin.sampling.rejection import run_proximal_chain
from dplangevin.sampling.supports import BallSupport, BoxSupport, WholeSpaceSupport


def quadratic(centre, curvature, smoothness=None, strong_convexity=None):
    c = np.atleast_1d(np.asarray(centre, float))[:, None]
    h = np.broadcast_to(np.asarray(curvature, float), c.shape[:1])[:, None]
    return FunctionPotential(
        value_function=lambda x: np.sum(h * (x - c) ** 2, axis=0) / 2,
        gradient_function=lambda x: h * (x - c),
        smoothness=float(h.max()) if smoothness is None else smoothness,
        strong_convexity=float(h.min()) if strong_convexity is None else strong_convexity,
    )


# --- the chain ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stated", [0.0, 2.0, 4.0])
def test_one_step_is_the_exact_autoregression(stated):
    """V = |x|^2/(2 s^2) on R^p: x' given x is N(rho x, [eta s^2/(s^2+eta)](1 + s^2/(s^2+eta)) I). KS, 1e-3.

    The law does not depend on how much of the strong convexity the oracle is told.
    """
    s2, eta, k = 0.25, 0.5, 20_000
    start = np.full((2, k), 0.7)
    body = WholeSpaceSupport(dimension=2)
    potential = quadratic(np.zeros(2), 1 / s2, strong_convexity=stated)
    x = run_proximal_chain(potential, body, start, eta, 1, np.random.default_rng(1)).theta
    rho = s2 / (s2 + eta)
    assert rho == pytest.approx(contraction_factor(eta, poincare_constant(1 / s2, math.inf)))
    law = stats.norm(0.7 * rho, math.sqrt(eta * rho * (1 + rho)))
    assert stats.kstest(x[0], law.cdf).pvalue > 1e-3
    assert stats.kstest(x[1], law.cdf).pvalue > 1e-3


def test_blocks_do_not_change_the_law():
    """Few chains use blocks of proposals, many use single ones: same law. KS, 1e-3."""
    body = BallSupport(dimension=2, radius=1.0)
    potential = quadratic([0.8, 0.0], [30.0, 2.0], strong_convexity=0.0)
    rng = np.random.default_rng(2)
    many = run_proximal_chain(potential, body, np.zeros((2, 1200)), 0.3, 2, rng).theta
    few = np.concatenate(
        [run_proximal_chain(potential, body, np.zeros((2, 8)), 0.3, 2, rng).theta for _ in range(150)], axis=1
    )
    for row in range(2):
        assert stats.ks_2samp(many[row], few[row]).pvalue > 1e-3


def test_overstated_strong_convexity_is_refused():
    potential = quadratic([0.0, 0.0], 1.0, smoothness=50.0, strong_convexity=50.0)
    with pytest.raises(AssumptionFailed, match="envelope"):
        run_proximal_chain(
            potential,
            BallSupport(dimension=2, radius=2.0),
            np.zeros((2, 50)),
            1.0,
            3,
            np.random.default_rng(3),
        )


def test_nonconvex_potential_is_refused():
    wavy = FunctionPotential(
        value_function=lambda x: 4 * np.cos(5 * x[0]),
        gradient_function=lambda x: -20 * np.sin(5 * x),
        smoothness=100.0,
    )
    with pytest.raises(AssumptionFailed, match="not convex"):
        run_proximal_chain(
            wavy, BallSupport(dimension=1, radius=1.0), np.zeros((1, 50)), 0.5, 5, np.random.default_rng(4)
        )


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"step_size": 0.0}, "step_size"),
        ({"n_steps": 0}, "n_steps"),
        ({"start": np.full((2, 1), 3.0)}, "start"),
        ({"start": np.zeros(2)}, "start"),
    ],
)
def test_refusals(bad, word):
    good = {
        "potential": quadratic([0.0, 0.0], 1.0),
        "support": BallSupport(dimension=2, radius=1.0),
        "start": np.zeros((2, 1)),
        "step_size": 0.1,
        "n_steps": 1,
        "rng": np.random.default_rng(0),
    }
    with pytest.raises(InvalidParameter, match=word):
        run_proximal_chain(**{**good, **bad})


def test_counts_and_progress():
    seen = []
    draws = run_proximal_chain(
        quadratic([0.0, 0.0], 3.0),
        BallSupport(dimension=2, radius=1.0),
        np.zeros((2, 1)),
        0.1,
        5,
        np.random.default_rng(5),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(i, 5) for i in range(1, 6)]
    assert draws.evaluations.n_gradients == 6
    assert draws.n_proposals >= 5
    assert draws.evaluations.n_values >= draws.n_proposals


# --- the certificate's arithmetic --------------------------------------------------------------------------


def test_rates():
    assert contraction_factor(0.01, poincare_constant(50.0, 2.0)) == pytest.approx(2 / 3)
    assert contraction_factor(0.05, poincare_constant(0.0, 2.0)) == pytest.approx(0.890179, abs=1e-6)
    assert poincare_constant(1.0, 0.1) == pytest.approx(0.01 / math.pi**2)
    with pytest.raises(AssumptionFailed, match="ridge"):
        poincare_constant(0.0, math.inf)


@settings(max_examples=200, deadline=None)
@given(
    w=st.floats(1e-3, 1e4),
    eta=st.floats(1e-3, 10),
    poincare=st.floats(1e-4, 10),
    log_goal=st.floats(-30, -1),
    diameter=st.floats(0.1, 3),
)
def test_steps_meet_their_goal_and_no_fewer_do(w, eta, poincare, log_goal, diameter):
    goal = math.exp(log_goal)
    k = total_variation_steps(goal, w, eta, poincare)
    assert total_variation_after(k, w, eta, poincare) <= goal * (1 + 1e-9)
    assert k == 1 or total_variation_after(k - 2, w, eta, poincare) > goal * (1 - 1e-6)
    k = sup_norm_steps(goal, w, eta, poincare, diameter)
    assert sup_norm_after(k, w, eta, poincare, diameter) <= goal * (1 + 1e-9)
    assert k <= 2 or sup_norm_after(k - 2, w, eta, poincare, diameter) > goal * (1 - 1e-6)


def test_formula_of_the_step_count():
    """k = ceil((log chi2_0 - 2 log(2t)) / (2 log(1 + eta/C)))."""
    w, tau, eta, c = 30.0, 1e-7, 0.01, 0.1
    k = math.ceil((math.log(math.expm1(w)) - 2 * math.log(2 * tau)) / (2 * math.log1p(eta / c)))
    assert total_variation_steps(tau, w, eta, c) == k


def test_pure_needs_a_bounded_set():
    with pytest.raises(AssumptionFailed, match="bounded"):
        sup_norm_steps(0.01, 1.0, 0.1, 1.0, math.inf)
    assert sup_norm_after(1, 1e4, 1e-6, 1.0, 2.0) == math.inf


def test_uniform_start_needs_the_full_lipschitz_constant():
    """Amendment 1: with the data term's constant alone the start's divergence is understated.

    V = .1 x + 5 x^2/2 on [-1, 1]: data term .1-Lipschitz, full V 5.1-Lipschitz.
    """
    x = (np.arange(200_000) + 0.5) / 100_000 - 1
    v = 0.1 * x + 2.5 * x**2
    target = np.exp(-v) / np.exp(-v).sum()
    divergence = math.log(np.sum((1 / x.size) ** 2 / target))
    assert uniform_start_ratio(0.1, 2.0) < divergence <= uniform_start_ratio(5.1, 2.0)


def test_best_step_size_balances_work():
    steps = lambda eta: total_variation_steps(1e-7, 20.0, eta, 0.01)  # noqa: E731
    eta = best_step_size(steps, 0.01, 100.0, 400.0, 20)
    cost = lambda e: steps(e) * (1 + expected_proposals(e, 100.0, 400.0, 20))  # noqa: E731
    assert cost(eta) <= min(cost(eta * 2), cost(eta / 2))
    assert expected_proposals(1.0, 3.0, 3.0, 50) == 1.0


# --- the start ---------------------------------------------------------------------------------------------


def _log_one_plus_chi2(start_exponent, target_exponent, x):
    start = np.exp(start_exponent - start_exponent.max())
    target = np.exp(target_exponent - target_exponent.max())
    start, target = start / start.sum(), target / target.sum()
    return math.log(np.sum(start**2 / target))


def test_start_is_the_lower_function_not_the_envelope():
    """Amendment 7: the envelope (strong convexity 2 of a curvature-50 target) has a divergence far above w."""
    body = BoxSupport(low=np.array([-5.0]), high=np.array([5.0]))
    potential = quadratic([0.0], 50.0, smoothness=60.0, strong_convexity=2.0)
    start = make_warm_start(potential, body, np.array([0.3]))
    x = np.linspace(-5, 5, 400_001)
    target = -25 * x**2
    lower = start.linear[0] * x - start.precision * x**2 / 2
    assert _log_one_plus_chi2(lower, target, x) <= start.log_density_ratio
    envelope = -(50 * 0.3) * (x - 0.3) - 2 * (x - 0.3) ** 2 / 2
    assert _log_one_plus_chi2(envelope, target, x) > 100 > start.log_density_ratio


@settings(max_examples=60, deadline=None)
@given(
    curvature=st.floats(0.5, 200),
    centre=st.floats(-3, 3),
    at=st.floats(-1, 1),
    low=st.floats(0, 1),
    high=st.floats(1, 5),
)
def test_start_ratio_bounds_the_density_ratio_everywhere(curvature, centre, at, low, high):
    """log(start/target) <= w at every point of [-1, 1]: ball and box agree and both hold."""
    potential = quadratic([centre], curvature, smoothness=curvature * high, strong_convexity=curvature * low)
    x = np.linspace(-1, 1, 20_001)
    target = -curvature * (x - centre) ** 2 / 2
    for body in (BallSupport(dimension=1, radius=1.0), BoxSupport(low=-np.ones(1), high=np.ones(1))):
        start = make_warm_start(potential, body, np.array([at]))
        exponent = start.linear[0] * x - start.precision * x**2 / 2
        log_start = exponent - exponent.max()
        log_start -= math.log(np.trapezoid(np.exp(log_start), x))
        log_target = target - target.max() - math.log(np.trapezoid(np.exp(target - target.max()), x))
        assert np.max(log_start - log_target) <= start.log_density_ratio + 1e-4


def test_start_ratio_in_the_disc():
    """p = 2, minimiser outside: the ratio holds on a grid of the disc."""
    potential = quadratic([1.5, 0.4], [40.0, 10.0])
    body = BallSupport(dimension=2, radius=1.0)
    centre = approximate_minimizer(potential, body)
    start = make_warm_start(potential, body, centre)
    grid = np.linspace(-1, 1, 1601)
    points = np.stack(np.meshgrid(grid, grid)).reshape(2, -1)
    points = points[:, np.linalg.norm(points, axis=0) <= 1]
    exponent = start.linear @ points - start.precision * np.sum(points**2, axis=0) / 2
    target = -potential.value(points)
    log_ratio = (exponent - exponent.max()) - np.log(np.sum(np.exp(exponent - exponent.max())))
    log_ratio -= (target - target.max()) - np.log(np.sum(np.exp(target - target.max())))
    assert log_ratio.max() <= start.log_density_ratio + 0.01
    assert start.log_density_ratio < 3
    drawn = start.sample(500, np.random.default_rng(6))
    assert np.all(body.contains(drawn))


def test_start_refuses_a_centre_outside():
    with pytest.raises(InvalidParameter, match="inside the support"):
        make_warm_start(quadratic([0.0], 1.0), BallSupport(dimension=1, radius=1.0), np.array([2.0]))


def test_minimiser():
    body = BallSupport(dimension=3, radius=1.0)
    inside = approximate_minimizer(quadratic([0.1, -0.2, 0.3], [1.0, 5.0, 40.0]), body)
    assert inside == pytest.approx([0.1, -0.2, 0.3], abs=1e-8)
    outside = approximate_minimizer(quadratic([3.0, 0.0, 0.0], 2.0), body)
    assert outside == pytest.approx([1.0, 0.0, 0.0], abs=1e-8)
