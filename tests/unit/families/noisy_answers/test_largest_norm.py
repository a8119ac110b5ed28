"""Noise of the largest norm: its law, its promise under attack, its errors, and where the search takes it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import gamma, kstest

from dplangevin import account
from dplangevin.errors import InvalidParameter
from dplangevin.families import GeneralizedGaussianMechanism
from dplangevin.families.noisy_answers.best_noise import within_reach
from dplangevin.families.noisy_answers.cube_error import CubeError
from dplangevin.families.noisy_answers.largest_norm import largest_norm_noise
from dplangevin.families.noisy_answers.maximum_error import IndependentError
from dplangevin.families.noisy_answers.schedule import LargestNormSchedule
from dplangevin.families.noisy_answers.theorems.largest_norm import LargestNormTheorem
from dplangevin.privacy.plan import Price
from dplangevin.samplers.cut_cube import cube_sampler, log_irwin_hall


def norm(x: np.ndarray, m: float) -> np.ndarray:
    return np.maximum(np.abs(x).max(axis=-1), np.abs(x).sum(axis=-1) / m)


def irwin_hall(k: int, t: float) -> float:
    """The alternating sum with 200 digits."""
    from mpmath import binomial, factorial, log, mp, mpf

    with mp.workdps(200):
        terms = [(-1) ** j * binomial(k, j) * (mpf(t) - j) ** k for j in range(int(t) + 1)]
        return float(log(sum(terms) / factorial(k)))


@pytest.mark.parametrize(
    ("k", "t"), [(1, 0.3), (5, 2.3), (30, 9.7), (31, 1.5), (31, 15.2), (100, 20.0), (100, 55.0), (300, 140.0)]
)
def test_volume_of_the_cut_cube(k: int, t: float) -> None:
    assert float(log_irwin_hall(k, t)[0]) == pytest.approx(irwin_hall(k, t), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("k", "m", "method"), [(8, 6, "cube"), (40, 4, "simplex"), (60, 25, "tilted")])
def test_draws_follow_the_law(k: int, m: int, method: str) -> None:
    """Norm ~ Gamma(k), and the direction is uniform: fair signs, |u|_1 has its law. False alarms: 1e-4."""
    assert cube_sampler(k, float(m)).method == method
    rng = np.random.default_rng(5)
    x = np.array([largest_norm_noise(k, m, rng) for _ in range(2000)])
    radius = norm(x, m)
    assert kstest(radius, gamma(k).cdf).pvalue > 1e-4
    sums = np.abs(x).sum(axis=1) / radius  # of points on the sphere
    fresh = rng.random((20_000, k))
    inside = fresh[fresh.sum(axis=1) <= m] if method == "cube" else cube_of(k, m, rng)
    other = np.abs(inside).sum(axis=1) / norm(inside, m)
    assert kstest(sums, other).pvalue > 1e-4
    assert abs((x > 0).mean() - 0.5) < 4 / math.sqrt(x.size)


def cube_of(k: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """Uniform points of the cut cube by hit-and-run, as a second way."""
    u, kept = np.full((2000, k), 0.5 * m / k), 40 * k
    for step in range(kept):
        i = step % k
        room = np.minimum(1.0, m - (u.sum(axis=1) - u[:, i]))
        u[:, i] = rng.random(len(u)) * room
    return u


@pytest.mark.parametrize("m", [2, 1])
def test_no_move_is_easier_to_see_than_a_laplace_one(m: int) -> None:
    """Hockey sticks in the plane by integration, random moves of the ball and its corners, in both directions."""
    rng = np.random.default_rng(3)
    axis = np.arange(-20, 20, 0.05) + 0.025
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    scale = 0.8
    density = np.exp(-norm(grid, m) / scale)
    total = density.sum()
    moves = (
        [np.array([1.0, 1.0]), np.array([1.0, 0.0])]
        if m == 2
        else [np.array([1.0, 0.0]), np.array([0.4, 0.6])]
    )
    for _ in range(4):
        v = rng.uniform(-1, 1, 2)
        moves.append(v / max(1.0, float(norm(v, m))))
    worst = 0.0
    for v in moves:
        moved = np.exp(-norm(grid - v, m) / scale)
        for epsilon in (0.0, 0.3, 0.8):
            for first, second in ((density, moved), (moved, density)):
                found = np.maximum(first - math.exp(epsilon) * second, 0).sum() / total
                worst = max(worst, found / -math.expm1((epsilon - 1 / scale) / 2))
    assert 0.99 < worst < 1.002


def test_the_promise_is_the_laplace_curve() -> None:
    price = Price(schedule=LargestNormSchedule(answers=50, changed=50, sensitivity=2.0, scale=4.0), delta=0.0)
    promise = price.guarantee
    assert promise.epsilon(0.0) == pytest.approx(0.5, rel=1e-9)
    assert promise.delta(0.2) == pytest.approx(-math.expm1(-0.15), rel=1e-6)
    assert promise.group(3).epsilon(0.0) == pytest.approx(1.5, rel=1e-9)
    twenty = 20 * promise  # far below 20 eps, and below what bounded range of 2 eps would give
    assert twenty.epsilon(1e-6) < 0.995 * (20 * 0.5**2 / 2 + math.sqrt(2 * 20 * 0.5**2 * math.log(1e6)))


def test_it_is_not_bounded_range() -> None:
    """Both +eps and -eps occur, so the range is 2 eps: eps^2/8-zCDP would be a false claim."""
    far = np.array([[50.0, 1.0], [-50.0, 1.0]])
    losses = norm(far, 2) - norm(far - np.array([1.0, 1.0]), 2)
    assert losses.tolist() == [1.0, -1.0]
    promise = Price(schedule=LargestNormSchedule(answers=2, changed=2, sensitivity=1.0, scale=1.0), delta=0.0)
    assert promise.guarantee.rdp([1.5])[0] > 1.5 / 8


def test_composed_losses_by_simulation() -> None:
    """Three releases of 20 counts: the simulated delta of the worst move is not above the promise, and close to it."""
    rng = np.random.default_rng(11)
    k, scale, runs = 20, 2.0, 60_000
    promise = (
        3
        * Price(
            schedule=LargestNormSchedule(answers=k, changed=k, sensitivity=1.0, scale=scale), delta=0.0
        ).guarantee
    )
    total = np.zeros(runs)
    for _ in range(3):
        x = rng.standard_gamma(k + 1, (runs, 1)) * rng.uniform(-1, 1, (runs, k)) * scale
        total += (norm(x + 1, k) - norm(x, k)) / scale
    for epsilon in (0.3, 0.8):
        found = np.maximum(-np.expm1(epsilon - total), 0)
        error = 4 * found.std() / math.sqrt(runs)
        assert abs(found.mean() - promise.delta(epsilon)) < error + 1e-3


@pytest.mark.parametrize(("k", "laplace"), [(10, 29.29), (100, 518.7), (1000, 7485.5)])
def test_largest_error_of_a_pure_promise(k: int, laplace: float) -> None:
    """Asked: 10, 100 and 1000 at epsilon 1, within 3%."""
    ours = GeneralizedGaussianMechanism(k=k, epsilon=1.0, delta=0.0)
    assert ours.p == math.inf
    assert ours.expected_maximum_error() == pytest.approx(k, rel=1e-5)
    rng = np.random.default_rng(k)
    found = [np.abs(ours.release(np.zeros(k), rng)).max() for _ in range(6000 if k < 50 else 400)]
    assert np.mean(found) == pytest.approx(k, rel=0.03)
    assert GeneralizedGaussianMechanism(
        k=k, epsilon=1.0, delta=0.0, p=1.0
    ).expected_maximum_error() == pytest.approx(laplace, rel=1e-3)


@pytest.mark.parametrize(("k", "best"), [(10, 24.56), (30, 53.4), (100, 110.37)])
def test_it_beats_every_shape_for_few_counts(k: int, best: float) -> None:
    ours = GeneralizedGaussianMechanism(k=k, epsilon=1.0, delta=1e-6)
    assert ours.p == math.inf
    assert ours.expected_maximum_error() == pytest.approx(k, rel=1e-4)
    assert k < best
    assert ours.guarantee.delta(1.0) <= 1e-6


def test_the_search_leaves_it_where_it_loses() -> None:
    def shape(**options: Any) -> float:
        return GeneralizedGaussianMechanism(**({"epsilon": 1.0, "delta": 1e-6} | options)).p

    assert shape(k=10, delta=0.0, secure=True) == 1.0
    assert shape(k=10, delta=0.0, changed_counts=1) == 1.0
    assert shape(k=1000, delta=0.0, touched_counts=1) == 1.0  # the gain is below half a percent
    assert shape(k=10, delta=0.0, touched_counts=2) == math.inf


@pytest.mark.slow
def test_the_crossing_with_a_delta() -> None:
    def shape(**options: Any) -> float:
        return GeneralizedGaussianMechanism(**({"epsilon": 1.0, "delta": 1e-6} | options)).p

    assert shape(k=120) == math.inf
    assert shape(k=135) < 4
    assert shape(k=10, objective="rmse") == math.inf


@pytest.mark.parametrize(("k", "m"), [(10, 1), (10, 4), (60, 20)])
def test_errors_against_simulation(k: int, m: int) -> None:
    """5000 draws; each comparison fails by chance once in 10,000 times."""
    law, rng = CubeError(k, m), np.random.default_rng(k + m)
    x = np.abs([largest_norm_noise(k, m, rng) for _ in range(5000)])
    largest = x.max(axis=1)
    assert law.expected_maximum() == pytest.approx(largest.mean(), abs=4 * largest.std() / 70)
    assert np.mean(largest > law.maximum_quantile(0.05)) == pytest.approx(0.05, abs=4 * 0.0031)
    assert np.mean(x[:, 0] <= law.margin(0.9)) == pytest.approx(0.9, abs=4 * 0.0043)
    for q in (1.0, 2.0, 3.0):
        powers = x[:, 0] ** q
        assert law.power_mean(q) ** q == pytest.approx(powers.mean(), abs=4 * powers.std() / 70)
        assert np.mean((x**q).mean(axis=1) ** (1 / q)) <= law.power_mean(q) * 1.01
    if m == 1:
        plain = IndependentError(k, 1.0)
        assert law.expected_maximum() == pytest.approx(plain.expected_maximum(), rel=1e-6)
        assert law.margin(0.9) == pytest.approx(plain.margin(0.9), rel=1e-6)


def test_between_cube_and_laplace_it_is_better_than_both() -> None:
    for k, m in ((10, 3), (50, 6), (100, 30), (1000, 300)):
        found = CubeError(k, m).expected_maximum()
        assert found < k
        assert found < m * IndependentError(k, 1.0).expected_maximum()


def test_errors_in_other_norms() -> None:
    ours = GeneralizedGaussianMechanism(k=10, epsilon=1.0, delta=0.0)
    assert ours.expected_error(1.0) == pytest.approx(5.5, rel=1e-4)  # (k + 1) / 2
    assert ours.expected_error(math.inf) == pytest.approx(10, rel=1e-4)
    assert ours.standard_deviation == pytest.approx(math.sqrt(11 * 12 / 3), rel=1e-4)
    with pytest.raises(InvalidParameter, match="q must be at least 1"):
        ours.expected_error(0.5)


def test_refusals() -> None:
    with pytest.raises(InvalidParameter, match="no secure form"):
        GeneralizedGaussianMechanism(k=3, epsilon=1.0, delta=0.0, p=math.inf, secure=True)
    assert not within_reach(10_000_000, 2_000_000)
    with pytest.raises(InvalidParameter, match="too many rejections"):
        GeneralizedGaussianMechanism(
            k=10_000_000, epsilon=1.0, delta=0.0, p=math.inf, changed_counts=2_000_000
        )


def test_plain_data_and_the_accountant() -> None:
    import json

    ours = GeneralizedGaussianMechanism(k=10, epsilon=1.0, delta=0.0, sensitivity=3.0)
    assert json.loads(json.dumps(ours.to_dict(), allow_nan=False))["p"] == "inf"
    assert ours.sigma == pytest.approx(3.0, rel=1e-5)
    promise = account(mechanism="largest-norm", answers=10, noise_scale=3.0, sensitivity=3.0, delta=0.0)
    assert promise.epsilon() == pytest.approx(1.0, rel=1e-9)
    assert "10 counts" in ours.describe()


@pytest.mark.parametrize("shift", [1e-6, 0.0218, 0.4995, 1.0, 6.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-4, 0.01, 0.2, 0.5])
def test_one_laplace_answer_has_its_closed_form_at_every_delta(shift: float, delta: float) -> None:
    """1 - e^((eps - s) / 2) = delta, also where Gaussian noise of the same spread would cost nothing at all."""
    schedule = LargestNormSchedule(answers=4, changed=4, sensitivity=1.0, scale=1 / shift)
    found = LargestNormTheorem().certify(None, schedule).epsilon(delta)
    exact = max(0.0, shift + 2 * math.log1p(-delta))
    assert found >= exact * (1 - 1e-12)
    assert found <= exact + 2e-6 * shift
