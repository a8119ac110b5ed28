"""Audit pairs of the estimators, through fit alone: the honest one stands, a quarter of its noise does not.

One record, x = +1 or -1, and a large stated ridge: the minimiser stays near 0, where the slope is the clip, so output
perturbation attains its claim to within 5%. (The mean of accelerated steps, which "auto" runs, wanders off to where
slopes shrink, and is audited with constant slopes in test_noisy_gradient_audit.) Confidence 0.999; seeds are fixed.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dplangevin.audit import attack
from dplangevin.estimators import DPPoissonRegressor, _base
from dplangevin.mechanisms import run
from dplangevin.privacy.plan import Plan
from estimators._models import CLASSIFIERS, EVERY, made

RUNS = 500
DELTA = 0.01


def weak_run(plan: Plan, *args: Any, **kwargs: Any) -> Any:
    """The mechanism with a quarter of the noise that was paid for."""
    schedule: Any = plan.schedule
    weaker = replace(schedule, noise_scale=schedule.noise_scale / 4)
    return run(Plan(problem=plan.problem, schedule=weaker, delta=plan.delta), *args, **kwargs)


def coefficients(cls: type, side: float, seed: int, **changes: Any) -> tuple[np.ndarray, Any]:
    rng = np.random.default_rng(seed)
    options: dict[str, Any] = {
        "epsilon": 4.0, "delta": DELTA, "data_norm": 1.0, "fit_intercept": False, "alpha": 100.0,
        "mechanism": "output-perturbation",
    }  # fmt: skip
    if cls in CLASSIFIERS:
        options["classes"] = [0, 1]
    if cls is DPPoissonRegressor:
        options["target_bounds"] = (0.0, 4.0)
    target = [4.0] if cls is DPPoissonRegressor else [1]
    found = []
    for _ in range(RUNS):
        model = made(cls, **(options | changes), random_state=rng).fit([[side]], target)
        found.append(float(np.ravel(model.coef_)[0]))
    return np.array(found), model.privacy_


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_audit_pair(cls: type, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, claim = coefficients(cls, 1.0, 1)
        second, _ = coefficients(cls, -1.0, 2)
        fair = attack(first, second, claim, delta=DELTA, confidence=0.999)
        assert not fair.refuted
        assert fair.mu_lower > 0.6 * claim.mu
        monkeypatch.setattr(_base, "run", weak_run)
        weak = [coefficients(cls, side, seed)[0] for side, seed in ((1.0, 3), (-1.0, 4))]
    assert attack(*weak, claim, delta=DELTA, confidence=0.999).refuted
