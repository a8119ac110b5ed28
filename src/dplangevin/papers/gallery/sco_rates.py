"""Ganesh, Thakurta and Upadhyay (2022), Table 1, rows SCO: measured slopes of excess population risk."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from scipy.special import gammainc, ndtri

from dplangevin.accounting.conversions import gdp_mu
from dplangevin.papers.gallery import _draw
from dplangevin.papers.gallery._draw import RateRow, slopes_figure
from dplangevin.papers.gallery.erm_rates import (
    DELTA,
    RADIUS,
    iterated_exponential,
    strongly_convex_diffusion,
)
from dplangevin.problem.risk import (
    langevin_convex_population_excess,
    regularized_exponential_ridge,
    regularized_gibbs_ridge,
)


def draw_sco_rates(output: Path, *, quick: bool) -> str:
    """Measure population risk where sampling error dominates (large epsilon) and where privacy does (small epsilon)."""
    repeats = 200 if quick else 2000
    figure, fitted = slopes_figure(rate_rows(), repeats, start=(4000, 8, 1.0))
    _draw.save_figure(figure, output / "sco-rates.svg")
    _draw.write_table(output / "sco-rates.csv", *fitted.table())
    bound = langevin_convex_population_excess(20, gdp_mu(1.0, DELTA), 30_000, 1.0, 2.0)
    return (
        "Excess population risk on linear losses -<theta, d> over a ball (convex) and |theta - d|^2 / 2 (strongly "
        f"convex), {repeats} repetitions a point or exact sums. Every bound of these rows is a sum of a sampling term "
        "and a privacy term; each is measured where it rules (n times 100 and epsilon scaled down, or epsilon up).\n"
        f"{fitted.sentences()}\n"
        "Agrees: n^-1/2 and n^-1 where sampling rules, the powers of the table where privacy rules (slopes lie between "
        "the two where both matter).\n"
        f"Differs: the bounds come without constants. With them, convex (epsilon, delta) risk is at most 2 L D "
        f"sqrt(p/(mu n)^2 + 1/n), {bound:.4f} at n = 30,000, p = 20, D = 2, (1, 1e-6). For the iterated mechanism the "
        "stability of the last stage is applied to a set that depends on the data: its population bound is indicative."
    )


def rate_rows() -> tuple[RateRow, ...]:
    """Return the rows of the table, each where one of its terms dominates."""
    return (
        RateRow("convex, eps, privacy rules", lambda n, p, e, k, rng: linear_pure(100 * n, p, e / 1000), (-1, 1, -1)),
        RateRow("convex, eps, sampling rules", lambda n, p, e, k, rng: linear_pure(n, p, 30 * e), (-0.5, 0, 0)),
        RateRow("convex, (eps, delta), privacy rules",
            lambda n, p, e, k, rng: linear_gibbs(100 * n, p, e / 400), (-1, 0.5, -1)),
        RateRow("m-SC, eps, privacy rules",
            lambda n, p, e, k, rng: quadratic_pure(100 * n, p, e / 12, k, rng), (-2, 2, -2)),
        RateRow("m-SC, sampling rules", lambda n, p, e, k, rng: quadratic_pure(n, p, 400 * e, k, rng), (-1, 0, 0)),
        RateRow("m-SC, (eps, delta), privacy rules",
            lambda n, p, e, k, rng: quadratic_gaussian(100 * n, p, e / 200, k, rng), (-2, 1, -2)),
    )  # fmt: skip


def linear_pure(n: int, p: int, epsilon: float) -> float:
    """Regularised exponential mechanism, beta = eps n / (2 L diam), ridge 2 L / (R sqrt n)."""
    return _worst_linear_excess(
        n, p, epsilon * n / (4 * RADIUS), regularized_exponential_ridge(1.0, RADIUS, n)
    )


def linear_gibbs(n: int, p: int, epsilon: float) -> float:
    """Gibbs law with an added ridge, beta = m mu^2 / Delta^2."""
    mu, sensitivity = gdp_mu(epsilon, DELTA), 2.0 / n
    ridge, _ = regularized_gibbs_ridge(p, mu, sensitivity, RADIUS, 2.0 / n)
    return _worst_linear_excess(n, p, ridge * (mu / sensitivity) ** 2, ridge)


def _worst_linear_excess(n: int, p: int, beta: float, ridge: float) -> float:
    """F = -<theta, mean d> + ridge |theta|^2 / 2, d = +-e_1: worst excess over the strength of the signal E d.

    The first coordinate has density e^{beta (a d - ridge a^2 / 2)} times an incomplete gamma function (the other
    coordinates, integrated over what the ball leaves them), so that its mean is a sum over a fine grid.
    """
    places = RADIUS * np.linspace(-1, 1, 4001)[1:-1]
    tail_mass = gammainc((p - 1) / 2, beta * ridge * (RADIUS**2 - places**2) / 2)
    base = np.log(np.maximum(tail_mass, 1e-300)) - beta * ridge * places**2 / 2
    quantiles = ndtri((np.arange(32) + 0.5) / 32) / math.sqrt(n)  # the mean of n signs, as a normal
    worst = 0.0
    for signal in np.geomspace(0.3 / math.sqrt(n), 0.9, 24):
        total = 0.0
        for noise in quantiles:
            logs = base + beta * places * (signal + noise)
            weights = np.exp(logs - logs.max())
            total += float(np.sum(weights * (RADIUS - places)) / np.sum(weights))
        worst = max(worst, float(signal) * total / len(quantiles))
    return worst


def quadratic_pure(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """Iterated exponential mechanism: the error of the sample mean and that of the draw add up."""
    return sampling_error(n) + iterated_exponential(n, p, epsilon, repeats, rng)


def quadratic_gaussian(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """Return the risk of the weighted average of the diffusion; its privacy term dominates at these epsilon."""
    return sampling_error(n) + strongly_convex_diffusion(n, p, epsilon, repeats, rng)


def sampling_error(n: int) -> float:
    """Return E |mean of n - mean|^2 / 2 for points on the sphere of radius R/2."""
    return (RADIUS / 2) ** 2 / (2 * n)
