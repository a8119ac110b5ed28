"""Audit pairs of public mirror descent, public data fixed: the honest run stands, a quarter of its noise does not.

One private record whose target is far away, so that its slope is the clip at every step: the last iterate of one step
attains the claim, and after T steps the mean shift, T times that of one step, against noise sqrt(T) times that of one
attains it too. Confidence 0.9999 for each honest audit (seeds are fixed): a false alarm has probability below 1e-3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dplangevin.accounting.plan import Plan
from dplangevin.audit import many_run_attack
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mirror_descent.mechanism import PublicMirrorDescent
from dplangevin.mechanisms.mirror_descent.mirror_map import public_mirror_map
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec
from dplangevin.problem import Clipped, DataBounds, Problem, Squared

RUNS, FAR, DELTA = 2000, 1e6, 1e-2
PUBLIC = np.random.default_rng(9)
X_PUBLIC = PUBLIC.standard_normal((30, 2)) * (0.2, 0.5)
Y_PUBLIC = PUBLIC.standard_normal(30)

CASES: dict[str, tuple[dict[str, Any], str, list[int], list[int]]] = {
    "mirror, four steps": ({"mode": "mirror"}, "replace-one", [1], [-1]),
    "mirror, add-remove": ({"mode": "mirror"}, "add-remove", [1], []),
    "warm start": ({"mode": "gradient"}, "replace-one", [1], [-1]),
    "mix": ({"mode": "mix", "mixing": 0.999999}, "replace-one", [1], [-1]),
}


def scores(plan: Plan, pulls: list[int], seed: int) -> np.ndarray:
    """The released coefficient along the record, mapped back to the metric in which the noise is isotropic."""
    mirror = public_mirror_map(X_PUBLIC, Y_PUBLIC, plan.problem)
    rows = ArrayDataset(np.tile([0.6, 0.8], (len(pulls), 1)), FAR * np.array(pulls, float), plan.problem)
    rng = np.random.default_rng(seed)
    values = np.array([PublicMirrorDescent(mirror).run(plan, rows, rng).value for _ in range(RUNS)])
    if plan.spec.mode == "mirror":  # type: ignore[attr-defined]
        values = mirror.gradient(values.T).T
    return values @ np.array([0.6, 0.8])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("mirror, four steps", "warm start", "mix")))
        for name in CASES
    ],
)
def test_audit_pair(name: str) -> None:
    options, adjacency, first, second = CASES[name]
    of = Problem(
        loss=Clipped(Squared(), 1.0), bounds=DataBounds(data_norm=1.0, target=(-FAR, FAR)), n=1, n_features=2,
        fit_intercept=False, adjacency=adjacency,  # type: ignore[arg-type]
    )  # fmt: skip
    spec = PublicMirrorSpec(step_size=0.3, noise_std=2.0, n_steps=4, **options)
    honest = Plan(problem=of, spec=spec, delta=DELTA)
    weak = Plan(problem=of, spec=replace(spec, noise_std=0.5), delta=DELTA)
    claim = honest.guarantee
    fair = many_run_attack(
        scores(honest, first, 1), scores(honest, second, 2), claim, delta=DELTA, confidence=0.9999
    )
    assert not fair.refuted
    assert claim.mu is not None
    assert fair.mu_lower > 0.7 * claim.mu  # the attack has power: the claim is attained
    foul = many_run_attack(
        scores(weak, first, 3), scores(weak, second, 4), claim, delta=DELTA, confidence=0.9999
    )
    assert foul.refuted
