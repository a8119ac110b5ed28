"""Questions of the papers that are closed here, each by an exact computation."""

from __future__ import annotations

import math

import numpy as np
import pytest


@pytest.mark.parametrize(("steps", "ratio"), [(10, 0.8473), (100, 0.9600), (1000, 0.9958), (10_000, 0.9996)])
def test_averages_cost_as_much_as_the_path(steps: int, ratio: float) -> None:
    """|theta - x|^2 / 2, step size .1: exact mu^2 of the average over that of the path; the last stays at 19."""
    keep = 0.9
    # a unit shift in every step, unit noise in every step; the average of the iterates 1 .. K
    response = np.cumsum(keep ** np.arange(steps))[::-1] / steps  # of the noise of step 1, 2, ..., K
    average = response.sum() ** 2 / (response**2).sum()
    assert average / steps == pytest.approx(ratio, abs=2e-4)
    last = keep ** np.arange(steps)
    assert last.sum() ** 2 / (last**2).sum() <= 19.0 * (1 + 1e-12)


@pytest.mark.parametrize("n", [100, 10_000, 1_000_000])
def test_lemma_d_11_is_false_for_another_reason(n: int) -> None:
    """|theta - d|^2 / 2 with |d| <= 1: Gaussians of variance 1 / (beta M) at minimisers 2 apart, whatever n is."""
    beta, order, smoothness = 10.0, 2.0, 1.0
    exact = order * beta * smoothness * 2.0**2 / 2
    printed = order * (2 / n) * beta**2
    assert exact == 40.0
    assert exact > printed == pytest.approx(400 / n)


def test_theorem_f_2_fails_for_short_times() -> None:
    """(47) takes e^(m B_T) for e^(c sqrt T): with beta_t = t^a it holds at T = 2 only."""
    n, p, m, a = 1e6, 10, 0.1, 16.5
    time = 0.0012
    exponent = m * time ** (a + 1) / (a + 1)
    assert exponent < 1e-50  # the weights do not grow at all: nothing of the start is forgotten
    claimed = p * math.log(1e6) / (m * n**2)
    assert claimed < 1e-4 < 0.5 * m * 1.0 / math.expm1(exponent)


def test_lemma_31_holds_for_the_cone_measure() -> None:
    """|x_1|^p of the cone measure is Beta(1/p, (k - 1)/p), stochastically below Beta(1, (k - 1)/p)."""
    from scipy.stats import beta

    k, p = 10, 4
    levels = np.linspace(0.01, 0.99, 50)
    assert np.all(beta.sf(levels, 1 / p, (k - 1) / p) <= beta.sf(levels, 1, (k - 1) / p) + 1e-12)
    rng = np.random.default_rng(0)
    noise = rng.gamma(1 / p, size=(20_000, k))
    share = noise[:, 0] / noise.sum(axis=1)
    assert np.mean(share > 0.2) == pytest.approx(beta.sf(0.2, 1 / p, (k - 1) / p), abs=0.012)
