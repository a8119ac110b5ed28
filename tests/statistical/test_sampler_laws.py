"""Laws of the samplers against quadrature and closed forms. Fixed seeds; every p-value must exceed 1e-3.

With about 30 Kolmogorov-Smirnov tests the chance that an honest sampler fails somewhere on fresh seeds is about 3%; the
seeds here are fixed, so a failure means the code changed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, gammainc

from dplangevin.accounting.proximal_certificate import (
    best_step_size,
    poincare_constant,
    sup_norm_steps,
    total_variation_steps,
)
from dplangevin.sampling.envelopes import Anchor, sample_active_ball, sample_elliptical_envelope
from dplangevin.sampling.langevin import approximate_minimizer, make_warm_start
from dplangevin.sampling.log_concave import (
    sample_adaptive_rejection,
    sample_gamma_above,
    sample_gamma_below,
    sample_truncated_normal,
)
from dplangevin.sampling.potential import FunctionPotential
from dplangevin.sampling.rejection import run_proximal_chain, sample_isotropic_gaussian
from dplangevin.sampling.supports import BallSupport, BoxSupport

RIDGE = 0.01


def data(n=300, p=2, strength=2.0, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, p))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    weights = strength * np.ones(p) / math.sqrt(p)
    return rows, rng.random(n) < expit(rows @ weights)


def softplus(u):
    """log(1 + e^u), several times faster than logaddexp."""
    return np.maximum(u, 0) + np.log1p(np.exp(-np.abs(u)))


class Logistic(FunctionPotential):
    """V = beta F for logistic regression with rows of norm at most 1."""

    @classmethod
    def on(cls, rows, labels, beta, radius, ridge=RIDGE):
        signed = np.where(labels, 1.0, -1.0)[:, None] * rows
        made = cls(
            value_function=lambda t: (
                beta * (softplus(-signed @ t).mean(axis=0) + ridge / 2 * np.sum(t * t, axis=0))
            ),
            gradient_function=lambda t: beta * (ridge * t - signed.T @ expit(-signed @ t) / len(rows)),
            smoothness=beta * (0.25 + ridge),
            strong_convexity=beta * ridge,
            lipschitz=beta * (1 + ridge * radius),
        )
        return made, lambda t: beta * (rows.T * (expit(rows @ t) * expit(-rows @ t))) @ rows / len(rows)


def marginals(potential, radius, n_outer=601, n_inner=48):
    """Distribution functions of both coordinates of exp(-V) on the disc, by Gauss-Legendre along chords."""
    nodes, weights = np.polynomial.legendre.leggauss(n_inner)
    # points crowd towards the ends, where an active constraint puts the mass
    outer = -radius * np.cos(np.pi * np.linspace(0, 1, n_outer))
    half = np.sqrt(np.maximum(radius**2 - outer**2, 0))
    inner = half[:, None] * nodes
    result = []
    for axis in (0, 1):
        points = np.stack([np.repeat(outer, n_inner), inner.ravel()])
        values = potential.value(points if axis == 0 else points[::-1]).reshape(n_outer, n_inner)
        density = half * (np.exp(-(values - values.min())) @ weights)
        area = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(outer))])
        result.append(lambda x, area=area: np.interp(x, outer, area / area[-1]))
    return result


def agree(draws, cdfs):
    return [stats.kstest(row, cdf).pvalue for row, cdf in zip(draws, cdfs, strict=True)]


# --- one dimension and building blocks ---------------------------------------------------------------------


def test_truncated_normals():
    rng = np.random.default_rng(1)
    for low, high in [
        (-0.5, 0.3),
        (0.2, 9.0),
        (3.0, 3.2),
        (-8.0, -6.0),
        (8.0, math.inf),
        (-0.1, 0.05),
        (0.6, 1.0),
    ]:
        x = sample_truncated_normal(np.zeros(20_000), 1.0, low, high, rng)
        assert stats.kstest(x, stats.truncnorm(low, high).cdf).pvalue > 1e-3


def test_truncated_gammas():
    rng = np.random.default_rng(2)
    for shape, top in [(0.5, 0.1), (0.5, 1.0), (10, 3.0), (10, 8.0), (49.5, 40.0), (49.5, 43.0), (9.5, 0.01)]:
        g = sample_gamma_below(shape, np.full(20_000, top), rng)
        assert stats.kstest(g, lambda v, a=shape, t=top: gammainc(a, v) / gammainc(a, t)).pvalue > 1e-3
    for shape, bottom in [(20, 18.0), (20, 30.0), (1, 3.0), (5, 50.0)]:
        g = sample_gamma_above(shape, bottom, 20_000, rng)
        law = stats.gamma(shape)
        assert stats.kstest(g, lambda v, b=bottom, d=law: 1 - d.sf(v) / d.sf(b)).pvalue > 1e-3


def test_adaptive_rejection_of_a_logistic_potential():
    rows, labels = data(p=1)
    potential, _ = Logistic.on(rows, labels, 150.0, 1.0)
    draws = sample_adaptive_rejection(potential, -1, 1, 50_000, np.random.default_rng(3)).theta[0]
    x = np.linspace(-1, 1, 20_001)
    density = np.exp(-(potential.value(x[None]) - potential.value(x[None]).min()))
    area = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    assert stats.kstest(draws, lambda t: np.interp(t, x, area / area[-1])).pvalue > 1e-3


@pytest.mark.parametrize(
    ("p", "precision", "centre"),
    [(2, 9.0, 2.0), (3, 4.0, 0.6), (5, 1.0, 0.0), (10, 40.0, 1.3), (2, 900.0, 3.0)],
)
def test_gaussian_on_a_ball(p, precision, centre):
    """Coordinate along the centre and squared norm, by one-dimensional quadrature of the structured density."""
    body = BallSupport(dimension=p, radius=1.0)
    mean = np.zeros(p)
    mean[0] = centre
    x = sample_isotropic_gaussian(mean, 1 / precision, body, 20_000, np.random.default_rng(4))
    forced = body._sample_by_coordinate(
        np.tile(precision * mean[:, None], 20_000), precision, np.random.default_rng(5)
    )
    t = -np.cos(np.pi * np.linspace(0, 1, 20_001))
    rest = gammainc((p - 1) / 2, precision * (1 - t**2) / 2)
    density = np.exp(-precision * ((t - centre) ** 2 - max(centre - 1, 0) ** 2) / 2) * rest
    area = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(t))])
    cdf = lambda v: np.interp(v, t, area / area[-1])  # noqa: E731
    for draws in (x, forced):
        assert stats.kstest(draws[0], cdf).pvalue > 1e-3
        # given the first coordinate, the rest is a truncated Gaussian around 0
        room = precision * (1 - draws[0] ** 2) / 2
        share = gammainc((p - 1) / 2, precision * np.sum(draws[1:] ** 2, axis=0) / 2) / gammainc(
            (p - 1) / 2, room
        )
        assert stats.kstest(share, "uniform").pvalue > 1e-3
        assert abs(np.mean(draws[-1])) < 5 / math.sqrt(precision * 20_000) + 5e-3


# --- exact envelopes (T42) ---------------------------------------------------------------------------------


def test_elliptical_envelope_law():
    """n = 300, p = 2, R = 5, eps = 3: beta = 45."""
    rows, labels = data()
    potential, hessian = Logistic.on(rows, labels, 3 * 300 / (2 * 10), 5.0)
    body = BallSupport(dimension=2, radius=5.0)
    anchor = approximate_minimizer(potential, body)
    assert np.linalg.norm(anchor) < 5
    ridge, rng = potential.strong_convexity, np.random.default_rng(6)
    draws = sample_elliptical_envelope(
        potential, body, Anchor(anchor, hessian(anchor), ridge, 1.0), 20_000, rng
    )
    assert min(agree(draws.theta, marginals(potential, 5.0))) > 1e-3
    assert 20_000 / draws.n_proposals > 0.4


def test_elliptical_envelope_from_a_poor_anchor():
    """The law does not depend on the anchor, only the acceptance does."""
    rows, labels = data()
    potential, hessian = Logistic.on(rows, labels, 5.0, 1.0)
    body = BallSupport(dimension=2, radius=1.0)
    anchor = np.array([-0.3, 0.4])
    ridge, rng = potential.strong_convexity, np.random.default_rng(7)
    draws = sample_elliptical_envelope(
        potential, body, Anchor(anchor, hessian(anchor), ridge, 1.0), 5000, rng
    )
    assert min(agree(draws.theta, marginals(potential, 1.0))) > 1e-3


def test_active_ball_law():
    """n = 300, p = 2, R = .7, eps = 5: the minimiser lies on the circle."""
    rows, labels = data()
    potential, hessian = Logistic.on(rows, labels, 5 * 300 / (2 * 1.4), 0.7)
    anchor = approximate_minimizer(potential, BallSupport(dimension=2, radius=0.7))
    anchor *= 0.7 / np.linalg.norm(anchor)
    draws = sample_active_ball(
        potential,
        0.7,
        Anchor(anchor, hessian(anchor), potential.strong_convexity, 1.0),
        20_000,
        np.random.default_rng(8),
    )
    assert min(agree(draws.theta, marginals(potential, 0.7))) > 1e-3
    assert 20_000 / draws.n_proposals > 0.4
    assert np.all(np.linalg.norm(draws.theta, axis=0) <= 0.7 * (1 + 1e-9))


# --- proximal sampler --------------------------------------------------------------------------------------


def proximal_draws(potential, body, goal, size, seed):
    """Certified draws from the warm start: `goal` maps (w, eta, C) to a number of steps."""
    rng = np.random.default_rng(seed)
    start = make_warm_start(potential, body, approximate_minimizer(potential, body))
    poincare = poincare_constant(potential.strong_convexity, body.diameter)

    def steps(eta):
        return goal(start.log_density_ratio, eta, poincare)

    eta = best_step_size(
        steps, poincare, potential.strong_convexity, potential.smoothness / 2, body.dimension
    )
    return run_proximal_chain(potential, body, start.sample(size, rng), eta, steps(eta), rng).theta


@pytest.mark.parametrize(("radius", "epsilon"), [(5.0, 3.0), (0.7, 5.0)])
def test_certified_law(radius, epsilon):
    rows, labels = data()
    potential, _ = Logistic.on(rows, labels, epsilon * 300 / (4 * radius), radius)
    body = BallSupport(dimension=2, radius=radius)
    draws = proximal_draws(potential, body, lambda w, e, c: total_variation_steps(1e-3, w, e, c), 4000, 9)
    assert min(agree(draws, marginals(potential, radius))) > 1e-3


def test_pure_law():
    rows, labels = data()
    potential, _ = Logistic.on(rows, labels, 300 / 4, 1.0)
    body = BallSupport(dimension=2, radius=1.0)
    draws = proximal_draws(potential, body, lambda w, e, c: sup_norm_steps(0.005, w, e, c, 2.0), 4000, 10)
    assert min(agree(draws, marginals(potential, 1.0))) > 1e-3


def test_proximal_in_a_box():
    """Separable quadratic on a box: coordinates are truncated normals."""
    potential = FunctionPotential(
        value_function=lambda x: 20 * (x[0] - 1.2) ** 2 + 3 * x[1] ** 2,
        gradient_function=lambda x: np.stack([40 * (x[0] - 1.2), 6 * x[1]]),
        smoothness=40.0,
        strong_convexity=6.0,
    )
    body = BoxSupport(low=-np.ones(2), high=np.ones(2))
    draws = proximal_draws(potential, body, lambda w, e, c: total_variation_steps(1e-3, w, e, c), 8000, 11)
    first, second = 1 / math.sqrt(40), 1 / math.sqrt(6)
    laws = [
        stats.truncnorm(-2.2 / first, -0.2 / first, 1.2, first),
        stats.truncnorm(-1 / second, 1 / second, 0, second),
    ]
    assert min(agree(draws, [law.cdf for law in laws])) > 1e-3


def test_quadratic_in_fifty_dimensions():
    """Proximal chain against the exact truncated Gaussian, p = 50, centre outside the ball."""
    p, k = 50, 2000
    centre = np.zeros((p, 1))
    centre[0] = 1.5
    potential = FunctionPotential(
        value_function=lambda x: 30 * np.sum((x - centre) ** 2, axis=0) / 2,
        gradient_function=lambda x: 30 * (x - centre),
        smoothness=33.0,
        strong_convexity=25.0,
    )
    body = BallSupport(dimension=p, radius=1.0)
    draws = proximal_draws(potential, body, lambda w, e, c: total_variation_steps(1e-3, w, e, c), k, 12)
    exact = sample_isotropic_gaussian(centre[:, 0], 1 / 30, body, 20_000, np.random.default_rng(13))
    assert stats.ks_2samp(draws[0], exact[0]).pvalue > 1e-3
    assert stats.ks_2samp(np.linalg.norm(draws, axis=0), np.linalg.norm(exact, axis=0)).pvalue > 1e-3
    assert stats.ks_2samp(draws[7], exact[7]).pvalue > 1e-3


def test_the_comparison_can_fail():
    """A chain stopped after one step from a far start is refuted, and so is a target a third colder."""
    rows, labels = data()
    potential, _ = Logistic.on(rows, labels, 75.0, 1.0)
    body = BallSupport(dimension=2, radius=1.0)
    rng = np.random.default_rng(14)
    early = run_proximal_chain(potential, body, np.full((2, 4000), -0.7), 0.01, 1, rng).theta
    assert min(agree(early, marginals(potential, 1.0))) < 1e-6
    colder, _ = Logistic.on(rows, labels, 100.0, 1.0)
    draws = proximal_draws(potential, body, lambda w, e, c: total_variation_steps(1e-3, w, e, c), 4000, 15)
    assert min(agree(draws, marginals(colder, 1.0))) < 1e-3


@pytest.mark.slow
def test_long_runs():
    """1e5 draws of each exact and certified sampler."""
    rows, labels = data()
    potential, hessian = Logistic.on(rows, labels, 5 * 300 / 2.8, 0.7)
    body = BallSupport(dimension=2, radius=0.7)
    cdfs = marginals(potential, 0.7)
    anchor = approximate_minimizer(potential, body)
    anchor *= 0.7 / np.linalg.norm(anchor)
    ridge = potential.strong_convexity
    draws = sample_active_ball(
        potential, 0.7, Anchor(anchor, hessian(anchor), ridge, 1.0), 100_000, np.random.default_rng(16)
    )
    assert min(agree(draws.theta, cdfs)) > 1e-3
    certified = proximal_draws(
        potential, body, lambda w, e, c: total_variation_steps(1e-4, w, e, c), 100_000, 17
    )
    assert min(agree(certified, cdfs)) > 1e-3
    wide, hessian = Logistic.on(rows, labels, 45.0, 5.0)
    body = BallSupport(dimension=2, radius=5.0)
    anchor = approximate_minimizer(wide, body)
    rng = np.random.default_rng(18)
    draws = sample_elliptical_envelope(
        wide, body, Anchor(anchor, hessian(anchor), wide.strong_convexity, 1.0), 100_000, rng
    )
    assert min(agree(draws.theta, marginals(wide, 5.0))) > 1e-3
