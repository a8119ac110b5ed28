"""What a planner plans, `run_plan` runs: over every loss of the library, losses of whole records, and every planner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dplangevin import plan_sampler, run_plan
from dplangevin._arrays import Floats
from dplangevin.data import ArrayDataset
from dplangevin.errors import DplangevinError
from dplangevin.mechanisms import plan_iterated
from dplangevin.mechanisms.rashomon.planning import plan_rashomon
from dplangevin.problem import (
    Ball,
    Clipped,
    DataBounds,
    Huber,
    Logistic,
    Mean,
    Problem,
    RadialHuber,
    RecordLoss,
    Sigmoid,
    SmoothedHinge,
    Squared,
)

N, P = 60, 1


class Quartic(RecordLoss):
    """A loss of whole records as users write them."""

    name = "quartic"
    gradient_bound = 1.0

    def record_gradient(self, theta: Floats, row: Floats, label: float) -> Floats:
        return np.asarray((theta - row) ** 3)


LOSSES = {
    "logistic": Logistic(), "sigmoid": Sigmoid(), "hinge": SmoothedHinge(width=0.5), "squared": Clipped(Squared(), 2.0),
    "huber": Huber(transition=0.5), "mean": Mean(), "radial": RadialHuber(width=0.5), "records": Quartic(),
}  # fmt: skip


def problem(name: str, ridge: float) -> Problem:
    labels: dict[str, Any] = (
        {"classes": 2} if name in ("logistic", "sigmoid", "hinge") else {"target": (-1.0, 1.0)}
    )
    return Problem(
        loss=LOSSES[name],  # type: ignore[arg-type]
        bounds=DataBounds(data_norm=1.0, **labels),
        n=N,
        n_features=P,
        constraint=Ball(1.0),
        ridge=ridge,
        fit_intercept=False,
    )


def planners(of: Problem) -> dict[str, Any]:
    draws = {
        f"{tier} {delta:g}": lambda tier=tier, delta=delta: plan_sampler(
            of, 1.0, delta, tier, verbose=False, max_seconds=3.0
        )
        for tier, delta in (
            ("auto", 0.0),
            ("exact", 0.0),
            ("pure", 0.0),
            ("certified", 1e-3),
            ("process", 1e-3),
        )
    }
    return {
        **draws,
        "iterated": lambda: plan_iterated(of, 1.0, max_seconds=3.0),
        "rashomon": lambda: plan_rashomon(of, threshold=0.2, n_models=1, epsilon=5.0, tier="exact"),
    }


@pytest.mark.parametrize("ridge", [0.0, 0.5])
@pytest.mark.parametrize("name", LOSSES)
def test_what_is_planned_runs(name: str, ridge: float) -> None:
    of = problem(name, max(ridge, 0.1) if name == "mean" else ridge)  # a linear loss needs a ridge
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (N, P))
    data = ArrayDataset(rows, (rows[:, 0] > 0).astype(float), of)
    n_runs = 0
    for make in planners(of).values():
        try:
            planned = make()
        except DplangevinError:
            continue  # refused before anything is charged
        assert np.isfinite(run_plan(planned.plan, data, 1).value).all()
        n_runs += 1
    assert n_runs >= 1
