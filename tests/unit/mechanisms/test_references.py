"""The papers' formulas: Figure 2 of Chourasia et al., Theorem 4, Lemma 6, and the printed (false) equation (3.3)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.accounting import conversions as cv
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import OptimalShift, same_start_mu
from dplangevin.papers import formulas as ref
from dplangevin.problem.constants import Constants

FIGURE_2 = {"gradient_sensitivity": 4.0, "n": 5000, "step_size": 0.02, "sigma": 0.02}
ROWS = [
    (10, 10, 0.0008, 0.00145155674, 0.000797317182, 0.000725076988),
    (10, 100, 0.008, 0.00696509707, 0.00606527857, 0.00345865887),
    (10, 500, 0.04, 0.00808040263, 0.00791935021, 0.0039998184),
    (20, 10, 0.0016, 0.00290311348, 0.00159463436, 0.00145015398),
    (20, 100, 0.016, 0.0139301941, 0.0121305571, 0.00691731773),
    (20, 500, 0.08, 0.0161608053, 0.0158387004, 0.0079996368),
    (30, 10, 0.0024, 0.00435467023, 0.00239195155, 0.00217523096),
    (30, 100, 0.024, 0.0208952912, 0.0181958357, 0.0103759766),
    (30, 500, 0.12, 0.0242412079, 0.0237580506, 0.0119994552),
]


@pytest.mark.parametrize(("order", "steps", "composed", "upper", "exact", "lower"), ROWS)
def test_figure_2(order, steps, composed, upper, exact, lower):
    values = {"order": order, "n_steps": steps, **FIGURE_2}
    assert ref.chourasia_composition(**values) == pytest.approx(composed, rel=1e-6)
    assert ref.chourasia_quadratic(**values) == pytest.approx(upper, rel=1e-6)
    assert ref.quadratic_exact(**values) == pytest.approx(exact, rel=1e-6)
    assert ref.chourasia_quadratic_lower(**values) == pytest.approx(lower, rel=1e-6)
    constants = Constants(n=5000, lipschitz=2.0, smoothness=1.0, strong_convexity=1.0)
    spec = NoisyGradientSpec.from_diffusion(step_size=0.02, sigma=0.02, n_steps=steps)
    mu = OptimalShift().certify(constants, spec).mu
    assert order * mu**2 / 2 == pytest.approx(exact, rel=1e-6)


def test_vectors_10_and_11():
    mu = same_start_mu(0.02 * 4 / 5000, math.sqrt(0.04) * 0.02, 0.98, 100)
    assert mu == pytest.approx(0.03482894936, rel=1e-9)
    assert cv.gdp_epsilon(mu, 1e-6) == pytest.approx(0.1285476642, rel=1e-8)


def test_vectors_12_to_14():
    values = {"order": 10, "strong_convexity": 0.5, **FIGURE_2}
    assert ref.chourasia_strongly_convex(n_steps=100, **values) == pytest.approx(0.01259101889, rel=1e-9)
    assert ref.chourasia_strongly_convex(n_steps=math.inf, **values) == pytest.approx(0.032, rel=1e-9)
    shift, noise = 0.02 * 4 / 5000, math.sqrt(0.04) * 0.02
    assert 5 * same_start_mu(shift, noise, 0.99, 100) ** 2 == pytest.approx(0.007388379339, rel=1e-8)
    assert 5 * same_start_mu(shift, noise, 0.99, math.inf) ** 2 == pytest.approx(0.01592, rel=1e-8)


def test_corollaries_follow_from_theorem_2():
    values = {"order": 7.0, "n_steps": 60, **FIGURE_2}
    quadratic = ref.chourasia_isoperimetric(log_sobolev=(2 - 0.02) / (2 * 0.02**2), **values)
    assert quadratic == pytest.approx(ref.chourasia_quadratic(**values), rel=1e-12)
    convex = ref.chourasia_isoperimetric(log_sobolev=0.5 / (2 * 0.02**2), **values)
    assert convex == pytest.approx(ref.chourasia_strongly_convex(strong_convexity=0.5, **values), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(product=st.floats(1e-4, 0.99), steps=st.integers(1, 10_000))
def test_corollary_1_is_dominated_everywhere(product, steps):
    """B1 / Cor 1 lies in [0.2525, 0.634] for eta m in [1e-4, 0.99]."""
    step_size, curvature = 0.5, product / 0.5
    values = {"order": 2.0, "gradient_sensitivity": 1.0, "n": 1, "sigma": 1.0, "n_steps": steps}
    paper = ref.chourasia_strongly_convex(step_size=step_size, strong_convexity=curvature, **values)
    mu = same_start_mu(step_size, math.sqrt(2 * step_size), 1 - product, steps)
    assert 0.252 < mu**2 / paper < 0.635


def test_vector_50():
    problem = {"lipschitz": 1.0, "strong_convexity": 0.1, "smoothness": 1.0, "dimension": 10, "n": 10_000}
    plan = ref.theorem_4(epsilon=1.0, delta=1e-6, **problem)
    found = (plan.sigma_squared, plan.step_size, plan.n_steps, plan.risk)
    assert found == pytest.approx((2.29048169e-5, 0.05, 2421.20188, 0.0110524084), rel=1e-8)
    order = 1 + 2 * math.log(1e6)
    renyi = ref.theorem_4_renyi(order=order, epsilon=0.5, **problem)
    assert renyi.sigma_squared == pytest.approx(plan.sigma_squared, rel=1e-12)
    assert renyi.risk <= plan.risk
    private = ref.chourasia_strongly_convex(
        order=order,
        gradient_sensitivity=2.0,
        n=10_000,
        step_size=renyi.step_size,
        sigma=math.sqrt(renyi.sigma_squared),
        n_steps=math.inf,
        strong_convexity=0.1,
    )
    assert private == pytest.approx(0.5, rel=1e-12)


def test_few_records_clamp_the_number_of_steps():
    plan = ref.theorem_4(
        lipschitz=1.0, strong_convexity=0.1, smoothness=1.0, dimension=50, n=10, epsilon=0.1, delta=1e-6
    )
    assert plan.n_steps == 1


def test_vector_51_and_an_exact_risk():
    problem = {"lipschitz": 1.0, "strong_convexity": 0.1, "smoothness": 1.0, "dimension": 10}
    values = {"sigma_squared": 1e-5, "step_size": 0.05, "n_steps": 2000, **problem}
    assert ref.lemma_6_risk(**values) == pytest.approx(0.011079986, rel=1e-7)
    assert ref.lemma_6_risk(**values, tightened=True) == pytest.approx(0.010079986, rel=1e-7)
    # exact stationary risk of F = (lambda/2)|w|^2: (lambda d / 2) 2 eta sigma^2 / (1 - (1 - eta lambda)^2)
    stationary = 0.1 * 10 / 2 * 2 * 0.05 * 1e-5 / (1 - (1 - 0.05 * 0.1) ** 2)
    assert stationary <= ref.lemma_6_risk(**{**values, "n_steps": math.inf}, tightened=True)


@pytest.mark.parametrize(
    ("order", "rate", "multiplier", "expected"),
    [
        (2, 0.01, 1.0, 1.602226498e-4),
        (8, 0.01, 1.0, 5.723888949e-4),
        (32, 0.01, 2.0, 4.141049292e-4),
        (1.5, 0.01, 1.0, 1.214759931e-4),
        (2.5, 0.1, 0.5, 0.04882018908),
        (10.3, 0.02, 1.3, 1.38440085e-3),
        (8, 0.05, 2.5, 1.612644651e-3),
    ],
)
def test_definition_2_5_as_printed(order, rate, multiplier, expected):
    found = ref.printed_definition_2_5(order=order, rate=rate, noise_multiplier=multiplier)
    assert found == pytest.approx(expected, rel=1e-6)
    assert found <= order / (order - 1) * -math.log1p(-rate)


def test_vector_39_printed_equation():
    run = {
        "n": 1000,
        "batch_size": 50,
        "lipschitz": 1.0,
        "step_size": 0.1,
        "diameter": 1.0,
        "n_steps": 10**6,
    }
    assert ref.printed_equation_3_3(order=8, noise_std=0.4, **run) == pytest.approx(2.00137, rel=1e-5)
    assert ref.printed_equation_3_3(order=8, noise_std=0.1, **run) == pytest.approx(32.152, rel=1e-4)
