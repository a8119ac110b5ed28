"""Noise of the largest norm: its law, its guarantee under attack, its errors, and where the search takes it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare, gamma, kstest

from dplangevin import account
from dplangevin.accounting.generalized_gaussian import single_delta
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms import GeneralizedGaussianMechanism
from dplangevin.mechanisms.mechanism import NoiseDraws
from dplangevin.mechanisms.noisy_answers.mechanism import MaxNormNoise
from dplangevin.mechanisms.noisy_answers.noise_choice import (
    CubeNoiseError,
    IndependentNoiseError,
    can_sample_norm_noise,
)
from dplangevin.mechanisms.noisy_answers.spec import MaxNormSpec, MaxNormTheorem
from dplangevin.sampling import exact_noise
from dplangevin.sampling.exact_noise import round_up_scale, sample_norm_noise
from dplangevin.sampling.float_noise import log_irwin_hall, make_cube_sampler


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


def noise(k: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """What is added to the answers, for scale 1; the grid is far below what is tested."""
    spec = MaxNormSpec(answers=k, changed=m, sensitivity=1.0, scale=1.0)
    return MaxNormNoise().release_answers(spec, [np.zeros(k)], NoiseDraws(rng=rng))[0]


@pytest.mark.parametrize(("k", "m", "method"), [(8, 6, "cube"), (40, 4, "simplex"), (60, 25, "tilted")])
def test_draws_follow_the_law(k: int, m: int, method: str) -> None:
    """Norm ~ Gamma(k), and the direction is uniform: fair signs, |u|_1 has its law. False alarms: 1e-4."""
    assert make_cube_sampler(k, float(m)).method == method
    rng = np.random.default_rng(5)
    x = np.array([noise(k, m, rng) for _ in range(2000)])
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


def test_the_guarantee_is_the_laplace_curve() -> None:
    certified = CertifiedSpec(spec=MaxNormSpec(answers=50, changed=50, sensitivity=2.0, scale=4.0), delta=0.0)
    guarantee = certified.guarantee
    assert guarantee.epsilon(0.0) == pytest.approx(0.5, rel=1e-9)
    assert guarantee.delta(0.2) == pytest.approx(-math.expm1(-0.15), rel=1e-6)
    assert guarantee.group(3).epsilon(0.0) == pytest.approx(1.5, rel=1e-9)
    twenty = 20 * guarantee  # far below 20 eps, and below what bounded range of 2 eps would give
    assert twenty.epsilon(1e-6) < 0.995 * (20 * 0.5**2 / 2 + math.sqrt(2 * 20 * 0.5**2 * math.log(1e6)))


def test_it_is_not_bounded_range() -> None:
    """Both +eps and -eps occur, so the range is 2 eps: eps^2/8-zCDP would be a false claim."""
    far = np.array([[50.0, 1.0], [-50.0, 1.0]])
    losses = norm(far, 2) - norm(far - np.array([1.0, 1.0]), 2)
    assert losses.tolist() == [1.0, -1.0]
    guarantee = CertifiedSpec(spec=MaxNormSpec(answers=2, changed=2, sensitivity=1.0, scale=1.0), delta=0.0)
    assert guarantee.guarantee.rdp([1.5])[0] > 1.5 / 8


def test_composed_losses_by_simulation() -> None:
    """Three releases of 20 counts: the simulated delta of the worst move is just below the guarantee."""
    rng = np.random.default_rng(11)
    k, scale, runs = 20, 2.0, 60_000
    guarantee = (
        3
        * CertifiedSpec(
            spec=MaxNormSpec(answers=k, changed=k, sensitivity=1.0, scale=scale), delta=0.0
        ).guarantee
    )
    total = np.zeros(runs)
    for _ in range(3):
        x = rng.standard_gamma(k + 1, (runs, 1)) * rng.uniform(-1, 1, (runs, k)) * scale
        total += (norm(x + 1, k) - norm(x, k)) / scale
    for epsilon in (0.3, 0.8):
        found = np.maximum(-np.expm1(epsilon - total), 0)
        error = 4 * found.std() / math.sqrt(runs)
        assert abs(found.mean() - guarantee.delta(epsilon)) < error + 1e-3


@pytest.mark.parametrize(("k", "laplace"), [(10, 29.29), (100, 518.7), (1000, 7485.5)])
def test_largest_error_of_a_pure_guarantee(k: int, laplace: float) -> None:
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


@pytest.mark.parametrize("delta", [1e-30, 1e-100])
def test_it_answers_where_delta_is_too_small_to_resolve(delta: float) -> None:
    ours = GeneralizedGaussianMechanism(k=1000, epsilon=1.0, delta=delta)
    assert ours.p == math.inf
    assert ours.guarantee.delta(1.0) <= delta
    assert ours.expected_maximum_error() == pytest.approx(1000, rel=1e-4)
    laplace = GeneralizedGaussianMechanism(k=1000, epsilon=1.0, delta=delta, p=1.0)
    assert laplace.guarantee.delta(1.0) <= delta


def test_the_search_leaves_it_where_it_loses() -> None:
    def shape(**options: Any) -> float:
        return GeneralizedGaussianMechanism(**({"epsilon": 1.0, "delta": 1e-6} | options)).p

    assert shape(k=10, delta=0.0, secure=True) == shape(k=10, secure=True) == math.inf
    assert shape(k=60, delta=0.0, changed_counts=9, secure=True) == math.inf
    assert shape(k=400, delta=0.0, changed_counts=130, secure=True) == 1.0  # its lattice is out of reach
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
    law, rng = CubeNoiseError(k, m), np.random.default_rng(k + m)
    x = np.abs([noise(k, m, rng) for _ in range(5000)])
    largest = x.max(axis=1)
    assert law.expected_maximum() == pytest.approx(largest.mean(), abs=4 * largest.std() / 70)
    assert np.mean(largest > law.maximum_quantile(0.05)) == pytest.approx(0.05, abs=4 * 0.0031)
    assert np.mean(x[:, 0] <= law.margin(0.9)) == pytest.approx(0.9, abs=4 * 0.0043)
    for q in (1.0, 2.0, 3.0):
        powers = x[:, 0] ** q
        assert law.power_mean(q) ** q == pytest.approx(powers.mean(), abs=4 * powers.std() / 70)
        assert np.mean((x**q).mean(axis=1) ** (1 / q)) <= law.power_mean(q) * 1.01
    if m == 1:
        plain = IndependentNoiseError(k, 1.0)
        assert law.expected_maximum() == pytest.approx(plain.expected_maximum(), rel=1e-6)
        assert law.margin(0.9) == pytest.approx(plain.margin(0.9), rel=1e-6)


def test_between_cube_and_laplace_it_is_better_than_both() -> None:
    for k, m in ((10, 3), (50, 6), (100, 30), (1000, 300)):
        found = CubeNoiseError(k, m).expected_maximum()
        assert found < k
        assert found < m * IndependentNoiseError(k, 1.0).expected_maximum()


def test_errors_in_other_norms() -> None:
    ours = GeneralizedGaussianMechanism(k=10, epsilon=1.0, delta=0.0)
    assert ours.expected_error(1.0) == pytest.approx(5.5, rel=1e-4)  # (k + 1) / 2
    assert ours.expected_error(math.inf) == pytest.approx(10, rel=1e-4)
    assert ours.standard_deviation == pytest.approx(math.sqrt(11 * 12 / 3), rel=1e-4)
    with pytest.raises(InvalidParameter, match="q must be at least 1"):
        ours.expected_error(0.5)


def test_refusals() -> None:
    for options in ({"k": 400, "changed_counts": 130}, {"k": 1_000_000}):
        with pytest.raises(InvalidParameter, match="too many rejections"):
            GeneralizedGaussianMechanism(epsilon=1.0, delta=0.0, p=math.inf, secure=True, **options)
    with pytest.raises(InvalidParameter, match="64-bit integers"):
        GeneralizedGaussianMechanism(k=100_000, epsilon=1e-9, delta=0.0, p=math.inf, secure=True)
    assert not can_sample_norm_noise(10_000_000, 2_000_000)
    with pytest.raises(InvalidParameter, match="too many rejections"):
        GeneralizedGaussianMechanism(
            k=10_000_000, epsilon=1.0, delta=0.0, p=math.inf, changed_counts=2_000_000
        )


def test_plain_data_and_the_accountant() -> None:
    import json

    ours = GeneralizedGaussianMechanism(k=10, epsilon=1.0, delta=0.0, sensitivity=3.0)
    assert json.loads(json.dumps(ours.to_dict(), allow_nan=False))["p"] == "inf"
    assert ours.sigma == pytest.approx(3.0, rel=1e-5)
    guarantee = account(mechanism="largest-norm", answers=10, scale=3.0, sensitivity=3.0, delta=0.0)
    assert guarantee.epsilon() == pytest.approx(1.0, rel=1e-9)
    assert "10 counts" in ours.describe()


# --- on whole numbers --------------------------------------------------------------------------------------------


def ceiled(x: np.ndarray, m: int) -> np.ndarray:
    return np.maximum(np.abs(x).max(axis=-1), -(-np.abs(x).sum(axis=-1) // m))


def lattice_law(k: int, m: int, t: float, half_width: int) -> tuple[np.ndarray, np.ndarray]:
    """All points of a box, and their probabilities."""
    axes = np.meshgrid(*[np.arange(-half_width, half_width + 1)] * k, indexing="ij")
    points = np.stack(axes, axis=-1).reshape(-1, k)
    weights = np.exp(-ceiled(points, m) / t)
    return points, weights / weights.sum()


def fits_of_law(k: int, m: int, t: float, count: int, *claimed: float) -> list[float]:
    """p-values of chi-square of draws with scale t against the laws with the scales `claimed`."""
    source, half_width = np.random.default_rng(1).bytes, int(24 * round_up_scale(t)) + 2
    draws = np.array([sample_norm_noise(k, m, t, source) for _ in range(count)])
    place = np.ravel_multi_index(tuple((draws + half_width).T), [2 * half_width + 1] * k)
    found = []
    for scale in claimed:
        points, law = lattice_law(k, m, round_up_scale(scale), half_width)
        seen, wanted = np.bincount(place, minlength=len(points)), count * law
        common = wanted > 10
        seen = np.append(seen[common], seen[~common].sum())
        wanted = np.append(wanted[common], wanted[~common].sum())
        found.append(float(chisquare(seen, wanted).pvalue))
    return found


@pytest.mark.parametrize(
    ("k", "m", "t"),
    [(1, 1, 2.3), (2, 2, 1.7), (2, 1, 1.4), (3, 2, 1.1), pytest.param(4, 2, 0.7, marks=pytest.mark.slow)],
)
def test_lattice_noise_has_its_law(k: int, m: int, t: float) -> None:
    """Chi-square over all points; an honest sampler fails once in 10,000 times. A scale 20% off is seen."""
    honest, wrong = fits_of_law(k, m, t, 3000, t, 1.2 * t)
    assert honest > 1e-4 > wrong


@pytest.mark.slow
@pytest.mark.parametrize(("k", "m"), [(2, 2), (5, 1)])
def test_lattice_noise_at_a_million_draws_and_its_tail(k: int, m: int) -> None:
    """Chi-square of (z_1, norm), and the share of norms beyond three deviations."""
    t, total, source = 2.6, 1_000_000, np.random.default_rng(k).bytes
    draws = np.array([sample_norm_noise(k, m, t, source) for _ in range(total)])
    norms = ceiled(draws, m)
    # the number of points of each norm: cube shells, or shells of the cross-polytope (m = 1)
    sizes = np.arange(400)
    ball = (
        (2.0 * sizes + 1) ** k
        if m == k
        else np.array(
            [sum(2.0**i * math.comb(k, i) * math.comb(int(j), i) for i in range(k + 1)) for j in sizes]
        )
    )
    law = np.diff(ball, prepend=0.0) * np.exp(-sizes / round_up_scale(t))
    law /= law.sum()
    common = total * law > 10
    seen = np.bincount(norms, minlength=400)
    observed = np.append(seen[common], seen[~common].sum())
    assert chisquare(observed, np.append(total * law[common], total * law[~common].sum())).pvalue > 1e-4
    mean = float(law @ sizes)
    edge = int(mean + 3 * math.sqrt(float(law @ (sizes - mean) ** 2)))
    assert binomtest(int((norms > edge).sum()), total, float(law[sizes > edge].sum())).pvalue > 1e-4
    assert abs((draws[:, 0] > 0).sum() - (draws[:, 0] < 0).sum()) < 4 * math.sqrt(total)


def test_every_lattice_coin_through_the_exact_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_noise, "DECISION_MARGIN", 2.0)
    honest, wrong = fits_of_law(2, 2, 0.8, 1000, 0.8, 1.1)
    assert honest > 1e-4 > wrong


@pytest.mark.parametrize(("k", "m"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_no_move_on_the_lattice_costs_more_than_was_promised(k: int, m: int) -> None:
    """Every point and every move of at most m answers by at most 2 steps, enumerated; half the noise is caught."""
    sensitivity, t = 2, 3.5
    spec = MaxNormSpec(answers=k, changed=m, sensitivity=sensitivity, scale=t, secure=True)
    guarantee = account_of(spec)
    assert guarantee.arithmetic == "discrete-grid"
    steps = np.stack(
        np.meshgrid(*[np.arange(-sensitivity, sensitivity + 1)] * k, indexing="ij"), axis=-1
    ).reshape(-1, k)
    moves = steps[(steps != 0).sum(axis=1) <= m]
    points = lattice_law(k, m, t, 8)[0]
    worst = max(int(np.abs(ceiled(points + move, m) - ceiled(points, m)).max()) for move in moves)
    assert worst / t <= guarantee.epsilon() <= worst / t * (1 + 1e-8)
    assert worst / (t / 2) > guarantee.epsilon()
    over = steps[(steps != 0).sum(axis=1) > m]  # moves of more answers than were stated are not covered
    assert all(int(np.abs(ceiled(points + move, m) - ceiled(points, m)).max()) >= worst for move in over)


def account_of(spec: MaxNormSpec) -> Any:
    return CertifiedSpec(spec=spec, delta=0.0).guarantee


def test_secure_counts_of_the_largest_norm_err_as_plain_ones_and_have_no_low_bits() -> None:
    """1000 releases of 10 counts: the mean of the largest error has a standard error of 1%."""
    for options in ({}, {"touched_counts": 2}):
        plain = GeneralizedGaussianMechanism(k=10, epsilon=1.0, delta=0.0, p=math.inf, **options)
        secure = GeneralizedGaussianMechanism(
            k=10, epsilon=1.0, delta=0.0, p=math.inf, secure=True, **options
        )
        assert secure.sigma == pytest.approx(plain.sigma, rel=1e-8)
        assert 1 - 2e-6 < secure.guarantee.epsilon() <= 1.0
        counts = np.arange(10)
        errors = np.array([secure.release(counts) for _ in range(1000)]) - counts
        steps = errors / secure.grid
        assert np.array_equal(steps, np.rint(steps))
        largest = np.abs(errors).max(axis=1)
        assert largest.mean() == pytest.approx(
            plain.expected_maximum_error(), abs=4 * largest.std() / math.sqrt(1000)
        )
        assert abs(np.mean(steps % 2) - 0.5) < 4 * 0.5 / math.sqrt(steps.size)
        # the low-bit attack: every output fits every neighbour
        assert all(float(y - 1) + 1 == y for y in (errors + counts).ravel())
    with pytest.raises(InvalidParameter, match="whole numbers"):
        secure.release(np.full(10, 1e-9))
    assert np.array_equal(secure.release(counts, 0), secure.release(counts, 0))  # seeded bytes


@pytest.mark.parametrize("shift", [1e-6, 0.0218, 0.4995, 1.0, 6.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-4, 0.01, 0.2, 0.5])
def test_one_laplace_answer_has_its_closed_form_at_every_delta(shift: float, delta: float) -> None:
    """1 - e^((eps - s) / 2) = delta, also where Gaussian noise of the same spread would cost nothing at all."""
    spec = MaxNormSpec(answers=4, changed=4, sensitivity=1.0, scale=1 / shift)
    found = MaxNormTheorem().certify(None, spec).epsilon(delta)
    exact = max(0.0, shift + 2 * math.log1p(-delta))
    assert exact <= found <= exact + 1e-14 * (shift + delta)
    part = MaxNormTheorem().certify(None, spec).parts[0]
    assert part.delta(found) <= delta * (1 + 1e-12) + 1e-15
    assert part.delta(0.5 * shift) == pytest.approx(single_delta(1.0, shift, 0.5 * shift), rel=1e-9)
