"""Audit pairs of the draws: the honest run is not refuted, the run at four times the inverse temperature is.

One record pulls theta along a straight line wherever it can be, so the laws of neighbours are known in closed form.
Confidence 0.9999 per audit and fixed seeds: the honest audits together raise a false alarm below 1e-3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import Plan
from dplangevin.audit import many_run_attack
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.exponential.mechanism import sample_gibbs
from dplangevin.mechanisms.exponential.spec import (
    DrawSpec,
    ExponentialSpec,
    GibbsSpec,
    IteratedExponentialSpec,
)
from dplangevin.mechanisms.exponential.tiers import plan_certified_chain, plan_pure_chain
from dplangevin.mechanisms.langevin.spec import LangevinSpec
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.problem import Ball, DataBounds, Huber, Problem, WholeSpace

PULL = 0.1
RUNS = 3000


def problem(p: int, radius: float | None, ridge: float = 0.0) -> Problem:
    """Targets of size 1e3 with a small transition: the loss is the straight line -+ PULL theta on the whole set."""
    return Problem(
        loss=Huber(transition=PULL), bounds=DataBounds(data_norm=1.0, target=(-1e3, 1e3)), n=1, n_features=p,
        constraint=WholeSpace() if radius is None else Ball(radius), ridge=ridge, fit_intercept=False,
    )  # fmt: skip


def data(of: Problem, sign: float) -> ArrayDataset:
    return ArrayDataset([[1.0, *([0.0] * (of.n_features - 1))]], [sign * 1e3], of)


def scores(of: Problem, spec: Any, sign: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if isinstance(spec, DrawSpec):  # many independent draws at once, by the code of a single one
        return sample_gibbs(spec, data(of, sign), rng, size=RUNS)[0]
    plan, records = Plan(problem=of, spec=spec, delta=1e-6), data(of, sign)
    return np.array([run_plan(plan, records, rng).value[0] for _ in range(RUNS // 5)])


def verdicts(of: Problem, spec: Any, weak: Any, claim: Guarantee, delta: float) -> tuple[bool, bool]:
    found = []
    for tried in (spec, weak):
        first, second = scores(of, tried, 1.0, 1), scores(of, tried, -1.0, 2)
        found.append(many_run_attack(first, second, claim, delta=delta, confidence=0.9999).refuted)
    return found[0], found[1]


def warmer(spec: Any) -> Any:
    return replace(spec, inverse_temperature=4 * spec.inverse_temperature)


def chain(of: Problem, beta: float, tier: str) -> dict[str, Any]:
    found = (plan_pure_chain if tier == "pure" else plan_certified_chain)(of.constants, beta, 1e-5)
    return {"tier": tier, "step_size": found.step_size, "n_steps": found.n_steps}


@pytest.mark.parametrize("tier", ["exact", "pure", "certified"])
def test_exponential_mechanism(tier):
    """exp(+-beta PULL theta) on the ball: half the claim is attained, twice the claim at four times beta."""
    of = problem(1 if tier == "exact" else 2, 1.0)
    beta = 2.0 / (2 * PULL * 2.0)  # epsilon = 2
    fields = {} if tier == "exact" else chain(of, beta, tier)
    spec = ExponentialSpec(inverse_temperature=beta, **fields)
    claim = Plan(problem=of, spec=spec, delta=1e-3, theorem="exponential-mechanism").guarantee
    assert claim.epsilon(1e-3) == pytest.approx(2.0, rel=0.05)
    weak = warmer(warmer(spec)) if tier != "exact" else warmer(spec)
    assert verdicts(of, spec, weak, claim, 1e-3) == (False, True)


def test_exponential_mechanism_on_a_grid():
    of = problem(1, 1.0)
    spec = ExponentialSpec(inverse_temperature=2.0 / (4 * PULL), grid=101)
    claim = Plan(problem=of, spec=spec, delta=0.0).guarantee
    assert verdicts(of, spec, warmer(spec), claim, 0.0) == (False, True)


@pytest.mark.parametrize("tier", ["exact", "certified"])
def test_gibbs_mechanism(tier):
    """N(+-PULL / m, 1 / (beta m)): mu = Delta sqrt(beta / m), attained exactly."""
    of = problem(1, 8.0, ridge=0.1) if tier == "exact" else problem(2, None, ridge=0.1)
    beta = 0.1 * (1.0 / (2 * PULL)) ** 2  # mu = 1
    fields = {} if tier == "exact" else chain(of, beta, "certified")
    spec = GibbsSpec(inverse_temperature=beta, **fields)
    claim = Plan(problem=of, spec=spec, delta=1e-2, theorem="strongly-convex-gibbs").guarantee
    assert claim.delta(1.0) == pytest.approx(0.1269, abs=2e-4)  # mu = 1
    assert verdicts(of, spec, warmer(spec), claim, 1e-2) == (False, True)


@pytest.mark.slow
def test_iterated_mechanism():
    of = problem(1, 1.0, ridge=0.05)
    betas = (1.0 / (4 * PULL), 2.0 / (2 * PULL))
    draws = tuple(ExponentialSpec(inverse_temperature=beta) for beta in betas)
    spec = IteratedExponentialSpec(draws=draws, radii=(0.5,))
    claim = Plan(problem=of, spec=spec, delta=0.0).guarantee
    weak = replace(
        spec, draws=tuple(replace(d, inverse_temperature=6 * d.inverse_temperature) for d in draws)
    )
    assert verdicts(of, spec, weak, claim, 0.0) == (False, True)


@pytest.mark.parametrize("release", ["last-iterate", "average"])
def test_langevin_mechanism(release):
    """AR(1): the last-iterate bound is exact; noise / 4 at the same learning rate falls."""
    of = problem(1, None, ridge=0.5)
    spec = LangevinSpec(inverse_temperature=10.0, time_step=0.05, n_steps=6, release=release)
    claim = Plan(problem=of, spec=spec, delta=1e-2).guarantee
    weak = replace(spec.to_descent(), noise_std=spec.noise_std / 4)
    assert verdicts(of, spec, weak, claim, 1e-2) == (False, True)


def test_last_iterate_claim_is_attained():
    """Exact mu of the AR(1) chain: 2 shift / standard deviation equals the claim."""
    of = problem(1, None, ridge=0.5)
    spec = LangevinSpec(inverse_temperature=10.0, time_step=0.05, n_steps=6)
    claim = Plan(problem=of, spec=spec, delta=1e-2).guarantee
    keep = (1 - 0.5 * 0.5) ** np.arange(6)
    shift, spread = 2 * 0.5 * PULL * keep.sum(), np.sqrt(2 * 0.05 * (keep**2).sum())
    assert claim.mu == pytest.approx(shift / spread, rel=1e-6)
