"""Every exported constraint set: exact projection, membership, diameter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.problem import problem
from dplangevin.problem.problem import (
    CONSTRAINTS,
    Ball,
    Box,
    ConstraintSet,
    L1Ball,
    Simplex,
    WholeSpace,
)

DIMENSION = 5
SETS: list[ConstraintSet] = [
    Ball(0.7),
    Ball(3.0),
    Box(-1.0, 2.0),
    Box((-1.0, 0.0, 1.0, -5.0, 0.0), (0.0, 0.5, 1.0, 5.0, 1e-3)),
    Box(0.0, math.inf),
    Simplex(1.0),
    Simplex(4.0),
    L1Ball(0.5),
    L1Ball(2.0),
    WholeSpace(),
]
FARTHEST = {  # two points at the stated distance
    "ball": lambda s: (s.radius * np.eye(DIMENSION)[0], -s.radius * np.eye(DIMENSION)[0]),
    "box": lambda s: (np.broadcast_to(s.low, DIMENSION), np.broadcast_to(s.high, DIMENSION)),
    "simplex": lambda s: (s.mass * np.eye(DIMENSION)[0], s.mass * np.eye(DIMENSION)[1]),
    "l1-ball": lambda s: (s.radius * np.eye(DIMENSION)[2], -s.radius * np.eye(DIMENSION)[2]),
}
points = st.lists(st.floats(-1e3, 1e3), min_size=DIMENSION, max_size=DIMENSION).map(np.array)
every_set = pytest.mark.parametrize("constraint", SETS, ids=repr)


def inside(constraint: ConstraintSet, size: int, scale: float, seed: int) -> np.ndarray:
    """Points of the set, as columns."""
    return constraint.project(scale * np.random.default_rng(seed).normal(size=(DIMENSION, size)))


def slack(constraint: ConstraintSet) -> float:
    """The simplex's equation holds up to rounding only; everything else exactly."""
    return DIMENSION * 2.0**-52 * constraint.mass if isinstance(constraint, Simplex) else 0.0


def test_every_exported_set_is_tested() -> None:
    exported = {getattr(problem, n) for n in problem.__all__ if n not in ("CONSTRAINTS", "ConstraintSet")}
    assert exported == {type(constraint) for constraint in SETS} == set(CONSTRAINTS.values())
    assert all(CONSTRAINTS[constraint.name] is type(constraint) for constraint in SETS)


@every_set
@given(theta=points)
@settings(max_examples=100, deadline=None)
def test_projection_lands_in_the_set_and_is_idempotent(constraint: ConstraintSet, theta: np.ndarray) -> None:
    projected = constraint.project(theta)
    assert projected.shape == theta.shape
    assert constraint.contains(projected, slack(constraint))
    again = constraint.project(projected)
    if isinstance(constraint, Simplex):
        np.testing.assert_allclose(again, projected, atol=1e-14 * constraint.mass)
    else:
        np.testing.assert_array_equal(again, projected)


@every_set
@given(theta=points, seed=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_projection_is_the_closest_point(constraint: ConstraintSet, theta: np.ndarray, seed: int) -> None:
    # z is the projection of theta exactly when <theta - z, w - z> <= 0 for every w of the set
    z = constraint.project(theta)
    others = np.hstack([inside(constraint, 20, scale, seed) for scale in (0.3, 3.0, 1e3)])
    angles = (theta - z) @ (others - z[:, None])
    size = 1 + np.linalg.norm(theta) * (1 + np.abs(others).max() + np.abs(z).max())
    assert np.all(angles <= 1e-13 * size)


@pytest.mark.parametrize(
    "constraint", [Ball(1.0), Box((-1.0, 0.0), (0.5, 1.0)), Simplex(1.0), L1Ball(1.0)], ids=repr
)
def test_projection_against_a_fine_grid(constraint: ConstraintSet) -> None:
    line = np.linspace(-1, 1, 81)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    grid = grid[[constraint.contains(point, 1e-12) for point in grid]]
    for theta in np.random.default_rng(0).uniform(-2, 2, (40, 2)):
        best = np.linalg.norm(grid - theta, axis=1).min()
        distance = np.linalg.norm(constraint.project(theta) - theta)
        assert best - 0.018 <= distance <= best + 1e-12


@every_set
@given(one=points, other=points)
@settings(max_examples=100, deadline=None)
def test_projection_never_expands(constraint: ConstraintSet, one: np.ndarray, other: np.ndarray) -> None:
    distance = np.linalg.norm(constraint.project(one) - constraint.project(other))
    assert distance <= np.linalg.norm(one - other) + 1e-12 * (1 + np.abs(one).max() + np.abs(other).max())


@every_set
def test_columns_are_projected_one_by_one(constraint: ConstraintSet) -> None:
    theta = 3 * np.random.default_rng(1).normal(size=(DIMENSION, 7))
    together = constraint.project(theta)
    for j in range(7):
        np.testing.assert_allclose(together[:, j], constraint.project(theta[:, j]), atol=1e-14)
    assert constraint.contains(together, slack(constraint))


@every_set
def test_diameter_is_never_exceeded_and_is_attained(constraint: ConstraintSet) -> None:
    diameter = constraint.diameter(DIMENSION)
    cloud = np.hstack([inside(constraint, 60, scale, 2) for scale in (0.5, 5.0, 1e4)])
    gaps = np.linalg.norm(cloud[:, :, None] - cloud[:, None, :], axis=0)
    assert gaps.max() <= diameter * (1 + 1e-15)
    if math.isinf(diameter):
        assert gaps.max() > 1e4
    else:
        one, other = FARTHEST[constraint.name](constraint)
        assert constraint.contains(one)
        assert constraint.contains(other)
        assert np.linalg.norm(one - other) == pytest.approx(diameter, rel=1e-15)


@every_set
def test_points_outside_and_nan_are_not_contained(constraint: ConstraintSet) -> None:
    assert not constraint.contains(np.full(DIMENSION, np.nan))
    if not isinstance(constraint, WholeSpace):
        assert not constraint.contains(np.full(DIMENSION, -1e6))
        assert constraint.contains(np.full(DIMENSION, -1e6), tolerance=1e8)


@every_set
def test_huge_points_are_projected_without_cancellation(constraint: ConstraintSet) -> None:
    theta = np.array([1e200, -1e200, 1e16, 1e16 + 2, 0.0])
    for scale in (1.0, 1e-190):
        projected = constraint.project(scale * theta)
        assert np.isfinite(projected).all()
        assert constraint.contains(projected, slack(constraint))
