"""The lower-bound instance for losses that are not convex (T35), and the exponential mechanism on it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog

from dplangevin.accounting.plan import certify_plan
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.exponential.spec import ExponentialSpec, exponential_temperature
from dplangevin.papers.gallery.lower_bounds import PackedBumps
from dplangevin.sampling.rejection import sample_finite_grid


def test_minimum_sits_at_the_most_voted_centre():
    """T35: 2-D, width .25, 13 centres, 40k points."""
    bumps = PackedBumps.from_grid(dimension=2, width=0.25)
    assert bumps.centers.shape == (2, 13)
    rng = np.random.default_rng(0)
    votes = rng.random((20, 13)) < 0.4
    share = votes.mean(axis=0)
    theta = rng.uniform(-1, 1, (2, 40_000))
    theta = theta[:, np.linalg.norm(theta, axis=0) <= 1]
    nearest = np.argmin(np.linalg.norm(theta[:, None] - bumps.centers[:, :, None], axis=0), axis=0)
    values = bumps.mean_losses(theta, votes)
    assert np.all(values >= -0.25 * share[nearest] - 1e-12)
    assert bumps.min_mean_loss(votes) == pytest.approx(bumps.mean_losses(bumps.centers, votes).min())
    assert values.min() >= bumps.min_mean_loss(votes) - 1e-12


def test_the_printed_packing_breaks_the_claim():
    """Centres width apart (equilateral triangle, one vote each): the centroid is lower than every centre."""
    side = 0.25
    corners = np.array([[0.0, side, side / 2], [0.0, 0.0, side * math.sqrt(3) / 2]])
    with pytest.raises(InvalidParameter, match="overlap"):
        PackedBumps(centers=corners, width=side)
    depth = np.minimum(np.linalg.norm(corners - corners.mean(axis=1, keepdims=True), axis=0) / side - 1, 0)
    assert depth.sum() / 3 == pytest.approx(-0.42265, abs=1e-5)
    assert depth.sum() / 3 < -1 / 3


def test_records_are_one_lipschitz():
    bumps = PackedBumps.from_grid(dimension=2, width=0.25)
    rng = np.random.default_rng(1)
    votes = rng.random((1, 13)) < 0.5
    a, b = rng.uniform(-1, 1, (2, 5000)), rng.uniform(-1, 1, (2, 5000))
    rise = np.abs(bumps.mean_losses(a, votes) - bumps.mean_losses(b, votes))
    steep = (rise / np.linalg.norm(a - b, axis=0)).max()
    assert 0.9 < steep <= 1 + 1e-9


def test_hard_distribution():
    narrow = PackedBumps.from_grid(dimension=2, width=0.08)
    votes = narrow.sample_records(400, np.random.default_rng(2))
    assert votes.shape == (400, narrow.centers.shape[1])
    assert votes.mean(axis=0).std() > 0.2  # Beta(b, b) with b below 1 is spread out
    with pytest.raises(InvalidParameter, match="more than 30"):
        PackedBumps.from_grid(dimension=2, width=0.25).sample_records(5, np.random.default_rng(0))
    with pytest.raises(InvalidParameter, match="unit ball"):
        PackedBumps(centers=np.array([[2.0], [0.0]]), width=0.1)


def test_exponential_mechanism_on_the_instance():
    """Pure epsilon without convexity; its risk on the centres is at most log(s) / beta and falls like 1/n."""
    bumps = PackedBumps.from_grid(dimension=2, width=0.08)
    rng = np.random.default_rng(3)
    risks = []
    for n in (200, 800):
        constants = bumps.constants(n)
        beta = exponential_temperature(constants, 1.0)
        guarantee = certify_plan(constants, ExponentialSpec(inverse_temperature=beta, grid=2), delta=0.0)
        assert guarantee.epsilon() == pytest.approx(1.0, rel=1e-8)
        votes = bumps.sample_records(n, rng)
        scores = bumps.mean_losses(bumps.centers, votes)
        draws = scores[sample_finite_grid(beta * scores, 2000, rng)]
        risks.append(draws.mean() - bumps.min_mean_loss(votes))
        assert risks[-1] <= math.log(bumps.centers.shape[1]) / beta
    assert risks[1] < risks[0]


def smallest_worst_risk(n: int, size: int, epsilon: float, delta: float) -> float:
    """Solve for the best of all mechanisms: records vote for one of `size` centres or none; losses in units of width.

    The loss depends on the numbers of votes only, so the best mechanism does too (average over permutations); a
    point outside the centres' balls is never better than a centre.
    """
    tables = [t for t in itertools.product(range(n + 1), repeat=size) if sum(t) <= n]
    index = {table: i for i, table in enumerate(tables)}
    rows, limits = [], []
    events = [e for r in range(1, size) for e in itertools.combinations(range(size), r)]
    for table, i in index.items():
        row = np.zeros(len(tables) * size + 1)
        row[i * size : (i + 1) * size] = (max(table) - np.array(table)) / n
        row[-1] = -1.0
        rows.append(row)
        limits.append(0.0)
        for taken, given in itertools.permutations(
            range(-1, size), 2
        ):  # one record changes its vote; -1 is none
            other = np.array([*table, 0])  # the last entry, indexed by -1, absorbs votes for nothing
            other[taken] -= 1
            other[given] += 1
            if tuple(other[:-1]) not in index:
                continue
            j = index[tuple(other[:-1])]
            for event in events:
                row = np.zeros(len(tables) * size + 1)
                row[[i * size + o for o in event]] = 1.0
                row[[j * size + o for o in event]] = -math.exp(epsilon)
                rows.append(row)
                limits.append(delta)
    sums = np.kron(np.eye(len(tables)), np.ones(size))
    cost = np.zeros(len(tables) * size + 1)
    cost[-1] = 1.0
    solved = linprog(
        cost,
        np.array(rows),
        limits,
        np.hstack([sums, np.zeros((len(tables), 1))]),
        np.ones(len(tables)),
        (0, 1),
    )
    assert solved.status == 0
    return float(solved.fun)


@pytest.mark.parametrize(
    ("n", "size", "epsilon", "delta"),
    [
        (1, 3, 1.0, 0.0),
        (2, 3, 0.5, 0.0),
        (3, 3, 1.0, 0.0),
        (4, 3, 1.5, 0.0),
        (3, 3, 1.0, 0.05),
        (2, 4, 1.0, 0.01),
    ],
)
def test_no_mechanism_beats_the_lower_bound(n: int, size: int, epsilon: float, delta: float) -> None:
    """Against the best of ALL mechanisms, found by linear programming; a bound without e^(k eps) is refuted."""
    angles = 2 * math.pi * np.arange(size) / size
    bumps = PackedBumps(centers=0.9 * np.stack([np.cos(angles), np.sin(angles)]), width=0.5)
    best = smallest_worst_risk(n, size, epsilon, delta) * bumps.width
    bound = bumps.risk_lower_bound(n, epsilon, delta)
    assert 0 < bound <= best * (1 + 1e-7)
    assert bound >= 0.5 * best  # not vacuous: at least half of what the best mechanism attains
    pretends_no_growth = max(k * (size - 1) / size for k in range(1, n + 1)) * bumps.width / n
    assert pretends_no_growth > best


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_the_exponential_mechanism_is_above_the_lower_bound(dimension: int) -> None:
    """Its exact risk at the hard data, by radial quadrature, and within a factor of ten of what nobody can beat."""
    bumps, epsilon = PackedBumps.from_grid(dimension=dimension, width=1 / 8), 1.0
    size, n = bumps.centers.shape[1], 10_000
    ball = math.pi ** (dimension / 2) / math.gamma(dimension / 2 + 1)
    r = (np.arange(4000) + 0.5) / 4000 * bumps.width
    risks = []
    for votes in range(1, 200):
        # exp(-beta F), beta = eps n / (2 width) for the range of one record's loss
        density = np.exp(epsilon * votes / (2 * bumps.width) * (bumps.width - r)) * dimension * ball
        shells = density * r ** (dimension - 1) * bumps.width / 4000
        outside = ball - ball * bumps.width**dimension
        risks.append(votes / n * ((shells * r).sum() + outside * bumps.width) / (shells.sum() + outside))
    bound = bumps.risk_lower_bound(n, epsilon)
    assert bound <= max(risks) < 10 * bound
    assert bound >= 0.3 * bumps.width * math.log(size - 1) / (epsilon * n)
    assert bumps.risk_lower_bound(10 * n, epsilon) == pytest.approx(bound / 10)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 30.0, 699.0, 5000.0])
def test_extreme_lower_bounds(epsilon: float) -> None:
    """Between 0 and the width, falling in epsilon; at most e^-epsilon beyond what pure chance gives."""
    bumps = PackedBumps.from_grid(dimension=2, width=0.25)
    for n, delta in ((1, 0.0), (10**9, 0.0), (10**9, 1e-12)):
        bound = bumps.risk_lower_bound(n, epsilon, delta)
        assert 0 <= bound <= bumps.width
        assert bound >= bumps.risk_lower_bound(n, 2 * epsilon, delta) * (1 - 1e-3)
