"""Differences of Wishart matrices: exact density ratios, the law of what is drawn, the edge of the spectrum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dplangevin.planner.rules import PURE_EDGE_FACTOR
from dplangevin.sampling.float_noise import sample_wishart_difference


def log_density(eigenvalues: np.ndarray) -> np.ndarray:
    """log f of V - W in dimension 2, up to a constant, for pairs of eigenvalues.

    f(Z) = int exp(-tr A - tr(A - Z)) dA over A >= 0, A >= Z; for Z = diag(z) the entry off the diagonal of A has
    length 2 min(sqrt(a d), sqrt((a - z1)(d - z2))), and two integrals are left. u = t^2 takes the roots away.
    """
    t, weights = np.polynomial.legendre.leggauss(160)
    t, weights = 2.4 * (t + 1), 2.4 * weights * 2 * (2.4 * (t + 1))  # u up to 23
    u = t**2
    inner = np.exp(-2 * u) * weights
    found = np.empty(len(eigenvalues))
    for i, (first, second) in enumerate(eigenvalues):
        a, d = max(0.0, first) + u[:, None], max(0.0, second) + u
        length = 2 * np.sqrt(np.minimum(a * d, (a - first) * (d - second)))
        found[i] = math.log(inner @ length @ inner) - abs(first) - abs(second)
    return found


def test_log_density_is_lipschitz_in_the_nuclear_norm() -> None:
    """Exact ratios over random matrices and rows, both directions: at most |x|^2 for a row that comes, |x x' - y y'|_*
    for one that is replaced. Far from 0 they are reached."""
    rng = np.random.default_rng(0)
    turns, sizes = rng.uniform(0, math.pi, (2, 300)), np.sqrt(rng.uniform(0.2, 1, (2, 300)))
    turns[:, :60], sizes[:, :60] = np.array([[0.0], [math.pi / 2]]), 1.0
    at = rng.uniform(-1, 1, (300, 2)) * rng.choice([0.5, 3.0, 30.0], (300, 1))
    at[:30] = [30.0, -30.0]
    x, y = (
        size[:, None] * np.column_stack([np.cos(turn), np.sin(turn)])
        for size, turn in zip(sizes, turns, strict=True)
    )
    here = at[:, :, None] * np.eye(2)
    added, taken = (np.einsum("ni,nj->nij", row, row) for row in (x, y))
    base = log_density(at)
    for moved in (added, -taken, added - taken):
        change = log_density(np.linalg.eigvalsh(here + moved)) - base
        reach = np.abs(np.linalg.eigvalsh(moved)).sum(axis=1)
        assert (np.abs(change) <= reach + 2e-4).all()
        assert np.abs(change[:30] / reach[:30]).max() > 0.95
    assert np.abs(np.linalg.eigvalsh(added - taken)).sum(axis=1).max() <= 2


def test_the_noise_drawn_has_the_law_of_the_proof() -> None:
    """In dimension 1 it is Laplace; the trace is a difference of Gamma numbers of p (p + 1) / 2 each: KS at 1e-4."""
    rng = np.random.default_rng(1)
    ones = np.array([sample_wishart_difference(1, 0.7, rng)[0, 0] for _ in range(4000)])
    assert stats.kstest(ones, stats.laplace(scale=0.7).cdf).pvalue > 1e-4
    draws = np.array([sample_wishart_difference(3, 2.0, rng) for _ in range(4000)])
    np.testing.assert_array_equal(draws, draws.transpose(0, 2, 1))
    gammas = 2.0 * (rng.standard_gamma(6, 40_000) - rng.standard_gamma(6, 40_000))
    assert stats.ks_2samp(np.einsum("nii->n", draws), gammas).pvalue > 1e-4
    above = np.triu_indices(3, 1)
    flat = np.concatenate([np.einsum("nii->ni", draws), math.sqrt(2) * draws[:, above[0], above[1]]], axis=1)
    np.testing.assert_allclose(np.cov(flat.T) / 4, 4 * np.eye(6), atol=4 * 4 * math.sqrt(5 / 4000))


def test_the_edge_of_its_spectrum() -> None:
    found = (
        np.abs(np.linalg.eigvalsh(sample_wishart_difference(300, 1.0, np.random.default_rng(2)))).max() / 301
    )
    assert 0.93 * PURE_EDGE_FACTOR < found < 1.02 * PURE_EDGE_FACTOR
    u = math.sqrt(5) - 2
    assert pytest.approx((1 + u) / (2 * math.sqrt(u) * (1 - u)), abs=1e-4) == PURE_EDGE_FACTOR
