"""Exact descent: one record's integers are bounded, the noise is the accounted one, and batches are exact."""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin import DPLogisticRegression, DPRidge
from dplangevin.accounting.plan import Plan
from dplangevin.accounting.registry import theorems_for
from dplangevin.cli.main import run_command_line as command
from dplangevin.data import ArrayDataset
from dplangevin.data.exact_sums import ExactSums
from dplangevin.data.integer_grids import RowGrid
from dplangevin.errors import AssumptionFailed, InvalidParameter, NotPrivateError
from dplangevin.ledger import Ledger
from dplangevin.mechanisms import exact_gradient
from dplangevin.mechanisms.exact_gradient import public_row_grid, round_records
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.planner.fit_plan import plan_fit, plan_request
from dplangevin.problem import Ball, Clipped, DataBounds, Logistic, Problem, Softmax, Squared
from dplangevin.sampling.exact_noise import sample_poisson_batch, sample_subset


def _problem(**changes: Any) -> Problem:
    options: dict[str, Any] = {
        "loss": Logistic(), "bounds": DataBounds(data_norm=1.0, classes=2), "n": 40, "n_features": 3,
        "constraint": Ball(3.0), "ridge": 0.01,
    }  # fmt: skip
    return Problem(**{**options, **changes})


PROBLEM = _problem()
SPEC = NoisyGradientSpec(step_size=1.0, noise_std=0.5, n_steps=20, secure=True)
PROBLEMS = [
    PROBLEM,
    _problem(adjacency="add-remove"),
    _problem(loss=Clipped(Squared(), 0.3), bounds=DataBounds(data_norm=2.0, target=(-1, 1)), n_features=7),
    _problem(loss=Softmax(n_classes=4), bounds=DataBounds(data_norm=0.5, classes=4, weight_bound=2.0)),
]
IDS = [f"{problem.loss.name} {problem.adjacency}" for problem in PROBLEMS]


def _data(problem: Problem, seed: int = 0, size: float = 3.0) -> ArrayDataset:
    rng = np.random.default_rng(seed)
    X = size * rng.standard_normal((problem.n, problem.n_features))
    low, high = problem.bounds.label_range
    y = (
        rng.integers(int(low), int(high) + 1, problem.n)
        if problem.bounds.classes
        else rng.uniform(low, high, problem.n)
    )
    bound = problem.bounds.weight_bound
    weights = rng.uniform(0, 1.5 * bound, problem.n) if bound != 1 else None
    return ArrayDataset(X, y.astype(float), problem, weights)


def _exact_sum(data: ArrayDataset, theta: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    problem, grid = data.problem, public_row_grid(data.problem)
    loss, sums = problem.loss, ExactSums(round_records(data, grid), grid)
    slopes = loss.slope if loss.slope_formula is None else loss.slope_formula
    return sums.gradient(slopes, loss.slope_bound, theta, None, rows).whole.astype(object)


@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), far=st.sampled_from([0.1, 3.0, 1e3]))
def test_neighbours_differ_by_no_more_than_is_accounted(problem: Problem, seed: int, far: float) -> None:
    """In Python integers: a record adds a vector of norm at most M X_r, whatever the point and the others are."""
    theta = far * np.random.default_rng(seed).standard_normal(
        (problem.n_columns, problem.loss.score_dimension)
    )
    grid, data = public_row_grid(problem), _data(problem, seed)
    single = _exact_sum(data, theta, np.array([5]))
    rest = _exact_sum(data, theta, np.r_[0:5, 6 : problem.n])
    assert np.array_equal(_exact_sum(data, theta), rest + single)
    bound = int(grid.max_limit) ** 2 * Fraction(grid.max_norm) ** 2
    assert int((single**2).sum()) <= bound
    other = _exact_sum(_data(problem, seed + 1, size=100.0), theta, np.array([5]))
    assert int(((single - other) ** 2).sum()) <= 4 * bound


@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
def test_long_records_use_nearly_all_of_the_bound(problem: Problem) -> None:
    grid, longest = public_row_grid(problem), 0.0
    for seed in range(20):
        data = _data(problem, seed, size=1e3)
        theta = 1e4 * np.random.default_rng(seed).standard_normal(
            (problem.n_columns, problem.loss.score_dimension)
        )
        for row in range(0, problem.n, 5):
            square = int((_exact_sum(data, theta, np.array([row])) ** 2).sum())
            longest = max(longest, math.sqrt(square) / (grid.max_limit * grid.max_norm))
    assert 0.5 < longest <= 1


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_the_guarantee_is_that_of_real_noise(adjacency: Any) -> None:
    """Same parts as in floating point: no allowance, because every check is between exact numbers."""
    problem = _problem(adjacency=adjacency)
    exact = Plan(problem=problem, spec=SPEC, delta=1e-5).guarantee
    real = Plan(
        problem=problem, spec=replace(SPEC, secure=False), delta=1e-5, theorem="composition"
    ).guarantee
    assert exact.parts == real.parts
    assert (exact.theorem, exact.arithmetic, real.arithmetic) == ("composition", "discrete-grid", "real")
    assert not any("real-valued noise" in text for text in exact.assumptions)
    assert any("exactly the distribution of ideal noise" in text for text in exact.assumptions)


def test_bounds_that_hide_iterates_refuse_rounded_steps() -> None:
    covered = {name for name, t in theorems_for(NoisyGradientSpec).items() if t.holds_for_rounded_noise}
    assert covered == {"composition", "opposite-records"}
    for name, theorem in theorems_for(NoisyGradientSpec).items():
        if name not in covered:
            with pytest.raises(AssumptionFailed, match="rounds every step"):
                theorem.certify(PROBLEM.constants, SPEC)
    with pytest.raises((AssumptionFailed, NotPrivateError), match="rounds every step"):
        Plan(problem=PROBLEM, spec=SPEC, delta=1e-5, theorem="optimal-shift")


@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
def test_the_noise_drawn_is_the_noise_accounted(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deviation over the bound of a record's integers is noise_std n / L; without noise it is plain descent."""
    drawn: list[float] = []

    def record(whole: np.ndarray, exponents: np.ndarray, deviation: float, source: Any) -> np.ndarray:
        drawn.append(deviation)
        return whole.astype(float)

    monkeypatch.setattr(exact_gradient, "add_rounded_gaussian_noise", record)
    grid = public_row_grid(problem)
    silent = run_plan(Plan(problem=problem, spec=SPEC, delta=1e-5), _data(problem))
    ratio = 0.5 * problem.n / problem.constants.lipschitz
    assert drawn == pytest.approx([ratio * grid.max_limit * grid.max_norm] * 20, rel=1e-12)
    theta, data = problem.constraint.project(np.zeros(problem.dimension)), _data(problem)
    for _ in range(20):
        gradient = data.gradient_sum(problem.loss, theta[:, None])[:, 0] / problem.n + 0.01 * theta
        theta = problem.constraint.project(theta - gradient)
    assert silent.value == pytest.approx(theta, abs=1e-4)


def test_a_seed_repeats_the_run_and_none_does_not() -> None:
    data, plan = _data(PROBLEM), Plan(problem=PROBLEM, spec=SPEC, delta=1e-5)
    first, second, other = (run_plan(plan, data, seed) for seed in (7, 7, 8))
    assert np.array_equal(first.value, second.value)
    assert not np.array_equal(first.value, other.value)
    assert first.seeded
    fresh = [run_plan(plan, data, secure=True) for _ in range(2)]
    assert not np.array_equal(fresh[0].value, fresh[1].value)
    assert not fresh[0].seeded


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement", "cyclic", "shuffle"])
def test_batches_run_exactly_with_their_guarantee(sampling: Any) -> None:
    spec = replace(SPEC, sampling=sampling, batch_size=10, noise_std=2.0, release="average", average_from=5)
    exact = Plan(problem=PROBLEM, spec=spec, delta=1e-5)
    real = Plan(
        problem=PROBLEM, spec=replace(spec, secure=False), delta=1e-5, theorem=exact.guarantee.theorem
    )
    assert exact.guarantee.parts == real.guarantee.parts
    assert exact.guarantee.arithmetic == "discrete-grid"
    runs = [run_plan(exact, _data(PROBLEM), 3).value for _ in range(2)]
    assert np.array_equal(*runs)
    assert np.isfinite(runs[0]).all()


def test_exact_coins_have_the_stated_rate() -> None:
    """A rate of 1/3 has no finite binary expansion. 6e5 coins: six standard deviations, false alarm 2e-9."""
    chosen = sample_poisson_batch(600_000, Fraction(1, 3))
    assert abs(len(chosen) - 200_000) < 6 * math.sqrt(600_000 * 2 / 9)
    assert np.array_equal(chosen, np.unique(chosen))
    assert len(sample_poisson_batch(50, Fraction(1))) == 50
    # a word equal to the threshold is decided by further digits: 1/3 = .0101..., so 0xAA.. is above it and 0x00 below
    tie = ((1 << 64) // 3).to_bytes(8, "little")
    for more, is_chosen in ((b"\xff" * 8, False), (b"\x00" * 8, True)):
        bytes_left = [tie, more]
        assert len(sample_poisson_batch(1, Fraction(1, 3), lambda _, b=bytes_left: b.pop(0))) == is_chosen


def test_subsets_are_uniform() -> None:
    """All 20 subsets of 3 of 6 and all 15 of 4, chi-square at a false-alarm rate of 1e-6 each."""
    rng = np.random.default_rng(5)
    subsets = Counter(tuple(sample_subset(6, 3, rng.bytes)) for _ in range(8_000))
    larger = Counter(tuple(sample_subset(6, 4, rng.bytes)) for _ in range(6_000))
    for counts, kinds, limit in ((subsets, 20, 63.0), (larger, 15, 55.0)):
        assert len(counts) == kinds
        expected = sum(counts.values()) / kinds
        assert sum((count - expected) ** 2 / expected for count in counts.values()) < limit
    assert len(sample_subset(10, 10)) == 10
    assert len(sample_subset(10, 0)) == 0


def test_what_has_no_exact_sums_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="at most 16384 columns"):
        public_row_grid(_problem(n_features=20_000))
    with pytest.raises(InvalidParameter, match="row_norm"):
        RowGrid(row_norm=math.inf)
    hidden = Plan(problem=PROBLEM, spec=replace(SPEC, secure=False), delta=1e-5)
    with pytest.raises(AssumptionFailed, match="real-valued"):
        run_plan(hidden, _data(PROBLEM), secure=True)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        (
            {"mechanism": "objective-perturbation", "radius": 1.0},
            AssumptionFailed,
            "secure=True has no proof here",
        ),
        ({"theorem": "optimal-shift"}, AssumptionFailed, "is about real-valued noise"),
        ({"delta": 0, "radius": 1.0}, AssumptionFailed, "secure=True has no proof here"),
        ({"random_state": 1}, InvalidParameter, "random_state must be left out"),
        ({"secure": "yes"}, InvalidParameter, "True or False"),
    ],
)
def test_secure_true_is_exact_or_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    options = {"epsilon": 1.0, "delta": 1e-5, "data_norm": 2.0, "classes": [0, 1], "secure": True, **changes}
    with pytest.raises(error, match=words):
        DPLogisticRegression(**options).fit(X, (X[:, 0] > 0).astype(int))


@pytest.mark.parametrize(
    ("changes", "arithmetic", "reason"),
    [
        ({}, "discrete-grid", "exact: sums over records are integers"),
        ({"mechanism": "noisy-sgd"}, "discrete-grid", "exact: sums"),
        ({"alpha": 0.1}, "discrete-grid", "exact: sums"),
        ({"secure": False}, "real", "floating point, as requested"),
        ({"mechanism": "objective-perturbation"}, "discrete-grid", "exact: sums"),
        ({"mechanism": "objective-perturbation", "radius": 1.0}, "real", "constraint"),
        ({"theorem": "optimal-shift"}, "real", "theorem='optimal-shift' is about real-valued noise"),
        ({"delta": 0.0}, "discrete-grid", "exact: sums"),
        ({"mechanism": "output-perturbation", "radius": 2.0}, "real", "has no constraint"),
        ({"n_features": 20_000, "n": 10**6}, "real", "at most 16384 columns"),
    ],
)
def test_the_plan_says_which_arithmetic_and_why(
    changes: dict[str, Any], arithmetic: str, reason: str
) -> None:
    options: dict[str, Any] = {
        "model": "logistic", "n": 20_000, "n_features": 10, "epsilon": 1.0, "delta": 1e-6,
        "adjacency": "replace-one", "data_norm": 1.0, "fit_intercept": True,
    }  # fmt: skip
    fit_plan = plan_fit(**(options | changes))
    assert fit_plan.plan.guarantee.arithmetic == arithmetic
    assert reason in fit_plan.reasons[-1]


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
    theorem = "whitened-composition" if mechanism == "auto" else "composition"
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
def test_secure_plans_meet_the_guarantee_of_people_with_several_rows(
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
    fit_plan = plan_request(model.planning_request(100_000, 5))
    model.check_group_privacy(fit_plan.plan.guarantee)
    assert fit_plan.plan.guarantee.group(rows).epsilon(delta) <= epsilon


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["plan", "--n", "5000", "--n-features", "5", "--epsilon", "1"]
    assert command([*plan, "--secure"]) == 0
    assert "whitened-composition" in capsys.readouterr().out
    assert command(plan) == 0
    assert "exact: sums over records" in " ".join(capsys.readouterr().out.split())
    assert command([*plan, "--no-secure"]) == 0
    assert "floating point, as requested" in " ".join(capsys.readouterr().out.split())
    assert command([*plan, "--secure", "--mechanism", "objective-perturbation", "--radius", "1"]) == 3
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


def test_compiled_code_is_loaded_once_it_has_been_worth_waiting_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever sums, the integers are the same; only who waits for numba changes."""
    monkeypatch.delenv("DPLANGEVIN_KERNEL", raising=False)
    monkeypatch.delitem(sys.modules, exact_gradient.COMPILED_MODULE, raising=False)
    monkeypatch.setattr(exact_gradient, "_n_bytes_summed", 0)
    half = exact_gradient.BYTES_BEFORE_COMPILED // 2
    assert [exact_gradient._repays_import(half) for _ in range(3)] == [False, False, True]
    monkeypatch.setattr(exact_gradient, "_n_bytes_summed", 0)
    monkeypatch.setitem(sys.modules, exact_gradient.COMPILED_MODULE, exact_gradient)
    assert exact_gradient._repays_import(1)
    monkeypatch.delitem(sys.modules, exact_gradient.COMPILED_MODULE)
    monkeypatch.setenv("DPLANGEVIN_KERNEL", "numba")
    assert exact_gradient._repays_import(1)
