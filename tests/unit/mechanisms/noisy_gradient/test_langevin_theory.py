"""Langevin and Gibbs theory: the table of claims, and errata as guard tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr
from scipy.stats import norm

from dplangevin.accounting import conversions as cv
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exponential import spec as exponential_spec
from dplangevin.mechanisms.langevin import spec as process
from dplangevin.mechanisms.langevin.spec import LangevinSpec, power_temperatures
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import Composition
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import OptimalShift
from dplangevin.papers import formulas as paper
from dplangevin.problem import risk
from dplangevin.problem.constants import Constants
from dplangevin.sampling.langevin import geometric_weights


def constants(**changes):
    values = {"n": 30_000, "lipschitz": 1.0, "smoothness": 0.26, "strong_convexity": 0.01, "diameter": 2.0}
    return Constants(**{**values, "dimension": 20, **changes})


def bare(delta, m=0.0, smoothness=1.0, diameter=math.inf, convex=True):
    """Constants whose mean gradient has sensitivity `compose_delta`."""
    return Constants(
        n=1, lipschitz=delta / 2, strong_convexity=m, smoothness=smoothness, diameter=diameter, convex=convex
    )


# --- conversions (T1 to T4) --------------------------------------------------------------------------------


def test_gdp_inversion():
    """T1."""
    for epsilon, mu in [(1, 0.236704), (0.5, 0.12411), (2, 0.44833), (4, 0.83786)]:
        assert cv.gdp_mu(epsilon, 1e-6) == pytest.approx(mu, rel=1e-4)
    assert cv.gdp_mu(1, 1e-5) == pytest.approx(0.26805, rel=1e-4)


def test_conversions_are_ordered():
    """T2: mu = .2 at 1e-6."""
    papers = min(a * 0.02 + math.log(1e6) / (a - 1) for a in np.linspace(2, 200, 20_000))
    values = cv.gdp_epsilon(0.2, 1e-6), cv.zcdp_epsilon(0.02, 1e-6), papers
    assert values == pytest.approx((0.834118, 0.899935, 1.071304), rel=1e-4)


def test_bounded_range_curve():
    """T3, against brute force over two-point laws with loss in {t - eps, t}."""
    for epsilon, delta in [(0, 0.244919), (0.25, 0.154698), (0.5, 0.0774047), (0.9, 0.00376284)]:
        assert cv.bounded_range_delta(1.0, epsilon) == pytest.approx(delta, rel=1e-5)
        t = np.linspace(1e-6, 1, 20_001)
        q = (1 - np.exp(t - 1)) / (np.exp(t) - np.exp(t - 1))
        assert np.max(q * np.maximum(np.exp(t) - math.exp(epsilon), 0)) == pytest.approx(delta, rel=1e-4)


def test_bounded_range_is_an_eighth():
    """T4: worst Renyi divergence over order, eps = 1."""
    for order, worst in [(1.01, 0.12328), (2, 0.120115), (5, 0.09984)]:
        t = np.linspace(1e-4, 1 - 1e-4, 20_001)
        q = (1 - np.exp(t - 1)) / (np.exp(t) - np.exp(t - 1))
        moment = q * np.exp(order * t) + (1 - q) * np.exp(order * (t - 1))
        value = np.max(np.log(moment)) / (order - 1) / order
        assert value == pytest.approx(worst, rel=2e-3)
        assert value <= 0.125


# --- utility of the exponential mechanism (T8 to T10, T30) -------------------------------------------------


def test_cone_attains_the_bound():
    """T8: F = |theta|, p = 20, beta = 100, R = 1: the mean excess is p/beta."""
    r = np.linspace(0, 1, 200_001)
    weight = r**19 * np.exp(-100 * r)
    assert np.sum(weight * r) / np.sum(weight) == pytest.approx(0.2, rel=1e-3)
    assert risk.exponential_excess(20, 100) == 0.2
    assert risk.exponential_excess(20, 100, threshold=0.05) == pytest.approx(0.25)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), beta=st.floats(1, 60))
def test_gamma_domination(seed, beta):
    """T9: random max-affine F on the disc: tail below Gamma(2, beta)'s, mean below p/beta."""
    rng = np.random.default_rng(seed)
    grid = np.linspace(-1, 1, 301)
    x = np.stack(np.meshgrid(grid, grid)).reshape(2, -1)
    x = x[:, np.linalg.norm(x, axis=0) <= 1]
    f = np.max(rng.standard_normal((5, 2)) @ x + 0.3 * rng.standard_normal((5, 1)), axis=0)
    f -= f.min()
    weight = np.exp(-beta * f)
    weight /= weight.sum()
    assert np.sum(weight * f) <= risk.exponential_excess(2, beta) * 1.01
    for level in (0.5, 1.0, 2.0, 4.0):
        tail = np.sum(weight[f > level / beta])
        assert tail <= risk.exponential_tail(2, beta, level / beta) * 1.02 + 1e-9


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), beta=st.floats(0.5, 500))
def test_nonconvex_bound(seed, beta):
    """T10: random sinusoids in one dimension."""
    rng = np.random.default_rng(seed)
    x = np.linspace(-1, 1, 20_001)
    f = sum(
        a * np.sin(w * x + s)
        for a, w, s in zip(rng.normal(size=4), (2, 5, 11, 23), rng.uniform(0, 6, 4), strict=True)
    )
    lipschitz = np.max(np.abs(np.gradient(f, x)))
    f -= f.min()
    weight = np.exp(-beta * f)
    assert np.sum(weight * f) / weight.sum() <= risk.nonconvex_excess(1, beta, lipschitz, 2.0) * 1.001


def test_hit_probability():
    """T30 and section 9's values."""
    table = [
        (20, 75, 0.737960),
        (20, 375, 0.946816),
        (100, 375, 0.734294),
        (20, 20, 0.1589),
        (20, 1, 1.5e-19),
    ]
    for p, x, value in table:
        assert risk.hit_probability(p, x) == pytest.approx(value, rel=0.01 if value < 0.1 else 1e-3)
    assert risk.hit_probability(20, 1.0, interior_quadratic=True) == pytest.approx(1.0e-7, rel=0.02)
    assert risk.hit_probability(1, 4.0, interior_quadratic=True) == pytest.approx(0.898336, abs=1e-5)
    assert risk.hit_probability(3, 0.0) == 0.0
    assert 0.999 < risk.hit_probability(3, 1e5) <= 1.0


def test_hit_probability_of_a_quadratic_with_its_minimiser_outside():
    """Amendment 6: (t + 10)^2 / 2 on [0, infinity), beta psi = 4: .8006, below the p/2 formula's .8983."""
    beta, psi = 8.0, 0.5
    t = np.linspace(0, 3, 600_001)
    f = (t + 10) ** 2 / 2 - 50
    weight = np.exp(-beta * np.maximum(f, psi))
    hit = weight[f <= psi].sum() / weight.sum()
    assert hit == pytest.approx(0.8006, abs=2e-4)
    assert risk.hit_probability(1, 4.0) <= hit < risk.hit_probability(1, 4.0, interior_quadratic=True)


@settings(max_examples=100, deadline=None)
@given(p=st.integers(1, 200), x=st.floats(0.01, 500))
def test_hit_probability_is_monotone(p, x):
    """T40."""
    value = risk.hit_probability(p, x)
    assert 0 <= value <= 1
    assert risk.hit_probability(p, x * 1.1) >= value - 1e-12
    assert risk.hit_probability(p + 1, x) <= value + 1e-12


# --- thresholded scores (T11 to T14, T29, T44) -------------------------------------------------------------


def test_gradient_inside_the_set():
    """T11 and E5: F = theta^2/2, psi = .05: the gradient reaches sqrt(2 M psi) = .316228, not .158114."""
    theta = np.linspace(-1, 1, 200_001)
    largest = np.max(np.abs(theta[theta**2 / 2 <= 0.05]))
    here = bare(1e-9, m=1.0, smoothness=1.0)
    allowed = exponential_spec.threshold_sensitivity(here, 0.05, 1.0, interior_minimizers=True)
    assert largest == pytest.approx(0.316228, rel=1e-4)
    assert largest <= allowed
    assert math.sqrt(0.05 / 2) == pytest.approx(0.158114, rel=1e-4)


def test_printed_sensitivity_is_never_used():
    """E5: equation (9) is below 2 L/n + sqrt(2 M psi) where both terms matter."""
    here = constants(n=100, diameter=20.0)
    for psi in (1e-6, 1e-4, 1e-2):
        ours = exponential_spec.threshold_sensitivity(here, psi, 10.0, interior_minimizers=True)
        assert ours == pytest.approx(2 / 100 + math.sqrt(2 * 0.26 * psi))
    psi = 2 * (1 / 100) ** 2 / 0.26
    assert paper.paper_threshold_sensitivity(1.0, 100, 0.26, psi) < exponential_spec.threshold_sensitivity(
        here, psi, 10.0, interior_minimizers=True
    )


def _pair_thresholded_divergence(beta, psi, shift, order):
    width = 14 / math.sqrt(beta) + order * shift
    t = np.linspace(-width, width, 40_001)
    exponents = [-beta * np.maximum((t - centre) ** 2 / 2, psi) for centre in (0.0, shift)]
    first, second = (e - logsumexp(e) for e in exponents)
    return logsumexp(order * first + (1 - order) * second) / (order - 1)


def test_thresholded_gibbs():
    """T12: F = (theta - c)^2/2, shift .05: worst R_a/a .028572 and .227136, rho 3.646 and 91.15; psi = 0: .025."""
    here = bare(0.05, m=1.0, smoothness=1.0)
    orders = np.linspace(1.01, 12, 60)
    for beta, worst, rho in [(20, 0.028572, 3.646), (100, 0.227136, 91.15)]:
        measured = max(_pair_thresholded_divergence(beta, 0.05, 0.05, a) / a for a in orders)
        assert measured == pytest.approx(worst, rel=2e-3)
        sensitivity = exponential_spec.threshold_sensitivity(here, 0.05, 10.0, interior_minimizers=True)
        c = exponential_spec.log_sobolev_constant(beta, 1.0, 0.05)
        bound = exponential_spec.log_sobolev_guarantee(here, beta, sensitivity, c).parts[0].rho
        assert bound == pytest.approx(rho, rel=1e-3)
        assert measured <= bound
    exact = (
        exponential_spec.log_sobolev_guarantee(
            here, 20.0, 0.05, exponential_spec.log_sobolev_constant(20.0, 1.0)
        )
        .parts[0]
        .rho
    )
    assert exact == pytest.approx(0.025, rel=1e-6)
    assert _pair_thresholded_divergence(20, 0.0, 0.05, 2) / 2 == pytest.approx(0.025, rel=1e-6)


def test_thresholded_gibbs_takes_the_smaller_bound():
    here = constants()
    loose = exponential_spec.thresholded_gibbs_guarantee(here, 7500.0, 0.05, 1.01, interior_minimizers=True)
    assert loose.kind == "bounded-range"
    sharp = exponential_spec.thresholded_gibbs_guarantee(here, 7500.0, 0.0, 1.01, interior_minimizers=True)
    assert sharp.kind == "rdp"
    assert sharp.parts[0].rho == pytest.approx(0.057735**2 / 2, rel=1e-4)
    worse = exponential_spec.thresholded_gibbs_guarantee(
        here, 7500.0, 0.0, 1.01, interior_minimizers=True, minimum_error=1e-4
    )
    assert worse.epsilon(1e-6) > sharp.epsilon(1e-6)


@settings(max_examples=200, deadline=None)
@given(
    st.floats(0.01, 20.0),
    st.floats(1e-4, 0.3),
    st.floats(1e-3, 1.0),
    st.floats(1.0, 50.0),
    st.integers(10, 10**7),
)
def test_theorem_2_7_pays_for_draws_that_miss(x, psi, m, condition, n):
    """rho >= x e^x (x = beta psi <= 1) and e x^2 beyond, for every n: a hit bound of 1/2 costs epsilon 14 at 1e-6."""
    here = Constants(n=n, lipschitz=1.0, smoothness=m * condition, strong_convexity=m, diameter=2 / m)
    full = max(2.0, math.sqrt(2 * m * psi))  # some point has F = F* + psi
    steep = exponential_spec.threshold_sensitivity(here, psi, full, interior_minimizers=True)
    rho = (
        exponential_spec.log_sobolev_guarantee(
            here, x / psi, steep, exponential_spec.log_sobolev_constant(x / psi, m, psi)
        )
        .parts[0]
        .rho
    )
    assert rho >= (x * math.exp(x) if x <= 1 else math.e * x * x) * (1 - 1e-9)
    assert risk.hit_probability(1, 0.999) < 0.5 < risk.hit_probability(1, 1.001)
    assert cv.zcdp_epsilon(math.e, 1e-6) > 13


@pytest.mark.parametrize("beta", [3.0, 60.0])
@pytest.mark.parametrize("psi", [0.0, 0.02, 0.3])
def test_thresholded_laws_of_neighbours_stay_close(beta, psi):
    """The largest distance of quantiles is the smallest of all couplings: at most sqrt(2 psi/m) + Delta/m, L = 1."""
    t, m, gap = np.linspace(-4, 4, 160_001), 0.5, 0.2
    bound = risk.thresholded_stability(1.0, m, round(2 / gap), psi)
    worst = 0.0
    for bend in (0.0, 0.3, 1.0):
        for corner in (-0.2, 0.0, 0.4):
            for tilt in (gap * t, gap * np.abs(t - 0.3)):  # gradients differ by at most Delta
                base = m * t**2 / 2 + bend * np.maximum(t - corner, 0)
                quantiles = []
                for score in (base, base + tilt):
                    law = np.exp(-beta * np.maximum(score - score.min() - psi, 0))
                    total = np.cumsum(law) / law.sum()
                    quantiles.append(np.interp(np.linspace(1e-6, 1 - 1e-6, 4001), total, t))
                worst = max(worst, float(np.abs(quantiles[0] - quantiles[1]).max()))
    assert 0.2 * bound < worst <= bound * (1 + 1e-3)


def test_boundary_minimiser():
    """T13 and E6: F = theta on [0, 1]: the thresholded gradient jumps by 1 although M = 0."""
    here = bare(1e-6, smoothness=1e-9, diameter=1.0)
    assert exponential_spec.threshold_sensitivity(here, 0.1, 1.0, interior_minimizers=False) == 1.0


def test_thresholds_need_convexity():
    """Amendment 3: 6 x^2 (1 - x^2) + .002 x^2 -+ 2e-4 x: the true sensitivity is 12, the formula says .49."""
    x = np.linspace(-1, 1, 400_001)
    fields = []
    for sign in (-1, 1):
        f = 6 * x**2 * (1 - x**2) + 0.002 * x**2 + sign * 2e-4 * x
        slope = 12 * x - 24 * x**3 + 0.004 * x + sign * 2e-4
        fields.append(np.where(f > f.min() + 0.002, slope, 0.0))
    formula = 4e-4 + math.sqrt(2 * 60 * 0.002)
    assert formula == pytest.approx(0.49, abs=0.005)
    assert np.max(np.abs(fields[0] - fields[1])) > 10
    with pytest.raises(AssumptionFailed, match="not convex"):
        exponential_spec.threshold_sensitivity(
            bare(4e-4, smoothness=60.0, diameter=2.0, convex=False), 0.002, 12.0, True
        )


def test_log_sobolev_constants():
    assert exponential_spec.log_sobolev_constant(10, 0.5) == 5.0
    assert exponential_spec.log_sobolev_constant(10, 0.5, 0.05) == pytest.approx(5 * math.exp(-0.5))
    assert exponential_spec.log_sobolev_constant(10, 0.5, 0.3) == pytest.approx(0.5 / (math.e * 0.3))
    assert exponential_spec.log_sobolev_constant(10, 0.5, 0.1) == pytest.approx(0.5 / (math.e * 0.1))
    assert exponential_spec.log_sobolev_constant(10, 0.5, 0.05, smoothing=0.01) == pytest.approx(
        5 * math.exp(-0.6)
    )


def test_smoothed_threshold():
    """T14: F = theta^2/2, psi = .05, lambda = .05: curvature 3.0546 <= 6.0463, difference .0069279."""
    edge, lam = math.sqrt(0.1), 0.05
    theta = edge * np.linspace(-3, 3, 6001)
    z, w = np.polynomial.hermite_e.hermegauss(101)
    w = w / w.sum()
    # closed form: E max(X^2/2, .05), X ~ N(theta, lam^2)
    a, b = (-edge - theta) / lam, (edge - theta) / lam
    inside = ndtr(b) - ndtr(a)
    second = (theta**2 + lam**2) * (1 - inside) + lam * (
        (theta + edge) * norm.pdf(b) - (theta - edge) * norm.pdf(a)
    )
    smooth = second / 2 + 0.05 * inside
    check = np.maximum((theta[:, None] + lam * z) ** 2 / 2, 0.05) @ w
    assert smooth == pytest.approx(check, abs=1e-4)
    curvature = np.max(np.gradient(np.gradient(smooth, theta), theta)[5:-5])
    assert curvature == pytest.approx(3.0546, rel=1e-3)
    assert curvature <= 1 + 2 * math.sqrt(0.05 / math.pi) / lam == pytest.approx(6.0463, rel=1e-4)
    difference = smooth - np.maximum(theta**2 / 2, 0.05)
    assert np.max(difference) == pytest.approx(0.0069279, rel=1e-3)
    assert np.min(difference) >= -1e-12


def test_threshold_stability():
    """T29: thresholded quadratics psi = .02 at distance .05: monotone coupling moves .0500, bound .85."""
    t = np.linspace(-2, 2, 400_001)
    quantiles = []
    for centre in (0.0, 0.05):
        weight = np.exp(-50 * np.maximum((t - centre) ** 2 / 2, 0.02))
        quantiles.append(np.interp(np.linspace(1e-6, 1 - 1e-6, 2001), np.cumsum(weight) / weight.sum(), t))
    assert np.max(np.abs(quantiles[0] - quantiles[1])) == pytest.approx(0.05, rel=1e-3)


def test_ramp_sensitivity():
    """T44: (theta - c)^2/2 on [-1, 1], psi = tau = .05: .3758, .04867, .004986 against 16.2, 1.62, .162."""
    theta = np.linspace(-1, 1, 20_001)
    for n, measured, bound in [(20, 0.3758, 16.2), (200, 0.04867, 1.62), (2000, 0.004986, 0.162)]:
        worst = 0.0
        for base in np.linspace(-1, 1 - 2 / n, 41):
            slopes = [
                np.clip(((theta - c) ** 2 / 2 - 0.05) / 0.05, 0, 1) * (theta - c)
                for c in (base, base + 2 / n)
            ]
            worst = max(worst, np.max(np.abs(slopes[0] - slopes[1])))
        assert worst == pytest.approx(measured, rel=2e-3)
        here = Constants(n=n, lipschitz=2.0, smoothness=1.0, strong_convexity=1.0, diameter=2.0)
        ours = exponential_spec.ramp_sensitivity(here, 0.05, 2.0)
        assert worst <= ours == pytest.approx(bound, rel=1e-9)


# --- Gibbs law (T39, T43, T47) -----------------------------------------------------------------------------


def test_gibbs_temperature():
    """T39: n = 3e4, m = .01, (1, 1e-6): 126065.2."""
    mu = cv.gdp_mu(1.0, 1e-6)
    beta = exponential_spec.gibbs_temperature(constants(), mu)
    assert beta == pytest.approx(126065.2, rel=1e-6)
    assert exponential_spec.gibbs_guarantee(constants(), beta).epsilon(1e-6) <= 1.0
    assert 20 / beta == pytest.approx(1.586e-4, rel=1e-3)


def test_gibbs_refusals():
    with pytest.raises(AssumptionFailed, match="ridge"):
        exponential_spec.gibbs_guarantee(constants(strong_convexity=0.0), 1.0)
    with pytest.raises(AssumptionFailed, match="not convex"):
        exponential_spec.gibbs_guarantee(constants(convex=False), 1.0)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), beta=st.floats(1, 100), m=st.floats(0.1, 2), delta=st.floats(0.01, 0.5)
)
def test_gibbs_gdp_on_an_interval(seed, beta, m, delta):
    """T43: strongly convex pairs on [0, 1] with a delta-Lipschitz gap: every hockey stick below GDP's."""
    rng = np.random.default_rng(seed)
    x = (np.arange(20_000) + 0.5) / 20_000
    f = m * (x - rng.uniform(-0.5, 1.5)) ** 2 / 2 + np.max(
        rng.standard_normal((4, 1)) * x + 0.3 * rng.standard_normal((4, 1)), axis=0
    )
    kink = rng.uniform(0, 1)
    # a convex delta-Lipschitz gap keeps the neighbour strongly convex
    gap = delta * np.abs(x - kink) if rng.random() < 0.5 else rng.choice([-1, 1]) * delta * x
    p, q = np.exp(-beta * (f - f.min())), np.exp(-beta * (f + gap - (f + gap).min()))
    p, q = p / p.sum(), q / q.sum()
    mu = exponential_spec.gibbs_guarantee(bare(delta, m=m, smoothness=m, diameter=1.0), beta).mu
    for epsilon in np.linspace(0, 3 * mu + mu**2, 12):
        for a, b in ((p, q), (q, p)):
            measured = np.sum(np.maximum(a - math.exp(epsilon) * b, 0))
            assert measured <= cv.gdp_delta(mu, epsilon) * 1.01 + 1e-7


def test_regularised_gibbs():
    """T47: n = 3e4, r = 1, p = 20, (1, 1e-6): ERM 1.781e-3, SCO .011684."""
    mu, delta = cv.gdp_mu(1.0, 1e-6), 2 / 30_000
    ridge, bound = risk.regularized_gibbs_ridge(20, mu, delta, 1.0)
    assert bound == pytest.approx(1.781e-3, rel=1e-3)
    assert bound == pytest.approx(2 * math.sqrt(2) * math.sqrt(20) / (mu * 30_000), rel=1e-9)
    assert 20 * delta**2 / (ridge * mu**2) + ridge / 2 == pytest.approx(bound, rel=1e-9)
    ridge, bound = risk.regularized_gibbs_ridge(20, mu, delta, 1.0, stability=2 / 30_000)
    assert bound == pytest.approx(0.011684, rel=1e-3)
    assert 20 * delta**2 / (ridge * mu**2) + ridge / 2 + risk.gibbs_stability(
        1.0, ridge, 30_000
    ) == pytest.approx(bound)


def test_regularised_exponential():
    """Section 3: n = 3e4, R = 1: .01421 (p = 20), .02488 (p = 100)."""
    ridge = risk.regularized_exponential_ridge(1.0, 1.0, 30_000)
    for p, value in [(20, 0.01421), (100, 0.02488)]:
        assert risk.regularized_exponential_excess(p, 7500, ridge, 1.0, 1.0, 30_000) == pytest.approx(
            value, rel=1e-3
        )


# --- the process (T15 to T20, T40) -------------------------------------------------------------------------


def test_autoregression_is_exact():
    """T15, T17: beta = 50, m = M = .3, Delta = .05: the last iterate is Gaussian and its mu is the formula's."""
    here = bare(0.05, m=0.3, smoothness=0.3)
    for eta, steps, value in [(0.01, 7, 0.44530078), (0.05, 200, 0.51031036)]:
        a = eta * 50
        keep = 1 - a * 0.3
        shift = a * 0.05 * sum(keep**j for j in range(steps))
        exact = shift / math.sqrt(2 * eta * sum(keep ** (2 * j) for j in range(steps)))
        assert exact == pytest.approx(value, rel=1e-6)
        assert process.sgld_last_iterate_guarantee(here, 50, eta, steps).mu == pytest.approx(exact, rel=1e-6)
    trajectory = process.sgld_trajectory_guarantee(here, 50, 0.01, 7).mu
    assert trajectory == pytest.approx(0.467707, rel=1e-5)
    assert trajectory >= 0.445301


def test_tanh_limit():
    """T16."""
    here = bare(0.05, m=0.3, smoothness=0.3)
    for eta, value in [(0.01, 0.59721), (1e-3, 0.61250), (1e-4, 0.61396)]:
        assert process.sgld_last_iterate_guarantee(here, 50, eta, round(0.2 / eta)).mu == pytest.approx(
            value, rel=1e-4
        )
    assert process.langevin_last_iterate_guarantee(here, 50, 0.2).mu == pytest.approx(0.61412, rel=1e-4)


def test_diameter_bound():
    """T19 (amended): beta = 20, Delta = .1, diam 2, eta = .02: 1.4142, 2.0, 2.8284, then no more."""
    here = bare(0.1, smoothness=0.3, diameter=2.0)
    for steps, value in [(50, 1.4142), (100, 2.0), (200, 2.8284), (10_000, 2.8284), (math.inf, 2.8284)]:
        assert process.sgld_last_iterate_guarantee(here, 20, 0.02, steps).mu == pytest.approx(value, rel=1e-4)
    assert math.sqrt(2 * 20 * 0.1 * 2) == pytest.approx(2.8284, rel=1e-4)


def test_ornstein_uhlenbeck_against_every_bound():
    """T20: beta = 40, m = .5, Delta = .1 (values are rho = mu^2/2): T = .05 and T = 1."""
    here = bare(0.1, m=0.5, smoothness=0.5)
    for time, exact, tanh, path, printed in [
        (0.05, 0.15983, 0.18485, 0.2, 0.31478),
        (1.0, 0.4, 0.4, 4.0, 0.79996),
    ]:
        # start N(0, 1/(beta m)): the law stays at that variance and its mean moves
        rate = 40 * 0.5
        start_exact = (0.1 / 0.5 * -math.expm1(-rate * time)) ** 2 / 2 * rate
        assert start_exact == pytest.approx(exact, rel=2e-3)
        last = process.langevin_last_iterate_guarantee(here, 40, time).mu ** 2 / 2
        whole = process.langevin_trajectory_guarantee(here, 40**2 * time).mu ** 2 / 2
        assert last == pytest.approx(tanh, rel=1e-3)
        assert whole == pytest.approx(path, rel=1e-6)
        theirs = paper.paper_last_iterate_divergence(1.0, 40, 0.1, 0.5, time)
        assert theirs == pytest.approx(printed, rel=1e-3)
        assert start_exact <= last * (1 + 1e-6)
        assert last <= min(whole, theirs)


def test_projected_chain_against_the_bound():
    """T18: 1-D projected logistic chains, beta = 20, eta = .02: hockey sticks within GDP; mu .2, .4441, .9648."""
    delta, ridge, beta, eta, radius = 0.1, 0.2, 20.0, 0.02, 1.0
    here = Constants(
        n=1, lipschitz=delta / 2, strong_convexity=ridge, smoothness=ridge + 0.25, diameter=2 * radius
    )
    x = np.linspace(-radius, radius, 801)
    sticks = {}
    for steps, value in [(1, 0.2), (5, 0.4441), (50, 0.9648)]:
        mu = process.sgld_last_iterate_guarantee(here, beta, eta, steps).mu
        assert mu == pytest.approx(value, rel=2e-3)
        sticks[steps] = mu
    laws = [_projected_law(x, g, beta, eta, ridge) for g in (0.0, delta)]
    for steps, mu in sticks.items():
        p, q = (law[steps] for law in laws)
        ratio = max(
            np.sum(np.maximum(a - math.exp(e) * b, 0)) / cv.gdp_delta(mu, e)
            for e in (0.0, 0.05, 0.2, 0.5)
            for a, b in ((p, q), (q, p))
        )
        assert ratio <= 1.002
    assert ratio < 0.9


def _projected_law(x, gap, beta, eta, ridge):
    """Laws of the chain at steps 1, 5, 50 on the grid (edge atoms included), start at 0."""
    gradient = 0.25 * np.tanh(x) + ridge * x + gap - 0.05
    mean = x - eta * beta * gradient
    edges = np.concatenate([[-np.inf], (x[1:] + x[:-1]) / 2, [np.inf]])
    kernel = np.diff(ndtr((edges[None] - mean[:, None]) / math.sqrt(2 * eta)), axis=1)
    law = np.zeros(x.size)
    law[np.argmin(np.abs(x))] = 1
    kept = {}
    for step in range(1, 51):
        law = law @ kernel
        kept[step] = law
    return kept


@settings(max_examples=30, deadline=None)
@given(
    beta=st.floats(1, 1e4),
    eta=st.floats(1e-6, 1e-3),
    steps=st.integers(1, 2000),
    delta=st.floats(1e-5, 1e-1),
    m=st.just(0.0) | st.floats(1e-9, 1),
    grow=st.floats(1.01, 3),
    diameter=st.sampled_from([1.0, 10.0, math.inf]),
)
def test_monotone(beta, eta, steps, delta, m, grow, diameter):
    """T40: the trajectory's mu grows with beta, eta, K, Delta; the last iterate's with K and stays below Gibbs'."""
    if beta * eta * 1.5 > 1:
        return
    here = bare(delta, m=m, smoothness=1.5, diameter=diameter)
    mu = process.sgld_trajectory_guarantee(here, beta, eta, steps).mu
    assert process.sgld_trajectory_guarantee(here, beta * grow, eta, steps).mu >= mu
    assert process.sgld_trajectory_guarantee(here, beta, eta * grow, steps).mu >= mu
    assert process.sgld_trajectory_guarantee(here, beta, eta, steps + 1).mu >= mu
    assert (
        process.sgld_trajectory_guarantee(bare(delta * grow, m=m, smoothness=1.5), beta, eta, steps).mu >= mu
    )
    last = process.sgld_last_iterate_guarantee(here, beta, eta, steps).mu
    assert last <= mu * (1 + 1e-9)
    assert process.sgld_last_iterate_guarantee(here, beta, eta, steps + 50).mu >= last * (1 - 1e-9)
    if m > 0:
        assert last <= exponential_spec.gibbs_guarantee(here, beta).mu * (1 + 1e-9)


def test_process_details():
    here = bare(0.05, m=0.3, smoothness=0.3)
    per_step = process.sgld_trajectory_guarantee(here, [50.0, 100.0], [0.01, 0.02], 2).mu
    assert per_step == pytest.approx(0.05 * math.sqrt((50**2 * 0.01 + 100**2 * 0.02) / 2), rel=1e-6)
    beta = process.sgld_trajectory_temperature(here, 0.5, 0.01, 100)
    assert process.sgld_trajectory_guarantee(here, beta, 0.01, 100).mu <= 0.5
    assert process.sgld_trajectory_guarantee(here, beta * 1.001, 0.01, 100).mu > 0.5
    under = process.underdamped_trajectory_guarantee(here, 1.0, 2.0, 0.5, 3.0).mu
    assert under == pytest.approx(0.05 * math.sqrt(3.0 * 0.5 / 4), rel=1e-6)
    assert process.langevin_last_iterate_guarantee(bare(0.1, smoothness=1.0), 3.0, 0.5).mu == pytest.approx(
        process.langevin_trajectory_guarantee(bare(0.1), 9 * 0.5).mu, rel=1e-9
    )


@settings(max_examples=40, deadline=None)
@given(
    beta=st.floats(5, 500),
    a=st.floats(0.05, 1.2),
    steps=st.integers(1, 300),
    m=st.sampled_from([0.0, 0.01, 0.3]),
    diameter=st.sampled_from([0.5, 4.0, math.inf]),
)
def test_agrees_with_the_noisy_gradient_theorems(beta, a, steps, m, diameter):
    """SGLD is noisy gradient descent with step a = eta beta and noise sqrt(2 eta)/a on the gradient."""
    here = Constants(n=50, lipschitz=1.0, strong_convexity=m, smoothness=m + 1.0, diameter=diameter)
    eta = a / beta
    spec = NoisyGradientSpec(step_size=a, noise_std=math.sqrt(2 * eta) / a, n_steps=steps)
    whole = Composition().certify(here, spec).mu
    assert process.sgld_trajectory_guarantee(here, beta, eta, steps).mu == pytest.approx(whole, rel=1e-6)
    other = OptimalShift().certify(here, spec).mu
    assert process.sgld_last_iterate_guarantee(here, beta, eta, steps).mu >= other * (1 - 1e-6)
    if math.isinf(diameter):
        assert process.sgld_last_iterate_guarantee(here, beta, eta, steps).mu == pytest.approx(
            other, rel=1e-6
        )


def test_release_modes():
    """T41: the guarantee names what it covers; averaging and projecting change nothing."""
    here = bare(0.05, m=0.3, smoothness=0.3)
    assert process.sgld_last_iterate_guarantee(here, 50, 0.01, 7).release == "last-iterate"
    assert process.sgld_trajectory_guarantee(here, 50, 0.01, 7).release == "trajectory"
    boxed = bare(0.05, m=0.3, smoothness=0.3, diameter=1.0)
    assert (
        process.sgld_trajectory_guarantee(boxed, 50, 0.01, 7).mu
        == process.sgld_trajectory_guarantee(here, 50, 0.01, 7).mu
    )
    assert any(
        "only the last" in word for word in process.sgld_last_iterate_guarantee(here, 50, 0.01, 7).assumptions
    )
    assert any(
        "ideal" in word or "exactly" in word
        for word in process.langevin_trajectory_guarantee(here, 1.0).assumptions
    )


def test_process_refusals():
    with pytest.raises(AssumptionFailed, match=r"contraction.*2/M"):
        process.sgld_last_iterate_guarantee(bare(0.1, m=0.1, smoothness=1.0), 100, 0.05, 10)
    with pytest.raises(AssumptionFailed, match="not convex"):
        process.sgld_last_iterate_guarantee(bare(0.1, convex=False), 1, 0.1, 10)
    with pytest.raises(AssumptionFailed, match="projection"):
        process.sgld_last_iterate_guarantee(
            Constants(n=1, lipschitz=1.0, smoothness=1.0, diameter=1.0, projection_error=1e-6), 1, 0.1, 10
        )
    assert process.sgld_trajectory_guarantee(bare(0.1, convex=False), 1, 0.1, 10).mu > 0
    with pytest.raises(AssumptionFailed, match=r"no finite bound.*ridge"):
        process.sgld_last_iterate_guarantee(bare(0.1), 1, 0.1, math.inf)
    with pytest.raises(AssumptionFailed, match="no finite bound"):
        process.langevin_last_iterate_guarantee(bare(0.1), 1, math.inf)
    with pytest.raises(InvalidParameter, match="step_size"):
        process.sgld_trajectory_guarantee(bare(0.1), 1, -0.1, 10)
    with pytest.raises(InvalidParameter, match="one per step"):
        process.sgld_trajectory_guarantee(bare(0.1), [1.0, 2.0], 0.1, 3)


# --- errata (T21 to T23) -----------------------------------------------------------------------------------


def test_lemma_3_1_is_false_and_unused():
    """T21, E7: calibrated to (1, 1e-6) it has delta 8.263e-4 at eps 1, eps 1.67195 at 1e-6."""
    here = constants()
    beta = paper.paper_sgld_temperature(1.0, 1e-6, 2 / 30_000, 1e-5, 300)
    broken = process.sgld_trajectory_guarantee(here, beta, 1e-5, 300)
    assert broken.delta(1.0) == pytest.approx(8.263e-4, rel=1e-3)
    assert broken.epsilon(1e-6) == pytest.approx(1.67195, rel=1e-4)
    ours = process.sgld_trajectory_temperature(here, cv.gdp_mu(1.0, 1e-6), 1e-5, 300)
    assert ours < beta / 1.5
    safe = paper.safe_sgld_temperature(1.0, 1e-6, 2 / 30_000, 1e-5, 300)
    assert process.sgld_trajectory_guarantee(here, safe, 1e-5, 300).epsilon(1e-6) <= 1.0


def test_equations_34_and_43():
    """T22, E9, E10: (34) at (1, 1e-6) is really .54505; (43) first fails at 8.35."""
    beta = paper.paper_convex_temperature(1.0, 1e-6, 30_000, 1.0, 0.1)
    path = process.langevin_trajectory_guarantee(constants(), beta**2 * 0.1)
    assert path.epsilon(1e-6) == pytest.approx(0.54505, rel=1e-4)

    def excess(epsilon, delta):
        integral = paper.paper_squared_integral(epsilon, delta, 30_000, 1.0)
        return process.langevin_trajectory_guarantee(constants(), integral).epsilon(delta) - epsilon

    for delta, first in [(1e-6, 8.35), (1e-3, 7.0), (1e-2, 6.25)]:
        assert brentq(lambda e, d=delta: excess(e, d), 2, 12) == pytest.approx(first, abs=0.06)
    noise = paper.paper_dp_sgd_noise(1.0, 1e-6, 1.0, 100)
    assert cv.gdp_epsilon(2 * math.sqrt(100) / noise, 1e-6) == pytest.approx(0.790, rel=2e-3)


def test_theorem_2_7_needs_a_square():
    """T23, E11: c = 100, nominal (.01, 1e-6): delta = 6.654e-5. Ours never uses it."""
    here = constants()
    beta = paper.paper_gibbs_temperature(0.01, 1e-6, 0.01, 1.0, 30_000)
    assert exponential_spec.gibbs_guarantee(here, beta).delta(0.01) == pytest.approx(6.654e-5, rel=1e-3)
    ours = [exponential_spec.gibbs_temperature(here, cv.gdp_mu(e, 1e-6)) for e in (0.01, 0.001)]
    assert math.log10(ours[0] / ours[1]) > 1.4


def test_equation_10_and_long_time_reference():
    """Equation (10) is far below ours; lemma I.1 decays to 4/3 of the stationary divergence."""
    mu, time = cv.gdp_mu(1.0, 1e-6), 0.147
    beta = paper.paper_threshold_temperature(1.0, 5e-7, 1.0, 30_000, 0.26, 0.0, time)
    assert beta < process.sgld_trajectory_temperature(constants(), mu, time / 1000, 1000)
    late = paper.paper_long_time_divergence(2, 40, 0.5, 1.0, 3, 1.0, 100.0, 0.3)
    assert late == pytest.approx(0.4, rel=1e-6)
    assert paper.paper_long_time_divergence(2, 40, 0.5, 1.0, 3, 1.0, 1e-6, 0.3) == math.inf


# --- risk (T24 to T27, T33, T38, T45, T48) -----------------------------------------------------------------


def test_time_average():
    """T24: OU m = .5, beta = 40, p = 3, T = .2, |theta_0| = 1: mean loss .064054 <= .1375."""
    rate, t = 20.0, np.linspace(0, 0.2, 200_001)
    second = np.exp(-2 * rate * t) + 3 / rate * -np.expm1(-2 * rate * t)
    assert np.trapezoid(0.25 * second, t) / 0.2 == pytest.approx(0.064054, rel=1e-4)
    assert risk.langevin_average_excess(3, 40, 1.0, 0.2) == pytest.approx(0.1375)


def test_weighted_average():
    """T25: F(weighted average) .020581 <= .079664; the general spec agrees at constant beta."""
    rate, time = 20.0, 0.2
    t = np.linspace(0, time, 2001)
    weight = rate * np.exp(rate * t) / math.expm1(rate * time)
    mean = np.trapezoid(weight * np.exp(-rate * t), t)
    gap = np.abs(t[:, None] - t[None])
    covariance = (np.exp(-rate * gap) - np.exp(-rate * (t[:, None] + t[None]))) / rate
    variance = np.trapezoid(np.trapezoid(covariance * weight[None] * weight[:, None], t, axis=1), t)
    assert 0.25 * (mean**2 + 3 * variance) == pytest.approx(0.020581, rel=1e-3)
    bound = risk.langevin_weighted_excess(3, 40, 1.0, time, 0.5)
    assert bound == pytest.approx(0.079664, rel=1e-4)


def test_discrete_weighted_average():
    """Curvatures (.2, .6, 1), beta = 40, a = .5, K = 120; stationary .0445304 <= .15."""
    h, start = np.array([0.2, 0.6, 1.0]), np.array([1.0, -1.0, 0.5])
    a, beta, steps, m = 0.5, 40.0, 120, 0.2
    w = (1 - a * m) ** -np.arange(1.0, steps + 1)
    w /= w.sum()
    value = 0.0
    for j in range(3):
        keep = 1 - a * h[j]
        mean = start[j] * np.sum(w * keep ** np.arange(1, steps + 1))
        # the average as a sum over noises: the noise of step s enters the points after steps t >= s with keep^(t-s)
        response = np.zeros(steps)
        for s in range(steps):
            later = np.arange(s, steps)
            response[s] = np.sum(w[later] * keep ** (later - s))
        variance = 2 * a / beta * np.sum(response**2)
        value += h[j] / 2 * (mean**2 + variance)
    bound = risk.sgld_average_excess(3, beta, 1.5, a, steps, 1.0, m)
    assert value == pytest.approx(0.0123191, rel=1e-4)
    assert value <= bound == pytest.approx(0.1500007, rel=1e-6)
    stationary = np.sum(1 / (2 * beta * (1 - a * h / 2)))
    assert stationary == pytest.approx(0.0445304, rel=1e-5)
    assert risk.sgld_stationary_excess(3, beta, a, 1.0) == pytest.approx(0.15)
    assert risk.sgld_average_excess(3, beta, 1.5, a, steps, 1.0) == pytest.approx(2.25 / 120 + 0.075 / 0.5)
    assert risk.sgld_nonsmooth_average_excess(3, beta, 1.5, a, steps, 2.0) == pytest.approx(
        2.25 / 120 + 0.075 + 1.0
    )
    with pytest.raises(AssumptionFailed, match="1/M"):
        risk.sgld_average_excess(3, beta, 1.5, 2.0, steps, 1.0)


def test_unadjusted_bias():
    """T27: KL 7.601e-5 and 2.007e-3 of the stationary law, against Vempala and Wibisono's .48 and 2.4."""
    for eta, kl, bound in [(1e-3, 7.601e-5, 0.48), (5e-3, 2.007e-3, 2.4)]:
        ratio = 1 / (1 - eta * 20 / 2)
        assert 1.5 * (ratio - 1 - math.log(ratio)) == pytest.approx(kl, rel=1e-3)
        assert 8 * eta * 3 * 20**2 / 20 == pytest.approx(bound)


def _slope(function, low, high):
    return math.log(function(high) / function(low)) / math.log(high / low)


def test_rates():
    """T33 (m = .1): slopes in n and p of the bounds; T48: T falls like n^-2 at fixed m beta T."""
    mu = cv.gdp_mu(1.0, 1e-6)
    assert _slope(lambda n: risk.exponential_excess(20, n / 4), 1e5, 1e7) == pytest.approx(-1)
    assert _slope(lambda p: risk.exponential_excess(p, 7500), 10, 1000) == pytest.approx(1)
    assert _slope(lambda n: risk.langevin_convex_excess(20, mu, n, 1, 2), 1e5, 1e7) == pytest.approx(-1)
    assert _slope(lambda p: risk.langevin_convex_excess(p, mu, 1e5, 1, 2), 10, 1000) == pytest.approx(0.5)
    strong = lambda n, p: risk.langevin_strongly_convex_excess(p, mu, 2 / n, 2.0, 0.1)[2]  # noqa: E731
    assert _slope(lambda n: strong(n, 20), 1e5, 1e7) == pytest.approx(-1.887, abs=0.02)
    assert _slope(lambda p: strong(1e6, p), 10, 1000) == pytest.approx(0.943, abs=0.02)
    beta, time, bound = risk.langevin_strongly_convex_excess(20, mu, 2 / 1e6, 2.0, 0.1)
    length = 0.1 * beta * time
    assert time == pytest.approx(2 * length**2 / (0.1 * mu * 1e6) ** 2, rel=1e-9)
    assert process.langevin_trajectory_guarantee(bare(2 / 1e6), beta**2 * time).mu == pytest.approx(
        mu, rel=1e-6
    )
    assert bound == pytest.approx(risk.langevin_weighted_excess(20, beta, 2.0, time, 0.1))


def test_population_limits():
    """T38: .02323 at p = 20, n = 3e4, D0 = 2; mu -> infinity: 2 L D0 / sqrt(n) = .023094."""
    mu = cv.gdp_mu(1.0, 1e-6)
    assert risk.langevin_convex_population_excess(20, mu, 30_000, 1, 2) == pytest.approx(0.02323, rel=1e-3)
    assert risk.langevin_convex_population_excess(100, mu, 30_000, 1, 2) == pytest.approx(0.02377, rel=1e-3)
    assert risk.langevin_convex_population_excess(20, 1e9, 30_000, 1, 2) == pytest.approx(0.023094, rel=1e-4)
    assert risk.langevin_stability(1.0, 0.0, 100, 3.0) == pytest.approx(0.06)
    assert risk.langevin_stability(1.0, 0.5, 100, 1e9) == pytest.approx(risk.gibbs_stability(1.0, 0.5, 100))
    assert risk.langevin_stability(1.0, 1e-9, 100, 3.0) == pytest.approx(0.06, rel=1e-6)


def test_reflected_diffusion_of_the_norm():
    """T45: F = |theta|, p = 20, beta = 60, T = 1/40, reflected ball: .603 <= .6667, .382 <= 1.90."""
    rng = np.random.default_rng(0)
    p, beta, steps, runs = 20, 60.0, 400, 300
    dt = 1 / 40 / steps
    theta = np.zeros((p, runs))
    theta[0] = 1.0
    total = 0.0
    for _ in range(steps):
        norms = np.linalg.norm(theta, axis=0)
        total += norms.mean() / steps
        theta = (
            theta
            - beta * dt * theta / np.maximum(norms, 1e-12)
            + math.sqrt(2 * dt) * rng.standard_normal(theta.shape)
        )
        norms = np.linalg.norm(theta, axis=0)
        theta = theta * np.where(norms > 1, (2 - norms) / norms, 1.0)
    last = np.linalg.norm(theta, axis=0).mean()
    assert total == pytest.approx(0.603, abs=0.03)
    assert last == pytest.approx(0.382, abs=0.03)
    assert total <= risk.langevin_average_excess(p, beta, 1.0, 1 / 40) == pytest.approx(2 / 3)
    ours = risk.langevin_last_excess(p, beta, 1.0, 1 / 40, 1.0)
    assert last <= ours == pytest.approx(1.90, rel=0.02)
    assert paper.paper_last_iterate_risk(p, beta, 1.0, 1 / 40) == pytest.approx(1.33, rel=0.01)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 4.0])
def test_power_temperatures_have_their_bound(exponent):
    """F = m |theta|^2 / 2: second moments of the chain are exact; their weighted mean is below both bounds."""
    p, m, start, steps = 20, 0.1, 1.0, 20_000
    mu, sensitivity = 0.24, 2e-4
    beta, time, bound = risk.langevin_strongly_convex_excess(p, mu, sensitivity, start, m, exponent)
    temperatures = np.asarray(power_temperatures(beta, exponent, steps))
    spec = LangevinSpec(
        inverse_temperature=temperatures, time_step=time / steps, n_steps=steps, release="average",
        weights="geometric",
    )  # fmt: skip
    here = Constants(n=10_000, lipschitz=1.0, smoothness=m, strong_convexity=m)
    assert Composition().certify(here, spec).mu == pytest.approx(mu, rel=1e-3)
    rates = np.asarray(spec.step_size)
    weights, squares = geometric_weights(rates, m, steps), np.empty(steps)
    square = start**2
    for t in range(steps):
        square = (1 - rates[t] * m) ** 2 * square + 2 * p * time / steps
        squares[t] = square
    found = float(weights @ squares / weights.sum()) * m / 2
    discrete = risk.sgld_average_excess(p, temperatures, start, rates, steps, m, m)
    assert 0.3 * bound < found <= bound * (1 + 1e-3)
    assert found <= discrete == pytest.approx(bound, rel=5e-3)


def test_rising_temperatures_are_better_than_constant_ones():
    """Theorem F.2 at (1, 1e-6), n = 10,000: a third less risk at exponent 8; Theorem F.5 adds stability."""
    mu = cv.gdp_mu(1.0, 1e-6)
    flat, rising = (risk.langevin_strongly_convex_excess(20, mu, 2e-4, 1.0, 0.1, a)[2] for a in (0.0, 8.0))
    assert rising == pytest.approx(0.68 * flat, rel=0.02)
    population = risk.langevin_strongly_convex_population_excess(20, mu, 10_000, 1.0, 1.0, 0.1, 8.0)
    assert population == pytest.approx(rising + 2 / (0.1 * 10_000))
