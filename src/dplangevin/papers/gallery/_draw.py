"""Shared parts of the figures: style, measured rates, and the comparison of printed values with redrawn ones."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dplangevin import _files
from dplangevin._progress import iterate_with_progress
from dplangevin.errors import InvalidParameter
from dplangevin.papers.gallery import _draw

# Okabe and Ito's colours, in the order in which they are taken.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = (
    "solid",
    (0, (5, 2)),
    (0, (1, 1.5)),
    (0, (5, 2, 1, 2)),
    (0, (3, 1)),
    (0, (8, 2)),
    "solid",
)


def make_figure(columns: int = 1, rows: int = 1, *, height: float = 3.6, **options: Any) -> tuple[Any, Any]:
    """Return a matplotlib figure and its axes (an array when there are several), without global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidParameter(
            "pictures need matplotlib; install it with: pip install 'dplangevin[plot]'."
        ) from None
    figure = Figure(figsize=(max(5.6, 4.4 * columns), height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, **options)
    for one in [axes] if rows * columns == 1 else axes.ravel():
        one.grid(True, which="major", color="0.9", linewidth=0.7)
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Any, path: Path) -> None:
    """Write the picture; equal numbers give equal bytes."""
    import matplotlib as mpl

    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with (
        mpl.rc_context({"svg.hashsalt": "dplangevin", "svg.fonttype": "none"}),
        _files.replace_atomically(path) as draft,
    ):
        figure.savefig(draft, format=path.suffix[1:], dpi=110, metadata=metadata)


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write the numbers of a picture as CSV, floats to ten digits."""
    with _files.replace_atomically(path) as draft, draft.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            writer.writerow([f"{value:.10g}" if isinstance(value, float) else value for value in row])


HEAD = "| figure | what | printed | drawn | difference |\n|---|---|---|---|---|\n"
RATES = ("erm-rates", "sco-rates", "rashomon-rates")


def comparison_table(folder: Path) -> str:
    """Return the comparison as a Markdown table, from the CSV files in `folder`."""
    rows = [*_tightness_rows(folder), *_plateau_rows(folder), *_split_rows(folder)]
    for name in RATES:
        rows += _slope_rows(folder, name)
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _read_table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _comparison_row(figure: str, what: str, printed: float, drawn: float) -> tuple[str, ...]:
    difference = f"{drawn - printed:+.2f}" if abs(printed) <= 3 else f"{100 * (drawn / printed - 1):+.0f}%"
    return f"[{figure}](#{figure})", what, f"{printed:.4g}", f"{drawn:.4g}", difference


def _tightness_rows(folder: Path) -> list[tuple[str, ...]]:
    """Compare the paper's two formulas with what runs attain, at order 10."""
    rows: list[tuple[str, ...]] = []
    for row in _read_table(folder, "tightness"):
        runs = row["attained by runs"]
        if row["order"] == "10" and row["steps"] in ("10", "100", "500") and runs:
            for name, bound in (
                ("upper", "paper, upper (Corollary 2)"),
                ("lower", "paper, lower (Theorem 3)"),
            ):
                percent = 100 * (float(runs) / float(row[bound]) - 1)
                what = f"order 10, {row['steps']} steps, {name} bound; runs of the library"
                figure = ("[tightness](#tightness)", what, f"{float(row[bound]):.4g}", f"{float(runs):.4g}")
                rows.append((*figure, f"{percent:+.1f}%"))
    return rows


def _plateau_rows(folder: Path) -> list[tuple[str, ...]]:
    """Compare where growth ends: D n / (L eta) = 10^4 steps in the paper, up to a constant."""
    rows = [row for row in _read_table(folder, "plateau") if row["order"] == "2"]
    top = float(rows[-1]["our bound"])
    end = next(float(row["steps"]) for row in rows if float(row["our bound"]) >= 0.99 * top)
    return [
        _comparison_row(
            "plateau", "steps of growth, order D n / (L eta); bound at 99% of its plateau", 1e4, end
        )
    ]


def _split_rows(folder: Path) -> list[tuple[str, ...]]:
    last = _read_table(folder, "split-regimes")[-1]
    printed = float(last["short term, m-strongly convex (Lemma I.2)"])
    return [
        _comparison_row(
            "split-regimes",
            "Lemma I.2 for long times; exact value",
            printed,
            float(last["exact, quadratic loss"]),
        )
    ]


def _slope_rows(folder: Path, name: str) -> list[tuple[str, ...]]:
    """Compare the powers of n, p and epsilon of every row of a table, with the largest difference."""
    claimed: dict[str, list[float]] = {}
    drawn: dict[str, list[float]] = {}
    for row in _read_table(folder, name):
        match = re.fullmatch(r"slope in \w+, claimed (\S+)", row["varied"])
        if match is not None:
            claimed.setdefault(row["row"], []).append(float(match[1]))
            drawn.setdefault(row["row"], []).append(float(row["excess risk or slope"]))
    return [
        (
            f"[{name}](#{name})",
            f"{row}: powers of n, p, epsilon",
            ", ".join(f"{power:g}" for power in powers),
            ", ".join(f"{power:.2f}" for power in drawn[row]),
            f"{max(abs(a - b) for a, b in zip(powers, drawn[row], strict=True)):.2f}",
        )
        for row, powers in claimed.items()
    ]


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
