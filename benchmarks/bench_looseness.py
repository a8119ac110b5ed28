"""Tightness of the accountant: proved epsilon compared with the epsilon that an admissible run attains."""

from __future__ import annotations

import math

import numpy as np
from _measure import Row

from dplangevin import account, lower_bound_epsilon
from dplangevin.mechanisms.noisy_gradient.spec import parse_descent_options

MILLION = {
    "n": 10**6,
    "lipschitz": 1.0,
    "smoothness": 1.0,
    "step_size": 0.01,
    "batch_size": 4096,
    "n_steps": 244_141,
    "delta": 1e-6,
}
THOUSAND = {
    "n": 1000,
    "lipschitz": 1.0,
    "smoothness": 1.0,
    "step_size": 0.1,
    "batch_size": 50,
    "delta": 1e-5,
}
DECAYING = tuple((0.5 / np.sqrt(1 + np.arange(2000) / 50)).tolist())


def _bounded(kappa: float) -> dict[str, object]:
    """Full batch, D / v = 20 and s D / v^2 = kappa, any number of steps."""
    step = 25 * kappa
    return {
        "n": 1000,
        "lipschitz": 1.0,
        "smoothness": 0.01,
        "diameter": 20.0,
        "step_size": step,
        "noise_std": 1 / step,
        "n_steps": math.inf,
        "delta": 1e-5,
    }


# what, the run, the target ratio, and (upper, lower) of the previous version
CASES: tuple[tuple[str, dict[str, object], float | None, tuple[float, float | None]], ...] = (
    (
        "Poisson, n = 1e6, b = 4096, 1000 epochs, noise multiplier 4, delta = 1e-6",
        {**MILLION, "sampling": "poisson", "adjacency": "add-remove", "noise_std": 4 / 4096},
        None,
        (2.328, 0.0666),
    ),
    (
        "the same without replacement",
        {**MILLION, "sampling": "without-replacement", "noise_std": 8 / 4096},
        None,
        (2.567, 0.1025),
    ),
    (
        "Poisson under replace-one, rate 0.05, noise 4 L, 200 steps (dp-accounting: 1.356)",
        {**THOUSAND, "sampling": "poisson", "noise_std": 4 / 50, "n_steps": 200},
        None,
        (1.736, None),
    ),
    *(
        (f"convex, bounded, T = infinity, D/v = 20, kappa = {kappa}", _bounded(kappa), goal, before)
        for kappa, goal, before in (
            (0.05, 1.5, (0.1578, 0.08484)),
            (0.2, 1.5, (0.706, 0.3735)),
            (1.0, 1.5, (4.034, 2.077)),
            (4.0, 1.5, (16.99, 8.456)),
        )
    ),
    (
        "without replacement, ridge 0.5, 2000 steps",
        {
            **THOUSAND,
            "strong_convexity": 0.5,
            "noise_std": 0.4,
            "n_steps": 2000,
            "sampling": "without-replacement",
        },
        None,
        (0.1325, 0.0957),
    ),
    (
        "the same, step size 0.5 / sqrt(1 + t/50)",
        {
            **THOUSAND,
            "strong_convexity": 0.5,
            "noise_std": 0.4,
            "n_steps": 2000,
            "sampling": "without-replacement",
            "step_size": DECAYING,
        },
        None,
        (0.8553, None),
    ),
    (
        "without replacement, D = 1, T = infinity",
        {
            **THOUSAND,
            "diameter": 1.0,
            "noise_std": 0.4,
            "n_steps": math.inf,
            "sampling": "without-replacement",
        },
        None,
        (0.9698, 0.1909),
    ),
    (
        "shuffled, 100 epochs, no projection",
        {**THOUSAND, "noise_std": 0.04, "n_steps": 2000, "sampling": "shuffle"},
        None,
        (11.92, None),
    ),
    (
        "cyclic, 100 epochs, D = 30",
        {**THOUSAND, "diameter": 30.0, "noise_std": 0.4, "n_steps": 2000, "sampling": "cyclic"},
        None,
        (0.9017, None),
    ),
)


def figures(options: dict[str, object]) -> tuple[float, float | None, str]:
    """Return proved epsilon, lower bound, and the theorem of the proof."""
    delta = float(options["delta"])  # type: ignore[arg-type]
    guarantee = account(**options)  # type: ignore[arg-type]
    run = {name: value for name, value in options.items() if name != "delta"}
    return (
        guarantee.epsilon(delta),
        lower_bound_epsilon(*parse_descent_options(**run), delta),
        guarantee.theorem,
    )  # type: ignore[arg-type]


def _format_bounds(upper: float, lower: float | None) -> str:
    if not lower:
        return f"{upper:.4g} proved, no lower bound"
    return f"{upper:.4g} proved, {lower:.4g} attained: {upper / lower:.3g} x"


def rows() -> list[Row]:
    """Return one row per case, with the figures of the previous version."""
    results = []
    for what, options, goal, before in CASES:
        upper, lower, theorem = figures(options)
        met = None if goal is None else bool(lower and upper <= goal * lower)
        note = f"{theorem}; before: {_format_bounds(*before)}"
        asked = "" if goal is None else f"<= {goal:g} x"
        results.append(Row(what=what, asked=asked, measured=_format_bounds(upper, lower), met=met, note=note))
    return results
