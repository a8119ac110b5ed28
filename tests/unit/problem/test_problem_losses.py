"""Closed forms of the losses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplangevin.errors import InvalidParameter
from dplangevin.problem import (
    Clipped,
    Huber,
    Logistic,
    MulticlassHinge,
    Poisson,
    SmoothedHinge,
    SmoothedPinball,
    Softmax,
    Squared,
)

U = np.array([-1e4, -30.0, -1.5, 0.0, 0.4, 2.0, 30.0, 1e4])


def test_logistic_against_the_definition() -> None:
    for y in (0.0, 0.3, 1.0):
        np.testing.assert_allclose(Logistic().value(U, np.array(y)), np.logaddexp(0, U) - y * U, atol=1e-9)
    assert Logistic().value(np.array(40.0), np.array(1.0)) == pytest.approx(math.exp(-40), rel=1e-12)
    assert Logistic().value(np.array(-1e4), np.array(1.0)) == 1e4


def test_two_class_softmax_is_logistic() -> None:
    y = np.array([0.0, 1.0])
    scores = np.stack(np.broadcast_arrays(np.zeros((8, 1)), U[:, None] * np.ones(2)), axis=-1)
    softmax = Softmax(n_classes=2)
    np.testing.assert_allclose(softmax.value(scores, y), Logistic().value(U[:, None], y), atol=1e-12)
    np.testing.assert_allclose(softmax.slope(scores, y)[..., 1], Logistic().slope(U[:, None], y), atol=1e-15)
    np.testing.assert_allclose(softmax.slope(scores, y).sum(axis=-1), 0, atol=1e-15)


@pytest.mark.parametrize("width", [0.3, 1.0, 2.0])
def test_the_hinge_of_two_classes_is_the_smoothed_hinge(width: float) -> None:
    y = np.array([0.0, 1.0])
    scores = np.stack(np.broadcast_arrays(np.zeros((8, 1)), U[:, None] * np.ones(2)), axis=-1)
    several, one = MulticlassHinge(n_classes=2, width=width), SmoothedHinge(width=width)
    np.testing.assert_allclose(several.value(scores, y), one.value(U[:, None], y), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(several.slope(scores, y)[..., 1], one.slope(U[:, None], y), atol=1e-12)


def test_the_hinge_of_several_classes_lies_below_that_of_crammer_and_singer() -> None:
    rng = np.random.default_rng(0)
    u, y = 2 * rng.normal(size=(500, 5)), np.arange(500) % 5
    hinge = (u + 1 - np.eye(5)[y]).max(axis=1) - u[np.arange(500), y]
    for width in (1e-6, 0.5, 2.0):
        below = hinge - MulticlassHinge(n_classes=5, width=width).value(u, y.astype(float))
        assert below.min() > -1e-12
        assert below.max() < width / 2 + 1e-12
    huge = np.array([[-1e308, 1e308, 0.0]])
    assert np.isfinite(MulticlassHinge(n_classes=3).slope(huge, np.array([0.0]))).all()
    assert MulticlassHinge(n_classes=3).value(huge, np.array([1.0])) == 0
    with pytest.raises(InvalidParameter, match="no inverse"):
        MulticlassHinge(n_classes=3).inverse_slope(np.zeros(3), np.array([0.0]))


def test_clipped_softmax_keeps_the_direction() -> None:
    u = np.random.default_rng(0).normal(size=(50, 4)) * 3
    y = np.arange(50) % 4.0
    full, short = Softmax(n_classes=4).slope(u, y), Softmax(n_classes=4, slope_clip=0.5).slope(u, y)
    norms = np.linalg.norm(full, axis=1)
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), np.minimum(norms, 0.5), rtol=1e-12)
    np.testing.assert_allclose(short * np.maximum(norms / 0.5, 1)[:, None], full, rtol=1e-12)


def test_clipped_squared_is_huber() -> None:
    y = np.array(0.7)
    for bound in (0.3, 1.0, 50.0):
        huber, clipped = Huber(transition=bound), Clipped(Squared(), bound)
        np.testing.assert_allclose(clipped.value(U, y), huber.value(U, y), rtol=1e-13)
        np.testing.assert_array_equal(clipped.slope(U, y), huber.slope(U, y))
        assert clipped.slope_bound == huber.slope_bound
        assert clipped.curvature_bound == huber.curvature_bound


def test_smoothed_hinge_approaches_the_hinge_from_below() -> None:
    for y, sign in ((0.0, -1), (1.0, 1)):
        hinge = np.maximum(1 - sign * U, 0)
        for width in (0.01, 0.5, 2.0):
            gap = hinge - SmoothedHinge(width=width).value(U, np.array(y))
            assert np.all((gap >= 0) & (gap <= width / 2 + 1e-12))


def test_smoothed_pinball_is_the_pinball_away_from_the_corner() -> None:
    for quantile in (0.1, 0.5, 0.9):
        residual = U - 0.1
        pinball = np.where(residual > 0, (1 - quantile) * residual, -quantile * residual)
        smooth = SmoothedPinball(quantile=quantile, width=0.2).value(U, np.array(0.1))
        away = np.abs(residual) >= 0.1
        np.testing.assert_allclose(smooth[away], pinball[away], rtol=1e-12, atol=1e-15)
        assert np.all(smooth >= pinball * (1 - 1e-14))
        middle = SmoothedPinball(quantile=quantile, width=0.2).value(np.array(0.1), np.array(0.1))
        assert middle == pytest.approx(0.2 / 8)


def test_poisson_value_slope_and_overflow() -> None:
    loss = Poisson(target_bound=5)
    np.testing.assert_allclose(loss.value(np.array([0.0, 1.0]), np.array([2.0, 3.0])), [1.0, math.e - 3])
    assert loss.value(np.array(1e4), np.array(1.0)) == math.inf
    clipped = Clipped(loss, 2.0)
    # beyond log(y + C) the loss is a straight line of slope C
    start = math.log(3.0)
    expected = 3.0 - start + 2.0 * (1e4 - start)
    assert clipped.value(np.array(1e4), np.array(1.0)) == pytest.approx(expected)
    assert clipped.slope(np.array(1e4), np.array(1.0)) == 2.0


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Huber(transition=0), "transition"),
        (lambda: SmoothedHinge(width=-1), "width"),
        (lambda: SmoothedPinball(quantile=1.0, width=1.0), "quantile"),
        (lambda: SmoothedPinball(quantile=0.5, width=0.0), "width"),
        (lambda: Poisson(target_bound=math.inf), "target_bound"),
        (lambda: Softmax(n_classes=1), "n_classes"),
        (lambda: Softmax(n_classes=3, slope_clip=1.5), "leave it out"),
        (lambda: Softmax(n_classes=3).inverse_slope(np.zeros(3), np.zeros(1)), "no inverse"),
        (lambda: Clipped(Squared(), 0.0), "bound"),
        (lambda: Clipped("squared", 1.0), "loss must be"),
    ],
)
def test_bad_parameters_are_named(build, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        build()
