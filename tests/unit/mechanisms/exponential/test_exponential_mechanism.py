"""The exponential mechanism, its iteration and what a certified draw keeps of its guarantee."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import gammainccinv

from dplangevin.accounting import conversions as cv
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exponential.spec import (
    cap_rejection,
    exponential_guarantee,
    exponential_temperature,
    gibbs_guarantee,
    ramp_sensitivity,
    score_oscillation,
    sup_norm_cost,
    total_variation_allowance,
    transfer_sup_norm,
    transfer_total_variation,
)
from dplangevin.mechanisms.exponential.tiers import plan_stages
from dplangevin.papers import formulas as paper
from dplangevin.problem.constants import Constants

GRID = (np.arange(20_000) + 0.5) / 20_000


def constants(**changes):
    values = {"n": 30_000, "lipschitz": 1.0, "smoothness": 0.26, "strong_convexity": 0.01, "diameter": 2.0}
    return Constants(**{**values, "dimension": 20, **changes})


def log_ratio(score, other, beta):
    """log density ratio of two Gibbs laws on a grid of [0, 1]."""
    first, second = -beta * score, -beta * other
    first = first - first.max() - math.log(np.mean(np.exp(first - first.max())))
    second = second - second.max() - math.log(np.mean(np.exp(second - second.max())))
    return first - second


# --- the plain mechanism -----------------------------------------------------------------------------------


def test_temperature():
    """T39: n = 3e4, R = 1, eps = 1 gives beta = 7500, which is also .057735-GDP: (.2206, 1e-6)-DP."""
    assert score_oscillation(constants()) == pytest.approx(4 / 30_000)
    beta = exponential_temperature(constants(), 1.0)
    assert beta == pytest.approx(7500, rel=1e-8)
    assert exponential_guarantee(constants(), beta).epsilon(0.0) <= 1.0
    beside = gibbs_guarantee(constants(), 7500)
    assert beside.mu == pytest.approx(0.057735, rel=1e-5)
    assert beside.epsilon(1e-6) == pytest.approx(0.2206, rel=1e-3)


def test_add_remove_uses_half_the_oscillation():
    one = exponential_temperature(constants(adjacency="add-remove"), 1.0)
    assert one == pytest.approx(2 * exponential_temperature(constants(), 1.0), rel=1e-8)


def test_guarantee_fields():
    guarantee = exponential_guarantee(constants(), 7500)
    assert guarantee.kind == "bounded-range"
    assert guarantee.release == "draw"
    assert guarantee.adjacency == "replace-one"
    assert any("running time" in word for word in guarantee.assumptions)
    assert guarantee.to_dict()["delta"] == 0.0
    assert guarantee.parts[0].rdp(np.array([2.0]))[0] <= 2 * guarantee.epsilon(0.0) ** 2 / 8 * (1 + 1e-15)


@pytest.mark.parametrize(("k", "lowest"), [(0, -0.650), (5, -0.95126), (50, -1.259998)])
def test_exact_log_ratio(k, lowest):
    """T5: n = 5 + k on [0, 1], eps = 1.3; k losses x, one that flips from x to -x: the range is always 1.3.

    T7: the printed beta = eps n / (L diam) reaches -2.560 at k = 50, beyond 1.3.
    """
    n, epsilon = 5 + k, 1.3
    beta = exponential_temperature(constants(n=n, diameter=1.0), epsilon)
    here, there = (k + 1) / n * GRID, (k - 1) / n * GRID
    ratio = log_ratio(here, there, beta)
    assert ratio.min() == pytest.approx(lowest, rel=1e-3)
    assert np.ptp(ratio) == pytest.approx(epsilon, rel=1e-3)
    assert np.max(np.abs(ratio)) <= epsilon
    if k == 50:
        wrong = paper.paper_exponential_temperature(epsilon, n, 1.0, 1.0)
        assert log_ratio(here, there, wrong).min() == pytest.approx(-2.560, rel=1e-3)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), threshold=st.sampled_from([0.0, 0.05, 0.3]))
def test_range_of_thresholded_scores(seed, threshold):
    """T6: 1-Lipschitz losses that are not convex, thresholded: the range stays within eps."""
    rng = np.random.default_rng(seed)
    n, epsilon = 6, 1.3
    waves = [
        sum(rng.choice([-1, 1]) * np.sin(w * GRID + rng.uniform(0, 6)) / w / 3 for w in (3, 8, 20))
        for _ in range(n + 1)
    ]
    here, there = np.mean(waves[:n], axis=0), np.mean([*waves[1:n], waves[n]], axis=0)
    beta = exponential_temperature(constants(n=n, diameter=1.0, convex=False), epsilon)
    cut = lambda f: np.maximum(f, f.min() + threshold)  # noqa: E731
    assert np.ptp(log_ratio(cut(here), cut(there), beta)) <= epsilon + 1e-6


def test_inexact_minimum_widens_the_range():
    """Amendment 2: F = theta for both neighbours, but F* known within e: the range is beta e, not beta osc = 0."""
    beta, error, threshold = 40.0, 0.1, 0.2
    ratio = log_ratio(np.maximum(GRID, threshold), np.maximum(GRID, threshold + error), beta)
    here = constants(n=10**12, diameter=1.0)
    old = exponential_guarantee(here, beta).epsilon(0.0)
    assert old < np.ptp(ratio) <= exponential_guarantee(here, beta, minimum_error=error).epsilon(0.0)
    assert exponential_temperature(here, 1.0, minimum_error=error) == pytest.approx(10.0, rel=1e-6)
    # the ramp's gradient moves by L_F e / tau although the data term's does not move
    ramp = lambda f, least: np.clip((f - least) / 0.5, 0, 1)  # noqa: E731
    gap = np.max(np.abs(ramp(GRID, 0.2) - ramp(GRID, 0.2 + error)))
    assert ramp_sensitivity(here, 0.5, 1.0) < gap <= ramp_sensitivity(here, 0.5, 1.0, minimum_error=error)


def test_refusals():
    with pytest.raises(AssumptionFailed, match=r"unbounded.*ball"):
        exponential_guarantee(constants(diameter=math.inf), 1.0)
    with pytest.raises(InvalidParameter, match="inverse_temperature"):
        exponential_guarantee(constants(), 0.0)
    with pytest.raises(InvalidParameter, match="minimum_error"):
        exponential_guarantee(constants(), 1.0, minimum_error=-0.1)
    with pytest.raises(InvalidParameter, match="epsilon"):
        exponential_temperature(constants(), math.inf)


# --- the iterated mechanism --------------------------------------------------------------------------------


def test_iterated_diameters():
    """T31: n = 3e4, p = 20, m = 1, fail 1e-6, eps_i doubling; the sum is eps exactly."""
    strong = constants(strong_convexity=1.0, smoothness=1.25)
    expected = [2, 0.39973, 0.24085, 0.20934, 0.20543]
    for k, diameter in enumerate(expected, start=1):
        spec = plan_stages(strong, 1.0, 1e-6, 2.0, n_stages=k)
        assert spec.stages[-1].diameter == pytest.approx(diameter, rel=1e-4)
        assert math.fsum(spec.epsilons) <= 1.0
        assert math.fsum(spec.epsilons) == pytest.approx(1.0, abs=1e-14)
        assert spec.epsilons[-1] == pytest.approx(2 ** (k - 1) / (2**k - 1))
    best = plan_stages(strong, 1.0, 1e-6, 2.0)
    assert len(best.stages) == 4
    assert 20 / best.stages[-1].inverse_temperature == pytest.approx(0.000523, rel=2e-3)
    assert plan_stages(strong, 1.0, 1e-6, 2.0, n_stages=1).risk == pytest.approx(0.00267, rel=2e-3)


def test_iterated_temperatures_spend_their_budget():
    spec = plan_stages(constants(strong_convexity=1.0, smoothness=1.25), 1.0, 1e-6, 2.0, n_stages=3)
    for stage in spec.stages:
        assert stage.inverse_temperature * (2 / 30_000) * stage.diameter <= stage.epsilon
    assert sum(spec.epsilons) == pytest.approx(1.0, abs=1e-12)


def test_iterated_rate():
    """T34: m = .1, p = 20, D_0 = 20, fail 1e-9, default k: slope -2 in n."""
    for n, expected in [(10**6, 7.057e-6), (10**7, 7.046e-8), (10**8, 7.572e-10)]:
        here = constants(n=n, strong_convexity=0.1, smoothness=1.25, diameter=20.0)
        k = 1 + math.ceil(math.log2(math.log2(n / (20 + math.log2(n)))))
        last = plan_stages(here, 1.0, 1e-9, 2.0, n_stages=k).stages[-1]
        assert 20 / last.inverse_temperature == pytest.approx(expected, rel=1e-3)


def test_iterated_gamma_quantiles():
    """Section 4: q at n^-3 and 1e-6."""
    assert gammainccinv(20, 30_000.0**-3) == pytest.approx(73.54, rel=1e-3)
    assert gammainccinv(100, 30_000.0**-3) == pytest.approx(194.03, rel=1e-3)
    assert gammainccinv(20, 1e-6) == pytest.approx(48.83, rel=1e-3)
    assert gammainccinv(100, 1e-6) == pytest.approx(154.92, rel=1e-3)


def test_iterated_zcdp_and_population():
    strong = constants(strong_convexity=1.0, smoothness=1.25)
    spec = plan_stages(strong, 0.02, 1e-6, 2.0, n_stages=3, budget_unit="zcdp")
    assert sum(e**2 for e in spec.epsilons) / 8 == pytest.approx(0.02, rel=1e-9)
    wide = plan_stages(strong, 1.0, 1e-6, 2.0, n_stages=2, population=True)
    narrow = plan_stages(strong, 1.0, 1e-6, 2.0, n_stages=2)
    # amendment 9: L, not 2L
    widen = 1 / math.sqrt(30_000) * (1 + math.sqrt(2 * math.log(2 / 1e-6)))
    assert wide.stages[0].radius - narrow.stages[0].radius == pytest.approx(widen, rel=1e-9)


def test_iterated_does_not_shrink_when_it_cannot():
    """n = 3e4, p = 20, m = .01 on a ball of diameter 10: one stage is best."""
    assert len(plan_stages(constants(diameter=10.0), 1.0, 1e-6, 1.05).stages) == 1


def test_stage_product():
    """T32."""
    got = [paper.paper_stage_product(k) for k in (2, 3, 4, 5, 6, 11)]
    assert got == pytest.approx([2, 3.3636, 4.7568, 5.9073, 6.7272, 7.9299], rel=1e-4)


def test_iterated_refusals():
    with pytest.raises(AssumptionFailed, match="strongly convex"):
        plan_stages(constants(strong_convexity=0.0), 1.0, 1e-6, 1.0)
    with pytest.raises(AssumptionFailed, match="bounded"):
        plan_stages(constants(diameter=math.inf), 1.0, 1e-6, 1.0)
    with pytest.raises(InvalidParameter, match="dimension"):
        plan_stages(constants(dimension=None), 1.0, 1e-6, 1.0)
    with pytest.raises(InvalidParameter, match="fail"):
        plan_stages(constants(), 1.0, 0.0, 1.0)


# --- certified draws ---------------------------------------------------------------------------------------


def test_total_variation_transfer():
    """T46: (1, 0) with tau = 2.688e-7 gives 1e-6 = (1 + e) tau."""
    pure = exponential_guarantee(constants(), exponential_temperature(constants(), 1.0))
    close = transfer_total_variation(pure, 2.688e-7, epsilon=1.0)
    assert close.delta(1.0) == pytest.approx(1e-6, rel=1e-3)
    assert close.delta(1.0) == pytest.approx((1 + math.e) * 2.688e-7, rel=1e-9)
    assert close.epsilon(0.0) == math.inf
    assert close.kind == "approximate"
    assert total_variation_allowance(1e-6, 1.0) * (1 + math.e) <= 1e-6
    assert transfer_total_variation(pure, 0.0) == pure


@settings(max_examples=25, deadline=None)
@given(tau=st.floats(1e-12, 1e-2), epsilon=st.floats(0.0, 4), mu=st.floats(0.05, 2))
def test_total_variation_transfer_is_never_optimistic(tau, epsilon, mu):
    """Against the formula at the asked epsilon: equal where it is exact, and never below the true infimum."""
    base = gibbs_guarantee(constants(), 0.01 * mu**2 * 15_000**2)
    close = transfer_total_variation(base, tau, epsilon=epsilon)
    formula = base.delta(epsilon) + (1 + math.exp(epsilon)) * tau
    smaller = np.linspace(0, epsilon, 20_001)
    best = min(cv.gdp_delta(base.mu, smaller) + (1 + np.exp(smaller)) * tau)
    assert best * (1 - 1e-6) - 1e-15 <= close.delta(epsilon) <= min(1.0, formula * (1 + 1e-9))


def test_sup_norm_transfer():
    pure = exponential_guarantee(constants(), exponential_temperature(constants(), 1.0))
    close = transfer_sup_norm(pure, 0.005)
    assert close.epsilon(0.0) == pytest.approx(1 + math.log(1.005 / 0.995), rel=1e-8)
    assert close.kind == "pure"
    ranged = transfer_sup_norm(pure, 0.005, keep_range=True)
    assert ranged.kind == "bounded-range"
    assert ranged.epsilon(0.0) == pytest.approx(1 + 2 * math.log(1.005 / 0.995), rel=1e-8)
    assert (10 * ranged).epsilon(1e-6) < (10 * close).epsilon(1e-6)
    assert sup_norm_cost(0.0) == 0.0
    with pytest.raises(AssumptionFailed, match="below 1"):
        sup_norm_cost(1.0)
    with pytest.raises(AssumptionFailed, match="pure target"):
        transfer_sup_norm(gibbs_guarantee(constants(), 1e5), 0.01)
    with pytest.raises(AssumptionFailed, match="keep_range"):
        transfer_sup_norm(2 * pure, 0.01, keep_range=True)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), zeta=st.floats(0, 0.9))
def test_sup_norm_transfer_against_random_laws(seed, zeta):
    """Perturb both laws of an eps-DP pair by factors in [1 - zeta, 1 + zeta]: the ratio stays within the bound."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.ones(6))
    log_ratio_ = rng.uniform(-0.5, 0.5, 6)
    p = q * np.exp(log_ratio_)
    p /= p.sum()
    epsilon = np.max(np.abs(np.log(p / q)))
    for _ in range(5):
        a, b = (1 + zeta * rng.uniform(-1, 1, 6) for _ in range(2))
        p2, q2 = p * a, q * b
        # normalised perturbations only: renormalise and measure the realised factor
        p2, q2 = p2 / p2.sum(), q2 / q2.sum()
        realised = max(np.max(np.abs(p2 / p - 1)), np.max(np.abs(q2 / q - 1)))
        if realised < 1:
            assert np.max(np.abs(np.log(p2 / q2))) <= epsilon + sup_norm_cost(realised) + 1e-9


def test_capped_rejection_needs_a_pure_law():
    """Amendment 8."""
    pure = exponential_guarantee(constants(), 7500 * (1 - 1e-6))
    capped = cap_rejection(pure, 1e-7)
    assert capped.delta(1.0) == pytest.approx(1e-7)
    assert capped.epsilon(1e-7) == pytest.approx(1.0, rel=1e-5)
    with pytest.raises(AssumptionFailed, match="pure"):
        cap_rejection(gibbs_guarantee(constants(), 1e5), 1e-7)


def test_capped_rejection_by_enumeration():
    """Two laws, failure probabilities up to q with a fixed failure output: delta at eps is at most q."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        b = rng.dirichlet(np.ones(4))
        a = b * np.exp(rng.uniform(-0.5, 0.5, 4))
        a /= a.sum()
        epsilon, (qa, qb) = np.max(np.abs(np.log(a / b))), rng.uniform(0, 0.3, 2)
        p, q = np.append(a * (1 - qa), qa), np.append(b * (1 - qb), qb)
        assert np.sum(np.maximum(p - math.exp(epsilon) * q, 0)) <= max(qa, qb) + 1e-12


def test_links_of_approximate_guarantees_chain():
    """Vector 31: three links of (1, .001) chain to .0111073 = delta (1 + e + e^2), not .003."""
    p = [0.0, 0.0, 0.0, 0.001]
    for i in (2, 1, 0):
        p[i] = math.e * p[i + 1] + 0.001
    assert p[0] - math.exp(3) * p[3] == pytest.approx(0.0111073379, rel=1e-8)
