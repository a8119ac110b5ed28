"""The universality of Langevin diffusion on one axis: privacy and risk along its clock, from start to stationarity."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from dplangevin.accounting.conversions import gdp_mu
from dplangevin.accounting.plan import Plan, certify_plan
from dplangevin.mechanisms.exponential.law_guarantees import mean_gradient_sensitivity
from dplangevin.mechanisms.langevin.spec import DiffusionSpec, LangevinSpec
from dplangevin.mechanisms.langevin.temperatures import choose_stated_run
from dplangevin.papers.gallery import _draw
from dplangevin.papers.tour import DELTA, EPSILON, N, make_problem, measure_excess
from dplangevin.problem import risk

BETA, RIDGE = 200.0, 0.05


def draw_clock(output: Path, *, quick: bool) -> str:
    """Account one diffusion for times from 0 to infinity, and run the average that is (1, 1e-6) at every time."""
    figure, (left, right) = _draw.make_figure(2)
    times = np.geomspace(1e-4, 30.0, 12 if quick else 40)
    constants, rows = make_problem(RIDGE).constants, []
    curves: dict[str, list[float]] = {"whole path (Lemma C.1)": [], "end point (Lemma I.2, sharpened)": []}
    for time in times.tolist():
        for (name, values), release in zip(curves.items(), ("trajectory", "last-iterate"), strict=True):
            spec = DiffusionSpec(inverse_temperature=BETA, time=time, release=release)  # type: ignore[arg-type]
            values.append(certify_plan(constants, spec, delta=DELTA).epsilon())
            rows.append(("epsilon", name, time, values[-1]))
    for i, (name, values) in enumerate(curves.items()):
        left.loglog(times, values, color=_draw.COLOURS[i], linestyle=_draw.DASHES[i], label=name)
    stationary = certify_plan(
        constants, DiffusionSpec(inverse_temperature=BETA, time=math.inf), delta=DELTA
    ).epsilon()
    left.axhline(stationary, color=_draw.COLOURS[2], linewidth=0.9, label="stationary law exp(-beta F)")
    steps = LangevinSpec(inverse_temperature=BETA, time=1.0, n_steps=400)
    chain = certify_plan(constants, steps, delta=DELTA).epsilon()
    left.plot([1.0], [chain], "o", color=_draw.COLOURS[3], label="400 steps, last iterate")
    rows += [("epsilon", "stationary", math.inf, stationary), ("epsilon", "400 steps", 1.0, chain)]
    left.set(xlabel="time T", ylabel=f"epsilon at delta = {DELTA:g}")
    left.set_title(f"one diffusion, beta = {BETA:g}", fontsize=10)
    problem, mu = make_problem(0.0), gdp_mu(EPSILON, DELTA) * (1 - 1e-7)
    clock = np.geomspace(3e-3, 3.0, 5 if quick else 9)
    bounds, measured = [], []
    for time in clock.tolist():
        choice = choose_stated_run(problem, mu, time=time)
        plan = Plan(problem=problem, spec=choice.spec, delta=DELTA, theorem=choice.theorem)
        bounds.append(choice.excess_risk)
        measured.append(measure_excess(plan))
        rows += [("excess", "bound F.1", time, bounds[-1]), ("excess", "measured", time, measured[-1])]
    right.loglog(clock, bounds, color=_draw.COLOURS[0], label="average to T: bound (Theorem F.1)")
    right.loglog(clock, measured, "o", color=_draw.COLOURS[1], label="average to T: measured, 5 runs")
    beta = EPSILON / (mean_gradient_sensitivity(problem.constants) * problem.constants.diameter)
    pure = risk.exponential_excess(problem.dimension, beta)
    _, gibbs = risk.regularized_gibbs_ridge(
        problem.dimension, mu, mean_gradient_sensitivity(problem.constants), 1.0
    )
    lines = {"T = infinity, pure epsilon: bound (D.1)": pure, "T = infinity, best ridge: bound": gibbs}
    for i, (name, value) in enumerate(lines.items()):
        right.axhline(value, color=_draw.COLOURS[2 + i], linestyle=_draw.DASHES[1 + i], label=name)
        rows.append(("excess", name, math.inf, value))
    right.set(xlabel="time T", ylabel="excess of the mean loss", ylim=(6e-4, 0.2))
    right.set_title(f"({EPSILON:g}, {DELTA:g}) at every T, n = {N}", fontsize=10)
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=7.5)
    _draw.save_figure(figure, output / "clock.svg")
    _draw.write_table(output / "clock.csv", ["quantity", "what", "time", "value"], rows)
    best = int(np.argmin(bounds))
    return (
        "Agrees: privacy of the path grows like sqrt(T) for ever, that of the end point tends to the stationary law's "
        f"({stationary:.3g}); of the averages with the same guarantee the bound is smallest near T = D^2 / 2p "
        f"(here at T = {clock[best]:.2g}: bound {bounds[best]:.2g}, measured {measured[best]:.2g}), and every measured "
        f"excess is below its bound (largest ratio {max(m / b for m, b in zip(measured, bounds, strict=True)):.2f}).\n"
        f"Steps: the last iterate of 400 steps costs {chain:.3g}, the diffusion itself "
        f"{certify_plan(constants, DiffusionSpec(inverse_temperature=BETA, time=1.0), delta=DELTA).epsilon():.3g}."
    )
