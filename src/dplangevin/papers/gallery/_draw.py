"""Drawing functions shared by the figures: colours for colour-blind readers, one style, and tables of the numbers."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dplangevin import _files
from dplangevin.errors import InvalidParameter

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
