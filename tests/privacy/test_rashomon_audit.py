"""Audit pairs of Rashomon draws, K = 5: the honest run is not refuted, one that forgets to split the budget is.

Draws are independent given the data, so blocks of five draws of one long run are runs of five models. The losses are
straight lines that pull one way or the other, and five draws reach half of their claim (the two data sets are mirror
images). Confidence 0.9999 per audit: a false alarm has probability below 1e-3 over the honest audits; seeds are fixed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dplangevin.accounting.plan import Plan
from dplangevin.audit import many_run_attack
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.rashomon.mechanism import _run_chains, _sample_draws
from dplangevin.mechanisms.rashomon.spec import RashomonChainSpec, RashomonSpec
from dplangevin.problem import Ball, DataBounds, Huber, Problem
from dplangevin.rashomon import plan_rashomon

MODELS, RUNS, EPSILON = 5, 4000, 4.0
PULL = 0.1


def problem() -> Problem:
    """One record whose target -1 or +1 pulls with slope +-0.1 everywhere in the ball."""
    return Problem(
        loss=Huber(transition=PULL),
        bounds=DataBounds(data_norm=1.0, target=(-1, 1)),
        n=1,
        n_features=1,
        constraint=Ball(0.5),
        ridge=1e-3,
        fit_intercept=False,
    )


def scores(spec: RashomonSpec, label: float, seed: int) -> np.ndarray:
    data = ArrayDataset([[1.0]], [label], problem())
    theta = _sample_draws(replace(spec, n_models=MODELS * RUNS), data, np.random.default_rng(seed))
    return theta.reshape(RUNS, MODELS).sum(axis=1)


@pytest.mark.parametrize("tier", ["exact", "pure"])
def test_five_draws_keep_their_guarantee_and_an_unsplit_budget_does_not(tier: str) -> None:
    fit_plan = plan_rashomon(problem(), threshold=0.005, n_models=MODELS, epsilon=EPSILON, tier=tier)
    honest, claim = fit_plan.spec, fit_plan.plan.guarantee
    assert isinstance(honest, RashomonSpec)
    assert claim.epsilon(0.0) == pytest.approx(EPSILON, rel=0.01)
    first, second = scores(honest, 1.0, 1), scores(honest, -1.0, 2)
    found = many_run_attack(first, second, claim, delta=0.0, confidence=0.9999)
    assert not found.refuted
    assert 0.3 < found.epsilon_lower < EPSILON  # the sum of five draws sees part of what they hold
    unsplit = replace(honest, inverse_temperature=MODELS * honest.inverse_temperature)
    assert Plan(problem=problem(), spec=unsplit, delta=0.0).guarantee.epsilon() > 4.5 * EPSILON
    first, second = scores(unsplit, 1.0, 3), scores(unsplit, -1.0, 4)
    broken = many_run_attack(first, second, claim, delta=0.0, confidence=0.9999)
    assert broken.refuted
    assert broken.epsilon_lower > 3 * found.epsilon_lower


def chain_scores(spec: RashomonChainSpec, label: float, seed: int) -> np.ndarray:
    """Sum of the last points of five chains, for each run."""
    data = ArrayDataset([[1.0]], [label], problem())
    theta = _run_chains(None, replace(spec, n_models=MODELS * RUNS), data, np.random.default_rng(seed))
    return theta.last.reshape(RUNS, MODELS).sum(axis=1)


def test_five_chains_keep_their_guarantee_and_an_eighth_of_the_noise_does_not() -> None:
    fit_plan = plan_rashomon(
        problem(), threshold=0.005, n_models=MODELS, epsilon=EPSILON, delta=1e-5, route="ramp", tier="process",
        ramp=0.05, n_steps=12,
    )  # fmt: skip
    honest, claim = fit_plan.spec, fit_plan.plan.guarantee
    assert isinstance(honest, RashomonChainSpec)
    assert claim.epsilon(1e-5) <= EPSILON
    found = many_run_attack(
        chain_scores(honest, 1.0, 5), chain_scores(honest, -1.0, 6), claim, delta=1e-5, confidence=0.9999
    )
    assert not found.refuted
    # the same learning rate with noise / 8: beta times 64, eta over 64. A quarter of the noise is NOT refuted by this
    # pair: the ramp's sensitivity Delta + L_F osc / tau is far above what these two data sets attain.
    weak = replace(
        honest, inverse_temperature=64 * honest.inverse_temperature, step_size=honest.step_size / 64
    )
    broken = many_run_attack(
        chain_scores(weak, 1.0, 7), chain_scores(weak, -1.0, 8), claim, delta=1e-5, confidence=0.9999
    )
    assert broken.refuted
