"""ArrayDataset: clipped once, summed exactly, refused clearly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from dplangevin.data import ArrayDataset, Block, Dataset
from dplangevin.data.exact_sums import ExactSums
from dplangevin.data.integer_grids import RowGrid
from dplangevin.errors import InvalidParameter
from dplangevin.problem import Clipped, DataBounds, Huber, Logistic, Problem, Softmax, Squared

LOGISTIC = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=9000, n_features=3)


def records(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), (rng.random(n) < 0.4).astype(float)


def naive_gradient(
    problem: Problem, X: np.ndarray, y: np.ndarray, theta: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Record by record, in plain loops."""
    X, y, weights = problem.bounds.clip(X, y, weights)
    total = np.zeros_like(theta)
    K = problem.loss.score_dimension
    for x, label, weight in zip(X, y, weights, strict=True):
        row = np.append(x, 1.0) if problem.fit_intercept else x
        for j in range(theta.shape[1]):
            matrix = theta[:, j].reshape(len(row), K)
            score = row @ matrix
            slope = problem.loss.slope(score if K > 1 else score[0], np.array(label))
            total[:, j] += weight * np.outer(row, slope).ravel()
    return total


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", [Logistic(), Clipped(Squared(), 0.5), Softmax(n_classes=3)], ids=repr)
def test_gradient_sum_against_plain_loops(loss, intercept: bool) -> None:
    bounds = DataBounds(data_norm=1.3, classes=loss.label_classes or 2, weight_bound=2.0)
    problem = Problem(loss=loss, bounds=bounds, n=40, n_features=3, fit_intercept=intercept)
    rng = np.random.default_rng(1)
    X, y, weights = rng.normal(size=(40, 3)), rng.integers(-1, 4, 40), rng.uniform(-1, 3, 40)
    theta = rng.normal(size=(problem.dimension, 4))
    data = ArrayDataset(X, y, problem, weights)
    expected = naive_gradient(problem, X, y, theta, weights)
    np.testing.assert_allclose(data.gradient_sum(loss, theta), expected, atol=1e-12)
    some = [7, 3, 39]
    expected = naive_gradient(problem, X[some], y[some], theta, weights[some])
    np.testing.assert_allclose(data.gradient_sum(loss, theta, some), expected, atol=1e-12)


def test_blocks_columns_and_batches_agree() -> None:
    X, y = records(9000)
    data = ArrayDataset(X, y, LOGISTIC)
    theta = np.random.default_rng(2).normal(size=(4, 5))
    full = data.gradient_sum(Logistic(), theta)
    assert [len(block.rows) for block in data.blocks()] == [4096, 4096, 808]
    np.testing.assert_array_equal(full, data.gradient_sum(Logistic(), theta))
    order = np.random.default_rng(3).permutation(9000)
    np.testing.assert_array_equal(full, data.gradient_sum(Logistic(), theta, order))
    halves = data.gradient_sum(Logistic(), theta, order[:5000]) + data.gradient_sum(
        Logistic(), theta, order[5000:]
    )
    np.testing.assert_allclose(halves, full, rtol=1e-10)
    one = np.hstack([data.gradient_sum(Logistic(), theta[:, [j]]) for j in range(5)])
    np.testing.assert_allclose(one, full, rtol=1e-10)
    assert data.loss_sum(Logistic(), theta).shape == (5,)
    assert not data.gradient_sum(Logistic(), theta, np.array([])).any()


def test_records_are_clipped_once_and_owned() -> None:
    X, y = 5 * records(9000)[0], records(9000)[1]
    data = ArrayDataset(X, y, LOGISTIC)
    X[:] = math.nan
    rows = np.vstack([block.rows for block in data.blocks()])
    assert rows.flags.c_contiguous
    assert rows.shape == (9000, 4)
    assert np.all(rows[:, 3] == 1)
    assert np.linalg.norm(rows[:, :3], axis=1).max() <= 1
    assert np.linalg.norm(rows, axis=1).max() <= LOGISTIC.row_norm


def test_fortran_integer_and_float32_inputs() -> None:
    X, y = records(9000)
    theta = np.random.default_rng(4).normal(size=(4, 2))
    expected = ArrayDataset(X, y, LOGISTIC).gradient_sum(Logistic(), theta)
    same = ArrayDataset(np.asfortranarray(X), y.astype(int), LOGISTIC).gradient_sum(Logistic(), theta)
    np.testing.assert_array_equal(same, expected)
    small = ArrayDataset(X.astype(np.float32), y, LOGISTIC)
    assert small._rows.dtype == np.float32
    result = small.gradient_sum(Logistic(), theta)
    assert result.dtype == np.float64
    assert all(block.rows.dtype == np.float64 for block in small.blocks())
    np.testing.assert_allclose(result, expected, atol=9000 * 1e-6)
    whole = np.zeros((9000, 3), int)
    assert ArrayDataset(whole, y, LOGISTIC)._rows.dtype == np.float64


def test_float32_rows_are_summed_in_double_precision() -> None:
    # 2^25 + 1 is lost in float32: one saturated record among many would vanish from a float32 sum
    bounds = DataBounds(data_norm=2.0**26, target=(-1, 1))
    problem = Problem(loss=Huber(transition=1.0), bounds=bounds, n=2, n_features=1, fit_intercept=False)
    data = ArrayDataset(np.array([[2.0**25], [1.0]], np.float32), [-1.0, -1.0], problem)
    assert data.gradient_sum(problem.loss, np.array([[0.0]])).item() == 2.0**25 + 1


def test_unweighted_equals_weight_one_and_zero_weight_removes() -> None:
    problem = replace(LOGISTIC, n=60)
    X, y = records(60)
    theta = np.ones((4, 1))
    plain = ArrayDataset(X, y, problem)
    ones = ArrayDataset(X, y, problem, np.ones(60))
    np.testing.assert_allclose(
        ones.gradient_sum(Logistic(), theta), plain.gradient_sum(Logistic(), theta), rtol=1e-14
    )
    np.testing.assert_allclose(
        ones.loss_sum(Logistic(), theta), plain.loss_sum(Logistic(), theta), rtol=1e-14
    )
    half = ArrayDataset(X, y, problem, np.arange(60) < 30)
    first = plain.gradient_sum(Logistic(), theta, np.arange(30))
    np.testing.assert_allclose(half.gradient_sum(Logistic(), theta), first, rtol=1e-12)


def test_weights_below_one_bound_every_record() -> None:
    bounds = DataBounds(data_norm=1.0, classes=2, weight_bound=0.5)
    problem = Problem(loss=Logistic(), bounds=bounds, n=5000, n_features=3)
    data = ArrayDataset(*records(5000), problem)
    sizes = [np.linalg.norm(data.gradient_sum(Logistic(), np.full((4, 1), 50.0), [i])) for i in range(50)]
    assert max(sizes) <= problem.constants.lipschitz


def test_a_record_stays_bounded_whatever_theta_is() -> None:
    data = ArrayDataset([[0.6, 0.0, 0.8], [1.0, 0, 0]], [1, 0], replace(LOGISTIC, n=2))
    for theta in (
        [1.7e308, 0, -1.7e308, 0],
        [1e308, 1, 1, 1e308],
        [math.inf, 0, -math.inf, 1],
        [math.nan] * 4,
    ):
        gradient = data.gradient_sum(Logistic(), np.array(theta, float)[:, None], [0])
        assert np.linalg.norm(gradient) <= LOGISTIC.constants.lipschitz


def test_row_counts_and_adjacency() -> None:
    X, y = records(10)
    with pytest.raises(InvalidParameter, match=r"X has 10 rows .* n = 11, public under replace-one"):
        ArrayDataset(X, y, replace(LOGISTIC, n=11))
    fewer = ArrayDataset(X, y, replace(LOGISTIC, n=11, adjacency="add-remove"))
    assert fewer.n_samples == 10
    assert fewer.n_features == 3
    assert fewer.problem.n == 11
    with pytest.raises(InvalidParameter, match="more rows than the public divisor n = 9") as error:
        ArrayDataset(X, y, replace(LOGISTIC, n=9, adjacency="add-remove"))
    assert "10" not in str(error.value)
    none = ArrayDataset(np.zeros((0, 3)), np.zeros(0), replace(LOGISTIC, adjacency="add-remove"))
    assert not none.gradient_sum(Logistic(), np.ones((4, 1))).any()
    fewer.check_row_count()


def test_a_full_pass_that_loses_rows_is_refused() -> None:
    class Leaky(Dataset):
        problem = replace(LOGISTIC, n=10)
        n_samples = 10

        def blocks(self, rows: object = None) -> Iterator[Block]:
            yield Block(np.ones((9, 4)), np.zeros(9), None)

    leaky, theta = Leaky(), np.ones((4, 1))
    for call in (
        lambda: leaky.gradient_sum(Logistic(), theta),
        lambda: leaky.loss_sum(Logistic(), theta),
        leaky.check_row_count,
    ):
        with pytest.raises(InvalidParameter, match="changed while they were read"):
            call()
    with pytest.raises(InvalidParameter, match="records of a batch changed"):
        leaky.gradient_sum(Logistic(), theta, np.arange(10))
    with pytest.raises(InvalidParameter, match="records of a batch changed"):
        ExactSums(leaky, RowGrid(row_norm=2.0)).gradient(Logistic().slope, 1.0, theta, None, np.arange(10))
    assert leaky.gradient_sum(Logistic(), theta, np.arange(9)).shape == (4, 1)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([0, 1, 0], "distinct"),
        ([10], "between 0 and"),
        ([-1], "between 0 and"),
        ([0.5], "row numbers"),
        ([True] * 10, "row numbers"),
        ([[0]], "one-dimensional"),
    ],
)
def test_bad_batches(rows: list[object], words: str) -> None:
    data = ArrayDataset(*records(10), replace(LOGISTIC, n=10))
    with pytest.raises(InvalidParameter, match=words):
        data.gradient_sum(Logistic(), np.ones((4, 1)), rows)


@pytest.mark.parametrize("shape", [(4,), (3, 1), (4, 1, 1), (8, 1)])
def test_bad_theta_shapes(shape: tuple[int, ...]) -> None:
    data = ArrayDataset(*records(10), replace(LOGISTIC, n=10))
    for call in (data.gradient_sum, data.loss_sum):
        with pytest.raises(InvalidParameter, match=r"theta must have shape \[4, k\]"):
            call(Logistic(), np.ones(shape))


@pytest.mark.parametrize(
    ("X", "y", "weights", "words"),
    [
        ([[7.25, 1]], [0], None, r"\[n_samples, 3\], got 2 columns"),
        ([7.25, 1, 2], [0], None, "1 dimension"),
        ([[7.25, 1, 2]], [0, 1], None, "y must have shape"),
        ([[7.25, 1, 2]], [[0]], None, "y must have shape"),
        ([[7.25, 1, 2]], [0], [1, 1], "weights must have shape"),
        ([[7.25, 1, math.nan]], [0], None, "X has missing"),
        ([[7.25, 1, 2]], [math.inf], None, "y has missing"),
        ([[7.25, 1, 2]], [0], [math.nan], "weights has missing"),
        ([["7.25", "1", "2"]], [0], None, "real numbers"),
        ([[7.25, 1, 2], [7.25]], [0], None, "differ in length"),
    ],
)
def test_bad_data_are_refused_without_showing_them(X, y, weights, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words) as error:
        ArrayDataset(X, y, replace(LOGISTIC, n=1), weights)
    assert "7.25" not in str(error.value)


def test_the_text_of_a_data_set_shows_no_data() -> None:
    data = ArrayDataset([[0.725, 0, 0]], [1], replace(LOGISTIC, n=1))
    assert "725" not in repr(data)
    with pytest.raises(InvalidParameter, match="problem must be a Problem"):
        ArrayDataset([[0.725]], [1], "logistic")  # type: ignore[arg-type]
