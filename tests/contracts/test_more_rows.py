"""A stated divisor n under add-remove: neither the plan nor what is said depends on the number of rows."""

from __future__ import annotations

import math
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dplangevin.accounting.plan import Plan, certify_plan, load_plan, save_plan
from dplangevin.accounting.registry import spec_types, theorems_for
from dplangevin.accounting.theorem import Theorem
from dplangevin.cli.main import app
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.estimators import DPLogisticRegression, DPRidge
from dplangevin.mechanisms.newton import TiltedObjective, minimize_certified
from dplangevin.mechanisms.noisy_gradient.mechanism import sample_batches
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.perturbation.spec import calibrate_objective_perturbation, minimizer_sensitivity
from dplangevin.problem import Ball, DataBounds, Logistic, Problem
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import full_lipschitz, has_interior_minimizers, max_excess
from dplangevin.rashomon import RashomonSampler
from dplangevin.sampling.potential import ProblemPotential

N = 200
ANY_NUMBER = {
    "composition",
    "sufficient-statistics",
    "whitened-composition",
    "ridge-whitened-composition",
    "public-mirror-descent",
    "output-perturbation",
    "objective-perturbation",
    "whitened-objective-perturbation",
    "gaussian-objective-perturbation",
}


def problem(n: int = 50, **changes: Any) -> Problem:
    stated: dict[str, Any] = {
        "loss": Logistic(), "bounds": DataBounds(data_norm=1.0, classes=2), "n_features": 2, "ridge": 0.02,
        "fit_intercept": False, "adjacency": "add-remove", "allow_more_rows": True,
    }  # fmt: skip
    return Problem(n=n, **(stated | changes))


def records(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 2))
    return X / np.linalg.norm(X, axis=1, keepdims=True), rng.integers(0, 2, rows).astype(float)


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (DPLogisticRegression, {}),
        (DPLogisticRegression, {"delta": 0.0}),
        (DPLogisticRegression, {"delta": 0.0, "mechanism": "objective-perturbation"}),
        (DPLogisticRegression, {"mechanism": "noisy-gd"}),
        (DPLogisticRegression, {"mechanism": "noisy-sgd", "epsilon": 0.5}),
        (DPLogisticRegression, {"mechanism": "output-perturbation", "alpha": 0.1, "radius": 2.0}),
        (DPLogisticRegression, {"intervals": True, "delta": 0.0, "epsilon": 50.0}),
        (DPRidge, {"mechanism": "sufficient-statistics"}),
    ],
)
def test_neighbours_around_n_get_the_same_plan_and_nothing_is_said(
    cls: type, options: dict[str, Any]
) -> None:
    stated = {"classes": [0, 1]} if cls is DPLogisticRegression else {"target_bounds": (0, 1)}
    given = {"epsilon": 20.0, "delta": 1e-6, "data_norm": 1.0, **stated, **options}
    plans = []
    for rows in (N - 1, N, N + 1, 12 * N):
        X, y = records(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = cls(adjacency="add-remove", n_public=N, random_state=0, **given).fit(X, y)
        plans.append((model.plan_.plan.spec, model.plan_.reasons, model.plan_.warning, model.privacy_))
        assert model.privacy_.epsilon() <= given["epsilon"]
        assert not any("number of rows is public" in words for words in model.privacy_.assumptions)
        assert any("may hold more or fewer records" in words for words in model.privacy_.assumptions)
    assert all(plan == plans[0] for plan in plans)


def test_without_n_the_number_of_rows_is_public_and_the_divisor() -> None:
    X, y = records(N)
    given: dict[str, Any] = {"data_norm": 1.0, "classes": [0, 1], "delta": 1e-6, "random_state": 0}
    model = DPLogisticRegression(adjacency="add-remove", epsilon=20.0, **given).fit(X, y)
    assert not model.plan_.plan.problem.allow_more_rows
    assert any("never hold more records" in words for words in model.privacy_.assumptions)
    with pytest.raises(InvalidParameter, match="more rows than"):
        ArrayDataset(X, y, problem(allow_more_rows=False))


@pytest.mark.parametrize("mechanism", ["exponential", "gibbs", "iterated-exponential", "langevin"])
def test_what_needs_at_most_n_records_refuses_by_name(mechanism: str) -> None:
    X, y = records(N)
    model = DPLogisticRegression(
        epsilon=20.0,
        delta=1e-6,
        data_norm=1.0,
        classes=[0, 1],
        adjacency="add-remove",
        n_public=N,
        radius=2.0,
        mechanism=mechanism,
    )
    with pytest.raises(InvalidParameter, match=f"{mechanism}.*at most n records"):
        model.fit(X, y)


def test_rashomon_sets_refuse_a_stated_divisor() -> None:
    X, y = records(N)
    model = DPLogisticRegression(
        data_norm=1.0, classes=[0, 1], adjacency="add-remove", n_public=N, radius=1.0
    )
    with pytest.raises(InvalidParameter, match=r"Rashomon.*at most n records"):
        RashomonSampler(model, thresholds=0.1, n_models=2, epsilon=2.0).fit(X, y)


def test_only_theorems_that_say_so_hold_for_more_records() -> None:
    """Deny by default: over the whole table, a theorem is asked before it is believed."""
    saying, constants = set(), problem().constants
    for kind in spec_types():
        for name, theorem in theorems_for(kind).items():
            if theorem.holds_beyond_n or type(theorem).covers_more_rows is not Theorem.covers_more_rows:
                saying.add(name)
            elif not kind.capabilities.needs_no_problem:
                with pytest.raises(AssumptionFailed, match="at most n records"):
                    theorem.certify(constants, object())
    assert saying == ANY_NUMBER


def test_no_theorem_passes_by_the_question() -> None:
    with pytest.raises(TypeError, match="in `derive_guarantee`, not in `certify`"):
        type("Rash", (Theorem,), {"certify": lambda self, constants, spec: None})


@pytest.mark.parametrize("sampling", ["cyclic", "shuffle", "without-replacement"])
def test_batches_in_rounds_are_not_covered(sampling: Any) -> None:
    spec = NoisyGradientSpec(step_size=1.0, noise_std=1.0, n_steps=10, sampling=sampling, batch_size=5)
    assert not theorems_for(type(spec))["composition"].covers_more_rows(spec)
    with pytest.raises(InvalidParameter, match="not defined under"):
        certify_plan(problem().constants, spec, delta=1e-6)


def test_descent_is_composed_and_nothing_better_is_claimed() -> None:
    spec = NoisyGradientSpec(step_size=1.0, noise_std=1.0, n_steps=500)
    capped = problem(allow_more_rows=False).constants
    assert certify_plan(capped, spec, delta=1e-6).theorem != "composition"
    assert certify_plan(problem().constants, spec, delta=1e-6).theorem == "composition"


def test_replace_one_has_exactly_n_records() -> None:
    with pytest.raises(InvalidParameter, match="add-remove"):
        Constants(n=3, lipschitz=1.0, allow_more_rows=True)


def test_a_record_is_drawn_with_the_public_rate_whatever_the_number_of_rows() -> None:
    """2000 batches of 600 rows at rate 5 / 200; six deviations of the mean: false alarms below 1e-8."""
    spec = NoisyGradientSpec(step_size=1.0, noise_std=1.0, n_steps=1, sampling="poisson", batch_size=5)
    drawn = sample_batches(spec, 600, 5, 200, np.random.default_rng(0))
    sizes = [len(rows) for rows in islice(drawn, 2000) if rows is not None]
    assert abs(np.mean(sizes) - 15) < 6 * math.sqrt(15 / 2000)


@pytest.mark.parametrize("more", [1, 6])
def test_minimisers_of_neighbours_are_as_close_as_stated(more: int) -> None:
    """Exact sensitivity with more rows than n: the record that pulls most, added to few and to many others."""
    stated = problem()
    tolerance = 1e-8
    X, y = records(more * stated.n + 1)
    X[:, 0] = np.abs(X[:, 0])
    points = []
    for rows in (len(X), len(X) - 1):
        data = ArrayDataset(X[:rows], y[:rows], stated)
        objective = TiltedObjective(data=data, ridge=stated.n * stated.ridge, tilt=np.zeros(2))
        points.append(minimize_certified(objective, tolerance))
    assert np.linalg.norm(points[0] - points[1]) <= minimizer_sensitivity(stated.constants, tolerance)


def _log_density(
    stated: Problem, X: np.ndarray, y: np.ndarray, thetas: np.ndarray, scale: float
) -> np.ndarray:
    """Of the tilted minimiser at each column, up to a constant: exp(-|grad Phi| / scale) det(Hessian of Phi)."""
    ridge = stated.n * stated.ridge
    p = 1 / (1 + np.exp(-X @ thetas))
    gradient = X.T @ (p - y[:, None]) + ridge * thetas
    bend = p * (1 - p)
    a, b, c = ((X[:, i] * X[:, j]) @ bend for i, j in ((0, 0), (0, 1), (1, 1)))
    determinant = (a + ridge) * (c + ridge) - b * b
    return -np.linalg.norm(gradient, axis=0) / scale + np.log(determinant)


@pytest.mark.parametrize(("rows", "broken"), [(0, 1.0), (49, 1.0), (50, 1.0), (400, 1.0), (0, 0.5)])
def test_an_exact_attack_on_objective_perturbation(rows: int, broken: float) -> None:
    """The densities of neighbours, at thousands of points, with fewer and with eight times more rows than n.

    Half the noise is caught: the attack is able to fail.
    """
    stated = problem()
    spec = calibrate_objective_perturbation(stated.constants, epsilon=1.0)
    claim = Plan(problem=stated, spec=spec, delta=0.0).guarantee.epsilon(0.0)
    X, y = records(rows + 1)
    X[-1], y[-1] = (1.0, 0.0), 1.0
    thetas = np.random.default_rng(1).standard_normal((2, 4000)) * np.geomspace(0.01, 30, 4000)
    scale = spec.density_scale * broken
    ratio = _log_density(stated, X, y, thetas, scale) - _log_density(stated, X[:-1], y[:-1], thetas, scale)
    # normalising constants are those of the same noise: the map theta -> -grad Phi is a bijection
    assert (np.abs(ratio).max() <= claim) == (broken == 1.0)


def test_the_solver_certifies_its_point_for_the_records_it_saw() -> None:
    stated, theta = problem(), np.array([0.3, 0.4])
    doubts = []
    for rows in (10, 50, 500, 5000):
        data = ArrayDataset(*records(rows), stated)
        doubts.append(TiltedObjective(data=data, ridge=1.0, tilt=np.zeros(2)).gradient_rounding_bound(theta))
    assert doubts[0] == doubts[1]
    assert doubts[2] > 5 * doubts[1]
    assert doubts[3] > 5 * doubts[2]


def test_a_plan_file_keeps_the_word(tmp_path: Path) -> None:
    stated = problem()
    spec = calibrate_objective_perturbation(stated.constants, epsilon=1.0)
    save_plan(Plan(problem=stated, spec=spec, delta=0.0), tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").problem.allow_more_rows


def test_bounds_of_the_mean_objective_are_unknown() -> None:
    stated = problem(constraint=Ball(100.0))
    assert full_lipschitz(stated) == max_excess(stated) == stated.constants.contraction(0.1) == math.inf
    assert not has_interior_minimizers(stated)
    assert has_interior_minimizers(problem(constraint=Ball(100.0), allow_more_rows=False))
    assert ProblemPotential(ArrayDataset(*records(60), stated), 1.0).smoothness == math.inf


def test_the_command_line_takes_a_divisor(tmp_path: Path) -> None:
    X, y = records(N + 1)
    table, out = tmp_path / "table.csv", tmp_path / "model.json"
    lines = ["a,b,label", *(f"{a},{b},{int(label)}" for (a, b), label in zip(X, y, strict=True))]
    table.write_text("\n".join(lines) + "\n")
    asked = [
        "fit",
        str(table),
        "--target",
        "label",
        "--classes",
        "0,1",
        "--data-norm",
        "1",
        "--epsilon",
        "20",
    ]
    asked += ["--adjacency", "add-remove", "--n-public", str(N), "--delta", "1e-6", "-o", str(out)]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert f"n = {N}" in result.output
    plan = [
        "plan",
        "--n",
        str(N),
        "--n-features",
        "2",
        "--epsilon",
        "20",
        "--delta",
        "1e-6",
        "--adjacency",
        "add-remove",
    ]
    told = CliRunner().invoke(app, [*plan, "--allow-more-rows"])
    assert told.exit_code == 0, told.output
    assert told.output.splitlines()[:3] == result.output.splitlines()[:3]
