"""Ganesh, Thakurta and Upadhyay (2023), Table 2: the four cells, each measured where one of its terms dominates."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincc, gammaln

from dplangevin.accounting.conversions import zcdp_delta
from dplangevin.mechanisms.exponential.law_guarantees import log_sobolev_constant, threshold_sensitivity
from dplangevin.papers.gallery import _draw
from dplangevin.papers.gallery._draw import RateRow, slopes_figure
from dplangevin.papers.gallery.erm_rates import DELTA, RADIUS
from dplangevin.papers.gallery.sco_rates import sampling_error
from dplangevin.problem.constants import Constants

LIPSCHITZ = 2 * RADIUS  # of |theta - d|^2 / 2 on the ball
ROWS = (
    RateRow("empirical, eps", lambda n, p, e, k, rng: cone_excess(n, p, e), (-1, 1, -1)),
    RateRow("empirical, (eps, delta)", lambda n, p, e, k, rng: curved_excess(n, p, e), (-2, 1, -2)),
    RateRow(
        "population, eps, privacy rules",
        lambda n, p, e, k, rng: pure_excess(100 * n, p, e / 100),
        (-1, 1, -1),
    ),
    RateRow(
        "population, eps, sampling rules", lambda n, p, e, k, rng: pure_excess(n, p, 1e6 * e), (-1, 0, 0)
    ),
    RateRow(
        "population, (eps, delta), privacy rules",
        lambda n, p, e, k, rng: sampling_error(100 * n) + curved_excess(100 * n, p, e / 200),
        (-2, 1, -2),
    ),
    RateRow(
        "population, (eps, delta), sampling rules",
        lambda n, p, e, k, rng: sampling_error(n) + curved_excess(n, p, 1e4 * e),
        (-1, 0, 0),
    ),
)


def draw_rashomon_rates(output: Path, *, quick: bool) -> str:
    """Compute the excess risk over the threshold of every cell; all are integrals, so `quick` has no effect."""
    figure, fitted = slopes_figure(ROWS, 0, start=(20_000, 8, 0.25))
    _draw.save_figure(figure, output / "rashomon-rates.svg")
    _draw.write_table(output / "rashomon-rates.csv", *fitted.table())
    largest = max_threshold(20_000)
    return (
        "Draws of exp(-beta max(F, F* + psi)) in a ball of diameter 1: F a cone |theta| (first cell) or |theta - d|^2 "
        "/ 2, by exact integrals. Population cells are sums; each term is measured where it rules.\n"
        f"{fitted.sentences()}\n"
        "Agrees: all powers of the table.\n"
        "Differs: in the (epsilon, delta) column beta is proportional to epsilon^2 and psi is Delta^2 / (8 M), Delta = "
        f"2 L / n: at n = 20,000 that is psi = {largest:.2g}, a set too small to be useful. For larger thresholds the "
        "cost by a log-Sobolev inequality is at least e (beta psi)^2 (zCDP), so that only draws which mostly miss the "
        "set are affordable; the draws of this library use bounded range instead. The terms psi + L "
        "sqrt(psi / m) of the population row are an upper bound: a quadratic has psi alone."
    )


def cone_excess(n: int, p: int, epsilon: float) -> float:
    """F = |theta|, psi = p / (4 beta): E max(F, psi) - psi."""
    beta = epsilon * n / (2 * 2 * RADIUS)
    psi = p / (4 * beta)
    return mean_score(p, beta, psi, RADIUS) - psi


def pure_excess(n: int, p: int, epsilon: float) -> float:
    """F = |theta - d|^2 / 2, psi = p / (8 beta): excess over psi for new records."""
    beta = epsilon * n / (2 * LIPSCHITZ * 2 * RADIUS)
    psi = p / (8 * beta)
    return sampling_error(n) + mean_score(p / 2, beta, psi, RADIUS**2 / 2) - psi


def curved_excess(n: int, p: int, epsilon: float) -> float:
    """The same at the temperature of Theorem 2.7 with its constants, psi = Delta^2 / (8 M)."""
    constants = _problem_constants(n)
    psi = max_threshold(n)
    steep = threshold_sensitivity(constants, psi, LIPSCHITZ, interior_minimizers=True)
    target = _largest_rho(epsilon)

    def over(log_beta: float) -> float:
        beta = math.exp(log_beta)
        return math.log((beta * steep) ** 2 / (2 * log_sobolev_constant(beta, 1.0, psi)) / target)

    beta = math.exp(float(brentq(over, -20.0, 80.0, xtol=1e-12)))
    return mean_score(p / 2, beta, psi, RADIUS**2 / 2) - psi


def max_threshold(n: int) -> float:
    """Return the threshold up to which the table's (epsilon, delta) column holds: Delta^2 / (8 M)."""
    return (2 * LIPSCHITZ / n) ** 2 / 8


def mean_score(shape: float, beta: float, psi: float, top: float) -> float:
    """Return E max(s, psi) for s of density s^(shape - 1) e^(-beta max(s, psi)) on [0, top]."""
    x, end = beta * psi, beta * top

    def part(a: float) -> float:  # of e^x x^-a times the integral of t^(a - 1) e^(-t) from x to the end
        upper = float(gammaincc(a, x) - gammaincc(a, end))
        return math.exp(x - a * math.log(x) + float(gammaln(a))) * upper

    inside = 1 / shape
    outside, weighted = part(shape), part(shape + 1)
    return psi * (inside + weighted) / (inside + outside)


def _problem_constants(n: int) -> Constants:
    return Constants(n=n, lipschitz=LIPSCHITZ, smoothness=1.0, strong_convexity=1.0, diameter=2 * RADIUS)


def _largest_rho(epsilon: float) -> float:
    """Return the largest rho whose zCDP curve meets (epsilon, DELTA)."""
    log_rho = brentq(lambda u: math.log(max(zcdp_delta(math.exp(u), epsilon), 1e-300) / DELTA), -60.0, 12.0)
    return float(np.exp(log_rho))
