"""Privacy of exact sums with exact noise: enumerated laws of two adaptive steps, and the attack on low bits.

The honest run is not refuted; runs with less noise, longer rows or floating-point sums are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from dplangevin.accounting.plan import public_noise_grid
from dplangevin.data.exact_sums import RecordBlock, limit_rows, sum_gradients, sum_outer_products
from dplangevin.data.integer_grids import IntegerTransform, RowGrid, to_integers
from dplangevin.sampling.exact_noise import (
    add_rounded_gaussian_noise,
    gaussian_density_scale,
    sample_rounded_noise,
)

GRID = RowGrid(row_norm=1.0)
LINE = IntegerTransform(np.ones((1, 1)), 0.8, GRID)
"""One coordinate, and a bound that some rows are beyond."""


def clipped_residuals(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.clip(scores - labels, -1.0, 1.0)


def line_sum(records: list[tuple[float, float]], theta: float, extra: float = 1.0) -> int:
    """B' S in whole numbers of 2^exponents, for records (x, y); `extra` breaks the limits."""
    rows = np.array([[x] for x, _ in records])
    GRID.snap(rows)
    labels = np.array([y for _, y in records])
    limits = np.minimum(limit_rows(rows, None, 1.0, LINE) * extra, GRID.max_limit)
    block = RecordBlock(rows, labels, np.floor(limits))
    total = sum_gradients(iter([block]), clipped_residuals, 1.0, np.array([[theta]]), GRID)
    return int(LINE.apply_transpose(total).whole[0, 0])


def cell_chances(total: float, deviation: float, cells: np.ndarray, width: float) -> np.ndarray:
    """P(round((total + N(0, deviation^2)) / width) = cell)."""
    edges = (np.append(cells - 0.5, cells[-1] + 0.5) * width - total) / deviation
    return np.where(edges[1:] <= 0, np.diff(ndtr(edges)), -np.diff(ndtr(-edges)))


def two_step_law(
    records: list[tuple[float, float]], deviation: float, cells: np.ndarray, width: float, extra: float
) -> np.ndarray:
    """The joint law of two releases, the second at a point that the first one chose."""
    first = cell_chances(line_sum(records, 0.0, extra), deviation, cells, width)
    points = -3.0 * cells * width / deviation
    second = [cell_chances(line_sum(records, t, extra), deviation, cells, width) for t in points]
    return first[:, None] * np.array(second)


def gaussian_delta(mu: float, epsilon: float) -> float:
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def largest_ratio(
    multiplier: float, width: float, n_changed: int, noise: float = 1.0, extra: float = 1.0
) -> float:
    """The largest enumerated delta over the claimed one, over all pairs of a small domain."""
    bound = GRID.max_limit * LINE.bound * 2.0 ** -int(LINE.exponents[0])
    deviation = multiplier * bound * noise
    step = width * multiplier * bound
    cells = np.arange(-math.ceil(11 * deviation / step), math.ceil(11 * deviation / step) + 1)
    others = [(0.5, 0.2)]
    domain: list[list[tuple[float, float]]] = [[(x, y)] for x in (1.0, -1.0, 0.6, 0.05) for y in (9.0, -9.0)]
    laws = [
        two_step_law(others + extra_records, deviation, cells, step, extra)
        for extra_records in ([[]] if n_changed == 1 else []) + domain
    ]
    mu = math.sqrt(2) * n_changed / multiplier
    worst = 0.0
    pairs = itertools.permutations(range(len(laws)), 2)
    for i, j in (
        pairs
        if n_changed == 2
        else [(0, k) for k in range(1, len(laws))] + [(k, 0) for k in range(1, len(laws))]
    ):
        for epsilon in (0.1, 0.5, 1.0, 2.0):
            claimed = gaussian_delta(mu, epsilon)
            if claimed > 1e-6:
                delta = np.maximum(laws[i] - math.exp(epsilon) * laws[j], 0).sum()
                worst = max(worst, float(delta) / claimed)
    return worst


@pytest.mark.parametrize("n_changed", [1, 2])
@pytest.mark.parametrize(("multiplier", "width"), [(2.0, 0.25), (5.0, 0.5)])
def test_two_adaptive_steps_keep_the_claim_and_use_it(
    multiplier: float, width: float, n_changed: int
) -> None:
    """Exact laws on a coarse grid. Add-remove (1 changed record) and replace-one (2)."""
    honest = largest_ratio(multiplier, width, n_changed)
    assert 0.7 <= honest <= 1 + 1e-9
    assert largest_ratio(multiplier, width, n_changed, noise=0.9) > 1.1
    assert largest_ratio(multiplier, width, n_changed, extra=1.2) > 1.1


# the attack on low bits: which doubles can come out depends on the exact sum


def reachable(output: float, exact: float) -> bool:
    """Whether some double added to the exact sum gives this output."""
    noise = output - exact
    return any(exact + z == output for z in (noise, math.nextafter(noise, -9e9), math.nextafter(noise, 9e9)))


def moments_in_doubles(rows: np.ndarray) -> float:
    return float((rows.T @ rows)[0, 0]) / len(rows)


def gradients_in_doubles(rows: np.ndarray) -> float:
    return float((rows.T @ (1 / (1 + np.exp(-0.3 * rows)) - 1.0))[0, 0]) / len(rows)


def exact_moment(rows: np.ndarray) -> int:
    return int(to_integers(sum_outer_products(rows, GRID))[0, 0])


def exact_gradient(rows: np.ndarray) -> int:
    block = RecordBlock(rows, np.ones(len(rows)), GRID.max_limit)

    def slopes(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.asarray(1 / (1 + np.exp(-scores)) - labels)

    return int(to_integers(sum_gradients(iter([block]), slopes, 1.0, np.array([[0.3]]), GRID))[0, 0])


@pytest.mark.parametrize(
    ("in_doubles", "exactly", "unit"),
    [(moments_in_doubles, exact_moment, 2.0**40), (gradients_in_doubles, exact_gradient, 2.0**40)],
)
def test_low_bits_of_exact_releases_say_nothing(
    in_doubles: Callable[[np.ndarray], float], exactly: Callable[[np.ndarray], int], unit: float
) -> None:
    """Neighbours differ in one row and the attacker knows all others: certain about doubles, never about exact sums."""
    rng, runs, deviation = np.random.default_rng(31), 2000, 0.5
    ones = np.full((4, 1), 1 - 2.0**-40)
    other = ones.copy()
    other[0] = 0.0
    floating = [in_doubles(ones), in_doubles(other)]
    outputs = floating[1] + deviation * rng.standard_normal(runs)
    assert sum(not reachable(float(v), floating[0]) for v in outputs) > 0.01 * runs

    released = []
    for rows in (ones, other):
        GRID.snap(rows)
        whole = np.full(runs, exactly(rows))
        released.append(add_rounded_gaussian_noise(whole, np.asarray(0), deviation * 4 * unit, rng.bytes))
    step = public_noise_grid(gaussian_density_scale(deviation * 4 * unit))
    cells = [values / step for values in released]
    # every output is a cell that both tables can give, and the last bits have the same law
    assert all(np.array_equal(c, np.rint(c)) for c in cells)
    counts = [np.bincount(c.astype(np.int64) & 7, minlength=8) for c in cells]
    assert stats.chi2_contingency(counts).pvalue > 1e-4


# noise for exact rational offsets


@pytest.mark.parametrize("margin", [2.0**-40, 2.0])
def test_the_law_of_noise_with_exact_offsets(margin: float) -> None:
    """A margin of 2 sends every draw through the exact comparison, which must use the rational numbers."""
    size, fraction = 2000 if margin == 2 else 50_000, Fraction(5, 16) + Fraction(1, 2**90)
    rng = np.random.default_rng(32)
    misleading = (
        float(fraction) if margin < 1 else 0.9
    )  # what the doubles say plays no part where they do not decide
    draws = sample_rounded_noise(
        4.0, 2.0, size, np.full(size, misleading), rng.bytes, margin=margin, exact=lambda _: fraction
    )
    support = np.arange(-30, 31)
    chances = cell_chances(float(fraction), 4.0 / math.sqrt(2), support, 1.0)
    common = chances * size > 5
    seen = np.bincount(draws - support[0], minlength=len(support))[common]
    expected = chances[common] * seen.sum() / chances[common].sum()
    assert stats.chisquare(seen, expected).pvalue > 1e-4


def test_every_bit_below_the_grid_is_given_to_the_comparison(monkeypatch: Any) -> None:
    """Offsets of 1 - 2^-80 round to the double 1, and are decided as what they are."""
    given: list[Fraction] = []

    def watch(word: int, scale: float, p: float, offset: Fraction, guess: int, source: Any) -> int:
        given.append(offset)
        return guess

    from dplangevin.sampling import exact_noise

    monkeypatch.setattr(exact_noise, "_decide_cell", watch)
    monkeypatch.setattr(exact_noise, "DECISION_MARGIN", 2.0)
    fraction = 1 - Fraction(1, 2**80)
    exact_noise.sample_rounded_noise(
        4.0,
        2.0,
        3,
        np.array([float(fraction)] * 3),
        np.random.default_rng(1).bytes,
        margin=2.0,
        exact=lambda _: fraction,
    )
    assert {abs(v) for v in given} == {fraction}


def test_sums_of_any_size_are_released_on_the_public_grid() -> None:
    whole = np.array([[2**150 + 1, -(2**150)], [7, -7]], object)
    exponents = np.array([[0], [140]])
    deviation = 2.0**100
    first, second = (
        add_rounded_gaussian_noise(whole, exponents, deviation, np.random.default_rng(5).bytes)
        for _ in range(2)
    )
    assert np.array_equal(first, second)  # a seed gives the same release
    exact = np.array([[2.0**150, -(2.0**150)], [7 * 2.0**140, -7 * 2.0**140]])
    assert np.abs(first - exact).max() < 6 * deviation
    step = public_noise_grid(gaussian_density_scale(deviation))
    assert np.array_equal(first / step, np.rint(first / step))
    assert not np.array_equal(
        first, add_rounded_gaussian_noise(whole, exponents, deviation)
    )  # the system's bytes
    small = add_rounded_gaussian_noise(
        np.array([3, -4]), np.array([0, 2]), 5.0, np.random.default_rng(6).bytes
    )
    assert np.abs(small - [3, -16]).max() < 30
    assert add_rounded_gaussian_noise(np.zeros((0, 2), np.int64), np.zeros(2, int), 5.0).shape == (0, 2)


def test_two_representations_of_a_sum_give_the_same_release() -> None:
    """64-bit and Python integers, and any split between whole numbers and exponents."""
    whole = np.random.default_rng(7).integers(-(2**40), 2**40, 50)
    one, two, three = (
        add_rounded_gaussian_noise(w, np.asarray(e), 2.0**30, np.random.default_rng(8).bytes)
        for w, e in ((whole, 0), (whole.astype(object), 0), (whole.astype(object) << 70, -70))
    )
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)
