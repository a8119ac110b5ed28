"""The command line speaks of its flags, in one line, and says nothing that is not so."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer

from dplangevin.cli import _io, main
from dplangevin.cli.main import app, run_command_line
from dplangevin.datasets import load_income
from dplangevin.errors import InvalidParameter

RIDGE = ["numbers.csv", "--target", "age", "--model", "ridge", "--epsilon", "1"]
FIT = ["fit", *RIDGE, "-o", "model.json", "--target-bounds", "0,100"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    people, schema = load_income(n=300)
    people.to_csv("people.csv", index=False)
    schema.save("schema.json")
    numbers = people.assign(income=(people["income"] == ">50K").astype(int))[["age", "income"]]
    numbers.to_csv("numbers.csv", index=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (FIT, "needs --data-norm"),
        ([*FIT, "--data-norm", "-1"], "--data-norm must be positive"),
        ([*FIT, "--data-norm", "1", "--epsilon", "0"], "--epsilon must be positive"),
        (
            [*FIT, "--data-norm", "1", "--secure", "--random-state", "1"],
            "--random-state must be left out with --secure",
        ),
        ([*FIT, "--data-norm", "1", "--schema", "schema.json"], "--data-norm and schema"),
        ([*FIT, "--data-norm", "1", "--compare"], "--compare needs --public FILE"),
        ([*FIT, "--data-norm", "1", "--public-method", "x"], "--public-method must be one of"),
        (["fit", *RIDGE, "-o", "model.json", "--data-norm", "1"], "--target-bounds LOW,HIGH"),
        ([*FIT, "--data-norm", "1", "--adjacency", "x"], "--adjacency must be one of"),
        (
            ["rashomon", *RIDGE, "--target-bounds", "0,100", "--radius", "1", "--threshold", "1", "--n-models", "0",
             "--data-norm", "1", "--public", "numbers.csv"],
            "--n-models must be a whole number",
        ),
        (["audit", "--model", "ridge", "--epsilon", "-1"], "--epsilon must be positive"),
        (["audit", "pipeline", "json:dumps", "--table", "numbers.csv", "--bound", "-1"], "--bound must not be"),
        (["count", "people.csv", "--epsilon", "1", "--delta", "1e-6"], "--marginals, --columns, --where or --groups"),
        (
            ["ledger", "init", "--ledger", "sqlite:///b.db", "--dataset", "a", "--epsilon", "1", "--delta", "2"],
            "--delta must",
        ),
    ],
)  # fmt: skip
def test_errors_name_flags(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    assert run_command_line(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not re.search(
        r"\b(data_norm|target_bounds|random_state|public_data|public_method|n_models)\b", said
    )


def test_only_options_of_the_command_are_named() -> None:
    root = typer.main.get_command(app)
    fit = main.flags_by_parameter(main.find_command(root, ["fit", "--theorem"]))
    account = main.flags_by_parameter(main.find_command(root, ["account"]))
    assert main.rewrite_with_flags("theorem must be one of a, b.", fit).startswith("theorem")
    assert main.rewrite_with_flags("theorem must be one of a, b.", account).startswith("--theorem")
    assert main.flags_by_parameter(main.find_command(root, ["audit", "--model", "ridge"]))["confidence"]


@pytest.mark.parametrize(
    "prose",
    [
        "the noise came from --random-state: the guarantee holds",
        "the composed epsilon = 2 is above the budget",
        "the report could not be written; the model is in model.json",
        "see dplangevin.save_model(model, path)",
    ],
)
def test_prose_stays_prose(prose: str) -> None:
    flags = {"epsilon": "--epsilon", "report": "--report", "model": "--model", "seed": "--random-state"}
    assert main.rewrite_with_flags(prose, flags) == prose


def test_a_warning_is_one_line_and_silent_with_q(capsys: pytest.CaptureFixture[str]) -> None:
    command = [*FIT, "--data-norm", "100", "--delta", "0.1"]
    assert run_command_line(command) == 0
    said = capsys.readouterr().err
    assert said.startswith("warning: --delta = 0.1 is not below 1/n")
    assert said.count("\n") == 1
    for quiet in ("-q", "--quiet"):
        assert run_command_line([*command, quiet]) == 0
        assert capsys.readouterr().err == ""


def test_warnings_of_other_libraries_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def chatty(*given: Any) -> Any:
        warnings.warn("row 17 holds SECRET", FutureWarning, stacklevel=2)
        return read(*given)

    read = _io.read_table
    monkeypatch.setattr("dplangevin.cli._io.read_table", chatty)
    assert run_command_line([*FIT, "--data-norm", "100"]) == 0
    assert "SECRET" not in capsys.readouterr().err


def test_no_schema_is_not_said_when_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    for schema in (None, "a schema"):
        with pytest.raises(InvalidParameter) as caught, _io.hide_cell_errors(Path("x.csv"), schema):
            raise ValueError("could not convert 'SECRET'")
        assert ("without a schema" in str(caught.value)) == (schema is None)
        assert "SECRET" not in str(caught.value)


def test_a_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["ledger"]) == 2
    said = capsys.readouterr()
    assert "init" in said.out + said.err
    assert "error" not in said.err


def test_a_file_with_another_delimiter_is_one_sentence_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, schema = tmp_path / "t.csv", tmp_path / "s.toml"
    file.write_text("age;town\n" + "30;Bern\n50;Genève\n" * 40, encoding="utf-8")
    commands = (
        ["schema", "init", str(file), "--target", "town", "-o", str(schema)],
        ["schema", "check", str(schema), str(file)],
        ["fit", str(file), "--schema", str(schema), "--target", "town", "--epsilon", "5", "-o", "m.json"],
        ["count", str(file), "--schema", str(schema), "--marginals", "1", "--epsilon", "5", "--delta", "1e-6"],
        ["count", str(file), "--groups", "town", "--epsilon", "5", "--delta", "1e-6"],
    )  # fmt: skip
    for command in commands:
        assert run_command_line(command) == 2
        sentence = capsys.readouterr().err.splitlines()[-1]
        assert "names a single column, 'age;town'" in sentence
        assert "--delimiter ';'" in sentence
        assert run_command_line([*command, "--delimiter", ";"]) == 0
        capsys.readouterr()
    one_column = tmp_path / "one.csv"
    one_column.write_text("a;b\nx\ny\n")
    assert run_command_line(["schema", "init", str(one_column), "--delimiter", ","]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "fit",
            "bare.csv",
            "--target",
            "income",
            "--schema",
            "schema.json",
            "--epsilon",
            "1",
            "-o",
            "model.json",
        ],
        [
            "fit",
            "bare.csv",
            "--target",
            "income",
            "--data-norm",
            "1",
            "--classes",
            "a,b",
            "--epsilon",
            "1",
            "-o",
            "m.json",
        ],
        [
            "count",
            "bare.csv",
            "--columns",
            "age",
            "--schema",
            "schema.json",
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
        ],
        ["count", "bare.csv", "--groups", "occupation", "--epsilon", "1", "--delta", "1e-6"],
        ["summarize", "bare.csv", "--schema", "schema.json", "--epsilon", "1", "--delta", "1e-6"],
    ],
    ids=lambda arguments: " ".join(arguments[:4]),
)
def test_the_first_record_of_a_file_without_a_header_is_not_shown(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is taken for the names of the columns, and an error about an absent one would list it."""
    lines = Path("people.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    repeated = Path("repeated.csv")
    repeated.write_text("7131,a,7131\n" * 3, encoding="utf-8")
    assert run_command_line([arguments[0], str(repeated), *arguments[2:]]) != 0
    assert "7131" not in capsys.readouterr().err
    Path("bare.csv").write_text("".join(lines[1:]), encoding="utf-8")
    assert run_command_line(arguments) != 0
    message = capsys.readouterr().err
    assert "header" in message
    cells = set(lines[1].strip().split(",")) - {"no", "yes"}  # words of the sentence itself
    assert len(cells) > 4
    assert not [cell for cell in cells if re.search(rf"(?<!\w){re.escape(cell)}(?!\w)", message)]
