"""Secure mode: the sensitivity is enforced in integers, the noise is the accounted one, and the rest is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin import DPLogisticRegression, DPRidge
from dplangevin.accounting import serialize
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.plan import Plan
from dplangevin.cli.main import run_command_line as command
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, CalibrationFailed, DplangevinError, InvalidParameter
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_gradient import mechanism as discrete_gradient
from dplangevin.mechanisms.noisy_gradient.mechanism import (
    MAX_SQUARED_NORM,
    _scaled_gradients,
    sum_bounded_columns,
    sum_integer_gradients,
)
from dplangevin.mechanisms.noisy_gradient.spec import DiscreteGradientSpec, NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.discrete_composition import (
    DiscreteComposition,
    calibrate_discrete_gradient,
    integer_bound,
)
from dplangevin.planner.fit_plan import plan_request
from dplangevin.problem import Ball, Clipped, DataBounds, Logistic, Problem, Softmax, Squared


def _problem(**changes: Any) -> Problem:
    options: dict[str, Any] = {
        "loss": Logistic(), "bounds": DataBounds(data_norm=1.0, classes=2), "n": 40, "n_features": 3,
        "constraint": Ball(3.0), "ridge": 0.01,
    }  # fmt: skip
    return Problem(**{**options, **changes})


PROBLEM = _problem()
SCHEDULE = DiscreteGradientSpec(step_size=1.0, noise_std=0.5, n_steps=20)


def _data(problem: Problem, seed: int = 0, size: float = 3.0) -> ArrayDataset:
    rng = np.random.default_rng(seed)
    X = size * rng.standard_normal((problem.n, problem.n_features))
    low, high = problem.bounds.label_range
    y = (
        rng.integers(int(low), int(high) + 1, problem.n)
        if problem.bounds.classes
        else rng.uniform(low, high, problem.n)
    )
    return ArrayDataset(X, y.astype(float), problem)


PROBLEMS = [
    PROBLEM,
    _problem(adjacency="add-remove"),
    _problem(loss=Clipped(Squared(), 0.3), bounds=DataBounds(data_norm=2.0, target=(-1, 1)), n_features=7),
    _problem(loss=Softmax(n_classes=4), bounds=DataBounds(data_norm=0.5, classes=4, weight_bound=2.0)),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.loss.name} {p.adjacency}")
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), resolution=st.integers(4, 22), far=st.sampled_from([0.1, 3.0, 1e3]))
def test_neighbours_differ_by_no_more_than_is_accounted(
    problem: Problem, seed: int, resolution: int, far: float
) -> None:
    schedule = replace(SCHEDULE, resolution=resolution)
    bound, grid = integer_bound(problem.constants, schedule), schedule.grid(problem.n)
    rng = np.random.default_rng(seed)
    theta = far * rng.standard_normal(problem.dimension)
    data = _data(problem, seed)
    whole = sum_integer_gradients(data, theta, None, grid, bound)
    single = sum_integer_gradients(data, theta, np.array([5]), grid, bound)
    rest = sum_integer_gradients(data, theta, np.r_[0:5, 6 : problem.n], grid, bound)
    assert np.array_equal(whole, rest + single)  # a record's integers do not depend on the others
    assert int((single.astype(object) ** 2).sum()) <= bound
    other = sum_integer_gradients(_data(problem, seed + 1, size=100.0), theta, np.array([5]), grid, bound)
    moved = (single - other).astype(object)
    assert int((moved**2).sum()) <= 4 * bound


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.loss.name} {p.adjacency}")
def test_admissible_records_are_all_counted(problem: Problem) -> None:
    """The bound is not below what honest records need, so that none is dropped; extreme rows come close to it."""
    schedule = replace(SCHEDULE, resolution=16)
    bound, grid = integer_bound(problem.constants, schedule), schedule.grid(problem.n)
    longest = 0
    for seed in range(40):
        data = _data(problem, seed, size=1e3)
        theta = 1e4 * np.random.default_rng(seed).standard_normal(problem.dimension)
        for row in range(0, problem.n, 3):
            z = sum_integer_gradients(data, theta, np.array([row]), grid, MAX_SQUARED_NORM).astype(object)
            assert int((z**2).sum()) <= bound
            longest = max(longest, int((z**2).sum()))
    assert longest > (0.2 if problem.bounds.weight_bound > 1 else 0.5) * bound


def test_records_beyond_the_bound_are_not_counted() -> None:
    columns = np.array([[3.0, 30.0, math.nan, math.inf, 1e200, 0.4], [4.0, 0.0, 0.0, 1.0, -1e200, -0.6]])
    assert sum_bounded_columns(columns.copy(), 25).tolist() == [3, 3]
    assert sum_bounded_columns(columns.copy(), 24).tolist() == [0, -1]
    big = np.full((4, 2), 2.0**24)
    assert sum_bounded_columns(big, 2**50).tolist() == [2**25] * 4


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.loss.name} {p.adjacency}")
def test_a_record_looks_the_same_wherever_it_stands(problem: Problem) -> None:
    """Bit for bit: alone, first, last, in blocks of every length around the widths of vector instructions."""
    data = _data(_same(problem, 4200), 3)
    theta = np.random.default_rng(1).standard_normal(problem.dimension)
    blocks = list(data.blocks())
    every = np.concatenate([_scaled_gradients(data, block, theta, 0.01) for block in blocks], axis=1)
    for start in (0, 1, 2, 3, 5, 4090, 4095):
        for length in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33):
            rows = np.arange(start, min(start + length, 4200))
            (block,) = data.blocks(rows)
            assert np.array_equal(_scaled_gradients(data, block, theta, 0.01), every[:, rows])


def _same(problem: Problem, n: int) -> Problem:
    return replace(problem, n=n)


def test_the_theorem_by_hand() -> None:
    constants = PROBLEM.constants
    grid = 0.5 * 40 / 2**20
    assert SCHEDULE.grid(40) == grid
    length = math.sqrt(2) * 1.0 / grid + math.sqrt(4) / 2  # row norm sqrt 2, slope 1, four parameters
    bound = integer_bound(constants, SCHEDULE)
    assert length**2 <= bound <= (length * (1 + 1e-8)) ** 2 + 1
    guarantee = Plan(problem=PROBLEM, spec=SCHEDULE, delta=1e-5).guarantee
    (part,) = guarantee.parts
    assert isinstance(part, Gaussian)
    assert part.mu == pytest.approx(math.sqrt(20 * 4 * bound) / 2.0**20, rel=1e-8)
    assert part.mu > math.sqrt(20 * 4 * bound) / 2.0**20
    added = DiscreteComposition().certify(
        replace(constants, adjacency="add-remove", gradient_sensitivity=math.nan), SCHEDULE
    )
    assert added.parts[0].mu == pytest.approx(part.mu / 2)  # type: ignore[attr-defined]
    assert guarantee.arithmetic == "discrete-grid"
    assert not any("real-valued noise" in words for words in guarantee.assumptions)
    assert any("exactly the distribution of ideal noise" in words for words in guarantee.assumptions)
    assert serialize.guarantee_from_json(serialize.guarantee_to_json(guarantee)).epsilon(
        1e-5
    ) == guarantee.epsilon(1e-5)


def test_the_grid_and_the_accounting_cost_little() -> None:
    """No cheaper than real-valued noise of the same size, and at most 0.1% dearer in epsilon at the default grid."""
    constants = PROBLEM.constants
    real = Plan(problem=PROBLEM, spec=SCHEDULE.to_real_valued(), delta=1e-5).guarantee.composition
    plain = (real or Plan(problem=PROBLEM, spec=SCHEDULE.to_real_valued(), delta=1e-5).guarantee).epsilon(
        1e-5
    )
    costs = [
        DiscreteComposition().certify(constants, replace(SCHEDULE, resolution=r)).epsilon(1e-5)
        for r in (6, 10, 16, 20)
    ]
    assert costs == sorted(costs, reverse=True)
    assert plain < costs[-1] < 1.001 * plain
    assert costs[0] > 1.02 * costs[-1]


def test_batches_count_once_an_epoch() -> None:
    batched = replace(SCHEDULE, batch_size=10, sampling="shuffle", noise_std=2.0)
    constants = PROBLEM.constants
    full = DiscreteComposition().certify(constants, SCHEDULE).parts[0].mu  # type: ignore[attr-defined]
    assert DiscreteComposition().certify(constants, batched).parts[0].mu == pytest.approx(full / 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("epsilon", "resolution"), [(0.05, 20), (1.0, 20), (8.0, 20), (1.0, 12), (8.0, 12)])
def test_calibration_meets_the_promise_and_is_tight(epsilon: float, resolution: int) -> None:
    schedule = replace(SCHEDULE, resolution=resolution)
    found = calibrate_discrete_gradient(PROBLEM.constants, schedule, epsilon=epsilon, delta=1e-6)
    assert 0.9 * epsilon < Plan(problem=PROBLEM, spec=found, delta=1e-6).guarantee.epsilon() <= epsilon
    if resolution == 20:
        assert Plan(problem=PROBLEM, spec=found, delta=1e-6).guarantee.epsilon() > 0.998 * epsilon
    with pytest.raises(CalibrationFailed, match="raise resolution"):
        calibrate_discrete_gradient(
            PROBLEM.constants, replace(schedule, resolution=1), epsilon=0.01, delta=1e-6
        )


def test_the_noise_drawn_is_the_noise_accounted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def recorded(power: int, size: int) -> np.ndarray:
        asked.append((power, size))
        return np.zeros(size, np.int64)

    monkeypatch.setattr(discrete_gradient, "sample_rounded_gaussian", recorded)
    plan = Plan(problem=PROBLEM, spec=SCHEDULE, delta=1e-5)
    silent = run_plan(plan, _data(PROBLEM), secure=True)
    assert asked == [(20, 4)] * 20
    # without noise it is gradient descent, up to the grid
    theta, data = np.zeros(4), _data(PROBLEM)
    for _ in range(20):
        gradient = data.gradient_sum(PROBLEM.loss, theta[:, None])[:, 0] / 40 + 0.01 * theta
        theta = PROBLEM.constraint.project(theta - gradient)
    assert silent.value == pytest.approx(theta, abs=1e-4)


def test_outputs_lie_on_the_public_grid_and_are_not_seeded() -> None:
    schedule = replace(SCHEDULE, release="trajectory")
    release = run_plan(Plan(problem=PROBLEM, spec=schedule, delta=1e-5), _data(PROBLEM), secure=True)
    grid = schedule.output_grid
    assert math.log2(grid) == int(math.log2(grid))
    for theta in release.iterates.values():
        assert np.array_equal(theta / grid, np.rint(theta / grid))
    assert len(release.iterates) == 20
    assert release.seeded is False


def test_what_secure_mode_refuses() -> None:
    data = _data(PROBLEM)
    plan = Plan(problem=PROBLEM, spec=SCHEDULE, delta=1e-5)
    with pytest.raises(InvalidParameter, match="random_state must be left out"):
        run_plan(plan, data, 0)
    hidden = Plan(problem=PROBLEM, spec=SCHEDULE.to_real_valued(), delta=1e-5)
    with pytest.raises(AssumptionFailed, match="real-valued"):
        run_plan(hidden, data, secure=True)
    with pytest.raises(InvalidParameter, match=r"optimal-shift.*discrete-composition"):
        Plan(problem=PROBLEM, spec=SCHEDULE, delta=1e-5, theorem="optimal-shift")
    for sampling in ("poisson", "without-replacement"):
        with pytest.raises(InvalidParameter, match="no amplification"):
            replace(SCHEDULE, sampling=sampling, batch_size=5)
    with pytest.raises(AssumptionFailed, match="add-remove"):
        Plan(problem=_problem(adjacency="add-remove"), spec=replace(SCHEDULE, sampling="cyclic", batch_size=5),
             delta=1e-5, theorem="discrete-composition")  # fmt: skip
    with pytest.raises(AssumptionFailed, match="Lower resolution"):
        integer_bound(PROBLEM.constants, replace(SCHEDULE, noise_std=1e-9))
    with pytest.raises(AssumptionFailed, match="number of parameters"):
        integer_bound(replace(PROBLEM.constants, dimension=None), SCHEDULE)
    with pytest.raises(DplangevinError):
        Plan(problem=PROBLEM, spec=SCHEDULE, delta=0.0)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"mechanism": "objective-perturbation"}, AssumptionFailed, "no proof for mechanism"),
        ({"mechanism": "noisy-gd-secure"}, InvalidParameter, "is what secure=True runs: state secure=True"),
        (
            {"mechanism": "output-perturbation", "delta": 0},
            InvalidParameter,
            "gamma noise has no secure form",
        ),
        ({"theorem": "optimal-shift"}, AssumptionFailed, "no proof by theorem"),
        ({"delta": 0}, InvalidParameter, "needs delta > 0"),
        ({"random_state": 1}, InvalidParameter, "random_state must be left out"),
        ({"intervals": True, "mechanism": "objective-perturbation"}, InvalidParameter, "intervals"),
        ({"secure": "yes"}, InvalidParameter, "True or False"),
        ({"mechanism": "noisy-sgd", "adjacency": "add-remove"}, AssumptionFailed, "replace-one"),
    ],
)
def test_estimators_refuse_what_has_no_secure_form(
    changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    options = {"epsilon": 1.0, "delta": 1e-5, "data_norm": 2.0, "classes": [0, 1], "secure": True, **changes}
    with pytest.raises(error, match=words):
        DPLogisticRegression(**options).fit(X, (X[:, 0] > 0).astype(int))


@pytest.mark.parametrize("mechanism", ["auto", "noisy-gd", "noisy-sgd"])
def test_secure_estimators_learn_and_pay(mechanism: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 2))
    y = (X[:, 0] + 0.1 * rng.standard_normal(4000) > 0).astype(int)
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=2.0, delta=1e-4)
    model = DPLogisticRegression(
        epsilon=1.0,
        delta=1e-5,
        data_norm=1.5,
        classes=[0, 1],
        secure=True,
        mechanism=mechanism,
        ledger=budget,
    ).fit(X, y)
    assert model.score(X, y) > 0.85
    assert 0.9 < model.privacy_.epsilon() <= 1.0
    assert model.privacy_.arithmetic == "discrete-grid"
    theorem = "whitened-composition" if mechanism == "auto" else "discrete-composition"
    assert budget.history()[0].guarantee.theorem == theorem
    again = DPRidge(epsilon=1.0, delta=1e-5, data_norm=1.5, target_bounds=(-1, 1), secure=True).fit(
        X, X[:, 0]
    )
    assert again.score(X, X[:, 0]) > 0.8


@settings(max_examples=30, deadline=None)
@given(
    epsilon=st.floats(0.05, 10), delta=st.floats(1e-9, 9e-6), rows=st.integers(1, 5),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
)  # fmt: skip
def test_secure_plans_meet_the_promise_to_people_with_several_rows(
    epsilon: float, delta: float, rows: int, adjacency: str
) -> None:
    model = DPLogisticRegression(
        epsilon=epsilon,
        delta=delta,
        data_norm=1.0,
        max_rows_per_person=rows,
        adjacency=adjacency,
        secure=True,
    )
    recipe = plan_request(model.planning_request(100_000, 5))
    model.check_group_privacy(recipe.plan.guarantee)
    assert recipe.plan.guarantee.group(rows).epsilon(delta) <= epsilon


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["plan", "--n", "5000", "--n-features", "5", "--epsilon", "1"]
    assert command([*plan, "--secure"]) == 0
    assert "whitened-composition" in capsys.readouterr().out
    assert command([*plan, "--secure", "--mechanism", "objective-perturbation"]) == 3
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    np.savetxt(
        tmp_path / "t.csv", np.column_stack([X, X[:, 0] > 0]), delimiter=",", header="a,b,y", comments=""
    )
    fit = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--classes", "0,1", "--epsilon", "1", "--data-norm",
           "2", "--secure"]  # fmt: skip
    assert command([*fit, "--output", str(tmp_path / "m.json"), "--report", str(tmp_path / "r.md")]) == 0
    assert "discrete-grid" in (tmp_path / "r.md").read_text()
    assert command([*fit, "--output", str(tmp_path / "m.json"), "--random-state", "1"]) == 2


def test_real_and_secure_schedules_are_not_confused() -> None:
    assert not isinstance(SCHEDULE, NoisyGradientSpec)
    assert isinstance(SCHEDULE.to_real_valued(), NoisyGradientSpec)
