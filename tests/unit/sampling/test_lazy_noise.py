"""Exact pure noise: laws of its numbers, enclosures, and cells against rationals. False alarms: 1e-6 for a law."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dplangevin.accounting.plan import public_noise_grid
from dplangevin.sampling import lazy_noise
from dplangevin.sampling.lazy_noise import (
    CELL_BITS,
    LazyNoise,
    LazyNormals,
    add_rounded_gamma_noise,
    add_rounded_wishart_noise,
)

ALARM = 1e-6


def make_source(seed: int) -> Any:
    return np.random.default_rng(seed).bytes


def test_normals_and_their_last_digits() -> None:
    """The numbers are normal; their places in a cell are nearly uniform, and independent of the cell."""
    normals = LazyNormals(40_000, make_source(0))
    assert stats.kstest(normals.doubles(), "norm").pvalue > ALARM
    places = np.array([int(v) % (1 << 20) for v in normals.integers(CELL_BITS + 20)[:5000]])
    assert stats.kstest(places / (1 << 20), "uniform").pvalue > ALARM


@pytest.mark.parametrize("cell", [0, 1, -3])
def test_the_place_in_a_coarse_cell_has_the_conditional_law(
    cell: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells as wide as the noise, every coin decided in rationals; uniform places are caught."""
    monkeypatch.setattr(lazy_noise, "CELL_SCALE", math.sqrt(2.0) * 2.0)
    monkeypatch.setattr(lazy_noise, "sample_rounded_noise", lambda *_, **__: np.full(3000, cell))
    normals = LazyNormals(3000, make_source(cell + 5))
    places = (normals.integers(CELL_BITS + 40).astype(float) * 2.0**-40) - cell
    ends = stats.norm.cdf([(cell - 0.5) / 2, (cell + 0.5) / 2])

    def law(x: Any) -> Any:
        return (stats.norm.cdf((cell + x) / 2) - ends[0]) / (ends[1] - ends[0])

    assert stats.kstest(places, law).pvalue > ALARM
    if cell == -3:
        assert stats.kstest(places, "uniform", args=(-0.5, 1)).pvalue < ALARM


def test_more_digits_never_contradict_fewer() -> None:
    normals = LazyNormals(50, make_source(3))
    coarse = normals.integers(100)
    fine = normals.integers(400)
    assert ((fine >> 300) == coarse).all()
    gap = np.abs(np.array([float(Fraction(int(v), 1 << 400)) for v in fine]) - normals.doubles())
    assert (gap <= 2.0**-52 * (np.abs(normals.doubles()) + 2.0**-CELL_BITS)).all()


@pytest.mark.parametrize("size", [1, 2, 7])
def test_gamma_noise_has_the_norm_of_its_density(size: int) -> None:
    """|X| ~ Gamma(size, scale), and directions have no mean."""
    source = make_source(size)
    draws = np.array([LazyNoise(size, Fraction(3), "gamma", source).doubles() for _ in range(1500)])
    lengths = np.linalg.norm(draws, axis=1)
    assert stats.kstest(lengths, "gamma", args=(size, 0, 3.0)).pvalue > ALARM
    directions = (draws / lengths[:, None]).mean(axis=0)
    assert np.abs(directions).max() < 5 * math.sqrt(1 / size / len(draws)) * 1.1


@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
def test_enclosures_shrink_around_one_number(noise: str) -> None:
    for scale in (Fraction(1e-9), Fraction(0.3), Fraction(1e12)):
        drawn = LazyNoise(5, scale, noise, make_source(1))
        values, error = drawn.enclose(scale / (1 << 40))
        finer, fine_error = drawn.enclose(scale / (1 << 300))
        assert error <= 3
        assert fine_error <= 3
        for coarse, fine in zip(values, finer, strict=True):
            assert abs(int(coarse) - Fraction(int(fine), 1 << 260)) <= error + 1
        close = np.array([int(v) / (1 << 40) for v in values]) * float(scale)
        assert np.allclose(close, drawn.doubles(), rtol=1e-9, atol=float(scale) * 1e-10)


def test_gamma_releases_are_the_nearest_cells() -> None:
    """Against rationals of 300 digits of the same noise, for sums on finer and coarser units than the grid."""
    for unit in (Fraction(1), Fraction(1, 1 << 40), Fraction(1 << 4)):
        whole, scale = np.array([3, -5, 10**9]), Fraction(7.3)
        released = add_rounded_gamma_noise(whole, unit, scale, make_source(8))
        drawn, grid = LazyNoise(3, scale, "gamma", make_source(8)), Fraction(public_noise_grid(7.3))
        values, _ = drawn.enclose(grid / (1 << 300))
        for cell, v, exact in zip(released, values, whole, strict=True):
            number = int(exact) * unit + Fraction(int(v), 1 << 300) * grid
            assert abs(Fraction(float(cell)) - number) <= grid / 2 * (1 + Fraction(1, 1 << 200))
            assert cell / float(grid) == round(cell / float(grid))


def test_wishart_noise_has_its_moments() -> None:
    """Mean 0; variance p + 1 on the diagonal and half of that off it."""
    source, size, many = make_source(2), 3, 1500
    draws = np.array(
        [add_rounded_wishart_noise(np.zeros((size, size), int), Fraction(1), source) for _ in range(many)]
    )
    assert np.array_equal(draws, draws.transpose(0, 2, 1))
    variances = 2 * (size + 1) / 4 * np.where(np.eye(size) > 0, 2, 1)
    assert (np.abs(draws.mean(axis=0)) < 5.5 * np.sqrt(variances / many)).all()
    assert np.allclose(draws.var(axis=0), variances, rtol=0.35)
    # on the diagonal it is the difference of two Gamma((p + 1) / 2) numbers
    other = np.random.default_rng(0).gamma((size + 1) / 2, size=(2, 20_000))
    assert stats.ks_2samp(draws[:, 1, 1], other[0] - other[1]).pvalue > ALARM


def test_wishart_entries_in_doubles_are_those_in_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound so wide that integers decide every entry; numbers that are worse than their bound are caught."""
    whole = np.array([[2**50 + 1, 5, -7], [5, 3, 2**45], [-7, 2**45, 9]])
    expected = [add_rounded_wishart_noise(whole, Fraction(1000.7), make_source(k)) for k in range(10)]
    decided = []
    inner = lazy_noise._decide_wishart_entry
    monkeypatch.setattr(
        lazy_noise, "_decide_wishart_entry", lambda *given: decided.append(0) or inner(*given)
    )
    monkeypatch.setattr(lazy_noise, "FACTOR_ERROR", 2.0**-10)
    for k, released in enumerate(expected):
        assert np.array_equal(add_rounded_wishart_noise(whole, Fraction(1000.7), make_source(k)), released)
    assert len(decided) == 60
    monkeypatch.setattr(lazy_noise, "FACTOR_ERROR", 0.0)
    monkeypatch.setattr(LazyNormals, "doubles", lambda self: BLUNT(self).astype(np.float32).astype(float))
    assert any(
        not np.array_equal(add_rounded_wishart_noise(whole, Fraction(1000.7), make_source(k)), released)
        for k, released in enumerate(expected)
    )


BLUNT = LazyNormals.doubles


def test_digits_on_which_an_acceptance_rested_are_kept() -> None:
    """A place that is accepted keeps every digit that was revealed for it, while others are drawn again."""
    accepted: dict[int, int] = {}

    class Watched(LazyNormals):
        def _accept(self, index: np.ndarray) -> list[bool]:  # type: ignore[type-arg]
            digits = [self._reveal_digits(int(i), 256)[0] for i in index]
            decisions = [bool(accepted) or i % 2 == 0 for i in index]
            accepted.update({int(i): d for i, d, yes in zip(index, digits, decisions, strict=True) if yes})
            return decisions

    numbers = Watched(8, np.random.default_rng(5).bytes)
    assert len(accepted) == 8
    for i, digits in accepted.items():
        assert numbers._reveal_digits(i, 256)[0] == digits
