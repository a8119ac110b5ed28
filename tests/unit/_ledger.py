"""What the tests of the ledger share: guarantees of a known size, and a tiny run."""

from __future__ import annotations

from typing import Any

import numpy as np

from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import (
    Approximate,
    BoundedRange,
    Gaussian,
    PrivacyPart,
    Pure,
    SampledGaussian,
)
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem import Ball, DataBounds, Logistic
from dplangevin.problem.problem import Problem


def make_guarantee(*parts: PrivacyPart, adjacency: Any = "replace-one", **more: Any) -> Guarantee:
    return Guarantee(
        parts=parts, adjacency=adjacency, release="draw", theorem="composition", reference="none", **more
    )


def pure(epsilon: float, **more: Any) -> Guarantee:
    return make_guarantee(Pure(value=epsilon), **more)


def gaussian(mu: float, **more: Any) -> Guarantee:
    return make_guarantee(Gaussian(mu=mu), **more)


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
    spec = NoisyGradientSpec(step_size=0.5, noise_std=0.5, n_steps=3)
    return Plan(problem=problem, spec=spec, delta=1e-5, theorem="composition")


def tiny_data(plan: Plan) -> ArrayDataset:
    rng = np.random.default_rng(7)
    return ArrayDataset(rng.standard_normal((20, 2)), rng.integers(0, 2, 20).astype(float), plan.problem)


def mixed(count: int, seed: int = 0) -> list[PrivacyPart]:
    """Distinct releases of every common kind."""
    rng = np.random.default_rng(seed)
    kinds = [
        lambda: Gaussian(mu=float(rng.uniform(0.001, 0.01))),
        lambda: Pure(value=float(rng.uniform(0.001, 0.02))),
        lambda: BoundedRange(value=float(rng.uniform(0.001, 0.02))),
        lambda: Approximate(value=float(rng.uniform(0.001, 0.01)), slack=1e-13),
        lambda: SampledGaussian(
            rate=0.01, noise_multiplier=float(rng.choice([8.0, 10.0])), sampling="poisson"
        ),
    ]
    return [kinds[i % len(kinds)]() for i in range(count)]
