"""The gallery: every figure is drawn quickly with picture, numbers and text, and the page shows them all."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from dplangevin.cli.main import run_command_line
from dplangevin.errors import InvalidParameter
from dplangevin.papers import gallery
from dplangevin.papers.gallery._draw import comparison_table

DOCS = Path(__file__).parents[3] / "docs"
SLOW = {
    "public-mirror-descent",
    "plateau",
    "erm-rates",
    "sco-rates",
    "counting-error",
    "clock",
    "langevin-steps",
    "tables",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in gallery.FIGURES]
)
def test_every_figure_is_drawn(name: str, tmp_path: Path) -> None:
    text = gallery.reproduce_figure(name, tmp_path, quick=True)
    assert text.strip()
    assert (tmp_path / f"{name}.txt").read_text(encoding="utf-8").strip() == text.strip()
    assert any((tmp_path / f"{name}{suffix}").stat().st_size > 5000 for suffix in (".svg", ".png")
               if (tmp_path / f"{name}{suffix}").exists())  # fmt: skip
    with (tmp_path / f"{name}.csv").open(encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    assert len(rows) > 3
    assert all(len(row) == len(rows[0]) for row in rows)
    if name in SHOWS:
        SHOWS[name]([dict(zip(rows[0], row, strict=True)) for row in rows[1:]])


def far_from_stationary(rows: list[dict[str, str]]) -> None:
    """By T = 1/(100 p) the diffusion has moved the less the larger p is: below 2 sqrt(2 T p) = 0.283 at p = 256."""
    moved = [float(row["value"]) for row in rows if row["horizon"].startswith("1/(100p)")]
    assert moved == sorted(moved, reverse=True)
    assert 0.05 < moved[-1] < 0.283


def counts_of_steps(rows: list[dict[str, str]]) -> None:
    """What a quadratic needs is below every proved count, and the certificate far below the thesis' route."""
    for row in rows:
        needed, under, over, printed = (
            float(row[key]) for key in ("quadratic", "underdamped", "girsanov", "thesis route")
        )
        assert needed < under < over < 1e-6 * printed


def starts(rows: list[dict[str, str]]) -> None:
    """A warm start is far better than a cold one, and mirror descent is not worse than it."""
    error = {row["method"]: float(row["error"]) for row in rows if row["dimension"] == "500"}
    cold, warm = error["cold-started noisy descent"], error["warm-started noisy descent"]
    assert 0.01 < error["mirror descent"] < 1.05 * warm < 0.7 * cold


SHOWS = {"drift": far_from_stationary, "langevin-steps": counts_of_steps, "public-mirror-descent": starts}


@pytest.mark.parametrize("name", gallery.FIGURES)
def test_the_page_shows_every_figure(name: str) -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert f"reproduce {name}" in page
    pictures = [suffix for suffix in (".svg", ".png") if f"images/gallery/{name}{suffix})" in page]
    assert len(pictures) == 1
    assert (DOCS / "images" / "gallery" / f"{name}{pictures[0]}").is_file()
    assert gallery.find_figure(name).title in page


def test_the_command_lists_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["reproduce", "list"]) == 0
    assert "tightness" in capsys.readouterr().out
    assert run_command_line(["reproduce", "tightness", "--quick", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "tightness.svg").is_file()
    assert run_command_line(["reproduce", "nonsense"]) == 2
    assert "choose among" in capsys.readouterr().err


def test_an_unknown_figure_names_the_known_ones() -> None:
    with pytest.raises(InvalidParameter, match="split-regimes"):
        gallery.find_figure("nonsense")


def test_the_page_shows_the_papers_numbers_beside_ours() -> None:
    """Printed, drawn and their difference, read from the numbers of the pictures."""
    table = comparison_table(DOCS / "images" / "gallery")
    assert table in (DOCS / "gallery.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert len(rows) >= 25
    slopes = [row for row in rows if "powers of" in row[1]]
    near = [row for row in slopes if float(row[4].strip(" |")) <= 0.2]
    assert len(near) >= 12
