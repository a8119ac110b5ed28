"""The joint cost of gradient and determinant for the logistic loss, against exact ratios of densities.

The perturbed minimiser has the density nu(-grad) det(Hessian), with no unknown constant, so the ratio of two
neighbours at a point is exact in any dimension. None exceeds the cost, and one family of tables attains it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dplangevin.mechanisms.perturbation import spec as perturbation
from dplangevin.mechanisms.perturbation.spec import (
    ObjectivePerturbationTheorem,
    calibrate_objective_perturbation,
    determinant_cost,
    gamma_minimizer_cost,
)
from dplangevin.problem import Clipped, DataBounds, Huber, Logistic, Problem, Softmax, Squared
from dplangevin.problem.constants import ADJACENCIES, Constants
from unit._perturbation import log_density_of_minimiser, worst_logistic_ratio


def constants_of(ridge: float, slope: float, adjacency: str, **changes: float) -> Constants:
    known = Constants(
        n=1, lipschitz=slope, smoothness=0.25 + ridge, strong_convexity=ridge, dimension=2, hessian_rank=1,
        adjacency=adjacency, logistic_slope_bound=slope,
    )  # fmt: skip
    return replace(known, **changes)


def random_ratio(rng: np.random.Generator, ridge: float, scale: float, slope: float, adjacency: str) -> float:
    """Return the log ratio of a random table and its neighbour at a random point, in the worse direction."""
    size, dimension = int(rng.integers(0, 4)), int(rng.integers(1, 4))
    rows = rng.standard_normal((size + 2, dimension))
    rows /= np.maximum(np.linalg.norm(rows, axis=1), rng.uniform(0.3, 1.0))[:, None]
    rows[-1] = rows[-2] * rng.uniform(-1, 1) if rng.random() < 0.5 else rows[-1]
    weights = np.append(10 ** rng.uniform(-1, 6, size), [1.0, 1.0])
    at = 10 ** rng.uniform(-1, 1.5) * rng.standard_normal(dimension)
    one, other = [*range(size), size], [*range(size), size + 1][: size + (adjacency == "replace-one")]
    values = [
        log_density_of_minimiser(rows[each], weights[each], at, ridge, scale, slope) for each in (one, other)
    ]
    return abs(values[0] - values[1])


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_table_exceeds_the_cost_and_some_attain_it(adjacency: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        ridge, scale, slope = 10 ** rng.uniform(-1.5, 1), 10 ** rng.uniform(-0.5, 1.5), rng.uniform(0.55, 1)
        slope = 1.0 if rng.random() < 0.3 else slope
        cost = gamma_minimizer_cost(constants_of(ridge, slope, adjacency), scale)
        for _ in range(40):
            assert random_ratio(rng, ridge, scale, slope, adjacency) <= cost * (1 + 1e-9)
        attained = max(worst_logistic_ratio(ridge, scale, slope, adjacency, far) for far in (60.0, 400.0))
        assert 0.97 * cost <= attained <= cost * (1 + 1e-6), (ridge, scale, slope)


Broken = Callable[[Constants, float], float]


def without_determinant(constants: Constants, scale: float) -> float:
    return constants.gradient_sensitivity / scale


def at_the_bound(constants: Constants, scale: float) -> float:
    """As if the record that changes the determinant had its slope at the bound."""
    slope = constants.logistic_slope_bound or 1.0
    inside = 4 * math.expm1(determinant_cost(constants)) * slope * (1 - slope)
    return constants.gradient_sensitivity / scale + math.log1p(inside)


def for_one_record(constants: Constants, scale: float) -> float:
    return gamma_minimizer_cost(
        replace(constants, adjacency="add-remove", gradient_sensitivity=math.nan), scale
    )


@pytest.mark.parametrize("broken", [without_determinant, at_the_bound, for_one_record])
def test_a_smaller_cost_is_refuted(broken: Broken) -> None:
    constants = constants_of(0.3, 0.95, "replace-one")
    assert (
        max(worst_logistic_ratio(0.3, 2.0, 0.95, "replace-one", far) for far in (60.0, 400.0))
        > broken(constants, 2.0) * 1.01
    )


def test_the_maximum_is_that_of_a_fine_grid() -> None:
    """Closed form against 20,001 slopes; extreme constants stay bounds."""
    rng = np.random.default_rng(4)
    for _ in range(300):
        ridge, scale, slope = 10 ** rng.uniform(-6, 4), 10 ** rng.uniform(-4, 4), rng.uniform(0.51, 1)
        constants = constants_of(ridge, slope, "add-remove")
        a = np.linspace(0, slope, 20_001)
        best = float(np.max(a / scale + np.log1p(a * (1 - a) / ridge)))
        assert best * (1 - 1e-12) <= gamma_minimizer_cost(constants, scale) <= best * (1 + 1e-6)
    for ridge, scale in ((1e-60, 1.0), (1e58, 1.0), (1.0, 1e-60), (1.0, 1e60), (1e-59, 1e-59)):
        constants = constants_of(ridge, 1.0, "replace-one", smoothness=max(ridge, 0.25) * 1.25)
        cost = gamma_minimizer_cost(constants, scale)
        assert cost >= max(2 / scale, math.log1p(min(constants.data_smoothness, 0.25) / ridge)) * (1 - 1e-12)


def test_slopes_of_a_half_and_more_bound_the_curvature() -> None:
    """a (1 - a) at a slope of size a >= 1/2, for labels anywhere in [0, 1]; other losses state no such bound."""
    scores, labels = np.linspace(-30, 30, 3001)[:, None], np.linspace(0, 1, 11)
    for loss in (Logistic(), Clipped(Logistic(), 0.8)):
        sizes = np.abs(loss.slope(scores, labels))
        bounds = np.where(sizes >= 0.5, sizes * (1 - sizes), 0.25)
        assert np.all(loss.curvature(scores, np.broadcast_to(labels, sizes.shape)) <= bounds + 1e-15)
        assert loss.logistic_slope_bound == loss.slope_bound
    problems = [Problem(loss=loss, bounds=DataBounds(data_norm=3.0, classes=2, weight_bound=2.0), n=10, n_features=2)
                for loss in (Logistic(), Clipped(Logistic(), 0.8))]  # fmt: skip
    assert [each.constants.logistic_slope_bound for each in problems] == [1.0, 0.8]
    for loss in (Clipped(Squared(), 0.8), Huber(transition=1.0), Softmax(n_classes=3)):
        assert loss.logistic_slope_bound is None


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_calibration_spends_what_the_joint_cost_leaves(adjacency: str) -> None:
    constants = replace(constants_of(0.5, 1.0, adjacency), n=1000, strong_convexity=5e-4, smoothness=0.2505)
    for epsilon in (0.5, 1.0, 4.0):
        spec = calibrate_objective_perturbation(constants, epsilon=epsilon, secure=True)
        assert (
            epsilon * (1 - 1e-6)
            <= ObjectivePerturbationTheorem().certify(constants, spec).epsilon()
            <= epsilon
        )
        general = calibrate_objective_perturbation(
            replace(constants, logistic_slope_bound=None), epsilon=epsilon, secure=True
        )
        assert spec.density_scale < 0.97 * general.density_scale


def test_a_shaved_cost_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturbation, "round_up", lambda value: 0.98 * value)
    spec = calibrate_objective_perturbation(constants_of(0.5, 1.0, "add-remove"), epsilon=1.0, secure=True)
    claimed = ObjectivePerturbationTheorem().certify(constants_of(0.5, 1.0, "add-remove"), spec).epsilon()
    assert worst_logistic_ratio(0.5, spec.density_scale, 1.0, "add-remove") > claimed
