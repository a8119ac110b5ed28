"""Objective perturbation: closed forms, hypotheses, calibration, and exact density ratios between neighbours."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.accounting.conversions import gdp_delta, gdp_epsilon
from dplangevin.accounting.plan import CertifiedSpec, Plan
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter, NotPrivateError
from dplangevin.mechanisms.newton import TiltedObjective, hessian_sum, minimize_certified
from dplangevin.mechanisms.perturbation.mechanism import ObjectivePerturbation
from dplangevin.mechanisms.perturbation.spec import (
    GaussianObjectivePerturbation,
    ObjectivePerturbationSpec,
    ObjectivePerturbationTheorem,
    OutputPerturbationSpec,
    calibrate_objective_perturbation,
    default_tolerance,
)
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Ball, Constants, DataBounds, Logistic, Problem, Softmax
from unit._perturbation import (
    LOSSES,
    gamma_norm_density,
    gaussian_density,
    log_density,
    problem,
    random_pair,
    slopes_and_curvatures,
)

EXACT = {
    "tolerance": 1.0,
    "release_density_scale": 1e30,
}  # the solver part is negligible: the exact minimiser is priced
BASE = Constants(n=1000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, dimension=5, hessian_rank=1)


def certified(constants: Constants, **changes: Any) -> float:
    fields: dict[str, Any] = {"density_scale": 2.0, **EXACT}
    return (
        ObjectivePerturbationTheorem()
        .certify(constants, ObjectivePerturbationSpec(**(fields | changes)))
        .epsilon()
    )


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("norm", [0.1, 1.0, 10.0, 100.0])
def test_the_three_parts_add_up_and_curvature_grows_with_the_square_of_the_norm(
    norm: float, adjacency: str
) -> None:
    of = problem("logistic", norm, 50, 3, 7.0, adjacency)
    known = replace(of.constants, logistic_slope_bound=None)  # with it: test_logistic_cost.py
    reach = (2 if adjacency == "replace-one" else 1) * norm
    expected = reach / 4.0 + math.log1p(0.25 * norm**2 / 7.0) + 2 * 1e-3 / (7.0 * 0.05)
    got = certified(known, density_scale=4.0, tolerance=1e-3, release_density_scale=0.05)
    assert got == pytest.approx(expected, rel=1e-8)
    assert got >= expected


def test_softmax_pays_for_every_rank() -> None:
    of = Problem(
        loss=Softmax(n_classes=4),
        bounds=DataBounds(data_norm=2.0, classes=4),
        n=10,
        n_features=3,
        ridge=0.5,
        fit_intercept=False,
    )
    curvature = certified(of.constants, density_scale=1e30)
    assert curvature == pytest.approx(3 * math.log1p(0.5 * 4 / 5), rel=1e-8)


def test_rounding_in_the_smoothness_never_hides_the_curvature() -> None:
    heavy = replace(BASE, smoothness=1e18 + 0.25, strong_convexity=1e18)
    assert heavy.data_smoothness == 0
    assert certified(heavy, density_scale=1e30) > math.log1p(0.25 / (1000 * 1e18))


@pytest.mark.parametrize(
    ("changes", "spec", "word"),
    [
        ({"convex": False}, {}, "not convex"),
        ({"strong_convexity": 0.0}, {}, "no ridge"),
        ({"smoothness": math.inf}, {}, "smoothness"),
        ({"hessian_rank": None}, {}, "rank"),
        ({"dimension": None}, {}, "dimension"),
        ({"projection_error": 1e-9}, {}, "inexact"),
        ({}, {"tolerance": 1e-13}, "double precision"),
    ],
)
@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
def test_each_hypothesis_is_refused_by_name(
    changes: dict[str, Any], spec: dict[str, Any], word: str, noise: str
) -> None:
    theorem = ObjectivePerturbationTheorem() if noise == "gamma" else GaussianObjectivePerturbation()
    run = ObjectivePerturbationSpec(**({"density_scale": 2.0, "noise": noise, **EXACT} | spec))
    theorem.certify(BASE, replace(run, tolerance=1.0))
    with pytest.raises(AssumptionFailed, match=word):
        theorem.certify(replace(BASE, **changes), run)


def test_gaussian_noise_has_no_pure_guarantee() -> None:
    run = ObjectivePerturbationSpec(density_scale=2.0, noise="gaussian", **EXACT)
    with pytest.raises(AssumptionFailed, match="no pure guarantee"):
        ObjectivePerturbationTheorem().certify(BASE, run)
    with pytest.raises(NotPrivateError, match="delta = 0"):
        CertifiedSpec(constants=BASE, spec=run, delta=0.0)
    with pytest.raises(AssumptionFailed, match="Raise density_scale"):
        GaussianObjectivePerturbation().certify(BASE, replace(run, density_scale=1e-6))


@given(
    epsilon=st.floats(0.01, 20.0),
    delta=st.sampled_from([0.0, 1e-9, 1e-5, 1e-2]),
    ridge=st.floats(0.7, 1e4),
    norm=st.floats(0.1, 100.0),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
)
@settings(max_examples=60, deadline=None)
def test_calibration_meets_epsilon_and_wastes_little(
    epsilon: float, delta: float, ridge: float, norm: float, adjacency: str
) -> None:
    total = ridge * 0.25 * norm**2 / math.expm1(min(epsilon, 1.0) / 2)
    of = problem("logistic", norm, 200, 4, total, adjacency)
    spec = calibrate_objective_perturbation(of.constants, epsilon=epsilon, delta=delta)
    promised = Plan(problem=of, spec=spec, delta=delta).guarantee.epsilon()
    assert promised <= epsilon
    assert promised >= 0.999 * epsilon


def test_a_ridge_that_is_too_small_is_named() -> None:
    with pytest.raises(CalibrationFailed, match="raise ridge"):
        calibrate_objective_perturbation(
            replace(BASE, smoothness=0.25001, strong_convexity=1e-5), epsilon=0.1
        )


def test_more_noise_never_costs_more() -> None:
    run = ObjectivePerturbationSpec(density_scale=1.0, noise="gaussian", **EXACT)
    for adjacency in ("replace-one", "add-remove"):
        constants = replace(BASE, adjacency=adjacency, gradient_sensitivity=math.nan)
        costs = [
            GaussianObjectivePerturbation().certify(constants, replace(run, density_scale=s)).epsilon(1e-5)
            for s in np.geomspace(0.5, 50, 15)
        ]
        assert all(b < a for a, b in itertools.pairwise(costs))


def _attack(name: str, norm: float, adjacency: str, rng: np.random.Generator) -> tuple[float, float]:
    """Largest exact |log density ratio| over the claim, and over the claim with norm in place of norm squared."""
    worst = wrong = 0.0
    for _ in range(12):
        dimension, n = int(rng.integers(1, 3)), int(rng.integers(1, 5))
        peak = LOSSES[name][0].curvature_bound
        ridge = peak * norm**2 * 10 ** rng.uniform(-2, 1.5)
        of = problem(name, norm, n, dimension, ridge, adjacency)
        noise = 10 ** rng.uniform(-1.5, 1)
        scale = of.constants.gradient_sensitivity / noise
        claim = certified(of.constants, density_scale=scale)
        for _ in range(12):
            first, second = random_pair(name, norm, n, dimension, adjacency, rng).sides()
            theta = rng.standard_normal((300, dimension))
            theta *= (
                10 ** rng.uniform(-3, 2, (300, 1))
                * scale
                / ridge
                / np.linalg.norm(theta, axis=1, keepdims=True)
            )
            density = [
                log_density(name, side, theta, ridge, gamma_norm_density(scale, dimension))
                for side in (first, second)
            ]
            ratio = float(np.abs(density[0] - density[1]).max())
            worst = max(worst, ratio / claim)
            wrong = max(wrong, ratio / (noise + math.log1p(peak * norm / ridge)))
    return worst, wrong


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("norm", [0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("name", list(LOSSES))
def test_exact_density_ratios_stay_within_the_claim(name: str, norm: float, adjacency: str) -> None:
    worst, wrong = _attack(name, norm, adjacency, np.random.default_rng(7))
    assert worst <= 1
    assert worst >= 0.5  # random neighbours come close: the test can fail
    if norm == 100:
        assert wrong > 1.5  # the fault of a peer, norm in place of its square, is caught


def test_the_claim_is_attained() -> None:
    """Slope -0.3 at the end of the curved piece against slope +0.3 on the flat one: both parts add up exactly."""
    norm, ridge, scale, theta = 10.0, 50.0, 1.5, np.array([[2.0]])
    of = problem("huber", norm, 1, 1, ridge, "replace-one")
    labels = (2.0 * norm + 0.3 * (1 - 1e-9), 2.0 * norm - 5.0)
    curved, flat = (
        log_density("huber", (np.array([[norm]]), np.array([y])), theta, ridge, gamma_norm_density(scale, 1))
        for y in labels
    )
    assert float((curved - flat)[0]) == pytest.approx(certified(of.constants, density_scale=scale), rel=1e-6)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("name", list(LOSSES))
def test_exact_hockey_sticks_stay_within_the_gaussian_claim(name: str, adjacency: str) -> None:
    """delta(eps) of random 1-D neighbours by quadrature over the exact densities, against the profile."""
    rng = np.random.default_rng(11)
    worst = 0.0
    for _ in range(40):
        n, norm = int(rng.integers(1, 4)), float(rng.choice([0.1, 1.0, 10.0, 100.0]))
        ridge = LOSSES[name][0].curvature_bound * norm**2 * 10 ** rng.uniform(-0.5, 2)
        of = problem(name, norm, n, 1, ridge, adjacency)
        mu = 10 ** rng.uniform(-1, 0.5)
        scale = of.constants.gradient_sensitivity / mu
        run = ObjectivePerturbationSpec(density_scale=scale, noise="gaussian", **EXACT)
        claim = GaussianObjectivePerturbation().certify(of.constants, run)
        reach = (9 * scale + (n + 1) * of.constants.lipschitz) / ridge
        theta, step = np.linspace(-reach, reach, 24_001, retstep=True)
        sides = random_pair(name, norm, n, 1, adjacency, rng).sides()
        p, q = (
            np.exp(log_density(name, s, theta[:, None], ridge, gaussian_density(scale, 1))) for s in sides
        )
        assert p.sum() * step == pytest.approx(1, abs=2e-3)
        curvature = math.log1p(LOSSES[name][0].curvature_bound * norm**2 / ridge)
        for epsilon in curvature + mu**2 / 2 + mu * np.array([0.0, 1.0, 2.0, 3.0]):
            exact = max(
                np.maximum(p - math.exp(epsilon) * q, 0).sum(), np.maximum(q - math.exp(epsilon) * p, 0).sum()
            )
            worst = max(worst, float(exact * step) / claim.delta(float(epsilon)))
    assert worst <= 1
    assert worst >= (0.1 if name == "logistic" else 0.2)


def test_softmax_density_ratios_stay_within_the_claim() -> None:
    rng = np.random.default_rng(5)
    worst = 0.0
    for _ in range(60):
        classes, norm = int(rng.integers(2, 5)), float(rng.choice([0.1, 1.0, 10.0]))
        ridge = norm**2 * 10 ** rng.uniform(-2, 1)
        of = Problem(
            loss=Softmax(n_classes=classes),
            bounds=DataBounds(data_norm=norm, classes=classes),
            n=2,
            n_features=2,
            ridge=ridge / 2,
            fit_intercept=False,
        )
        noise = 10 ** rng.uniform(-2, 0.5)
        scale = of.constants.gradient_sensitivity / noise
        rows, labels = rng.standard_normal((3, 2)) * norm, rng.integers(0, classes, 3)
        sides = [ArrayDataset(rows[keep], labels[keep], of) for keep in ([0, 1], [0, 2])]
        for _ in range(20):
            theta = rng.standard_normal(of.dimension) * 10 ** rng.uniform(-2, 1.5) / norm
            logs = []
            for data in sides:
                gradient = data.gradient_sum(of.loss, theta[:, None])[:, 0] + ridge * theta
                hessian = hessian_sum(data, theta) + ridge * np.eye(of.dimension)
                logs.append(np.linalg.slogdet(hessian)[1] - np.linalg.norm(gradient) / scale)
            worst = max(worst, abs(logs[0] - logs[1]) / certified(of.constants, density_scale=scale))
    assert 0.4 < worst <= 1


def log_laplace_tail(x: np.ndarray) -> np.ndarray:
    """log P(b <= x) for b of density exp(-|b|) / 2."""
    return np.where(x < 0, x - math.log(2), np.log1p(-np.exp(-np.abs(x)) / 2))


def test_a_constraint_keeps_the_guarantee() -> None:
    """In one dimension the law has atoms at the ends of the set; their masses are Laplace tails."""
    rng = np.random.default_rng(6)
    worst = 0.0
    for _ in range(200):
        norm, radius = float(rng.choice([0.1, 1.0, 10.0])), 10 ** rng.uniform(-2, 1)
        ridge = norm**2 * 10 ** rng.uniform(-1, 1)
        of = problem("huber", norm, 2, 1, ridge, "replace-one", constraint=Ball(radius))
        scale = of.constants.gradient_sensitivity / 10 ** rng.uniform(-1, 1)
        ends = np.array([[radius], [-radius]])
        masses = []
        for rows, labels in random_pair("huber", norm, 2, 1, "replace-one", rng).sides():
            slope, _ = slopes_and_curvatures("huber", ends @ rows.T, labels)
            pull = (slope @ rows + ridge * ends)[:, 0]  # theta = radius exactly when b <= -pull(radius)
            masses.append(log_laplace_tail(np.array([-pull[0], pull[1]]) / scale))
        worst = max(
            worst, float(np.abs(masses[0] - masses[1]).max()) / certified(of.constants, density_scale=scale)
        )
    assert 0.3 < worst <= 1


def test_the_gaussian_claim_is_twice_one_gaussian_mechanism() -> None:
    """Without curvature cost: two corners (add-remove), and two far ones of four (replace-one)."""
    flat = replace(BASE, smoothness=1e-9 + 0.01)
    for adjacency, reach in (("add-remove", 1.0), ("replace-one", 2.0)):
        constants = replace(flat, adjacency=adjacency, gradient_sensitivity=math.nan)
        run = ObjectivePerturbationSpec(density_scale=reach / 0.5, noise="gaussian", **EXACT)
        claim = GaussianObjectivePerturbation().certify(constants, run)
        assert claim.delta(2.0) == pytest.approx(2 * float(gdp_delta(0.5, 2.0)), rel=2e-3)
        assert claim.epsilon(1e-5) == pytest.approx(gdp_epsilon(0.5, 0.5e-5), rel=2e-3)


def test_the_run_is_the_stationary_point_of_the_tilted_objective() -> None:
    """Undo the noise of a seeded run: the gradient at the released point is the tilt, up to the release noise."""
    for noise, delta in (("gamma", 0.0), ("gaussian", 1e-5)):
        of = problem("logistic", 1.0, 40, 3, 6.0, "replace-one")
        rng = np.random.default_rng(0)
        data = ArrayDataset(rng.standard_normal((40, 3)), rng.integers(0, 2, 40), of)
        run = ObjectivePerturbationSpec(
            density_scale=3.0, tolerance=1e-8, release_density_scale=1e-13, noise=noise
        )  # type: ignore[arg-type]
        tilts = []
        for factor in (1.0, 2.0):
            plan = Plan(problem=of, spec=replace(run, density_scale=3.0 * factor), delta=delta)
            theta = ObjectivePerturbation().run(plan, data, 5).value
            tilts.append(-(data.gradient_sum(of.loss, theta[:, None])[:, 0] + 6.0 * theta))
        np.testing.assert_allclose(tilts[1], 2 * tilts[0], atol=1e-6)
        assert np.linalg.norm(tilts[0]) > 0.1


def test_a_constrained_run_stays_in_the_set() -> None:
    of = problem("logistic", 1.0, 40, 3, 6.0, "replace-one", constraint=Ball(0.2))
    rng = np.random.default_rng(0)
    data = ArrayDataset(rng.standard_normal((40, 3)), rng.integers(0, 2, 40), of)
    plan = Plan(problem=of, spec=calibrate_objective_perturbation(of.constants, epsilon=1.0), delta=0.0)
    release = ObjectivePerturbation().run(plan, data, 1)
    assert np.linalg.norm(release.value) <= 0.2
    assert release.n_steps == 1  # the number of solver steps depends on the data and is not released


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"density_scale": 0.0}, "density_scale"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"release_density_scale": math.nan}, "release_density_scale"),
        ({"noise": "laplace"}, "noise"),
        ({"release": "trajectory"}, "release"),
    ],
)
def test_bad_values_are_named(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidParameter, match=word):
        ObjectivePerturbationSpec(**({"density_scale": 2.0, **EXACT} | changes))


def test_plans_of_other_mechanisms_are_refused() -> None:
    of = problem("logistic", 1.0, 4, 1, 6.0, "replace-one")
    data = ArrayDataset(np.ones((4, 1)), np.zeros(4), of)
    other = Plan(problem=of, spec=OutputPerturbationSpec(density_scale=1.0, tolerance=1e-6), delta=0.0)
    with pytest.raises(InvalidParameter, match="output-perturbation"):
        ObjectivePerturbation().run(other, data, 0)
    run = ObjectivePerturbationSpec(density_scale=2.0, **EXACT)
    with pytest.raises(InvalidParameter, match="no problem"):
        ObjectivePerturbation().run(CertifiedSpec(constants=BASE, spec=run, delta=0.0), data, 0)
    elsewhere = problem("logistic", 2.0, 4, 1, 6.0, "replace-one")
    with pytest.raises(InvalidParameter, match="another problem"):
        ObjectivePerturbation().run(Plan(problem=elsewhere, spec=run, delta=0.0), data, 0)


def test_a_long_minimiser_is_scaled_back_within_the_certificate() -> None:
    """Compared with a minimiser whose own doubt is known: |w - scaled back| <= tolerance / ridge."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((200, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = (rows[:, 0] > 0).astype(float)  # separable: the minimiser is long
    of = Problem(
        loss=Logistic(),
        bounds=DataBounds(data_norm=1.0, classes=2),
        n=200,
        n_features=3,
        ridge=1e-7 / 200,
        fit_intercept=False,
        adjacency="replace-one",
    )
    data = ArrayDataset(rows, labels, of)
    objective = TiltedObjective(data=data, ridge=1e-7, tilt=np.zeros(3))
    doubt = default_tolerance(of.constants, coef_bound=5000.0)
    exact = minimize_certified(objective, doubt, coef_bound=5000.0)
    assert 500 < np.linalg.norm(exact) < 5000
    for reach in (1.0, 100.0, 1e9):
        tolerance = default_tolerance(of.constants, coef_bound=reach)
        found = minimize_certified(objective, tolerance, coef_bound=reach)
        share = min(1.0, reach / np.linalg.norm(exact))
        assert np.linalg.norm(found) <= reach * (1 + 1e-12)
        allowed = (tolerance + 2 * share * doubt) / 1e-7
        assert np.linalg.norm(found - share * exact) <= allowed
        assert np.linalg.norm(minimize_certified(objective, tolerance, 80, reach) - share * exact) <= allowed
    assert default_tolerance(of.constants, coef_bound=100.0) < 1e-3 * default_tolerance(of.constants)


def test_release_noise_falls_with_epsilon() -> None:
    """A small ridge (large epsilon) may not bring back noise through the solver's tolerance."""
    sizes = []
    for epsilon in (1.0, 4.0, 16.0):
        fit_plan = plan_fit(
            model="logistic",
            n=60_000,
            n_features=26,
            epsilon=epsilon,
            delta=0.0,
            adjacency="replace-one",
            data_norm=1.0,
            fit_intercept=False,
            mechanism="objective-perturbation",
        )
        spec = fit_plan.plan.spec
        assert isinstance(spec, ObjectivePerturbationSpec)
        sizes.append(spec.release_density_scale * 26)
    assert max(sizes) < 0.03
