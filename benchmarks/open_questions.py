"""Measure what is known about three open questions of the papers, with exact laws on grids; prints Markdown tables.

Usage: python benchmarks/open_questions.py [double-well | plateau | underdamped]

double-well: Altschuler and Talwar (2022), section 5: does privacy level off without convexity?
plateau: the constant between bound and exact walk on the plateau of their Theorem 1.3, over n, b, sigma and T.
underdamped: Ganesh, Thakurta and Upadhyay (2022), section 1.4: is a velocity faster at equal privacy?
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from scipy.optimize import brentq

from dplangevin import account, lower_bound_epsilon
from dplangevin._arrays import Floats
from dplangevin.accounting.conversions import gdp_epsilon
from dplangevin.mechanisms.noisy_gradient.theorems.dobrushin import dobrushin_rdp
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import hull_energy

DELTA, POINTS = 1e-6, 601
STEPS = (1, 3, 10, 30, 100, 300, 1000, 3000)


def kernel(centers: Floats, grid: Floats, noise: float) -> Floats:
    """Return the transition matrix of x -> clip(center(x) + N(0, noise^2)) between the cells of the grid."""
    from scipy.special import ndtr

    edges = np.concatenate([[-np.inf], (grid[1:] + grid[:-1]) / 2, [np.inf]])
    return np.asarray(np.diff(ndtr((edges[None, :] - centers[:, None]) / noise), axis=1))


def exact_epsilon(first: Floats, second: Floats) -> float:
    """Return the epsilon of two discrete laws at DELTA, the worse direction."""

    def excess(epsilon: float) -> float:
        gaps = (
            np.maximum(first - np.exp(epsilon) * second, 0).sum(),
            np.maximum(second - np.exp(epsilon) * first, 0).sum(),
        )
        return float(max(gaps)) - DELTA

    return float(brentq(excess, 0.0, 60.0, xtol=1e-6)) if excess(0.0) > 0 else 0.0


def double_well() -> str:
    """Walks in F = -kappa x^2 / 2 + x^4 / 4 on [-2, 2]: exact epsilon, and the bounds with contraction 1 + a kappa."""
    lines = ["| kappa | noise | " + " | ".join(f"T = {t}" for t in STEPS) + " |"]
    lines.append("|---|---|" + "---|" * len(STEPS))
    rate, shift = 0.05, 0.01
    grid = np.linspace(-2, 2, POINTS)
    for kappa in (0.0, 0.5, 1.0):
        drift = grid - rate * (grid**3 - kappa * grid)
        for noise in (0.05, 0.1, 0.2):
            walks = [kernel(drift + sign * shift / 2, grid, noise) for sign in (1, -1)]
            laws = [np.eye(POINTS)[POINTS // 2] for _ in walks]
            cells, step = [], 0
            for target in STEPS:
                while step < target:
                    laws = [law @ walk for law, walk in zip(laws, walks, strict=True)]
                    step += 1
                bound = bound_on_well(kappa, noise, rate, shift, target)
                cells.append(f"{exact_epsilon(*laws):.3f} / {bound:.3g}")
            lines.append(f"| {kappa} | {noise} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def bound_on_well(kappa: float, noise: float, rate: float, shift: float, steps: int) -> float:
    """Return the smaller of composition, the best shifts with expansions, and the Dobrushin recursion."""
    contraction = 1 + rate * kappa
    composed = gdp_epsilon(shift / noise * np.sqrt(steps), DELTA)
    bounds = [composed]
    if steps <= 1000:
        energy = hull_energy(np.full(steps, shift), np.full(steps, noise), np.full(steps, contraction))
        bounds.append(gdp_epsilon(float(np.sqrt(energy)), DELTA))
    orders = np.array([1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 32.0, 64.0])
    values = dobrushin_rdp(shift, noise, 4 * contraction, steps, orders)
    bounds.append(float(np.min(values + np.log(1 / DELTA) / (orders - 1))))
    return float(min(bounds))


def plateau() -> str:
    """Bound and attained epsilon of noisy SGD on linear losses, at 10^6 steps."""
    lines = ["| n | b | noise | diameter | bound | attained | ratio |", "|---|---|---|---|---|---|---|"]
    for n, batch, noise, diameter in (
        (1000, 50, 0.4, 1.0), (1000, 50, 0.4, 0.1), (1000, 50, 2.0, 1.0), (1000, 200, 0.4, 1.0), (10_000, 50, 0.4, 1.0),
        (10_000, 500, 0.1, 1.0), (1000, 1000, 0.05, 1.0), (1000, 1000, 0.05, 0.1),
    ):  # fmt: skip
        sampling = {"sampling": "without-replacement", "batch_size": batch} if batch < n else {}
        run: dict[str, Any] = dict(
            n=n, lipschitz=1.0, smoothness=1e-9, diameter=diameter, step_size=0.1, noise_std=noise, n_steps=10**6,
            delta=DELTA, **sampling,
        )  # fmt: skip
        bound, attained = account(**run).epsilon(), lower_bound_epsilon(**run)
        ratio = bound / attained if attained else float("inf")
        lines.append(f"| {n} | {batch} | {noise} | {diameter} | {bound:.4g} | {attained:.4g} | {ratio:.2f} |")
    return "\n".join(lines)


def underdamped() -> str:
    """Gaussian laws on F = m x^2 / 2: E F at equal mu of the whole path, with and without a velocity.

    Overdamped: dx = -beta m x dt + sqrt(2) dW from 1. Underdamped: dx = v dt, dv = -(2 v + beta u m x) dt + sqrt(4 u)
    dW, friction 2, inverse mass u; a gradient error Delta shifts the drift by beta Delta or by beta u Delta, so mu^2 is
    beta^2 Delta^2 T / 2 and beta^2 u Delta^2 T / 4. Shown: E F at the best time and temperature, Delta = m = 1.
    """
    lines = ["| mu | overdamped | underdamped, best inverse mass | ratio |", "|---|---|---|---|"]
    for mu in (10.0, 30.0, 100.0, 300.0, 1000.0):
        over = min(_overdamped(mu, x) for x in np.geomspace(0.05, 30, 60))
        under = min(
            _underdamped(mu, x, k) for x in np.geomspace(0.05, 60, 60) for k in (0.25, 0.5, 1.0, 2.0, 4.0)
        )
        lines.append(f"| {mu:g} | {over:.3g} | {under:.3g} | {under / over:.2f} |")
    return "\n".join(lines)


def _overdamped(mu: float, x: float) -> float:
    """E x^2 / 2 at x = beta m T with Delta = m = 1: beta = x / T and mu^2 = x^2 / (2 T)."""
    time = x * x / (2 * mu * mu)
    beta = x / time
    return float((np.exp(-2 * x) + -np.expm1(-2 * x) / beta) / 2)


def _underdamped(mu: float, time: float, stiffness: float) -> float:
    """The same for dv = -(2 v + k x) dt + sqrt(4 u) dW, k = beta u: mu^2 = k^2 T / (4 u)."""
    from scipy.linalg import expm

    inverse_mass = stiffness**2 * time / (4 * mu * mu)
    drift = np.array([[0.0, 1.0], [-stiffness, -2.0]])
    flow = expm(drift * time)
    stationary = np.diag([inverse_mass / stiffness, inverse_mass])
    covariance = stationary - flow @ stationary @ flow.T
    return float((flow[0, 0] ** 2 + covariance[0, 0]) / 2)


if __name__ == "__main__":
    tables = {"double-well": double_well, "plateau": plateau, "underdamped": underdamped}
    for name in sys.argv[1:] or tables:
        print(f"### {name}\n\n{tables[name]()}\n", flush=True)
