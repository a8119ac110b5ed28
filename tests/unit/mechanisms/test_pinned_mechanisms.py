"""Constants of the families beside noisy gradients, computed by hand: a wrong factor is no matter of taste."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from dplangevin.accounting.generalized_gaussian import GeneralizedGaussian
from dplangevin.accounting.guarantee import Guarantee, guarantee_per_person
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.plan import CertifiedSpec, certify_plan
from dplangevin.accounting.registry import epsilon_lower_bound
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, ContradictionError, InvalidParameter
from dplangevin.estimators._raw_table import select_person_rows
from dplangevin.mechanisms.learned_schema.mechanism import CellCounts, LearnedSchemaMechanism
from dplangevin.mechanisms.learned_schema.spec import (
    LearnedSchemaSpec,
    LearnedSchemaTheorem,
    absence_mu,
    calibrate_learned_schema,
)
from dplangevin.mechanisms.mechanism import NoiseDraws
from dplangevin.mechanisms.noisy_answers.mechanism import NoisySums
from dplangevin.mechanisms.noisy_answers.spec import (
    MaxNormSpec,
    MaxNormTheorem,
    NoisyAnswersSpec,
    NoisyMaxSpec,
    NoisyMaxTheorem,
    NoisySumsSpec,
    NoisySumsTheorem,
    SumGroup,
    WorstShift,
)
from dplangevin.mechanisms.rashomon_region.mechanism import NoisySlack
from dplangevin.mechanisms.rashomon_region.spec import SlackSpec, SlackTheorem
from dplangevin.mechanisms.repeated_selection.mechanism import (
    CandidateAttempts,
    RepeatedSelection,
    sample_n_attempts,
)
from dplangevin.mechanisms.repeated_selection.spec import (
    RepeatedSelectionSpec,
    RepeatedSelectionTheorem,
    calibrate_attempt_mu,
    renyi_bound,
)
from dplangevin.mechanisms.underdamped.spec import UnderdampedSpec, UnderdampedTheorem
from dplangevin.mechanisms.whitened.whitening import WhiteningTransform, second_moment_sum, whiten_rows
from dplangevin.problem import DataBounds, Logistic, Problem
from dplangevin.problem.constants import Constants
from dplangevin.sampling.langevin import UnderdampedStep

exactly = pytest.approx


def learned(**changes: object) -> LearnedSchemaSpec:
    stated = {
        "n_numbers": 2, "n_cells": 8, "n_categories": 3, "noise": "gaussian", "scale": 10.0, "threshold": 41.0,
        "adjacency": "replace-one",
    }  # fmt: skip
    return LearnedSchemaSpec(**(stated | changes))  # type: ignore[arg-type]


def test_a_learned_schema_counts_columns_sides_and_rows() -> None:
    assert learned().sensitivity == exactly(math.sqrt(10), rel=1e-15)  # five columns, two sides
    assert learned(adjacency="add-remove", rows_per_person=3).sensitivity == exactly(
        3 * math.sqrt(5), rel=1e-15
    )
    pure = learned(n_categories=0, threshold=None, noise="geometric", rows_per_person=2)
    assert pure.sensitivity == 8.0  # two columns, two sides, two rows
    one = float(ndtr(-4.0))
    assert learned().threshold_delta == exactly(1 - (1 - one) ** 3, rel=1e-9)
    spread = max(float(ndtr((a - 41) / 10)) / a for a in (1, 2))
    assert learned(rows_per_person=2).threshold_delta == exactly(6 * spread, rel=1e-12)
    far = learned(threshold=1e6)
    assert 0 < far.threshold_delta < 1e-299
    assert LearnedSchemaTheorem().certify(None, far).mu is None  # a chance that doubles cannot hold is one


def test_a_learned_schema_pays_for_what_does_not_appear() -> None:
    """eps0 = -log(1 - q), and Phi(-mu0 / 2) = 1 / (1 + e^eps0) = (1 - q) / (2 - q)."""
    for tail in (0.3, 1e-3):
        assert float(ndtr(-absence_mu(tail) / 2)) == exactly((1 - tail) / (2 - tail), rel=1e-9)
    found = LearnedSchemaTheorem().certify(None, learned(scale=2.0, threshold=3.0, rows_per_person=1))
    tail = 1 - (1 - float(ndtr(-1.0))) ** 3
    assert found.extra_delta == exactly(tail, rel=1e-8)
    assert found.parts[0].mu == exactly(math.hypot(math.sqrt(10) / 2, absence_mu(tail)), rel=1e-8)  # type: ignore[attr-defined]
    many = LearnedSchemaTheorem().certify(None, learned(rows_per_person=3))
    assert many.rows_per_person == 3
    with pytest.raises(AssumptionFailed, match="with certainty"):
        LearnedSchemaTheorem().certify(None, learned(threshold=1e-9, scale=1e-3, rows_per_person=2))
    made = calibrate_learned_schema(
        n_numbers=1,
        n_cells=8,
        n_categories=2,
        adjacency="add-remove",
        rows_per_person=4,
        mu=0.5,
        threshold_delta=1e-4,
    )
    assert 0.99e-4 < made.threshold_delta <= 1e-4


def test_learned_noise_is_what_the_spec_says() -> None:
    """Deviations of 40,000 draws within 4% (more than 10 standard errors), and no label below the threshold."""
    cells = np.zeros((1, 40_000))
    for noise, deviation in (("gaussian", 5.0), ("geometric", 1 / (math.sqrt(2) * math.sinh(0.1)))):
        spec = LearnedSchemaSpec(
            n_numbers=1,
            n_cells=40_000,
            n_categories=0,
            noise=noise,
            scale=5.0,
            adjacency="add-remove",  # type: ignore[arg-type]
        )
        drawn = (
            LearnedSchemaMechanism()
            .run(CertifiedSpec(spec=spec, delta=1e-3), lambda: CellCounts(cells, ()), 0)
            .cells
        )
        assert drawn.std() == exactly(deviation, rel=0.04)
    labels = {f"w{i}": 55 for i in range(400)}
    release = LearnedSchemaMechanism().run(
        CertifiedSpec(spec=learned(n_numbers=0, n_categories=1, threshold=60.0), delta=0.1),
        lambda: CellCounts(np.zeros((0, 0)), (labels,)),
        0,
    )
    assert 60 < len(release.labels[0]) < 180  # Phi(-1/2) of 400, and ten deviations
    assert min(release.labels[0].values()) >= 60


def selection(**changes: object) -> Guarantee:
    stated = {"mu": 0.5, "repetitions": 20.0, "law": "geometric", "adjacency": "replace-one"}
    spec = RepeatedSelectionSpec(**(stated | changes))  # type: ignore[arg-type]
    return RepeatedSelectionTheorem().certify(None, spec)


def renyi_at_order_8(law: str) -> float:
    spec = RepeatedSelectionSpec(mu=0.5, repetitions=20.0, law=law, adjacency="replace-one")  # type: ignore[arg-type]
    return float(renyi_bound(spec).rdp(np.array([8.0]))[0])


def test_a_selection_pays_for_each_term_of_the_theorem() -> None:
    """At order 8: R(8) = 8 / 8; log(20) / 7; (1 + shape) min_b ((b - 1) / 8 + log(1 / gamma) / b)."""
    best = min((b - 1) / 8 + math.log(20) / b for b in np.linspace(1.01, 20, 20_000))
    assert renyi_at_order_8("geometric") == exactly(1 + math.log(20) / 7 + 2 * best, rel=1e-3)
    spec = RepeatedSelectionSpec(mu=0.5, repetitions=20.0, law="logarithmic", adjacency="replace-one")
    gamma = spec.gamma
    assert (1 / gamma - 1) / math.log(1 / gamma) == exactly(20, rel=1e-9)
    best = min((b - 1) / 8 + math.log(1 / gamma) / b for b in np.linspace(1.01, 30, 20_000))
    assert renyi_at_order_8("logarithmic") == exactly(1 + math.log(20) / 7 + best, rel=1e-3)
    # Poisson: 20 times the best Renyi bound on the attempt's delta at eps = log(8 / 7)
    eps, orders = math.log(8 / 7), np.linspace(1.01, 60, 20_000)
    curve = (orders - 1) * (orders / 8 - eps + np.log1p(-1 / orders)) - np.log(orders)
    delta = math.exp(float(curve.min()))
    assert renyi_at_order_8("poisson") == exactly(1 + math.log(20) / 7 + 20 * delta, rel=1e-3)
    huge = selection(mu=1e50)
    assert huge.epsilon(1e-6) > 1e90


def test_a_selection_spends_no_more_than_it_may() -> None:
    spec = RepeatedSelectionSpec(mu=1.0, repetitions=20.0, adjacency="replace-one")
    mu = calibrate_attempt_mu(1.0, 1e-6, spec)
    assert 0.99 < selection(mu=mu).epsilon(1e-6) <= 1.0
    assert spec.gamma == 0.05
    draws = NoiseDraws.from_generator(np.random.default_rng(0), seeded=True)
    poisson = replace(spec, law="poisson")
    for law in (spec, poisson):  # 10% is more than 3 standard errors of 1,000 geometric numbers
        assert np.mean([sample_n_attempts(law, draws) for _ in range(1_000)]) == exactly(20, rel=0.1)


@pytest.mark.parametrize(("scale", "adjacency"), [(1.2, "replace-one"), (3.0, "add-remove")])
def test_candidates_beyond_the_attempt_are_refused(scale: float, adjacency: str) -> None:
    """mu = 1 / 1.2 is above 1 / 2; another adjacency is not the guaranteed one."""
    group = SumGroup(answers=1, unit=1.0, scale=scale)
    sums = NoisySumsSpec(groups=(group,), noise="gaussian", adjacency=adjacency)  # type: ignore[arg-type]
    one = CertifiedSpec(spec=sums, delta=1e-5)
    plan = CertifiedSpec(
        spec=RepeatedSelectionSpec(mu=0.5, repetitions=2.0, adjacency="replace-one"), delta=1e-5
    )
    attempts = CandidateAttempts(
        fit_specs=(one,), score_specs=(one,), run_attempt=lambda j, rng: (0.0, None, "")
    )
    with pytest.raises(InvalidParameter, match="GDP of an attempt"):
        RepeatedSelection().run(plan, attempts, 0)


def test_slacks_sums_and_maxima() -> None:
    slack = SlackSpec(unit=3.0, scale=12.0, adjacency="replace-one")
    assert SlackTheorem().certify(None, slack).mu == exactly(0.5, rel=1e-8)
    once = replace(slack, adjacency="add-remove", answers=40_000)
    assert SlackTheorem().certify(None, once).mu == exactly(0.25, rel=1e-8)
    drawn = NoisySlack().run(CertifiedSpec(spec=once, delta=1e-5), lambda: [np.zeros(40_000)], 0).values[0]
    assert drawn.std() == exactly(12.0, rel=0.04)
    for noise, answers, adjacency, cost in (
        ("gaussian", 3, "replace-one", math.sqrt(2) / 4), ("gaussian", 1, "replace-one", 0.25),
        ("gaussian", 3, "add-remove", 0.25), ("gamma", 3, "replace-one", math.sqrt(2) / 4),
        ("geometric", 3, "replace-one", 0.5), ("geometric", 3, "add-remove", 0.25),
    ):  # fmt: skip
        group = SumGroup(answers=answers, unit=1.0, scale=4.0)
        sums = NoisySumsSpec(groups=(group,), noise=noise, adjacency=adjacency)  # type: ignore[arg-type]
        found = NoisySumsTheorem().certify(None, sums)
        assert (found.mu if noise == "gaussian" else found.epsilon(0.0)) == exactly(cost, rel=1e-8)
    assert NoisySums.spec_type is NoisySumsSpec
    largest = NoisyMaxSpec(candidates=3, unit=1.0, scale=4.0, adjacency="replace-one")
    assert NoisyMaxTheorem().certify(None, largest).epsilon(0.0) == exactly(0.5, rel=1e-8)
    one = replace(largest, adjacency="add-remove")
    assert NoisyMaxTheorem().certify(None, one).epsilon(0.0) == exactly(0.25, rel=1e-8)


def test_answers_move_together() -> None:
    answers = NoisyAnswersSpec(answers=9, changed=8, sensitivity=3.0, p=2.0, sigma=24.0)
    assert WorstShift().certify(None, answers).mu == exactly(0.5, rel=1e-8)  # sqrt(2 x 8) 3 / 24
    laplace = replace(answers, p=1.0)
    assert WorstShift().certify(None, laplace).epsilon(0.0) == exactly(1.0, rel=1e-8)
    norm = MaxNormSpec(answers=9, changed=8, sensitivity=3.0, scale=24.0, rows_per_person=2)
    found = MaxNormTheorem().certify(None, norm)
    assert found.epsilon(0.0) == exactly(0.125, rel=1e-8)
    assert found.rows_per_person == 2
    part = GeneralizedGaussian(p=1.0, shift=0.1, changed=2, answers=5).group(2)
    assert (part.shift, part.changed) == (0.2, 4)  # type: ignore[attr-defined]
    assert GeneralizedGaussian(p=1.0, shift=0.1, changed=4, answers=5).group(2).changed == 5  # type: ignore[attr-defined]


def test_underdamped_steps_and_their_price() -> None:
    """mu = 30 (2 / 100) sqrt(0.5 x 8 x 2 / (2 x 4)); a velocity has variance u (1 - e^(-2 gamma eta)) after a step."""
    spec = UnderdampedSpec(inverse_temperature=30.0, friction=4.0, inverse_mass=2.0, step_size=0.5, n_steps=8)
    found = UnderdampedTheorem().certify(Constants(n=100, lipschitz=1.0), spec)
    assert found.mu == exactly(0.6, rel=1e-8)
    step = UnderdampedStep.from_parameters(4.0, 2.0, 0.5)
    assert step.variance_v == exactly(2 * (1 - math.exp(-4)), rel=1e-12)


def test_whitened_rows_stay_within_their_bound() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [1e200, 1e200], [math.inf, 1.0], [math.nan, 0.0]])
    weights, _ = whiten_rows(rows, WhiteningTransform(np.eye(2), 1.0))
    assert weights[:2] == exactly([0.2, 1.0])
    assert weights[2:].tolist() == [0.0, 0.0, 0.0]
    skewed = np.array([[1e160, 0.0], [0.0, 1e-160]])
    moved, there = whiten_rows(np.array([[1e160, 1.0]]), WhiteningTransform(skewed, 2.0))
    assert moved[0] == 0.0 or np.linalg.norm(moved[0] * there[0]) <= 2.0 * (1 + 1e-9)


def test_second_moments_are_of_bounded_rows() -> None:
    """Rows 4 and 2 long in coordinates whose bound is 2 are cut to it, and counted in units of it."""
    problem = Problem(
        loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=2, n_features=2, fit_intercept=False
    )
    data = ArrayDataset(np.array([[1.0, 0.0], [0.0, 0.5]]), np.array([0.0, 1.0]), problem)
    assert np.diag(second_moment_sum(data)) == exactly([1.0, 0.25])
    cut = second_moment_sum(data, WhiteningTransform(4 * np.eye(2), 2.0))
    assert np.diag(cut) == exactly([1.0, 1.0])
    long = ArrayDataset(np.array([[0.7, 0.7], [0.0, 0.5]]), np.array([0.0, 1.0]), problem)
    zero = second_moment_sum(
        long, WhiteningTransform(np.full((2, 2), 1.7e308), 1.0)
    )  # coordinates that are infinite count as 0
    assert np.isfinite(zero).all()
    assert np.trace(zero) <= 2.0


def test_persons_keep_so_many_rows_and_no_more() -> None:
    codes = np.array([0] * 9 + [1] * 2 + [-1] * 5)
    for seed in range(20):
        kept = select_person_rows(codes, 3, np.random.default_rng(seed))
        assert [int(kept[codes == code].sum()) for code in (0, 1, -1)] == [3, 2, 0]
    row = Guarantee(
        parts=(Gaussian(mu=0.1),), adjacency="add-remove", release="draw", theorem="composition", reference=""
    )
    assert [guarantee_per_person(row, 3, side).mu for side in ("add-remove", "replace-one")] == exactly(
        [0.3, 0.6]
    )  # type: ignore[arg-type]
    for wrong in (replace(row, adjacency="replace-one"), replace(row, rows_per_person=2)):
        with pytest.raises(InvalidParameter, match="single added or removed row"):
            guarantee_per_person(wrong, 3, "replace-one")


@pytest.mark.parametrize("friction", [1e-4, 2.0, 50.0])
def test_underdamped_runs_are_compared_with_what_linear_losses_leak(
    friction: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = Constants(n=100, lipschitz=1.0)
    spec = UnderdampedSpec(inverse_temperature=30.0, friction=friction, step_size=0.5, n_steps=800)
    claimed = certify_plan(constants, spec, delta=1e-5).epsilon()
    leaked = epsilon_lower_bound(constants, spec, 1e-5)
    assert 0.05 < leaked <= claimed
    assert leaked > 0.99 * claimed or friction < 1  # long runs with friction: the bound is tight
    if friction > 1:
        monkeypatch.setattr("dplangevin.mechanisms.underdamped.spec.round_up", lambda value: 0.9 * value)
        with pytest.raises(ContradictionError, match="please report"):
            certify_plan(constants, spec, delta=1e-5)


@pytest.mark.parametrize("law", ["geometric", "logarithmic", "poisson"])
@pytest.mark.parametrize("mu", [0.05, 1.0, 1e5])
def test_selections_are_compared_with_what_scores_leak(
    law: str, mu: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = RepeatedSelectionSpec(mu=mu, repetitions=20.0, law=law, adjacency="replace-one")  # type: ignore[arg-type]
    claimed = certify_plan(None, spec, delta=1e-5).epsilon()
    assert 0 <= epsilon_lower_bound(None, spec, 1e-5) <= claimed
    if mu == 1.0:
        assert epsilon_lower_bound(None, spec, 1e-5) > 0.2 * claimed
        monkeypatch.setattr(
            "dplangevin.mechanisms.repeated_selection.spec.round_up", lambda value: 1e-9 * value
        )
        with pytest.raises(ContradictionError):
            certify_plan(None, spec, delta=1e-5)


def test_a_gap_pays_for_the_tolerance_of_its_minimiser() -> None:
    """Shares of at most 1 + 2 x 0.05 in absolute value, two of them, over mu = 1/2; the slack has no minimiser."""
    from types import SimpleNamespace
    from typing import Any

    from dplangevin.mechanisms.rashomon_region.planning import GAP_TOLERANCE, _slack_spec

    objective: Any = SimpleNamespace(adjacency="replace-one")
    assert GAP_TOLERANCE == 0.05
    assert _slack_spec(objective, 0.5, GAP_TOLERANCE).scale == exactly(4.4, rel=1e-8)
    assert _slack_spec(objective, 0.5, GAP_TOLERANCE).unit == exactly(1.1, rel=1e-8)
    assert _slack_spec(objective, 0.5).scale == exactly(4.0, rel=1e-8)
