"""Langevin runs stated by temperature and time, their choice by risk bounds, and the continuous process."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from dplangevin import account, calibrate, plan_sampler, run_plan
from dplangevin.accounting.conversions import gdp_mu
from dplangevin.accounting.plan import Plan, certify_plan
from dplangevin.cli.main import run_command_line
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter, NotPrivateError
from dplangevin.mechanisms.langevin.mechanism import LangevinDynamics
from dplangevin.mechanisms.langevin.spec import DiffusionSpec, LangevinSpec, read_langevin_options
from dplangevin.mechanisms.langevin.temperatures import choose_langevin_run, choose_stated_run
from dplangevin.mechanisms.noisy_gradient.mechanism import NoisyGradientDescent
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Ball, DataBounds, Logistic, Problem, Sigmoid, WholeSpace, risk
from dplangevin.problem.constants import Constants
from dplangevin.sampling.potential import ProblemPotential

MU = gdp_mu(1.0, 1e-6)


def logistic(n: int = 2000, p: int = 3, ridge: float = 0.05, **more: object) -> Problem:
    return Problem(
        bounds=DataBounds(data_norm=1.0, classes=2), n=n, n_features=p, ridge=ridge, fit_intercept=False,
        **{"loss": Logistic(), "constraint": Ball(1.0), **more},  # type: ignore[arg-type]
    )  # fmt: skip


def records(problem: Problem) -> ArrayDataset:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((problem.n, problem.n_features))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    return ArrayDataset(
        rows, (rng.random(problem.n) < 1 / (1 + np.exp(-3 * rows[:, 0]))).astype(float), problem
    )


def test_time_and_steps_are_one_statement() -> None:
    by_time = LangevinSpec(inverse_temperature=50.0, time=0.4, n_steps=20)
    by_step = LangevinSpec(inverse_temperature=50.0, time_step=0.02, n_steps=20)
    assert by_time == by_step
    assert by_time.total_time == pytest.approx(0.4)
    with pytest.raises(InvalidParameter, match="exactly one of time"):
        LangevinSpec(inverse_temperature=50.0, n_steps=20)
    with pytest.raises(InvalidParameter, match="state time_step instead"):
        LangevinSpec(inverse_temperature=50.0, time=1.0, n_steps=math.inf)


def test_the_run_is_that_of_noisy_gradient_descent() -> None:
    problem, spec = logistic(), LangevinSpec(inverse_temperature=50.0, time=0.4, n_steps=20)
    data = records(problem)
    one = LangevinDynamics().run(Plan(problem=problem, spec=spec, delta=1e-6), data, 3)
    other = NoisyGradientDescent().run(Plan(problem=problem, spec=spec.to_descent(), delta=1e-6), data, 3)
    np.testing.assert_array_equal(one.value, other.value)
    assert one.guarantee.epsilon() == other.guarantee.epsilon()


@pytest.mark.parametrize("release", ["last-iterate", "trajectory"])
def test_steps_tend_to_the_diffusion(release: str) -> None:
    """mu of ever shorter steps over the same time tends to that of the continuous process, from above for the path."""
    constants = Constants(n=1000, lipschitz=1.0, smoothness=1.1, strong_convexity=0.1)
    limit = certify_plan(
        constants, DiffusionSpec(inverse_temperature=40.0, time=0.5, release=release), delta=1e-6
    ).mu
    gaps = []
    for n_steps in (100, 1000, 10_000):
        spec = LangevinSpec(inverse_temperature=40.0, time=0.5, n_steps=n_steps, release=release)
        gaps.append(abs((certify_plan(constants, spec, delta=1e-6).mu or 0) / (limit or 1) - 1))
    assert gaps[-1] < 1e-3
    assert gaps == sorted(gaps, reverse=True) or max(gaps) < 1e-8


def test_the_clock_from_zero_to_infinity() -> None:
    """The end point costs mu^2 = Delta^2 beta^2 T / 2 early, and beta Delta^2 / m (the Gibbs law) for ever."""
    options = {"n": 1000, "lipschitz": 1.0, "strong_convexity": 0.1, "mechanism": "langevin-diffusion"}
    times = (1e-6, 1e-3, 1.0, math.inf)
    mus = [account(inverse_temperature=40.0, time=time, delta=1e-6, **options).mu for time in times]  # type: ignore[arg-type]
    assert mus == sorted(mus)  # type: ignore[type-var]
    assert mus[0] == pytest.approx(0.002 * 40 * math.sqrt(1e-6 / 2), rel=1e-4)
    assert mus[-1] == pytest.approx(0.002 * math.sqrt(40 / 0.1), rel=1e-6)
    with pytest.raises(NotPrivateError, match="without bound in time"):
        account(inverse_temperature=40.0, time=math.inf, delta=1e-6, release="trajectory", **options)  # type: ignore[arg-type]


def test_calibration_finds_beta() -> None:
    options = {
        "n": 1000,
        "lipschitz": 1.0,
        "smoothness": 0.3,
        "strong_convexity": 0.05,
        "mechanism": "langevin",
    }
    found = calibrate(epsilon=1.0, delta=1e-6, time=0.01, n_steps=100, release="average", **options)  # type: ignore[arg-type]
    assert isinstance(found.spec, LangevinSpec)
    # the whole path: mu^2 = Delta^2 beta^2 T / 2
    assert found.spec.inverse_temperature == pytest.approx(MU * math.sqrt(2 / 0.01) / 0.002, rel=1e-6)
    rising = calibrate(
        epsilon=1.0, delta=1e-6, time=0.01, n_steps=1000, exponent=2.0, release="average", **options
    )  # type: ignore[arg-type]
    assert max(rising.spec.inverse_temperature) == pytest.approx(
        MU * math.sqrt(2 * 5 / 0.01) / 0.002, rel=5e-3
    )
    with pytest.raises(InvalidParameter, match="finite number of steps"):
        read_langevin_options(
            n=10, lipschitz=1.0, inverse_temperature=1.0, time_step=0.1, n_steps=math.inf, exponent=1.0
        )


@pytest.mark.parametrize("ridge", [0.0, 0.01, 0.2])
@pytest.mark.parametrize("population", [False, True])
def test_choices_meet_the_target_and_bound_the_risk(ridge: float, population: bool) -> None:
    problem = logistic(n=20_000, ridge=ridge)
    outputs = ("average", "weighted", "last") if ridge else ("average",)
    for output in outputs:
        choice = choose_langevin_run(problem, MU, population=population, outputs=[output])  # type: ignore[list-item]
        spent = certify_plan(problem.constants, choice.spec, delta=1e-6, theorem=choice.theorem)
        assert 0.999 * MU <= (spent.mu or 0) <= MU * (1 + 2e-9)
        assert choice.holds_at_any_time == (output != "last")
        assert all("nan" not in line for line in choice.describe())
    best = choose_langevin_run(problem, MU, population=population)
    assert best.output == {0.0: "average", 0.01: best.output, 0.2: "last"}[ridge]


def test_measured_risk_is_below_the_bound() -> None:
    """Every kind of run, 20 seeds each: the mean excess of F is below its bound (which holds in expectation)."""
    problem = logistic(n=5000, ridge=0.1)
    data = records(problem)

    # the minimum, by descent without noise
    theta = np.zeros(3)
    for _ in range(2000):
        gradient = data.gradient_sum(problem.loss, theta[:, None])[:, 0] / problem.n + problem.ridge * theta
        theta = problem.constraint.project(theta - gradient)
    potential = ProblemPotential(data, 1.0)
    least = float(potential.value(theta[:, None])[0])
    for output in ("average", "weighted", "last"):
        choice = choose_langevin_run(problem, MU, outputs=[output])  # type: ignore[list-item]
        plan = Plan(problem=problem, spec=choice.spec, delta=1e-6)
        draws = np.column_stack([run_plan(plan, data, seed).value for seed in range(20)])
        excess = np.asarray(potential.value(draws)) - least
        assert excess.min() > -1e-12
        assert excess.mean() <= choice.excess_risk


def test_the_best_temperatures_beat_every_power() -> None:
    """beta ~ e^(m B / 2) minimises the noise term: 4 p / (m C) tanh(l / 4) in continuous time, C = int beta^2."""
    problem = logistic(n=30_000, p=20, ridge=0.05, constraint=WholeSpace())
    best = choose_langevin_run(problem, MU, outputs=["weighted"])
    sensitivity = 2 / 30_000
    for exponent in (0.0, 1.0, 2.0, 4.0, 8.0, 16.0):
        bound = risk.langevin_strongly_convex_excess(20, MU, sensitivity, 4.0, 0.05, exponent)[2]
        assert best.excess_risk < bound
    # for long runs 2 p Delta^2 / (m mu^2), at a learning rate of at most .2 / M
    assert best.excess_risk == pytest.approx(2 * 20 * sensitivity**2 / (0.05 * MU**2), rel=0.3)


def test_the_bound_of_the_average_holds_on_the_boundary() -> None:
    """F = theta on [0, 1] (minimiser on the wall, gradient 1 there): exact law of the projected chain on a grid.

    The average of the points that steps START from would have D0^2 / (2 a K) + p / beta only for interior minimisers:
    |grad F|^2 <= 2 M (F - F*) fails on the wall. The points that steps LEAD to need no such condition.
    """
    beta, rate, n_steps = 20.0, 0.5, 40
    grid = np.linspace(0, 1, 1201)
    width, sigma = grid[1] - grid[0], math.sqrt(2 * rate / beta)
    target = grid - rate
    edges = np.concatenate([[-np.inf], (grid[1:] + grid[:-1]) / 2, [np.inf]])
    kernel = np.diff(norm.cdf((edges[None, :] - target[:, None]) / sigma), axis=1)
    law, means = np.zeros(grid.size), []
    law[-1] = 1.0
    for _ in range(n_steps):
        law = law @ kernel
        means.append(law @ grid)
    assert width < sigma / 20
    # F is linear: every smoothness M > 0 is valid, the smallest gives the smallest bound
    bound = risk.sgld_average_excess(1, beta, 1.0, rate, n_steps, 1e-9)
    assert np.mean(means) <= bound
    assert np.mean([1.0, *means[:-1]]) > np.mean(means)


def test_population_risk_of_the_process() -> None:
    """Theorem F.4: a run stopped early, without a ridge; F.5 with one. Both tend to the statistical rate."""
    flat, curved = (
        plan_sampler(
            logistic(n=100_000, p=5, ridge=ridge), 1.0, 1e-6, "process", objective="population", verbose=False
        )
        for ridge in (0.0, 0.1)
    )
    assert flat.plan.problem.ridge == 0
    assert flat.population_risk == pytest.approx(flat.excess_risk + flat.stability)
    paper = risk.langevin_convex_population_excess(5, MU, 100_000, 1.0, 1.0)
    assert 0.5 * paper < flat.population_risk <= 1.3 * paper
    assert curved.stability <= 2 / (0.1 * 100_000) * (1 + 1e-9)
    assert curved.population_risk == pytest.approx(curved.excess_risk + curved.stability + 0.05)


def test_fit_plans_say_what_was_chosen() -> None:
    stated = {
        "model": "logistic", "n": 30_000, "n_features": 5, "epsilon": 1.0, "delta": 1e-6, "adjacency": "replace-one",
        "data_norm": 1.0, "fit_intercept": True, "mechanism": "langevin", "radius": 2.0,
    }  # fmt: skip
    text = str(plan_fit(**stated))
    for word in (
        "langevin",
        "beta = ",
        "time T = ",
        "eta = ",
        "Theorem F.1",
        "uniform stability",
        "whenever",
        "new",
    ):
        assert word in text, word
    assert "Theorem F.4" in str(plan_fit(**stated, objective="population"))
    with pytest.raises(AssumptionFailed, match="convex and smooth"):
        choose_langevin_run(logistic(loss=Sigmoid(), ridge=0.0), MU)


def test_a_diffusion_is_accounted_and_not_run() -> None:
    problem = logistic()
    plan = Plan(problem=problem, spec=DiffusionSpec(inverse_temperature=40.0, time=0.1), delta=1e-6)
    with pytest.raises(InvalidParameter):
        run_plan(plan, records(problem), 1)


def test_a_path_is_covered_at_every_time() -> None:
    problem = logistic()
    spec = LangevinSpec(inverse_temperature=50.0, time=0.4, n_steps=20, release="trajectory")
    plan = Plan(problem=problem, spec=spec, delta=1e-6)
    release = LangevinDynamics(stop=lambda step, theta: step == 5).run(plan, records(problem), 3)
    assert sorted(release.iterates) == [1, 2, 3, 4, 5]
    last = replace(plan, spec=replace(spec, release="last-iterate"), theorem=None)
    with pytest.raises(InvalidParameter, match="stop is called with every iterate"):
        LangevinDynamics(stop=lambda step, theta: True).run(last, records(problem), 3)


@pytest.mark.parametrize(
    "stated",
    [
        {"inverse_temperature": 400.0},
        {"time": 0.3},
        {"n_steps": 900},
        {"time": 0.3, "n_steps": 700},
        {"inverse_temperature": 400.0, "time": 0.05, "n_steps": 300},
    ],
)
def test_what_is_stated_is_run_and_the_rest_is_chosen(stated: dict[str, float]) -> None:
    """Theorem F.1: mu = Delta beta sqrt(T / 2) for the whole path, and its bound on the excess."""
    problem = logistic(ridge=0.0)
    choice = choose_stated_run(problem, MU, **stated)  # type: ignore[arg-type]
    spec = choice.spec
    for name, value in stated.items():
        assert (spec.total_time if name == "time" else getattr(spec, name)) == pytest.approx(value)
    certified = certify_plan(problem.constants, spec, delta=1e-6, theorem="composition")
    mu = 2 / problem.n * float(spec.inverse_temperature) * math.sqrt(spec.total_time / 2)  # type: ignore[arg-type]
    assert certified.mu == pytest.approx(mu, rel=1e-8)
    assert certified.mu <= MU * (1 + 1e-8)
    if len(stated) < 3:
        assert mu == pytest.approx(MU)
    data = records(problem)
    potential = ProblemPotential(data, 1.0)
    theta = np.zeros(3)
    for _ in range(500):
        theta = problem.constraint.project(theta - 2 * potential.gradient(theta[:, None])[:, 0])
    plan = Plan(problem=problem, spec=spec, delta=1e-6, theorem=choice.theorem)
    runs = np.column_stack([run_plan(plan, data, seed).value for seed in range(4)])
    assert float(np.mean(potential.value(runs)) - potential.value(theta[:, None])[0]) <= choice.excess_risk


def test_stated_runs_that_cannot_be_are_refused() -> None:
    problem = logistic(ridge=0.0)
    with pytest.raises(CalibrationFailed, match="leave one out"):
        choose_stated_run(problem, MU, inverse_temperature=1e5, time=1.0)
    with pytest.raises(InvalidParameter, match="or more"):
        choose_stated_run(problem, MU, n_steps=3)
    with pytest.raises(AssumptionFailed, match="convex"):
        choose_stated_run(logistic(loss=Sigmoid()), MU, n_steps=900)
    request = {
        "model": "logistic", "n": 2000, "n_features": 3, "epsilon": 1.0, "delta": 1e-6, "adjacency": "replace-one",
        "data_norm": 1.0, "fit_intercept": False, "radius": 1.0,
    }  # fmt: skip
    planned = plan_fit(**request, mechanism="langevin", mechanism_options={"inverse_temperature": 400.0})
    assert planned.plan.spec.inverse_temperature == 400.0
    with pytest.raises(InvalidParameter, match="chooses its own"):
        plan_fit(**request, mechanism_options={"time": 1.0})
    with pytest.raises(InvalidParameter, match="option of mechanism"):
        plan_fit(**request, mechanism="langevin", mechanism_options={"beta": 1.0})


def test_the_command_line_states_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, model = tmp_path / "table.csv", tmp_path / "model.json"
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (400, 2))
    lines = [f"{a:.4f},{b:.4f},{int(a > 0)}" for a, b in rows]
    table.write_text("\n".join(["a,b,y", *lines]) + "\n")
    run = ["--mechanism", "langevin", "--beta", "30", "--time", "0.2"]
    common = [
        str(table), "--target", "y", "--epsilon", "1", "--delta", "1e-4", "--data-norm", "1", "--classes", "0,1",
        "--radius", "1", "--json",
    ]  # fmt: skip
    assert run_command_line(["sample", *common, *run, "--n-steps", "50"]) == 0
    drawn = json.loads(capsys.readouterr().out)
    assert drawn["tier"] == "process"
    assert drawn["n_gradient_evaluations"] == 50
    assert drawn["epsilon"] <= 1.0
    assert run_command_line(["fit", *common, *run, "-o", str(model)]) == 0
    assert json.loads(capsys.readouterr().out)["guarantee"]["theorem"] == "composition"
    assert '"inverse_temperature": 30' in model.read_text()
    assert run_command_line(["sample", *common, "--beta", "30"]) == 2


def test_a_log_sobolev_constant_gives_nearly_the_exact_divergence() -> None:
    """An Ornstein-Uhlenbeck process from a point has c = beta m and rho = (a / 2c) tanh(cT / 2); 2c is too much."""
    beta, m, n = 40.0, 0.5, 100
    ratios, doubled = [], []
    for time in np.geomspace(1e-3, 2.0, 60):
        spec = DiffusionSpec(inverse_temperature=beta, time=float(time))
        exact = (beta * 2 / n) ** 2 / (2 * beta * m) * math.tanh(beta * m * time / 2)
        for factor, found in ((1, ratios), (2, doubled)):
            constants = Constants(n=n, lipschitz=1.0, log_sobolev=factor * beta * m)
            certified = certify_plan(constants, spec, delta=1e-6, theorem="log-sobolev")
            found.append(float(certified.rdp([2.0])[0]) / 2 / exact)
            assert certified.conditions[0].kind == "unchecked-hypothesis"
    assert min(ratios) >= 1
    assert max(ratios) < 1.053
    assert min(doubled) < 0.6


def test_a_log_sobolev_constant_is_stated_and_never_assumed() -> None:
    options = {
        "mechanism": "langevin",
        "n": 1000,
        "lipschitz": 1.0,
        "inverse_temperature": 100.0,
        "n_steps": 400,
    }
    guarantee = account(**options, time=4.0, log_sobolev=10.0, delta=1e-6)
    assert guarantee.theorem == "log-sobolev"
    assert guarantee.epsilon() < 0.3 * account(**options, time=4.0, delta=1e-6).epsilon()
    printed = 2 * (0.2**2 / 20) * -math.expm1(-40.0)  # Theorem 2 at order 2
    assert guarantee.rdp([2.0])[0] == pytest.approx(printed, rel=1e-6)
    with pytest.raises(AssumptionFailed, match="is stated"):
        account(**options, time=4.0, theorem="log-sobolev", delta=1e-6)
    with pytest.raises(AssumptionFailed, match="end point"):
        account(**options, time=4.0, log_sobolev=1.0, release="trajectory", theorem="log-sobolev", delta=1e-6)
    assert logistic().constants.log_sobolev is None
