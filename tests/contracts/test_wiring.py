"""What is charged is what is drawn: laws over every mechanism that can be planned by name, and everything that spends.

Each run is replayed on neighbouring records (`dplangevin.audit.replay`): the noise that was really added covers how far
the exact values are apart within what was charged, and everything else that the caller gets is equal bit for bit.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from contracts._wiring import ChargeRecorder, SpendingCase, neighbours, quick_and_steady, spenders
from dplangevin import DPLogisticRegression
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian, Pure
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.audit import ReplayResult, replay
from dplangevin.audit.replay import NoiseTape, NoisyRelease, find_differences, trace_noise
from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._raw_table import PrivacyUnit, plan_raw_fit
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.learned_schema.mechanism import CellCounts, LearnedSchemaMechanism
from dplangevin.mechanisms.learned_schema.spec import LearnedSchemaSpec
from dplangevin.mechanisms.noisy_answers.mechanism import NoisySums
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumGroup
from dplangevin.mechanisms.rashomon_region import mechanism as region
from dplangevin.planner.fit_plan import Request, plan_request
from dplangevin.problem import DataBounds, Huber, Problem


@pytest.fixture(autouse=True)
def _quick_tuner(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_and_steady(monkeypatch)


SPENDERS = {spender.name: spender for spender in spenders()}


def replayed(
    spender: SpendingCase, pair: tuple[Any, Any], seed: int = 0
) -> tuple[ReplayResult, ChargeRecorder]:
    accounts: list[ChargeRecorder] = []

    def release(records: Any, rng: Any) -> Any:
        accounts.append(ChargeRecorder(spender.rows_per_person))
        return spender.call(records, rng, accounts[-1])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = replay(release, *pair, seed=seed, ignore=spender.ignore)
    assert accounts[0].charged == accounts[1].charged  # a charge is public
    return result, accounts[0]


def expanded(claim: Guarantee) -> list[float]:
    """mu^2 of each release, or epsilon, that was charged; the largest first."""
    costs = []
    for part in claim.parts:
        cost = (
            part.mu**2 if isinstance(part, Gaussian) else part.value if isinstance(part, Pure) else math.inf
        )
        costs += [cost] * part.count
    return sorted(costs, reverse=True)


ONE_SHOT = {  # the spec's fields that state the noise of each release, in the units of what is released
    "logistic, output perturbation, replace-one": ("density_scale",),
    "logistic, secure output perturbation, replace-one": ("density_scale",),
    "logistic, objective perturbation, replace-one": ("density_scale", "release_density_scale"),
    "logistic, gaussian objective, replace-one": ("density_scale", "release_density_scale"),
    "sufficient statistics, replace-one": ("gram_noise_std", "gram_noise_std", "cross_noise_std"),
    "weighted statistics, add-remove": ("gram_noise_std", "cross_noise_std"),
}
OFF_DIAGONAL = math.sqrt(0.5)  # exact moments release the diagonal and the entries off it one after the other


@pytest.mark.parametrize("name", ONE_SHOT)
def test_noise_is_drawn_at_the_scale_that_is_stated(name: str) -> None:
    """Where a bound is loose, noise of half the size would still cover a pair: so the scale itself is compared."""
    spender = SPENDERS[name]
    result, account = replayed(spender, neighbours(spender)[0])
    stated = [noise for field in ONE_SHOT[name] if (noise := getattr(account.plans[0].spec, field))]
    if len(stated) == 3:
        stated[1] *= OFF_DIAGONAL
    assert [release.noise_std.max() for release in result.releases] == pytest.approx(stated, rel=1e-12)


@pytest.mark.parametrize(
    ("noise", "secure"),
    [("gaussian", False), ("gaussian", True), ("geometric", False), ("geometric", True), ("gamma", False)],
)
def test_sums_and_learned_counts_have_the_noise_of_their_specs(noise: Any, secure: bool) -> None:
    """The scale of every group, in floating point and in whole numbers, as the recorded law has it."""
    groups = tuple(SumGroup(answers=size, unit=1.0, scale=scale) for size, scale in ((2, 3.0), (3, 40.0)))
    sums = NoisySumsSpec(groups=groups, noise=noise, adjacency="replace-one", secure=secure)
    exact = [np.zeros(2), np.zeros(3)]
    certified = CertifiedSpec(spec=sums, delta=1e-3)
    result = replay(
        lambda _, rng: NoisySums().run(certified, lambda: exact, None if secure else rng).values, None, None
    )
    assert [drawn_scale(release) for release in result.releases] == pytest.approx([3.0, 40.0], rel=1e-9)
    if noise == "gamma" or secure:
        return
    learned = LearnedSchemaSpec(
        n_numbers=1, n_cells=4, n_categories=0, noise=noise, scale=25.0, adjacency="replace-one"
    )
    counts = CellCounts(cells=np.zeros((1, 4)), labels=())
    certified = CertifiedSpec(spec=learned, delta=1e-3)
    result = replay(
        lambda _, rng: LearnedSchemaMechanism().run(certified, lambda: counts, rng).cells, None, None
    )
    assert [drawn_scale(release) for release in result.releases] == pytest.approx([25.0], rel=1e-9)


INTERVALS = [name for name in SPENDERS if "intervals" in name]


def sums_behind_intervals(plan: Any) -> list[tuple[int, float, float]]:
    """Entries and noise (at least, at most) of the releases behind intervals: sums of their own, or of a descent.

    Those of an exact descent are in whole steps: the curvature in squares of 2^19 to 2^20, squared slopes in 2^20.
    """
    if hasattr(plan, "curvature"):
        return [(group.answers, group.scale, group.scale) for group in plan.curvature.spec.groups]
    spec, size, n = plan.spec, plan.problem.n_columns, plan.problem.n
    matrix, scalar = spec.curvature_noise_std, spec.slope_noise_std
    if spec.secure:
        matrices = [(size * (size + 1) // 2, matrix * n * 2.0**38, matrix * n * 2.0**40)]
        scalar *= n * 2.0**20
    else:
        matrices = [(size * size, matrix, matrix)]
    return matrices + ([(2, scalar, scalar)] if scalar else [])


@pytest.mark.parametrize("name", INTERVALS)
def test_every_sum_behind_intervals_has_its_noise(name: str) -> None:
    """Group by group: the budget of a matrix would otherwise hide that a scalar beside it has none."""
    spender = SPENDERS[name]
    result, account = replayed(spender, neighbours(spender)[0])
    stated = sums_behind_intervals(account.plans[0])
    sums = result.releases[-len(stated) :]
    assert [release.exact.size for release in sums] == [size for size, _, _ in stated]
    for release, (_, low, high) in zip(sums, stated, strict=True):
        assert low * (1 - 1e-6) <= drawn_scale(release) <= high * (1 + 1e-6)


@pytest.mark.parametrize("name", [name for name in INTERVALS if name.startswith(("poisson", "hinge"))])
def test_every_sum_behind_intervals_reaches_the_caller(name: str) -> None:
    """Outputs that do not depend on a sum, or neighbours that agree in it, would not show it without its noise."""
    spender = SPENDERS[name]
    seen: set[int] = set()
    for pair in neighbours(spender):
        result, account = replayed(spender, pair)
        sums = range(-len(sums_behind_intervals(account.plans[0])), 0)
        for place in set(sums) - seen:
            outputs = [
                run_with_release(spender, pair[0], result.releases, place, exact)
                for exact in (result.releases[place].exact, result.releases[place].neighbor_exact)
            ]
            if find_differences(*outputs, ignore=spender.ignore):
                seen.add(place)
    assert seen == set(sums)


def run_with_release(
    spender: SpendingCase, records: Any, releases: tuple[NoisyRelease, ...], place: int, released: Any
) -> Any:
    """What the caller gets from a run whose releases are these, with another one in this place."""
    changed = [replace(release) for release in releases]
    changed[place].released = released
    with trace_noise(NoiseTape(releases=changed, position=0), 0) as rng, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spender.call(records, rng, ChargeRecorder(spender.rows_per_person))


def drawn_scale(release: NoisyRelease) -> float:
    """The scale of the noise that was drawn; a difference of two geometric numbers has two draws an entry."""
    return float(release.noise_std.max()) / (2**0.5 if release.law == "geometric" else 1.0)


def test_records_are_clipped_where_they_are_kept() -> None:
    bounds = DataBounds(data_norm=2.0, target=(-1.0, 3.0), weight_bound=1.5)
    problem = Problem(loss=Huber(transition=0.5), bounds=bounds, n=3, n_features=2, fit_intercept=False)
    rows = np.array([[30.0, 40.0], [0.1, 0.0], [-1e300, 1e300]])
    data = ArrayDataset(rows, np.array([-99.0, 0.5, 99.0]), problem, np.array([9.0, 1.0, -9.0]))
    (block,) = data.blocks()
    assert np.linalg.norm(block.rows, axis=1).max() <= 2.0 * (1 + 1e-12)
    np.testing.assert_allclose(block.rows[:2], [[1.2, 1.6], [0.1, 0.0]])
    np.testing.assert_array_equal(block.labels, [-1.0, 0.5, 3.0])
    np.testing.assert_array_equal(block.weights, [1.5, 1.0, 0.0])


@pytest.mark.parametrize("secure", [None, False])
@pytest.mark.parametrize("mechanism", ["objective-perturbation", "whitened-objective"])
def test_the_ridge_that_was_counted_on_is_in_the_objective(mechanism: str, secure: bool | None) -> None:
    """At the released point the tilt is minus the gradient of the records and of n times the stated ridge."""
    seen: list[tuple[Any, Any]] = []

    def record(objective: Any, *arguments: Any) -> Any:
        seen.append((objective, *arguments[:1]) if arguments else (objective, None))
        return np.zeros(3)

    spender = SPENDERS["logistic, objective perturbation, replace-one"]
    records = neighbours(spender)[0][0]
    model = DPLogisticRegression(
        data_norm=8.0, classes=[0, 1], epsilon=30.0, delta=0.0, mechanism=mechanism, secure=secure
    )
    home = "perturbation" if mechanism == "objective-perturbation" else "whitened_objective"
    solver = "minimize_certified" if secure is False else "release_minimizer"
    with mock.patch(f"dplangevin.mechanisms.{home}.mechanism.{solver}", record):
        model.fit(records.X, records.y)
    plan = model.plan_.plan
    ridge = plan.problem.ridge if home == "perturbation" else plan.spec.ridge
    assert ridge > 0
    n = plan.problem.n if secure is False else Fraction(plan.problem.n)
    assert [objective.ridge for objective, _ in seen] == [n * (ridge if secure is False else Fraction(ridge))]
    assert [tolerance for _, tolerance in seen] == [plan.spec.tolerance if secure is False else None]


def test_a_learned_plan_runs_only_within_what_was_charged() -> None:
    request = Request(
        model="logistic", n=500, n_features=2, epsilon=1.0, delta=1e-5, adjacency="replace-one", data_norm=1.0,
        fit_intercept=True, radius=None, alpha=None, mechanism="auto", theorem=None, weight_bound=1.0,
    )  # fmt: skip
    people = PrivacyUnit(max_rows=1, adjacency="replace-one", chooses_rows=False)
    plan = plan_raw_fit(request, None, people, 1.0)
    assert plan.may_run(plan.fit_plan)
    for changes, allowed in (({"epsilon": 0.5}, True), ({"epsilon": 1.5}, False), ({"delta": 0.0}, False)):
        assert plan.may_run(plan_request(replace(request, **changes))) == allowed


@pytest.mark.parametrize("name", SPENDERS)
def test_noise_covers_the_charge(name: str) -> None:
    """For each pair: within the charge in all, and part by part; every part that is charged has its release."""
    spender = SPENDERS[name]
    attained = []
    for seed, pair in enumerate(neighbours(spender)):
        result, account = replayed(spender, pair, seed)
        claim = spender.claim(account, result.releases)
        found = replace(result, guarantee=claim)
        assert found.refutation is None
        attained.append(found.attained_fraction)
        parts, costs = expanded(claim), sorted((release.cost for release in result.releases), reverse=True)
        # a second count of the classes may take the place of many steps, and then costs no more than they do
        assert len(costs) >= len(parts) or sum(costs) <= sum(parts) * (1 + 1e-8)
        if len(costs) == len(parts):
            assert all(cost <= part * (1 + 1e-8) for cost, part in zip(costs, parts, strict=True))
        assert len(account.charged) == len(account.committed) == 1
    assert max(attained) >= spender.least, attained


@pytest.mark.parametrize("name", SPENDERS)
def test_what_is_stated_is_what_the_ledger_has(name: str, tmp_path: Path) -> None:
    """One entry in the books, part by part what the caller is told, with the hash of what was released."""
    spender = SPENDERS[name]
    rows, adjacency = spender.rows_per_person, spender.adjacency
    budget = Ledger.create(f"sqlite:///{tmp_path}/ledger.db").declare(
        "people", epsilon=1e4, delta=0.5, adjacency=adjacency, max_rows_per_person=rows
    )
    recorder = ChargeRecorder(rows)
    records = neighbours(spender)[0][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = spender.call(records, 3, budget)
        spender.call(records, 3, recorder)
    (entry,), (charged,) = budget.history(), recorder.charged
    assert entry.release_hash is not None
    if "secure" not in name:
        assert [entry.release_hash] == recorder.committed
    epsilon, delta = spender.asked
    assert entry.guarantee.epsilon(delta) <= epsilon * (1 + 1e-12)
    for stated in (charged, stated_guarantee(output) or charged):
        assert stated.parts == entry.guarantee.parts
        assert stated.extra_delta == entry.guarantee.extra_delta
        assert stated.adjacency == entry.guarantee.adjacency == adjacency
        assert stated.rows_per_person == entry.guarantee.rows_per_person == rows
        assert stated.arithmetic == entry.guarantee.arithmetic


@pytest.mark.parametrize("name", [name for name in SPENDERS if name.endswith("replace-one")])
def test_a_budget_for_other_people_is_not_charged(name: str) -> None:
    """What the caller is told and what the ledger counts are about a person with the same number of rows."""
    spender = SPENDERS[name]
    account = ChargeRecorder(spender.rows_per_person + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InvalidParameter, match="max_rows_per_person"):
            spender.call(neighbours(spender)[0][0], 3, account)
    assert not account.plans


def test_a_minimum_behind_a_release_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gap of a region is a maximum over models up to its tolerance, or its sensitivity would not be 1.

    The bound of accelerated descent, 2 L rho^2 / (steps + 1)^2, in the unit of the release.
    """
    asked: list[tuple[Any, Any, int]] = []
    minimise = region.minimize_within_radius

    def watched(data: Any, plan: Any, centre: Any, steps: int) -> Any:
        asked.append((plan, centre, steps))
        return minimise(data, plan, centre, steps)

    monkeypatch.setattr(region, "minimize_within_radius", watched)
    spender = SPENDERS["whole region, replace-one"]
    replayed(spender, neighbours(spender)[0])
    assert asked
    for plan, centre, steps in asked:
        left = 2 * plan.objective.smoothness * plan.radius**2 / (steps + 1) ** 2
        assert left <= region.GAP_TOLERANCE * region._max_loss_difference(plan, centre) / plan.objective.n


def stated_guarantee(output: Any) -> Guarantee | None:
    """What the caller is told."""
    for name in ("privacy_", "guarantee"):
        if isinstance(getattr(output, name, None), Guarantee):
            return getattr(output, name)
    return (
        next((value for value in output if isinstance(value, Guarantee)), None)
        if isinstance(output, tuple)
        else None
    )
