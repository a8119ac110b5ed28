"""Ganesh (2022), Chapter 3: how many Langevin steps the proofs ask for, and how many a Gaussian needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dplangevin._progress import progress
from dplangevin._search import bisected, whole_bisected
from dplangevin.papers.gallery import _draw
from dplangevin.papers.langevin_formulas import thesis_moment_factor
from dplangevin.samplers.langevin_certificates import mixing_time, overdamped_steps, underdamped_steps

TITLE = "Ganesh (2022), Chapter 3: steps of Langevin samplers, proved and needed"
DIVERGENCE = 0.1


def draw(output: Path, *, quick: bool) -> str:
    """Steps to Renyi divergence 0.1 in both directions against the dimension, for two condition numbers."""
    dimensions = (10, 100) if quick else (10, 20, 50, 100)
    order, rows = 2.0, []
    made, axes = _draw.figure(2, sharey=True)
    for one, condition in zip(axes, (10.0, 100.0), strict=True):
        curves: dict[str, list[float]] = {
            "thesis' route (constants made explicit)": [],
            "overdamped, Girsanov (proved)": [],
            "underdamped, discretisation only": [],
            "overdamped on a quadratic (exact)": [],
        }
        for k in progress(dimensions, f"dimensions, condition {condition:g}"):
            tau = mixing_time(k, condition, order, DIVERGENCE)
            found = (
                thesis_steps(k, condition, order, tau),
                float(overdamped_steps(k, condition, order, DIVERGENCE)),
                float(
                    underdamped_steps(k, condition, order, DIVERGENCE, condition * tau, 2.0, 1 / condition)
                ),
                float(quadratic_steps(k, condition, order)),
            )
            for name, value in zip(curves, found, strict=True):
                curves[name].append(value)
            rows.append((condition, k, tau, *found))
        for i, (name, values) in enumerate(curves.items()):
            one.loglog(dimensions, values, "o", color=_draw.COLOURS[i], linestyle=_draw.DASHES[i], label=name)
        one.set(xlabel="dimension", title=f"condition number {condition:g}")
    axes[0].set(ylabel="steps for divergence 0.1 (order 2)", ylim=(3, 1e22))
    made.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8.5
    )
    _draw.save(made, output / "langevin-steps.svg")
    header = ["condition", "dimension", "time", "thesis route", "girsanov", "underdamped", "quadratic"]
    _draw.table(output / "langevin-steps.csv", header, rows)
    return _words(rows)


def thesis_steps(k: int, condition: float, order: float, tau: float) -> float:
    """Steps by the thesis' own route with its constants made explicit and Lemma 51 corrected.

    A = (3/4) tau a'(a' - 1) M^4 c^2 eta, c = 22.3, log c1 = A (k + 2 log(tau/eta)), K = `thesis_moment_factor`,
    E = (a'/4 + 1/2) sqrt((4/a') sqrt(2 c1) K(A)) K(A/2), R_a <= a log E / ((a - 1)(a'/4 + 1/2)), best a'.
    """
    doubled, allowed = 2 * order, DIVERGENCE / 3

    def error(inflated: float, log_steps: float) -> float:
        eta = tau * math.exp(-log_steps)
        a = 0.75 * tau * inflated * (inflated - 1) * condition**4 * 22.3**2 * eta
        if a >= 1:
            return math.inf
        log_c1 = a * (k + 2 * log_steps)
        inner = math.log(4 / inflated) + (math.log(2) + log_c1) / 2 + math.log(thesis_moment_factor(a))
        power = inflated / 4 + 0.5
        log_e = math.log(power) + inner / 2 + math.log(thesis_moment_factor(a / 2))
        return doubled * log_e / ((doubled - 1) * power)

    fewest = math.inf
    for inflated in np.geomspace(10, 1e6, 200):

        def small(log_steps: float, inflated: float = float(inflated)) -> bool:
            return error(inflated, log_steps) <= allowed

        if small(100.0):
            fewest = min(fewest, math.exp(bisected(small, 100.0, 0.0)))
    return fewest


def quadratic_steps(k: int, condition: float, order: float) -> int:
    """Fewest unadjusted steps on a quadratic with eigenvalues from 1 to the condition number, best step size."""
    values, fewest = np.linspace(1.0, condition, k), 10**9
    for eta in np.geomspace(1e-4, 1.9, 300) / condition:

        def close(steps: int, eta: float = float(eta)) -> bool:
            return _close(values, eta, steps, order)

        if close(fewest):
            fewest = whole_bisected(close, fewest, 1)
    return fewest


def _close(values: np.ndarray, eta: float, steps: int, order: float) -> bool:
    """Both Renyi divergences between N(0, var) and N(0, 1/values) are at most 0.1; the start is N(0, I)."""
    decay = (1 - eta * values) ** 2
    power = decay ** min(steps, 10**7)
    variance = power + 2 * eta * (1 - power) / (1 - decay)
    return max(_renyi(variance, 1 / values, order), _renyi(1 / values, variance, order)) <= DIVERGENCE


def _renyi(first: np.ndarray, second: np.ndarray, order: float) -> float:
    mixed = order * second + (1 - order) * first
    if np.any(mixed <= 0):
        return math.inf
    logs = np.log(mixed) - (1 - order) * np.log(first) - order * np.log(second)
    return float(-0.5 * np.sum(logs) / (order - 1))


def _words(rows: Sequence[tuple[float, ...]]) -> str:
    condition, k, _, thesis, girsanov, _, quadratic = rows[0]
    return (
        f"Setting: 1-strongly convex, condition number 10 or 100, order 2, both directions, start N(0, I).\n"
        f"At dimension {k:.0f} and condition {condition:g}: the thesis' route with explicit constants asks for about "
        f"{thesis:.1e} steps, the Girsanov certificate of this library for {girsanov:.2e}, and a quadratic needs "
        f"{quadratic:.0f}.\n"
        "Agrees: the number of steps is polynomial in dimension, condition number and 1/divergence.\n"
        "Differs: '(3 eps, 3 delta)' after Theorem 42 is false (the deltas pick up factors e^eps); the power M^4 can "
        "be M^2; and no rate is proved for the underdamped diffusion itself, so its count covers discretisation only. "
        "The privacy claims of this library do not rest on any of these counts."
    )
