"""Ganesh, Thakurta and Upadhyay (2022), Table 1, rows ERM, and (2023), Table 2: measured slopes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.integrate import quad

from dplangevin._arrays import Floats
from dplangevin.accounting.conversions import gdp_mu
from dplangevin.mechanisms.exponential.stages import plan_stages
from dplangevin.papers.gallery import _draw
from dplangevin.papers.gallery._draw import RateRow, slopes_figure
from dplangevin.problem.constants import Constants
from dplangevin.problem.risk import langevin_strongly_convex_excess
from dplangevin.sampling.log_concave import sample_gamma_below, sample_unit_directions

DELTA, RADIUS, FAIL = 1e-6, 0.5, 1e-6


def draw_erm_rates(output: Path, *, quick: bool) -> str:
    """Measure the excess empirical risk of every row on an instance that its bound covers, with fitted slopes."""
    repeats = 200 if quick else 2000
    figure, fitted = slopes_figure(rate_rows(), repeats, start=(20_000, 8, 0.25))
    _draw.save_figure(figure, output / "erm-rates.svg")
    _draw.write_table(output / "erm-rates.csv", *fitted.table())
    return (
        "Each row is measured on an instance that its bound is about (a cone |theta|, a quadratic, a pit in a plateau, "
        f"a thresholded cone) in a ball of diameter 1, by exact draws or fine Euler steps, {repeats} repetitions a "
        "point. Slopes are fitted on a log-log scale from n = 20,000, p = 8, epsilon = 0.25 upwards.\n"
        f"{fitted.sentences()}\n"
        "Agrees: the powers, up to the logarithms that the table prints (the iterated mechanism's p^2 + p log n is "
        "nearer to p at small p; mu grows a little slower than epsilon; and the "
        "cone's diffusion saturates in p where p / beta is no longer small against the radius).\n"
        "Differs: the constants that the text leaves open decide what is private. beta = epsilon n / (L |C|) as "
        "printed is 2 epsilon-DP under replacement; the draws here use epsilon n / (2 L |C|). In the second table's "
        "(epsilon, delta) column beta must be proportional to epsilon^2, and the row holds only for thresholds up to "
        "about L^2/(M n^2), with minimisers in the interior."
    )


def rate_rows() -> tuple[RateRow, ...]:
    """Return the rows of the tables."""
    return (
        RateRow("ERM convex, eps", cone_exponential, (-1, 1, -1)),
        RateRow("ERM m-SC, eps (iterated)", iterated_exponential, (-2, 2, -2)),
        RateRow("ERM non-convex, eps", worst_plateau, (-1, 1, -1)),
        RateRow("ERM convex, (eps, delta)", cone_diffusion, (-1, 0.5, -1)),
        RateRow("ERM m-SC, (eps, delta)", strongly_convex_diffusion, (-2, 1, -2)),
        RateRow("Rashomon, eps", thresholded_gibbs, (-1, 1, -1)),
    )


def cone_exponential(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """F = |theta|: the radius has density r^{p-1} e^{-beta r} on [0, R]."""
    beta = epsilon * n / (2 * 2 * RADIUS)
    radii = sample_gamma_below(p, np.full(repeats, beta * RADIUS), rng) / beta
    return float(np.mean(radii))


def iterated_exponential(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """F = |theta|^2 / 2 on the ball, by the stages of the iterated exponential mechanism."""
    lipschitz = 2 * RADIUS
    constants = Constants(
        n=n, lipschitz=lipschitz, smoothness=1.0, strong_convexity=1.0, diameter=2 * RADIUS, dimension=p
    )
    stages = plan_stages(constants, epsilon, FAIL, lipschitz).stages
    centres, radius = np.zeros((p, repeats)), RADIUS
    for stage in stages:
        centres = _gaussian_in_ball(centres, radius, stage.inverse_temperature, rng)
        radius = stage.radius
    return float(np.mean(np.sum(centres**2, axis=0)) / 2)


def _gaussian_in_ball(centres: Floats, radius: float, beta: float, rng: np.random.Generator) -> Floats:
    """Sample exp(-beta |theta|^2 / 2) on the balls of radius `radius` around the centres, by rejection.

    Around 0 (the first stage) the radius is drawn exactly; later balls contain nearly all of the mass.
    """
    p, repeats = centres.shape
    if not centres.any():
        squares = sample_gamma_below(p / 2, np.full(repeats, beta * radius**2 / 2), rng) * 2 / beta
        return np.asarray(np.sqrt(squares) * sample_unit_directions(p, repeats, rng))
    samples, pending = np.empty_like(centres), np.arange(repeats)
    while pending.size:
        proposals = rng.standard_normal((p, pending.size)) / math.sqrt(beta)
        inside = np.linalg.norm(proposals - centres[:, pending], axis=0) <= radius
        samples[:, pending[inside]] = proposals[:, inside]
        pending = pending[~inside]
    return samples


def worst_plateau(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """F = min(|theta|, x) with the worst plateau x: the expectation is an integral, no draws are needed."""
    beta = epsilon * n / (2 * 2 * RADIUS)

    def expected_loss(x: float) -> float:
        weight = _radial_integral(p, lambda r: -beta * min(r, x), x)
        return _radial_integral(p, lambda r: -beta * min(r, x), x, lambda r: min(r, x)) / weight

    levels = np.geomspace(p / beta, min(RADIUS, 200 * p / beta), 60)
    return max(expected_loss(float(x)) for x in levels)


def _radial_integral(
    p: int,
    log_weight: Callable[[float], float],
    knot: float,
    factor: Callable[[float], float] = lambda r: 1.0,
) -> float:
    """Integral of factor(r) r^{p-1} e^{log_weight(r)} / R^{p-1} over [0, R], split at the knot."""

    def integrand(r: float) -> float:
        return factor(r) * math.exp((p - 1) * math.log(max(r, 1e-300) / RADIUS) + log_weight(r))

    knot = min(knot, RADIUS)
    inner = quad(integrand, 0.0, knot, limit=200, epsabs=0.0, epsrel=1e-9)[0]
    return float(inner + quad(integrand, knot, RADIUS, limit=200, epsabs=0.0, epsrel=1e-9)[0])


def cone_diffusion(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """F = |theta|, start at distance R, T = R^2/(2p), beta = mu n / (L sqrt(2 T)): loss of the time average."""
    time = RADIUS**2 / (2 * p)
    beta = gdp_mu(epsilon, DELTA) * n / 100 / math.sqrt(2 * time)  # n / 100: the same slopes, fewer steps
    steps = int(min(20_000, max(200, 6 * time * beta**2 / p)))
    step, count = time / steps, max(20, repeats // 20)
    theta = np.zeros((count, p))
    theta[:, 0] = RADIUS
    total = np.zeros_like(theta)
    for _ in range(steps):
        norm = np.linalg.norm(theta, axis=1, keepdims=True)
        theta = theta * (1 - np.minimum(step * beta / np.maximum(norm, 1e-300), 1.0))
        theta += math.sqrt(2 * step) * rng.standard_normal(theta.shape)
        theta *= np.minimum(1.0, RADIUS / np.linalg.norm(theta, axis=1, keepdims=True))
        total += np.linalg.norm(theta, axis=1, keepdims=True)
    return float(np.mean(total[:, 0])) / steps


def strongly_convex_diffusion(
    n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator
) -> float:
    """F = |theta|^2 / 2 from distance R: exact Ornstein-Uhlenbeck steps, weights d e^{beta t}."""
    sensitivity = 2 * 2 * RADIUS / n
    beta, time, _ = langevin_strongly_convex_excess(p, gdp_mu(epsilon, DELTA), sensitivity, RADIUS, 1.0)
    steps = 400
    decay = math.exp(-beta * time / steps)
    spread = math.sqrt((1 - decay**2) / beta)
    theta = np.zeros((repeats, p))
    theta[:, 0] = RADIUS
    total, weights = np.zeros_like(theta), 0.0
    for k in range(1, steps + 1):
        theta = decay * theta + spread * rng.standard_normal(theta.shape)
        weight = math.exp(beta * time * (k / steps - 1))
        total, weights = total + weight * theta, weights + weight
    return float(np.mean(np.sum((total / weights) ** 2, axis=1)) / 2)


def thresholded_gibbs(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """Return a lower bound E F - F* - psi on the excess of exp(-beta max(|theta|, psi)), psi = p / (4 beta)."""
    beta = epsilon * n / (2 * 2 * RADIUS)
    psi = p / (4 * beta)
    weight = _radial_integral(p, lambda r: -beta * max(r, psi), psi)
    above = _radial_integral(p, lambda r: -beta * max(r, psi), psi, lambda r: max(r, psi))
    return above / weight - psi
