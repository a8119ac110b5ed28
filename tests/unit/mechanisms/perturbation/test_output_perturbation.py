"""Output perturbation: the sensitivity of minimisers, the certified solver, closed forms and the noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import gamma, kstest

from dplangevin.accounting.plan import CertifiedSpec, Plan
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, InvalidParameter, NotPrivateError
from dplangevin.mechanisms import newton
from dplangevin.mechanisms.newton import TiltedObjective, hessian_sum, minimize_certified
from dplangevin.mechanisms.perturbation.mechanism import OutputPerturbation
from dplangevin.mechanisms.perturbation.spec import (
    OutputPerturbationSpec,
    OutputPerturbationTheorem,
    calibrate_output_perturbation,
    default_tolerance,
    minimizer_sensitivity,
)
from dplangevin.problem import (
    Ball,
    Box,
    Clipped,
    Constants,
    ConstraintSet,
    DataBounds,
    L1Ball,
    Loss,
    Poisson,
    Problem,
    SmoothedHinge,
    SmoothedPinball,
    Softmax,
    WholeSpace,
)
from unit._perturbation import LOSSES, problem, random_pair

BASE = Constants(n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01)
SETS: list[ConstraintSet] = [WholeSpace(), Ball(0.3), Box(-0.1, 0.25), L1Ball(0.3)]
ALL: list[tuple[Loss, dict[str, Any]]] = [
    *LOSSES.values(),
    (SmoothedHinge(width=0.2), {"classes": 2}),
    (SmoothedPinball(quantile=0.3, width=0.1), {"target": (-1, 1)}),
    (Clipped(Poisson(target_bound=5.0), 2.0), {"target": (0, 5)}),
    (Softmax(n_classes=3), {"classes": 3}),
]


def minimiser(of: Problem, rows: Any, labels: Any) -> np.ndarray:
    objective = TiltedObjective(
        data=ArrayDataset(rows, labels, of), ridge=of.n * of.ridge, tilt=np.zeros(of.dimension)
    )
    return minimize_certified(objective, default_tolerance(of.constants))


@pytest.mark.parametrize("constraint", SETS, ids=lambda s: s.name)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("norm", [0.1, 1.0, 10.0, 100.0])
def test_neighbouring_minimisers_are_within_the_sensitivity(
    norm: float, adjacency: str, constraint: ConstraintSet
) -> None:
    rng = np.random.default_rng(3)
    worst = 0.0
    for name, (loss, _) in LOSSES.items():
        for _ in range(6):
            n, dimension = int(rng.integers(2, 6)), int(rng.integers(1, 4))
            ridge = loss.curvature_bound * norm**2 * 10 ** rng.uniform(-1, 1.5)
            of = problem(name, norm, n, dimension, ridge, adjacency, constraint=constraint)
            first, second = (
                minimiser(of, *side) for side in random_pair(name, norm, n, dimension, adjacency, rng).sides()
            )
            bound = minimizer_sensitivity(of.constants, default_tolerance(of.constants))
            worst = max(worst, float(np.linalg.norm(first - second)) / bound)
    assert worst <= 1
    if isinstance(constraint, WholeSpace):
        assert worst > 0.25


@pytest.mark.parametrize("norm", [0.1, 1.0, 10.0, 100.0])
def test_the_sensitivity_is_attained(norm: float) -> None:
    """Flat losses that pull in opposite directions: theta = -+ L / Lambda."""
    of = problem("huber", norm, 1, 1, 400 * norm**2, "replace-one")
    gap = minimiser(of, [[norm]], [1.0]) - minimiser(of, [[norm]], [-1.0])
    assert float(abs(gap[0])) == pytest.approx(2 * 0.3 * norm / (400 * norm**2), rel=1e-9)


def test_the_published_noise() -> None:
    """n = 3e4, ridge .01, eps = 1: E|z| = p S / eps = .1333 for p = 20 and .6667 for p = 100."""
    spec = calibrate_output_perturbation(BASE, epsilon=1.0)
    assert 20 * spec.density_scale == pytest.approx(0.13333, rel=1e-4)
    assert 100 * spec.density_scale == pytest.approx(0.66667, rel=1e-4)


@given(
    epsilon=st.floats(0.01, 20.0),
    delta=st.sampled_from([0.0, 1e-9, 1e-5]),
    ridge=st.floats(1e-6, 10.0),
    n=st.integers(1, 10**7),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
)
@settings(max_examples=80, deadline=None)
def test_calibration_is_the_inverse_of_the_theorem(
    epsilon: float, delta: float, ridge: float, n: int, adjacency: str
) -> None:
    constants = Constants(
        n=n, lipschitz=2.0, smoothness=1 + ridge, strong_convexity=ridge, adjacency=adjacency
    )  # type: ignore[arg-type]
    spec = calibrate_output_perturbation(constants, epsilon=epsilon, delta=delta)
    promised = CertifiedSpec(constants=constants, spec=spec, delta=delta).guarantee.epsilon()
    assert 0.999 * epsilon <= promised <= epsilon
    expected = (constants.gradient_sensitivity + 2 * spec.tolerance) / (n * ridge)
    assert minimizer_sensitivity(constants, spec.tolerance) == pytest.approx(expected, rel=1e-12)


def test_each_hypothesis_is_refused_by_name() -> None:
    run = OutputPerturbationSpec(density_scale=1.0, tolerance=1e-6)
    for changes, word in (
        ({"convex": False}, "not convex"),
        ({"strong_convexity": 0.0}, "no ridge"),
        ({"smoothness": math.inf}, "smoothness"),
        ({"projection_error": 1e-9}, "inexact"),
    ):
        with pytest.raises(AssumptionFailed, match=word):
            OutputPerturbationTheorem().certify(replace(BASE, **changes), run)  # type: ignore[arg-type]
    with pytest.raises(AssumptionFailed, match="double precision"):
        OutputPerturbationTheorem().certify(BASE, replace(run, tolerance=1e-12))
    with pytest.raises(NotPrivateError, match="delta = 0"):
        CertifiedSpec(constants=BASE, spec=replace(run, noise="gaussian"), delta=0.0)


@pytest.mark.parametrize(
    "changes", [{"density_scale": -1.0}, {"tolerance": 0.0}, {"noise": "uniform"}, {"release": "average"}]
)
def test_bad_values_are_named(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(changes))):
        OutputPerturbationSpec(**({"density_scale": 1.0, "tolerance": 1e-6} | changes))


@pytest.mark.parametrize("constraint", SETS, ids=lambda s: s.name)
@pytest.mark.parametrize("case", range(len(ALL)))
def test_the_solver_certifies_what_it_returns(case: int, constraint: ConstraintSet) -> None:
    """First-order optimality against many points z of the set: <grad, z - theta> >= -tolerance |z - theta|."""
    loss, label = ALL[case]
    rng = np.random.default_rng(case)
    of = Problem(
        loss=loss,
        bounds=DataBounds(data_norm=2.0, weight_bound=3.0, **label),
        n=50,
        n_features=4,
        constraint=constraint,
        ridge=0.2,
    )
    labels = (
        rng.integers(0, label["classes"], 50) if "classes" in label else rng.uniform(*label["target"], 50)
    )
    data = ArrayDataset(rng.standard_normal((50, 4)), labels, of, rng.uniform(0, 3, 50))
    objective = TiltedObjective(data=data, ridge=10.0, tilt=rng.standard_normal(of.dimension))
    theta = minimize_certified(objective, 1e-8)
    gradient = objective.gradient(theta)
    away = np.concatenate(
        [
            theta - gradient * np.geomspace(1e-6, 1e3, 30)[:, None],
            theta + rng.standard_normal((200, of.dimension)),
        ]
    )
    for point in constraint.project(away.T).T:
        assert gradient @ (point - theta) >= -1e-8 * np.linalg.norm(point - theta) - 1e-13
    assert constraint.contains(theta, 1e-12)


def test_the_hessian_is_the_derivative_of_the_gradient() -> None:
    for case in (0, 7):
        loss, label = ALL[case]
        rng = np.random.default_rng(1)
        of = Problem(
            loss=loss, bounds=DataBounds(data_norm=2.0, weight_bound=2.0, **label), n=30, n_features=3
        )
        data = ArrayDataset(
            rng.standard_normal((30, 3)), rng.integers(0, label["classes"], 30), of, rng.uniform(0, 2, 30)
        )
        theta = rng.standard_normal(of.dimension)
        shifts = 1e-5 * np.eye(of.dimension)
        ahead = data.gradient_sum(loss, theta[:, None] + shifts)
        behind = data.gradient_sum(loss, theta[:, None] - shifts)
        np.testing.assert_allclose(hessian_sum(data, theta), (ahead - behind) / 2e-5, atol=1e-6)


def test_without_the_certificate_nothing_is_released_and_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = problem("logistic", 1.0, 3, 1, 0.3, "replace-one")
    data = ArrayDataset([[0.123456], [0.2], [0.3]], [0, 1, 1], of)
    plan = Plan(problem=of, spec=calibrate_output_perturbation(of.constants, epsilon=1.0), delta=0.0)
    monkeypatch.setattr(newton, "MAX_NEWTON_STEPS", 1)
    with pytest.raises(AssumptionFailed, match="nothing is released") as failure:
        OutputPerturbation().run(plan, data, 0)
    assert "0.12" not in str(failure.value)
    assert str(failure.value).count("tolerance") == 2


class Budget:
    """A ledger that notes the order of calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def reserve(self, plan: Plan) -> str:
        self.calls.append("reserve")
        return "token"

    def commit(self, token: str, release_hash: str) -> None:
        self.calls.append(f"commit {token} {len(release_hash)}")


def test_the_noise_is_the_one_that_was_accounted() -> None:
    """Gamma norm and uniform direction around the minimiser: Kolmogorov-Smirnov at level 1e-6, fixed seed."""
    of = problem("huber", 1.0, 2, 3, 50.0, "replace-one")
    rows, labels = np.eye(3)[:2], np.array([1.0, -1.0])
    data = ArrayDataset(rows, labels, of)
    plan = Plan(problem=of, spec=calibrate_output_perturbation(of.constants, epsilon=1.0), delta=0.0)
    scale = plan.spec.density_scale  # type: ignore[attr-defined]
    rng = np.random.default_rng(4)
    noise = np.array([OutputPerturbation().run(plan, data, rng).value for _ in range(1500)]) - minimiser(
        of, rows, labels
    )
    norms = np.linalg.norm(noise, axis=1)
    assert kstest(norms, gamma(3, scale=scale).cdf).pvalue > 1e-6
    assert kstest(noise[:, 0] / norms, "uniform", args=(-1, 2)).pvalue > 1e-6  # Archimedes, in dimension 3
    assert kstest(norms, gamma(3, scale=scale / 1.2).cdf).pvalue < 1e-6


def test_the_budget_is_reserved_before_and_committed_after() -> None:
    of = problem("huber", 1.0, 2, 3, 50.0, "replace-one", constraint=Ball(0.01))
    data = ArrayDataset(np.eye(3)[:2], [1.0, -1.0], of)
    budget = Budget()
    plan = Plan(
        problem=of, spec=calibrate_output_perturbation(of.constants, epsilon=1.0, delta=1e-6), delta=1e-6
    )
    release = OutputPerturbation().run(plan, data, 0, ledger=budget)
    assert budget.calls == ["reserve", "commit token 64"]
    assert release.seeded
    assert not OutputPerturbation().run(plan, data).seeded
    assert np.linalg.norm(release.value) <= 0.01
    assert plan.guarantee.mu is not None
