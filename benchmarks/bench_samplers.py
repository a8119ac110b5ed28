"""Certified samplers: time and passes over the data of one draw (logistic, ball of radius 1, synthetic rows)."""

from __future__ import annotations

import os
import time
from unittest import mock

from _measure import Row, asked
from loaders import _synthetic

from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed
from dplangevin.mechanisms.exponential.sampler_plans import plan_sampler
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.problem import Ball, DataBounds, Logistic, Problem
from dplangevin.sampling.potential import ProblemPotential

CASES = (
    # n, p, delta, ridge, tier, target in seconds
    (2_000, 20, 0.0, 0.01, "pure", 60.0),
    (2_000, 20, 0.0, 0.0, "pure", None),
    (2_000, 20, 0.0, 0.01, "exact", None),
    (30_000, 20, 1e-6, 0.01, "certified", 60.0),
    (30_000, 20, 1e-6, 0.0, "certified", None),
    (30_000, 20, 1e-6, 0.01, "process", None),
    (30_000, 100, 1e-6, 0.01, "certified", 600.0),
    (30_000, 100, 1e-6, 0.0, "certified", None),
    (30_000, 100, 1e-6, 0.01, "process", None),
)
MAX_SECONDS_WITHOUT_TARGET = float(os.environ.get("DPLANGEVIN_BENCH_SECONDS", "300"))
"""Cases without a target are skipped when they are expected to take longer."""


def rows() -> list[Row]:
    """Measure one draw per case, epsilon = 1, one seed."""
    return [_row(*case) for case in CASES]


def _row(n: int, p: int, delta: float, ridge: float, tier: str, limit: float | None) -> Row:
    problem = Problem(
        loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=n, n_features=p, constraint=Ball(1.0),
        ridge=ridge, fit_intercept=False,
    )  # fmt: skip
    what = f"{tier}, n = {n}, p = {p}, m = {ridge:g}"
    try:
        sampler_plan = plan_sampler(problem, 1.0, delta, tier, max_seconds=None, verbose=False)  # type: ignore[arg-type]
    except AssumptionFailed as refusal:
        return Row(what=what, asked="", measured="refused", note=str(refusal))
    expected = f"{sampler_plan.n_gradient_evaluations} passes expected"
    if limit is None and sampler_plan.expected_seconds > MAX_SECONDS_WITHOUT_TARGET:
        return Row(
            what=what,
            asked="",
            measured="skipped",
            note=f"{expected}, about {sampler_plan.expected_seconds:.2g} s",
        )
    split = _synthetic(n, p)
    data = ArrayDataset(split.X, split.y, problem)
    counts = {"gradient": 0, "value": 0}

    def count_calls(name: str):  # type: ignore[no-untyped-def]
        plain = getattr(ProblemPotential, name)

        def count(self, theta):  # type: ignore[no-untyped-def]
            counts[name] += theta.shape[1]
            return plain(self, theta)

        return mock.patch.object(ProblemPotential, name, count)

    with count_calls("gradient"), count_calls("value"):
        start = time.process_time()
        run_plan(sampler_plan.plan, data, 0)
        spent = time.process_time() - start
    note = f"{counts['gradient']} gradients and {counts['value']} values of the loss; {expected}"
    return asked(what, limit, spent, note)
