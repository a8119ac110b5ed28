"""The report and the command of Rashomon sets: what people read is what programs read, and the page works offline."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dplangevin.cli.main import run_command_line
from dplangevin.datasets import INCOME_SCHEMA, load_income
from dplangevin.estimators import model_file
from dplangevin.rashomon.region_request import schema_inputs

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private table, a public one and the schema, as files; and one run of the command."""
    here = tmp_path_factory.mktemp("rashomon")
    table, _ = load_income(n=900, random_state=1)
    table.iloc[:600].to_csv(here / "private.csv", index=False)
    table.iloc[600:].to_csv(here / "public.csv", index=False)
    (here / "schema.json").write_text(json.dumps(INCOME_SCHEMA))
    assert command(here, "--report", str(here / "out.html"), "--public", str(here / "public.csv"), "--group", "married",
                   "--output", str(here / "models")) == 0  # fmt: skip
    return here


def command(folder: Path, *more: str, **changes: str) -> int:
    options = {
        "--target": "income", "--schema": str(folder / "schema.json"), "--threshold": "0.2", "--n-models": "3",
        "--epsilon": "8", "--radius": "1", "--random-state": "1", **changes,
    }  # fmt: skip
    return run_command_line(
        ["rashomon", str(folder / "private.csv"), *(x for pair in options.items() for x in pair), *more]
    )


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.values: list[float] = []
        self.script, self._inside = "", ""
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        given = dict(attrs)
        if tag == "data":
            self.values.append(float(given["value"] or "nan"))
        self.links += [str(given[name]) for name in ("src", "href") if name in given]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.script += data


def numbers(plain: Any) -> set[float]:
    if isinstance(plain, dict):
        return set().union(*map(numbers, plain.values())) if plain else set()
    if isinstance(plain, list):
        return set().union(*map(numbers, plain)) if plain else set()
    return {float(plain)} if isinstance(plain, int | float) and not isinstance(plain, bool) else set()


def test_the_page_shows_the_numbers_of_the_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = Page((folder / "out.html").read_text())
    embedded = json.loads(page.script)
    assert page.values
    assert set(page.values) <= numbers(embedded)
    capsys.readouterr()
    assert command(folder, "--json", "--public", str(folder / "public.csv"), "--group", "married") == 0
    printed = json.loads(capsys.readouterr().out)
    assert {k: v for k, v in printed.items() if k != "created"} == {
        k: v for k, v in embedded.items() if k != "created"
    }
    assert printed["hit_bound"] in (folder / "out.html").read_text()
    assert printed["guarantee"]["epsilon"] <= 8
    assert printed["multiplicity"]["used_private_data"] is False
    assert set(printed["multiplicity"]["fairness"]["groups"]) == {"no", "yes"}
    assert (
        printed["multiplicity"]["reliance"]["age"]["low"]
        <= printed["multiplicity"]["reliance"]["age"]["high"]
    )


def test_the_page_is_small_and_fetches_nothing(folder: Path) -> None:
    text = (folder / "out.html").read_text()
    assert len(text) < 3_000_000
    assert all(link.startswith("data:") for link in Page(text).links)
    assert not re.search(r"https?://", text.replace("http://www.w3.org/2000/svg", ""))


def test_models_are_written_and_predict(folder: Path) -> None:
    files = sorted((folder / "models").glob("*.json"))
    assert len(files) == 3
    model = model_file.load_model(files[0])
    public = load_income(n=50, random_state=5)[0].drop(columns="income")
    assert set(model.predict(public)) <= {"<=50K", ">50K"}


def test_inputs_from_the_schema_and_the_plan_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(folder, "--plan") == 0
    assert "probability at least" in capsys.readouterr().out
    assert command(folder, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert "no record of the data" in printed["inputs"]
    schema = load_income(n=1)[1]
    rows = schema_inputs(schema, n_rows=40)
    assert list(rows.columns) == [column.name for column in schema.columns]
    assert rows.age.between(17, 90).all()
    assert rows.capital_gain.between(0, 100_000).all()


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"--threshold": "-1"}, 2, "threshold"),
        ({"--n-models": "0"}, 2, "--n-models"),
        ({"--threshold": "50"}, 2, "admits every model"),
        ({"--route": "trajectory", "--delta": "1e-6"}, 3, "--route 'pure'"),
        ({"--report": "out.pdf"}, 2, "report"),
        ({"--model": "tree"}, 2, "--model"),
        ({"--group": "shoe_size"}, 2, "--group"),
    ],
)
def test_bad_input_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], code: int, words: str
) -> None:
    capsys.readouterr()
    assert command(folder, **changes) == code
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_the_page_opens_in_a_browser_without_errors(folder: Path, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    shot = tmp_path / "page.png"
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=900,3000", f"--screenshot={shot}", "--dump-dom", (folder / "out.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "Rashomon set of 3 models" in done.stdout
    assert done.stdout.count("<svg") == 2
    assert ":CONSOLE" not in done.stderr
    assert not shot.exists() or shot.stat().st_size > 5000
