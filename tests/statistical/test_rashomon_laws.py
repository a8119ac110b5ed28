"""Draws of Rashomon sets against uniformity, closed forms and grids; certificates against kernels on 1-D grids.

Fixed seeds; every p-value must exceed 1e-3. With about 25 tests the chance that an honest sampler fails somewhere on
fresh seeds is about 2.5%; the seeds are fixed, so a failure means that the code changed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from dplangevin.accounting.proximal_certificate import (
    contraction_factor,
    poincare_constant,
    sup_norm_after,
    total_variation_after,
)
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.rashomon.calibrate import law_hit_probability
from dplangevin.mechanisms.rashomon.mechanism import _sample_draws
from dplangevin.mechanisms.rashomon.spec import RashomonSpec, start_log_ratio, start_scale
from dplangevin.problem import Ball, Clipped, DataBounds, Logistic, Problem, Squared
from dplangevin.problem.problem import max_excess
from dplangevin.problem.risk import hit_probability
from dplangevin.sampling.envelopes import (
    Anchor,
    FlatEnvelope,
    ScorePotential,
    _ScoreOracle,
    run_score_chain,
    sample_score_envelope,
)
from dplangevin.sampling.potential import FunctionPotential
from dplangevin.sampling.supports import BallSupport

LEAST_P = 1e-3


def quadratic_problem(
    n: int = 60, radius: float = 1.0
) -> tuple[Problem, ArrayDataset, np.ndarray, np.ndarray]:
    """Least squares in two dimensions whose minimiser and set lie inside the ball; its Hessian and minimiser."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, (n, 2)) * [1.0, 0.6]
    y = np.clip(X @ [0.2, -0.15] + 0.05 * rng.standard_normal(n), -1, 1)
    problem = Problem(
        loss=Clipped(Squared(), radius + 1.0),
        bounds=DataBounds(data_norm=1.0, target=(-1, 1)),
        n=n,
        n_features=2,
        constraint=Ball(radius),
        ridge=0.05,
        fit_intercept=False,
    )
    hessian = X.T @ X / n + 0.05 * np.eye(2)
    return problem, ArrayDataset(X, y, problem), hessian, np.linalg.solve(hessian, X.T @ y / n)


def make_spec(problem: Problem, beta: float, psi: float, models: int, **options: object) -> RashomonSpec:
    return RashomonSpec(
        n_models=models,
        threshold=psi,
        inverse_temperature=beta,
        tolerance=1e-8 * problem.n,
        max_excess=max_excess(problem),
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def quadratic_draws() -> tuple[np.ndarray, float, float]:
    """[2, models] draws in coordinates where the set is the disc of radius sqrt(2 psi), with psi and beta."""
    problem, data, hessian, centre = quadratic_problem()
    psi, beta = 0.01, 400.0
    chosen = make_spec(problem, beta, psi, 2500, tier="certified", step_size=0.05, n_steps=80)
    theta = _sample_draws(chosen, data, np.random.default_rng(1))
    root = np.linalg.cholesky(hessian).T
    return root @ (theta - centre[:, None]), psi, beta


def test_draws_inside_the_set_are_uniform(quadratic_draws: tuple[np.ndarray, float, float]) -> None:
    z, psi, _ = quadratic_draws
    share = np.sum(z**2, axis=0) / (2 * psi)
    inside = share <= 1
    assert stats.kstest(share[inside], "uniform").pvalue > LEAST_P
    angle = np.mod(np.arctan2(z[1], z[0]), 2 * np.pi)[inside]
    assert stats.kstest(angle / (2 * np.pi), "uniform").pvalue > LEAST_P
    # four quadrants by two rings of equal area
    cells = 2 * (angle // (np.pi / 2)).astype(int) + (share[inside] > 0.5)
    assert stats.chisquare(np.bincount(cells, minlength=8)).pvalue > LEAST_P


def test_the_uniformity_test_can_fail(quadratic_draws: tuple[np.ndarray, float, float]) -> None:
    z, psi, _ = quadratic_draws
    off = z + np.array([[0.3 * math.sqrt(2 * psi)], [0.0]])
    share = np.sum(off**2, axis=0) / (2 * psi)
    assert stats.kstest(share[share <= 1], "uniform").pvalue < LEAST_P


def test_inside_is_never_less_dense_than_outside(quadratic_draws: tuple[np.ndarray, float, float]) -> None:
    z, psi, beta = quadratic_draws
    share = np.sum(z**2, axis=0) / (2 * psi)  # uniform measure has constant density in `share`
    inner = np.histogram(share, np.linspace(0, 1, 6))[0]
    outer = np.histogram(share, np.linspace(1, 2, 6))[0]
    spread = 4 * math.sqrt(inner.mean())
    assert inner.min() > outer.max() - spread
    # beyond the set the density falls as exp(-beta (F - F* - psi))
    assert stats.kstest((share[share > 1] - 1) * beta * psi, "expon").pvalue > LEAST_P


def test_hit_probability_is_at_least_the_bound(quadratic_draws: tuple[np.ndarray, float, float]) -> None:
    z, psi, beta = quadratic_draws
    hits = int(np.sum(np.sum(z**2, axis=0) <= 2 * psi))
    sharp = hit_probability(2, beta * psi, interior_quadratic=True)  # equality for a quadratic
    assert stats.binomtest(hits, z.shape[1], sharp).pvalue > LEAST_P
    assert hits / z.shape[1] >= law_hit_probability(2, beta, psi)


@pytest.mark.parametrize(
    ("p", "x", "expected"), [(20, 75, 0.737960), (20, 375, 0.946816), (100, 375, 0.734294), (20, 20, 0.1589)]
)
def test_hit_rows_of_the_theory_file(p: int, x: float, expected: float) -> None:
    assert law_hit_probability(p, x / 0.05, 0.05) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("ramp", [0.0, 0.02, 0.3])
def test_hit_bound_is_attained_by_cones(ramp: float) -> None:
    # F = |theta| in p dimensions: volumes grow as s^p, so the bound is an equality
    p, beta, psi = 6, 90.0, 0.1
    s = np.linspace(0, psi + ramp + 40 / beta, 400_001)
    above = np.maximum(s - psi, 0)
    height = np.where(above <= ramp, above**2 / (2 * ramp), above - ramp / 2) if ramp else above
    density = s ** (p - 1) * np.exp(-beta * height)
    exact = density[s <= psi].sum() / density.sum()
    assert law_hit_probability(p, beta, psi, ramp) == pytest.approx(exact, rel=1e-3)


def logistic_problem(
    radius: float, ridge: float = 0.02, strength: float = 2.0
) -> tuple[Problem, ArrayDataset]:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 2))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = (rng.random(200) < expit(strength * X[:, 0])).astype(float)
    problem = Problem(
        loss=Logistic(),
        bounds=DataBounds(data_norm=1.0, classes=2),
        n=200,
        n_features=2,
        constraint=Ball(radius),
        ridge=ridge,
        fit_intercept=False,
    )
    return problem, ArrayDataset(X, y, problem)


def grid_marginals(data: ArrayDataset, beta: float, psi: float, ramp: float) -> tuple[np.ndarray, np.ndarray]:
    """Axis and distribution functions of both coordinates, by a fine grid."""
    problem = data.problem
    radius = problem.constraint.radius  # type: ignore[attr-defined]
    axis = np.linspace(-radius, radius, 401)
    points = np.stack([g.ravel() for g in np.meshgrid(axis, axis, indexing="ij")])
    values = data.loss_sum(problem.loss, points) / problem.n + problem.ridge / 2 * np.sum(points**2, axis=0)
    inside = np.sum(points**2, axis=0) <= radius**2
    above = np.maximum(values - values[inside].min() - psi, 0)
    height = np.where(above <= ramp, above**2 / (2 * ramp), above - ramp / 2) if ramp else above
    weight = np.where(inside, np.exp(-beta * height), 0.0).reshape(401, 401)
    weight /= weight.sum()
    return axis, np.stack([np.cumsum(weight.sum(axis=1)), np.cumsum(weight.sum(axis=0))])


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["exact", "certified"])
@pytest.mark.parametrize(("radius", "ramp"), [(4.0, 0.0), (1.0, 0.0), (1.5, 0.02)])
def test_logistic_draws_against_a_grid(tier: str, radius: float, ramp: float) -> None:
    problem, data = logistic_problem(radius)
    beta, psi = 150.0, 0.02
    chain = {} if tier == "exact" else {"step_size": 0.1 * radius**2, "n_steps": 60}
    chosen = make_spec(problem, beta, psi, 400, tier=tier, ramp=ramp, **chain)
    theta = _sample_draws(chosen, data, np.random.default_rng(3))
    axis, both = grid_marginals(data, beta, psi, ramp)
    for row, distribution in zip(theta, both, strict=True):
        law = lambda t, d=distribution: np.interp(t, axis + (axis[1] - axis[0]) / 2, d)  # noqa: E731
        assert stats.kstest(row, law).pvalue > LEAST_P


def test_one_parameter_draws_are_exact() -> None:
    rng = np.random.default_rng(5)
    X, y = rng.uniform(-1, 1, (50, 1)), rng.integers(0, 2, 50).astype(float)
    problem = Problem(
        loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=50, n_features=1, constraint=Ball(2.0),
        ridge=0.05, fit_intercept=False,
    )  # fmt: skip
    data = ArrayDataset(X, y, problem)
    theta = _sample_draws(make_spec(problem, 60.0, 0.03, 3000), data, np.random.default_rng(4))[0]
    axis = np.linspace(-2, 2, 40_001)
    values = data.loss_sum(problem.loss, axis[None]) / 50 + 0.025 * axis**2
    weight = np.exp(-60 * np.maximum(values - values.min() - 0.03, 0))
    law = np.cumsum(weight) / weight.sum()
    assert stats.kstest(theta, lambda t: np.interp(t, axis, law)).pvalue > LEAST_P


def test_flat_envelope_has_its_radial_law() -> None:
    from dplangevin.sampling.envelopes import EllipticalEnvelope

    rng = np.random.default_rng(6)
    for core, level in ((3.0, 2.0), (3.0, 9.0), (math.inf, 4.0)):
        shape = FlatEnvelope(
            EllipticalEnvelope(values=np.ones(3), vectors=np.eye(3), core=core, shrinkage=1.0), level
        )
        moved, height = shape.sample(4000, rng)
        rho = np.linalg.norm(moved, axis=0)
        grid = np.linspace(1e-6, 60, 200_001)
        energy = np.where(grid <= core, grid**2 / 2, (core if math.isfinite(core) else 0.0) * grid / 2)
        density = grid**2 * np.exp(-np.maximum(energy - level, 0))
        law = np.cumsum(density) / density.sum()
        assert stats.kstest(rho, lambda t, law=law, grid=grid: np.interp(t, grid, law)).pvalue > LEAST_P
        assert height.max() <= 0


def kernel(potential: np.ndarray, axis: np.ndarray, eta: float) -> tuple[np.ndarray, np.ndarray]:
    """The proximal x-kernel on a 1-D grid, and its stationary law."""
    law = np.exp(-(potential - potential.min()))
    law /= law.sum()
    wide = np.linspace(axis[0] - 8 * eta**0.5, axis[-1] + 8 * eta**0.5, 1601)
    forward = np.exp(-((axis[:, None] - wide) ** 2) / (2 * eta))
    forward /= forward.sum(axis=1, keepdims=True)
    back = law[:, None] * forward
    back /= back.sum(axis=0)
    return forward @ back.T, law


@pytest.mark.parametrize("minimiser", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("ramp", [0.0, 0.1])
def test_certificate_against_the_kernel_on_a_grid(minimiser: float, ramp: float) -> None:
    axis = np.linspace(-1, 1, 401)
    beta, psi, eta = 60.0, 0.1, 0.05
    F = np.abs(axis - minimiser) ** 1.5 / 1.5 + 0.1 * (axis - minimiser)
    F = F - F.min()
    above = np.maximum(F - psi, 0)
    height = np.where(above <= ramp, above**2 / (2 * ramp), above - ramp / 2) if ramp else above
    P, law = kernel(beta * height, axis, eta)
    # contraction with the constant of the diameter: thresholded potentials are only convex
    rate = poincare_constant(0.0, 2.0)
    second = np.sort(np.abs(np.linalg.eigvals(P)))[-2]
    assert second <= contraction_factor(eta, rate) + 1e-6
    # the start, the interval shrunk towards the minimiser, has density at most e^w times the law's
    excess = float(F.max())
    s, w = start_scale(1, beta, psi, excess), start_log_ratio(1, beta, psi, excess)
    centre = axis[np.argmin(F)]
    start = ((axis >= centre - s * (1 + centre)) & (axis <= centre + s * (1 - centre))).astype(float)
    start /= start.sum()
    assert math.log((start / law).max()) <= w + 0.05  # the grid rounds the ends of a short interval
    for k in (2, 5, 20, 60):
        now = start @ np.linalg.matrix_power(P, k)
        assert 0.5 * np.abs(now - law).sum() <= total_variation_after(k, w, eta, rate) + 1e-9
        assert np.abs(now / law - 1).max() <= sup_norm_after(k, w, eta, rate, 2.0) + 1e-6


def test_oracle_minorants_never_exceed_the_score() -> None:
    # the oracle raises if its envelope lies below the target; here it starts far from equilibrium in 5 dimensions
    rng = np.random.default_rng(8)
    A = np.diag([1.0, 4.0, 9.0, 0.1, 0.01])
    square = FunctionPotential(
        value_function=lambda x: 0.5 * np.sum(x * (A @ x), axis=0),
        gradient_function=lambda x: A @ x,
        smoothness=9.0,
        lipschitz=27.0,
    )
    for ramp in (0.0, 1.0):
        score = ScorePotential(square, 0.0, 2.0, ramp)
        body = BallSupport(dimension=5, radius=3.0)
        draws = run_score_chain(score, body, body.sample_uniform(50, rng), 0.1, 20, rng)
        assert np.all(np.linalg.norm(draws, axis=0) <= 3.0 * (1 + 1e-9))
        oracle = _ScoreOracle(score, body, 0.1)
        oracle.sample(draws + 0.1**0.5 * rng.standard_normal(draws.shape), rng)
        assert oracle.n_accepted == 50


def test_a_wrong_floor_is_seen_by_the_exact_envelope() -> None:
    # a data Hessian fifty times too large makes a false envelope: the draw must stop, not clip
    _, data = logistic_problem(4.0)
    from dplangevin.errors import AssumptionFailed
    from dplangevin.mechanisms.exponential.mechanism import logistic_hessian
    from dplangevin.sampling.potential import ProblemPotential

    potential = ProblemPotential(data, 500.0)
    from dplangevin.sampling.langevin import approximate_minimizer

    body = BallSupport(dimension=2, radius=4.0)
    centre = approximate_minimizer(potential, body)
    score = ScorePotential(potential, float(potential.value(centre[:, None])[0]), 5.0)
    hessian = 50 * logistic_hessian(potential, centre)
    with pytest.raises(AssumptionFailed, match="envelope lies below"):
        sample_score_envelope(score, body, Anchor(centre, hessian, 10.0, 1.0), 500, np.random.default_rng(0))
