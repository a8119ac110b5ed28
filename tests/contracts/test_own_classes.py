"""A user's own bounds, sets, problems and specs are not believed: what they say need not be what they do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dplangevin.accounting.plan import Plan, certify_plan
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.whitened.spec import WhitenedSpec
from dplangevin.problem import Ball, DataBounds, Logistic, Problem

STATED: dict[str, Any] = {"loss": Logistic(), "n": 1000, "n_features": 2, "fit_intercept": False}
STEPS: dict[str, Any] = {
    "moment_noise_std": 0.1,
    "noise_std": 0.1,
    "n_steps": 4,
    "step_size": 1.0,
    "coef_bound": 1.0,
}
BOUNDS = DataBounds(data_norm=1.0, classes=2)


@dataclass(frozen=True)
class _Elsewhere(Ball):
    def diameter(self, dimension: int) -> float:
        return 1e-6

    def _project_columns(self, theta: Any) -> Any:
        return theta


@dataclass(frozen=True, kw_only=True)
class _Unclipped(DataBounds):
    def clip(self, X: Any, y: Any, weights: Any = None, *, out: Any = None) -> Any:
        return np.asarray(X), np.asarray(y), weights


@dataclass(frozen=True, kw_only=True)
class _Other(Problem):
    """Its constants could be anybody's."""


@dataclass(frozen=True, kw_only=True)
class _Noiseless(WhitenedSpec):
    def noise(self, step: int, steps: int) -> float:
        return 0.0


def test_what_a_set_or_bounds_do_is_what_they_say() -> None:
    with pytest.raises(InvalidParameter, match="one of this library's sets"):
        Problem(**STATED, bounds=BOUNDS, constraint=_Elsewhere(1.0))
    with pytest.raises(InvalidParameter, match="bounds must be stated"):
        Problem(**STATED, bounds=_Unclipped(data_norm=1.0, classes=2))


def test_what_runs_is_what_is_accounted() -> None:
    problem = Problem(**STATED, bounds=BOUNDS)
    with pytest.raises(InvalidParameter, match="must be a Problem, got _Other"):
        Plan(problem=_Other(**STATED, bounds=BOUNDS), spec=WhitenedSpec(**STEPS), delta=1e-5)
    with pytest.raises(InvalidParameter, match="is not in the registry of mechanisms"):
        Plan(problem=problem, spec=_Noiseless(**STEPS), delta=1e-5)
    with pytest.raises(InvalidParameter, match="is not in the registry of mechanisms"):
        certify_plan(problem.constants, _Noiseless(**STEPS), delta=1e-5)
    disguised = type("WhitenedSpec", (_Noiseless,), {"__module__": WhitenedSpec.__module__})
    with pytest.raises(InvalidParameter, match="is not in the registry of mechanisms"):
        certify_plan(problem.constants, disguised(**STEPS), delta=1e-5)
