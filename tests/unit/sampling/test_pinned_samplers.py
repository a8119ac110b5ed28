"""Samplers and sums of records against values worked out by hand; statistical ones allow seven standard errors."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import gammainc
from scipy.stats import norm

from dplangevin.data import kernels
from dplangevin.data.dataset import _block_losses, check_shape
from dplangevin.errors import InvalidParameter
from dplangevin.problem.losses import Squared
from dplangevin.problem.losses.base import SlopeFormula
from dplangevin.sampling.envelopes import ScorePotential
from dplangevin.sampling.log_concave import sample_gamma_below, sample_truncated_normal
from dplangevin.sampling.rejection import flip_exponential_coins, sample_by_rejection
from dplangevin.sampling.supports import BallSupport, BoxSupport, LensSupport, WholeSpaceSupport

DRAWS = 20_000


def test_sizes_of_sets() -> None:
    assert BallSupport(dimension=3, radius=2.0).diameter == 4.0
    assert BoxSupport(low=np.zeros(2), high=np.array([3.0, 4.0])).diameter == pytest.approx(5.0)
    lens = LensSupport(center=np.array([0.25, 0.0]), outer=1.0, inner=0.3)
    assert lens.diameter == pytest.approx(0.6)
    assert lens.contains(np.array([[0.25, 0.25, -0.1], [0.29, 0.31, 0.0]])).tolist() == [True, False, False]
    # a nearly flat weight on the smaller ball: its area, or a little more
    area = math.log(math.pi * 0.09)
    assert area <= lens.log_mass_bounds(np.zeros(2), 1e-9)[1] <= area + 1e-3


def test_a_gaussian_on_the_whole_space() -> None:
    z = np.random.default_rng(0).standard_normal((2, 3))
    linear = np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 4.0]])
    found = WholeSpaceSupport(dimension=2).sample_gaussian(linear, 4.0, np.random.default_rng(0))
    np.testing.assert_allclose(found, linear / 4 + z / 2)


def test_truncated_draws() -> None:
    rng = np.random.default_rng(1)
    tail = sample_truncated_normal(np.zeros(DRAWS), 1.0, 2.0, 9.0, rng)
    mean = float(norm.pdf(2) / norm.sf(2))
    assert float(tail.mean()) == pytest.approx(mean, abs=7 * 0.35 / math.sqrt(DRAWS))
    middle = sample_truncated_normal(np.zeros(DRAWS), 1.0, -1.0, 1.5, rng)
    assert float(middle.max()) < 1.5
    narrow = sample_truncated_normal(np.zeros(DRAWS), 1.0, 0.0, 1.9, rng)
    mean = float((norm.pdf(0) - norm.pdf(1.9)) / (norm.cdf(1.9) - 0.5))
    assert float(narrow.mean()) == pytest.approx(mean, abs=7 * 0.6 / math.sqrt(DRAWS))
    below = sample_gamma_below(5.0, np.ones(DRAWS), rng)
    mean = 5 * float(gammainc(6, 1) / gammainc(5, 1))
    assert float(below.mean()) == pytest.approx(mean, abs=7 * 0.15 / math.sqrt(DRAWS))


def test_coins() -> None:
    """exp(-log 2) = 1/2; proposals of two kinds, accepted with 1/2 and 1: a third of the kept are of the first."""
    rng = np.random.default_rng(2)
    coins = flip_exponential_coins(np.full(DRAWS, 3 + math.log(2)), 3.0, rng)
    assert float(coins.mean()) == pytest.approx(0.5, abs=3.5 / math.sqrt(DRAWS))

    def propose(batch: int) -> tuple[np.ndarray, np.ndarray]:
        kinds = rng.integers(0, 2, batch)
        return kinds[None, :].astype(float), np.where(kinds == 0, -math.log(2), 0.0)

    kept, _ = sample_by_rejection(propose, 1, DRAWS, None, 1.0, rng)
    assert float((kept == 0).mean()) == pytest.approx(1 / 3, abs=3.5 / math.sqrt(DRAWS))


def test_flat_scores() -> None:
    """Threshold 1, ramp 2: 0 up to 1, then (u - 1)^2 / 4, from 3 on u - 2."""
    inner: Any = SimpleNamespace(smoothness=2.0, lipschitz=3.0, value=lambda x: x[0])
    score = ScorePotential(inner, floor=0.5, threshold=1.0, ramp=2.0)
    np.testing.assert_allclose(score.value(np.array([[1.0, 2.5, 3.5, 5.5]])), [0.0, 0.25, 1.0, 3.0])
    np.testing.assert_allclose(score.flat_slope(np.array([-1.0, 1.0, 2.0, 4.0])), [0.0, 0.5, 1.0, 1.0])
    assert score.smoothness == pytest.approx(2.0 + 9.0 / 2)


def test_weights_of_records_are_in_every_sum() -> None:
    block = SimpleNamespace(
        rows=np.array([[1.0, 0.0], [0.5, 0.5]]), labels=np.array([1.0, -1.0]), weights=np.array([0.5, 0.25])
    )
    problem = SimpleNamespace(n_columns=2)
    data: Any = SimpleNamespace(problem=problem, blocks=lambda: [block], check_row_count=lambda seen: None)
    both = kernels._sum_moments(data)
    np.testing.assert_allclose(both, [[0.5625, 0.0625, 0.375], [0.0625, 0.0625, -0.125]])
    # squared losses of residuals 2 - 1 and 1 + 1 at theta = (2, 0): 0.5 * 0.5 + 0.25 * 2
    total = _block_losses(Squared(), block, np.array([[2.0], [0.0]]), data)  # type: ignore[arg-type]
    assert float(total[0]) == pytest.approx(0.75)


def test_more_records_than_the_public_divisor_are_refused() -> None:
    problem: Any = SimpleNamespace(n=10, n_features=2, adjacency="add-remove", allow_more_rows=False)
    check_shape((10, 2), problem)
    with pytest.raises(InvalidParameter, match="more rows"):
        check_shape((11, 2), problem)


def test_moments_are_used_only_where_no_clip_acts() -> None:
    """|theta| row_norm + max |y| = 1 * 2 + 3 = 5."""
    problem = SimpleNamespace(n_columns=2, row_norm=2.0, bounds=SimpleNamespace(label_range=(-1.0, 3.0)))
    data: Any = SimpleNamespace(problem=problem)
    theta = np.array([[0.6], [0.8]])
    for clip, covered in ((5.1, True), (4.9, False)):
        law = SlopeFormula(kind="affine", scale=1.0, shift=0.0, low=-clip, high=clip)
        assert kernels.is_quadratic_on(data, law, theta) == covered
