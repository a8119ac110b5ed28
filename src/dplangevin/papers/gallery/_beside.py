"""What the papers print beside what was drawn, with the difference: read from the numbers of the pictures."""

from __future__ import annotations

import csv
import re
from pathlib import Path

HEAD = "| figure | what | printed | drawn | difference |\n|---|---|---|---|---|\n"
RATES = ("erm-rates", "sco-rates", "rashomon-rates")


def beside(folder: Path) -> str:
    """The table as Markdown, for the CSV files in `folder`."""
    rows = [*_tightness(folder), *_plateau(folder), *_split(folder)]
    for name in RATES:
        rows += _slopes(folder, name)
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _read(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _row(figure: str, what: str, printed: float, drawn: float) -> tuple[str, ...]:
    off = f"{drawn - printed:+.2f}" if abs(printed) <= 3 else f"{100 * (drawn / printed - 1):+.0f}%"
    return f"[{figure}](#{figure})", what, f"{printed:.4g}", f"{drawn:.4g}", off


def _tightness(folder: Path) -> list[tuple[str, ...]]:
    """The paper's two formulas against what runs attain, order 10."""
    found: list[tuple[str, ...]] = []
    for row in _read(folder, "tightness"):
        runs = row["attained by runs"]
        if row["order"] == "10" and row["steps"] in ("10", "100", "500") and runs:
            for name, bound in (
                ("upper", "paper, upper (Corollary 2)"),
                ("lower", "paper, lower (Theorem 3)"),
            ):
                off = 100 * (float(runs) / float(row[bound]) - 1)
                what = f"order 10, {row['steps']} steps, {name} bound; runs of the library"
                figure = ("[tightness](#tightness)", what, f"{float(row[bound]):.4g}", f"{float(runs):.4g}")
                found.append((*figure, f"{off:+.1f}%"))
    return found


def _plateau(folder: Path) -> list[tuple[str, ...]]:
    """Where growth ends: D n / (L eta) = 10^4 steps in the paper, within a constant."""
    rows = [row for row in _read(folder, "plateau") if row["order"] == "2"]
    top = float(rows[-1]["our bound"])
    end = next(float(row["steps"]) for row in rows if float(row["our bound"]) >= 0.99 * top)
    return [_row("plateau", "steps of growth, order D n / (L eta); bound at 99% of its plateau", 1e4, end)]


def _split(folder: Path) -> list[tuple[str, ...]]:
    last = _read(folder, "split-regimes")[-1]
    printed = float(last["short term, m-strongly convex (Lemma I.2)"])
    return [
        _row(
            "split-regimes",
            "Lemma I.2 for long times; exact value",
            printed,
            float(last["exact, quadratic loss"]),
        )
    ]


def _slopes(folder: Path, name: str) -> list[tuple[str, ...]]:
    """Powers of n, p and epsilon of every row of a table, and the largest difference."""
    claimed: dict[str, list[float]] = {}
    drawn: dict[str, list[float]] = {}
    for row in _read(folder, name):
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
