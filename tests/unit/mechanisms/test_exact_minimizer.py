"""Certified rounding of minimisers: slopes, gradients and cells against decimals and rationals, and exact laws."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.data.exact_sums import bound_lengths
from dplangevin.data.integer_grids import IntegerTransform, RowGrid
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms import exact_minimizer
from dplangevin.mechanisms.exact_gradient import public_row_grid, round_records
from dplangevin.mechanisms.exact_minimizer import (
    FIRST_BITS,
    IdealObjective,
    check_exact_minimizer,
    decimal_slopes,
    enclosed_slopes,
    exponential,
    limit_squares,
    release_minimizer,
    slope_error,
)
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.perturbation.mechanism import make_objective
from dplangevin.mechanisms.perturbation.spec import ObjectivePerturbationSpec
from dplangevin.problem import Ball, Clipped, DataBounds, Logistic, Loss, Poisson, Problem, Softmax, Squared
from dplangevin.problem.losses import Huber, MulticlassHinge, SmoothedHinge, SmoothedPinball

LOSSES: dict[str, tuple[Loss, dict[str, Any]]] = {
    "logistic": (Logistic(), {"classes": 2}),
    "clipped logistic": (Clipped(Logistic(), 0.3), {"classes": 2}),
    "squared": (Clipped(Squared(), 0.7), {"target": (-1.0, 1.0)}),
    "huber": (Huber(transition=0.2), {"target": (-1.0, 1.0)}),
    "quantile": (SmoothedPinball(quantile=0.3, width=0.1), {"target": (-1.0, 1.0)}),
    "poisson": (Clipped(Poisson(target_bound=10.0), 3.0), {"target": (0.0, 10.0)}),
    "hinge": (SmoothedHinge(width=1.0), {"classes": 2}),
    "softmax": (Softmax(n_classes=3), {"classes": 3}),
}
DIGITS = 120


def make_labels(labels: dict[str, Any], size: int, rng: np.random.Generator) -> np.ndarray:
    if "classes" in labels:
        return rng.integers(0, labels["classes"], size).astype(float)
    return rng.uniform(*labels["target"], size)


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_in_doubles_are_within_their_bound(name: str) -> None:
    """At scores of every size, high and low parts, and at the edges of clips; the bound is not idle."""
    loss, labels = LOSSES[name]
    rng, size, k = np.random.default_rng(1), 400, loss.score_dimension
    high = rng.choice([-1.0, 1.0], (size, k)) * 10.0 ** rng.uniform(-6, 3, (size, k))
    high[:40] = rng.uniform(-3, 3, (40, k))
    low = rng.uniform(-1, 1, (size, k)) * 2.0 ** rng.uniform(-60, -10, (size, k))
    y = make_labels(labels, size, rng)
    unit = Fraction(1, 1 << 160)
    scores = np.array(
        [int((Fraction(a) + Fraction(b)) / unit) for a, b in zip(high.ravel(), low.ravel(), strict=True)],
        object,
    )
    exact = decimal_slopes(loss, scores.reshape(size, k), unit, y, DIGITS)
    computed = enclosed_slopes(loss, high, low, y)
    errors = [
        abs(float(Fraction(int(e), 1 << DIGITS) - Fraction(float(c))))
        for e, c in zip(exact.ravel(), computed.ravel(), strict=True)
    ]
    bound = slope_error(loss, 10.0)
    assert 0.005 * bound < max(errors) <= bound


def test_a_library_in_single_precision_is_outside_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        exact_minimizer, "exponential", lambda a, b: np.exp((a + b).astype(np.float32)).astype(float)
    )
    with pytest.raises(AssertionError):
        test_slopes_in_doubles_are_within_their_bound("logistic")


def test_exponential_is_within_two_to_the_minus_51() -> None:
    rng = np.random.default_rng(2)
    high = np.concatenate([rng.uniform(-700, 700, 2000), rng.uniform(-1, 1, 500), [0.0, -700.0, 700.0]])
    low = rng.uniform(-1, 1, len(high)) * 2.0**-9
    for a, b, computed in zip(high, low, exponential(high, low), strict=True):
        exact = exact_minimizer._decimal_exponential(Fraction(a) + Fraction(b))
        assert abs(Fraction(float(computed)) / Fraction(exact) - 1) <= Fraction(1, 1 << 51)


def make_ideal(
    name: str,
    *,
    n: int = 60,
    p: int = 3,
    whitened: bool = False,
    seed: int = 0,
    scale: float = 2.0,
    **more: Any,
) -> IdealObjective:
    """A perturbed objective of weighted records with rows at and beyond the bound."""
    loss, labels = LOSSES[name]
    rng = np.random.default_rng(seed)
    weight = 3.0
    problem = Problem(
        loss=loss, bounds=DataBounds(data_norm=1.3, weight_bound=weight, **labels), n=n, n_features=p,
        fit_intercept=False, ridge=0.01, adjacency="replace-one",
    )  # fmt: skip
    rows = rng.standard_normal((n, p)) * np.geomspace(1, 0.05, p)
    rows[: n // 4] = np.eye(p)[rng.integers(0, p, n // 4)] * 1.3
    data = ArrayDataset(rows, make_labels(labels, n, rng), problem, rng.uniform(0, 1.2, n) * weight)
    grid = public_row_grid(problem)
    transform, center = None, None
    if whitened:
        basis = np.linalg.qr(rng.standard_normal((p, p)))[0] * np.geomspace(0.6, 9.0, p)
        transform = IntegerTransform(basis, 1.0, grid)
        data = data.with_rounded_rows(grid).with_weights(limit_squares, grid, transform)
        center = rng.standard_normal(problem.dimension)
    else:
        data = round_records(data, grid)
    spec = ObjectivePerturbationSpec(density_scale=scale, tolerance=1e-6, secure=True, **more)
    return make_objective(spec, data, grid, 0.01, rng.bytes, transform, center)


CASES = [(name, False) for name in LOSSES] + [("logistic", True), ("squared", True), ("softmax", True)]


@pytest.mark.parametrize(("name", "whitened"), CASES)
def test_gradients_in_doubles_are_within_their_bound_of_decimals(name: str, whitened: bool) -> None:
    ideal = make_ideal(name, whitened=whitened)
    rng = np.random.default_rng(5)
    for size in (1e-3, 1.0, 30.0):
        point = ideal.to_point(size * rng.standard_normal(ideal.noise.size))
        first, error = ideal.gradient(point, FIRST_BITS)
        second, fine_error = ideal.gradient(point << FIRST_BITS, 2 * FIRST_BITS)
        assert error is not None
        assert fine_error is not None
        assert fine_error < error << 20
        gap = math.isqrt(
            sum((int(a) - (int(b) >> FIRST_BITS)) ** 2 for a, b in zip(first, second, strict=True))
        )
        assert gap <= error + 2


@pytest.mark.parametrize(("name", "whitened"), CASES)
def test_the_cell_holds_the_minimiser(name: str, whitened: bool) -> None:
    """A minimiser of 60 decimals, enclosed record by record, lies in the released cell."""
    ideal = make_ideal(name, whitened=whitened, seed=3)
    released = release_minimizer(ideal) / float(ideal.cell)
    assert (released == np.rint(released)).all()
    bits, point = 3 * FIRST_BITS, ideal.to_point(release_minimizer(ideal)) << (2 * FIRST_BITS)
    factor = exact_minimizer._factor_curvature(ideal, point, bits)
    for _ in range(400):
        gradient, error = ideal.gradient(point, bits)
        assert error is not None
        radius = math.isqrt(sum(int(v) ** 2 for v in gradient)) + 1 + error
        if radius < 1 << (bits - 100):
            break
        values = np.array([int(v) / (1 << bits) for v in gradient])
        step = ideal.rough.ridge * exact_minimizer.cho_solve(factor, values)
        point = point - np.array([round(Fraction(float(v)) * (1 << bits)) for v in step], object)
    assert radius < 1 << (bits - 100)
    for cell, value in zip(released, point, strict=True):
        assert abs(Fraction(int(value), 1 << bits) - int(cell)) <= Fraction(1, 2) + Fraction(
            radius, 1 << bits
        )


@pytest.mark.parametrize("name", ["logistic", "poisson", "softmax"])
def test_refinement_of_every_run_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where doubles prove nothing, decimals find the same cells from the same random bytes."""
    expected = [release_minimizer(make_ideal(name, seed=seed, n=30)) for seed in range(3)]

    def prove_nothing(self: Any, theta: Any, unit: Any) -> Any:
        return theta, unit, math.inf

    monkeypatch.setattr(IdealObjective, "sum_in_doubles", prove_nothing)
    for seed, cells in enumerate(expected):
        assert np.array_equal(release_minimizer(make_ideal(name, seed=seed, n=30)), cells)


def test_a_bad_start_and_useless_curvature_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver decides nothing: gradient steps alone end in the same cell."""
    expected = release_minimizer(make_ideal("logistic", n=20, seed=4))
    monkeypatch.setattr(exact_minimizer, "_minimize_roughly", lambda rough: np.full(len(rough.tilt), 3.0))
    monkeypatch.setattr(exact_minimizer, "_factor_curvature", lambda *_: None)
    assert np.array_equal(release_minimizer(make_ideal("logistic", n=20, seed=4)), expected)


def test_an_error_bound_that_is_left_out_gives_wrong_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the rounding of a rough point, believed."""

    def wrong_cells() -> int:
        return sum(
            not np.array_equal(release_minimizer(make_ideal("logistic", n=20, seed=seed)), cells)
            for seed, cells in enumerate(expected)
        )

    expected = [release_minimizer(make_ideal("logistic", n=20, seed=seed)) for seed in range(20)]
    assert not wrong_cells()
    start = exact_minimizer._minimize_roughly
    monkeypatch.setattr(exact_minimizer, "_minimize_roughly", lambda rough: start(rough) * (1 + 1e-3))
    assert not wrong_cells()
    believe = exact_minimizer._decide_cells
    monkeypatch.setattr(exact_minimizer, "_decide_cells", lambda point, radius, bits: believe(point, 0, bits))
    assert wrong_cells() >= 10


def test_limits_keep_gradient_and_curvature_in_whole_numbers() -> None:
    """m |u| <= M R and m |u|^2 <= M R^2 for adversarial rows and frames, and short rows keep their weight."""
    rng = np.random.default_rng(6)
    full = 0
    for _ in range(40):
        p = int(rng.integers(1, 7))
        grid = RowGrid(row_norm=float(rng.choice([0.37, 1.0, 1e3])))
        rows = rng.standard_normal((50, p))
        rows *= (grid.row_norm * rng.choice([1.0, 0.5, 1e-3], 50) / np.linalg.norm(rows, axis=1))[:, None]
        grid.snap(rows)
        basis = rng.standard_normal((p, p)) * 10.0 ** rng.uniform(-3, 3, p)
        transform = IntegerTransform(basis, 1.0, grid)
        problem = Problem(
            loss=Logistic(), bounds=DataBounds(data_norm=grid.row_norm, classes=2), n=50, n_features=p,
            fit_intercept=False, adjacency="replace-one",
        )  # fmt: skip
        data = ArrayDataset(rows, np.zeros(50), problem)
        block = next(data.with_rounded_rows(grid).blocks())
        limits = limit_squares(data, block, grid, transform)
        most, bound = int(grid.max_limit), Fraction(transform.bound)
        whole = np.rint(block.rows / grid.unit).astype(int).astype(object)
        scales = [Fraction(2) ** int(e) for e in transform.exponents]
        for row, m in zip(whole, limits, strict=True):
            u = [
                int(v) * s
                for v, s in zip(row @ transform.basis.astype(int).astype(object), scales, strict=True)
            ]
            square = sum(v * v for v in u)
            assert m * int(m) * square <= (most * bound) ** 2
            assert int(m) * square <= most * bound**2
            full += square <= bound**2 * Fraction(99, 100) and int(m) == most
            assert square > bound**2 * Fraction(99, 100) or int(m) == most
    assert full > 200
    assert bound_lengths(np.zeros((1, 3)))[0] > 0


def laplace_bracket(ideal: IdealObjective, cell: float) -> tuple[float, float]:
    """-F' of the records and the ridge at the edges of a cell, for one parameter: noise between them gives the cell."""
    ends = []
    for side in (-1, 1):
        q = np.array([(2 * cell + side) * float(ideal.cell) / 2])
        untilted = replace(ideal.rough, tilt=np.zeros(1))
        ends.append(-float(untilted.gradient(q)[0]) * float(ideal.ridge) / ideal.rough.ridge)
    return ends[1], ends[0]


def test_one_parameter_gets_the_cell_whose_gradients_bracket_the_noise() -> None:
    for seed in range(60):
        ideal = make_ideal("logistic", n=15, p=1, seed=seed)
        low, high = laplace_bracket(ideal, release_minimizer(ideal)[0] / float(ideal.cell))
        assert low - 1e-12 <= ideal.noise.doubles()[0] <= high + 1e-12


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_enumerated_laws_of_neighbours_stay_within_epsilon(adjacency: str) -> None:
    """One parameter on a coarse grid: probabilities of all cells, for all pairs of a tiny domain.

    With one parameter the noise is Laplace and cells are intervals of it, so that probabilities are exact up to
    doubles. The largest ratio is at most the claim and at least .7 of it.
    """
    scale, ridge, n = 0.6, 0.5, 3
    problem = Problem(
        loss=Clipped(Logistic(), 0.3), bounds=DataBounds(data_norm=1.0, classes=2), n=n, n_features=1,
        fit_intercept=False, ridge=ridge, adjacency=adjacency,
    )  # fmt: skip
    spec = ObjectivePerturbationSpec(density_scale=scale, tolerance=1e-6, secure=True)
    claim = Plan(problem=problem, spec=spec, delta=0.0).guarantee.epsilon()
    records = [(x, y) for x in (-1.0, 0.0, 0.6, 1.0) for y in (0.0, 1.0)]
    grid, cells = public_row_grid(problem), np.arange(-120, 120)

    def law(table: list[tuple[float, float]]) -> np.ndarray:
        rows, labels = np.array([[x] for x, _ in table]).reshape(-1, 1), np.array([y for _, y in table])
        data = round_records(ArrayDataset(rows, labels, problem), grid)
        ideal = make_objective(spec, data, grid, ridge, np.random.default_rng(0).bytes)
        ideal = replace(ideal, cell=Fraction(1, 16))
        edges = np.array([laplace_bracket(ideal, cell) for cell in cells])
        tails = np.exp(-np.abs(edges) / scale)
        masses = np.abs(tails[:, 0] - tails[:, 1])
        crossing = (edges[:, 0] < 0) & (edges[:, 1] > 0)
        masses[crossing] = (2 - tails.sum(axis=1))[crossing]
        return masses / 2

    worst, rest = 0.0, [(0.6, 1.0)] * (n - 1)
    laws = [law([*rest, record]) for record in records]
    pairs = [(a, b) for a in laws for b in laws]
    if adjacency == "add-remove":
        without = law(rest)
        pairs = [pair for a in laws for pair in ((a, without), (without, a))]
    for first, second in pairs:
        assert first.sum() == pytest.approx(1, abs=1e-3)
        worst = max(worst, float(np.max(np.log(first / second))))
    assert 0.7 * claim <= worst <= claim * (1 + 1e-9)


def test_what_has_no_exact_form_is_refused() -> None:
    bounds = DataBounds(data_norm=1.0, classes=2)
    stated: dict[str, Any] = {
        "bounds": bounds,
        "n": 50,
        "n_features": 2,
        "ridge": 0.1,
        "adjacency": "replace-one",
    }
    check_exact_minimizer(Problem(loss=Logistic(), **stated))
    with pytest.raises(AssumptionFailed, match="constraint"):
        check_exact_minimizer(Problem(loss=Logistic(), constraint=Ball(1.0), **stated))
    several = {"bounds": DataBounds(data_norm=1.0, classes=3)}
    with pytest.raises(AssumptionFailed, match="formula"):
        check_exact_minimizer(Problem(loss=MulticlassHinge(n_classes=3), **stated | several))
    for more in ({"release_density_scale": 1.0}, {"n_iterations": 5}):
        with pytest.raises(InvalidParameter):
            ObjectivePerturbationSpec(density_scale=1.0, tolerance=1e-6, secure=True, **more)


@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
def test_released_minimisers_lie_on_their_grid(noise: str) -> None:
    """And those in doubles do not: the test can fail."""
    problem = Problem(
        loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=80, n_features=2, fit_intercept=False,
        ridge=0.05, adjacency="replace-one",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    data = ArrayDataset(rng.uniform(-0.7, 0.7, (80, 2)), rng.integers(0, 2, 80).astype(float), problem)
    spec = ObjectivePerturbationSpec(density_scale=3.0, tolerance=1e-6, secure=True, noise=noise)
    grid = float(make_objective(spec, data, public_row_grid(problem), 0.05, rng.bytes).cell)
    exact = np.array(
        [run_plan(Plan(problem=problem, spec=spec, delta=1e-6), data, s).value for s in range(10)]
    )
    assert (exact / grid == np.rint(exact / grid)).all()
    real = replace(spec, secure=False, release_density_scale=1e-6)
    plain = np.array(
        [run_plan(Plan(problem=problem, spec=real, delta=1e-6), data, s).value for s in range(10)]
    )
    assert not (plain / grid == np.rint(plain / grid)).any()
