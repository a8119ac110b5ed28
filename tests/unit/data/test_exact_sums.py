"""Exact sums: the same integers in any order and place, bounds in Python integers, broken variants."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dplangevin.data import (
    ArrayDataset,
    ArraySource,
    ScratchDataset,
    exact_sums,
    exact_sums as exact,
    integer_grids,
)
from dplangevin.data.exact_sums import (
    ExactSums,
    QuadraticRule,
    QuadraticSums,
    RecordBlock,
    bound_lengths,
    decide_tie,
    limit_rows,
    shorten_rows,
    sum_gradients,
    sum_gradients_compiled,
    sum_outer_products,
    whole_slopes,
)
from dplangevin.data.integer_grids import (
    EXACT_BITS,
    IntegerTransform,
    RowGrid,
    WordSum,
    _column_squares,
    carry,
    join_limbs,
    snap_point,
    to_integers,
    to_limbs,
)
from dplangevin.errors import InvalidParameter
from dplangevin.problem import DataBounds, Logistic, Loss, Problem
from dplangevin.problem.losses import Clipped, Squared
from dplangevin.problem.losses.base import SlopeFormula


def logistic_slopes(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-scores)) - labels)


def softmax_slopes(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Bounded by sqrt 2 in norm."""
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return np.asarray(chances - (labels[:, None] == np.arange(scores.shape[1])))


@dataclass
class Records:
    """Records in memory in blocks of a size: what ExactSums asks of a data set."""

    rows: np.ndarray
    labels: np.ndarray
    size: int = 4096
    limits: np.ndarray | None = None

    @property
    def problem(self) -> Any:
        return SimpleNamespace(n_columns=self.rows.shape[1])

    def pieces(self, batch: None = None) -> Iterator[Any]:
        for start in range(0, len(self.rows), self.size):
            part = slice(start, start + self.size)
            limits = None if self.limits is None else self.limits[part]
            yield SimpleNamespace(rows=self.rows[part], labels=self.labels[part], weights=limits)

    def check_row_count(self, seen: int) -> None:
        assert seen == len(self.rows)

    def check_rows_seen(self, seen: int, batch: None) -> None:
        self.check_row_count(seen)

    def sum_over_blocks(self, task: Any, *arguments: Any, whole: bool = False) -> np.ndarray:
        return np.asarray(task(self, *arguments))

    def sum_over_batch(self, batch: None, task: Any, *arguments: Any, whole: bool = False) -> np.ndarray:
        return np.asarray(task(self, batch, *arguments))


def table(n: int, p: int, seed: int, spread: float = 0.01) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, p)) * np.geomspace(1, spread, p)
    rows /= np.linalg.norm(rows, axis=1).max() * (1 - 1e-12)
    return rows, (rng.random(n) < 0.4).astype(float)


def basis(p: int, seed: int, spread: float = 100.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.asarray(np.linalg.qr(rng.standard_normal((p, p)))[0] * np.geomspace(1, spread, p))


def all_sums(
    records: Records, grid: RowGrid, transform: IntegerTransform, weights: Any = None
) -> tuple[Any, ...]:
    """Everything that a fit would add noise to, in whole numbers, and the limits."""
    sums = ExactSums(records, grid)
    moment = sums.second_moment()
    limits = np.concatenate(
        [
            limit_rows(
                b.rows.astype(float),
                None if weights is None else weights[i * records.size : i * records.size + len(b.rows)],
                2.0,
                transform,
            )
            for i, b in enumerate(records.pieces())
        ]
    )
    theta = np.linspace(-3, 7, records.rows.shape[1])[:, None]
    blocks = (
        RecordBlock(b.rows, b.labels, limits[i * records.size : i * records.size + len(b.rows)])
        for i, b in enumerate(records.pieces())
    )
    gradient = transform.apply_transpose(sum_gradients(blocks, logistic_slopes, 1.0, theta, grid))
    return (
        to_integers(moment),
        sums.whitened_second_moment(transform, moment).whole,
        gradient.whole,
        limits,
    )


def equal(one: tuple[Any, ...], two: tuple[Any, ...], parts: int = 4) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one[:parts], two[:parts], strict=True))


# the transform without a filter, with one, and with one that finds every row short
BOUNDS = (2.5, 70.0, 600.0)


@pytest.mark.parametrize("row_bits", [20, 24])
@pytest.mark.parametrize("bound", BOUNDS)
def test_the_same_integers_in_every_order_block_and_precision(bound: float, row_bits: int) -> None:
    rows, labels = table(6011, 13, 1)
    rows, grid = rows.astype(np.float32).astype(float), RowGrid(row_norm=1.0, row_bits=row_bits)
    transform = IntegerTransform(basis(13, 2), bound, grid)
    single = rows.astype(np.float32)
    grid.snap(rows)
    grid.snap(single)
    assert np.array_equal(rows, single.astype(float))
    weights = np.random.default_rng(3).uniform(0, 2, len(rows))
    one = all_sums(Records(rows, labels), grid, transform, weights)
    assert equal(one, all_sums(Records(single, labels), grid, transform, weights))
    for size in (7, 1000, 4095):
        assert equal(one, all_sums(Records(rows, labels, size), grid, transform, weights))
    few = Records(rows[:300], labels[:300])
    assert equal(all_sums(few, grid, transform), all_sums(Records(few.rows, few.labels, 1), grid, transform))
    order = np.random.default_rng(4).permutation(len(rows))
    moved = all_sums(Records(rows[order], labels[order]), grid, transform, weights[order])
    assert equal(one, moved, 3)
    assert np.array_equal(one[3][order], moved[3])
    theta = np.linspace(-3, 7, 13)  # floating-point sums, for comparison, depend on the order
    raw, _ = table(6011, 13, 1)
    assert not np.array_equal(raw.T @ (raw @ theta), raw[order].T @ (raw[order] @ theta))


def test_filters_of_all_three_kinds_are_covered() -> None:
    grid = RowGrid(row_norm=1.0)
    filters = [IntegerTransform(basis(13, 2), bound, grid).filter for bound in BOUNDS]
    assert filters[0] is None
    assert filters[1] is not None
    assert not filters[1].all_short
    assert filters[2] is not None
    assert filters[2].all_short


def test_parts_are_summed_by_threads_in_any_order() -> None:
    rows, labels = table(20_000, 9, 5)
    grid = RowGrid(row_norm=1.0)
    grid.snap(rows)
    theta = np.linspace(-2, 1, 9)[:, None]

    def part_sum(start: int) -> np.ndarray:
        part = slice(start, start + 1234)
        block = RecordBlock(rows[part], labels[part], grid.max_limit)
        return sum_gradients(iter([block]), logistic_slopes, 1.0, theta, grid)

    whole = sum_gradients(
        iter([RecordBlock(rows, labels, grid.max_limit)]), logistic_slopes, 1.0, theta, grid
    )
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(part_sum, range(0, len(rows), 1234)))
    assert np.array_equal(to_integers(whole), to_integers(sum(reversed(parts))))  # type: ignore[arg-type]


def test_sums_are_those_of_python_integers() -> None:
    for row_bits in (20, 24):
        rows, labels = table(900, 5, 6)
        grid = RowGrid(row_norm=1.0, row_bits=row_bits)
        grid.snap(rows)
        whole = (rows / grid.unit).astype(np.int64).astype(object)
        assert np.array_equal(to_integers(sum_outer_products(rows, grid)), whole.T @ whole)
        for bound in BOUNDS:
            transform = IntegerTransform(basis(5, 7), bound, grid)
            matrix = transform.basis.astype(np.int64).astype(object)
            u = whole @ matrix
            moment, second, gradient, limits = all_sums(Records(rows, labels), grid, transform)
            theta = snap_point(np.linspace(-3, 7, 5)[:, None], grid)
            scores = [
                float(sum(Fraction(v) * Fraction(t) for v, t in zip(r, theta[:, 0], strict=True)))
                for r in rows
            ]
            a = np.rint(logistic_slopes(np.array(scores), labels) * limits).astype(np.int64).astype(object)
            assert np.array_equal(gradient[:, 0], u.T @ a)
            assert np.array_equal(moment, whole.T @ whole)
            if transform.filter is not None and transform.filter.all_short:
                assert np.array_equal(second, u.T @ u)


def test_rows_are_on_the_grid_and_never_longer() -> None:
    rng = np.random.default_rng(8)
    for row_norm in (1.0, 1.7, 3e-20, math.hypot(7.3, 1.0)):
        for row_bits in (20, 24):
            grid = RowGrid(row_norm=row_norm, row_bits=row_bits)
            rows = rng.standard_normal((400, 4))
            rows *= (row_norm / np.linalg.norm(rows, axis=1))[:, None]
            rows[:4] = row_norm * np.eye(4)
            rows[4] = [np.nan, 0, 0, 0]
            rows[5] = [np.inf, 1, 0, 0]
            rows[6] = 3 * row_norm
            rows[7] = 1e300
            given = rows.copy()
            grid.snap(rows)
            again = rows.copy()
            grid.snap(again)
            assert np.array_equal(rows, again)
            assert not rows[4:8].any()
            whole = rows / grid.unit
            assert np.array_equal(whole, np.rint(whole))
            assert all(
                sum(int(v) ** 2 for v in row) * Fraction(grid.unit) ** 2 <= Fraction(row_norm) ** 2
                for row in whole
            )
            kept = [i for i in range(len(rows)) if not 4 <= i < 8]
            assert np.abs(rows - given)[kept].max() <= 1.01 * grid.unit + row_norm * 2.0**-30


def test_whole_features_stay_what_they_are() -> None:
    rows = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    grid, kept = RowGrid(row_norm=math.sqrt(2)), rows.copy()
    grid.snap(rows)
    assert np.array_equal(rows, kept)


def adversarial_case(trial: int) -> tuple[np.ndarray, np.ndarray | None, IntegerTransform]:
    rng = np.random.default_rng(1000 + trial)
    p = int(rng.integers(1, 12))
    rows, _ = table(120, p, trial, 10.0 ** -rng.uniform(0, 5))
    rows[:p] = np.eye(p) * (1 - 2.0**-40)
    matrix = rng.standard_normal((p, p)) * 10.0 ** rng.uniform(-4, 4, p)
    grid = RowGrid(row_norm=1.0, row_bits=24 if trial % 5 == 0 else 20)
    grid.snap(rows)
    bound = 10.0 ** rng.uniform(-2, 1) * np.linalg.norm(matrix)
    return (
        rows,
        rng.uniform(0, 2, 120) if trial % 3 == 0 else None,
        IntegerTransform(matrix, bound, grid),
    )


def squared_lengths(rows: np.ndarray, transform: IntegerTransform) -> list[Fraction]:
    """|B' x|^2 in units, in Python integers."""
    matrix = [[int(v) for v in row] for row in transform.basis]
    scales = [Fraction(2) ** int(e) for e in transform.exponents]
    found = []
    for row in rows / transform.grid.unit:
        x = [int(v) for v in row]
        u = [sum(a * line[j] for a, line in zip(x, matrix, strict=True)) for j in range(len(x))]
        found.append(sum(((v * s) ** 2 for v, s in zip(u, scales, strict=True)), Fraction(0)))
    return found


@pytest.mark.parametrize("trial", range(20))
def test_bounds_hold_in_python_integers(trial: int) -> None:
    rows, weights, transform = adversarial_case(trial)
    grid = transform.grid
    limits = limit_rows(rows, weights, 2.0, transform)
    squares = squared_lengths(rows, transform)
    bound = (Fraction(grid.max_limit) * Fraction(transform.bound)) ** 2
    used = []
    for m, square in zip(limits, squares, strict=True):
        assert m == int(m)
        assert 0 <= m <= grid.max_limit
        assert int(m) ** 2 * square <= bound
        used.append(math.sqrt(int(m) ** 2 * square / bound))
    if weights is None and max(squares) > Fraction(transform.bound) ** 2:
        assert max(used) > 1 - 2.0**-11
    u = transform.coordinates(rows)
    steps = Fraction(2) ** transform.step_exponent
    assert [sum(Fraction(v) ** 2 for v in row) * steps**2 for row in u] == squares
    lengths = bound_lengths(u)
    assert all(Fraction(c) ** 2 * steps**2 >= square for c, square in zip(lengths, squares, strict=True))
    z = shorten_rows(u.copy(), lengths, transform)
    assert all(sum(int(v) ** 2 for v in row) * steps**2 <= Fraction(transform.bound) ** 2 for row in z)
    assert np.array_equal(z, np.rint(z))


@pytest.mark.parametrize("classes", [1, 2, 3, 4, 10, 100])
def test_slopes_stay_within_the_limit(classes: int) -> None:
    rng = np.random.default_rng(classes)
    slopes = rng.standard_normal((4000, classes))
    slopes *= (0.7 / np.linalg.norm(slopes, axis=1))[:, None]  # as long as the bound allows
    limits = np.floor(rng.uniform(0, 2.0**20, len(slopes)))
    limits[:1000], limits[1000:1100] = 2.0**20, 0.0
    given = slopes[:, 0] if classes == 1 else slopes
    a = whole_slopes(given.copy(), 0.7, limits).reshape(len(slopes), classes)
    assert np.array_equal(a, np.rint(a))
    assert all(sum(int(v) ** 2 for v in row) <= int(m) ** 2 for row, m in zip(a, limits, strict=True))
    wide = limits > 1000  # no record is dropped
    assert (np.abs(a).sum(axis=1)[wide] > 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1.0 + 1e-9])
def test_a_slope_beyond_its_bound_counts_as_zero(bad: float) -> None:
    with np.errstate(invalid="ignore"):
        one = whole_slopes(np.array([bad, 0.5]), 1.0, 2.0**30)
        many = whole_slopes(np.array([[bad, 0.1], [0.5, 0.5]]), 1.0, np.array([2.0**30, 2.0**20]))
    assert one[0] == 0
    assert one[1] != 0
    assert not many[0].any()
    assert many[1].any()


def whole_total(value: Any) -> np.ndarray:
    return np.asarray(to_integers(value)).astype(object)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("classes", [1, 3])
def test_neighbours_differ_by_no_more_than_stated(bound: float, classes: int) -> None:
    """One fixed transcript of public values; a record is removed, or replaced by an opposite one."""
    grid = RowGrid(row_norm=1.0)
    rows, labels = table(50, 4, 9)
    rows = np.concatenate([rows, np.eye(4) * 0.999999, -np.eye(4) * 0.999999])
    labels = np.concatenate([labels, np.zeros(8)])
    grid.snap(rows)
    transform = IntegerTransform(basis(4, 10), bound, grid)
    theta = np.random.default_rng(11).standard_normal((4, classes)) * 5
    slopes, slope_bound = (logistic_slopes, 1.0) if classes == 1 else (softmax_slopes, math.sqrt(2))

    def transcript(chosen: np.ndarray) -> tuple[Any, Any, Any]:
        part = Records(rows[chosen], labels[chosen])
        sums = ExactSums(part, grid)
        moment = sums.second_moment()
        limits = limit_rows(part.rows, None, 1.0, transform)
        block = RecordBlock(part.rows, part.labels, limits)
        total = transform.apply_transpose(sum_gradients(iter([block]), slopes, slope_bound, theta, grid))
        second = sums.whitened_second_moment(transform, moment)
        scales = np.array([Fraction(2) ** int(e) for e in np.ravel(second.exponents)], object)
        columns = np.array([[Fraction(2) ** int(e)] for e in transform.exponents], object)
        return (
            whole_total(moment),
            second.whole * scales.reshape(np.shape(second.exponents)),
            total.whole * columns,
        )

    everyone = np.arange(len(rows))
    base = transcript(everyone)
    squared_bounds = (
        Fraction(grid.max_square) ** 2,
        Fraction(transform.bound) ** 4,
        (Fraction(grid.max_limit) * Fraction(transform.bound)) ** 2,
    )
    largest = [0.0, 0.0, 0.0]
    for gone in everyone[-12:]:
        removed = transcript(np.delete(everyone, gone))
        swapped = everyone.copy()
        swapped[gone] = 50 + (gone + 4) % 8
        replaced = transcript(swapped)
        for i, most in enumerate(squared_bounds):
            alone = np.sum((base[i] - removed[i]) ** 2)
            both = np.sum((base[i] - replaced[i]) ** 2)
            assert alone <= most
            assert both <= (2 if i < 2 else 4) * most
            largest[i] = max(largest[i], float(alone / most))
    assert largest[0] > 0.999


# broken variants: each must be caught by the checks above


def test_broken_limits_are_caught() -> None:
    rows, _ = table(800, 6, 12)
    grid = RowGrid(row_norm=1.0)
    grid.snap(rows)
    transform = IntegerTransform(basis(6, 13), 0.3 * math.sqrt(6), grid)
    limits = limit_rows(rows, None, 1.0, transform)
    squares, long = squared_lengths(rows, transform), limits < grid.max_limit
    bound = (Fraction(grid.max_limit) * Fraction(transform.bound)) ** 2

    def broken(values: np.ndarray) -> int:
        return sum(int(m) ** 2 * s > bound for m, s in zip(values, squares, strict=True))

    assert broken(limits) == 0
    assert long.sum() > 100
    steps = np.array([math.sqrt(s) for s in squares]) * 2.0**-transform.step_exponent
    assert broken(np.where(long, limits + 16, limits)) > 0.9 * long.sum()
    rounded_down = np.minimum(grid.max_limit, np.ceil(grid.max_limit * transform.max_steps / np.floor(steps)))
    assert broken(rounded_down) > 0.9 * long.sum()
    weights = np.random.default_rng(14).uniform(1.0, 2.0, len(rows))
    assert (
        broken(np.floor(limits * weights)) > 0.9 * long.sum()
    )  # weights that are not divided by their bound
    weighted = limit_rows(rows, weights, 2.0, transform)
    assert broken(weighted) == 0
    assert all(
        Fraction(m) <= Fraction(k) * Fraction(w) / 2
        for m, k, w in zip(weighted, limits, weights, strict=True)
    )
    raised = np.ceil(limits * (weights / 2))  # a weight that is rounded up counts for more than it is
    shares = [Fraction(k) * Fraction(w) / 2 for k, w in zip(limits, weights, strict=True)]
    assert sum(Fraction(m) > share for m, share in zip(raised, shares, strict=True)) > 0.9 * len(rows)
    beyond = limit_rows(
        rows, np.full(len(rows), 3.0), 2.0, transform
    )  # no record within its bounds has such a weight
    assert not beyond.any()


def test_one_grid_for_all_rows_or_columns_loses_them() -> None:
    """Rows far beyond the bound have 2^26 grid steps and no more; columns of a steep basis have their own exponent."""
    u = np.array([[2.0**40, 3.0], [5.0, 12.0]])
    assert np.allclose(bound_lengths(u), [2.0**40, 13], rtol=1e-5, atol=1.01)
    squares = np.einsum("ij,ij->i", u, u)
    assert squares[0] > 2.0**53  # the sum of squares on one grid would not be exact
    grid, steep = RowGrid(row_norm=1.0), np.diag([1.0, 2.0**18])
    transform = IntegerTransform(steep, 1.0, grid)
    assert np.ptp(transform.exponents) == 18
    given = basis(8, 15, 2.0**18)
    transform = IntegerTransform(given, 1.0, grid)
    lost = np.abs(transform.real - given).max(axis=0) / np.abs(given).max(axis=0)
    common = np.rint(given / 2.0**-8) * 2.0**-8
    assert lost.max() < 2.0**-28
    assert (np.abs(common - given).max(axis=0) / np.abs(given).max(axis=0)).max() > 2.0**-12


def test_a_point_that_is_not_snapped_gives_scores_that_depend_on_the_place() -> None:
    rows, _ = table(4000, 23, 16)
    grid, theta = RowGrid(row_norm=1.0), np.random.default_rng(17).standard_normal((23, 1))
    grid.snap(rows)
    point = snap_point(theta, grid)
    exact_scores = [
        float(sum(Fraction(a) * Fraction(t) for a, t in zip(r, point[:, 0], strict=True))) for r in rows[:50]
    ]
    assert np.array_equal((rows[:50] @ point)[:, 0], exact_scores)
    backwards = np.ascontiguousarray(rows[:, ::-1])
    assert np.array_equal(rows @ point, backwards @ point[::-1])
    assert not np.array_equal(rows @ theta, backwards @ theta[::-1])
    assert np.abs(point - theta).max() <= 2.0**-31 * np.linalg.norm(theta)


def test_groups_that_are_too_large_lose_bits() -> None:
    rng = np.random.default_rng(18)
    odd = rng.integers(2**19, 2**20, (1 << 15, 8)) * 2.0 + 1
    slopes = np.full(1 << 15, 2.0**20 - 1)
    right = [sum(int(v) for v in column) * (2**20 - 1) for column in odd.T]
    assert [int(v) for v in slopes @ odd] != right
    grid = RowGrid(row_norm=2.0**21)
    assert grid.slope_bits + grid.row_bits + integer_grids.GROUP_BITS <= EXACT_BITS


# overflow by construction


def test_totals_of_a_billion_rows_at_the_bound() -> None:
    x = np.array([2.0**20 - 1, -(2.0**20 - 3), 2.0**20 - 7])
    part = np.full(4096, 2.0**20 - 1) @ np.tile(x, (4096, 1))
    total = WordSum((3, 1))
    for _ in range(1 << 14):
        total.add(part[:, None])
    words = total.words()
    for _ in range(4):  # 2^16 parts of 2^26 rows each
        words = carry(words * 16)
    rows = 4096 << 30
    true = [rows * (2**20 - 1) * int(v) for v in x]
    assert list(to_integers(words)[:, 0]) == true
    grid = RowGrid(row_norm=1.0)
    transform = IntegerTransform(np.array([[1.0, -5, 1], [0.5, 1, -1], [7, 9, 1]]), 1.0, grid)
    matrix = [[int(v) for v in row] for row in transform.basis]
    wanted = [sum(matrix[j][k] * true[j] for j in range(3)) for k in range(3)]
    assert list(transform.apply_transpose(words).whole[:, 0]) == wanted


@pytest.mark.parametrize("p", [3, 40])
def test_products_with_the_basis_are_exact_for_words_of_any_size(p: int) -> None:
    rng = np.random.default_rng(p)
    transform = IntegerTransform(basis(p, 19), 1.0, RowGrid(row_norm=1.0))
    matrix = transform.basis.astype(np.int64).astype(object)
    for high in (0, 1 << 10, 1 << 45):
        words = np.stack([rng.integers(-high - 1, high + 1, (p, p)), rng.integers(0, 1 << 40, (p, p))])
        whole = (words[0].astype(object) << 40) + words[1].astype(object)
        assert np.array_equal(to_integers(words), whole)
        for bits in (5, 16, 24):
            limbs = to_limbs(words, bits)
            assert all(np.abs(limb).max() < 1 << bits for limb in limbs)
            assert np.array_equal(join_limbs(limbs, bits), whole)
        assert np.array_equal(transform.apply_transpose(words).whole, matrix.T @ whole)
        assert np.array_equal(transform.congruence(words).whole, matrix.T @ whole @ matrix)


def test_every_bound_on_products_is_below_2_to_53() -> None:
    """The largest wide basis that is admitted, in exact arithmetic."""
    for p, row_bits in ((1, 20), (300, 20), (300, 24)):
        grid = RowGrid(row_norm=1.999999, row_bits=row_bits)
        transform = IntegerTransform(basis(p, 20), 1.0, grid)
        column = [int(v) for v in transform.basis[:, -1]]
        assert sum(v * v for v in column) * grid.max_square < 1 << 106
        assert sum(map(abs, column)) << transform.limb_bits < 1 << 53
        t = snap_point(np.ones((p, 1)), grid)[:, 0]
        shift = max(Fraction(v).denominator for v in t)
        assert sum(int(Fraction(v) * shift) ** 2 for v in t) * grid.max_square < 1 << 106
        assert grid.max_norm < 1 << row_bits
        assert transform.max_steps < 1 << 20


# what is assumed of elementwise operations and of sums along a row


@pytest.mark.parametrize("function", [np.exp, np.rint, np.reciprocal, np.sqrt])
def test_elementwise_operations_do_not_depend_on_the_place(function: Any) -> None:
    values = np.abs(np.random.default_rng(21).standard_normal(263)) + 1e-3
    alone = np.array([function(np.array([v]))[0] for v in values])
    for start in range(9):
        for length in (1, 2, 3, 5, 8, 17, 64, 250):
            buffer = np.empty(600)
            part = buffer[start : start + length]
            part[...] = values[start : start + length]
            assert np.array_equal(function(part), alone[start : start + length])
            function(part, out=part)
            assert np.array_equal(part, alone[start : start + length])


def test_sums_along_a_row_do_not_depend_on_the_place() -> None:
    """What the clip of rows uses; the exact rules need no more than comparisons of whole numbers."""
    rng = np.random.default_rng(22)
    for p in (1, 2, 3, 5, 8, 16, 23, 50, 64, 257):
        rows = rng.standard_normal((300, p))
        full = np.einsum("ij,ij->i", rows, rows)
        order = rng.permutation(300)
        assert np.array_equal(full[order], np.einsum("ij,ij->i", rows[order], rows[order]))
        assert all(full[i] == np.einsum("ij,ij->i", rows[i : i + 1], rows[i : i + 1])[0] for i in range(300))


def test_a_filter_is_certified_or_absent() -> None:
    """No row that the filter calls short is long by the exact rule, for random and for the worst rows."""
    rng = np.random.default_rng(23)
    found = 0
    for trial in range(40):
        p = int(rng.integers(2, 20))
        grid = RowGrid(row_norm=1.0)
        given = basis(p, trial, 10.0 ** rng.uniform(0, 2))
        transform = IntegerTransform(given, float(np.linalg.norm(given)) * rng.uniform(0.2, 2), grid)
        if transform.filter is None:
            continue
        found += 1
        worst = np.linalg.svd(transform.real)[0].T * rng.uniform(0.5, 1, (p, 1))
        rows = np.concatenate([worst, rng.standard_normal((500, p))])
        rows /= np.maximum(np.linalg.norm(rows, axis=1) * (1 + 1e-12), 1.0)[:, None]
        grid.snap(rows)
        candidates = transform.filter.find_long_candidates(rows, 1.0)
        short = np.setdiff1d(np.arange(len(rows)), candidates)
        assert (bound_lengths(transform.coordinates(rows[short])) <= transform.max_steps).all()
    assert found > 5


LAWS = {
    "logistic": SlopeFormula(kind="logistic", low=-1.0, high=1.0),
    "clipped": SlopeFormula(kind="logistic", low=-0.3, high=0.6),
    "affine": SlopeFormula(kind="affine", scale=0.7, shift=0.1, low=-1.3, high=1.3),
    "exponential": SlopeFormula(kind="exponential", low=-2.0, high=2.0),
    "hinge": SlopeFormula(kind="hinge", scale=3.0, low=-1.0, high=1.0),
}


@pytest.mark.parametrize("name", LAWS)
def test_compiled_sums_are_the_same_integers(name: str) -> None:
    """Rows in single and double precision, narrow and wide, full and short tiles, alone and together."""
    pytest.importorskip("numba")
    law, rng, grid = LAWS[name], np.random.default_rng(24), RowGrid(row_norm=1.0)
    bound = max(abs(law.low), abs(law.high))
    for p, n in ((1, 4200), (21, 4133), (50, 1001), (200, 301)):
        rows, labels = table(n, p, p)
        rows = rows.astype(np.float32).astype(float)
        grid.snap(rows)
        limits = np.floor(rng.uniform(0, 2.0**20, n))
        for theta in (rng.standard_normal((p, 1)) * 4, np.zeros((p, 1))):
            for each in (limits, grid.max_limit):
                given = (law, bound, theta, grid)
                whole = sum_gradients([RecordBlock(rows, labels, each)], *given)
                assert np.array_equal(
                    whole, sum_gradients_compiled([RecordBlock(rows, labels, each)], *given)
                )
                single = RecordBlock(rows.astype(np.float32), labels, each)
                assert np.array_equal(whole, sum_gradients_compiled([single], *given))
        parts = [RecordBlock(rows[i : i + 1], labels[i : i + 1], limits[i : i + 1]) for i in range(70)]
        alone = to_integers(sum_gradients_compiled(parts, *given))
        first = RecordBlock(rows[:70], labels[:70], limits[:70])
        assert np.array_equal(alone, to_integers(sum_gradients_compiled([first], *given)))


@pytest.mark.parametrize("compiled", [False, True])
def test_slopes_near_a_tie_are_decided_in_decimals(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of a few 2^-30 have slopes within 2^-32 of 1/2: with m = 1 they round up or down by their sign."""
    if compiled:
        pytest.importorskip("numba")
    grid, law = RowGrid(row_norm=1.0), LAWS["logistic"]
    rows = np.array([[1.0], [2.0], [-1.0], [-3.0], [0.0], [2.0**19]]) * grid.unit
    block = RecordBlock(rows, np.zeros(6), np.ones(6))
    decided = []

    def watch(*given: Any) -> float:
        decided.append(given[2])
        return decide_tie(*given)

    monkeypatch.setattr(exact if compiled else exact_sums, "decide_tie", watch)
    sums = sum_gradients_compiled if compiled else sum_gradients
    # a = 1, 1, 0, 0, then 0 at the score 0 (half to even), and 1 for a score that is not near 0
    wanted = 1 + 2 + 2**19
    theta = np.array([[2.0**-11]])
    assert to_integers(sums([block], law, 1.0, theta, grid))[0, 0] == wanted  # type: ignore[operator]
    assert sorted(decided) == [-3 * 2.0**-30, -(2.0**-30), 2.0**-30, 2.0**-29]


def test_too_many_ties_for_the_compiled_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(exact, "_MAX_TIES", 3)
    grid, law, theta = RowGrid(row_norm=1.0), LAWS["logistic"], np.array([[2.0**-11]])
    block = RecordBlock(np.arange(1.0, 11)[:, None] * grid.unit, np.zeros(10), np.ones(10))
    assert to_integers(sum_gradients_compiled([block], law, 1.0, theta, grid))[0, 0] == 55


def test_a_decided_slope_is_the_nearest_whole_number() -> None:
    rng = np.random.default_rng(25)
    for name in ("logistic", "clipped", "exponential"):
        law = LAWS[name]
        for score, label, limit in zip(
            rng.normal(0, 2, 60), rng.integers(0, 2, 60), rng.integers(1, 2**20, 60), strict=True
        ):
            bound = max(abs(law.low), abs(law.high))
            slope = law.slope(np.array([score]), np.array([float(label)]))[0]
            found = decide_tie(law, bound, float(score), float(label), float(limit))
            assert abs(found - slope / bound * limit) <= 0.5 + 1e-6
            assert abs(found) <= limit


def test_exact_sums_are_the_floating_point_sums_up_to_rounding() -> None:
    """Units: means in units of the bounds, as the floating-point mechanism adds noise to them."""
    rows, labels = table(3000, 6, 26)
    rows *= 1.7
    grid, n, law = RowGrid(row_norm=1.7), 3100, LAWS["logistic"]
    grid.snap(rows)
    matrix, bound, theta = basis(6, 27, 10.0), 3.0, np.linspace(-1, 1, 6)[:, None]
    transform = IntegerTransform(matrix, bound, grid)
    limits = limit_rows(rows, None, 1.0, transform)
    sums = ExactSums(Records(rows, labels), grid)
    moment = sums.second_moment()
    assert np.allclose(to_integers(moment) / sums.moment_scale(n), rows.T @ rows / 1.7**2 / n, rtol=1e-9)
    u = rows @ matrix / 1.7
    weights = np.minimum(1, bound / np.linalg.norm(u, axis=1))
    second = sums.whitened_second_moment(transform, moment)
    found = np.ldexp(second.whole.astype(float), second.exponents) / sums.moment_scale(n, transform)
    assert np.allclose(
        found, (u * weights[:, None] / bound).T @ (u * weights[:, None] / bound) / n, atol=1e-6
    )
    limited = Records(rows, labels)
    limited.limits = limits
    turned = ExactSums(limited, grid).gradient(law, 1.0, theta, transform)
    found = np.ldexp(turned.whole.astype(float), turned.exponents) / sums.gradient_scale(
        n, 1.0, 1.0, transform
    )
    slopes = logistic_slopes((rows @ theta)[:, 0], labels) * weights
    assert np.allclose(found[:, 0], (slopes @ u) / bound / n, atol=1e-5)
    plain = sums.gradient(law, 1.0, theta)
    found = plain.whole.astype(float) / sums.gradient_scale(n, 1.0, 1.0)
    assert np.allclose(found[:, 0], logistic_slopes((rows @ theta)[:, 0], labels) @ rows / 1.7 / n, atol=1e-6)


def test_refusals() -> None:
    grid = RowGrid(row_norm=1.0)
    for bad in (0.0, math.inf, math.nan, -1.0):
        with pytest.raises(InvalidParameter):
            RowGrid(row_norm=bad)
        with pytest.raises(InvalidParameter):
            IntegerTransform(np.eye(2), bad, grid)
    with pytest.raises(InvalidParameter):
        RowGrid(row_norm=1.0, row_bits=22)
    with pytest.raises(InvalidParameter):
        IntegerTransform(np.array([[1.0, np.nan], [0.0, 1.0]]), 1.0, grid)
    with pytest.raises(InvalidParameter):
        IntegerTransform(np.diag([1e-100, 1e100]), 1.0, grid)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("norm", [1.0, 1e-29])
def test_rows_rounded_where_they_lie_are_those_of_a_copy(dtype: type, norm: float) -> None:
    """Single precision holds every grid but the smallest, and takes the first half of the memory of doubles."""
    rng = np.random.default_rng(3)
    problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=norm, classes=2), n=5000, n_features=7)
    X = (norm * rng.uniform(-0.6, 0.6, (5000, 7))).astype(dtype)
    grid = RowGrid(row_norm=problem.row_norm)
    given = ArrayDataset(X, np.zeros(5000), problem)
    buffer = given._rows.__array_interface__["data"][0]
    copied, own = given.with_rounded_rows(grid), given.with_rounded_rows(grid, in_place=True)
    np.testing.assert_array_equal(copied._rows, own._rows)
    assert own._rows.dtype == grid.dtype
    assert own.n_bytes == own._rows.nbytes
    if grid.dtype.itemsize <= X.itemsize:
        assert own._rows.__array_interface__["data"][0] == buffer
        assert given._rows is own._rows
    wide = np.array([row for block in own.blocks() for row in block.rows]) / grid.unit
    np.testing.assert_array_equal(wide, np.trunc(wide))
    assert ((wide**2).sum(axis=1) <= grid.max_square).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bits", [20, 24])
def test_rows_rounded_while_they_are_read_are_those_rounded_afterwards(dtype: type, bits: int) -> None:
    """Some rows are clipped, some within rounding of the bound, one of zeros; blocks end in between."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((9001, 6)).astype(dtype)
    X[::7] /= np.linalg.norm(X[::7], axis=1)[:, None]
    X[5], y = 0, rng.integers(0, 2, 9001).astype(float)
    problem = Problem(
        loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2, weight_bound=2.0), n=9001, n_features=6
    )
    grid, weights = RowGrid(row_norm=problem.row_norm, row_bits=bits), rng.random(9001)
    other = RowGrid(row_norm=2 * problem.row_norm, row_bits=bits)
    for given in (None, weights):
        expected = ArrayDataset(X, y, problem, given).with_rounded_rows(grid)
        source = ArraySource(X, y, given)
        for data in (
            ArrayDataset(X, y, problem, given, grid=grid),
            ScratchDataset(source, problem, grid=grid),
            ScratchDataset(source, problem).with_rounded_rows(grid),
        ):
            assert data._rows.dtype == expected._rows.dtype
            np.testing.assert_array_equal(data._rows, expected._rows)
            for block, wanted in zip(data.pieces(), expected.pieces(), strict=True):
                np.testing.assert_array_equal(block.labels, wanted.labels)
                assert (block.weights is None) == (wanted.weights is None)
                if wanted.weights is not None:
                    np.testing.assert_array_equal(block.weights, wanted.weights)
            assert data.with_rounded_rows(grid) is data  # done twice, it changes nothing
            assert data.with_rounded_rows(other) is not data


def test_limits_of_rows_in_single_precision_are_those_in_double() -> None:
    rows, _ = table(3000, 6, 11)
    grid = RowGrid(row_norm=1.0)
    grid.snap(rows)
    for bound in (0.7, 2.0, 30.0):
        transform = IntegerTransform(basis(6, 12), bound, grid)
        expected = limit_rows(rows, None, 1.0, transform)
        np.testing.assert_array_equal(limit_rows(rows.astype(np.float32), None, 1.0, transform), expected)


@pytest.mark.parametrize("size", [1, 3, 19, 20, 21, 40])
@pytest.mark.parametrize("classes", [1, 4])
def test_small_and_large_sums_are_transformed_alike(
    size: int, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(size)
    transform = IntegerTransform(basis(size, 13, 1e4), 3.0, RowGrid(row_norm=1.0))
    words = np.stack(
        [rng.integers(-(2**44), 2**44, (size, classes)), rng.integers(0, 2**40, (size, classes))]
    )
    found = []
    for most in (0, 1 << 30):
        monkeypatch.setattr(integer_grids, "MAX_PYTHON_PRODUCTS", most)
        found.append(transform.apply_transpose(words))
    np.testing.assert_array_equal(found[0].whole, found[1].whole)
    np.testing.assert_array_equal(found[0].exponents, found[1].exponents)


def test_squares_of_columns_are_those_of_python_integers() -> None:
    whole = np.random.default_rng(4).integers(0, 1 << 40, (200, 9))
    assert _column_squares(whole) == [sum(int(v) ** 2 for v in column) for column in whole.T]


# gradients of squared losses from moments


def regression(clip: float, row_bits: int, n: int = 300, p: int = 5) -> tuple[ArrayDataset, IntegerTransform]:
    """Records with targets within [-2, 2], and coordinates in which all rows are short."""
    rng = np.random.default_rng(61)
    X, _ = table(n, p, 62)
    problem = Problem(
        loss=Clipped(Squared(), clip),
        bounds=DataBounds(data_norm=1.0, target=(-2, 2)),
        n=n,
        n_features=p,
        adjacency="add-remove",
    )
    grid = RowGrid(row_norm=problem.row_norm, row_bits=row_bits)
    data = ArrayDataset(X, 0.35 * rng.standard_normal(n), problem, grid=grid)
    return data, IntegerTransform(basis(problem.n_columns, 63), 600.0, grid)


def record_shares(data: ArrayDataset, rule: QuadraticRule, theta: np.ndarray) -> list[list[Fraction]]:
    """clip(x't - y) x of each record in fractions, x in units, and t, y and the clip as the rule rounds them."""
    whole, shift = rule.round_point(theta)
    point = [Fraction(int(t)) / Fraction(2) ** shift for t in whole]
    top = rule.clip * Fraction(2) ** rule.clip_exponent
    shares = []
    for row, label in zip(data._rows.tolist(), rule.round_labels(data._labels).tolist(), strict=True):
        residual = sum((Fraction(x) * t for x, t in zip(row, point, strict=True)), -Fraction(label))
        slope = residual if abs(residual) <= Fraction(rule.inside) else math.copysign(1, residual) * top
        shares.append([Fraction(slope) * Fraction(x) / Fraction(rule.grid.unit) for x in row])
    return shares


@pytest.mark.parametrize("row_bits", [20, 24])
@pytest.mark.parametrize("clip", [0.6, 1.0, 2.5])
def test_gradients_from_moments_are_sums_of_clipped_residuals_in_fractions(
    clip: float, row_bits: int
) -> None:
    data, transform = regression(clip, row_bits)
    sums = QuadraticSums.of(data, transform.grid)
    assert sums is not None
    columns = data.problem.n_columns
    matrix, screened = transform.basis.astype(np.int64).astype(object), 0
    # equal and near points use the residuals of the point before, far ones look at all records again
    for length in (0.0, 1e-9, 0.5, 0.5001, 0.51, 3.0, 1e7):
        theta, known = length * np.linspace(-1, 2, columns)[:, None], data.residuals
        gradient = sums.gradient(theta, transform)
        screened += data.residuals is known
        shares = record_shares(data, sums.rule, theta)
        total = [sum(share[j] for share in shares) for j in range(columns)]
        for j in range(columns):
            wanted = sum(int(matrix[i, j]) * total[i] for i in range(columns)) * Fraction(2) ** int(
                transform.exponents[j]
            )
            assert (
                Fraction(int(gradient.whole[j, 0])) * Fraction(2) ** int(gradient.exponents[j, 0]) == wanted
            )
    assert screened >= 1


def test_a_record_adds_at_most_the_clip_times_the_bound() -> None:
    """In fractions, and the bound is attained; residuals that are let through above the clip exceed it."""
    data, transform = regression(1.0, 20)
    rule = QuadraticRule.of(data, transform.grid)
    assert rule is not None
    theta = 1.5 * np.linspace(-1, 2, data.problem.n_columns)[:, None]
    matrix = transform.real.tolist()

    def largest(shares: list[list[Fraction]]) -> float:
        lengths = []
        for share in shares:
            u = [
                sum(v * Fraction(b[j]) for v, b in zip(share, matrix, strict=True))
                for j in range(len(matrix))
            ]
            lengths.append(math.sqrt(sum(v * v for v in u)))
        return max(lengths)

    longest = max(math.sqrt(v) for v in squared_lengths(data._rows.astype(float), transform))
    assert longest <= transform.bound
    assert 0.5 * longest < largest(record_shares(data, rule, theta)) <= longest
    loose = QuadraticRule(
        grid=rule.grid,
        label_exponent=rule.label_exponent,
        clip=rule.clip,
        clip_exponent=rule.clip_exponent,
        inside=9.0,
    )
    assert largest(record_shares(data, loose, theta)) > 1.5 * longest


def test_residuals_of_an_earlier_point_tell_no_record_wrongly() -> None:
    """A screen that forgets how far the point moved leaves out records that are clipped there."""
    data, transform = regression(0.6, 20)
    rule = QuadraticRule.of(data, transform.grid)
    assert rule is not None
    start = np.zeros((data.problem.n_columns, 1))
    rng, kept = np.random.default_rng(64), []
    for step in (0.001, 0.01, 0.03):
        whole, shift = rule.round_point(start)
        exact._clipped_records(data, rule, whole, shift)
        assert data.residuals is not None
        known = data.residuals
        whole, shift = rule.round_point(start + step * rng.standard_normal(start.shape))
        screened = exact._clipped_records(data, rule, whole, shift)
        assert data.residuals is known
        data.residuals = known._replace(point=np.ldexp(whole, -shift))  # as if it had not moved
        broken = exact._clipped_records(data, rule, whole, shift)
        data.residuals = None
        assert np.array_equal(screened, exact._clipped_records(data, rule, whole, shift))
        kept.append(np.array_equal(broken, screened))
        data.residuals = None
    assert not all(kept)


def test_moments_are_used_by_a_public_rule() -> None:
    data, transform = regression(1.0, 20)
    grid, problem = transform.grid, data.problem

    def applies(loss: Loss, weights: Any = None, weight_bound: float = 1.0) -> bool:
        bounds = DataBounds(data_norm=1.0, target=(-2, 2), weight_bound=weight_bound)
        other = Problem(loss=loss, bounds=bounds, n=300, n_features=5, adjacency="add-remove")
        rows = np.zeros((300, problem.n_features))
        return (
            QuadraticSums.of(ArrayDataset(rows, np.zeros(300), other, weights, grid=grid), grid) is not None
        )

    assert applies(Clipped(Squared(), 1.0))
    assert applies(Clipped(Squared(), 0.5))
    assert not applies(Clipped(Squared(), 0.4))  # many records would be clipped
    assert not applies(Clipped(Squared(), 1.0), np.ones(300))
    assert not applies(Clipped(Squared(), 1.0), None, 2.0)


@pytest.mark.parametrize("kernel", ["numpy", "numba"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("norm", [1e-29, 1e-3, 1.0, 7.3, 3e7])
def test_rows_that_are_rounded_before_they_are_clipped_are_those_clipped_first(
    kernel: str, dtype: type, norm: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == "numba":
        pytest.importorskip("numba")
    monkeypatch.setenv("DPLANGEVIN_KERNEL", kernel)
    rng, p, n = np.random.default_rng(65), 6, 4000
    X = rng.standard_normal((n, p))
    lengths = norm * np.concatenate(
        [np.full(500, 1.0), 1 + rng.uniform(-4e-6, 4e-6, 500), rng.uniform(0, 1.1, n - 1000)]
    )
    X = (X * (lengths / np.linalg.norm(X, axis=1))[:, None]).astype(dtype)
    X[rng.permutation(n)[:9]] = [[0.0] * p, [1e-300] * p, [1e30] * p] * 3
    X = X[rng.permutation(n)]
    problem = Problem(
        loss=Logistic(),
        bounds=DataBounds(data_norm=norm, classes=2),
        n=n,
        n_features=p,
        adjacency="add-remove",
    )
    grid, y = RowGrid(row_norm=problem.row_norm), np.zeros(n)
    expected = ArrayDataset(X, y, problem).with_rounded_rows(grid)
    wide = np.repeat(X, 2, axis=1)
    for table in (X, np.asfortranarray(X), wide[:, ::2], np.require(X, requirements=["W"])[:]):
        assert np.array_equal(ArrayDataset(table, y, problem, grid=grid)._rows, expected._rows)
    X.flags.writeable = False
    assert np.array_equal(ArrayDataset(X, y, problem, grid=grid)._rows, expected._rows)
    X = X.copy()
    X[77, 3] = np.nan
    with pytest.raises(InvalidParameter, match="missing or infinite"):
        ArrayDataset(X, y, problem, grid=grid)
