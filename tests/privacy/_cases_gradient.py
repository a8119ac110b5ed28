"""Noisy gradient descent. Targets far away and a clipped slope: every record pulls with gradient exactly -1 or +1."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem import Clipped, DataBounds, Problem, Softmax, Squared
from privacy._case import Case, Draw

FAR = 1e6
COVERS = ("NoisyGradientDescent",)


def linear_problem(n: int, adjacency: str = "replace-one", ridge: float = 0.0) -> Problem:
    return Problem(
        loss=Clipped(Squared(), 1.0),
        bounds=DataBounds(data_norm=1.0, target=(-FAR, FAR)),
        n=n,
        n_features=1,
        fit_intercept=False,
        ridge=ridge,
        adjacency=adjacency,  # type: ignore[arg-type]
    )


def runs_of(plan: Plan, neighbours: tuple[list[int], list[int]]) -> Draw:
    """TriedRelease values of runs on records that pull with these signs; whole trajectories where they are released."""
    tables = [
        ArrayDataset(np.ones((len(pulls), 1)), FAR * np.array(pulls, float), plan.problem)
        for pulls in neighbours
    ]

    def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        releases = [run_plan(plan, tables[side], rng) for _ in range(runs)]
        if plan.spec.release in ("trajectory", "checkpoints"):
            return np.array([np.concatenate(list(release.iterates.values())) for release in releases])
        return np.array([release.value[0] for release in releases])

    return draw


def pair(
    name: str,
    options: dict[str, Any],
    neighbours: tuple[list[int], list[int]],
    ratio: float,
    *,
    adjacency: str = "replace-one",
    ridge: float = 0.0,
    leak: bool = False,
    **more: Any,
) -> Case:
    of = linear_problem(max(map(len, neighbours)), adjacency, ridge)
    spec = NoisyGradientSpec(**options)
    theorem = "composition" if spec.sampling == "shuffle" else None
    honest = Plan(problem=of, spec=spec, delta=1e-2, theorem=theorem)
    weak = replace(spec, noise_std=options["noise_std"] / 2)
    broken_variants = {
        "noise / 2": runs_of(Plan(problem=of, spec=weak, delta=1e-2, theorem=theorem), neighbours)
    }
    if leak:
        every = replace(spec, release="trajectory")
        broken_variants["iterates leak"] = runs_of(Plan(problem=of, spec=every, delta=1e-2), neighbours)
    return Case(
        name="noisy gradient descent",
        configuration=name,
        covers=COVERS,
        claim=honest.guarantee,
        honest=runs_of(honest, neighbours),
        broken_variants=broken_variants,
        exact_ratio=ratio,
        **more,
    )


def step(**options: Any) -> dict[str, Any]:
    return {"step_size": 0.5, "n_steps": 1, **options}


def no_factor_two() -> Case:
    """Replace-one needs twice the noise of add-remove: calibrated for the latter, run against the former."""
    of = linear_problem(1, "replace-one", 0.4)
    right = NoisyGradientSpec(step_size=0.5, noise_std=2.0, n_steps=2)
    honest = Plan(problem=of, spec=right, delta=1e-2)
    wrong = Plan(problem=of, spec=replace(right, noise_std=1.0), delta=1e-2)
    return Case(
        name="noisy gradient descent",
        configuration="full batch, sensitivity of replace-one",
        covers=COVERS,
        claim=honest.guarantee,
        honest=runs_of(honest, ([1], [-1])),
        broken_variants={"sensitivity without 2": runs_of(wrong, ([1], [-1]))},
        exact_ratio=1.0,
    )


class SharedClasses(np.random.Generator):
    """A generator that gives every one of three classes the same noise: the fault to be found."""

    def standard_normal(self, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        if size is None or size % 3:
            return super().standard_normal(size)
        return np.repeat(super().standard_normal(size // 3), 3)


def classes() -> Case:
    """Three classes whose clipped slopes are opposite for x and -x: one step attains the sensitivity 2C."""
    of = Problem(
        loss=Softmax(n_classes=3, slope_clip=0.2),
        bounds=DataBounds(data_norm=1.0, classes=3),
        n=1,
        n_features=2,
        fit_intercept=False,
    )
    plan = Plan(problem=of, spec=NoisyGradientSpec(step_size=0.5, noise_std=0.2, n_steps=1), delta=1e-2)
    tables = [ArrayDataset(np.array([[side, 0.0]]), np.zeros(1), of) for side in (1.0, -1.0)]

    def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        return np.array([run_plan(plan, tables[side], rng).value for _ in range(runs)])

    def shared(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        return draw(side, runs, SharedClasses(np.random.PCG64(int(rng.integers(2**31)))))

    return Case(
        name="noisy gradient descent",
        configuration="softmax of three classes, one step",
        covers=(*COVERS, "Softmax"),
        claim=plan.guarantee,
        honest=draw,
        broken_variants={"seed shared by classes": shared},
        exact_ratio=1.0,
    )


ROOT = 1 / math.sqrt(2)
CASES = (
    pair("full batch, strongly convex", step(noise_std=5.0, n_steps=8), ([1], [-1]), 1.0, ridge=0.4),
    pair("full batch, 12 steps, last iterate", step(noise_std=3.0, n_steps=12), ([1], [-1]), 1.0, ridge=1.0,
         leak=True),
    pair("full batch, add-remove", step(noise_std=2.0, n_steps=4), ([1], []), 1.0, ridge=0.4,
         adjacency="add-remove"),
    pair("full batch, every iterate released", step(noise_std=3.0, n_steps=3, release="trajectory"),
         ([1], [-1]), 1.0, ridge=0.4),
    pair("full batch, average of the iterates (claim by composition)",
         step(noise_std=3.0, n_steps=3, release="average"), ([1], [-1]), math.sqrt(6 / 7)),
    pair("cyclic, one epoch, last batch", step(noise_std=2.0, n_steps=2, batch_size=1, sampling="cyclic"),
         ([1, 1], [1, -1]), ROOT, runs=1400),
    pair("shuffle, one epoch of two batches", step(noise_std=2.0, n_steps=2, batch_size=1, sampling="shuffle"),
         ([1, 1], [1, -1]), ROOT, runs=1400),
    pair("without replacement, one step", step(noise_std=2.0, batch_size=1, sampling="without-replacement"),
         ([1, -1], [-1, -1]), 1.0, runs=1400),
    pair("Poisson, one step", step(noise_std=1.0, batch_size=1, sampling="poisson"), ([-1, 1], [-1]), 1.0,
         adjacency="add-remove", runs=1400),
    no_factor_two(),
    classes(),
)  # fmt: skip
