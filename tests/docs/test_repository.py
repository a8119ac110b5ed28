"""The files around the code: workflows, version, changes, citation, the lowest versions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import dplangevin
from docs._blocks import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.github-issue-forms": sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[bf]*.yml")),
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}  # fmt: skip
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def targets() -> set[str]:
    """What make offers."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def _checked(schema: str, files: list[Path]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_files_of_the_code_host_keep_to_their_schemas(tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    for schema, files in SCHEMAS.items():
        done = _checked(schema, files)
        assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("runs-on", "runs-of"), encoding="utf-8")
    assert _checked("vendor.github-workflows", [wrong]).returncode != 0


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_call_make_only(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    steps = re.findall(r"- run: (.*)", text)
    assert steps
    assert text.count("run:") == len(steps)
    for step in steps:
        words = step.split()
        assert words[0] == "make"
        assert words[1] in targets()


def test_one_version() -> None:
    dated = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", CHANGES, re.MULTILINE)
    assert dated[0][0] == dplangevin.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {dated[0][0]}\n" in citation
    assert f'date-released: "{dated[0][1]}"' in citation
    assert "version" in PROJECT["dynamic"]
    assert CHANGES.index("## [Unreleased]") < CHANGES.index("## [0.1.0]")


def test_the_conda_file_states_what_the_project_states() -> None:
    recipe = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == dplangevin.__version__
    needed = [
        f"python {PROJECT['requires-python']}",
        *(re.sub(r"(?=>=)", " ", d, count=1) for d in PROJECT["dependencies"]),
    ]
    assert recipe["requirements"]["run"] == needed
    scripts = [f"{name} = {entry}" for name, entry in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts


def test_changes_have_the_known_headings() -> None:
    known = {"Privacy", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", CHANGES, re.MULTILINE)) <= known


def test_addresses_are_stated_or_marked() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert ("urls" in PROJECT) != ("PLACEHOLDER" in text)


def test_the_lowest_versions_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from lowest import pins

    found = pins((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for entry in PROJECT["dependencies"]:
        name, _, version = entry.partition(">=")
        assert f"{name}=={version}" in found
    assert not any("<" in entry or "==" in entry for entry in PROJECT["dependencies"])  # no break is known
