"""What the tests of the ledger share: promises of a known size, and a tiny run."""

from __future__ import annotations

from typing import Any

import numpy as np

from dplangevin.data import ArrayDataset
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Part, Pure
from dplangevin.privacy.plan import Plan
from dplangevin.problem import Ball, DataBounds, Logistic
from dplangevin.problem.problem import Problem


def promise(*parts: Part, adjacency: Any = "replace-one", **more: Any) -> Guarantee:
    return Guarantee(
        parts=parts, adjacency=adjacency, release="draw", theorem="composition", reference="none", **more
    )


def pure(epsilon: float, **more: Any) -> Guarantee:
    return promise(Pure(value=epsilon), **more)


def gaussian(mu: float, **more: Any) -> Guarantee:
    return promise(Gaussian(mu=mu), **more)


def tiny_plan(adjacency: Any = "replace-one") -> Plan:
    """A run of a few milliseconds: mu = sqrt(3) * 2 * 1 / (20 * 0.5) of plain composition."""
    problem = Problem(
        loss=Logistic(),
        bounds=DataBounds(data_norm=1.0, classes=2),
        n=20,
        n_features=2,
        constraint=Ball(1.0),
        fit_intercept=False,
        adjacency=adjacency,
    )
    schedule = NoisyGradientSchedule(step_size=0.5, noise_scale=0.5, n_steps=3)
    return Plan(problem=problem, schedule=schedule, delta=1e-5, theorem="composition")


def tiny_data(plan: Plan) -> ArrayDataset:
    rng = np.random.default_rng(7)
    return ArrayDataset(rng.standard_normal((20, 2)), rng.integers(0, 2, 20).astype(float), plan.problem)
