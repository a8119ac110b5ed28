"""Exact descent: one record's integers are bounded, the noise is the accounted one, and batches are exact."""

from __future__ import annotations

import itertools
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
from scipy.special import ndtr

from dplangevin import DPLogisticRegression, DPRidge
from dplangevin.accounting.conversions import gdp_delta
from dplangevin.accounting.plan import Plan, public_noise_grid
from dplangevin.accounting.registry import theorems_for
from dplangevin.audit import replay
from dplangevin.cli.main import run_command_line as command
from dplangevin.data import ArrayDataset, kernels
from dplangevin.data.exact_sums import ExactSums
from dplangevin.data.integer_grids import RowGrid
from dplangevin.errors import AssumptionFailed, InvalidParameter, NotPrivateError
from dplangevin.ledger import Ledger
from dplangevin.mechanisms import exact_gradient
from dplangevin.mechanisms.exact_gradient import public_row_grid, round_records
from dplangevin.mechanisms.exact_minimizer import decimal_slopes
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_gradient import mechanism as descent
from dplangevin.mechanisms.noisy_gradient.spec import STATE_GRADIENT_ERROR, NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import same_start_mu
from dplangevin.planner.fit_plan import plan_fit, plan_request
from dplangevin.problem import (
    Ball,
    Clipped,
    DataBounds,
    L1Ball,
    Logistic,
    MulticlassHinge,
    Problem,
    Softmax,
    Squared,
    WholeSpace,
)
from dplangevin.sampling.exact_noise import gaussian_density_scale, sample_poisson_batch, sample_subset


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
    assert covered == {"composition", "opposite-records", "optimal-shift"}
    for name, theorem in theorems_for(NoisyGradientSpec).items():
        if name not in covered or name == "optimal-shift":
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
        ({"theorem": "dobrushin"}, AssumptionFailed, "is about real-valued noise"),
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
        ({"theorem": "dobrushin", "radius": 2.0}, "real", "theorem='dobrushin' is about real-valued noise"),
        ({"theorem": "optimal-shift"}, "discrete-grid", "exact: sums"),
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
    monkeypatch.delitem(sys.modules, kernels.COMPILED_MODULE, raising=False)
    monkeypatch.setattr(kernels, "_n_bytes_summed", 0)
    monkeypatch.setattr(kernels, "find_spec", lambda name: name)
    half = kernels.BYTES_BEFORE_COMPILED // 2
    assert [kernels.repays_compiled(half) for _ in range(3)] == [False, False, True]
    monkeypatch.setattr(kernels, "_n_bytes_summed", 0)
    monkeypatch.setitem(sys.modules, kernels.COMPILED_MODULE, kernels)
    assert kernels.repays_compiled(kernels.MIN_COMPILED_BYTES)
    assert not kernels.repays_compiled(1), "small tables stay with NumPy"
    monkeypatch.delitem(sys.modules, kernels.COMPILED_MODULE)
    monkeypatch.setenv("DPLANGEVIN_KERNEL", "numba")
    assert kernels.repays_compiled(1)
    monkeypatch.setenv("DPLANGEVIN_KERNEL", "numpy")
    assert not kernels.repays_compiled(1 << 40)


# hidden states: the last iterate of a run whose states are on the grid of their noise


STATES = replace(SPEC, release="last-state")


def test_rounding_is_in_the_shift_of_hidden_states() -> None:
    """Slightly more than in real numbers, far less than composition; varying steps agree with equal ones."""
    for problem in (PROBLEM, replace(PROBLEM, constraint=WholeSpace()), _problem(adjacency="add-remove")):
        spec = replace(STATES, n_steps=400, step_size=0.5)
        exact = Plan(problem=problem, spec=spec, delta=1e-5, theorem="optimal-shift").guarantee
        real = replace(spec, secure=False, release="last-iterate")
        mu = Plan(problem=problem, spec=real, delta=1e-5, theorem="optimal-shift").guarantee.mu
        all_steps = Plan(problem=problem, spec=spec, delta=1e-5, theorem="composition").guarantee.mu
        assert exact.arithmetic == "discrete-grid"
        assert exact.mu is not None
        assert mu is not None
        assert mu * (1 + 1e-7) < exact.mu < 1.001 * mu
        assert exact.mu < 0.9 * (all_steps or 0)
        varying = replace(spec, step_size=(0.5,) * 400)
        other = Plan(problem=problem, spec=varying, delta=1e-5, theorem="optimal-shift").guarantee.mu
        assert other == pytest.approx(exact.mu, rel=1e-3)


def test_states_on_the_grid_are_refused_where_nothing_is_proved() -> None:
    for changes in ({"secure": False}, {"momentum": True}, {"sampling": "poisson", "batch_size": 4}):
        with pytest.raises(InvalidParameter, match="last-state"):
            replace(STATES, **changes)
    for problem, words in (
        (replace(PROBLEM, constraint=L1Ball(1.0)), "projection"),
        (_problem(loss=MulticlassHinge(n_classes=3), bounds=DataBounds(data_norm=1.0, classes=3)), "slope"),
    ):
        plan = Plan(problem=problem, spec=STATES, delta=1e-5, theorem="composition")
        with pytest.raises(AssumptionFailed, match=words):
            run_plan(plan, _data(problem))
    unknown = replace(PROBLEM.constants, dimension=None)
    with pytest.raises(AssumptionFailed, match="number of parameters"):
        theorems_for(NoisyGradientSpec)["optimal-shift"].certify(unknown, STATES)


STATE_PROBLEMS = [
    _problem(n_features=2, n=12),
    _problem(loss=Clipped(Squared(), 0.3), bounds=DataBounds(data_norm=2.0, target=(-1, 1)), n=12, n_features=2),
    _problem(
        loss=Softmax(n_classes=3), bounds=DataBounds(data_norm=0.5, classes=3, weight_bound=2.0), n=12,
        n_features=2, constraint=WholeSpace(),
    ),
]  # fmt: skip


@pytest.mark.parametrize("far", [1.0, 1e8])
@pytest.mark.parametrize("problem", STATE_PROBLEMS, ids=[p.loss.name for p in STATE_PROBLEMS])
def test_a_state_is_the_ideal_step_within_the_accounted_error(
    problem: Problem, far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is rounded, against a gradient of the whole rows in decimals; beyond the reach of doubles as well."""
    centers: list[np.ndarray] = []
    add = descent.add_rounded_gaussian_noise

    def watched(whole: Any, exponent: Any, deviation: float, source: Any) -> Any:
        centers.append(np.array([Fraction(int(v)) * Fraction(2) ** int(exponent) for v in whole]))
        return add(whole, exponent, deviation, source)

    monkeypatch.setattr(descent, "add_rounded_gaussian_noise", watched)
    given = _data(problem)
    starts: list[np.ndarray] = []
    run = descent.run_descent

    def seen(spec: Any, steps: int, start: np.ndarray, *of: Any) -> Any:
        starts.append(start)
        return run(spec, steps, start, *of)

    monkeypatch.setattr(descent, "run_descent", seen)
    spec = replace(STATES, n_steps=3, start_scale=far)
    plan = Plan(problem=problem, spec=spec, delta=1e-5, theorem="composition")
    released = run_plan(plan, given, np.random.default_rng(0))
    deviation = float(spec.step_size) * float(spec.noise_std)  # type: ignore[arg-type]
    grid = public_noise_grid(gaussian_density_scale(deviation))
    if isinstance(problem.constraint, WholeSpace):
        steps = released.value / grid
        assert np.array_equal(steps, np.rint(steps))
    theta = starts[0]
    rows = round_records(given, public_row_grid(problem))
    ideal = _ideal_step(problem, rows, theta, float(spec.step_size))  # type: ignore[arg-type]
    allowed = float(spec.step_size) * STATE_GRADIENT_ERROR * problem.constants.lipschitz  # type: ignore[arg-type]
    away = math.sqrt(sum(float(a - b) ** 2 for a, b in zip(centers[0], ideal, strict=True)))
    assert away <= allowed + 2 * problem.dimension * grid * 2.0**-63


def _ideal_step(problem: Problem, data: Any, theta: np.ndarray, eta: float) -> list[Fraction]:
    classes = problem.loss.score_dimension
    point = [Fraction(v) for v in theta.tolist()]
    total = [Fraction(0)] * len(point)
    grid = public_row_grid(problem)
    for block in data.blocks():
        for row, label, weight in zip(block.rows, block.labels, block.weights, strict=True):
            x = [Fraction(float(v)) for v in row]
            scores = [sum(x[j] * point[j * classes + k] for j in range(len(x))) for k in range(classes)]
            whole = np.array([[int(v * 2**600) for v in scores]], object)
            slopes = decimal_slopes(problem.loss, whole, Fraction(1, 2**600), np.array([float(label)]), 120)[
                0
            ]
            share = Fraction(float(weight)) / int(grid.max_limit) * Fraction(problem.bounds.weight_bound)
            for j, k in itertools.product(range(len(x)), range(classes)):
                total[j * classes + k] += share * Fraction(int(slopes[k]), 2**120) * x[j]
    kept = 1 - Fraction(eta) * Fraction(problem.ridge)
    return [kept * v - Fraction(eta) * t / problem.n for v, t in zip(point, total, strict=True)]


def chain_ratio(
    c: float, shift: float, noise: float, n_steps: int, grid: float, *, allowance: float, snap: bool
) -> float:
    """The largest exact delta of the last state over the claimed one, for two rounded chains in one dimension.

    snap : what is before the noise is rounded as well, away from zero: the worst of what an error can do.
    """
    half = math.ceil((8 * noise * math.sqrt(n_steps) + shift * n_steps) / grid)
    cells = np.arange(-half, half + 1)
    edges = np.append(cells - 0.5, half + 0.5) * grid
    means = c * cells * grid
    if snap:
        means = np.where(means > 0, np.ceil(means / grid), np.floor(means / grid)) * grid
    laws = np.zeros((2, len(cells)))
    laws[:, half] = 1.0
    chances = []
    for move in (-shift / 2, shift / 2):
        below = ndtr((edges[None] - means[:, None] - move) / noise)
        below[:, 0], below[:, -1] = 0.0, 1.0
        chances.append(np.diff(below, axis=1))
    for _ in range(n_steps):
        laws = np.stack([law @ chance for law, chance in zip(laws, chances, strict=True)])
    mu, worst = same_start_mu(shift + allowance, noise, c, n_steps), 0.0
    for epsilon in np.linspace(0, 3, 31):
        claimed = gdp_delta(mu, float(epsilon))
        if claimed > 1e-7:
            first, second = laws
            deltas = [
                np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((first, second), (second, first))
            ]
            worst = max(worst, max(deltas) / claimed)
    return worst


@pytest.mark.parametrize(
    ("c", "shift", "noise", "n_steps", "grid"),
    [(0.5, 0.3, 1.0, 8, 0.5), (0.9, 0.3, 1.0, 12, 0.1), (1.0, 0.2, 1.0, 10, 0.5), (0.5, 0.05, 0.3, 20, 0.5)],
)
def test_exact_laws_of_rounded_chains_keep_the_bound(
    c: float, shift: float, noise: float, n_steps: int, grid: float
) -> None:
    """With the allowance; without it a chain whose maps have an error exceeds the bound. On fine grids it is tight."""
    sizes = (c, shift, noise, n_steps)
    assert chain_ratio(*sizes, grid, allowance=c * grid, snap=False) <= 1
    assert chain_ratio(*sizes, grid, allowance=(c + 2) * grid, snap=True) <= 1
    if c < 1:
        assert chain_ratio(*sizes, grid, allowance=0.0, snap=True) > 1.02
    assert chain_ratio(*sizes, 0.01, allowance=c * 0.01, snap=False) > 0.7


def test_a_run_of_hidden_states_moves_no_step_by_more_than_its_shift() -> None:
    """The neighbour's run with the same states: nothing else differs, and each step costs no more than composed."""
    first, second = (_data(PROBLEM, seed) for seed in (0, 0))
    changed = second._copy_with(_rows=np.vstack([-second._rows[:1], second._rows[1:]]))
    plan = Plan(problem=PROBLEM, spec=STATES, delta=1e-5, theorem="composition")
    result = replay(lambda d, rng: run_plan(plan, d, rng).value, first, changed)
    assert len(result.releases) == STATES.n_steps
    assert not result.differences
    assert 0 < result.mu <= (plan.guarantee.mu or 0)


def test_a_default_last_iterate_fit_is_exact(capsys: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 2))
    model = DPLogisticRegression(
        epsilon=4.0, delta=1e-5, data_norm=2**0.5, classes=[0, 1], theorem="optimal-shift", secure=True
    ).fit(X, (X[:, 0] > 0).astype(int))
    assert (model.privacy_.arithmetic, model.privacy_.theorem) == ("discrete-grid", "optimal-shift")
    assert model.plan_.plan.spec.release == "last-state"
    assert model.score(X, (X[:, 0] > 0).astype(int)) > 0.8
