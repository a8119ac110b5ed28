"""One-shot mechanisms. A heavy ridge keeps theta near 0, where Huber losses of targets -1 and +1 are straight lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dplangevin.accounting.conversions import gdp_epsilon
from dplangevin.accounting.plan import Plan, Spec
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.moments.spec import SufficientStatisticsSpec
from dplangevin.mechanisms.perturbation.spec import (
    calibrate_objective_perturbation,
    calibrate_output_perturbation,
)
from dplangevin.problem import Clipped, DataBounds, Huber, Problem, Squared
from privacy._case import Case, Draw

PULL = 0.1


def flat_problem(adjacency: str, norm: float) -> Problem:
    return Problem(
        loss=Huber(transition=PULL),
        bounds=DataBounds(data_norm=norm, target=(-1, 1)),
        n=1,
        n_features=1,
        ridge=200.0 * norm**2,
        fit_intercept=False,
        adjacency=adjacency,  # type: ignore[arg-type]
    )


def runs_of(of: Problem, spec: Spec, delta: float) -> Draw:
    """TriedRelease values on the record (norm, 1) against (norm, -1), or against no record."""
    plan, norm = Plan(problem=of, spec=spec, delta=delta), of.bounds.data_norm
    other = ([[norm]], [-1.0]) if of.adjacency == "replace-one" else (np.zeros((0, 1)), np.zeros(0))
    tables = [ArrayDataset(*rows, of) for rows in (([[norm]], [1.0]), other)]

    def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        seed = None if getattr(spec, "secure", False) else rng
        return np.array([run_plan(plan, tables[side], seed).value[0] for _ in range(runs)])

    return draw


def pair(name: str, of: Problem, spec: Any, delta: float, shift: float, **more: Any) -> Case:
    """shift : how far the noiseless answer moves, in units in which the noise has scale `density_scale`."""
    weakened = more.pop("weakened", ("density_scale",))
    cover = more.pop("cover")
    claim = Plan(problem=of, spec=spec, delta=delta).guarantee
    scale = getattr(spec, weakened[-1])
    exact = gdp_epsilon(shift / scale, delta) if delta else shift / scale
    weak = replace(spec, **{part: getattr(spec, part) / 2 for part in weakened})
    word = "sensitivity without 2" if of.adjacency == "replace-one" else "noise / 2"
    return Case(
        name=name,
        configuration=f"{of.adjacency}, data_norm {of.bounds.data_norm:g}"
        + (", secure" if getattr(spec, "secure", False) else ""),
        covers=(cover,),
        claim=claim,
        honest=runs_of(of, spec, delta),
        broken_variants={word: runs_of(of, weak, delta)},
        exact_ratio=exact / claim.epsilon(delta),
        **more,
    )


def objective(adjacency: str, norm: float, delta: float, *, secure: bool = False) -> Case:
    of, records = flat_problem(adjacency, norm), 2 if adjacency == "replace-one" else 1
    options: dict[str, Any] = {"epsilon": 0.8} if delta == 0 else {"epsilon": 1.5, "delta": delta}
    spec = calibrate_objective_perturbation(of.constants, secure=secure, **options)
    name = "objective perturbation, " + ("pure" if delta == 0 else "Gaussian")
    more: dict[str, Any] = {"runs": 3000, "slow": True} if secure else {}
    return pair(name, of, spec, delta, records * PULL * norm, cover="ObjectivePerturbation", **more)


def output(adjacency: str, norm: float, delta: float, *, secure: bool = False) -> Case:
    of, records = flat_problem(adjacency, norm), 2 if adjacency == "replace-one" else 1
    options: dict[str, Any] = {"epsilon": 0.8} if delta == 0 else {"epsilon": 1.5, "delta": delta}
    spec = calibrate_output_perturbation(of.constants, secure=secure, **options)
    name = "output perturbation, " + ("pure" if delta == 0 else "Gaussian")
    more: dict[str, Any] = {"runs": 1600, "slow": True} if secure else {}
    return pair(name, of, spec, delta, records * PULL / (200 * norm), cover="OutputPerturbation", **more)


def moments(norm: float, *, secure: bool = False) -> Case:
    """A high floor makes theta the noisy cross moment over it; the worst replacement keeps the row and flips y."""
    of = replace(flat_problem("replace-one", norm), loss=Clipped(Squared(), 1.0), ridge=0.0)
    spec = SufficientStatisticsSpec(
        gram_noise_std=3 * norm**2, cross_noise_std=2 * norm, eigenvalue_floor=1e9, secure=secure
    )
    return pair("sufficient statistics", of, spec, 1e-2, 2 * norm, cover="SufficientStatistics",
                weakened=("gram_noise_std", "cross_noise_std"))  # fmt: skip


CASES = (
    objective("replace-one", 1.0, 0.0),
    objective("add-remove", 10.0, 0.0),
    objective("replace-one", 100.0, 1e-2),
    objective("add-remove", 1.0, 1e-2),
    objective("replace-one", 1.0, 0.0, secure=True),
    objective("add-remove", 10.0, 1e-2, secure=True),
    output("replace-one", 0.1, 0.0),
    output("add-remove", 100.0, 0.0),
    output("replace-one", 10.0, 1e-2),
    output("replace-one", 10.0, 1e-2, secure=True),
    output("replace-one", 10.0, 0.0, secure=True),
    moments(10.0),
    moments(10.0, secure=True),
)
