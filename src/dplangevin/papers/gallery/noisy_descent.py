"""Figures on noisy gradient descent: the plateau of its privacy loss, and how tight its bounds are.

Altschuler and Talwar (2022), Figure 1: the privacy loss grows, then stays constant.

Chourasia, Ye and Shokri (2021), Figure 2: how tight is the bound on noisy gradient descent?
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin.accounting.plan import Plan
from dplangevin.accounting.registry import find_theorem
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import MechanismInput
from dplangevin.mechanisms.noisy_gradient.lower_bounds import worst_case_maps
from dplangevin.mechanisms.noisy_gradient.mechanism import NoisyGradientDescent
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import Composition
from dplangevin.mechanisms.noisy_gradient.theorems.hidden_state import HiddenStateSGD
from dplangevin.mechanisms.noisy_gradient.walk_laws import compute_walk_law, renyi_divergence
from dplangevin.papers import formulas as paper
from dplangevin.papers.gallery import _draw
from dplangevin.problem import DataBounds, Mean, Problem
from dplangevin.problem.constants import Constants

CONSTANTS = Constants(n=1000, lipschitz=1.0, smoothness=1.0, diameter=1.0)
PLATEAU_ORDERS = (2.0, 8.0)


def draw_plateau(output: Path, *, quick: bool) -> str:
    """Draw the Renyi divergence of noisy SGD against the number of steps: composition, our bound, exact walk."""
    steps = np.unique(np.geomspace(100, 1e6, 7 if quick else 25).round().astype(int))
    figure, axes = _draw.make_figure(2, sharex=True)
    rows, ends = [], {}
    for one, order in zip(axes, PLATEAU_ORDERS, strict=True):
        curves = {
            "composition": [_renyi_bound(Composition.name, int(k), order) for k in steps],
            "our bound (corrected equation 3.3)": [
                _renyi_bound(HiddenStateSGD.name, int(k), order)
                for k in iterate_with_progress(steps, f"bounds, order {order:g}")
            ],
            "lower bound (exact walk)": [
                _exact_walk_divergence(int(k), order)
                for k in iterate_with_progress(steps, f"walks, order {order:g}")
            ],
        }
        for i, (name, values) in enumerate(curves.items()):
            one.loglog(
                steps, values, color=_draw.COLOURS[(1, 0, 6)[i]], linestyle=_draw.DASHES[i], label=name
            )
        rows += [(order, int(k), *(curve[j] for curve in curves.values())) for j, k in enumerate(steps)]
        ends[order] = [curve[-1] for curve in curves.values()]
        one.axvline(1e4, color="0.6", linewidth=0.8)
        one.annotate(
            "D n / (L eta)", (1e4, 0.03), xycoords=("data", "axes fraction"), fontsize=8.5, color="0.35"
        )
        one.set(title=f"order {order:g}", xlabel="number of steps", ylabel="Renyi divergence")
    axes[0].legend(frameon=False, fontsize=8.5)
    _draw.save_figure(figure, output / "plateau.svg")
    header = ["order", "steps", "composition", "our bound", "lower bound"]
    _draw.write_table(output / "plateau.csv", header, rows)
    return _describe_plateau(ends)


def _spec(steps: int) -> NoisyGradientSpec:
    options: dict[str, Any] = {"step_size": 0.1, "noise_std": 0.1, "batch_size": 50}
    return NoisyGradientSpec(n_steps=steps, sampling="without-replacement", **options)


def _renyi_bound(theorem: str, steps: int, order: float) -> float:
    spec = _spec(steps)
    spec.check_combination(CONSTANTS)
    guarantee = find_theorem(theorem, type(spec)).certify(CONSTANTS, spec)
    total = 0.0
    for part in guarantee.parts:
        curve = part.rdp(np.array([order]))
        assert curve is not None
        total += part.count * float(curve[0])
    return total


def _exact_walk_divergence(steps: int, order: float) -> float:
    """Return the exact divergence of two walks that differ by one record, without a common drift."""
    spec = _spec(steps)
    noise, width = 0.1 * 0.1, CONSTANTS.diameter
    count = math.inf if steps > 12 * (width / noise) ** 2 else steps
    laws = [compute_walk_law(maps, noise, width, count) for maps in worst_case_maps(CONSTANTS, spec, 0.0)]
    return max(renyi_divergence(laws[0], laws[1], order), renyi_divergence(laws[1], laws[0], order))


def _describe_plateau(ends: dict[float, list[float]]) -> str:
    from dplangevin.accounting.sampled_gaussian import renyi_poisson
    from dplangevin.papers.formulas import printed_definition_2_5

    printed = printed_definition_2_5(order=8.0, rate=0.01, noise_multiplier=0.5)
    true = float(renyi_poisson(np.array([8.0]), 0.01, 0.5)[0])
    levels = "; ".join(
        f"order {order:g}: composition {plain:.4g}, bound {bound:.4g}, lower bound {lower:.4g}"
        for order, (plain, bound, lower) in ends.items()
    )
    return (
        "Setting: n = 1000, b = 50 without replacement, L = 1, step size 0.1, noise 0.1, diameter 1.\n"
        f"Agrees: linear growth, then a plateau from the order of D n / (L eta) = 10^4 steps. At a million steps, "
        f"{levels}.\n"
        f"Differs: Definition 2.5 is printed in the wrong direction. At rate 0.01, noise multiplier 0.5 and order 8 it "
        f"gives {printed:.5f} where one step leaks {true:.3f}; the bound drawn here uses the right direction and, for "
        "batches without replacement, the curve that replace-one needs.\n"
        "Open: the bound is far above the walk on the plateau. No proof is known that closes this gap."
    )


SETTING: dict[str, Any] = {"gradient_sensitivity": 4.0, "n": 5000, "step_size": 0.02, "sigma": 0.02}
TIGHTNESS_ORDERS = (10, 20, 30)
_CURVES = (
    ("composition", paper.chourasia_composition),
    ("paper, upper (Corollary 2)", paper.chourasia_quadratic),
    ("exact = our bound", paper.quadratic_exact),
    ("paper, lower (Theorem 3)", paper.chourasia_quadratic_lower),
)


class Impulses:
    """A generator whose t-th noise is the unit vector t + 1: a linear run then shows the weight of each draw."""

    def __init__(self) -> None:
        self.step = 0

    def standard_normal(self, size: int) -> Floats:
        """Return the next unit vector."""
        self.step += 1
        return np.asarray(np.eye(1, size, self.step)[0])


def attained_mu(steps: int) -> float:
    """Return mu of the last iterate of |theta - x|^2 / 2, from runs of the mechanism itself.

    Two data sets differ in one record, +-S_g / 2 along the first coordinate. A run is linear in its noise, which acts
    in separate coordinates: the difference of two runs is the shift of the last iterate, the rest of one run its
    standard deviation. The distribution is Gaussian, so shift / deviation is exactly the mu that an attack attains.
    """
    n, half = SETTING["n"], SETTING["gradient_sensitivity"] / 2
    bounds = DataBounds(data_norm=half, target=(-1.0, 1.0))
    problem = Problem(loss=Mean(), bounds=bounds, n=n, n_features=steps + 1, ridge=1.0, fit_intercept=False)
    spec = NoisyGradientSpec.from_diffusion(
        step_size=SETTING["step_size"], sigma=SETTING["sigma"], n_steps=steps
    )
    plan, values = Plan(problem=problem, spec=spec, delta=1e-6), []
    for sign in (half, -half):
        rows = np.zeros((n, steps + 1))
        rows[0, 0] = sign
        run: Any = MechanismInput(
            plan=plan,
            spec=spec,
            data=ArrayDataset(rows, np.zeros(n), problem),
            run_state=None,
            seeded=True,
            rng=Impulses(),  # type: ignore[arg-type]
        )
        values.append(NoisyGradientDescent().execute(run).value)
    return float(abs(values[0][0] - values[1][0]) / np.linalg.norm(values[0][1:]))


def draw_tightness(output: Path, *, quick: bool) -> str:
    """Draw the Renyi divergence against the number of steps at orders 10, 20 and 30."""
    measured = {k: attained_mu(k) for k in ((10, 100) if quick else (10, 50, 100, 200, 300, 400, 500))}
    steps = np.union1d(np.geomspace(1, 500, 12 if quick else 60).astype(int), list(measured))
    figure, axes = _draw.make_figure(3, sharey=True)
    rows = []
    for one, order in zip(axes, TIGHTNESS_ORDERS, strict=True):
        values = {
            name: [function(order=order, n_steps=int(k), **SETTING) for k in steps]
            for name, function in _CURVES
        }
        for i, (name, curve) in enumerate(values.items()):
            one.plot(
                steps, curve, color=_draw.COLOURS[(1, 0, 6, 2)[i]], linestyle=_draw.DASHES[i], label=name
            )
        attained = [order * mu**2 / 2 for mu in measured.values()]
        one.plot(
            list(measured), attained, "o", color=_draw.COLOURS[1], markersize=4, label="attained by runs"
        )
        runs = dict(zip(measured, attained, strict=True))
        rows += [
            (order, int(k), *(curve[j] for curve in values.values()), runs.get(int(k), ""))
            for j, k in enumerate(steps)
        ]
        one.set(title=f"order {order}", xlabel="number of steps", ylim=(0, 0.03), xlim=(0, 500))
    axes[0].set_ylabel("Renyi divergence")
    axes[0].legend(frameon=False, fontsize=8.5)
    _draw.save_figure(figure, output / "tightness.svg")
    _draw.write_table(
        output / "tightness.csv", ["order", "steps", *(name for name, _ in _CURVES), "attained by runs"], rows
    )
    return _describe_tightness(measured)


def _describe_tightness(measured: dict[int, float]) -> str:
    relative_error = max(
        abs(10 * mu**2 / 2 / paper.quadratic_exact(order=10, n_steps=k, **SETTING) - 1)
        for k, mu in measured.items()
    )
    agreement = "1e-9" if relative_error <= 1e-9 else f"{relative_error:.1e}"
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
        for order in TIGHTNESS_ORDERS
    }
    shown = ", ".join(f"{k} (order {order})" for order, k in crossing.items())
    return (
        "Agrees: the divergence levels off while composition grows in proportion to the number of steps.\n"
        "The dots come from runs of the library on |theta - x|^2 / 2, not from a formula: what they attain is the "
        f"exact value within {agreement} (relative), at every number of steps tried.\n"
        f"Differs: the paper reads a factor of two between its bounds as slack of the upper one. The exact value "
        f"(which the optimal shift bound attains) shows that it is the lower bound's: upper / exact is "
        f"{ratios[0]:.2f}, {ratios[1]:.2f}, {ratios[2]:.2f} at 10, 100, 500 steps.\n"
        f"Differs: the paper says that a larger order crosses composition sooner. Every curve is linear in the order, "
        f"so the crossing does not move: after {shown} steps."
    )
