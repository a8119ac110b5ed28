"""Specs, theorems and mechanisms of draws: what is guaranteed, what is refused, and what leaves a run."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import logsumexp

from dplangevin.accounting.parts import BoundedRange
from dplangevin.accounting.plan import CertifiedSpec, Plan, certify_plan
from dplangevin.accounting.proximal_certificate import MAX_START_GAP, uniform_start_ratio, warm_start_ratio
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, InvalidParameter, NotPrivateError
from dplangevin.mechanisms.exponential.mechanism import (
    UNCERTIFIED_SAMPLERS,
    grid_points,
    run_uncertified_chains,
)
from dplangevin.mechanisms.exponential.spec import (
    ExponentialSpec,
    GibbsSpec,
    IteratedExponentialSpec,
    chain_sup_norm,
    chain_total_variation,
)
from dplangevin.mechanisms.langevin.spec import LangevinSpec, power_temperatures
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_gradient.mechanism import NoisyGradientDescent
from dplangevin.problem import Ball, Box, DataBounds, Huber, Logistic, Problem, Sigmoid, Simplex, WholeSpace
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import full_lipschitz, max_norm
from dplangevin.sampling.langevin import make_warm_start, sample_certified_start
from dplangevin.sampling.potential import FunctionPotential, ProblemPotential
from dplangevin.sampling.supports import BallSupport, BoxSupport, LensSupport

CONSTANTS = Constants(
    n=30_000,
    lipschitz=1.0,
    smoothness=0.26,
    strong_convexity=0.01,
    diameter=2.0,
    dimension=20,
    hessian_rank=1,
)


def logistic(n: int = 400, p: int = 2, radius: float = 1.0, ridge: float = 0.05, **more: object) -> Problem:
    return Problem(
        loss=Logistic(),
        bounds=DataBounds(data_norm=1.0, classes=2),
        n=n,
        n_features=p,
        ridge=ridge,
        fit_intercept=False,
        **{"constraint": Ball(radius), **more},  # type: ignore[arg-type]
    )


def records(problem: Problem, seed: int = 0) -> ArrayDataset:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((problem.n, problem.n_features))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = (rows[:, 0] + rng.logistic(size=problem.n) / 3 > 0).astype(float)
    return ArrayDataset(rows, labels, problem)


# --- the potential of a problem ------------------------------------------------------------------------------


def test_potential_is_beta_times_the_objective():
    problem = logistic(ridge=0.3)
    data = records(problem)
    potential = ProblemPotential(data, 7.0)
    theta = np.random.default_rng(1).uniform(-0.5, 0.5, (2, 5))
    block = next(iter(data.blocks()))
    scores = block.rows @ theta
    mean = np.mean(np.logaddexp(0, scores) - block.labels[:, None] * scores, axis=0)
    np.testing.assert_allclose(potential.value(theta), 7 * (mean + 0.15 * (theta**2).sum(axis=0)), rtol=1e-12)
    step = 1e-6 * np.eye(2)
    for j in range(2):
        change = potential.value(theta + step[:, [j]]) - potential.value(theta - step[:, [j]])
        np.testing.assert_allclose(potential.gradient(theta)[j], change / 2e-6, rtol=1e-6, atol=1e-7)


def test_start_divergence_uses_the_full_lipschitz_constant():
    """The data term's constant would make the number of steps too small (amendment 1)."""
    problem = logistic(ridge=0.5, radius=2.0)
    potential = ProblemPotential(records(problem), 10.0)
    assert potential.lipschitz == 10 * full_lipschitz(problem) == 10 * (1.0 + 0.5 * 2.0)
    assert potential.lipschitz > 10 * problem.constants.lipschitz
    values = potential.value(np.array([[-2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0]]))
    assert np.ptp(values) <= uniform_start_ratio(
        potential.lipschitz, 2.0
    )  # from the centre: half the diameter
    assert (
        potential.smoothness == 10 * problem.constants.smoothness
    )  # public: the data's own curvature never counts
    assert potential.strong_convexity == 10 * problem.ridge


def test_intercept_counts_in_the_row_norm():
    problem = replace(logistic(), fit_intercept=True)
    assert ProblemPotential(records(problem), 1.0).smoothness == pytest.approx(2 * 0.25 + 0.05)
    assert problem.row_norm == pytest.approx(math.sqrt(2))


def test_largest_norms():
    assert max_norm(Ball(3.0), 4) == 3
    assert max_norm(Box((-1.0, -2.0), 1.0), 2) == pytest.approx(math.sqrt(5))
    assert max_norm(Simplex(), 3) >= 1
    assert max_norm(WholeSpace(), 2) == math.inf


def test_overflow_is_refused():
    problem = Problem(
        loss=Huber(transition=1e49), bounds=DataBounds(data_norm=1e10, target=(-1, 1)), n=2, n_features=1,
        constraint=Ball(1e10), fit_intercept=False,
    )  # fmt: skip
    potential = ProblemPotential(ArrayDataset([[1e10], [1e10]], [1.0, -1.0], problem), 1e290)
    with pytest.raises(AssumptionFailed, match="overflowed"):
        potential.value(np.full((1, 1), 1e10))


# --- certified start -----------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.0, 30.0),
    st.floats(0.0, 60.0),
    st.floats(-2.0, 2.0),
    st.floats(-1.0, 1.0),
    st.floats(0.2, 3.0),
)
def test_start_ratio_bounds_the_density_ratio(m, extra, minimiser, centre, half):
    """1-D, V = h (x - a)^2 / 2 with m <= h <= M, start around any centre with its own gap: the ratio is below e^w."""
    high = m + extra + 0.1
    h = m + 0.6 * (high - m)
    c = centre * half
    x = np.linspace(-half, half, 20_001)
    value, slope = h * (x - minimiser) ** 2 / 2, h * (c - minimiser)
    start = -(slope * (x - c) + high * (x - c) ** 2 / 2)
    log_ratio = (start - logsumexp(start)) - (-value - logsumexp(-value))
    gap = max(float(np.max(slope * (c - x))), 0.0)
    assert log_ratio.max() <= warm_start_ratio(high, m, 1, 2 * half, gap) + 1e-3


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([2, 3, 20, 60]), st.floats(0.0, 50.0), st.floats(0.01, 500.0), st.floats(0.0, 0.99),
    st.integers(0, 99),
)  # fmt: skip
def test_start_ratio_against_the_masses(p, m, extra, out, seed):
    """The bound for every data set is above the ratio of the two masses computed for one, in any dimension."""
    rng = np.random.default_rng(seed)
    body, high = BallSupport(dimension=p, radius=1.0), m + extra
    centre, slope = (vector / np.linalg.norm(vector) for vector in rng.standard_normal((2, p)))
    centre, slope = out * centre, slope * rng.uniform(0.0, 20.0)
    tilted = FunctionPotential(
        value_function=lambda x: slope @ x,
        gradient_function=lambda x: np.repeat(slope[:, None], x.shape[1], axis=1),
        smoothness=high,
        strong_convexity=m,
    )
    computed = make_warm_start(tilted, body, centre).log_density_ratio
    assert computed <= warm_start_ratio(high, m, p, 2.0, body.frank_wolfe_gap(centre, slope)) + 1e-3


def test_start_ratio_is_far_below_the_uniform_start():
    assert warm_start_ratio(1950.0, 75.0, 20, 2.0) == pytest.approx(10 * math.log(26))
    assert uniform_start_ratio(7500 * 1.01, 2.0) > 15_000
    assert warm_start_ratio(50.0, 50.0, 7, math.inf) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(AssumptionFailed, match="unbounded"):
        warm_start_ratio(50.0, 0.0, 7, math.inf)


def test_start_refuses_a_minimiser_that_is_not_found(monkeypatch):
    """A kink breaks the stated smoothness, so the solver's gap never closes: nothing is drawn."""
    monkeypatch.setattr("dplangevin.sampling.langevin._STEP_LIMITS", (50, 200))
    kink = FunctionPotential(
        value_function=lambda x: 1e4 * np.abs(x).sum(axis=0),
        gradient_function=lambda x: 1e4 * np.where(x >= 0, 1.0, -1.0),
        smoothness=1.0,
    )
    with pytest.raises(AssumptionFailed, match="not found"):
        sample_certified_start(kink, BallSupport(dimension=1, radius=1.0), 1, np.random.default_rng(0))


@pytest.mark.parametrize("radius", [0.3, 4.0])
def test_start_meets_its_gap(radius):
    problem = logistic(radius=radius)
    potential, body = ProblemPotential(records(problem), 500.0), BallSupport(dimension=2, radius=radius)
    draws = sample_certified_start(potential, body, 4000, np.random.default_rng(2))
    assert np.all(body.contains(draws))
    assert MAX_START_GAP == 1.0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_lens_projects_and_bounds_drops(seed):
    rng = np.random.default_rng(seed)
    centre = rng.standard_normal(2)
    centre *= rng.uniform(0.05, 1.0) / np.linalg.norm(centre)
    lens = LensSupport(center=centre, outer=1.0, inner=rng.uniform(0.1, 1.5))
    inside = rng.uniform(-1, 1, (2, 20_000))
    inside = inside[:, lens.contains(inside)]
    x = 2 * rng.standard_normal((2, 30))
    nearest = lens.project(x)
    assert np.all(lens.contains(nearest))
    found = np.linalg.norm(x - nearest, axis=0)
    best = np.array([np.linalg.norm(inside - x[:, [j]], axis=0).min() for j in range(30)])
    assert np.all(found <= best + 1e-9)
    gradient = rng.standard_normal(2)
    assert (
        lens.frank_wolfe_gap(nearest[:, 0], gradient) >= np.max(gradient @ (nearest[:, [0]] - inside)) - 1e-9
    )
    assert (
        np.linalg.norm(inside[:, :200, None] - inside[:, None, :200], axis=0).max() <= lens.diameter + 1e-12
    )


def test_lens_draws_the_gaussian_it_says():
    lens = LensSupport(center=np.array([0.8, 0.0]), outer=1.0, inner=0.5)
    rng = np.random.default_rng(3)
    linear = np.tile(np.array([[4.0], [1.0]]), 6000)
    draws = lens.sample_gaussian(linear, 3.0, rng)
    assert np.all(lens.contains(draws))
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 801), np.linspace(-1, 1, 801))).reshape(2, -1)
    grid = grid[:, lens.contains(grid)]
    weight = np.exp(4 * grid[0] + grid[1] - 1.5 * (grid**2).sum(axis=0))
    mean = (grid * weight).sum(axis=1) / weight.sum()
    assert np.abs(draws.mean(axis=1) - mean).max() < 0.02  # five standard errors
    with pytest.raises(InvalidParameter, match="point of the first ball"):
        LensSupport(center=np.array([2.0, 0.0]), outer=1.0, inner=0.5)


# --- guarantees ------------------------------------------------------------------------------------------------


def test_exact_exponential_is_pure_and_concentrated():
    plan = CertifiedSpec(constants=CONSTANTS, spec=ExponentialSpec(inverse_temperature=7500.0), delta=0.0)
    assert plan.guarantee.epsilon(0.0) == pytest.approx(1.0, rel=1e-8)
    assert plan.guarantee.theorem == "exponential-mechanism"
    part = plan.guarantee.parts[0]
    assert isinstance(part, BoundedRange)
    assert part.rdp(np.array([1.01]))[0] <= 1.01 / 8 * (1 + 1e-6)


def test_gaussian_guarantee_beside_the_pure_one():
    """T39: the epsilon = 1 draw is also 0.057735-GDP, and that one is reported where delta > 0."""
    spec = ExponentialSpec(inverse_temperature=7500.0)
    guarantee = certify_plan(CONSTANTS, spec, delta=1e-6)
    assert guarantee.mu == pytest.approx(0.057735, rel=1e-4)
    assert guarantee.epsilon() == pytest.approx(0.2206, rel=1e-3)
    assert certify_plan(CONSTANTS, spec, delta=0.0).epsilon() == pytest.approx(1.0)
    flat = replace(CONSTANTS, strong_convexity=0.0)
    assert certify_plan(flat, spec, delta=1e-6).theorem == "exponential-mechanism"


def test_tiers_are_named_and_accounted():
    chain = {"inverse_temperature": 7000.0, "step_size": 2e-3, "n_steps": 20_000}
    pure = certify_plan(
        CONSTANTS, ExponentialSpec(tier="pure", **chain), delta=0.0, theorem="exponential-mechanism"
    )
    zeta = chain_sup_norm(CONSTANTS, ExponentialSpec(tier="pure", **chain))
    law = 7000 / 7500
    assert zeta < 0.01
    assert pure.epsilon() == pytest.approx(law + math.log((1 + zeta) / (1 - zeta)), rel=1e-6)
    certified = certify_plan(
        CONSTANTS, ExponentialSpec(tier="certified", **chain), delta=1e-6, theorem="exponential-mechanism"
    )
    tau = chain_total_variation(CONSTANTS, ExponentialSpec(tier="certified", **chain))
    assert certified.delta(law + 1e-6) >= (1 + math.exp(law)) * tau > 0
    for tier, guarantee in (("pure", pure), ("certified", certified)):
        assert any(f"sampler tier {tier}" in word for word in guarantee.assumptions)


def test_too_few_steps_guarantee_nothing():
    few = ExponentialSpec(inverse_temperature=7000.0, tier="pure", step_size=1e-4, n_steps=5)
    with pytest.raises(NotPrivateError, match="too short"):
        certify_plan(CONSTANTS, few, delta=0.0)
    vague = replace(few, tier="certified")
    assert certify_plan(CONSTANTS, vague, delta=1e-6).epsilon() == math.inf


def test_underflow_never_makes_a_certified_draw_pure():
    long = ExponentialSpec(inverse_temperature=1.0, tier="certified", step_size=1.0, n_steps=10**6)
    with pytest.raises(NotPrivateError, match="delta = 0"):
        certify_plan(CONSTANTS, long, delta=0.0)


def test_running_time_is_stated():
    plain, padded = (
        certify_plan(CONSTANTS, ExponentialSpec(inverse_temperature=10.0, padding=padding), delta=0.0)
        for padding in (0.0, 30.0)
    )
    assert any("running time" in word and "not observed" in word for word in plain.assumptions)
    assert any("at least 30 seconds" in word for word in padded.assumptions)


def test_iterated_guarantee_is_the_sum():
    draws = tuple(ExponentialSpec(inverse_temperature=beta) for beta in (1000.0, 9000.0))
    spec = IteratedExponentialSpec(draws=draws, radii=(0.25,))
    total = certify_plan(CONSTANTS, spec, delta=0.0)
    assert total.epsilon() == pytest.approx(1000 / 7500 + 9000 / 7500 * 0.25, rel=1e-6)
    assert spec.diameters(2.0) == (2.0, 0.5)
    wider = replace(spec, radii=(5.0,))  # never wider than the first set
    assert wider.diameters(2.0) == (2.0, 2.0)


def test_process_guarantees():
    """T15 and T17 through plans, and T41: averaging and projecting cost nothing, other iterates raise."""
    constants = Constants(n=1000, lipschitz=25.0, smoothness=0.3, strong_convexity=0.3)  # Delta = .05
    spec = LangevinSpec(inverse_temperature=50.0, time_step=0.01, n_steps=7)
    assert certify_plan(constants, spec, delta=1e-6).mu == pytest.approx(0.44530078, rel=1e-6)
    path = certify_plan(constants, replace(spec, release="trajectory"), delta=1e-6)
    assert path.mu == pytest.approx(0.467707, rel=1e-5)
    for release in ("average", "trajectory"):
        assert certify_plan(constants, replace(spec, release=release), delta=1e-6).mu == path.mu
    with pytest.raises(AssumptionFailed, match="function of the whole path"):
        certify_plan(constants, replace(spec, release="average"), delta=1e-6, theorem="optimal-shift")


def test_power_spec():
    beta = power_temperatures(100.0, 0.5, 4)
    np.testing.assert_allclose(beta, 100 * np.sqrt([0.25, 0.5, 0.75, 1.0]))
    spec = LangevinSpec(inverse_temperature=beta, time_step=0.01, n_steps=4, release="average")
    constants = Constants(n=100, lipschitz=1.0)
    assert certify_plan(constants, spec, delta=1e-6).mu == pytest.approx(
        0.02 * math.sqrt(0.01 * 25_000 / 2), rel=1e-6
    )
    with pytest.raises(InvalidParameter, match="exceed -1/2"):
        power_temperatures(1.0, -0.5, 3)


# --- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"inverse_temperature": 0.0}, "inverse_temperature"),
        ({"inverse_temperature": -3.0}, "inverse_temperature"),
        ({"tier": "pure", "n_steps": 3}, "step_size"),
        ({"tier": "pure", "n_steps": 3, "step_size": -1.0}, "step_size"),
        ({"tier": "certified", "step_size": 0.1}, "n_steps"),
        ({"tier": "diagnosed"}, "tier"),
        ({"step_size": 0.1}, "exact draw"),
        ({"grid": 1}, "grid"),
        ({"padding": -1.0}, "padding"),
    ],
)
def test_bad_specs(fields, word):
    with pytest.raises(InvalidParameter, match=word):
        ExponentialSpec(**{"inverse_temperature": 1.0, **fields})


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"time_step": 0.0}, "time_step"),
        ({"time_step": 0.1, "time": 1.0}, "exactly one"),
        ({"inverse_temperature": -1.0}, "inverse_temperature"),
        ({"n_steps": 0}, "n_steps"),
        ({"time_step": (0.1, 0.2)}, "2 entries"),
        ({"checkpoints": (2,)}, "checkpoints"),
        ({"release": "checkpoints"}, "checkpoints"),
    ],
)
def test_bad_processes(fields, word):
    with pytest.raises(InvalidParameter, match=word):
        LangevinSpec(**{"inverse_temperature": 1.0, "time_step": 0.1, "n_steps": 3, **fields})


def test_bad_iterated_specs():
    draw = ExponentialSpec(inverse_temperature=1.0)
    with pytest.raises(InvalidParameter, match="one radius fewer"):
        IteratedExponentialSpec(draws=(draw, draw))
    with pytest.raises(InvalidParameter, match="grid or padding"):
        IteratedExponentialSpec(draws=(replace(draw, padding=1.0),))


def test_hypotheses_are_refused_by_name():
    chain = {"inverse_temperature": 10.0, "step_size": 0.1, "n_steps": 100}
    unbounded = replace(CONSTANTS, diameter=math.inf)
    with pytest.raises(NotPrivateError, match="no guarantee at delta = 0"):
        certify_plan(unbounded, ExponentialSpec(inverse_temperature=10.0), delta=0.0)
    with pytest.raises(AssumptionFailed, match="unbounded"):
        certify_plan(
            unbounded, ExponentialSpec(tier="pure", **chain), delta=0.0, theorem="exponential-mechanism"
        )
    rough = replace(CONSTANTS, convex=False)
    for tier in ("pure", "certified"):
        with pytest.raises(AssumptionFailed, match="not convex"):
            certify_plan(
                rough, ExponentialSpec(tier=tier, **chain), delta=1e-6, theorem="exponential-mechanism"
            )
    with pytest.raises(AssumptionFailed, match="not convex"):
        certify_plan(
            rough, ExponentialSpec(inverse_temperature=1.0), delta=0.0, theorem="exponential-mechanism"
        )
    flat = replace(CONSTANTS, strong_convexity=0.0)
    with pytest.raises(AssumptionFailed, match="strong_convexity is 0"):
        certify_plan(flat, GibbsSpec(inverse_temperature=1.0), delta=1e-6, theorem="strongly-convex-gibbs")
    with pytest.raises(AssumptionFailed, match="no smoothness"):
        certify_plan(
            replace(CONSTANTS, smoothness=math.inf),
            ExponentialSpec(tier="certified", **chain),
            delta=1e-6,
            theorem="exponential-mechanism",
        )
    with pytest.raises(AssumptionFailed, match="grid"):
        certify_plan(
            CONSTANTS,
            GibbsSpec(inverse_temperature=1.0, grid=5),
            delta=1e-6,
            theorem="strongly-convex-gibbs",
        )


@pytest.mark.parametrize(
    ("problem", "spec", "word"),
    [
        (logistic(constraint=Simplex()), ExponentialSpec(inverse_temperature=1.0), "ball or a box"),
        (logistic(ridge=0.0, p=4), ExponentialSpec(inverse_temperature=1.0), "no exact draw is known"),
        (logistic(p=8), ExponentialSpec(inverse_temperature=1.0, grid=20), "more than 1000000"),
    ],
)
def test_draws_that_cannot_be_made_are_refused_before_the_ledger(problem, spec, word):
    class CountingAccount:
        def reserve(self, plan):
            raise AssertionError("charged")

    plan = Plan(problem=problem, spec=spec, delta=0.0)
    with pytest.raises((AssumptionFailed, InvalidParameter), match=word):
        run_plan(plan, records(problem), 0, ledger=CountingAccount())


# --- runs ----------------------------------------------------------------------------------------------------


def test_a_grid_serves_losses_that_are_not_convex():
    problem = replace(logistic(ridge=0.0), loss=Sigmoid())
    spec = ExponentialSpec(inverse_temperature=4000.0, grid=15)
    release = run_plan(Plan(problem=problem, spec=spec, delta=0.0), records(problem), 1)
    points = grid_points(BallSupport(dimension=2, radius=1.0), 15)
    assert np.linalg.norm(points - release.value[:, None], axis=0).min() < 1e-12
    assert release.value[0] > 0.4  # the labels follow the first feature
    box = grid_points(BoxSupport(low=np.zeros(2), high=np.ones(2)), 3)
    assert box.shape == (2, 9)


def test_padding_makes_a_run_last():
    problem = logistic(p=1)
    for padding in (0.0, 0.6):
        spec = ExponentialSpec(inverse_temperature=20.0, padding=padding)
        start = time.monotonic()
        run_plan(Plan(problem=problem, spec=spec, delta=0.0), records(problem), 1)
        assert time.monotonic() - start >= padding


def test_the_chain_makes_a_public_number_of_steps():
    """Whatever the data: the iteration count is in the plan."""
    problem = logistic()
    spec = ExponentialSpec(inverse_temperature=50.0, tier="certified", step_size=0.05, n_steps=30)
    plan = Plan(problem=problem, spec=spec, delta=1e-6)
    from dplangevin._progress import progress

    for seed in (0, 1):
        steps: list[int] = []
        with progress(lambda done, total: steps.append(total), quiet=True):  # noqa: B023
            run_plan(plan, records(problem, seed), seed)
        assert steps == [30] * 30


def test_iterated_releases_every_stage():
    problem = logistic(p=2, ridge=1.0)
    chain = {"tier": "certified", "step_size": 0.02, "n_steps": 40}
    draws = tuple(ExponentialSpec(inverse_temperature=beta, **chain) for beta in (30.0, 100.0))
    plan = Plan(problem=problem, spec=IteratedExponentialSpec(draws=draws, radii=(0.3,)), delta=1e-3)
    release = run_plan(plan, records(problem), 5)
    assert set(release.iterates) == {1, 2}
    assert np.linalg.norm(release.iterate(2) - release.iterate(1)) <= 0.3 + 1e-9
    np.testing.assert_array_equal(release.value, release.iterate(2))
    boxed = logistic(constraint=Box(-1.0, 1.0))
    elsewhere = Plan(problem=boxed, spec=plan.spec, delta=1e-3)
    with pytest.raises(InvalidParameter, match="ball"):
        run_plan(elsewhere, records(boxed), 5)
    exact = replace(plan.spec, draws=tuple(ExponentialSpec(inverse_temperature=9.0) for _ in range(2)))
    with pytest.raises(AssumptionFailed, match="one parameter"):
        run_plan(Plan(problem=problem, spec=exact, delta=1e-3), records(problem), 5)


def test_langevin_runs_what_it_says():
    problem = logistic(constraint=WholeSpace())
    data, mechanism = records(problem), NoisyGradientDescent()
    fields = {"inverse_temperature": 200.0, "time_step": 0.005, "n_steps": 30}
    base = LangevinSpec(**fields)
    plan = Plan(problem=problem, spec=base, delta=1e-6)
    last = mechanism.run(plan, data, 3)
    with pytest.raises(NotPrivateError, match="not covered"):
        last.iterate(10)  # T41
    path = mechanism.run(Plan(problem=problem, spec=replace(base, release="trajectory"), delta=1e-6), data, 3)
    np.testing.assert_array_equal(path.iterate(30), last.value)
    mean = mechanism.run(
        Plan(problem=problem, spec=LangevinSpec(**fields, release="average"), delta=1e-6), data, 3
    )
    every = np.array([path.iterate(t) for t in range(1, 31)])
    np.testing.assert_allclose(mean.value, every.mean(axis=0))
    some = replace(base, release="checkpoints", checkpoints=(5, 12))
    kept = mechanism.run(Plan(problem=problem, spec=some, delta=1e-6), data, 3)
    np.testing.assert_array_equal(kept.value, path.iterate(12))
    tilted = LangevinSpec(**fields, release="average", weights="geometric")
    weighted = mechanism.run(Plan(problem=problem, spec=tilted, delta=1e-6), data, 3).value
    share = (1 - 0.05) ** np.arange(29.0, -1.0, -1.0)
    np.testing.assert_allclose(weighted, share @ every / share.sum())


def test_langevin_may_stop_whenever():
    problem = logistic()
    base = LangevinSpec(inverse_temperature=200.0, time_step=0.005, n_steps=30, release="trajectory")
    plan = Plan(problem=problem, spec=base, delta=1e-6)
    seen: list[int] = []

    def stop(step, theta):
        seen.append(step)
        return step == 7

    release = NoisyGradientDescent(stop=stop).run(plan, records(problem), 3)
    assert release.n_steps == 7
    assert seen == list(range(1, 8))
    assert sorted(release.iterates) == seen
    last = Plan(problem=problem, spec=replace(base, release="last-iterate"), delta=1e-6)
    with pytest.raises(InvalidParameter, match="stop is called with every iterate"):
        NoisyGradientDescent(stop=stop).run(last, records(problem), 3)


def test_projection_is_what_the_problem_says():
    tight, free = logistic(radius=0.05), logistic(constraint=WholeSpace())
    base = LangevinSpec(inverse_temperature=100.0, time_step=0.02, n_steps=20, release="trajectory")
    for problem, inside in ((tight, True), (free, False)):
        release = run_plan(Plan(problem=problem, spec=base, delta=1e-6), records(problem), 4)
        norms = [np.linalg.norm(release.iterate(t)) for t in range(1, 21)]
        assert bool(max(norms) <= 0.05) is inside


@pytest.mark.parametrize("sampler", UNCERTIFIED_SAMPLERS)
def test_diagnosed_chains_have_no_guarantee(sampler):
    problem = logistic(radius=5.0)
    draws = run_uncertified_chains(
        records(problem),
        inverse_temperature=300.0,
        sampler=sampler,
        n_steps=40,
        n_chains=20,
        random_state=0,
    )
    assert draws.tier == "diagnosed"
    with pytest.raises(NotPrivateError, match="research only"):
        draws.guarantee.epsilon(1e-6)
    with pytest.raises(NotPrivateError):
        draws.guarantee.delta(1.0)
    potential = ProblemPotential(records(problem), 300.0)
    excess = potential.value(draws.value).mean() - potential.value(np.zeros((2, 1)))[0]
    assert excess < 0  # the chains went downhill


def test_diagnosed_refuses_bad_input():
    data = records(logistic())
    with pytest.raises(InvalidParameter, match="sampler"):
        run_uncertified_chains(data, inverse_temperature=1.0, sampler="nuts", n_steps=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="step_size"):
        run_uncertified_chains(data, inverse_temperature=1.0, sampler="mala", n_steps=3, step_size=0.0)
