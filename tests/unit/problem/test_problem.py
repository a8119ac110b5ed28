"""Problem: constants from public statements only, and refusals."""

from __future__ import annotations

import math
import pickle
from dataclasses import fields, replace

import numpy as np
import pytest

from dplangevin.errors import InvalidParameter
from dplangevin.problem import (
    Ball,
    Box,
    Clipped,
    DataBounds,
    Huber,
    Logistic,
    Poisson,
    Problem,
    Simplex,
    SmoothedHinge,
    Softmax,
    Squared,
    WholeSpace,
)

TWO = DataBounds(data_norm=2.0, classes=2)
REAL = DataBounds(data_norm=3.0, target=(-1.0, 1.0), weight_bound=5.0)


def test_logistic_with_intercept() -> None:
    problem = Problem(loss=Logistic(), bounds=TWO, n=100, n_features=4, constraint=Ball(1.5), ridge=0.1)
    constants = problem.constants
    assert problem.dimension == problem.n_columns == 5
    assert problem.row_norm == pytest.approx(math.sqrt(5))
    assert constants.lipschitz == pytest.approx(math.sqrt(5))
    assert constants.smoothness == pytest.approx(5 / 4 + 0.1)
    assert constants.strong_convexity == 0.1
    assert constants.diameter == 3.0
    assert constants.gradient_sensitivity == pytest.approx(2 * math.sqrt(5))
    assert constants.dimension == 5
    assert constants.n == 100
    assert constants.convex


def test_weights_and_clipping_scale_the_constants() -> None:
    problem = Problem(
        loss=Clipped(Squared(), 0.5),
        bounds=REAL,
        n=10,
        n_features=2,
        fit_intercept=False,
        adjacency="add-remove",
    )
    assert problem.row_norm == 3.0
    assert problem.constants.lipschitz == pytest.approx(5 * 0.5 * 3)
    assert problem.constants.smoothness == pytest.approx(5 * 9)
    assert problem.constants.gradient_sensitivity == problem.constants.lipschitz
    assert problem.constants.diameter == math.inf


def test_softmax_uses_the_frobenius_norm() -> None:
    bounds = DataBounds(data_norm=2.0, classes=3)
    problem = Problem(loss=Softmax(n_classes=3), bounds=bounds, n=10, n_features=4)
    assert problem.dimension == 15
    assert problem.constants.lipschitz == pytest.approx(math.sqrt(2) * math.sqrt(5))
    assert problem.constants.smoothness == pytest.approx(2.5)
    assert problem.constants.hessian_rank == 2


def test_poisson_curvature_follows_target_and_clip() -> None:
    bounds = DataBounds(data_norm=1.0, target=(0, 8))
    loss = Clipped(Poisson(target_bound=8), 2.0)
    problem = Problem(loss=loss, bounds=bounds, n=10, n_features=1, fit_intercept=False)
    assert problem.constants.smoothness == 10.0
    assert Clipped(loss, 1.0).curvature_bound == 9.0


def test_assumptions_are_in_words() -> None:
    told = " | ".join(
        Problem(
            loss=Clipped(Squared(), 0.5), bounds=REAL, n=10, n_features=2, ridge=0.1, constraint=Ball(1.0)
        ).constants.assumptions
    )
    for words in (
        "norm 3", "targets are clipped to [-1, 1]", "weights are clipped to [0, 5]", "n = 10 is public",
        "ridge is added once per step, outside the clip", "projected on the ball", "clipped to 0.5",
        "constant-one column",
    ):  # fmt: skip
        assert words in told
    told = " | ".join(
        Problem(loss=Logistic(), bounds=TWO, n=10, n_features=2, adjacency="add-remove").constants.assumptions
    )
    assert "labels other than 0..1 count as class 0" in told
    assert "divisor n = 10 is public" in told
    assert "projected" not in told


def test_the_diameter_cannot_be_stated() -> None:
    assert "diameter" not in {field.name for field in fields(Problem)}
    with pytest.raises(TypeError):
        Problem(loss=Logistic(), bounds=TWO, n=10, n_features=2, diameter=0.1)  # type: ignore[call-arg]
    problem = Problem(loss=Logistic(), bounds=TWO, n=10, n_features=2, constraint=Ball(4.0))
    with pytest.raises(AttributeError):
        problem.constants.diameter = 0.1  # type: ignore[misc]
    assert replace(problem, constraint=Ball(1.0)).constants.diameter == 2.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss": Squared(), "bounds": REAL}, r"Clipped\(Squared\(\), bound\)"),
        ({"loss": Poisson(target_bound=3.0), "bounds": REAL}, r"Clipped\(Poisson"),
        ({"loss": "logistic"}, "loss must be"),
        ({"bounds": None}, r"DataBounds\(data_norm=1.0, classes=2\)"),
        ({"bounds": {"data_norm": 1}}, "DataBounds"),
        ({"constraint": 2.0}, r"Ball\(1.0\)"),
        ({"n": 0}, "n must"),
        ({"n_features": 0}, "n_features"),
        ({"ridge": -0.1}, "ridge"),
        ({"ridge": math.inf}, "ridge"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"fit_intercept": "yes"}, "fit_intercept"),
        ({"bounds": DataBounds(data_norm=1.0, classes=3)}, r"labels in \[0, 1\]"),
        ({"bounds": DataBounds(data_norm=1.0, target=(-1, 1))}, r"labels in \[0, 1\]"),
        ({"loss": SmoothedHinge(), "bounds": DataBounds(data_norm=1.0, target=(0, 1))}, "classes=2"),
        ({"loss": Softmax(n_classes=4)}, "classes=4"),
        (
            {
                "loss": Clipped(Poisson(target_bound=3.0), 1.0),
                "bounds": DataBounds(data_norm=1.0, target=(0, 4)),
            },
            r"labels in \[0, 3\]",
        ),
        ({"constraint": Box((0.0, 0.0), 1.0)}, "2 coordinates but theta has 4"),
        ({"constraint": Simplex(1.0), "n_features": 1, "fit_intercept": False}, "one point"),
    ],
)
def test_refusals_name_the_parameter_and_the_fix(change: dict[str, object], words: str) -> None:
    statement: dict[str, object] = {"loss": Logistic(), "bounds": TWO, "n": 10, "n_features": 3}
    with pytest.raises(InvalidParameter, match=words):
        Problem(**{**statement, **change})  # type: ignore[arg-type]


def test_problems_are_values() -> None:
    one = Problem(loss=Huber(transition=1.0), bounds=REAL, n=10, n_features=2)
    other = Problem(
        loss=Huber(transition=1), bounds=REAL, n=np.int64(10), n_features=2, constraint=WholeSpace()
    )
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != replace(one, n=11)
    assert replace(one, n=11).constants.n == 11
    with pytest.raises(AttributeError):
        one.n = 12  # type: ignore[misc]
