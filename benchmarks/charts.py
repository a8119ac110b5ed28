"""Draw the charts of the benchmark pages and of the README from the measured tables.

Usage: python benchmarks/charts.py. Reads ACCURACY.md, ADDITIVE.md and RESULTS.md beside this file, writes charts/*.svg.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
OURS, PEER = "#00796b", "#b0561f"
TITLES = {
    "adult": "Adult (32,561 people)", "syn20": "synthetic, 20 columns", "syn100": "synthetic, 100 columns",
    "bank": "Bank marketing", "digits8": "Digits, is it an 8?", "breast_cancer": "Breast cancer (426 rows)",
    "digits10": "Digits, ten classes",
}  # fmt: skip
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
Points = list[tuple[float, float]]


def tables(text: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield (heading, rows) of every Markdown table."""
    for heading, body in re.findall(r"^#+ (.*)\n((?:(?!^#).*\n?)*)", text, re.MULTILINE):
        lines = [line.strip()[1:-1].split("|") for line in body.splitlines() if line.startswith("|")]
        if len(lines) > 2:
            names = [name.strip() for name in lines[0]]
            cells = ([cell.strip() for cell in line] for line in lines[2:])
            yield heading, [dict(zip(names, row, strict=False)) for row in cells]


def first(cell: str) -> float | None:
    """Return the first number of a cell: the accuracy."""
    found = NUMBER.search(cell)
    return None if found is None else float(found[0])


def points(rows: list[dict[str, str]], column: str) -> Points:
    """Return (epsilon, accuracy) where the column has a number."""
    found = ((float(row["epsilon"]), first(row.get(column, ""))) for row in rows)
    return [(epsilon, value) for epsilon, value in found if value is not None]


def style() -> None:
    """Set a plain style that gives equal bytes for equal numbers."""
    matplotlib.use("Agg")
    plt.rcParams.update({
        "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
        "grid.color": "#e4e4e4", "svg.hashsalt": "dplangevin", "legend.frameon": False, "axes.axisbelow": True,
    })  # fmt: skip


def save(figure: Any, name: str) -> None:
    """Write one file in charts/."""
    (HERE / "charts").mkdir(exist_ok=True)
    path = HERE / "charts" / name
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")


def _draw(axes: Any, rows: dict[str, list[dict[str, str]]], plain: float | None) -> None:
    dashes = {"add-remove": "-", "replace-one": "--", "pure": ":"}
    for guarantee, dash in dashes.items():
        if guarantee in rows:
            axes.plot(*zip(*points(rows[guarantee], "dplangevin"), strict=True), dash, color=OURS, marker="o", ms=4,
                      label=f"dplangevin, {guarantee}")  # fmt: skip
            peers = points(rows[guarantee], "tuned peer")
            if peers:
                axes.plot(*zip(*peers, strict=True), dash, color=PEER, marker="s", ms=3.5, lw=1,
                          label=f"best tuned peer, {guarantee}")  # fmt: skip
    if plain is not None:
        axes.axhline(plain, color="#555", lw=1)
    axes.set_xscale("log")
    axes.set_xticks([0.1, 0.5, 1, 2, 8], ["0.1", "0.5", "1", "2", "8"])
    axes.minorticks_off()


def accuracy_figures(found: dict[str, dict[str, list[dict[str, str]]]]) -> None:
    """Draw accuracy against epsilon, one panel per data set."""
    names = [name for name in TITLES if name in found]
    figure, grid = plt.subplots((len(names) + 1) // 2, 2, figsize=(8.2, 2.5 * ((len(names) + 1) // 2)))
    for axes in grid.flat[len(names) :]:
        axes.axis("off")
    for axes, name in zip(grid.flat, names, strict=False):
        _draw(axes, found[name], None)
        axes.set_title(TITLES[name], loc="left", fontsize=9)
        axes.set_ylabel("accuracy, %")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    grid.flat[len(names) if len(names) % 2 else 0].legend(handles, labels, loc="center left", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("epsilon")
    figure.tight_layout()
    save(figure, "accuracy.svg")


def additive_points(text: str) -> Points:
    """Return the accuracy of the additive classifier on Adult, add-remove, up to epsilon 1."""
    [rows] = [rows for heading, rows in tables(text) if heading == "Cells"]
    adult = [row for row in rows if row["data"] == "adult" and row["guarantee"] == "add-remove"]
    return [point for point in points(adult, "additive") if point[0] <= 1]


def front_figure(
    adult: dict[str, list[dict[str, str]]], other_points: dict[str, Points], curves: Points
) -> None:
    """Draw the figure of the first page: accuracy on Adult."""
    figure, axes = plt.subplots(figsize=(5.6, 3.0))
    plain = other_points.pop("scikit-learn, not private")[0][1]
    axes.axhline(plain, color="#111", lw=1, ls=(0, (1, 2)), label="scikit-learn, not private")
    axes.plot(
        *zip(*curves, strict=True), color="#26a69a", marker="v", lw=2, label="dplangevin additive, add-remove"
    )
    for guarantee, dash in (("add-remove", "-"), ("pure", "--")):
        ours = [point for point in points(adult[guarantee], "dplangevin") if point[0] <= 1]
        axes.plot(
            *zip(*ours, strict=True), dash, color=OURS, marker="o", lw=2, label=f"dplangevin, {guarantee}"
        )
    styles = (("#555", "^"), (PEER, "s"), ("#7b4fa3", "D"))
    for (who, values), (color, marker) in zip(other_points.items(), styles, strict=False):
        axes.plot(*zip(*values, strict=True), color=color, marker=marker, ms=4, lw=1.2, label=who)
    axes.set(
        xscale="log", xlabel="epsilon (smaller is more private)", ylabel="test accuracy, %", ylim=(75.5, 87)
    )
    axes.set_xticks([0.1, 0.5, 1], ["0.1", "0.5", "1"])
    axes.minorticks_off()
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    axes.set_title("Adult: who earns more than 50K? 32,561 people", loc="left", fontsize=9)
    save(figure, "adult.svg")


def peers(results: str) -> dict[str, Points]:
    """Return the accuracy at each epsilon of every library in the section on Adult."""
    [rows] = [rows for heading, rows in tables(results) if heading.startswith("Logistic regression on Adult")]
    found: dict[str, Points] = {}
    for row in rows:
        shares = re.findall(r"(?:epsilon ([\d.]+): )?([\d.]+)%", row["reached"])
        if shares:
            found[row["what"]] = [(float(epsilon or 1), float(value)) for epsilon, value in shares]
    return found


def seconds(text: str) -> float:
    """Return seconds: 0.0123 for 12.3 ms."""
    value, unit = text.split()[:2]
    return float(value) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit.rstrip(",;")]


def time_figure(results: str) -> None:
    """Draw the time of one pass against the number of rows, and of one fit of each library."""
    every = {row["what"]: row for _, rows in tables(results) for row in rows if "what" in row}
    cells = every["rows, p = 50, numba"]["reached"].split("; ")
    sizes = [(float(cell.split(":")[0]), seconds(cell.split(": ")[1])) for cell in cells]
    fits = {
        what: seconds(row["note"])
        for what, row in every.items()
        if row["note"].endswith(("a fit", "per fit")) and not what.endswith("compiled")
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.2, 2.9))
    left.loglog(*zip(*sizes, strict=True), color=OURS, marker="o")
    left.loglog([1e4, 1e7], [sizes[-1][1] / 1e3, sizes[-1][1]], color="#888", lw=1, ls=":")
    left.set(xlabel="records n (50 columns)", ylabel="seconds per pass, one thread")
    left.set_title("time is linear in n (dotted: linear)", loc="left", fontsize=9)
    ranked = sorted(fits.items(), key=lambda entry: -entry[1])
    colors = [OURS if who.startswith("dplangevin") else PEER for who, _ in ranked]
    right.scatter([spent for _, spent in ranked], [who for who, _ in ranked], c=colors, s=40)
    right.set_xscale("log")
    right.set_xlabel("seconds of one fit on Adult, one thread")
    right.tick_params(axis="y", labelsize=7)
    figure.tight_layout()
    save(figure, "time.svg")


def main() -> None:
    """Draw all charts."""
    style()
    accuracy = (HERE / "ACCURACY.md").read_text(encoding="utf-8")
    results = (HERE / "RESULTS.md").read_text(encoding="utf-8")
    found: dict[str, dict[str, list[dict[str, str]]]] = {}
    for heading, rows in tables(accuracy):
        name, _, guarantee = heading.partition(", ")
        if name in TITLES:
            found.setdefault(name, {})[guarantee] = rows
    accuracy_figures(found)
    known = peers(results)
    shown = {
        "scikit-learn, not private": known["scikit-learn, not private"],
        "Opacus (DP-SGD), add-remove": known["Opacus, direct indexing"],
        "diffprivlib, defaults, pure": known["diffprivlib, default, pure"],
    }
    if "DP-EBM, default, add-remove" in known:
        shown["DP-EBM, defaults, add-remove"] = known["DP-EBM, default, add-remove"]
    front_figure(found["adult"], shown, additive_points((HERE / "ADDITIVE.md").read_text(encoding="utf-8")))
    time_figure(results)
    print("wrote benchmarks/charts/*.svg")


if __name__ == "__main__":
    main()
