"""Comparison of printed values with redrawn ones, read from the CSV files of the figures."""

from __future__ import annotations

import csv
import re
from pathlib import Path

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
    off = f"{drawn - printed:+.2f}" if abs(printed) <= 3 else f"{100 * (drawn / printed - 1):+.0f}%"
    return f"[{figure}](#{figure})", what, f"{printed:.4g}", f"{drawn:.4g}", off


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
                off = 100 * (float(runs) / float(row[bound]) - 1)
                what = f"order 10, {row['steps']} steps, {name} bound; runs of the library"
                figure = ("[tightness](#tightness)", what, f"{float(row[bound]):.4g}", f"{float(runs):.4g}")
                rows.append((*figure, f"{off:+.1f}%"))
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
