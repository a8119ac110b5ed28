"""The auditor: valid bounds, power against known faults, and clear refusals.

Seeds are fixed. A single audit at confidence 0.95 raises a false alarm with probability at most 0.05, by construction.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import ndtr, ndtri

from dplangevin import DPLogisticRegression
from dplangevin.accounting.conversions import gdp_epsilon, gdp_mu
from dplangevin.accounting.parts import BoundedRange, Pure
from dplangevin.accounting.plan import Plan
from dplangevin.audit import (
    AuditResult,
    Canary,
    audit,
    density_attack,
    gaussian_claim,
    make_canaries,
    many_run_attack,
    one_run_attack,
    one_run_epsilon,
    runs_needed,
)
from dplangevin.audit.attacks import are_neighbors, as_guarantee, trade_off_curve
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem import Ball, Clipped, DataBounds, Logistic, Problem, Squared

MU = gdp_mu(2.0, 1e-5)
CLAIM = gaussian_claim(MU, 1e-5)
PAIR = Canary(name="one", first=(np.zeros((1, 1)), np.zeros(1)), second=(np.zeros((1, 1)), np.ones(1)))


def gaussian(mu: float, runs: int, seed: int, claim: Any = CLAIM, **options: Any) -> AuditResult:
    """Audit N(0, 1) against N(mu, 1)."""
    rng = np.random.default_rng(seed)
    first, second = rng.standard_normal((2, runs // 2))
    return many_run_attack(first, second + mu, claim, delta=1e-5, **options)


def linear_plan(n: int = 1, features: int = 1, adjacency: str = "replace-one", **options: Any) -> Plan:
    """Every record pulls with slope exactly +1 or -1, so the exact mu is the claim."""
    of = Problem(
        loss=Clipped(Squared(), 1.0),
        bounds=DataBounds(data_norm=1.0, target=(-1e6, 1e6)),
        n=n,
        n_features=features,
        fit_intercept=False,
        ridge=0.4,
        adjacency=adjacency,  # type: ignore[arg-type]
    )
    spec = NoisyGradientSpec(**({"step_size": 0.5, "noise_std": 2.0, "n_steps": 3} | options))
    return Plan(problem=of, spec=spec, delta=1e-5)


def test_power_against_half_of_the_noise() -> None:
    """Claimed (2, 1e-5), 20,000 runs: the claim is refuted through mu in each of ten repetitions."""
    found = [gaussian(2 * MU, 20_000, seed) for seed in range(10)]
    assert all(result.refuted for result in found)
    assert all(MU < result.mu_lower < 2 * MU for result in found)


def test_power_against_noise_over_1_3() -> None:
    assert all(gaussian(1.3 * MU, 100_000, seed).refuted for seed in range(10))


def test_the_honest_mechanism_is_not_refuted_beyond_the_allowed_rate() -> None:
    """200 repetitions at confidence 0.95: at most 16 alarms, which a rate of 0.05 exceeds with probability 0.03; the
    construction is conservative and gives about 1."""
    alarms = sum(gaussian(MU, 20_000, 1000 + seed).refuted for seed in range(200))
    assert alarms <= 16


def test_every_bound_is_valid_at_the_stated_rate() -> None:
    found = [gaussian(1.0, 2_000, seed, None) for seed in range(100)]
    assert sum(result.mu_lower > 1.0 for result in found) <= 11
    assert sum(result.epsilon_lower > gdp_epsilon(1.0, 1e-5) for result in found) <= 11


@pytest.mark.slow
def test_strongly_convex_descent_is_audited_to_within_five_percent() -> None:
    result = audit(linear_plan(n_steps=2), canary="worst-direction", runs=60_000, random_state=0)
    assert result.exact_ratio == pytest.approx(1.0)
    assert result.claimed_mu is not None
    assert 0.95 * result.claimed_mu <= result.mu_lower <= result.claimed_mu
    assert not result.refuted


def test_an_epsilon_delta_claim_is_tested_as_such() -> None:
    """Randomised response with a catastrophe of probability delta is (eps, delta)-DP although no mu fits it."""
    rng, delta = np.random.default_rng(5), 0.01
    truth = math.e / (1 + math.e)

    def answers(bit: int, runs: int) -> np.ndarray:
        said = np.where(rng.random(runs) < truth, bit, 1 - bit) * 1.0
        return np.where(rng.random(runs) < delta, 10.0 * (1 if bit else -1), said)

    first, second = answers(0, 20_000), answers(1, 20_000)
    honest = many_run_attack(first, second, (1.0, delta), delta=delta)
    assert not honest.refuted
    assert honest.mu_lower > gdp_mu(1.0, delta)  # a test by mu would have refuted a true claim
    assert many_run_attack(first, second, (0.7, delta), delta=delta).refuted


@pytest.mark.parametrize("part", [Pure(value=1.5), BoundedRange(value=1.5)])
def test_the_trade_off_curve_of_a_profile_holds_for_real_mechanisms(part: Any) -> None:
    """Half-line tests of Laplace noise stay below the curve of its claim, and randomised response reaches it."""
    claim = replace(CLAIM, parts=(Pure(value=1.5),), at_delta=0.0)
    curve = trade_off_curve(claim)
    cuts = np.linspace(-3, 4, 60)

    def tail(x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, 0.5 * np.exp(-1.5 * np.abs(x)), 1 - 0.5 * np.exp(-1.5 * np.abs(x)))

    assert np.all(tail(cuts - 1) <= curve.power(tail(cuts)) + 1e-12)
    odds = math.exp(1.5) / (1 + math.exp(1.5))
    assert float(curve.power(1 - odds)) == pytest.approx(odds, abs=1e-9)
    assert np.all(trade_off_curve(replace(claim, parts=(part,))).power(cuts / 10 + 0.5) <= 1)


@settings(max_examples=30, deadline=None)
@given(mu=st.floats(0.05, 4.0), size=st.floats(1e-4, 0.999))
def test_the_curve_of_a_gaussian_claim_is_exact_and_its_profile_allows_no_less(
    mu: float, size: float
) -> None:
    claim = gaussian_claim(mu, 1e-5)
    exact = float(ndtr(ndtri(size) + mu))
    assert float(trade_off_curve(claim).power(size)) == pytest.approx(exact, rel=1e-12)
    epsilons = np.linspace(0, gdp_epsilon(mu, 1e-7), 64)
    grid = replace(
        trade_off_curve(claim),
        mu=None,
        epsilons=epsilons,
        deltas=np.array([claim.delta(e) for e in epsilons]),
    )
    assert float(grid.power(size)) >= exact - 1e-9


def test_runs_needed_is_the_least_number_that_can_conclude() -> None:
    claim = (3.0, 1e-5)
    needed = runs_needed(claim)
    apart = np.concatenate([np.zeros(needed // 2), np.ones(needed // 2)])
    assert many_run_attack(apart[: needed // 2], apart[needed // 2 :], claim, delta=1e-5).refuted
    with pytest.raises(InvalidParameter, match=f"Use at least {needed} runs"):
        many_run_attack(apart[: needed // 2 - 2], apart[needed // 2 + 2 :], claim, delta=1e-5)


def test_density_audit_of_known_laws() -> None:
    normal = density_attack(lambda x: -(x[:, 0] ** 2) / 2, lambda x: -((x[:, 0] - 1) ** 2) / 2, [(-12.0, 13.0)], CLAIM,
                            delta=1e-5)  # fmt: skip
    assert normal.epsilon_lower == pytest.approx(gdp_epsilon(1.0, 1e-5), rel=2e-3)
    assert normal.epsilon_lower <= gdp_epsilon(1.0, 1e-5)
    assert normal.mu_lower == pytest.approx(1.0, abs=1e-3)
    assert normal.refuted
    plane = density_attack(
        lambda x: -np.sum(x**2, axis=1) / 2, lambda x: -np.sum((x - 0.3) ** 2, axis=1) / 2,
        [(-8.0, 8.0)] * 2, gaussian_claim(0.3 * math.sqrt(2) * 1.001, 1e-5), delta=1e-5,
    )  # fmt: skip
    assert plane.mu_lower == pytest.approx(0.3 * math.sqrt(2), rel=5e-3)
    assert not plane.refuted


@pytest.mark.parametrize("features", [1, 2])
def test_exact_kernels_attain_the_claim_of_strongly_convex_descent(features: int) -> None:
    plan = linear_plan(n=features, features=features, n_steps=2)
    result = audit(plan, method="density", canary="worst-direction")
    assert result.claimed_mu is not None
    assert result.mu_lower == pytest.approx(result.claimed_mu, rel=1e-6)
    assert not result.refuted
    weaker = gaussian_claim(0.99 * result.claimed_mu, 1e-5)
    assert audit(plan, method="density", canary="worst-direction", claim=weaker).refuted


def test_exact_kernels_on_an_interval_stay_below_the_claim() -> None:
    of = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=2, n_features=1, fit_intercept=False,
                 constraint=Ball(1.0))  # fmt: skip
    plan = Plan(problem=of, spec=NoisyGradientSpec(step_size=1.0, noise_std=1.0, n_steps=20), delta=1e-5)
    result = audit(plan, method="density", random_state=0)
    assert result.claimed_epsilon is not None
    assert 0.1 < result.epsilon_lower < result.claimed_epsilon
    assert not result.refuted


def test_one_run_formula() -> None:
    """All of r guesses right: (e^eps / (1 + e^eps))^r = 0.05; delta only weakens the bound."""
    pure = one_run_epsilon(50, 50, 500)
    assert (math.exp(pure) / (1 + math.exp(pure))) ** 50 == pytest.approx(0.05, rel=1e-6)
    assert one_run_epsilon(45, 50, 500, delta=1e-5) < one_run_epsilon(45, 50, 500) < pure


def test_one_run_audit_of_many_canaries() -> None:
    plan = linear_plan(n=1500, features=1500, adjacency="add-remove", noise_std=1 / 1500 / 0.5, n_steps=1)
    honest = [audit(plan, method="one-run", runs=1500, random_state=seed) for seed in range(5)]
    assert not any(result.refuted for result in honest)
    assert min(result.epsilon_lower for result in honest) > 0.2
    noisy = replace(plan, spec=replace(plan.spec, noise_std=plan.spec.noise_std / 8))  # type: ignore[type-var]
    broken = audit(noisy, method="one-run", runs=1500, claim=plan.guarantee, random_state=0)
    assert broken.refuted


def test_one_run_false_alarms() -> None:
    """Randomised response with eps = 1 on every coin: at most 11 alarms in 100 (rate 0.05, probability 0.01)."""
    rng, alarms = np.random.default_rng(7), 0
    for _ in range(100):
        coins = rng.random(400) < 0.5
        truth = rng.random(400) < math.e / (1 + math.e)
        scores = np.where(truth, coins, ~coins) + 1e-6 * rng.random(400)
        alarms += one_run_attack(scores, coins, (1.0, 0.0), delta=0.0, guesses=200).refuted
    assert alarms <= 11


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_canaries_are_neighbours_within_the_bounds(adjacency: str) -> None:
    of = Problem(loss=Logistic(), bounds=DataBounds(data_norm=2.0, classes=2), n=6, n_features=3,
                 adjacency=adjacency)  # type: ignore[arg-type]  # fmt: skip
    found = make_canaries(of)
    assert {one.name for one in found} >= {
        "worst-direction",
        "last-batch",
        "mislabelled",
        "common-drift",
        "corner",
    }
    for one in found:
        assert are_neighbors(one.first, one.second)
        for X, y in (one.first, one.second):
            assert np.all(np.linalg.norm(X, axis=1) <= 2.0 * (1 + 1e-12))
            assert set(np.unique(y)) <= {0.0, 1.0}
        assert len(one.first[1]) == 6
        assert len(one.second[1]) == (6 if adjacency == "replace-one" else 5)


def test_search_finds_the_direction_that_leaks() -> None:
    """Noise only along the first coordinate: a search must turn the canary towards the second."""

    def leaky(X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return X.T @ (2 * y - 1) + np.array([10.0, 0.3]) * rng.standard_normal(2)

    of = Problem(
        loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=1, n_features=2, fit_intercept=False
    )
    options: dict[str, Any] = {"claim": gaussian_claim(0.2, 1e-5), "runs": 600, "random_state": 2}
    blind = audit(leaky, of, canary="worst-direction", **options)
    found = audit(leaky, of, canary="worst-direction", search=12, pilot_runs=60, **options)
    assert not blind.refuted
    assert found.refuted
    assert "search" in found.canary


def test_an_estimator_is_audited_through_fit() -> None:
    model = DPLogisticRegression(epsilon=4.0, delta=0.01, data_norm=1.0, classes=["no", "yes"], alpha=50.0,
                                 fit_intercept=False, mechanism="output-perturbation")  # fmt: skip
    result = audit(model, n=1, n_features=1, canary="worst-direction", runs=600, random_state=0)
    assert not result.refuted
    assert result.claimed_mu is not None
    assert result.mu_lower > 0.5 * result.claimed_mu
    assert audit(model, n=1, n_features=1, canary="worst-direction", runs=600, random_state=0,
                 claim=gaussian_claim(0.4 * result.claimed_mu, 0.01)).refuted  # fmt: skip


def test_results_are_reproducible_and_plain() -> None:
    plan = linear_plan()
    first, second = (audit(plan, canary="last-batch", runs=400, random_state=4) for _ in range(2))
    assert first == second
    plain = first.to_dict()
    assert plain["claimed"]["mu"] == first.claimed_mu
    assert set(plain) >= {
        "epsilon_lower",
        "mu_lower",
        "confidence",
        "runs",
        "canary",
        "refuted",
        "exact_ratio",
    }


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda i: math.nan, "not finite"),
        (lambda i: np.ones(1 + i % 2), "shape"),
        (lambda i: np.ones((2, 2)), "shape"),
        (lambda i: "text", "vector of numbers"),
    ],
)
def test_bad_mechanisms_are_refused(returned: Any, words: str) -> None:
    calls = iter(range(10**6))
    with pytest.raises(InvalidParameter, match=words):
        audit(lambda X, y, rng: returned(next(calls)), claim=(1.0, 1e-5), canary=PAIR, runs=200)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"claim": (1.0, 1e-5), "delta": 1e-3}, "larger than the claim's 1e-05"),
        ({"claim": (8.0, 1e-5), "runs": 2000}, "Use at least 32,998 runs"),
        ({"claim": (1.0, 2.0)}, "delta of claim"),
        ({"claim": "1"}, "must be a Guarantee or a pair"),
        ({"claim": (1.0, 1e-5), "canary": "nonsense"}, "state problem"),
        ({"claim": (1.0, 1e-5), "method": "magic"}, "method must be one of"),
        ({"claim": (1.0, 1e-5), "method": "one-run"}, "needs problem"),
        ({"claim": (1.0, 1e-5), "confidence": 1.0}, "confidence"),
    ],
)
def test_bad_questions_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        audit(lambda X, y, rng: y.sum() + rng.standard_normal(), **({"canary": PAIR, "runs": 2000} | options))


def test_what_is_not_a_pair_of_neighbours_is_refused() -> None:
    two = Canary(name="two", first=(np.zeros((2, 1)), np.zeros(2)), second=(np.ones((2, 1)), np.zeros(2)))
    with pytest.raises(InvalidParameter, match="more than one record"):
        audit(lambda X, y, rng: y, claim=(1.0, 1e-5), canary=two, runs=2000)


def test_too_few_canaries_say_how_many() -> None:
    with pytest.raises(InvalidParameter, match=r"Use about \d+ guesses"):
        one_run_attack(np.arange(40.0), np.arange(40) > 20, (4.0, 0.0), delta=0.0)


def test_claims_are_read() -> None:
    assert as_guarantee(None) is None
    assert as_guarantee(CLAIM) is CLAIM
    pair = as_guarantee((1.0, 1e-5))
    assert pair is not None
    assert pair.delta(1.0) == pytest.approx(1e-5)
