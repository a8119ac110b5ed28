"""Measured rates: slopes of excess risk against n, p and epsilon, fitted on a log-log scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dplangevin._progress import iterate_with_progress
from dplangevin.papers.gallery import _draw

Measure = Callable[[int, int, float, int, np.random.Generator], float]
NAMES = ("n", "p", "epsilon")
_POINTS = 5


@dataclass(frozen=True)
class RateRow:
    """A row of a table: its measurement, and the powers of n, p and epsilon that the paper claims."""

    name: str
    measure: Measure
    powers: tuple[float, float, float]


@dataclass(frozen=True)
class FittedRates:
    """Measured points and slopes."""

    rows: Sequence[RateRow]
    slopes: Sequence[tuple[float, float, float]]
    points: Sequence[tuple[str, str, float, float]]

    def table(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return header and rows of the CSV: points, then slopes."""
        fits = [
            (row.name, f"slope in {NAMES[i]}, claimed {row.powers[i]:g}", "", slope[i])
            for row, slope in zip(self.rows, self.slopes, strict=True)
            for i in range(3)
        ]
        return ["row", "varied", "value", "excess risk or slope"], [*self.points, *fits]

    def sentences(self) -> str:
        """Return one line per row: measured (claimed)."""
        lines = []
        for row, slope in zip(self.rows, self.slopes, strict=True):
            parts = (
                f"{name} {measured:+.2f} ({claimed:+g})"
                for name, measured, claimed in zip(NAMES, slope, row.powers, strict=True)
            )
            lines.append(f"  {row.name}: " + ", ".join(parts))
        return "Measured slopes (claimed):\n" + "\n".join(lines)


def slopes_figure(
    rows: Sequence[RateRow], repeats: int, start: tuple[int, int, float]
) -> tuple[Any, FittedRates]:
    """Measure every row along each axis from `start` upwards (x 16 in n, x 8 in p, x 8 in epsilon)."""
    figure, axes = _draw.make_figure(3, height=3.9)
    ranges = (
        np.geomspace(start[0], 16 * start[0], _POINTS).round(),
        np.unique(np.geomspace(start[1], 8 * start[1], _POINTS).round()),
        np.geomspace(start[2], 8 * start[2], _POINTS),
    )
    slopes, points = [], []
    for i, row in enumerate(iterate_with_progress(rows, "methods")):
        row_slopes = []
        for axis, (one, values) in enumerate(zip(axes, ranges, strict=True)):
            risks = []
            for value in values:
                point = [float(x) for x in start]
                point[axis] = float(value)
                seed = np.random.default_rng([i, axis, int(1000 * value)])
                risks.append(row.measure(int(point[0]), int(point[1]), point[2], repeats, seed))
                points.append((row.name, NAMES[axis], float(value), risks[-1]))
            row_slopes.append(float(np.polyfit(np.log(values), np.log(risks), 1)[0]))
            one.loglog(values, risks, "o", color=_draw.COLOURS[i % 7], linestyle=_draw.DASHES[i % 7], markersize=4,
                       label=row.name)  # fmt: skip
        slopes.append((row_slopes[0], row_slopes[1], row_slopes[2]))
    for one, name, values in zip(
        axes, ("number of records n", "dimension p", "epsilon"), ranges, strict=True
    ):
        one.set(xlabel=name)
        one.minorticks_off()
        one.set_xticks(
            values[::2], [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in values[::2]]
        )
    axes[0].set_ylabel("excess risk")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8.5
    )
    return figure, FittedRates(rows, slopes, points)
