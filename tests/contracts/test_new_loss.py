"""A new loss is one class and one line: log-cosh, which the library does not have, is planned, accounted and run.

Every fact about a loss that another package needs has a default or is stated on the class; registering it in LOSSES,
which says that its bounds are proved, is all that is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pytest

from dplangevin import plan_fit
from dplangevin.accounting.plan import Plan
from dplangevin.accounting.registry import plannable_mechanisms
from dplangevin.data import ArrayDataset
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._posterior import plan_with_intervals
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.rashomon_region.objective import RegionObjective, majorant_curvature
from dplangevin.planner.fit_plan import Request
from dplangevin.problem import LOSSES, Ball, Clipped, DataBounds, Loss, ModelDefaults, Problem
from dplangevin.problem.losses.base import FloatArray

N, P = 400, 3


@final
@dataclass(frozen=True, kw_only=True)
class LogCosh(Loss):
    """log cosh(u - y): quadratic near 0 and |u - y| - log 2 far away. |h'| <= 1 and 0 <= h'' <= 1."""

    name: ClassVar[str] = "log-cosh"
    slope_bound = 1.0
    curvature_bound = 1.0
    defaults = ModelDefaults(model="log-cosh", labels="numbers", coef_bound=1.5, averaged_fraction=0.8)

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        distance = np.abs(score - y)
        return distance + np.log1p(np.exp(-2 * distance)) - math.log(2)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(np.tanh(score - y))

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(1 - np.tanh(score - y) ** 2)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.asarray(np.arctanh(np.clip(slope, -1.0, 1.0)) + y)

    def majorant(self, score: FloatArray, y: FloatArray) -> FloatArray:
        distance = np.maximum(np.abs(score - y), 1e-8)
        return np.asarray(np.tanh(distance) / distance)

    @property
    def for_intervals(self) -> Loss:
        return self


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    monkeypatch.setitem(LOSSES, LogCosh.name, LogCosh)


def stated(**more: object) -> dict[str, object]:
    return {
        "model": "log-cosh",
        "n": N,
        "n_features": P,
        "epsilon": 2.0,
        "delta": 1e-5,
        "adjacency": "replace-one",
        "data_norm": 1.0,
        "fit_intercept": True,
    } | more


def records(problem: Problem) -> ArrayDataset:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)) / 3
    return ArrayDataset(X, X @ np.array([0.5, -0.5, 0.2]) + 0.05 * rng.standard_normal(N), problem)


def test_without_its_line_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(LOSSES, LogCosh.name)
    with pytest.raises(InvalidParameter, match="is not a loss of this library"):
        Problem(loss=LogCosh(), bounds=DataBounds(data_norm=1.0, target=(-1.0, 1.0)), n=N, n_features=P)
    with pytest.raises(InvalidParameter, match="model"):
        plan_fit(**stated())  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("mechanism", ["auto", *sorted(set(plannable_mechanisms()) - {"noisy-sgd"})])
def test_it_is_planned_accounted_and_run(mechanism: str, delta: float) -> None:
    """By every mechanism that the Huber loss has."""
    plan, known = (planned(model, mechanism, delta) for model in ("log-cosh", "huber"))
    assert (plan is None) == (known is None)
    if plan is not None:
        assert plan.problem.loss.unclipped_loss == LogCosh()
        assert plan.guarantee.epsilon(delta) <= 2.0 * (1 + 1e-9)
        assert np.isfinite(run_plan(plan, records(plan.problem), 1).value).all()


def planned(model: str, mechanism: str, delta: float) -> Plan | None:
    try:
        return plan_fit(**stated(model=model, mechanism=mechanism, delta=delta)).plan  # type: ignore[arg-type]
    except DplangevinError:
        return None


def test_its_default_fit_learns() -> None:
    plan = plan_fit(**stated(epsilon=50.0)).plan  # type: ignore[arg-type]
    data = records(plan.problem)
    value = run_plan(plan, data, 1).value
    at = np.column_stack([value, np.zeros(P + 1)])
    fitted, trivial = data.loss_sum(plan.problem.loss, at)
    assert fitted < 0.5 * trivial


def test_it_has_intervals_and_a_region() -> None:
    for mechanism in ("auto", "objective-perturbation"):
        request = Request(**stated(epsilon=4.0, mechanism=mechanism))  # type: ignore[arg-type]
        fit_plan, both = plan_with_intervals(0.15, request)
        assert fit_plan.plan.problem.loss == LogCosh()
        assert (fit_plan.plan if both is None else both).guarantee.epsilon(1e-5) <= 4.0
    problem = replace(fit_plan.plan.problem, constraint=Ball(1.0))
    objective = RegionObjective.from_problem(problem, LogCosh(), 0.1)
    assert objective.curvature_unit >= problem.row_norm**2
    scores, steps = np.linspace(-4, 4, 81), np.linspace(-9, 9, 181)[:, None]
    for loss in (LogCosh(), Clipped(LogCosh(), 0.5)):
        zero = np.zeros(1)
        line = loss.value(scores, zero) + loss.slope(scores, zero) * steps
        above = line + majorant_curvature(loss, scores, zero) * steps**2 / 2
        assert (loss.value(scores + steps, zero) <= above + 1e-12).all()
