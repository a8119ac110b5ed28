"""The planner: guarantees are met, rules are the stated ones, and nothing but public numbers enters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import expit, ndtri

from dplangevin.accounting.conversions import gdp_mu
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.perturbation.spec import ObjectivePerturbationSpec
from dplangevin.planner import fit_plan as risk, rules
from dplangevin.planner.fit_plan import MODELS, FitPlan, plan_fit

EXTRA: dict[str, dict[str, Any]] = {
    "multinomial": {"n_classes": 4},
    "multiclass-svc": {"n_classes": 4},
    "poisson": {"target_bounds": (0.0, 30.0)},
}
ADULT: dict[str, Any] = {
    "model": "logistic",
    "n": 32561,
    "n_features": 50,
    "data_norm": 1.0,
    "fit_intercept": False,
}


def plan_for(model: str = "logistic", **changes: Any) -> FitPlan:
    options: dict[str, Any] = {
        "model": model,
        "n": 5000,
        "n_features": 12,
        "epsilon": 1.0,
        "delta": 1e-6,
        "adjacency": "replace-one",
        "data_norm": 2.0,
        "fit_intercept": True,
        **EXTRA.get(model, {}),
    }
    return plan_fit(**(options | changes))


def descent_of(fit_plan: FitPlan) -> NoisyGradientSpec:
    spec = fit_plan.plan.spec
    assert isinstance(spec, NoisyGradientSpec)
    return spec


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(MODELS),
    n=st.integers(1, 10**8),
    p=st.integers(1, 500),
    epsilon=st.floats(1e-3, 50),
    delta=st.sampled_from([0.0, 1e-12, 1e-5]),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
    norm=st.sampled_from([0.1, 1.0, 100.0]),
    intercept=st.booleans(),
)
def test_every_guarantee_is_met_and_nearly_spent(
    model: str, n: int, p: int, epsilon: float, delta: float, adjacency: str, norm: float, intercept: bool
) -> None:
    fit_plan = plan_for(
        model, n=n, n_features=p, epsilon=epsilon, delta=delta, adjacency=adjacency, data_norm=norm,
        fit_intercept=intercept,
    )  # fmt: skip
    run_guarantee = fit_plan.plan.guarantee
    assert run_guarantee.epsilon(0.0 if run_guarantee.kind == "pure" else delta) <= epsilon
    assert run_guarantee.epsilon(0.0 if run_guarantee.kind == "pure" else delta) >= 0.98 * epsilon
    assert run_guarantee.adjacency == adjacency
    assert (run_guarantee.kind == "pure") or delta > 0
    assert math.isfinite(fit_plan.predicted_excess_risk)
    assert fit_plan.predicted_excess_risk > 0
    assert f"{run_guarantee.theorem}" in str(fit_plan)
    assert isinstance(hash(fit_plan), int)


@pytest.mark.parametrize(("adjacency", "n_changed_records"), [("replace-one", 2), ("add-remove", 1)])
def test_low_signal_rule_on_published_numbers(adjacency: str, n_changed_records: int) -> None:
    """n = 32561, p = 50, epsilon = 0.1: T = sqrt(20 n mu / s) up to 128, eta = 4 time / T^2, C = 1/2, tail 2/3."""
    fit_plan = plan_fit(**ADULT, epsilon=0.1, delta=1e-5, adjacency=adjacency, mechanism="noisy-gd")
    spec, mu = descent_of(fit_plan), gdp_mu(0.1, 1e-5)
    records = 32561 * mu / n_changed_records
    assert spec.n_steps == min(math.ceil(math.sqrt(20 * records)), 128) == {2: 103, 1: 128}[n_changed_records]
    assert spec.step_size == pytest.approx(min(4.0, 80 * records / spec.n_steps**2), rel=1e-12)
    assert spec.noise_std == pytest.approx(
        n_changed_records * 0.5 * math.sqrt(spec.n_steps) / (32561 * mu), rel=1e-7
    )
    assert spec.n_steps - spec.average_from == math.ceil(2 / 3 * spec.n_steps)
    assert spec.momentum
    assert spec.release == "average"


def test_the_clip_grows_with_the_signal_and_time_is_capped() -> None:
    """C = sqrt(n mu / (100 p)) between 1/2 and 1; at most 128 steps of 32561 x 50 numbers, and 200 of fewer."""
    stated: dict[str, Any] = {"delta": 1e-5, "adjacency": "add-remove", "mechanism": "noisy-gd"}
    fit_plans = [plan_fit(**ADULT, epsilon=eps, **stated) for eps in (0.1, 0.4, 8.0)]
    bounds = [fit_plan.plan.problem.loss.slope_bound for fit_plan in fit_plans]  # type: ignore[union-attr]
    assert bounds == [0.5, pytest.approx(math.sqrt(32561 * gdp_mu(0.4, 1e-5) / 50) / 10), 1.0]
    spec = descent_of(fit_plans[-1])
    assert (spec.n_steps, spec.average_from, spec.step_size) == (128, 42, 4.0)
    short = plan_fit(**ADULT | {"n": 20_000}, epsilon=8.0, **stated)
    assert descent_of(short).n_steps == rules.MAX_STEPS == 200
    assert [rules.max_descent_steps(10**6, p, 0.25) for p in (10, 70, 100, 500)] == [128, 140, 200, 200]
    assert rules.max_descent_steps(10**6, 50, 1.0) == 200  # ridge: four times the curvature, twice the steps


def test_pure_rule_closed_form() -> None:
    """signal = n eps / (s p^1.5) = 4.6: k = 0.2, Lambda = k s sqrt(p) / eps, C = 1/2."""
    fit_plan = plan_fit(
        **ADULT, epsilon=0.1, delta=0.0, mechanism="objective-perturbation", adjacency="replace-one"
    )
    problem, spec = fit_plan.plan.problem, fit_plan.plan.spec
    assert isinstance(spec, ObjectivePerturbationSpec)
    ridge = 0.2 * 2 * math.sqrt(50) / 0.1
    assert problem.ridge * problem.n == pytest.approx(ridge, rel=1e-12)
    left = 0.1 - math.log1p(0.25 / ridge)
    assert spec.density_scale == pytest.approx(2 * 0.5 / left, rel=1e-6)
    assert fit_plan.plan.guarantee.kind == "pure"
    real = plan_fit(
        **ADULT,
        epsilon=0.1,
        delta=0.0,
        mechanism="objective-perturbation",
        adjacency="replace-one",
        secure=False,
    ).plan.spec
    assert isinstance(real, ObjectivePerturbationSpec)
    assert real.density_scale == pytest.approx(2 * 0.5 / (left - 0.001), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
def test_the_determinant_never_takes_more_than_half(epsilon: float) -> None:
    fit_plan = plan_for(epsilon=epsilon, delta=0.0, mechanism="objective-perturbation", n=10**7, n_features=1)
    constants = fit_plan.plan.constants
    cost = math.log1p(constants.data_smoothness / (constants.n * constants.strong_convexity))
    assert cost <= 0.4901 * epsilon


def test_pure_noise_is_used_for_few_parameters_of_few_records_only() -> None:
    few, many = plan_for(n=40, n_features=2, fit_intercept=False), plan_for(n_features=2)
    assert few.plan.guarantee.kind == "pure"
    counted = plan_for(
        n=40, n_features=2
    ).plan.spec  # noise hides the features: the constant model is counted
    assert counted.count_noise_std is not None
    assert counted.recount_noise_std is not None
    assert few.plan.guarantee.epsilon(0.0) <= 1.0
    assert many.plan.spec.mechanism == "whitened-gd"
    assert plan_for(n_features=2, mechanism="noisy-gd").plan.spec.mechanism == "noisy-gradient"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mechanism", ["noisy-gd", "objective-perturbation", "output-perturbation"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_every_mechanism_serves_every_model(model: str, mechanism: str, adjacency: str) -> None:
    for radius, weight in ((None, 1.0), (3.0, 2.5)):
        fit_plan = plan_for(
            model, mechanism=mechanism, adjacency=adjacency, radius=radius, weight_bound=weight
        )
        assert fit_plan.plan.spec.mechanism in (mechanism, "noisy-gradient")
        assert fit_plan.plan.guarantee.epsilon() <= 1.0
        assert math.isfinite(fit_plan.plan.constants.diameter) == (radius is not None)


@pytest.mark.parametrize(
    ("adjacency", "sampling"), [("add-remove", "poisson"), ("replace-one", "without-replacement")]
)
def test_stochastic_descent(adjacency: str, sampling: str) -> None:
    fit_plan = plan_for(mechanism="noisy-sgd", adjacency=adjacency, epsilon=0.3)
    spec = descent_of(fit_plan)
    assert (spec.sampling, spec.n_steps, spec.batch_size) == (sampling, 200, 250)
    assert fit_plan.plan.guarantee.epsilon() <= 0.3


def test_a_pinned_theorem_gets_the_run_it_is_about() -> None:
    fit_plan = plan_for(theorem="optimal-shift")
    spec = descent_of(fit_plan)
    assert fit_plan.plan.guarantee.theorem == "optimal-shift"
    assert (spec.release, spec.momentum) == ("last-state", False)
    assert fit_plan.plan.constants.strong_convexity > 0
    assert fit_plan.plan.guarantee.composition is not None
    assert fit_plan.plan.guarantee.epsilon() < fit_plan.plan.guarantee.composition.epsilon()
    objective = plan_for(theorem="gaussian-objective-perturbation")
    assert objective.plan.spec.mechanism == "objective-perturbation"
    assert plan_for(theorem="composition").plan.guarantee.theorem == "composition"
    with pytest.raises(AssumptionFailed, match="not cyclic"):
        plan_for(theorem="cyclic-shift", mechanism="noisy-gd")


def test_a_stated_ridge_wins() -> None:
    for mechanism in ("noisy-gd", "objective-perturbation", "output-perturbation"):
        fit_plan = plan_for(mechanism=mechanism, alpha=0.03)
        assert fit_plan.plan.constants.strong_convexity == 0.03
    assert float(descent_of(plan_for(alpha=0.03)).step_size) < float(
        descent_of(plan_for(mechanism="noisy-gd")).step_size
    )  # type: ignore[arg-type]
    with pytest.raises(CalibrationFailed, match="raise ridge"):
        plan_for(mechanism="objective-perturbation", delta=0.0, alpha=1e-9)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"delta": 0.0, "mechanism": "noisy-gd"}, "cannot guarantee pure epsilon"),
        ({"mechanism": "sufficient-statistics"}, "model='ridge' only, got 'logistic'"),
        ({"mechanism": "magic"}, "mechanism must be one of auto.*got 'magic'"),
        ({"model": "forest"}, "model must be one of logistic.*got 'forest'"),
        ({"model": "multinomial"}, "needs n_classes"),
        ({"model": "poisson"}, "needs target_bounds"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"delta": 1.5}, "delta must be strictly between 0 and 1"),
        ({"adjacency": "swap"}, "adjacency must be one of"),
        ({"n": 0}, "n must be a whole number"),
        ({"radius": -1.0}, "radius must be positive"),
        ({"alpha": -1.0}, "alpha must not be negative"),
        ({"weight_bound": 0.0}, "weight_bound must be positive"),
        ({"theorem": "magic"}, "theorem = 'magic' is unknown"),
    ],
)
def test_bad_requests_are_named(changes: dict[str, Any], text: str) -> None:
    options = {
        "model": "logistic", "n": 100, "n_features": 2, "epsilon": 1.0, "delta": 1e-6, "adjacency": "replace-one",
        "data_norm": 1.0, "fit_intercept": True,
    }  # fmt: skip
    with pytest.raises(InvalidParameter, match=text):
        plan_fit(**(options | changes))


def test_a_budget_too_small_for_n_is_said_and_the_named_n_is_enough() -> None:
    fit_plan = plan_for(n=200, n_features=60, epsilon=0.1)
    assert fit_plan.warning is not None
    assert "warning" in str(fit_plan)
    rows = int(fit_plan.warning.split("about n = ")[1].split(" ")[0])
    assert plan_for(n=rows, n_features=60, epsilon=0.1).warning is None
    assert plan_for(n=rows - rows // 100, n_features=60, epsilon=0.1).warning is not None


@pytest.mark.parametrize("mechanism", ["noisy-gd", "objective-perturbation", "output-perturbation"])
def test_predicted_risk_falls_with_n_and_epsilon(mechanism: str) -> None:
    base = plan_for(mechanism=mechanism, n_features=30).predicted_excess_risk
    assert plan_for(mechanism=mechanism, n_features=30, n=20_000).predicted_excess_risk < base
    assert plan_for(mechanism=mechanism, n_features=30, epsilon=3.0).predicted_excess_risk < base


def _quadratic_run(way: rules.DescentPlan, h: float, noise: np.ndarray, goal: float) -> float:
    theta = previous = total = 0.0
    for t in range(way.n_steps):
        point = theta + t / (t + 3) * (theta - previous)
        previous, theta = theta, point - way.step_size * (h * (point - goal) + noise[t])
        total += theta if t >= way.average_from else 0.0
    return total / (way.n_steps - way.average_from)


@pytest.mark.parametrize("h", [1e-4, 0.01, 0.2, 1.0])
def test_response_is_the_recursion_itself(h: float) -> None:
    way = rules.DescentPlan(n_steps=37, step_size=0.9, average_from=12)
    reached, weights = risk._descent_response(way, np.array([h]))
    assert _quadratic_run(way, h, np.zeros(37), 1.0) == pytest.approx(float(reached[0]), abs=1e-12)
    for t in range(37):
        impulse = _quadratic_run(way, h, np.eye(37)[t], 0.0)
        assert -impulse == pytest.approx(float(weights[t, 0]), abs=1e-12)


def test_predicted_risk_bounds_quadratic_problems() -> None:
    """Exact risks of random quadratics with coefficients of the stated size never exceed the prediction."""
    rng = np.random.default_rng(0)
    way = rules.DescentPlan(n_steps=60, step_size=1.0, average_from=20)
    predicted = risk.descent_risk(way, curvature=1.0, noise=0.05, size=2.0, dimension=8)
    largest = 0.0
    for _ in range(300):
        spectrum = 10 ** rng.uniform(-5, 0, 8)
        reached, weights = risk._descent_response(way, spectrum)
        each = spectrum / 2 * (4 * (1 - reached) ** 2 + 0.05**2 * (weights**2).sum(axis=0))
        largest = max(largest, float(each.sum()))
    assert (
        0.5 * predicted < largest <= predicted * (1 + 1e-3)
    )  # a grid of curvatures is 0.1% from the maximum


def test_ridge_risk_bounds_quadratic_problems() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        ridge, noise, size = 10 ** rng.uniform(-1, 2, 3)
        spectrum = 10 ** rng.uniform(-2, 4, 5)
        exact = spectrum / 2 * ((ridge * size) ** 2 + noise**2 / 5) / (spectrum + ridge) ** 2
        bound = risk.ridge_risk(ridge=ridge, noise_square=noise**2, size=size, dimension=5, n=100)
        assert exact.sum() / 100 <= bound * (1 + 1e-12)


def _records(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((n, p))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = rng.random(n) < expit(rows @ np.full(p, 4.0))
    return rows, labels.astype(float)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_unit_of_the_features_does_not_matter(delta: float) -> None:
    """Rows and their stated bound times 10 give coefficients divided by 10, draw by draw."""
    rows, labels = _records(2000, 20)
    thetas = []
    for unit in (1.0, 10.0):
        fit_plan = plan_for(n=2000, n_features=20, data_norm=unit, fit_intercept=False, delta=delta)
        data = ArrayDataset(unit * rows, labels, fit_plan.plan.problem)
        thetas.append(unit * run_plan(fit_plan.plan, data, 0).value)
    np.testing.assert_allclose(thetas[0], thetas[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("delta", "adjacency", "least"),
    [(1e-6, "add-remove", 0.85), (1e-6, "replace-one", 0.85), (0.0, "replace-one", 0.84)],
)
def test_plans_learn(delta: float, adjacency: str, least: float) -> None:
    """Bayes accuracy is about 0.88 here; seeds are fixed, and the least of five runs has 0.01 to spare."""
    rows, labels = _records(20_000, 10)
    fit_plan = plan_for(
        n=20_000, n_features=10, data_norm=1.0, fit_intercept=False, delta=delta, adjacency=adjacency
    )
    problem = fit_plan.plan.problem
    data = ArrayDataset(rows, labels, problem)
    scores = [rows @ run_plan(fit_plan.plan, data, seed).value for seed in range(5)]
    assert min(float(((score > 0) == (labels > 0)).mean()) for score in scores) > least


def test_a_risk_in_place_of_epsilon() -> None:
    """Closed forms of mu-GDP: advantage 2 Phi(mu / 2) - 1, TPR = Phi(Phi^-1(FPR) + mu)."""
    options: dict[str, Any] = {
        "model": "logistic", "n": 30_000, "n_features": 20, "delta": 1e-6, "adjacency": "replace-one",
        "data_norm": 1.0, "fit_intercept": True,
    }  # fmt: skip
    guarantee = plan_fit(advantage=0.1, **options).plan.guarantee
    assert guarantee.mu == pytest.approx(2 * ndtri(0.55), rel=1e-4)
    assert guarantee.advantage().advantage <= 0.1
    guarantee = plan_fit(tpr_at_fpr=(0.02, 0.01), **options).plan.guarantee
    assert guarantee.mu == pytest.approx(ndtri(0.02) - ndtri(0.01), rel=1e-4)
    assert 1 - guarantee.tradeoff(0.01) <= 0.02
    pure = plan_fit(advantage=0.1, **(options | {"delta": 0.0})).plan.guarantee
    assert pure.advantage().advantage <= 0.1
    assert pure.epsilon(0.0) >= 2 * math.atanh(0.1) * (1 - 1e-6)  # several pure parts are less than their sum
    with pytest.raises(InvalidParameter, match="only one of them"):
        plan_fit(advantage=0.1, epsilon=1.0, **options)
