"""Ganesh, Thakurta and Upadhyay (2022), Appendix G: the non-convex lower-bound instance."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin.papers.gallery import _draw
from dplangevin.problem.packed_bumps import PackedBumps
from dplangevin.sampling.rejection import sample_finite_grid

WIDTH = 0.25
EPSILON = 1.0


def draw_packing(output: Path, *, quick: bool) -> str:
    """Draw the instance in the plane, and the risk of the exponential mechanism on it against n."""
    rng = np.random.default_rng(0)
    grid = np.linspace(-1, 1, 101 if quick else 201)
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    centres = greedy_packing(points, 2 * WIDTH)
    votes = rng.random(len(centres))
    figure, (left, right) = _draw.make_figure(2, height=3.8)
    bumps = bump_heights(points, centres)
    surface = -(bumps @ votes).reshape(len(grid), -1)
    image = left.pcolormesh(grid, grid, surface.T, cmap="viridis", shading="auto", rasterized=True)
    figure.colorbar(image, ax=left, label="loss F")
    left.grid(False)
    left.plot(*centres.T, "k+", markersize=5)
    left.set(xlabel="first coordinate", ylabel="second coordinate", aspect="equal")
    left.set_title(f"{len(centres)} bumps, centres 2 alpha = {2 * WIDTH:g} apart", fontsize=10)
    sizes = np.unique(np.geomspace(30, 3000, 4 if quick else 8).astype(int))
    repeats = 40 if quick else 150
    upper = WIDTH * 2 * (math.log(len(points)) + 1) / EPSILON
    instance = PackedBumps(centers=centres.T, width=WIDTH)
    curves = {
        "upper bound on this grid": [min(WIDTH, upper / n) for n in sizes],
        "exponential mechanism, hardest data": [_hardest_risk(int(n), bumps) for n in sizes],
        "the same, random frequencies (draws)": [
            _mean_excess_risk(int(n), bumps, repeats, rng)
            for n in iterate_with_progress(sizes, "numbers of records")
        ],
        "no mechanism is below on its hardest data": [
            instance.risk_lower_bound(int(n), EPSILON) for n in sizes
        ],
    }
    for i, (name, values) in enumerate(curves.items()):
        right.loglog(
            sizes,
            values,
            marker="o",
            color=_draw.COLOURS[(1, 0, 2, 6)[i]],
            linestyle=_draw.DASHES[i],
            label=name,
        )
    right.set(xlabel="number of records n", ylabel="excess empirical risk")
    right.legend(frameon=False, fontsize=8.5, loc="lower left")
    _draw.save_figure(figure, output / "packing.png")
    rows = [(int(n), *(float(curve[i]) for curve in curves.values())) for i, n in enumerate(sizes)]
    _draw.write_table(output / "packing.csv", ["n", *curves], rows)
    slopes = [
        float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-12)), 1)[0])
        for values in curves.values()
    ]
    ratio = max(a / b for a, b in list(zip(*list(curves.values())[1::2], strict=True)))
    return _summarize(len(centres), slopes, ratio)


def greedy_packing(points: Floats, apart: float) -> Floats:
    """Choose points of the unit ball greedily that are at least `apart` from one another."""
    centers: list[Floats] = []
    for point in points[np.argsort(np.linalg.norm(points, axis=1), kind="stable")]:
        inside = np.linalg.norm(point) <= 1
        if inside and all(np.linalg.norm(point - other) >= apart - 1e-9 for other in centers):
            centers.append(point)
    return np.array(centers)


def bump_heights(points: Floats, centres: Floats) -> Floats:
    """Return max(0, alpha - |theta - c_j|): F = -sum_j freq_j heights_j, of which one term is not 0."""
    distances = np.linalg.norm(points[:, None, :] - centres[None, :, :], axis=2)
    return np.asarray(np.maximum(WIDTH - distances, 0.0))


def overlapping_bumps(side: float) -> tuple[float, float]:
    """Return F at the centroid and at a vertex of three bumps `side` = alpha apart, a third of the votes each."""
    corners = side * np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]])
    points = np.vstack([corners.mean(axis=0), corners[:1]])
    distances = np.linalg.norm(points[:, None, :] - corners[None, :, :], axis=2)
    values = np.minimum(distances / side - 1, 0.0).sum(axis=1) / 3
    return float(values[0]), float(values[1])


def _hardest_risk(n: int, bumps: Floats) -> float:
    """Return the exact risk of the exponential mechanism when k records vote for one centre, for the worst k."""
    height = bumps[:, 0]
    risks = []
    for votes in range(1, min(n, 60) + 1):
        density = np.exp(EPSILON * votes / (2 * WIDTH) * (height - WIDTH))
        risks.append(votes / n * float(density @ (WIDTH - height) / density.sum()))
    return max(risks)


def _mean_excess_risk(n: int, bumps: Floats, repeats: int, rng: np.random.Generator) -> float:
    """Return the mean excess risk of the exponential mechanism on the grid: scores are votes, sensitivity alpha / n."""
    total = 0.0
    for _ in range(repeats):
        values = -(bumps @ (rng.binomial(n, rng.beta(1.0, 1.0, bumps.shape[1])) / n))
        chosen = sample_finite_grid(EPSILON * n / (2 * WIDTH) * values, 1, rng)[0]
        total += float(values[chosen] - values.min())
    return total / repeats


def _summarize(count: int, slopes: list[float], ratio: float) -> str:
    middle, corner = overlapping_bumps(WIDTH)
    return (
        f"The plane, alpha = {WIDTH:g}, {count} bumps, epsilon = {EPSILON:g}. The lower curve is a theorem about every "
        "mechanism (`PackedBumps.risk_lower_bound`), compared with the best of all mechanisms by linear programming in "
        "the tests.\n"
        f"Agrees: on the hardest data (k votes for one centre, the worst k) the risk of the exponential mechanism has "
        f"slope {slopes[1]:.2f} in n, that of the lower bound is {slopes[3]:.2f}; their ratio is at most {ratio:.1f}.\n"
        f"For random frequencies the slope is {slopes[2]:.2f}: on easy data the right bump is found at some n, and "
        "then only the width of a bump and of the grid count. The theorem is about the worst data.\n"
        f"Differs: the proof asks for an alpha-packing. Bumps alpha apart overlap, and then the best point need not be "
        f"a centre: three bumps at the corners of a triangle of side alpha, a third of the votes each, have "
        f"{middle:.4f} at the centroid and {corner:.4f} at a corner. Centres 2 alpha apart repair it.\n"
        "Differs: the printed loss is 1/alpha-Lipschitz; multiplied by alpha (as here) it is 1-Lipschitz.\n"
        "Differs: the factor log(1/delta) of the lower bound cannot hold for all delta, since the exponential "
        "mechanism attains p log(epsilon n / p) / (epsilon n) with delta = 0."
    )
