"""Pictures of an account: formats, contents, and what is refused."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dplangevin.cli.main import run_command_line
from dplangevin.errors import InvalidParameter
from dplangevin.report import answer, plots

RUN: dict[str, Any] = {
    "n": 10_000, "lipschitz": 1.0, "smoothness": 0.26, "strong_convexity": 0.01, "step_size": 1.0,
    "noise_std": 0.012, "n_steps": 1_000, "delta": 1e-6,
}  # fmt: skip
LIMIT = 200_000


def test_png(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    answer.write_plot(path, RUN)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size < LIMIT


def test_svg_is_valid_and_reproducible(tmp_path: Path) -> None:
    path = tmp_path / "picture.SVG"
    answer.write_plot(path, RUN)
    first = path.read_bytes()
    answer.write_plot(path, RUN)
    assert path.read_bytes() == first
    assert ElementTree.fromstring(first).tag.endswith("svg")
    assert len(first) < LIMIT


def test_html_is_self_contained(tmp_path: Path) -> None:
    path = tmp_path / "picture.html"
    assert run_command_line(_arguments("--plot", str(path))) == 0
    page = path.read_text(encoding="utf-8")
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(page.replace('<link rel="icon" href="data:,">', ""))
    assert {"svg", "table"} <= set(tags)
    assert not {"script", "img", "link", "iframe"} & set(tags)
    assert not re.search(r"""(src|href)=["']https?:""", page.replace('xlink:href="#', ""))
    assert "more steps cost nothing" in page
    assert "optimal-shift" in page


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "picture.svg"
    assert run_command_line([*_arguments("--plot", str(path)), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("{")
    assert captured.err == f"wrote {path}\n"


def test_without_matplotlib_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidParameter, match=r"dplangevin\[plot\]"):
        answer.write_plot(tmp_path / "picture.png", RUN)


def test_checkpoints_are_not_drawn(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="checkpoints"):
        answer.check_plot_options(
            tmp_path / "picture.png", {**RUN, "release": "checkpoints", "checkpoints": (1,)}
        )


def test_rows_agree_with_the_plateau() -> None:
    level = plots.find_plateau(RUN, 1e-6)
    assert level is not None
    assert level.n_steps is not None
    late = plots.curve_row(RUN, 10 * level.n_steps, 1e-6, level=level)
    asked = plots.curve_row(RUN, 10 * level.n_steps, 1e-6)
    assert late.bound == level.epsilon
    assert asked.bound == pytest.approx(level.epsilon, rel=1e-6)
    assert late.composition == asked.composition
    assert late.theorem == asked.theorem
    early = plots.curve_row(RUN, level.n_steps // 2, 1e-6)
    assert early.bound is not None
    assert early.bound < level.epsilon


def test_steps_are_whole_epochs_for_cyclic_batches() -> None:
    grid = plots.step_grid({"n": 1000, "batch_size": 300, "sampling": "cyclic"}, 1000, 9)
    assert all(steps % 4 == 0 for steps in grid)
    assert grid[0] == 4
    assert grid[-1] >= 1000
    assert list(grid) == sorted(set(grid))


def _arguments(*more: str) -> list[str]:
    words = [word for name, value in RUN.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return ["account", *words, *more]
