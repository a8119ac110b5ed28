"""DataBounds: stated, never measured, enforced exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from dplangevin.errors import InvalidParameter
from dplangevin.problem import DataBounds


def exact_square(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(x)) ** 2 for x in row), Fraction(0))


@given(
    rows=st.sampled_from([np.float64, np.float32]).flatmap(
        lambda kind: arrays(kind, (6, 7), elements=st.floats(-(2.0**100), 2.0**100, width=32))
    ),
    norm=st.sampled_from([0.1, 1.0, 3.3, 10.0, 100.0, 1e-20, 1e20]),
)
@settings(max_examples=300, deadline=None)
def test_no_row_is_ever_longer_than_stated(rows: np.ndarray, norm: float) -> None:
    bounds = DataBounds(data_norm=norm, classes=2)
    clipped, _, _ = bounds.clip(rows, np.zeros(6))
    assert clipped.dtype == rows.dtype
    for before, after in zip(rows, clipped, strict=True):
        assert exact_square(after) <= Fraction(norm) ** 2
        if exact_square(before) < Fraction(norm) ** 2 * Fraction(999_998, 1_000_000):
            np.testing.assert_array_equal(before, after)
        else:  # same direction, full length (up to a hair; subnormal float32 entries round coarsely)
            length = np.linalg.norm(before.astype(float))
            np.testing.assert_allclose(after, before / length * norm, rtol=1e-6, atol=max(1e-6 * norm, 1e-44))
    np.testing.assert_array_equal(bounds.clip(clipped, np.zeros(6))[0], clipped)


def test_rows_exactly_at_and_next_to_the_bound() -> None:
    rng = np.random.default_rng(0)
    for columns in (1, 2, 100):
        X = rng.normal(size=(300, columns))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        for kind in (np.float64, np.float32):
            clipped, _, _ = DataBounds(data_norm=1.0, classes=2).clip(X.astype(kind), np.zeros(300))
            assert all(exact_square(row) <= 1 for row in clipped)
            np.testing.assert_allclose(np.linalg.norm(clipped.astype(float), axis=1), 1, rtol=1e-6)


def test_extreme_rows() -> None:
    X = np.array([[1e308, 1e308], [1e-308, 5e-324], [0.0, 0.0], [1e200, 1e-200]])
    clipped, _, _ = DataBounds(data_norm=1e-3, classes=2).clip(X, np.zeros(4))
    np.testing.assert_allclose(clipped[0], 1e-3 / math.sqrt(2))
    np.testing.assert_array_equal(clipped[1:3], X[1:3])
    np.testing.assert_allclose(clipped[3], [1e-3, 0.0], atol=1e-15)


def test_targets_labels_and_weights() -> None:
    X = np.zeros((5, 1))
    real = DataBounds(data_norm=1.0, target=(-1, 2), weight_bound=3.0)
    _, y, weights = real.clip(X, [-5, -1, 0.5, 2, 1e300], [-1, 0, 1, 3, 1e9])
    assert y.tolist() == [-1, -1, 0.5, 2, 2]
    assert weights is not None
    assert weights.tolist() == [0, 0, 1, 3, 3]
    assert real.label_range == (-1.0, 2.0)
    classes = DataBounds(data_norm=1.0, classes=3)
    _, y, weights = classes.clip(X, [0, 2, 3, -1, 1.5])
    assert y.tolist() == [0, 2, 0, 0, 0]
    assert weights is None
    assert classes.label_range == (0.0, 2.0)
    assert DataBounds(data_norm=1.0, classes=2).clip(X, [True, False, True, True, False])[1].tolist() == [
        1,
        0,
        1,
        1,
        0,
    ]


def test_unstated_weights_are_one_and_clipped_too() -> None:
    _, _, weights = DataBounds(data_norm=1.0, classes=2, weight_bound=0.25).clip(
        np.zeros((3, 1)), np.zeros(3)
    )
    assert weights is not None
    assert weights.tolist() == [0.25] * 3


def test_clip_returns_copies() -> None:
    X, y, weights = np.full((2, 1), 0.5), np.array([0.0, 1.0]), np.ones(2)
    for before, after in zip(
        (X, y, weights), DataBounds(data_norm=1.0, target=(0, 1)).clip(X, y, weights), strict=True
    ):
        assert after is not None
        assert not np.shares_memory(before, after)
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ({"classes": 2}, r"data_norm.*missing.*DataBounds\(data_norm=1.0, classes=2\)"),
        ({"data_norm": None, "classes": 2}, "missing"),
        ({"data_norm": 1.0}, r"neither.*target=\(0, 100\)"),
        ({"data_norm": 1.0, "target": (0, 1), "classes": 2}, "both"),
        ({"data_norm": 0.0, "classes": 2}, "data_norm must be positive"),
        ({"data_norm": math.inf, "classes": 2}, "data_norm"),
        ({"data_norm": "1", "classes": 2}, "data_norm"),
        ({"data_norm": 1e31, "classes": 2}, "rescale"),
        ({"data_norm": 1.0, "classes": 1}, "classes"),
        ({"data_norm": 1.0, "target": (1, 1)}, "low < high"),
        ({"data_norm": 1.0, "target": (0, math.inf)}, "finite"),
        ({"data_norm": 1.0, "target": (0, math.nan)}, "finite"),
        ({"data_norm": 1.0, "target": 3.0}, "pair"),
        ({"data_norm": 1.0, "classes": 2, "weight_bound": 0.0}, "weight_bound"),
    ],
)
def test_bad_statements_show_how_to_state_them(statement: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        DataBounds(**statement)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("X", "y", "weights", "words"),
    [
        ([[math.nan]], [0], None, "X has missing"),
        ([[math.inf]], [0], None, "X has missing"),
        ([[1.0]], [math.nan], None, "y has missing"),
        ([[1.0]], [0], [math.inf], "weights has missing"),
        ([["7.25"]], [0], None, "dense array of real numbers"),
        ([[1.0]], ["7.25"], None, "public list"),
        ([[7.25, 1.0], [7.25]], [0, 1], None, "differ in length"),
        ([7.25], [0], None, "2 dimension"),
        ([[7.25]], [[0]], None, "1 dimension"),
        ([[7.25]], [0, 1], None, "lengths differ"),
        ([[7.25]], [0], [1, 1], "lengths differ"),
        ([[7.25j]], [0], None, "real numbers"),
    ],
)
def test_bad_data_are_refused_without_showing_them(X, y, weights, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words) as error:
        DataBounds(data_norm=1.0, classes=2).clip(X, y, weights)
    assert "7.25" not in str(error.value)
