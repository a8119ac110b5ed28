"""What the documentation shows runs as it is written."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from docs._blocks import PAGES, ROOT, blocks, commands
from dplangevin.cli.main import app

sys.path.insert(0, str(ROOT / "tools"))
import tutorials

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LINKED = [
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_and_commands_run(page: Path, tmp_path: Path) -> None:
    tutorials.run_blocks(page.read_text(encoding="utf-8"), tmp_path)


COMMAND = re.compile(r"(?:^\$ |^|`)(dplangevin (?:[a-z]+ )*[^`\n]*--[^`\n]*)", re.MULTILINE)


@pytest.mark.parametrize("page", [*PAGES, *LINKED], ids=lambda page: page.name)
def test_options_of_commands_exist(page: Path) -> None:
    """Also of those that stand in a sentence, or need a server."""
    wrong = []
    for line in COMMAND.findall(page.read_text(encoding="utf-8").replace("\\\n", " ")):
        words = line.partition(" # ")[0].split()[1:]
        command: Any = typer.main.get_command(app)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        command = getattr(command, "commands", {}).get("model", command)  # `audit` alone is `audit model`
        known = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)} | {"--help"}
        wrong += [f"{line}: {word}" for word in words if re.match(r"--[a-z]", word) and word not in known]
    assert not wrong


LONG = {
    "epsilon_against_steps.py",
    "low_order_bits.py",
    "table_one.py",
    "public_data.py",
    "rashomon.py",
    "counting.py",
}  # pages of the same subjects run above


@pytest.mark.parametrize(
    "script",
    [pytest.param(each, id=each.name, marks=[pytest.mark.slow] * (each.name in LONG)) for each in EXAMPLES],
)
def test_examples_run(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("page", [*PAGES, *LINKED], ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_there_is_something_to_run() -> None:
    assert EXAMPLES
    assert blocks(ROOT / "README.md", "python")
    assert commands(ROOT / "README.md")


def test_the_first_page_has_at_most_ten_links() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(set(re.findall(r"(?<!!)\[[^]]*\]\(([^)]+)\)", text))) <= 10


def test_the_first_page_shows_what_was_measured() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    measured = "".join(
        (ROOT / "benchmarks" / name).read_text(encoding="utf-8")
        for name in ("ACCURACY.md", "ADDITIVE.md", "RESULTS.md")
    )
    shares = re.findall(r"(\d\d\.\d\d)%", text)
    assert len(shares) >= 7
    assert not [share for share in shares if share not in measured]


def test_the_first_code_has_ten_lines() -> None:
    lines = blocks(ROOT / "README.md", "python")[0].splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 10


def missing_modules(text: str) -> list[str]:
    """Files and folders of the package that a page names in code type and that do not exist."""
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)+/?(?:\.py)?)`", text)
    homes = (ROOT / "src" / "dplangevin", ROOT / "src", ROOT)
    return [path for path in named if not any((home / path).exists() for home in homes)]


def test_pages_name_modules_that_exist() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md"), *ROOT.glob("*.md")]
    missing = {page.name: missing_modules(page.read_text(encoding="utf-8")) for page in pages}
    assert not {name: paths for name, paths in missing.items() if paths and name != "CHANGELOG.md"}
    assert missing_modules("see `mechanisms/whitened/spec.py` and `families/whitened/`") == [
        "families/whitened/"
    ]


def test_the_two_commands_are_the_ones_ci_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
