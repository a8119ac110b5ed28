"""The draws of the mechanisms against quadrature and each other; every test raises a false alarm below 1e-3."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.exponential.mechanism import grid_points, sample_gibbs
from dplangevin.mechanisms.exponential.sampler_plans import plan_sampler
from dplangevin.mechanisms.exponential.spec import DrawSpec, ExponentialSpec
from dplangevin.mechanisms.exponential.tiers import plan_certified_chain, plan_pure_chain
from dplangevin.problem import Ball, Clipped, DataBounds, Logistic, Problem, SmoothedHinge, Squared
from dplangevin.sampling.langevin import approximate_minimizer
from dplangevin.sampling.potential import ProblemPotential
from dplangevin.sampling.supports import BallSupport, LensSupport


def data(n: int = 300, p: int = 2, radius: float = 1.0, ridge: float = 0.05, **more: object) -> ArrayDataset:
    problem = Problem(
        **{"loss": Logistic(), "bounds": DataBounds(data_norm=1.0, classes=2), **more},  # type: ignore[arg-type]
        n=n,
        n_features=p,
        constraint=Ball(radius),
        ridge=ridge,
        fit_intercept=False,
    )
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((n, p))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = (rows[:, 0] * 3 + rng.logistic(size=n) > 0).astype(float)
    return ArrayDataset(rows, labels, problem)


def chained(of: ArrayDataset, beta: float, tier: str) -> ExponentialSpec:
    found = (plan_pure_chain if tier == "pure" else plan_certified_chain)(of.problem.constants, beta, 1e-3)
    return ExponentialSpec(
        inverse_temperature=beta,
        tier=tier,
        step_size=found.step_size,
        n_steps=found.n_steps,  # type: ignore[arg-type]
    )


def agreement(draws: np.ndarray, potential: ProblemPotential, body: object) -> float:
    """Smallest KS p-value of the two marginals against a 2-D grid of the density."""
    axis = np.linspace(-1, 1, 401) * body.diameter / 2  # type: ignore[attr-defined]
    points = np.stack(np.meshgrid(axis, axis, indexing="ij")).reshape(2, -1)
    value = np.full(points.shape[1], np.inf)
    inside = body.contains(points)  # type: ignore[attr-defined]
    value[inside] = np.concatenate(
        [potential.value(b) for b in np.array_split(points[:, inside], 200, axis=1)]
    )
    weight = np.exp(-(value - value.min())).reshape(401, 401)
    step = axis[1] - axis[0]
    pvalues = []
    for side in (0, 1):
        mass = np.concatenate([[0.0], np.cumsum(weight.sum(axis=1 - side))])
        edges = np.concatenate([axis - step / 2, [axis[-1] + step / 2]])
        cdf = lambda t, mass=mass, edges=edges: np.interp(t, edges, mass / mass[-1])  # noqa: E731
        pvalues.append(stats.kstest(draws[side], cdf).pvalue)
    return min(pvalues)


@pytest.mark.parametrize("tier", ["exact", "certified", "pure"])
@pytest.mark.parametrize("radius", [0.7, 3.0])
def test_logistic_draws(tier, radius):
    of = data(radius=radius)
    spec: DrawSpec = ExponentialSpec(inverse_temperature=150.0)
    if tier != "exact":
        spec = chained(of, 150.0, tier)
    draws = sample_gibbs(spec, of, np.random.default_rng(1), size=3000)
    potential, body = ProblemPotential(of, 150.0), BallSupport(dimension=2, radius=radius)
    assert agreement(draws, potential, body) > 1e-4
    if tier == "exact":  # the comparison can fail
        colder = sample_gibbs(
            replace(spec, inverse_temperature=300.0), of, np.random.default_rng(1), size=3000
        )
        assert agreement(colder, potential, body) < 1e-4


def test_line_and_quadratic_draws_agree_with_the_chain():
    line = data(p=1)
    exact = sample_gibbs(ExponentialSpec(inverse_temperature=60.0), line, np.random.default_rng(2), size=4000)
    chain = sample_gibbs(chained(line, 60.0, "pure"), line, np.random.default_rng(3), size=4000)
    assert stats.ks_2samp(exact[0], chain[0]).pvalue > 1e-4
    bounds = DataBounds(data_norm=1.0, target=(-1, 1))
    square = data(loss=Clipped(Squared(), 2.0), bounds=bounds, ridge=0.2)
    exact = sample_gibbs(
        ExponentialSpec(inverse_temperature=60.0), square, np.random.default_rng(4), size=4000
    )
    chain = sample_gibbs(chained(square, 60.0, "certified"), square, np.random.default_rng(5), size=4000)
    for side in (0, 1):
        assert stats.ks_2samp(exact[side], chain[side]).pvalue > 1e-4


def test_hinge_draws_without_a_ridge():
    of = data(loss=SmoothedHinge(width=0.5), ridge=0.0)
    draws = sample_gibbs(chained(of, 40.0, "certified"), of, np.random.default_rng(6), size=1000)
    assert agreement(draws, ProblemPotential(of, 40.0), BallSupport(dimension=2, radius=1.0)) > 1e-4


def test_draws_on_a_lens():
    of = data(ridge=1.0)
    lens = LensSupport(center=np.array([0.6, 0.5]), outer=1.0, inner=0.4)
    draws = sample_gibbs(
        chained(of, 40.0, "certified"), of, np.random.default_rng(7), size=3000, support=lens
    )
    body = BallSupport(dimension=2, radius=1.0)
    lens_on_grid = type(
        "Inside", (), {"diameter": body.diameter, "contains": lambda self, x: lens.contains(x)}
    )()
    assert agreement(draws, ProblemPotential(of, 40.0), lens_on_grid) > 1e-4


def test_grid_draws():
    of = data(ridge=0.0)
    spec = ExponentialSpec(inverse_temperature=30.0, grid=7)
    draws = sample_gibbs(spec, of, np.random.default_rng(8), size=20_000)
    points = grid_points(BallSupport(dimension=2, radius=1.0), 7)
    which = np.argmin(np.linalg.norm(draws[:, :, None] - points[:, None, :], axis=0), axis=1)
    chance = np.exp(-ProblemPotential(of, 30.0).value(points))
    counts = np.bincount(which, minlength=points.shape[1])
    assert stats.chisquare(counts, chance / chance.sum() * counts.sum()).pvalue > 1e-4


@pytest.mark.parametrize("p", [5, 20])
def test_utility_of_the_exponential_mechanism(p):
    """Mean excess below p / beta, and within a factor 2 of p / (2 beta), where the ball is wide."""
    of = data(n=20_000, p=p, radius=8.0, ridge=0.01)
    beta = 4 * 20_000 / 32  # epsilon = 4
    potential = ProblemPotential(of, beta)
    best = potential.value(approximate_minimizer(potential, BallSupport(dimension=p, radius=8.0))[:, None])[0]
    draws = sample_gibbs(ExponentialSpec(inverse_temperature=beta), of, np.random.default_rng(9), size=300)
    excess = (potential.value(draws).mean() - best) / beta
    assert p / (4 * beta) < excess < p / beta
    assert 0.5 < excess / (p / (2 * beta)) < 2


def test_planned_pure_draw_is_near_the_exact_one():
    of = data(n=2000, p=3, ridge=0.01)
    plan = plan_sampler(of.problem, 1.0, verbose=False).plan
    assert isinstance(plan.spec, DrawSpec)
    assert plan.spec.tier == "pure"
    chain = sample_gibbs(plan.spec, of, np.random.default_rng(10), size=1200)
    same = ExponentialSpec(inverse_temperature=plan.spec.inverse_temperature)
    exact = sample_gibbs(same, of, np.random.default_rng(11), size=1200)
    for side in range(3):
        assert stats.ks_2samp(exact[side], chain[side]).pvalue > 1e-4
