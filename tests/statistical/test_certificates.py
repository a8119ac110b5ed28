"""The proximal sampler's certificate against the exact chain on one-dimensional grids.

The chain on a grid of [-1, 1] with a continuous forward step is computed as a matrix; the discretised target has the
same Poincare constant up to the grid's width, hence the tolerance of 1e-3 on rates.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.linalg import eigh

from dplangevin.accounting.proximal_certificate import (
    contraction_factor,
    poincare_constant,
    sup_norm_after,
    sup_norm_steps,
    total_variation_after,
    total_variation_steps,
    uniform_start_ratio,
)
from dplangevin.sampling.langevin import make_warm_start
from dplangevin.sampling.potential import FunctionPotential
from dplangevin.sampling.supports import BoxSupport

X = (np.arange(300) + 0.5) / 150 - 1


def chain(potential, eta):
    """(target, transition matrix) of the x-chain on the grid X."""
    spread = 9 * math.sqrt(eta)
    n_y = max(600, int(8 * (2 + 2 * spread) / math.sqrt(eta)))
    y = np.linspace(-1 - spread, 1 + spread, n_y)
    kernel = np.exp(-((X[:, None] - y[None]) ** 2) / (2 * eta))
    forward = kernel / kernel.sum(axis=1, keepdims=True)
    weight = np.exp(-(potential - potential.min()))
    # the backward law is the conditional of the same joint, so the chain is reversible on the grid too
    joint = forward * weight[:, None]
    backward = joint / joint.sum(axis=0, keepdims=True)
    return weight / weight.sum(), forward @ backward.T


def second_eigenvalue(target, transition):
    root = np.sqrt(target)
    symmetric = root[:, None] * transition / root[None]
    values = eigh((symmetric + symmetric.T) / 2, eigvals_only=True, subset_by_index=[X.size - 2, X.size - 1])
    assert values[1] == pytest.approx(1.0, abs=1e-8)
    return float(values[0])


POTENTIALS = {
    "flat": (0 * X, 0.0),
    "linear": (12 * X, 0.0),
    "kinked": (20 * np.abs(X - 0.3), 0.0),
    "quadratic": (25 * X**2, 50.0),
    "steep at the edge": (30 * np.maximum(X - 0.5, 0) + X**2, 2.0),
}


def test_published_eigenvalues():
    """V = 25 x^2, eta = .01: 2/3. V = 0, eta = .05: .885737 below rho = .890179."""
    assert second_eigenvalue(*chain(25 * X**2, 0.01)) == pytest.approx(0.66667, abs=2e-4)
    assert second_eigenvalue(*chain(0 * X, 0.05)) == pytest.approx(0.885737, abs=2e-4)


@pytest.mark.parametrize("name", POTENTIALS)
@pytest.mark.parametrize("eta", [0.01, 0.05, 0.5, 5.0])
def test_distance_is_below_the_certificate_at_every_step(name, eta):
    potential, curvature = POTENTIALS[name]
    target, transition = chain(potential, eta)
    poincare = poincare_constant(curvature, 2.0)
    assert second_eigenvalue(target, transition) <= contraction_factor(eta, poincare) * (1 + 1e-3)
    start_ratio = max(float(np.ptp(potential)), 1e-9)
    law = np.full(X.size, 1 / X.size)
    for k in range(1, 61):
        law = law @ transition
        distance = np.sum(np.abs(law - target)) / 2
        assert distance <= total_variation_after(k, start_ratio, eta, poincare) * (1 + 1e-3) + 1e-12
        sup = np.max(np.abs(law / target - 1))
        assert sup <= sup_norm_after(k, start_ratio, eta, poincare, 2.0) * (1 + 1e-3) + 1e-9


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    pieces=st.integers(1, 6),
    steep=st.floats(0.1, 60),
    m=st.floats(0, 60),
    eta=st.floats(0.01, 5),
)
def test_rate_of_random_convex_potentials(seed, pieces, steep, m, eta):
    """Max-affine plus quadratic: the second eigenvalue is below rho."""
    rng = np.random.default_rng(seed)
    slopes = steep * rng.standard_normal((pieces, 1))
    potential = (
        np.max(slopes * X + rng.standard_normal((pieces, 1)), axis=0) + m * (X - rng.uniform(-1, 1)) ** 2 / 2
    )
    value = second_eigenvalue(*chain(potential, eta))
    assert value <= contraction_factor(eta, poincare_constant(m, 2.0)) * (1 + 1e-3)


@settings(max_examples=15, deadline=None)
@given(
    curvature=st.floats(5, 80),
    centre=st.floats(-1.5, 1.5),
    stated=st.floats(0.2, 1),
    eta=st.floats(0.02, 1),
    at=st.floats(-1, 1),
)
def test_warm_started_chain_meets_its_goals(curvature, centre, stated, eta, at):
    """Run the certified number of steps from the lower-function start: both goals are met on the grid."""
    potential = FunctionPotential(
        value_function=lambda x: curvature * (x[0] - centre) ** 2 / 2,
        gradient_function=lambda x: curvature * (x - centre),
        smoothness=curvature / stated,
        strong_convexity=curvature * stated,
    )
    start = make_warm_start(potential, BoxSupport(low=-np.ones(1), high=np.ones(1)), np.array([at]))
    exponent = start.linear[0] * X - start.precision * X**2 / 2
    law = np.exp(exponent - exponent.max())
    law /= law.sum()
    target, transition = chain(potential.value(X[None]), eta)
    poincare = poincare_constant(potential.strong_convexity, 2.0)
    k = total_variation_steps(1e-4, start.log_density_ratio, eta, poincare)
    after = law @ np.linalg.matrix_power(transition, k)
    assert np.sum(np.abs(after - target)) / 2 <= 1.01e-4
    k = sup_norm_steps(0.01, start.log_density_ratio, eta, poincare, 2.0)
    after = law @ np.linalg.matrix_power(transition, k)
    assert np.max(np.abs(after / target - 1)) <= 0.0101


def test_a_certificate_with_the_wrong_start_constant_fails():
    """Amendment 1, end to end: k from the data term's Lipschitz constant alone leaves too large an error."""
    potential = 40 * X**2 + 0.01 * X
    target, transition = chain(potential, 0.002)
    poincare = poincare_constant(80.0, 2.0)
    law = np.full(X.size, 1 / X.size)
    wrong = total_variation_steps(1e-3, uniform_start_ratio(0.01, 2.0), 0.002, poincare)
    right = total_variation_steps(1e-3, uniform_start_ratio(80.01, 2.0), 0.002, poincare)
    error = [np.sum(np.abs(law @ np.linalg.matrix_power(transition, k) - target)) / 2 for k in (wrong, right)]
    assert error[1] <= 1e-3 < error[0]
