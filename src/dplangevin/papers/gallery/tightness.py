"""Chourasia, Ye and Shokri (2021), Figure 2: how tight is the bound on noisy gradient descent?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dplangevin.papers import noisy_sgd_formulas as paper
from dplangevin.papers.gallery import _draw

TITLE = "Chourasia, Ye and Shokri (2021), Figure 2: tightness of the bound, three orders"
SETTING: dict[str, Any] = {"gradient_sensitivity": 4.0, "n": 5000, "step_size": 0.02, "sigma": 0.02}
ORDERS = (10, 20, 30)
_CURVES = (
    ("composition", paper.chourasia_composition),
    ("paper, upper (Corollary 2)", paper.chourasia_quadratic),
    ("exact = our bound", paper.quadratic_exact),
    ("paper, lower (Theorem 3)", paper.chourasia_quadratic_lower),
)


def draw(output: Path, *, quick: bool) -> str:
    """Renyi divergence against the number of steps at orders 10, 20 and 30."""
    steps = np.unique(np.geomspace(1, 500, 12 if quick else 60).astype(int))
    made, axes = _draw.figure(3, sharey=True)
    rows = []
    for one, order in zip(axes, ORDERS, strict=True):
        values = {
            name: [function(order=order, n_steps=int(k), **SETTING) for k in steps]
            for name, function in _CURVES
        }
        for i, (name, curve) in enumerate(values.items()):
            one.plot(
                steps, curve, color=_draw.COLOURS[(1, 0, 6, 2)[i]], linestyle=_draw.DASHES[i], label=name
            )
        rows += [(order, int(k), *(curve[j] for curve in values.values())) for j, k in enumerate(steps)]
        one.set(title=f"order {order}", xlabel="number of steps", ylim=(0, 0.03), xlim=(0, 500))
    axes[0].set_ylabel("Renyi divergence")
    axes[0].legend(frameon=False, fontsize=8.5)
    _draw.save(made, output / "tightness.svg")
    _draw.table(output / "tightness.csv", ["order", "steps", *(name for name, _ in _CURVES)], rows)
    return _words()


def _words() -> str:
    ratios = []
    for k in (10, 100, 500):
        upper = paper.chourasia_quadratic(order=10, n_steps=k, **SETTING)
        ratios.append(upper / paper.quadratic_exact(order=10, n_steps=k, **SETTING))
    crossing = {
        order: next(
            k
            for k in range(1, 500)
            if paper.chourasia_quadratic(order=order, n_steps=k, **SETTING)
            < paper.chourasia_composition(order=order, n_steps=k, **SETTING)
        )
        for order in ORDERS
    }
    shown = ", ".join(f"{k} (order {order})" for order, k in crossing.items())
    return (
        "Agrees: the divergence levels off while composition grows in proportion to the number of steps.\n"
        f"Differs: the paper reads a factor of two between its bounds as slack of the upper one. The exact value "
        f"(which the optimal shift bound attains) shows that it is the lower bound's: upper / exact is "
        f"{ratios[0]:.2f}, {ratios[1]:.2f}, {ratios[2]:.2f} at 10, 100, 500 steps.\n"
        f"Differs: the paper says that a larger order crosses composition sooner. Every curve is linear in the order, "
        f"so the crossing does not move: after {shown} steps."
    )
