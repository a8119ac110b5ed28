"""Ganesh, Thakurta and Upadhyay (2022), Appendix H: gradient drift against Brownian motion."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin.papers.gallery import _draw

BUDGET = 15.0
"""mu n / (2 L), which is inverse temperature times sqrt(2 T): the privacy of the path fixes this product."""


def draw_drift(output: Path, *, quick: bool) -> str:
    """Simulate reflected diffusions on F = |theta| in the unit ball from the boundary, to T = 1/(2p) and 1/(100p)."""
    dimensions = (4, 16, 64, 256)
    repeats, steps = (60, 150) if quick else (400, 600)
    figure, (left, right) = _draw.make_figure(2)
    rows, moved = [], {}
    for i, p in enumerate(dimensions):
        times, radii, _ = diffuse(p, 1 / (2 * p), repeats, steps, np.random.default_rng(p))
        beta = path_temperature(1 / (2 * p))
        left.plot(times * 2 * p, radii, color=_draw.COLOURS[i], linestyle=_draw.DASHES[i], label=f"p = {p}")
        left.axhline(min(1.0, p / beta), color=_draw.COLOURS[i], linewidth=0.7)
        rows += [(p, "1/(2p)", float(t), float(r)) for t, r in zip(times[::10], radii[::10], strict=True)]
        _, _, away = diffuse(p, 1 / (100 * p), repeats, steps, np.random.default_rng(p))
        moved[p] = away
        rows.append((p, "1/(100p), distance from the start", 1 / (100 * p), float(np.mean(away))))
    left.set(xlabel="fraction of the time T = 1/(2p)", ylabel="mean loss |theta|", ylim=(0, 1.02))
    left.set_title("drift and Brownian motion balance\nnear p / beta (thin lines)", fontsize=10)
    left.legend(frameon=False, fontsize=8.5)
    right.boxplot([moved[p] for p in dimensions], whis=(0, 100), medianprops={"color": _draw.COLOURS[1]})
    right.set_xticks(range(1, 5), [str(p) for p in dimensions])
    right.axhline(1 / 3, color=_draw.COLOURS[0], linestyle=_draw.DASHES[1], label="the paper's 1/3")
    right.set(xlabel="dimension p", ylabel="distance from the start at T = 1/(100p)", ylim=(0, 1.1))
    right.set_title("no convergence at the optimal time", fontsize=10)
    right.legend(frameon=False, fontsize=8.5)
    _draw.save_figure(figure, output / "drift.svg")
    _draw.write_table(output / "drift.csv", ["dimension", "horizon", "time", "value"], rows)
    return _summarize(moved)


def path_temperature(time: float) -> float:
    """Return beta = (mu n / L) / sqrt(2 T): the path is mu-GDP for every T (equation 34 with the exact constant)."""
    return 2 * BUDGET / float(np.sqrt(2 * time))


def diffuse(
    p: int, time: float, repeats: int, steps: int, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Return times, mean radii, and final distances from the start of projected Euler steps."""
    beta, step = path_temperature(time), time / steps
    theta = np.zeros((repeats, p))
    theta[:, 0] = 1.0
    start, radii = theta.copy(), np.empty(steps + 1)
    for k in iterate_with_progress(range(steps + 1), f"diffusion in {p} dimensions"):
        norm = np.linalg.norm(theta, axis=1, keepdims=True)
        radii[k] = float(norm.mean())
        if k == steps:
            break
        pull = np.minimum(step * beta, norm)  # a drift that does not step over the minimiser
        theta = theta - pull * theta / np.maximum(norm, 1e-300)
        theta += np.sqrt(2 * step) * rng.standard_normal(theta.shape)
        theta /= np.maximum(1.0, np.linalg.norm(theta, axis=1, keepdims=True))
    return np.linspace(0.0, time, steps + 1), radii, np.linalg.norm(theta - start, axis=1)


def _summarize(moved: dict[int, Floats]) -> str:
    largest = max(moved)
    far = float(np.mean(moved[largest]))
    brownian = np.sqrt(2 / 100)
    return (
        "Agrees: the drift balances the noise at a distance of about p / beta from the minimiser, which grows "
        "with p, so "
        f"the useful time shrinks like 1/p. At T = 1/(100 p) and p = {largest} the diffusion has moved "
        f"{far:.2f} from its start on average: far from the stationary distribution, whose mass within 1/3 of a "
        "boundary "
        "point is exponentially small in p.\n"
        f"Differs: the integral of the noise is N(0, 2 T I), not N(0, T I) (the equation has sqrt(2) dW): its length "
        f"at T = 1/(100p) is sqrt(2 T p) = {brownian:.3f}, and 2 sqrt(2 T p) = {2 * brownian:.3f} is the conservative "
        "bound in place of 1/5. The conclusion is the same."
    )
