"""Estimators, through fit alone.

One record, x = +1 or -1, and a large stated ridge: the minimiser stays near 0, where the slope is the clip, so output
perturbation attains its claim to within 5%. (The mean of accelerated steps, which "auto" runs, wanders off to where
slopes shrink; it is audited with constant slopes among the mechanisms.)
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from dplangevin.accounting.plan import Plan
from dplangevin.estimators import DPAdditiveClassifier, DPAdditiveRegressor, DPPoissonRegressor, _base
from dplangevin.mechanisms.mechanism import run_plan
from estimators._models import CLASSIFIERS, EVERY, made
from privacy._case import Case

DELTA = 0.01
ADDITIVE = {DPAdditiveClassifier: {"classes": [0, 1]}, DPAdditiveRegressor: {"target_bounds": (-1.0, 1.0)}}
CURVE = {"columns": {"x": {"range": [-1.0, 1.0]}}}


def weak_run(plan: Plan, *args: Any, **kwargs: Any) -> Any:
    """The mechanism with half of the noise that was paid for; a quarter for curves, whose rows are never opposite."""
    spec: Any = plan.spec
    weaker = replace(spec, density_scale=spec.density_scale / (2 if plan.problem.n_columns == 1 else 4))
    return run_plan(Plan(problem=plan.problem, spec=weaker, delta=plan.delta), *args, **kwargs)


def fitted(cls: type, side: int, random_state: Any) -> Any:
    options: dict[str, Any] = {
        "epsilon": 4.0, "delta": DELTA, "data_norm": 1.0, "fit_intercept": False, "alpha": 100.0,
        "mechanism": "output-perturbation", "random_state": random_state,
    }  # fmt: skip
    if cls in CLASSIFIERS:
        options["classes"] = [0, 1]
    if cls is DPPoissonRegressor:
        options["target_bounds"] = (0.0, 4.0)
    if cls in ADDITIVE:
        del options["data_norm"]
        options |= {"schema": CURVE, "n_knots": 2, **ADDITIVE[cls]}
    target = [4.0] if cls is DPPoissonRegressor else [1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cls(**options) if cls in ADDITIVE else made(cls, **options)
        return model.fit([[1.0 - 2.0 * side]], target)


def case(cls: type) -> Case:
    def honest(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        return np.array([float(np.ravel(fitted(cls, side, rng).coef_)[0]) for _ in range(runs)])

    def weak(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        with patch.object(_base, "run_plan", weak_run):
            return honest(side, runs, rng)

    return Case(
        name=cls.__name__,
        configuration="output perturbation, alpha 100, one record",
        covers=(cls.__name__,),
        claim=fitted(cls, 0, 0).privacy_,
        honest=honest,
        broken_variants={"noise / 4" if cls in ADDITIVE else "noise / 2": weak},
        exact_ratio=_ratio(cls),
        runs=900 if cls in ADDITIVE else 400,
        slow=cls in ADDITIVE,
    )


def _ratio(cls: type) -> float:
    """Distance of the two noiseless minimisers in standard deviations, over the claimed mu."""
    model = fitted(cls, 0, 0)
    minima = []
    for side in (0, 1):
        plan = fitted(cls, side, 0).plan_.plan
        spec = replace(plan.spec, density_scale=1e-9 * plan.spec.density_scale)
        silent = Plan(problem=plan.problem, spec=spec, delta=DELTA)
        with patch.object(_base, "run_plan", lambda _plan, *a, silent=silent, **k: run_plan(silent, *a, **k)):
            minima.append(float(np.ravel(fitted(cls, side, 0).coef_)[0]))
    scale = model.plan_.plan.spec.density_scale
    return abs(minima[0] - minima[1]) / scale / model.privacy_.mu


CASES = tuple(case(cls) for cls in (*EVERY, *ADDITIVE))
