"""Constant-time padding: the solver's work does not depend on the data, and its answer is the usual one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.data.dataset import Dataset
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.perturbation.spec import (
    calibrate_objective_perturbation,
    calibrate_output_perturbation,
)
from dplangevin.problem import Ball, DataBounds, Logistic, Problem, WholeSpace

N = 300


def _problem(constraint: Any = None) -> Problem:
    return Problem(
        loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=N, n_features=3, ridge=0.05,
        constraint=constraint or WholeSpace(),
    )  # fmt: skip


def _data(problem: Problem, seed: int, easy: bool) -> ArrayDataset:
    rng = np.random.default_rng(seed)
    X = np.zeros((N, 3)) if easy else 5 * rng.standard_normal((N, 3))
    return ArrayDataset(X, (X[:, 0] > 0).astype(float), problem)


def _plan(kind: str, problem: Problem, iterations: int | None) -> Plan:
    calibrated: Any = (
        calibrate_objective_perturbation if kind == "objective" else calibrate_output_perturbation
    )
    spec = calibrated(problem.constants, epsilon=1.0, delta=0.0)
    return Plan(problem=problem, spec=replace(spec, n_iterations=iterations), delta=0.0)


@pytest.mark.parametrize("kind", ["objective", "output"])
def test_the_answer_is_the_usual_one(kind: str) -> None:
    problem = _problem()
    for seed in range(3):
        data = _data(problem, seed, easy=False)
        usual, padded = (run_plan(_plan(kind, problem, number), data, seed) for number in (None, 15))
        assert padded.value == pytest.approx(usual.value, abs=1e-8)
    plans = [_plan(kind, problem, number) for number in (None, 15)]
    assert plans[0].guarantee.epsilon() == plans[1].guarantee.epsilon()
    assert "the time a run takes is not observed" in plans[0].guarantee.assumptions
    assert any("15 equal iterations whatever the data" in words for words in plans[1].guarantee.assumptions)


@pytest.mark.parametrize("kind", ["objective", "output"])
@pytest.mark.parametrize("iterations", [None, 12])
def test_the_work_is_the_same_for_all_data(
    kind: str, iterations: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, ...]] = []
    passes = []
    real_sum, real_blocks = Dataset.loss_sum, ArrayDataset.blocks

    def loss_sum(self: Any, loss: Any, theta: Any) -> Any:
        calls.append(np.shape(theta))
        return real_sum(self, loss, theta)

    def blocks(self: Any, rows: Any = None) -> Any:
        passes.append(1)
        return real_blocks(self, rows)

    monkeypatch.setattr(Dataset, "loss_sum", loss_sum)
    monkeypatch.setattr(ArrayDataset, "blocks", blocks)
    problem, seen = _problem(), []
    plan = _plan(kind, problem, iterations)
    for seed, easy in ((0, True), (1, False), (2, False)):
        calls.clear()
        passes.clear()
        run_plan(plan, _data(problem, seed, easy), 0)
        seen.append((tuple(calls), len(passes)))
    assert (len(set(seen)) == 1) == (iterations is not None)


def test_what_cannot_be_padded_is_refused() -> None:
    problem = _problem(Ball(1.0))
    with pytest.raises(AssumptionFailed, match="unconstrained"):
        run_plan(_plan("output", problem, 10), _data(problem, 0, False), 0)
    free = _problem()
    with pytest.raises(AssumptionFailed, match="was not found"):
        run_plan(_plan("output", free, 1), _data(free, 0, False), 0)
    with pytest.raises(InvalidParameter, match="iterations"):
        _plan("output", free, 0)
