"""Plot of epsilon against the number of steps of a run, as PNG, SVG or one HTML page."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dplangevin import _check, _files
from dplangevin._templates import render_template
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.account import account
from dplangevin.report import answer
from dplangevin.report.curve import CurveRow, Plateau, curve_row, find_plateau, step_grid

SUFFIXES = (".png", ".svg", ".html")
_N_POINTS, _N_LOWER_POINTS = 31, 11
# Okabe and Ito's colours survive the common kinds of colour blindness; dashes tell the lines apart as well.
_LINES = (
    ("composition", "plain composition", "#D55E00", (0, (5, 2))),
    ("bound", "our bound", "#0072B2", "solid"),
    ("lower", "lower bound", "#000000", (0, (1, 1.5))),
)


def check_plot_options(path: Path, options: Mapping[str, Any]) -> None:
    """Raise before anything is computed if the plot cannot be drawn or written."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidParameter(f"plot must end in .png, .svg or .html, got {str(path)!r}.")
    if not path.absolute().parent.is_dir():
        raise InvalidParameter(f"plot: the directory of {str(path)!r} does not exist; create it first.")
    if options.get("release") == "checkpoints":
        raise InvalidParameter(
            "plot draws epsilon against the number of steps; leave out --release checkpoints."
        )
    if not all(isinstance(options.get(name), int | float) for name in ("step_size", "noise_std", "n_steps")):
        raise InvalidParameter("plot draws noisy gradient runs with one step_size and one noise_std.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InvalidParameter(
            "plot needs matplotlib; install it with: pip install 'dplangevin[plot]'."
        ) from None


def write_plot(path: Path, options: Mapping[str, Any]) -> None:
    """Plot the run described by the options of `account` to `path`; the suffix chooses the format."""
    check_plot_options(path, options)
    delta = _reported_delta(options)
    level = find_plateau(options, delta)
    rows = _plot_rows(options, delta, level)
    kind = path.suffix.lower()
    if kind == ".html":
        _files.write_text(path, _html_page(rows, level, options, delta))
    else:
        path.write_bytes(_draw_figure(rows, level, options, delta, kind.removeprefix(".")))


def _reported_delta(options: Mapping[str, Any]) -> float:
    delta = options.get("delta")
    if delta is None:
        delta = account(**options).at_delta
    return _check.check_open_unit("delta", delta)


def _plot_rows(options: Mapping[str, Any], delta: float, level: Plateau | None) -> list[CurveRow]:
    """Return upper bounds at every point, and lower bounds, which take longer to compute, at some."""
    last = options["n_steps"] if math.isfinite(options["n_steps"]) else 1_000
    marks = {int(options["n_steps"])} if math.isfinite(options["n_steps"]) else set()
    if level is not None and level.n_steps is not None:
        last = max(last, 30 * level.n_steps)
        marks.add(level.n_steps)
    coarse = set(step_grid(options, last, _N_LOWER_POINTS))
    fine = sorted(coarse | marks | set(step_grid(options, last, _N_POINTS)))
    return [curve_row(options, steps, delta, lower=steps in coarse, level=level) for steps in fine]


def _draw_figure(
    rows: Sequence[CurveRow],
    level: Plateau | None,
    options: Mapping[str, Any],
    delta: float,
    kind: str,
    *,
    titled: bool = True,
) -> bytes:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "dplangevin", "svg.fonttype": "path", "font.size": 10}):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        _draw_lines(axes, rows, options["n_steps"])
        if level is not None and level.n_steps is not None:
            _draw_plateau(axes, level.n_steps)
        axes.set(xscale="log", yscale="log", xlabel="number of steps")
        axes.set_ylabel(f"epsilon at delta = {delta:.3g}")
        if titled:
            axes.set_title(_plot_title(options), loc="left", fontsize=10.5)
        axes.grid(True, which="major", color="0.9", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper left")
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


def _draw_lines(axes: Any, rows: Sequence[CurveRow], steps: float) -> None:
    for name, label, colour, dashes in _LINES:
        points = [(row.steps, getattr(row, name)) for row in rows if getattr(row, name)]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=dashes, linewidth=2, label=label)
    this_run = [(row.steps, row.bound) for row in rows if row.steps == steps and row.bound]
    if this_run:
        axes.plot(*this_run[0], "o", color=_LINES[1][2], markersize=7, label="this run")


def _draw_plateau(axes: Any, steps: int) -> None:
    axes.axvline(steps, color="0.6", linewidth=0.8)
    axes.annotate(
        f"more steps\ncost nothing\n(about {steps:,})",
        (steps, 0.03),
        xycoords=("data", "axes fraction"),
        xytext=(5, 0),
        textcoords="offset points",
        fontsize=8.5,
        color="0.35",
    )


def _plot_title(options: Mapping[str, Any]) -> str:
    sampling = options.get("sampling", "full")
    mechanism = "Noisy gradient descent" if sampling == "full" else f"Noisy SGD, {sampling} batches"
    facts = [
        f"n = {int(options['n']):,}",
        f"step size {options['step_size']:g}",
        f"noise {options['noise_std']:g}",
    ]
    if options.get("strong_convexity"):
        facts.append(f"ridge {options['strong_convexity']:g}")
    if math.isfinite(options.get("diameter", math.inf)):
        facts.append(f"diameter {options['diameter']:g}")
    return (
        f"{mechanism}: privacy of the {options.get('release', 'last-iterate').replace('-', ' ')}\n"
        + ", ".join(facts)
    )


def _html_page(
    rows: Sequence[CurveRow], level: Plateau | None, options: Mapping[str, Any], delta: float
) -> str:
    svg = _draw_figure(rows, level, options, delta, "svg", titled=False).decode()  # the page has a title
    facts = [
        f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in options.items()
        if value not in ((), False)
    ]
    sentence = "More steps keep costing privacy."
    return str(
        render_template(
            "plot_page.html",
            title=_plot_title(options).replace("\n", ", "),
            svg=svg[svg.index("<svg") :],
            sentence=answer.plateau_sentence(level, options["n_steps"]) if level else sentence,
            facts=", ".join(facts),
            delta=f"{delta:.6g}",
            rows=[row for row in rows if row.lower is not None] or rows,
            number=answer.format_number,
        )
    )
