"""Exact samplers: closed forms, refusals, and the amendments about anchors, intercepts and envelopes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.problem.problem import Ball, Box, L1Ball, WholeSpace
from dplangevin.sampling import supports
from dplangevin.sampling.envelopes import (
    Anchor,
    fit_envelope,
    logistic_curvature_bounds,
    sample_active_ball,
    sample_elliptical_envelope,
    self_concordance_ratio,
)
from dplangevin.sampling.float_noise import sample_gamma_norm
from dplangevin.sampling.log_concave import sample_adaptive_rejection
from dplangevin.sampling.potential import FunctionPotential
from dplangevin.sampling.rejection import (
    flip_exponential_coins,
    sample_finite_grid,
    sample_isotropic_gaussian,
    sample_quadratic_gaussian,
)
from dplangevin.sampling.supports import BallSupport, BoxSupport, support_of


def quadratic(centre, curvature):
    """curvature |x - centre|^2 / 2."""
    c = np.atleast_1d(np.asarray(centre, float))[:, None]
    return FunctionPotential(
        value_function=lambda x: curvature * np.sum((x - c) ** 2, axis=0) / 2,
        gradient_function=lambda x: curvature * (x - c),
        smoothness=curvature,
        strong_convexity=curvature,
    )


def logistic(rows, labels, beta, ridge):
    signed = np.where(labels > 0, 1.0, -1.0)[:, None] * rows
    largest = np.linalg.norm(rows, axis=1).max()
    return FunctionPotential(
        value_function=lambda t: (
            beta * (np.logaddexp(0, -signed @ t).mean(axis=0) + ridge / 2 * np.sum(t * t, axis=0))
        ),
        gradient_function=lambda t: (
            beta * (ridge * t - signed.T @ (1 / (1 + np.exp(signed @ t))) / len(rows))
        ),
        smoothness=beta * (largest**2 / 4 + ridge),
        strong_convexity=beta * ridge,
        lipschitz=beta * (largest + ridge),
    )


def data_hessian(rows, beta, theta):
    chance = 1 / (1 + np.exp(-rows @ theta))
    return beta * (rows.T * (chance * (1 - chance))) @ rows / len(rows)


# --- finite grids ------------------------------------------------------------------------------------------


def test_finite_grid_law():
    """Chi-square against exp(-score), seed fixed; false-alarm rate 1e-3."""
    scores = np.array([0.0, 0.3, 1.0, 2.5, 4.0]) + 1000
    drawn = sample_finite_grid(scores, 50_000, np.random.default_rng(1))
    chance = np.exp(-(scores - 1000)) / np.exp(-(scores - 1000)).sum()
    assert stats.chisquare(np.bincount(drawn, minlength=5), 50_000 * chance).pvalue > 1e-3


@pytest.mark.parametrize("bits", [1, 3, 53])
def test_coins_are_exact_however_few_bits_come_first(bits):
    """With 1 or 3 leading bits most coins are decided by the exact refinement. False-alarm rate 1e-3."""
    n, gap = 4000, 0.7
    heads = flip_exponential_coins(np.full(n, gap), 0.0, np.random.default_rng(2), bits=bits).sum()
    assert stats.binomtest(int(heads), n, math.exp(-gap)).pvalue > 1e-3


@pytest.mark.parametrize("scores", [[], [[1.0]], [np.nan], [0.0, np.inf]])
def test_finite_grid_refuses(scores):
    with pytest.raises(InvalidParameter, match="scores"):
        sample_finite_grid(scores, 1, np.random.default_rng(0))


# --- one dimension -----------------------------------------------------------------------------------------


def test_adaptive_rejection_truncated_normal():
    """T37: beta = 50, F = (theta - .9)^2 / 2 on [-1, 1]."""
    draws = sample_adaptive_rejection(quadratic(0.9, 50.0), -1, 1, 40_000, np.random.default_rng(3))
    law = stats.truncnorm(-1.9 * math.sqrt(50), 0.1 * math.sqrt(50), 0.9, 1 / math.sqrt(50))
    assert law.mean() == pytest.approx(0.842204, rel=1e-5)
    assert law.var() == pytest.approx(0.0108801, rel=1e-5)
    assert stats.kstest(draws.theta[0], law.cdf).pvalue > 1e-3
    assert draws.n_proposals < 45_000


def test_adaptive_rejection_kink():
    """|x| has no curvature at all; a subgradient is enough."""
    potential = FunctionPotential(
        value_function=lambda x: 7 * np.abs(x[0] - 0.3),
        gradient_function=lambda x: 7 * np.sign(x - 0.3),
        smoothness=math.inf,
    )
    draws = sample_adaptive_rejection(potential, -1, 1, 20_000, np.random.default_rng(4)).theta[0]
    left, right = -np.expm1(-7 * 1.3), -np.expm1(-7 * 0.7)

    def cdf(x):
        below = np.exp(-7 * np.maximum(0.3 - x, 0)) - np.exp(-7 * 1.3)
        return (below + np.where(x > 0.3, -np.expm1(-7 * (x - 0.3)), 0)) / (left + right)

    assert stats.kstest(draws, cdf).pvalue > 1e-3


def test_adaptive_rejection_refuses_a_nonconvex_potential():
    wavy = FunctionPotential(
        value_function=lambda x: 5 * np.cos(6 * x[0]),
        gradient_function=lambda x: -30 * np.sin(6 * x),
        smoothness=180.0,
    )
    with pytest.raises(AssumptionFailed, match="envelope"):
        sample_adaptive_rejection(wavy, -1, 1, 200, np.random.default_rng(0))
    with pytest.raises(InvalidParameter, match="finite"):
        sample_adaptive_rejection(quadratic(0.0, 1.0), -math.inf, 1, 1, np.random.default_rng(0))


# --- bodies ------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    p=st.integers(1, 30),
    radius=st.floats(0.1, 10),
    precision=st.floats(0.01, 1e5),
    far=st.floats(0, 20),
    seed=st.integers(0, 2**32 - 1),
)
def test_ball_draws_stay_inside(p, radius, precision, far, seed):
    rng = np.random.default_rng(seed)
    body = BallSupport(dimension=p, radius=radius)
    linear = rng.standard_normal((p, 3))
    linear *= far * radius * precision / np.linalg.norm(linear, axis=0)
    x = body.sample_gaussian(linear, precision, rng)
    assert x.shape == (p, 3)
    assert np.all(np.isfinite(x))
    assert Ball(radius).contains(x)
    low, high = body.log_mass_bounds(linear[:, 0], precision)
    assert low <= high <= low + 5e-3


def test_ball_mass_closed_forms():
    volume = math.log(math.pi**2.5 / math.gamma(3.5) * 2.0**5)
    low, high = BallSupport(dimension=5, radius=2.0).log_mass_bounds(np.zeros(5), 0.0)
    assert low <= volume <= high
    chi = stats.chi2(5).cdf(4 * 3.0)
    low, high = BallSupport(dimension=5, radius=2.0).log_mass_bounds(np.zeros(5), 3.0)
    assert low <= 2.5 * math.log(2 * math.pi / 3) + math.log(chi) <= high
    shifted = stats.ncx2(7, 3.0 * 0.5**2).cdf(3.0 * 1.2**2)
    low, high = BallSupport(dimension=7, radius=1.2).log_mass_bounds(3.0 * 0.5 * np.eye(7)[0], 3.0)
    exact = 3.5 * math.log(2 * math.pi / 3) + 3.0 * 0.25 / 2 + math.log(shifted)
    assert low <= exact <= high <= low + 1e-3


@pytest.mark.parametrize("precision", [0.0, 1e-12, 1e-6, 0.5, 400.0])
@pytest.mark.parametrize("slope", [0.0, 3.0, -700.0])
def test_box_mass(precision, slope):
    t = np.linspace(-0.5, 1.5, 400_001)
    exponent = slope * t - precision * t**2 / 2
    exact = exponent.max() + math.log(np.trapezoid(np.exp(exponent - exponent.max()), t))
    low, high = BoxSupport(low=np.array([-0.5]), high=np.array([1.5])).log_mass_bounds(
        np.array([slope]), precision
    )
    assert low - 1e-5 <= exact <= high + 1e-5
    assert high <= low + 5e-3


def test_interval_mass_does_not_cancel():
    """b^2 / precision is 1e14 here, the log mass about 1e4: a closed form in log_ndtr would lose two digits."""
    low, high = BoxSupport(low=-np.ones(1), high=np.ones(1)).log_mass_bounds(np.array([1e4]), 1e-6)
    assert low <= 1e4 - math.log(1e4) <= high + 1e-6
    assert high <= low + 5e-3


def test_log_lower_gamma_below_underflow():
    mpmath = pytest.importorskip("mpmath")
    for shape, x in [(49.5, 1e-9), (200.0, 0.5), (0.5, 1e-300), (9.5, 3.0)]:
        exact = float(mpmath.log(mpmath.gammainc(shape, 0, x, regularized=True)))
        assert supports.log_lower_gamma(shape, np.array([x]))[0] == pytest.approx(exact, rel=1e-10)


def test_bodies_of_constraints():
    assert support_of(Ball(2.0), 3).diameter == 4
    box = support_of(Box(-1.0, (1.0, 2.0)), 2)
    assert box.diameter == pytest.approx(math.hypot(2, 3))
    assert support_of(WholeSpace(), 4).dimension == 4
    with pytest.raises(InvalidParameter, match="ball or a box"):
        support_of(L1Ball(1.0), 3)
    with pytest.raises(InvalidParameter, match="finite"):
        support_of(Box(-math.inf, 1.0), 2)
    with pytest.raises(InvalidParameter, match="bounded"):
        support_of(WholeSpace(), 2).sample_uniform(1, np.random.default_rng(0))


# --- Gaussians on bodies -----------------------------------------------------------------------------------


def test_quadratic_gaussian_by_rejection():
    precision = np.array([[3.0, 1.0], [1.0, 2.0]])
    body = BallSupport(dimension=2, radius=1.0)
    x = sample_quadratic_gaussian([0.3, -0.2], precision, body, 3000, np.random.default_rng(5))
    y = sample_quadratic_gaussian([0.3, -0.2], precision, body, 3000, np.random.default_rng(6))
    assert stats.ks_2samp(x[0], y[1]).pvalue < 0.01 < stats.ks_2samp(x[0], y[0]).pvalue
    wide = sample_quadratic_gaussian(
        [0.3, -0.2], precision, BallSupport(dimension=2, radius=50.0), 20_000, np.random.default_rng(7)
    )
    np.testing.assert_allclose(wide.mean(axis=1), [0.3, -0.2], atol=0.03)
    np.testing.assert_allclose(np.cov(wide), np.linalg.inv(precision), atol=0.03)
    with pytest.raises(AssumptionFailed, match="after 100 proposals"):
        sample_quadratic_gaussian(
            [50.0, 0.0], precision, body, 1, np.random.default_rng(0), max_proposals=100
        )
    with pytest.raises(InvalidParameter, match="positive definite"):
        sample_quadratic_gaussian([0.0, 0.0], -precision, body, 1, np.random.default_rng(0))
    with pytest.raises(InvalidParameter, match="mean"):
        sample_isotropic_gaussian([0.0], 1.0, body, 1, np.random.default_rng(0))


def test_gamma_norm_moments():
    """n = 3e4, m = .01, eps = 1: scale 2/(m n) and E|z| = .1333 at p = 20, .6667 at p = 100."""
    scale = 2 / (0.01 * 30_000)
    for p, mean in [(20, 0.13333), (100, 0.66667)]:
        z = sample_gamma_norm(p, scale, 20_000, np.random.default_rng(7))
        norms = np.linalg.norm(z, axis=0)
        assert norms.mean() == pytest.approx(mean, rel=0.01)
        assert stats.kstest(norms, stats.gamma(p, scale=scale).cdf).pvalue > 1e-3


# --- envelopes of logistic-type losses ---------------------------------------------------------------------


def test_kappa_values():
    """T36, and the series agrees with the formula where they meet."""
    assert self_concordance_ratio([0.1, 0.5, 1, 2, 4]) == pytest.approx(
        [0.9675, 0.8522, 0.7358, 0.5677, 0.3773], abs=5e-5
    )
    assert float(self_concordance_ratio(1e-3 * (1 - 1e-9))) == pytest.approx(
        float(self_concordance_ratio(1e-3)), rel=1e-9
    )


def test_envelope_needs_the_augmented_row_norm():
    """Amendment 4: with a raw intercept column the row norm is sqrt(2), and kappa(|d|) is no lower bound."""
    row = np.array([1.0, 1.0])
    anchor = 3 * row
    potential = logistic(row[None], np.array([1]), 1.0, 0.0)
    hessian = data_hessian(row[None], 1.0, anchor)
    d = 2 * row / math.sqrt(2)
    x = (anchor + d)[:, None]
    slack = potential.value(x)[0] - potential.value(anchor[:, None])[0]
    slack -= float(potential.gradient(anchor[:, None])[:, 0] @ d)
    bound = lambda norm: float(self_concordance_ratio(norm * np.linalg.norm(d))) * float(d @ hessian @ d) / 2  # noqa: E731
    assert bound(math.sqrt(2)) <= slack < bound(1.0)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), beta=st.floats(1, 500), norm=st.floats(0.3, 3))
def test_self_concordant_bound_holds(seed, beta, norm):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((20, 3))
    rows *= norm / np.linalg.norm(rows, axis=1).max()
    labels = rng.integers(0, 2, 20)
    potential = logistic(rows, labels, beta, 0.01)
    anchor = rng.standard_normal(3)
    quadratic_part = data_hessian(rows, beta, anchor)
    d = rng.standard_normal((3, 50)) * rng.exponential(2, 50)
    gain = potential.value(anchor[:, None] + d) - potential.value(anchor[:, None])
    gain -= potential.gradient(anchor[:, None])[:, 0] @ d
    length = np.linalg.norm(d, axis=0)
    lower = (
        self_concordance_ratio(norm * length) * np.sum(d * (quadratic_part @ d), axis=0) / 2
        + beta * 0.01 * length**2 / 2
    )
    assert np.all(gain >= lower - 1e-9 * beta)


def test_fitted_envelope_satisfies_its_inequality():
    values = np.diag([2.0, 5.0, 40.0])
    for norm in (0.5, 2.0):
        envelope = fit_envelope(values, 1.0, norm)
        assert envelope.shrinkage <= self_concordance_ratio(
            norm * envelope.core / math.sqrt(envelope.values.min())
        )
        inside = fit_envelope(values, 1.0, norm, max_distance=0.2)
        assert inside.log_mass <= envelope.log_mass
    with pytest.raises(AssumptionFailed, match="ridge"):
        fit_envelope(np.zeros((2, 2)), 0.0, 1.0)


def test_envelope_refusals():
    rng = np.random.default_rng(0)
    body = BallSupport(dimension=2, radius=1.0)
    potential, zero = quadratic([0.0, 0.0], 4.0), np.zeros((2, 2))
    with pytest.raises(AssumptionFailed, match="envelope"):
        sample_elliptical_envelope(potential, body, Anchor(np.zeros(2), zero, 400.0, 1.0), 500, rng)
    with pytest.raises(InvalidParameter, match="anchor"):
        sample_elliptical_envelope(potential, body, Anchor(np.full(2, 3.0), zero, 4.0, 1.0), 1, rng)
    with pytest.raises(AssumptionFailed, match="exact minimiser"):
        sample_elliptical_envelope(
            potential,
            supports.WholeSpaceSupport(dimension=2),
            Anchor(np.full(2, 0.1), zero, 4.0, 1.0),
            1,
            rng,
        )
    with pytest.raises(AssumptionFailed, match="after 50 proposals"):
        sample_elliptical_envelope(
            potential, body, Anchor(np.full(2, 0.7), zero, 4.0, 1.0), 10_000, rng, max_proposals=50
        )


def test_reach():
    assert BallSupport(dimension=2, radius=1.0).farthest_distance(np.array([0.6, 0.0])) == pytest.approx(1.6)
    assert BoxSupport(low=np.zeros(2), high=np.ones(2)).farthest_distance(
        np.array([0.2, 1.0])
    ) == pytest.approx(math.hypot(0.8, 1))


def test_active_ball_needs_an_exact_anchor():
    """Amendment 5: norm exactly R, outward slope, and the leftover tangential gradient is paid for."""
    rng = np.random.default_rng(8)
    potential = quadratic([3.0, 0.0], 5.0)
    with pytest.raises(InvalidParameter, match="norm exactly"):
        sample_active_ball(potential, 1.0, Anchor(np.array([0.99, 0.0]), np.zeros((2, 2)), 5.0, 1.0), 1, rng)
    with pytest.raises(AssumptionFailed, match="outwards"):
        sample_active_ball(
            quadratic([0.2, 0.0], 5.0), 1.0, Anchor(np.array([1.0, 0.0]), np.zeros((2, 2)), 5.0, 1.0), 1, rng
        )
    angle = 0.2
    anchor = np.array([math.cos(angle), math.sin(angle)])
    gradient = potential.gradient(anchor[:, None])[:, 0]
    strength = -gradient @ anchor
    tangent = np.array([-math.sin(angle), math.cos(angle)])
    # the old rule ignores <g_T, d_T>: towards the true minimiser exp(-V) exceeds its envelope there
    x = np.array([math.cos(0.0), math.sin(0.0)])
    d = x - anchor
    t, d_tangent = -d @ anchor, d @ tangent
    excess = (
        potential.value(anchor[:, None])[0]
        - potential.value(x[:, None])[0]
        + strength * t
        + 2.5 * d_tangent**2
    )
    leftover = np.linalg.norm(gradient + strength * anchor)
    assert 0 < excess <= leftover
    draws = sample_active_ball(potential, 1.0, Anchor(anchor, np.zeros((2, 2)), 5.0, 1.0), 4000, rng).theta
    exact = sample_isotropic_gaussian([3.0, 0.0], 0.2, BallSupport(dimension=2, radius=1.0), 4000, rng)
    assert stats.ks_2samp(draws[0], exact[0]).pvalue > 1e-3
    assert stats.ks_2samp(draws[1], exact[1]).pvalue > 1e-3


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), norm=st.floats(0.3, 2), radius=st.floats(0.1, 4))
def test_curvature_on_a_ball(seed, norm, radius):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((12, 3))
    rows *= norm / np.linalg.norm(rows, axis=1).max()
    low, mean, high = logistic_curvature_bounds(rows.T @ rows / 12, norm, radius)
    assert low <= mean <= high
    theta = rng.standard_normal(3)
    theta *= radius / np.linalg.norm(theta)
    values = np.linalg.eigvalsh(data_hessian(rows, 1.0, theta))
    assert low <= values[0] + 1e-12
    assert values[-1] <= high + 1e-12
