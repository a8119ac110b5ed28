"""Langevin chains: exact coefficients, stationary variances, coupling, refusals. Thesis vectors 24 to 30."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from scipy.linalg import expm

from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.papers.formulas import thesis_moment_factor
from dplangevin.problem import risk
from dplangevin.sampling import langevin as lc
from dplangevin.sampling.langevin import (
    UnderdampedStep,
    geometric_weights,
    normalize_potential,
    run_hit_and_run,
    run_mala,
    run_overdamped,
    run_sgld,
    run_underdamped,
)
from dplangevin.sampling.potential import FunctionPotential
from dplangevin.sampling.supports import BallSupport, BoxSupport, WholeSpaceSupport


def quadratic(curvature):
    h = np.atleast_1d(np.asarray(curvature, float))[:, None]
    return FunctionPotential(
        value_function=lambda x: np.sum(h * x**2, axis=0) / 2,
        gradient_function=lambda x: h * x,
        smoothness=float(h.max()),
        strong_convexity=float(h.min()),
    )


# --- underdamped -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            (2, 1, 0.1),
            (0.8187307531, 0.09063462346, 0.004682688269, 0.329679954, 0.01642926994, 0.001150741569),
        ),
        ((3, 0.5, 1), (math.exp(-3), -math.expm1(-3) / 3, None, 0.4987606239, 0.1504841026, 0.1775927512)),
        ((2, 1, 1e-3), (math.exp(-0.002), -math.expm1(-0.002) / 2, None, None, None, 1.331335e-9)),
    ],
)
def test_step_vectors(parameters, expected):
    """Vector 24; a two-term series would miss the last one."""
    step = UnderdampedStep.from_parameters(*parameters)
    got = (
        step.decay,
        step.velocity_coef,
        step.position_gradient_coef,
        step.variance_v,
        step.covariance,
        step.variance_x,
    )
    for value, target in zip(got, expected, strict=True):
        if target is not None:
            assert value == pytest.approx(target, rel=1e-6)


def test_step_drift():
    """Vector 25: x = .4, v = -.2, g = 1.3."""
    step = UnderdampedStep.from_parameters(2, 0.7, 0.3)
    assert 0.4 - 0.2 * step.velocity_coef - 1.3 * step.position_gradient_coef == pytest.approx(
        0.32102651640, rel=1e-9
    )
    assert -0.2 * step.decay - 1.3 * step.velocity_gradient_coef == pytest.approx(-0.31505303280, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(gamma=st.floats(0.5, 20), mu=st.floats(0.01, 5), log_eta=st.floats(-5, 1))
def test_step_covariance_against_the_matrix_exponential(gamma, mu, log_eta):
    """Van Loan: the covariance of the linear process from one matrix exponential; also across the series' edge."""
    eta = 10**log_eta
    if gamma * eta > 5:
        return
    drift = np.array([[0.0, 1.0], [0.0, -gamma]])
    noise = np.array([[0.0, 0.0], [0.0, 2 * gamma * mu]])
    # scaled so that position and velocity noise have like sizes, which keeps expm accurate
    scale = np.diag([1 / eta, 1.0])
    drift, noise = scale @ drift @ np.linalg.inv(scale), scale @ noise @ scale
    block = expm(eta * np.block([[-drift, noise], [np.zeros((2, 2)), drift.T]]))
    covariance = np.linalg.inv(scale) @ block[2:, 2:].T @ block[:2, 2:] @ np.linalg.inv(scale)
    step = UnderdampedStep.from_parameters(gamma, mu, eta)
    assert step.variance_x == pytest.approx(covariance[0, 0], rel=1e-6)
    assert step.covariance == pytest.approx(covariance[0, 1], rel=1e-6)
    assert step.variance_v == pytest.approx(covariance[1, 1], rel=1e-6)
    assert step.variance_x * step.variance_v > step.covariance**2


def _stationary_variance(gamma, mu, eta, curvature=1.0):
    step = UnderdampedStep.from_parameters(gamma, mu, eta)
    map_ = np.array(
        [
            [1 - step.position_gradient_coef * curvature, step.velocity_coef],
            [-step.velocity_gradient_coef * curvature, step.decay],
        ]
    )
    noise = np.array([[step.variance_x, step.covariance], [step.covariance, step.variance_v]])
    solved = np.linalg.solve(np.eye(4) - np.kron(map_, map_), noise.ravel())
    return solved.reshape(2, 2)[0, 0]


def test_underdamped_stationary_variance():
    """Vector 26, and the chain that runs has that variance (4 standard errors)."""
    assert _stationary_variance(2, 1, 0.1) == pytest.approx(1.0256192144, rel=1e-8)
    assert _stationary_variance(2, 1, 0.5) == pytest.approx(1.1398065487, rel=1e-8)
    assert _stationary_variance(2, 0.1, 0.1) == pytest.approx(1.0025061, rel=1e-6)
    k = 40_000
    x, v = run_underdamped(quadratic(1.0), np.zeros((1, k)), 2, 1, 0.5, 40, np.random.default_rng(1))
    assert x.var() == pytest.approx(1.1398065487, rel=4 * math.sqrt(2 / k))
    assert abs(np.mean(x * v)) < 0.2
    with pytest.raises(InvalidParameter, match="friction"):
        run_underdamped(quadratic(1.0), np.zeros((1, 1)), 0, 1, 0.5, 1, np.random.default_rng(0))


# --- overdamped and SGLD -----------------------------------------------------------------------------------


def test_overdamped_variance():
    """ULA at eta = .1 on x^2/2 has variance 1.0526 (vector 26); T27: 1/(beta m (1 - a m / 2)). 4 standard errors."""
    k = 40_000
    x = run_overdamped(quadratic(1.0), np.zeros((1, k)), 0.1, 80, np.random.default_rng(2))
    assert x.var() == pytest.approx(1.0526315789, rel=4 * math.sqrt(2 / k))
    for eta, expected in [(1e-3, 0.0505051), (5e-3, 0.0526316)]:
        assert 1 / (20 * (1 - eta * 20 / 2)) == pytest.approx(expected, rel=1e-5)
        run = run_sgld(quadratic(1.0), np.zeros((1, k)), eta, 20.0, 400, np.random.default_rng(3))
        assert run.last.var() == pytest.approx(expected, rel=4 * math.sqrt(2 / k))


def test_normalised_potential():
    """B.1: shift and scale the right way round."""
    raw = FunctionPotential(
        value_function=lambda x: 2 * np.sum((x - 3) ** 2, axis=0),
        gradient_function=lambda x: 4 * (x - 3),
        smoothness=8.0,
        strong_convexity=4.0,
    )
    unit = normalize_potential(raw, np.array([3.0]))
    assert unit.smoothness == 2.0
    assert unit.gradient(np.array([[0.0]]))[0, 0] == 0.0
    assert unit.value(np.array([[1.0]]))[0] == pytest.approx(0.5)
    with pytest.raises(AssumptionFailed, match="ridge"):
        normalize_potential(FunctionPotential(**{**vars(raw), "strong_convexity": 0.0}), np.array([3.0]))


def test_sgld_average_and_iterates():
    run = run_sgld(
        quadratic(1.0),
        np.ones((1, 3)),
        [0.1, 0.2],
        [1.0, 2.0],
        2,
        np.random.default_rng(4),
        weights=[1.0, 3.0],
        keep_steps=(0, 1, 2),
    )
    assert run.weighted_average == pytest.approx((run.iterates[0] + 3 * run.iterates[1]) / 4)
    assert np.array_equal(run.iterates[2], run.last)
    again = run_sgld(quadratic(1.0), np.ones((1, 3)), [0.1, 0.2], [1.0, 2.0], 2, np.random.default_rng(4))
    assert np.array_equal(again.last, run.last)
    assert again.weighted_average is None


def test_sgld_noise_is_the_declared_one():
    """With no gradient the increments are N(0, 2 eta I). 4 standard errors."""
    flat = FunctionPotential(
        value_function=lambda x: np.zeros(x.shape[1]), gradient_function=np.zeros_like, smoothness=1.0
    )
    run = run_sgld(flat, np.zeros((1, 100_000)), 0.3, 5.0, 1, np.random.default_rng(5))
    assert run.last.var() == pytest.approx(0.6, rel=4 * math.sqrt(2 / 100_000))


def test_sgld_projects():
    run = run_sgld(
        quadratic(1.0),
        np.zeros((2, 500)),
        1.0,
        1.0,
        3,
        np.random.default_rng(6),
        project=BallSupport(dimension=2, radius=0.5).project,
        keep_steps=(1, 2, 3),
    )
    assert all(np.linalg.norm(x, axis=0).max() <= 0.5 for x in run.iterates.values())


@pytest.mark.parametrize(
    "bad",
    [
        {"step_size": 0.0},
        {"step_size": -1.0},
        {"inverse_temperature": 0.0},
        {"step_size": [0.1, 0.1]},
        {"weights": [1.0, 1.0]},
        {"weights": [0.0, 0.0, 0.0]},
        {"start": np.zeros(2)},
        {"n_steps": 0},
    ],
)
def test_sgld_refuses(bad):
    good = {
        "potential": quadratic(1.0),
        "start": np.zeros((1, 1)),
        "step_size": 0.1,
        "inverse_temperature": 1.0,
        "n_steps": 3,
        "rng": np.random.default_rng(0),
    }
    with pytest.raises(InvalidParameter):
        run_sgld(**{**good, **bad})


def test_synchronous_chains_stay_close():
    """T28: neighbours under the same noise stay within (Delta/m)(1 - (1 - a m)^k) <= Delta/m at every step."""
    rng = np.random.default_rng(7)
    n, p, ridge = 50, 3, 0.2
    rows = rng.standard_normal((n, p))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
    other = rows.copy()
    other[0] = -rows[0]

    def potential(data):
        return FunctionPotential(
            value_function=lambda t: np.logaddexp(0, -data @ t).mean(axis=0),
            gradient_function=lambda t: ridge * t - data.T @ (1 / (1 + np.exp(data @ t))) / n,
            smoothness=0.25 + ridge,
        )

    a, steps = 1 / (0.25 + ridge), 60
    runs = [
        run_sgld(
            potential(d),
            np.zeros((p, 20)),
            a / 30,
            30.0,
            steps,
            np.random.default_rng(8),
            keep_steps=tuple(range(61)),
        )
        for d in (rows, other)
    ]
    largest = 0.0
    for k in range(steps + 1):
        gap = np.linalg.norm(runs[0].iterates[k] - runs[1].iterates[k], axis=0).max()
        bound = risk.sgld_coupling_distance(2 / n, a, ridge, k)
        assert gap <= bound + 1e-12
        assert bound <= 2 / n / ridge + 1e-12
        largest = max(largest, gap)
    assert largest > 0.01


def test_geometric_weights():
    assert geometric_weights(0.5, 0.2, 3) == pytest.approx([0.81, 0.9, 1.0])
    assert geometric_weights(0.5, 0.0, 2) == pytest.approx([1.0, 1.0])
    assert geometric_weights([0.5, 1.0], 0.2, 2) == pytest.approx([0.5 * 0.8, 1.0])
    with pytest.raises(InvalidParameter, match="below 1"):
        geometric_weights(5.0, 0.2, 3)


# --- MALA and hit-and-run ----------------------------------------------------------------------------------


def test_mala_on_a_ball():
    """Law of one coordinate against the exact truncated Gaussian; false-alarm rate 1e-3."""
    body = BallSupport(dimension=2, radius=1.0)
    draws = run_mala(
        quadratic([4.0, 4.0]), body, np.zeros((2, 8000)), 0.1, 60, np.random.default_rng(9)
    ).theta
    exact = body.sample_gaussian(np.zeros((2, 8000)), 4.0, np.random.default_rng(10))
    assert stats.ks_2samp(draws[0], exact[0]).pvalue > 1e-3
    with pytest.raises(InvalidParameter, match="inside"):
        run_mala(quadratic([4.0, 4.0]), body, np.full((2, 1), 2.0), 0.1, 1, np.random.default_rng(0))


@pytest.mark.parametrize(
    "body", [BallSupport(dimension=2, radius=1.0), BoxSupport(low=-np.ones(2), high=np.full(2, 0.5))]
)
def test_hit_and_run(body):
    draws = run_hit_and_run(
        quadratic([4.0, 4.0]), body, np.zeros((2, 3000)), 12, np.random.default_rng(11)
    ).theta
    exact = body.sample_gaussian(np.zeros((2, 3000)), 4.0, np.random.default_rng(12))
    assert stats.ks_2samp(draws[0], exact[0]).pvalue > 1e-3
    with pytest.raises(InvalidParameter, match="ball or a box"):
        run_hit_and_run(
            quadratic([1.0]), WholeSpaceSupport(dimension=1), np.zeros((1, 1)), 1, np.random.default_rng(0)
        )


# --- certificates of the thesis ----------------------------------------------------------------------------


def test_mixing_times():
    """Vector 28."""
    assert lc.mixing_time(10, 10, 2, 0.1, both_directions=False) == pytest.approx(11.6893355, rel=1e-7)
    assert lc.mixing_time(10, 10, 2, 0.1) == pytest.approx(26.1512597, rel=1e-7)
    assert lc.mixing_time(100, 100, 10, 0.1) == pytest.approx(190.670944, rel=1e-7)


def test_discretisation_vectors():
    """Vector 29."""
    assert lc.girsanov_divergence(10, 10, 4, 5e-7, 52_290_000) == pytest.approx(0.0230658, rel=1e-3)
    back = lc.girsanov_divergence(10, 10, 4, 5e-7, 52_290_000, "continuous-from-discrete")
    assert back == pytest.approx(0.0307545, rel=1e-3)
    assert lc.underdamped_divergence(10, 10, 4, 0.004, 261.5, 2, 0.1) == pytest.approx(0.0183588, rel=1e-3)
    back = lc.underdamped_divergence(10, 10, 4, 0.004, 261.5, 2, 0.1, "continuous-from-discrete")
    assert back == pytest.approx(0.0244785, rel=1e-3)


@pytest.mark.parametrize(
    ("k", "condition", "order", "over", "under"),
    [(10, 10, 2, 4.83e7, 5.6e4), (100, 100, 2, 1.02e11, 9.9e6), (10, 10, 10, 5.27e9, 1.3e6)],
)
def test_iteration_counts(k, condition, order, over, under):
    """Rows of table B.5."""
    assert lc.n_overdamped_steps(k, condition, order, 0.1) == pytest.approx(over, rel=0.01)
    time = condition * lc.mixing_time(k, condition, order, 0.1)
    assert lc.n_underdamped_steps(k, condition, order, 0.1, time, 2, 1 / condition) == pytest.approx(
        under, rel=0.02
    )


def test_girsanov_bounds_the_exact_path_divergence():
    """Exact path divergences of an Ornstein-Uhlenbeck process from x0 ~ N(0, 1): .1372 and .0905 (amendment 8)."""
    for curvature, eta, steps, order, exact in [(3.0, 0.05, 10, 2, 0.1372), (1.0, 0.1, 10, 3, 0.0905)]:
        bound = lc.girsanov_divergence(1, max(curvature, 1.0 + 1e-9), order, eta, steps)
        assert exact <= bound < math.inf


def test_lipschitz_certificate():
    """Theorem 56: leading order Lambda M^2 tau eta k / (2 (a - 1)) for short steps, linear in time."""
    factor = (2 - 1) * (2 - 0.5)
    short = lc.lipschitz_divergence(10, 3.0, 1e-6, 2.0, 1e-5, 1000)
    assert short == pytest.approx(factor * 9 * 1000 * 1e-10 * 10 / 2, rel=1e-3)
    once, twice = (lc.lipschitz_divergence(10, 3.0, 5.0, 2.0, 1e-3, steps) for steps in (1000, 2000))
    assert twice == pytest.approx(2 * once)
    assert lc.lipschitz_divergence(10, 3.0, 5.0, 2.0, 1.0, 10) == math.inf
    # the exact path divergence of x^2 3 / 2 from 0 (theory file: 0.131), whose slope stays below 12 there
    assert lc.lipschitz_divergence(1, 3.0, 12.0, 2.0, 0.05, 10) > 0.131


def test_certificate_refusals():
    with pytest.raises(AssumptionFailed, match="step_size <= 1/M"):
        lc.girsanov_divergence(10, 10, 4, 0.2, 10)
    with pytest.raises(AssumptionFailed, match="orders"):
        lc.mixing_time(10, 10, 1.2, 0.1)
    with pytest.raises(AssumptionFailed, match="exceed 1"):
        lc.n_overdamped_steps(10, 1.0, 2, 0.1)
    # amendment 8: a start so wide that 2 u v0 >= 1 has no certificate
    assert lc.girsanov_divergence(10, 10, 4, 5e-7, 52_290_000, start_variance=1e12) == math.inf


def test_moment_factor_of_lemma_51():
    """Vector 30."""
    assert thesis_moment_factor(0.01) == pytest.approx(2.0776725, rel=1e-7)
    assert thesis_moment_factor(0.1) == pytest.approx(2.6275650, rel=1e-7)


def test_divergence_of_gaussians():
    """Thesis vector 27, and the stationary law of an unadjusted chain against its own moments."""
    assert lc.gaussian_divergence(2.0, 1.1, 1.0) == pytest.approx(0.0050251679, rel=1e-7)
    assert lc.gaussian_divergence(2.0, 1.0, 1.1) == pytest.approx(0.0041494014, rel=1e-7)
    assert lc.gaussian_divergence(10.0, 1.05, 1.0) == pytest.approx(0.0088180846, rel=1e-7)
    assert lc.gaussian_divergence(20.0, 1.1, 1.0) == math.inf
    x = np.linspace(-14, 14, 200_001)
    ratio = stats.norm.pdf(x, scale=1.1**0.5) ** 2 / stats.norm.pdf(x)
    assert lc.gaussian_divergence(2.0, 1.1, 1.0) == pytest.approx(
        math.log(ratio.sum() * (x[1] - x[0])), rel=1e-6
    )
