"""Underdamped Langevin as a mechanism: its guarantee against the exact law of a step, its law, its refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin import Plan, account, calibrate, run_plan
from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms import UnderdampedSpec
from dplangevin.problem import Ball, DataBounds, Mean, Problem, WholeSpace
from dplangevin.sampling.langevin import UnderdampedStep


@settings(max_examples=200, deadline=None)
@given(st.floats(0.1, 20.0), st.floats(1e-3, 50.0), st.floats(-4.0, 1.0))
def test_the_guarantee_is_above_the_law_of_a_step(gamma: float, mass: float, log_eta: float) -> None:
    """mu^2 of one step's exact Gaussian, d^T S^-1 d, is at most eta u / (2 gamma), and tends to it for short steps."""
    eta = 10**log_eta
    step = UnderdampedStep.from_parameters(gamma, mass, eta)
    shift = np.array([step.position_gradient_coef, step.velocity_gradient_coef])
    scale = np.sqrt([step.variance_x, step.variance_v])
    correlation = step.covariance / float(np.prod(scale))
    units = shift / scale
    exact = (units @ units - 2 * correlation * units[0] * units[1]) / (1 - correlation**2)
    claimed = eta * mass / (2 * gamma)
    assert exact <= claimed * (1 + 1e-7)
    if gamma * eta < 1e-2:
        assert exact >= claimed * (1 - 1e-4)


def mean_problem(n: int, **options: object) -> Problem:
    return Problem(
        loss=Mean(), bounds=DataBounds(data_norm=1.0, target=(0, 1)), n=n, n_features=2, ridge=1.0,
        fit_intercept=False, **options,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_run_has_the_law_of_its_steps() -> None:
    """|theta - x|^2 / 2: stationary around the mean, variance near 1 / beta (the bias of a step is a few percent)."""
    task = mean_problem(400)
    rows = np.random.default_rng(0).normal([0.3, -0.2], 0.1, (400, 2))
    spec = UnderdampedSpec(
        inverse_temperature=50.0, friction=2.0, inverse_mass=0.02, step_size=0.3, n_steps=60
    )
    plan = Plan(problem=task, spec=spec, delta=1e-6)
    data, rng = ArrayDataset(rows, np.zeros(400), task), np.random.default_rng(1)
    drawn = np.array([run_plan(plan, data, rng).value for _ in range(300)])
    assert np.abs(drawn.mean(axis=0) - rows.mean(axis=0)).max() < 4 * 0.15 / math.sqrt(300)
    assert drawn.var(axis=0) == pytest.approx(1 / 50, rel=0.35)


def test_the_accountant_and_refusals() -> None:
    options = {"mechanism": "underdamped", "n": 1000, "lipschitz": 1.0, "step_size": 0.1, "n_steps": 50}
    guarantee = account(**options, inverse_temperature=100.0, delta=1e-6)
    assert guarantee.mu == pytest.approx(100 * 2 / 1000 * math.sqrt(5 / 4), rel=1e-8)
    certified = calibrate(**options, epsilon=1.0, delta=1e-6)
    assert 0.99 < certified.guarantee.epsilon(1e-6) <= 1.0
    plan = Plan(
        problem=mean_problem(10, constraint=Ball(1.0)),
        spec=UnderdampedSpec(inverse_temperature=1.0, step_size=0.1, n_steps=2),
        delta=1e-6,
    )
    with pytest.raises(InvalidParameter, match="whole space"):
        run_plan(plan, ArrayDataset(np.zeros((10, 2)), np.zeros(10), plan.problem))
    assert isinstance(mean_problem(10).constraint, WholeSpace)
