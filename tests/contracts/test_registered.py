"""Every mechanism in the registry, by name: a new one is covered by being listed.

What can be planned by name is planned for several losses, adjacencies and norms and replayed on neighbouring records
(`assert_noise_covers`). Every other kind of run must have run in a spender of `_wiring`, or draws from a law of its
own, which no sum of noise and something exact shows: DRAWN names the tests of those laws.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import fields, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from contracts._theorem_cases import CASES
from contracts._wiring import ChargeRecorder, neighbours, quick_and_steady, spenders
from dplangevin import plan_fit
from dplangevin.accounting.parts import SampledGaussian
from dplangevin.accounting.plan import Plan, Spec, Theorem
from dplangevin.accounting.registry import (
    automatic_mechanisms,
    default_mechanism,
    mechanisms_with,
    plannable_mechanisms,
    planner_capabilities,
    planner_for,
    spec_types,
    theorems_for,
)
from dplangevin.audit import replay
from dplangevin.audit.replay import TracingGenerator
from dplangevin.data import ArrayDataset
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.mechanisms.mechanism import Mechanism, run_plan
from dplangevin.mechanisms.noisy_gradient import mechanism as noisy_gradient
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem import Ball, Clipped, DataBounds, Logistic, Problem
from dplangevin.sampling import exact_noise

N, P = 12, 2
MODELS: dict[str, dict[str, Any]] = {
    "logistic": {},
    "ridge": {"target_bounds": (-1.0, 1.0)},
    "multinomial": {"n_classes": 3},
    "poisson": {"target_bounds": (0.0, 5.0)},
    "svc": {},
    "quantile": {"target_bounds": (-1.0, 1.0), "quantile": 0.3},
    "huber": {"target_bounds": (-1.0, 1.0)},
}
_DRAWS, _RASHOMON = (
    "tests/unit/mechanisms/exponential/test_draws.py",
    "tests/unit/mechanisms/rashomon/test_rashomon.py",
)
DRAWN = {
    "ExponentialSpec": _DRAWS,
    "GibbsSpec": _DRAWS,
    "IteratedExponentialSpec": _DRAWS,
    "RashomonSpec": _RASHOMON,
    "RashomonChainSpec": _RASHOMON,
    "UnderdampedSpec": "tests/unit/mechanisms/underdamped/test_underdamped.py",
    "DiffusionSpec": "tests/unit/mechanisms/noisy_gradient/test_langevin_theory.py",
    "NoisyMaxSpec": "tests/unit/mechanisms/noisy_answers/test_secure_answers.py",
    "MaxNormSpec": "tests/unit/mechanisms/noisy_answers/test_largest_norm.py",
    "CorrectedAnswersSpec": "tests/unit/mechanisms/noisy_answers/test_sparse_vector.py",
}
"""Kinds of run whose release is a draw (of a model, an index, a norm), or that are only accounted: their tests."""
SLOW_MECHANISMS = ("noisy-sgd",)
"""Planned by a long search: their walk is replayed for fixed specs, the search in the slow tests."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_and_steady(monkeypatch)


def planned(mechanism: str, model: str, adjacency: str, delta: float, norm: float) -> Plan | None:
    """The plan of a fit plan; None for what it refuses."""
    stated: dict[str, Any] = {"n": N, "n_features": P, "epsilon": 3.0, "delta": delta, "adjacency": adjacency}
    try:
        return plan_fit(
            model=model, mechanism=mechanism, data_norm=norm, fit_intercept=True, weight_bound=2.0, **stated,
            **MODELS[model],
        ).plan  # fmt: skip
    except DplangevinError:
        return None


def neighbouring(plan: Plan, norm: float, turned: bool) -> tuple[ArrayDataset, ArrayDataset]:
    """The last record is far too long and heavy; in its place one of the opposite target, turned or not, or none.

    It is the last one because a batch is drawn by position: without the last record all others keep their draws, so
    that the two runs have the same batches but for that record.
    """
    rng, of = np.random.default_rng(0), plan.problem
    low, high = of.bounds.label_range
    X = rng.standard_normal((N, P)) * norm
    y = rng.integers(0, int(high) + 1, N).astype(float) if of.bounds.classes else rng.uniform(low, high, N)
    weights = np.full(N, 1.5)
    X[-1], y[-1], weights[-1] = (50 * norm, 0.0), low, 9.0
    others = X.copy(), y.copy(), weights.copy()
    others[0][-1], others[1][-1] = (0.0, -50 * norm) if turned else X[-1], high
    if of.adjacency == "add-remove":
        others = others[0][:-1], others[1][:-1], others[2][:-1]
    return ArrayDataset(X, y, of, weights), ArrayDataset(*others[:2], of, others[2])


@contextmanager
def equal_batches() -> Iterator[None]:
    """Exact runs without a seed draw the same batches: replays compare noise, and a batch is no release."""
    steps = count()
    with ExitStack() as stack:
        for draw in (exact_noise.sample_poisson_batch, exact_noise.sample_subset):
            same = partial(
                lambda draw, rows, size, _: draw(rows, size, np.random.default_rng(next(steps)).bytes), draw
            )
            stack.enter_context(mock.patch.object(noisy_gradient, draw.__name__, same))
        yield


def assert_noise_covers(plan: Plan, norm: float, turned: bool = False) -> float:
    """Replay a plan: it is not refuted.

    A sampled run is compared step by step: given its batches a step is a Gaussian mechanism, whose noise multiplier
    the guarantee states; the rate of sampling amplifies the guarantee and lessens no noise.

    Returns the largest fraction of the claim that the pair attains (of a step's mu, for sampled runs).
    """
    claim = plan.guarantee.composition or plan.guarantee
    sampled = [part for part in claim.parts if isinstance(part, SampledGaussian)]
    seedless = plan.guarantee.arithmetic == "discrete-grid"

    def release(data: Any, rng: Any) -> Any:
        with equal_batches() if seedless else nullcontext():
            return run_plan(plan, data, None if seedless else rng)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pair = neighbouring(plan, norm, turned)
        result = replay(release, *pair, guarantee=None if sampled else claim)
    assert result.refutation is None
    assert result.releases
    if not sampled:
        return result.attained_fraction
    assert len(sampled) == len(claim.parts)
    limits = sorted(1 / part.noise_multiplier**2 for part in sampled for _ in range(part.count))
    costs = sorted(release.cost for release in result.releases)
    fractions = [math.sqrt(cost / limit) for cost, limit in zip(costs, limits, strict=True)]
    assert max(fractions) <= 1 + 1e-9, f"a step attains {max(fractions):.6g} of the mu that is charged for it"
    return max(fractions)


def assert_wired(mechanism: str, models: Any = MODELS, norms: tuple[float, ...] = (8.0,)) -> int:
    """Every plan of a fit plan that these statements give; how many there were."""
    shares = []
    for model in models:
        for adjacency in ("replace-one", "add-remove"):
            for delta in (1e-3, 0.0):
                for norm in norms:
                    plan = planned(mechanism, model, adjacency, delta, norm)
                    if plan is not None and type(plan.spec).__name__ not in DRAWN:
                        turns = (False, True) if len(norms) > 1 else (False,)
                        shares += [assert_noise_covers(plan, norm, turned) for turned in turns]
    assert not shares or max(shares) > 0.05, shares
    return len(shares)


@pytest.mark.parametrize(
    "mechanism", [name for name in plannable_mechanisms() if name not in SLOW_MECHANISMS]
)
def test_noise_covers_the_guarantee(mechanism: str) -> None:
    cells = assert_wired(mechanism, ("svc", "ridge"))
    kinds = {
        type(plan.spec).__name__
        for model in ("svc", "ridge")
        if (plan := planned(mechanism, model, "replace-one", 1e-3, 8.0)) is not None
    }
    # what cannot be asked for by its name is what secure=True runs: a spender
    assert cells or kinds & set(DRAWN) or mechanism.endswith("-secure")


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", plannable_mechanisms())
def test_noise_covers_the_guarantee_for_every_loss_and_norm(mechanism: str) -> None:
    assert_wired(mechanism, MODELS if mechanism not in SLOW_MECHANISMS else ("logistic",), (1 / 8, 8.0))


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement", "shuffle", "cyclic"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_a_batch_has_the_noise_of_its_step(
    sampling: str, adjacency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pair attains nearly all of a step's charge, so that half the noise is refuted."""
    of = Problem(
        loss=Clipped(Logistic(), 0.4), bounds=DataBounds(data_norm=8.0, classes=2, weight_bound=2.0), n=N,
        n_features=P, ridge=0.05, constraint=Ball(1.0), fit_intercept=True, adjacency=adjacency,
    )  # fmt: skip
    spec = NoisyGradientSpec(
        step_size=1e-5, noise_std=60.0, n_steps=9, batch_size=4, sampling=sampling, release="trajectory"
    )
    try:
        plan = Plan(problem=of, spec=spec, delta=1e-3)
    except DplangevinError:
        pytest.skip("no theorem for this sampling and adjacency")
    assert assert_noise_covers(plan, 8.0) > 0.9
    drawn = TracingGenerator.standard_normal
    monkeypatch.setattr(TracingGenerator, "standard_normal", lambda self, size: 0.5 * drawn(self, size))
    with pytest.raises(AssertionError, match="attain"):
        assert_noise_covers(plan, 8.0)


def test_every_kind_of_run_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, by a spender that runs it, or by the tests of its law."""
    ran: set[str] = set()
    execute = Mechanism.run

    def watched(self: Any, plan: Any, *arguments: Any, **options: Any) -> Any:
        ran.add(type(plan.spec).__name__)
        return execute(self, plan, *arguments, **options)

    monkeypatch.setattr(Mechanism, "run", watched)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for spender in spenders():
            account = ChargeRecorder(spender.rows_per_person)
            if spender.adjacency == "replace-one":
                spender.call(neighbours(spender)[0][0], 1, account)
                ran |= {type(plan.spec).__name__ for plan in account.plans if hasattr(plan, "spec")}
    root = Path(__file__).resolve().parents[2]
    assert all((root / file).exists() for file in DRAWN.values())
    assert {kind.__name__ for kind in spec_types()} - set(DRAWN) <= ran
    assert all(callable(planner_for(name)) for name in plannable_mechanisms())


@pytest.mark.parametrize("kind", spec_types(), ids=lambda kind: kind.__name__)
def test_capabilities_say_what_theorems_and_specs_say(kind: type[Spec]) -> None:
    able, theorems = kind.capabilities, theorems_for(kind)
    beyond = [
        name
        for name, each in theorems.items()
        if each.holds_beyond_n or type(each).covers_more_rows is not Theorem.covers_more_rows
    ]
    assert able.holds_beyond_n == bool(beyond)
    assert not able.secure or any(theorem.holds_for_rounded_noise for theorem in theorems.values())
    for name, theorem in theorems.items():
        case = CASES[kind, name]
        if not able.pure:
            assert math.isinf(theorem.certify(case.constants, case.spec).epsilon(0.0))
        if not able.secure and "secure" in {each.name for each in fields(case.spec) if each.init}:
            with pytest.raises(InvalidParameter, match="secure"):
                replace(case.spec, secure=True)


def test_one_fit_plan_is_the_default() -> None:
    assert default_mechanism() in [name for name, _ in automatic_mechanisms()]
    assert not planner_capabilities(default_mechanism()).pure
    assert default_mechanism() in mechanisms_with("secure")
