"""Closed forms and refusals of the constraint sets."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from dplangevin.errors import InvalidParameter
from dplangevin.problem.problem import Ball, Box, L1Ball, Simplex, WholeSpace


def test_closed_forms() -> None:
    np.testing.assert_allclose(Ball(1.0).project(np.array([3.0, 4.0])), [0.6, 0.8], rtol=1e-14)
    np.testing.assert_array_equal(Box(-1, 1).project(np.array([3.0, -0.5, -9.0])), [1.0, -0.5, -1.0])
    np.testing.assert_allclose(Simplex(1.0).project(np.array([1.0, 1.0, 0.0])), [0.5, 0.5, 0.0], atol=1e-15)
    np.testing.assert_allclose(Simplex(2.0).project(np.array([-5.0, 0.0])), [0.0, 2.0], atol=1e-15)
    np.testing.assert_allclose(
        L1Ball(1.0).project(np.array([2.0, -1.5, 0.1])), [0.75, -0.25, 0.0], atol=1e-14
    )


def test_diameters() -> None:
    assert Ball(1.5).diameter(7) == 3.0
    assert Box(-1.0, 2.0).diameter(4) == pytest.approx(6.0)
    assert Box((0.0, 0.0), (3.0, 4.0)).diameter(2) == pytest.approx(5.0)
    assert Simplex(2.0).diameter(3) == pytest.approx(2 * math.sqrt(2))
    assert L1Ball(2.0).diameter(3) == 4.0
    assert WholeSpace().diameter(3) == math.inf
    assert Box(0.0, math.inf).diameter(3) == math.inf


def test_points_inside_are_untouched_copies() -> None:
    theta = np.array([0.3, -0.2, 0.1])
    for constraint in (
        Ball(1.0),
        Ball(float(np.linalg.norm(theta)) * 1.0000001),
        Box(-1, 1),
        L1Ball(0.7),
        WholeSpace(),
    ):
        projected = constraint.project(theta)
        np.testing.assert_array_equal(projected, theta)
        projected[0] = 9
        assert theta[0] == 0.3


def test_large_dimensions_stay_exactly_inside() -> None:
    theta = np.random.default_rng(0).normal(size=(100_000, 2))
    many = np.random.default_rng(1).normal(size=(7, 20_000))
    for constraint in (Ball(1.0), Ball(1e-8), L1Ball(1.0), L1Ball(0.3), L1Ball(1e3)):
        assert constraint.contains(constraint.project(theta))
        assert constraint.contains(constraint.project(many))
    assert Simplex(1.0).contains(Simplex(1.0).project(theta), 100_000 * 2.0**-52)


@pytest.mark.parametrize(
    ("build", "parameter"),
    [
        (lambda: Ball(0.0), "radius"),
        (lambda: Ball(math.inf), "radius"),
        (lambda: Ball(math.nan), "radius"),
        (lambda: L1Ball(-1.0), "radius"),
        (lambda: Simplex(0.0), "mass"),
        (lambda: Box(1.0, 0.0), "low"),
        (lambda: Box(1.0, 1.0), "low"),
        (lambda: Box(math.nan, 0.0), "low"),
        (lambda: Box("a", 0.0), "low"),
        (lambda: Box((0.0, 0.0), (1.0, 1.0, 1.0)), "high"),
        (lambda: Box(-math.inf, (1.0, -math.inf)), "empty"),
    ],
)
def test_bad_parameters_are_named(build, parameter: str) -> None:
    with pytest.raises(InvalidParameter, match=parameter):
        build()


def test_dimension_mismatches_are_refused() -> None:
    box = Box((0.0, 0.0), 1.0)
    for call in (
        lambda: box.diameter(3),
        lambda: box.project(np.zeros(3)),
        lambda: box.contains(np.zeros(3)),
    ):
        with pytest.raises(InvalidParameter, match="2 coordinates but theta has 3"):
            call()
    with pytest.raises(InvalidParameter, match="one point"):
        Simplex(1.0).diameter(1)
    with pytest.raises(InvalidParameter, match="theta"):
        Ball(1.0).project(np.zeros((2, 2, 2)))


def test_sets_are_values() -> None:
    box = Box(np.zeros(2), [1, 2])
    assert box == Box((0.0, 0.0), (1.0, 2.0))
    assert hash(box) == hash(Box((0.0, 0.0), (1.0, 2.0)))
    assert pickle.loads(pickle.dumps(box)) == box
    with pytest.raises(AttributeError):
        Ball(1.0).radius = 2.0  # type: ignore[misc]
