"""Kernels: every way of summing gradients gives the same sums, and none lets a record exceed its bound."""

from __future__ import annotations

import math
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.data import ArrayDataset, kernels
from dplangevin.errors import InvalidParameter
from dplangevin.problem import (
    Ball,
    Clipped,
    DataBounds,
    Huber,
    Logistic,
    Loss,
    Poisson,
    Problem,
    SmoothedHinge,
    SmoothedPinball,
    Softmax,
    Squared,
)

COMPILED = pytest.param(
    "numba", marks=pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
)
LOSSES: list[Loss] = [
    Logistic(),
    Clipped(Logistic(), 0.4),
    Clipped(Squared(), 0.7),
    Huber(transition=0.3),
    SmoothedHinge(width=0.5),
    Clipped(SmoothedHinge(), 0.6),
    SmoothedPinball(quantile=0.2, width=0.3),
    Clipped(Poisson(target_bound=1.0), 2.0),
]


def dataset(
    loss: Loss, n: int = 9000, columns: int = 5, weighted: bool = False, **options: object
) -> ArrayDataset:
    rng = np.random.default_rng(7)
    limits = {"classes": 2} if loss.label_classes else {"target": (0.0, 1.0)}
    bounds = DataBounds(data_norm=2.0, weight_bound=3.0 if weighted else 1.0, **limits)
    problem = Problem(loss=loss, bounds=bounds, n=n, n_features=columns)
    X = rng.normal(size=(n, columns)).astype(options.get("dtype", float))
    return ArrayDataset(X, rng.integers(0, 2, n), problem, rng.random(n) if weighted else None)


def plain(data: ArrayDataset, loss: Loss, theta: np.ndarray) -> np.ndarray:
    """Through loss.slope, in one product."""
    blocks = list(data.blocks())
    rows, y = np.vstack([b.rows for b in blocks]), np.concatenate([b.labels for b in blocks])
    slopes = loss.slope(rows @ theta, y[:, None])
    if blocks[0].weights is not None:
        slopes = slopes * np.concatenate([b.weights for b in blocks])[:, None]
    return rows.T @ slopes


@pytest.mark.parametrize("kernel", ["numpy", COMPILED])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_kernels_agree_with_the_loss(loss: Loss, kernel: str, monkeypatch) -> None:
    monkeypatch.setenv("DPLANGEVIN_KERNEL", kernel)
    rng = np.random.default_rng(1)
    for weighted, dtype in ((False, float), (True, np.float32)):
        data = dataset(loss, weighted=weighted, dtype=dtype)
        assert ("numba" in data.kernel(loss).describe()) == (kernel == "numba")
        for size, k in ((0.3, 1), (2.0, 3), (1.0, 7)):
            theta = size * rng.normal(size=(6, k))
            expected = plain(data, loss, theta)
            np.testing.assert_allclose(data.gradient_sum(loss, theta), expected, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("kernel", ["numpy", COMPILED])
@pytest.mark.parametrize("n", [1, 3, 31, 32, 33, 4096, 4097, 4128, 8191])
def test_every_record_counts_once_at_every_size(n: int, kernel: str, monkeypatch) -> None:
    monkeypatch.setenv("DPLANGEVIN_KERNEL", kernel)
    for columns in (5, 200):
        loss = Logistic()
        data = dataset(loss, n=n, columns=columns)
        theta = np.random.default_rng(2).normal(size=(columns + 1, 1)) / 4
        np.testing.assert_allclose(
            data.gradient_sum(loss, theta), plain(data, loss, theta), rtol=1e-10, atol=1e-10
        )


@pytest.mark.parametrize("kernel", ["numpy", COMPILED])
@pytest.mark.parametrize("loss", [*LOSSES, Softmax(n_classes=2)], ids=repr)
def test_no_theta_makes_a_record_exceed_its_bound(loss: Loss, kernel: str, monkeypatch) -> None:
    monkeypatch.setenv("DPLANGEVIN_KERNEL", kernel)
    data = dataset(loss, n=3, columns=3)
    wild = [1.7e308, -1.7e308, math.inf, -math.inf, math.nan, 1e300, -1e160, 0.0, 800.0, -800.0]
    rng = np.random.default_rng(3)
    for k in (1, 6):
        for _ in range(40):
            theta = rng.choice(wild, size=(data.problem.dimension, k))
            gradient = data.gradient_sum(loss, theta, [1])
            assert np.all(np.linalg.norm(gradient, axis=0) <= data.problem.constants.lipschitz * (1 + 1e-12))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(LOSSES),
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=20),
    st.sampled_from([0.0, 1.0]),
)
def test_laws_are_the_slopes_of_the_losses(loss: Loss, scores: list[float], y: float) -> None:
    law = loss.slope_formula
    assert law is not None
    given_scores = np.array(scores)
    result, labels = given_scores.copy(), np.full(len(scores), y)
    with np.errstate(over="ignore"):
        law.slopes_in_place(result, labels)
        expected = loss.slope(given_scores, labels)
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)
    assert np.all(np.abs(result) <= loss.slope_bound)


def test_losses_that_are_not_known_use_their_own_slope() -> None:
    assert Softmax(n_classes=3).slope_formula is None
    assert Clipped(Squared(), 0.5).slope_formula.high == 0.5


@pytest.mark.parametrize("kernel", ["numpy", COMPILED])
def test_threads_do_not_change_a_bit(kernel: str, monkeypatch) -> None:
    monkeypatch.setenv("DPLANGEVIN_KERNEL", kernel)
    monkeypatch.setattr("dplangevin.data.dataset.MIN_THREADED_BYTES", 0)
    monkeypatch.setattr(kernels, "PIECE_BYTES", 1)
    data = dataset(Logistic(), n=40_000)
    theta = np.random.default_rng(4).normal(size=(6, 1))
    one = data.gradient_sum(Logistic(), theta)
    monkeypatch.setenv("DPLANGEVIN_THREADS", "3")
    np.testing.assert_array_equal(data.gradient_sum(Logistic(), theta), one)
    monkeypatch.setenv("DPLANGEVIN_THREADS", "many")
    with pytest.raises(InvalidParameter, match="DPLANGEVIN_THREADS must be a number, got 'many'"):
        data.gradient_sum(Logistic(), theta)


def test_the_choice_is_automatic(monkeypatch) -> None:
    monkeypatch.delenv("DPLANGEVIN_KERNEL", raising=False)
    assert "NumPy" in kernels.choose_kernel(Logistic(), 1000).describe()
    if find_spec("numba") is not None:
        assert "numba" in kernels.choose_kernel(Logistic(), 1 << 30).describe()
    kernels._make_kernel.cache_clear()
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    assert "NumPy" in kernels.choose_kernel(Logistic(), 1 << 30).describe()
    kernels._make_kernel.cache_clear()
    monkeypatch.setenv("DPLANGEVIN_KERNEL", "fortran")
    with pytest.raises(InvalidParameter, match="DPLANGEVIN_KERNEL must be one of auto, numpy, numba"):
        kernels.choose_kernel(Logistic(), 1 << 30)


def test_small_data_do_not_import_numba() -> None:
    code = (
        "import sys, numpy as np; from dplangevin.data import ArrayDataset; from dplangevin.problem import *;"
        "p = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=9, n_features=1);"
        "ArrayDataset(np.ones((9, 1)), np.ones(9), p).gradient_sum(p.loss, np.ones((2, 1)));"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_blocks_fit_the_cache_and_pieces_are_whole_groups() -> None:
    assert kernels.block_rows(50, 1) == 4096
    assert kernels.block_rows(1000, 1) == 256
    assert kernels.block_rows(10**7, 1) == 64
    assert kernels.block_rows(50, 64) == 256
    assert kernels.block_rows(50, 10**6) == 64
    for columns in (1, 50, 1000, 10**6):
        assert kernels.piece_rows(columns) % kernels.ROWS_PER_GROUP == 0 < kernels.piece_rows(columns)


class TestMoments:
    def problem(self, loss: Loss, n: int = 500) -> Problem:
        bounds = DataBounds(data_norm=1.0, target=(-1.0, 1.0), weight_bound=2.0)
        return Problem(loss=loss, bounds=bounds, n=n, n_features=4, fit_intercept=False, constraint=Ball(2.0))

    def data(self, loss: Loss) -> ArrayDataset:
        rng = np.random.default_rng(5)
        return ArrayDataset(
            rng.normal(size=(500, 4)), rng.uniform(-1, 1, 500), self.problem(loss), rng.random(500)
        )

    @pytest.mark.parametrize("loss", [Clipped(Squared(), 3.5), Huber(transition=3.5)], ids=repr)
    def test_the_same_gradient_without_passes(self, loss: Loss, monkeypatch) -> None:
        data, theta = self.data(loss), np.random.default_rng(6).normal(size=(4, 2)) / 2
        expected = plain(data, loss, theta)
        for _ in range(kernels.MIN_GRADIENTS_FOR_MOMENTS + 1):
            np.testing.assert_allclose(data.gradient_sum(loss, theta), expected, rtol=1e-11, atol=1e-11)
        expected = plain(data, loss, -theta)
        monkeypatch.setattr(ArrayDataset, "_slice_blocks", None)  # no further pass over the records
        np.testing.assert_allclose(data.gradient_sum(loss, -theta), expected, rtol=1e-11)

    def test_an_active_clip_is_never_ignored(self) -> None:
        loss = Clipped(Squared(), 1.5)  # |theta| 1 + 1 <= 1.5 only for |theta| <= 1/2
        data = self.data(loss)
        near, far = np.full((4, 1), 0.1), np.full((4, 1), 5.0)
        for _ in range(kernels.MIN_GRADIENTS_FOR_MOMENTS + 2):
            data.gradient_sum(loss, near)
        np.testing.assert_allclose(data.gradient_sum(loss, far), plain(data, loss, far), rtol=1e-10)
        assert not np.allclose(plain(data, loss, far), plain_quadratic(data, far))
        assert not kernels.is_quadratic_on(data, loss.slope_formula, np.full((4, 1), math.nan))
        assert not kernels.is_quadratic_on(data, loss.slope_formula, np.full((4, 1), 1e200))
        assert not kernels.is_quadratic_on(data, Logistic().slope_formula, near)
        assert not kernels.is_quadratic_on(data, SmoothedPinball(quantile=0.5, width=1.0).slope_formula, near)

    def test_a_mini_batch_is_not_the_whole(self) -> None:
        loss = Clipped(Squared(), 9.0)
        data, theta = self.data(loss), np.full((4, 1), 0.1)
        for _ in range(kernels.MIN_GRADIENTS_FOR_MOMENTS + 2):
            data.gradient_sum(loss, theta)
        halves = [data.gradient_sum(loss, theta, np.arange(a, a + 250)) for a in (0, 250)]
        np.testing.assert_allclose(halves[0] + halves[1], data.gradient_sum(loss, theta), rtol=1e-11)
        assert not np.allclose(halves[0], data.gradient_sum(loss, theta))


def plain_quadratic(data: ArrayDataset, theta: np.ndarray) -> np.ndarray:
    gram, cross = kernels.second_moments(data)
    return gram @ theta - cross[:, None]
