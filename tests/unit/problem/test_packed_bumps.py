"""The lower-bound instance for losses that are not convex (T35), and the exponential mechanism on it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplangevin.accounting.plan import certify_plan
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.exponential.law_guarantees import exponential_temperature
from dplangevin.mechanisms.exponential.spec import ExponentialSpec
from dplangevin.problem.packed_bumps import PackedBumps
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
