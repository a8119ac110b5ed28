"""Tutorials print what they say they print."""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from docs._blocks import ROOT
from dplangevin.papers import PAPERS

sys.path.insert(0, str(ROOT / "tools"))
import tutorials

FAST_TUTORIALS = {"own_table", "accountant", "from_a_paper"}  # the others are run by `make test-all`


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.stem in FAST_TUTORIALS else pytest.mark.slow)
        for page in tutorials.pages()
    ],
    ids=lambda page: page.stem,
)
def test_a_tutorial_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    text, before = page.read_text(encoding="utf-8"), process_time()
    assert not tutorials.differences(text, tutorials.run_blocks(text, tmp_path))
    if page.stem == "from_a_paper":  # five papers, each of them in less than two minutes
        assert process_time() - before < 120
    for name in tutorials.pictures(text):
        assert (tmp_path / name).is_file()
        assert (ROOT / "docs" / "images" / "tutorials" / name).is_file()


def test_every_paper_leads_to_a_run_on_both_ways() -> None:
    """A section per paper, titled as the paper, with commands and Python; the page itself runs above."""
    text = (tutorials.FOLDER / "from_a_paper.md").read_text(encoding="utf-8")
    sections = {part.split("\n")[0]: part for part in text.split("\n## ")[1:]}
    assert list(sections) == [paper.title for paper in PAPERS]
    for part in sections.values():
        assert {"python", "console"} == {language for language, _, _ in tutorials.BLOCK.findall("## " + part)}
        assert "$ dplangevin papers show " in part


def test_a_tutorial_that_says_something_else_is_noticed(tmp_path: Path) -> None:
    text = "```python\nprint(3)\n```\n\n```text\n3\n```\n\n"
    text += "```python\nprint('epsilon', 1.0)\n```\n\n```text\nepsilon 1.0\n```\n"
    assert not tutorials.differences(text, tutorials.run_blocks(text, tmp_path))
    said = "\n```text\nepsilon 1.0\n```\n"
    for wrong in (said.replace("1.0", "2.0"), said.replace("epsilon", "delta"), ""):
        assert tutorials.differences(text.replace(said, wrong), tutorials.run_blocks(text, tmp_path))


def test_a_command_that_fails_is_noticed(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        tutorials.run_blocks("```console\n$ dplangevin schema init\n```\n", tmp_path)


@pytest.mark.parametrize("page", tutorials.pages(), ids=lambda page: page.stem)
def test_a_notebook_has_the_blocks_and_what_they_print(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    made: Any = tutorials.notebook(text)
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    blocks = tutorials.BLOCK.findall(text)
    assert len(code) == len(blocks)
    assert len({cell["id"] for cell in made["cells"]}) == len(made["cells"])
    for cell, (language, body, said) in zip(code, blocks, strict=True):
        source = "".join(cell["source"])
        assert source == body.strip() if language == "python" else source.startswith("!dplangevin ")
        assert "".join("".join(out["text"]) for out in cell["outputs"]) == said
    prose = "".join("".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "markdown")
    assert "```" not in prose.replace("```sh", "")
    assert "](../" not in prose
