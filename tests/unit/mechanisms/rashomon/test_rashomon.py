"""Plans of Rashomon sets, the sampler, its refusals and its errors."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from sklearn.base import clone

from dplangevin import DPLinearSVC, DPLogisticRegression, DPPoissonRegressor, DPRidge
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.parts import BoundedRange
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, BudgetExceeded, InvalidParameter, NotPrivateError
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.exponential.spec import ramp_sensitivity, threshold_sensitivity
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.rashomon import mechanism
from dplangevin.mechanisms.rashomon.calibrate import budget_per_draw, chain_score_mean, law_hit_probability
from dplangevin.mechanisms.rashomon.planning import choose_ridge, compare_ridges
from dplangevin.mechanisms.rashomon.spec import minimum_error, start_log_ratio
from dplangevin.problem import Ball, Clipped, DataBounds, Logistic, Problem, Squared, WholeSpace
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import has_interior_minimizers, max_excess
from dplangevin.problem.risk import hit_probability
from dplangevin.rashomon import RashomonRegion, RashomonSampler, advise_sampling, plan_rashomon
from dplangevin.rashomon.measures import rashomon_ratio


def stated(n: int = 2000, p: int = 2, radius: float = 2.0, ridge: float = 0.01, **options: Any) -> Problem:
    return Problem(
        loss=Logistic(),
        bounds=DataBounds(data_norm=1.0, classes=2),
        n=n,
        n_features=p,
        constraint=options.pop("constraint", Ball(radius)),
        ridge=ridge,
        fit_intercept=False,
        **options,
    )


def table(n: int = 2000, p: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, p)) / math.sqrt(p)
    return X, (rng.random(n) < 1 / (1 + np.exp(-3 * X[:, 0]))).astype(int)


LOGISTIC = DPLogisticRegression(data_norm=1.0, classes=[0, 1], radius=2.0, fit_intercept=False)


def test_k_draws_at_delta_zero_cost_k_times_one() -> None:
    fit_plan = plan_rashomon(stated(), threshold=0.05, n_models=5, epsilon=2.0, tier="exact")
    (part,) = fit_plan.plan.guarantee.parts
    assert isinstance(part, BoundedRange)
    assert part.count == 5
    assert fit_plan.plan.guarantee.epsilon(0.0) == pytest.approx(5 * part.value, rel=1e-12)
    assert fit_plan.plan.guarantee.epsilon(0.0) == pytest.approx(2.0, rel=1e-6)
    assert fit_plan.plan.guarantee.epsilon(0.0) <= 2.0
    one = plan_rashomon(stated(), threshold=0.05, n_models=1, epsilon=2.0, tier="exact")
    assert fit_plan.spec.inverse_temperature == pytest.approx(one.spec.inverse_temperature / 5, rel=1e-6)


@pytest.mark.parametrize("models", [2, 10, 50])
def test_with_delta_draws_compose_at_least_as_well_as_zcdp(models: int) -> None:
    each = budget_per_draw(1.0, 1e-6, models)
    assert each >= 1.0 / models
    # K draws of bounded range e are K e^2 / 8 zCDP: the budget found spends all of (1, 1e-6), and no more
    law = (replace(_law(each), parts=(BoundedRange(value=each, count=models),))).epsilon(1e-6)
    assert law <= 1.0
    assert law == pytest.approx(1.0, abs=2e-3)
    assert law <= cv.zcdp_epsilon(models * each**2 / 8, 1e-6) * (1 + 1e-9)
    wider = 1.05 * each
    assert cv.zcdp_epsilon(models * wider**2 / 8, 1e-6) > 1.0 or models * wider > 1.0


def _law(value: float) -> Any:
    from dplangevin.accounting.guarantee import Guarantee

    return Guarantee(
        parts=(BoundedRange(value=value),),
        adjacency="replace-one",
        release="draw",
        theorem="t",
        reference="r",
    )


@pytest.mark.parametrize(
    ("delta", "tier"), [(0.0, "pure"), (1e-6, "certified"), (1e-6, "pure"), (0.0, "exact")]
)
def test_plans_meet_their_guarantee(delta: float, tier: str) -> None:
    fit_plan = plan_rashomon(stated(), threshold=0.05, n_models=4, epsilon=1.5, delta=delta, tier=tier)
    assert 0.97 * 1.5 < fit_plan.plan.guarantee.epsilon(delta) <= 1.5
    assert fit_plan.plan.guarantee.theorem == "rashomon-draws"
    longer = replace(fit_plan.spec, inverse_temperature=2 * fit_plan.spec.inverse_temperature)
    assert Plan(problem=stated(), spec=longer, delta=delta).guarantee.epsilon(delta) > 1.5
    assert "probability at least" in str(fit_plan)


def test_a_short_chain_is_accounted_or_refused() -> None:
    fit_plan = plan_rashomon(stated(), threshold=0.05, n_models=2, epsilon=1.0, delta=1e-6)
    short = replace(fit_plan.spec, n_steps=3)
    assert Plan(problem=stated(), spec=short, delta=1e-6).guarantee.epsilon(1e-6) == math.inf
    pure = plan_rashomon(stated(), threshold=0.05, n_models=2, epsilon=1.0)
    with pytest.raises(Exception, match="too short"):
        Plan(problem=stated(), spec=replace(pure.spec, n_steps=3), delta=0.0)


def test_the_error_of_the_minimum_is_paid_for() -> None:
    constants = stated().constants
    fit_plan = plan_rashomon(stated(), threshold=0.05, n_models=1, epsilon=1.0, tier="exact")
    loose = replace(fit_plan.spec, tolerance=1e4 * fit_plan.spec.tolerance)
    error = minimum_error(constants, loose.tolerance)
    assert error == pytest.approx(loose.tolerance**2 / (2 * 2000 * 2000 * 0.01), rel=1e-9)
    dearer = Plan(problem=stated(), spec=loose, delta=0.0).guarantee.epsilon()
    assert dearer == pytest.approx(1 + loose.inverse_temperature * error, rel=1e-6)


def test_hit_bound_in_a_plan_is_that_of_its_law() -> None:
    fit_plan = plan_rashomon(stated(p=3), threshold=0.05, n_models=2, epsilon=1.0, tier="exact")
    expected = hit_probability(3, fit_plan.spec.inverse_temperature * 0.05)
    assert fit_plan.hit_probability == pytest.approx(expected, rel=1e-6)
    ramp = plan_rashomon(stated(p=3), threshold=0.05, n_models=2, epsilon=1.0, tier="exact", route="ramp")
    assert 0 < ramp.hit_probability < fit_plan.hit_probability
    assert ramp.spec.ramp == pytest.approx(0.0025)


def test_a_ball_that_just_holds_every_minimiser_is_enough() -> None:
    """radius = lipschitz / ridge exactly: the minimiser may lie on the sphere, and its gradient is still zero."""
    assert has_interior_minimizers(stated(radius=2.0, ridge=0.5))
    assert not has_interior_minimizers(stated(radius=2.0 * (1 - 1e-9), ridge=0.5))


def test_stability_and_population_risk_of_a_draw_are_reported() -> None:
    """Ganesh, Thakurta and Upadhyay (2023), Theorems 2.5 and 2.6, sharpened: L sqrt(2 psi / m) + 2 L^2 / (m n)."""
    fit_plan = plan_rashomon(stated(ridge=0.5), threshold=0.05, n_models=2, epsilon=1.0, tier="exact")
    stability = math.sqrt(2 * 0.05 / 0.5) + 2 / (0.5 * 2000)
    assert fit_plan.stability == pytest.approx(stability)
    assert fit_plan.population_risk == pytest.approx(stability + 0.05 + 2 / fit_plan.spec.inverse_temperature)
    assert "uniform stability" in str(fit_plan)
    ramp = plan_rashomon(stated(), threshold=0.05, n_models=2, epsilon=1.0, tier="exact", route="ramp")
    assert ramp.stability is None


@pytest.mark.slow
def test_whole_trajectories_cost_composition() -> None:
    """Every point of every chain comes out at the price of the steps; the last ones alone may be cheaper."""
    task = stated(n=200, ridge=0.5)
    common: dict[str, Any] = {"threshold": 0.2, "n_models": 3, "epsilon": 2.0, "delta": 1e-6, "n_steps": 30}
    last = plan_rashomon(task, route="ramp", tier="process", **common)
    path = plan_rashomon(task, route="ramp", tier="process", release="trajectory", **common)
    assert last.plan.guarantee.mu <= path.plan.guarantee.mu
    assert path.plan.guarantee.epsilon(1e-6) <= 2.0
    assert path.plan.guarantee.release == "trajectory"
    rng = np.random.default_rng(0)
    data = ArrayDataset(rng.normal(size=(200, task.n_features)), rng.integers(0, 2, 200).astype(float), task)
    release = run_plan(path.plan, data, 1)
    assert sorted(release.iterates) == list(range(release.n_steps + 1))
    assert 15 <= release.n_steps < 30
    np.testing.assert_array_equal(release.iterates[release.n_steps], release.value)
    assert not run_plan(last.plan, data, 1).iterates
    long: dict[str, Any] = common | {"threshold": 0.05, "epsilon": 20.0, "n_steps": 2000}
    small = stated(n=200, radius=0.3, ridge=0.5)
    prices = [
        plan_rashomon(small, route="ramp", tier="process", release=kind, **long).plan.guarantee.mu
        for kind in ("last-iterate", "trajectory")
    ]
    assert prices[0] < 0.7 * prices[1]  # the walk forgets its start; its path does not
    with pytest.raises(InvalidParameter, match="draws have no other points"):
        plan_rashomon(task, release="trajectory", threshold=0.2, n_models=3, epsilon=2.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.floats(1.0, 1e5), st.floats(1e-3, 1.0), st.floats(0.0, 1.0))
@example(1, 1.0, 1.0, 1e-320)
def test_hit_bound_is_monotone(p: int, beta: float, psi: float, ramp: float) -> None:
    here = law_hit_probability(p, beta, psi, ramp)
    assert 0 <= here <= 1
    assert law_hit_probability(p, 1.5 * beta, psi, ramp) >= here * (1 - 1e-6)
    assert law_hit_probability(p, beta, 1.5 * psi, ramp) >= here * (1 - 1e-6)
    assert law_hit_probability(p + 1, beta, psi, ramp) <= here * (1 + 1e-6) + 1e-12
    assert law_hit_probability(p, beta, psi, 1.5 * ramp) <= here * (1 + 1e-6) + 1e-12


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 50), st.floats(1.0, 1e4), st.floats(1e-4, 1.0), st.floats(1.0, 10.0))
def test_start_ratio_is_the_best_of_its_kind(p: int, beta: float, psi: float, excess: float) -> None:
    found = start_log_ratio(p, beta, psi, excess)
    for s in np.geomspace(1e-6, 1, 60):
        assert found <= p * math.log(1 / s) + beta * max(s * excess - psi, 0.0) + 1e-6


def test_advice_says_what_is_worth_running() -> None:
    constants = Constants(
        n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, diameter=2.0, dimension=20
    )
    found = advise_sampling(constants, threshold=0.05, n_models=10, epsilon=1.0)
    assert found.hit_probability == pytest.approx(hit_probability(20, 37.5), rel=1e-3)
    assert found.is_worth_running == (found.hit_probability >= 0.5)
    assert advise_sampling(constants, threshold=0.05, n_models=found.max_models, epsilon=1.0).is_worth_running
    assert not advise_sampling(
        constants, threshold=0.05, n_models=found.max_models + 1, epsilon=1.0
    ).is_worth_running
    assert advise_sampling(
        constants, threshold=found.min_threshold, n_models=10, epsilon=1.0
    ).is_worth_running
    assert not advise_sampling(
        constants, threshold=0.98 * found.min_threshold, n_models=10, epsilon=1.0
    ).is_worth_running
    assert advise_sampling(constants, threshold=0.05, n_models=10, epsilon=found.min_epsilon).is_worth_running
    assert "At n = 30000" in str(found)
    hopeless = advise_sampling(constants, threshold=1e-4, n_models=10, epsilon=0.1)
    assert hopeless.max_models == 0
    assert "Not worth running" in str(hopeless)


def test_ramp_chains_use_the_sensitivity_of_the_ramp() -> None:
    problem = stated(n=5000)
    fit_plan = plan_rashomon(
        problem, threshold=0.05, n_models=3, epsilon=2.0, delta=1e-6, route="ramp", tier="process", n_steps=50
    )
    s = fit_plan.spec
    width = ramp_sensitivity(
        problem.constants, 0.05, s.full_lipschitz, minimum_error(problem.constants, s.tolerance)
    )
    mu = s.inverse_temperature * width * math.sqrt(s.step_size * 50 / 2) * math.sqrt(3)
    assert fit_plan.plan.guarantee.mu == pytest.approx(mu, rel=1e-6)
    assert fit_plan.plan.guarantee.epsilon(1e-6) <= 2.0
    assert fit_plan.hit_threshold == pytest.approx(0.1)
    assert fit_plan.plan.guarantee.release == "last-iterate"


def test_trajectory_route_checks_its_hypotheses() -> None:
    with pytest.raises(AssumptionFailed, match=r"zero of the gradient.*route='pure'"):
        plan_rashomon(stated(), threshold=0.05, n_models=2, epsilon=1.0, delta=1e-6, route="trajectory")
    wide = stated(radius=101.0)
    assert has_interior_minimizers(wide)
    assert not has_interior_minimizers(stated(radius=99.0))
    fit_plan = plan_rashomon(
        wide, threshold=0.05, n_models=2, epsilon=1.0, delta=1e-6, route="trajectory", n_steps=40
    )
    s = fit_plan.spec
    jump = threshold_sensitivity(wide.constants, 0.05, s.full_lipschitz, True)
    assert jump == pytest.approx(0.001 + math.sqrt(2 * 0.26 * 0.05), rel=1e-9)
    mu = s.inverse_temperature * jump * math.sqrt(s.step_size * 40 / 2) * math.sqrt(2)
    assert fit_plan.plan.guarantee.mu == pytest.approx(mu, rel=1e-4)
    assert fit_plan.hit_probability == 0.0, "this route proves nothing useful, and says so"


def test_chains_of_a_problem_that_breaks_the_stated_numbers_are_refused() -> None:
    problem = stated()
    fit_plan = plan_rashomon(
        problem, threshold=0.05, n_models=2, epsilon=1.0, delta=1e-6, route="ramp", tier="process", n_steps=10
    )
    X, y = table()
    data = ArrayDataset(X, y, problem)
    small = replace(fit_plan.spec, full_lipschitz=0.5 * fit_plan.spec.full_lipschitz)
    with pytest.raises(NotPrivateError, match="full_lipschitz"):
        Plan(problem=problem, spec=small, delta=1e-6)  # no guarantee is made, let alone run
    liar = replace(fit_plan.spec, ramp=0.0, interior_minimizers=True)
    with pytest.raises(NotPrivateError, match="interior"):
        Plan(problem=problem, spec=liar, delta=1e-6)
    draws = plan_rashomon(problem, threshold=0.05, n_models=2, epsilon=1.0)
    with pytest.raises(AssumptionFailed, match="excess"):
        run_plan(Plan(problem=problem, spec=replace(draws.spec, max_excess=0.5), delta=0.5), data, 0)


def test_chain_score_bound_holds_for_a_quadratic_run() -> None:
    rng = np.random.default_rng(0)
    beta, a, steps, p, diameter = 200.0, 0.4, 60, 3, 4.0
    theta = np.full((p, 2000), 1.0)
    total = []
    for k in range(steps):
        if k >= steps // 2:
            total.append(0.5 * np.sum(theta**2, axis=0).mean())
        theta = theta - a * theta + math.sqrt(2 * a / beta) * rng.standard_normal(theta.shape)
    assert np.mean(total) <= chain_score_mean(p, beta, a, steps, diameter, 1.0, 2.0)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"threshold": -0.1}, InvalidParameter, "threshold"),
        ({"threshold": 0.0}, InvalidParameter, "only the minimiser"),
        ({"threshold": 10.0}, InvalidParameter, "admits every model"),
        ({"n_models": 0}, InvalidParameter, "n_models"),
        ({"n_models": 2.5}, InvalidParameter, "n_models"),
        ({"epsilon": 0.0}, InvalidParameter, "epsilon"),
        ({"delta": 1.0}, InvalidParameter, "delta"),
        ({"route": "other"}, InvalidParameter, "route"),
        ({"tier": "other"}, InvalidParameter, "tier"),
        ({"tier": "certified"}, InvalidParameter, "delta > 0"),
        ({"tier": "process"}, InvalidParameter, "route='ramp'"),
        ({"route": "trajectory"}, InvalidParameter, "delta > 0"),
        ({"route": "trajectory", "delta": 1e-6, "tier": "exact"}, InvalidParameter, "route='pure'"),
        ({"ramp": 0.1}, InvalidParameter, "ramp"),
        ({"n_steps": 10}, InvalidParameter, "n_steps"),
        ({"route": "ramp", "tier": "process"}, InvalidParameter, "delta > 0"),
    ],
)
def test_bad_input_is_named(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        plan_rashomon(stated(), **{"threshold": 0.05, "n_models": 3, "epsilon": 1.0, **options})


def test_problems_that_have_no_rashomon_set_are_refused() -> None:
    common: dict[str, Any] = {"threshold": 0.05, "n_models": 3, "epsilon": 1.0}
    with pytest.raises(InvalidParameter, match="radius"):
        plan_rashomon(stated(constraint=WholeSpace()), **common)
    with pytest.raises(AssumptionFailed, match="alpha > 0"):
        plan_rashomon(stated(ridge=0.0), **common)
    squared = Problem(
        loss=Clipped(Squared(), 3.0), bounds=DataBounds(data_norm=1.0, target=(-1, 1)), n=50, n_features=4,
        constraint=Ball(1.0), ridge=0.1, fit_intercept=False,
    )  # fmt: skip
    plan = plan_rashomon(squared, tier="exact", **common).plan
    with pytest.raises(AssumptionFailed, match="no exact sampler"):
        run_plan(plan, ArrayDataset(np.zeros((50, 4)), np.zeros(50), squared), 0)
    assert max_excess(squared) == pytest.approx(6.05)


def test_sampler_draws_models_that_predict(recwarn: pytest.WarningsRecorder) -> None:
    X, y = table()
    sampler = RashomonSampler(LOGISTIC, thresholds=0.1, n_models=6, epsilon=3.0, random_state=1).fit(X, y)
    assert len(sampler.models_) == 6
    assert sampler.privacy_.epsilon() <= 3.0
    assert sampler.hit_probability_ > 0.5
    assert not [w for w in recwarn if "probability" in str(w.message)]
    public = table(seed=9)
    assert np.mean([model.score(*public) for model in sampler.models_]) > 0.6
    assert len({tuple(model.coef_.ravel()) for model in sampler.models_}) == 6
    assert all(np.linalg.norm(model.coef_) <= 2.0 * (1 + 1e-9) for model in sampler.models_)
    found = sampler.multiplicity(public[0], public[1], groups=np.where(public[0][:, 1] > 0, "a", "b"))
    assert 0 <= found.ambiguity <= 1
    assert found.discrepancy <= found.ambiguity
    assert np.all((found.capacity >= 1) & (found.capacity <= 2))
    assert not found.used_private_data
    assert found.reliance is not None
    assert found.reliance.names == ("x0", "x1")
    assert found.reliance.median[0] > found.reliance.median[1]
    assert "probability at least" in str(found)
    assert found.to_dict()["fairness"]["used_private_data"] is False
    same = RashomonSampler(LOGISTIC, thresholds=0.1, n_models=6, epsilon=3.0, random_state=1).fit(X, y)
    assert np.array_equal(same.parameters_, sampler.parameters_)
    assert any("random_state" in words for words in sampler.privacy_.assumptions)
    assert pickle.loads(pickle.dumps(sampler)).hit_probability_ == sampler.hit_probability_
    assert clone(sampler).get_params()["thresholds"] == 0.1


def test_members_of_the_true_set_are_as_frequent_as_promised() -> None:
    # the set is known here because the data is ours; the sampler itself never says who is in it
    X, y = table(400)
    problem = stated(n=400, ridge=0.01)
    fit_plan = plan_rashomon(problem, threshold=0.1, n_models=300, epsilon=300.0, tier="exact")
    data = ArrayDataset(X, y, problem)
    theta = run_plan(fit_plan.plan, data, 2).value
    grid = np.stack([g.ravel() for g in np.meshgrid(*[np.linspace(-2, 2, 201)] * 2)])

    def objective(points: np.ndarray) -> np.ndarray:
        return data.loss_sum(problem.loss, points) / 400 + 0.005 * np.sum(points**2, axis=0)

    best = objective(grid[:, np.linalg.norm(grid, axis=0) <= 2]).min()
    share = np.mean(objective(theta) <= best + 0.1)
    assert share >= fit_plan.hit_probability - 3 * math.sqrt(0.25 / 300)


def test_low_hit_bounds_warn() -> None:
    X, y = table(200)
    with pytest.warns(UserWarning, match="Not worth running"):
        RashomonSampler(LOGISTIC, thresholds=0.01, n_models=3, epsilon=0.1, random_state=0).fit(X, y)


@pytest.mark.parametrize("name", ["filter_members", "training_loss", "acceptance", "redraw_until_member"])
def test_what_would_break_the_guarantee_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(NotPrivateError, match=r"private records|condition|depend"):
        getattr(RashomonSampler(LOGISTIC), name)()


def test_nothing_private_is_kept() -> None:
    X, y = table(300)
    sampler = RashomonSampler(LOGISTIC, thresholds=0.2, n_models=2, epsilon=5.0, tier="exact").fit(X, y)
    kept = {name for name in vars(sampler) if name.endswith("_")}
    assert kept == {
        "plan_", "privacy_", "hit_probability_", "parameters_", "models_", "feature_names_", "n_features_in_",
        "classes_", "ledger_head_",
    }  # fmt: skip
    assert not any(
        "acceptance" in name or "loss" in name for model in sampler.models_ for name in vars(model)
    )


def test_the_ledger_is_charged_once_for_all_models(tmp_path: Any) -> None:
    X, y = table(300)
    budget = Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}").declare("d", epsilon=1.5, delta=0.0)
    sampler = RashomonSampler(LOGISTIC, thresholds=0.2, n_models=4, epsilon=1.0, tier="exact", ledger=budget)
    with pytest.warns(UserWarning, match="Not worth running"):
        sampler.fit(X, y)
    with pytest.raises(BudgetExceeded), pytest.warns(UserWarning, match="Not worth running"):
        clone(sampler).set_params(ledger=budget).fit(X, y)


def test_other_models_have_ranges_but_no_capacity() -> None:
    X, y = table(600)
    svc = DPLinearSVC(data_norm=1.0, classes=[0, 1], radius=2.0, fit_intercept=False)
    found = (
        RashomonSampler(svc, thresholds=0.2, n_models=3, epsilon=4.0, random_state=0)
        .fit(X, y)
        .multiplicity(X[:50])
    )
    with pytest.raises(InvalidParameter, match="no predict_proba"):
        _ = found.capacity
    assert found.ambiguity >= 0
    ridge = DPRidge(data_norm=1.0, target_bounds=(-2, 2), radius=1.0)
    numbers = RashomonSampler(ridge, thresholds=0.2, n_models=3, epsilon=4.0, random_state=0).fit(
        X, 3.0 * X[:, 0]
    )
    spread = numbers.multiplicity(X[:50])
    assert spread.decisions is None
    assert np.all(spread.spread.high >= spread.spread.low)
    with pytest.raises(InvalidParameter, match="numbers, not decisions"):
        _ = spread.ambiguity


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (RashomonSampler(None), "estimator must be"),
        (RashomonSampler("logistic"), "estimator must be"),
        (RashomonSampler(clone(LOGISTIC).set_params(radius=None)), "radius"),
        (RashomonSampler(clone(LOGISTIC).set_params(max_rows_per_person=3)), "max_rows_per_person"),
        (RashomonSampler(LOGISTIC, thresholds=-1.0), "threshold"),
        (RashomonSampler(LOGISTIC, n_models=0), "n_models"),
    ],
)
def test_bad_samplers_are_refused_before_the_data_is_read(sampler: RashomonSampler, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        sampler.plan(100, 2)


def test_counts_have_rashomon_sets_too() -> None:
    model = DPPoissonRegressor(data_norm=1.0, target_bounds=(0, 5), radius=1.0)
    fit_plan = RashomonSampler(model, thresholds=0.1, n_models=2, epsilon=1.0).plan(1000, 2)
    assert 0.9 < fit_plan.plan.guarantee.epsilon() <= 1.0


def test_minimiser_and_chains_are_those_of_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tolerance of the minimum and the temperature of the chains are what the theorem charges."""
    fit_plan = plan_rashomon(
        stated(), threshold=0.05, n_models=2, epsilon=2.0, delta=1e-3, route="ramp", tier="process", n_steps=4
    )
    spec, asked = fit_plan.spec, list[Any]()
    minimise, sgld = mechanism.minimize_certified, mechanism.run_sgld

    def watched_minimise(objective: Any, tolerance: float) -> Any:
        asked.append(tolerance)
        return minimise(objective, tolerance)

    def watched_sgld(
        score: Any, start: Any, step: float, beta: float, steps: int, *more: Any, **named: Any
    ) -> Any:
        asked.append((step, beta))
        assert steps <= spec.n_steps
        return sgld(score, start, step, beta, steps, *more, **named)

    monkeypatch.setattr(mechanism, "minimize_certified", watched_minimise)
    monkeypatch.setattr(mechanism, "run_sgld", watched_sgld)
    run_plan(fit_plan.plan, ArrayDataset(*table(), fit_plan.plan.problem), 0)
    assert asked == [spec.tolerance, (spec.step_size, spec.inverse_temperature)]


def test_the_ridge_decides_the_hit_bound() -> None:
    request: dict[str, Any] = {"threshold": 1e-3, "n_models": 1, "epsilon": 1.0, "delta": 1e-6}
    problem = stated(n=30_000, p=5, radius=1.0)
    outcomes = compare_ridges(problem, **request)
    hits = [item.hit_probability for item in outcomes]
    assert hits == sorted(hits)
    assert hits[0] < 0.46 < 0.87 < hits[-1]
    for item in outcomes:
        planned = plan_rashomon(replace(problem, ridge=item.ridge), tier="exact", **request)
        assert planned.hit_probability == pytest.approx(item.hit_probability)
        assert item.shift == pytest.approx(item.ridge / 2)
    chosen = choose_ridge(problem, **request)
    assert chosen == pytest.approx(1e-4)  # the smallest of those that hit as often
    sampler = RashomonSampler(
        DPLogisticRegression(data_norm=1.0, classes=[0, 1], radius=1.0, fit_intercept=False, alpha="auto"),
        thresholds=1e-3, n_models=1, epsilon=1.0, delta=1e-6,
    )  # fmt: skip
    assert sampler.plan(30_000, 5).plan.problem.ridge == pytest.approx(chosen)
    region = RashomonRegion(sampler.estimator, thresholds=[0.1], epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidParameter, match="auto"):
        region.fit(*table())


@pytest.mark.parametrize("level", [1.0, 8.0, 1e9])
def test_the_rashomon_ratio_of_a_quadratic(level: float) -> None:
    """Draws of exp(-beta max(F, psi)) for an ellipsoid with half axes a: volume ratio prod(a) for the unit ball."""
    rng, axes, size = np.random.default_rng(7), np.array([0.5, 0.2, 0.1]), 20_000
    scales = np.linspace(0, 60, 200_001)[1:]
    law = scales**0.5 * np.exp(-level * np.maximum(scales - 1, 0.0))
    s = np.interp(rng.random(size), np.cumsum(law) / law.sum(), scales)
    directions = rng.standard_normal((3, size))
    draws = 0.1 + axes[:, None] * directions / np.linalg.norm(directions, axis=0) * np.sqrt(s)
    assert rashomon_ratio(draws, 1.0, 1e-3, level * 1e3) == pytest.approx(math.prod(axes), rel=0.03)
    if level < 10:
        assert rashomon_ratio(draws, 1.0, 1e-3, 1e12) > 1.1 * math.prod(axes)
    with pytest.raises(InvalidParameter, match="more draws"):
        rashomon_ratio(draws[:, :3], 1.0, 1e-3, 1e3)
