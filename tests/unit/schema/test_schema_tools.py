"""Drafts of a schema, checks on public rows, and coefficients by name."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dplangevin
from dplangevin import DPLogisticRegression, DPRidge, Schema, SchemaEncoder
from dplangevin.cli.main import run_command_line
from dplangevin.datasets import load_income
from dplangevin.errors import InvalidParameter
from dplangevin.estimators import model_file
from dplangevin.estimators.fit_preview import check_schema
from dplangevin.schema.learned import draft_schema, draft_schema_from_public

ROWS = [
    {"age": 17 + i, "zip": ("02139", "10001")[i % 2], "grade": i % 3, "share": i / 7, "sick": "no" if i % 2 else "yes"}
    for i in range(40)
]  # fmt: skip


def test_top_level_names() -> None:
    assert dplangevin.Schema is Schema
    assert dplangevin.SchemaEncoder is SchemaEncoder


def test_the_repr_is_one_short_line() -> None:
    _, schema = load_income(n=1)
    assert repr(schema) == (
        "Schema(age [17, 90], education_years [4, 20], hours_per_week [1, 99], capital_gain [0, 100000], "
        "occupation (7 categories), married (2 categories); target income (2 categories); missing = 'middle', "
        "row_norm = 1)"
    )
    wide = Schema.from_dict({"columns": {f"c{i}": {"range": [0, 1]} for i in range(500)}})
    assert "and 494 more" in repr(wide)
    assert len(repr(wide)) < 200


def test_a_file_with_a_byte_order_mark_loads(tmp_path: Path) -> None:
    _, schema = load_income(n=1)
    for name in ("schema.json", "schema.toml"):
        schema.save(tmp_path / name)
        text = (tmp_path / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text("\ufeff" + text, encoding="utf-8")
        assert Schema.load(tmp_path / name) == schema


def test_a_skeleton_of_names_is_refused_until_it_is_filled_in() -> None:
    content = tomllib.loads(draft_schema(["age", 'odd "name"', "y"], target="y"))
    assert list(content["columns"]) == ["age", 'odd "name"']
    assert content["target"] == {"name": "y"}
    with pytest.raises(InvalidParameter, match=r"columns\.age needs either 'range'"):
        Schema.from_dict(content)
    for names in ([], ["a", "a"]):
        with pytest.raises(InvalidParameter, match="each listed once"):
            draft_schema(names)


def test_a_draft_of_public_rows_loads_and_covers_them() -> None:
    text = draft_schema_from_public(ROWS, target="sick")
    schema = Schema.from_dict(tomllib.loads(text))
    assert "PUBLIC" in text
    assert text.count("leading zeros") == 1
    assert schema.names == ("age", "zip", "grade", "share")
    age, share = schema.column("age"), schema.column("share")
    assert age.low <= 17 < 56 <= age.high <= 60  # type: ignore[union-attr]
    assert share.low <= 0 < 39 / 7 <= share.high <= 6  # type: ignore[union-attr]
    assert schema.column("zip").categories == ("02139", "10001")  # type: ignore[union-attr]
    assert schema.column("grade").categories == (0, 1, 2)  # type: ignore[union-attr]
    assert schema.column("sick").categories == ("no", "yes")  # type: ignore[union-attr]


def test_decimal_commas_of_public_rows_are_recognised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, made = tmp_path / "public.csv", tmp_path / "schema.toml"
    path.write_text("age;note\n" + "".join(f"{age},5;a,{age}\n" for age in range(20, 60)))
    dialect = ["--delimiter", ";"]
    for more, hints in (([], 1), (["--decimal", ","], 0)):
        assert run_command_line(["schema", "init", str(path), *dialect, *more]) == 0
        text = capsys.readouterr().out
        assert text.count("decimal comma") == hints
        age = Schema.from_dict(tomllib.loads(text)).column("age")
        assert isinstance(age, dplangevin.schema.NumericColumn)
        assert age.low <= 20.5 < 59.5 <= age.high <= 60
    made.write_text("[columns.age]\nrange = [0, 100]\n")
    assert run_command_line(["schema", "check", str(made), str(path), *dialect]) == 0
    assert "100% missing or not a number; 100% with a decimal comma" in capsys.readouterr().out
    assert run_command_line(["schema", "check", str(made), str(path), *dialect, "--decimal", ","]) == 0
    assert "age (range 0 to 100): fits" in capsys.readouterr().out


@pytest.mark.parametrize("value", [5.5, -3.25, 0.001, 1e12])
def test_a_constant_column_still_gets_a_range(value: float) -> None:
    schema = Schema.from_dict(tomllib.loads(draft_schema_from_public([{"x": value}])))
    if isinstance(column := schema.column("x"), dplangevin.schema.NumericColumn):
        assert column.low <= value <= column.high


def test_what_cannot_be_listed_is_left_open() -> None:
    rows = [{"name": f"n{i}", "empty": None} for i in range(60)]
    text = draft_schema_from_public(rows)
    assert "60 distinct cells" in text
    assert "n1" not in text
    with pytest.raises(InvalidParameter, match=r"columns\.name needs"):
        Schema.from_dict(tomllib.loads(text))


def test_init_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, made = tmp_path / "public.csv", tmp_path / "schema.toml"
    pd.DataFrame(ROWS).to_csv(table, index=False)
    assert run_command_line(["schema", "init", str(table), "--target", "sick", "-o", str(made)]) == 0
    assert "treated as PUBLIC" in capsys.readouterr().err
    assert Schema.load(made).column("zip").categories == ("02139", "10001")  # type: ignore[union-attr]
    assert run_command_line(["schema", "init", str(table), "-o", str(made)]) == 2  # never over an edited file
    assert "exists" in capsys.readouterr().err
    assert run_command_line(["schema", "init", "--columns", "a, b"]) == 0
    assert list(tomllib.loads(capsys.readouterr().out)["columns"]) == ["a", "b"]
    for wrong in (
        [],
        [str(table), "--columns", "a"],
        ["--columns", "a", "-o", "x.txt"],
        [str(table), "--target", "?"],
    ):
        assert run_command_line(["schema", "init", *wrong]) == 2


def test_check_says_what_is_clipped_and_what_never_matches() -> None:
    schema = Schema.from_dict(
        {
            "columns": {
                "age": {"range": [20, 60]},
                "gain": {"range": [0, 100], "transform": "log1p"},
                "job": {"categories": ["a", "b", "c"]},
            },
            "target": {"name": "y", "classes": [0, 1]},
            "missing": "middle",
        }
    )
    rows = pd.DataFrame(
        {
            "age": [10, 20, 60, 61, None, 40, 1e9, -1e9],
            "gain": [0, 100, 50, 1, 2, 3, 4, 101],
            "job": ["a", "b", "a", "b", "a", "z", "a", "a"],
            "y": [0, 0, 0, 0, 0, 0, 0, 0],
        }
    )
    age, gain, job, target = check_schema(schema, rows).columns
    assert (age.below, age.above, age.missing) == (2 / 8, 2 / 8, 1 / 8)
    assert (gain.below, gain.above, gain.missing) == (0, 1 / 8, 0)
    assert (job.unmatched, job.unlisted) == (("c",), 1 / 8)
    assert (target.unmatched, target.unlisted) == (("1",), 0)
    people, fitting = load_income(n=2000)
    assert check_schema(fitting, people).is_clean
    assert check_schema(fitting, people.drop(columns="income")).is_clean


def test_check_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people, schema = load_income(n=200)
    people.to_csv(tmp_path / "public.csv", index=False)
    schema.save(tmp_path / "schema.json")
    command = ["schema", "check", str(tmp_path / "schema.json"), str(tmp_path / "public.csv")]
    assert run_command_line(command) == 0
    said = capsys.readouterr()
    assert "PUBLIC" in said.err
    assert "age (range 17 to 90): fits" in said.out
    assert run_command_line([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_rows"] == 200
    people.drop(columns="age").to_csv(tmp_path / "public.csv", index=False)
    assert run_command_line(command) == 2
    assert "no column 'age'" in capsys.readouterr().err


def test_coefficients_by_name_with_a_schema() -> None:
    people, schema = load_income(n=2000)
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, schema=schema, random_state=0)
    model.fit(people.drop(columns="income"), people["income"])
    found = model.coefficients()
    assert list(found) == [*SchemaEncoder(schema).get_feature_names_out(), "intercept"]
    assert found["married=yes"] == model.coef_[0][list(found).index("married=yes")]
    assert list(model.get_feature_names_out()) == list(found)[:-1]


def test_coefficients_by_name_without_a_schema(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(-1, 1, (300, 2)), columns=["left", "right"])
    options = {"epsilon": 2.0, "delta": 1e-6, "data_norm": 1.5, "random_state": 0}
    ridge = DPRidge(target_bounds=(-1, 1), **options).fit(table, table["left"])
    assert list(ridge.coefficients()) == ["left", "right", "intercept"]
    assert ridge.coefficients()["intercept"] == ridge.intercept_
    assert list(DPRidge(target_bounds=(-1, 1), **options).fit(table.to_numpy(), table["left"]).coefficients()) == [
        "x0", "x1", "intercept"
    ]  # fmt: skip
    model_file.save_model(ridge, tmp_path / "model.json")
    assert model_file.load_model(tmp_path / "model.json").coefficients() == ridge.coefficients()
    three = DPLogisticRegression(classes=["a", "b", "c"], **options)
    three.fit(table, rng.choice(["a", "b", "c"], 300))
    assert list(three.coefficients()) == ["a", "b", "c"]
    assert three.coefficients()["b"]["right"] == three.coef_[1][1]


def test_a_damaged_list_of_names_is_refused(tmp_path: Path) -> None:
    table = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    model = DPRidge(epsilon=2.0, data_norm=1.5, target_bounds=(-1, 1), random_state=0).fit(table, table[:, 0])
    path = tmp_path / "model.json"
    model_file.save_model(model, path)
    plain = json.loads(path.read_text())
    for names in (["one"], "ab", [1, 2]):
        path.write_text(json.dumps({**plain, "features": names}))
        with pytest.raises(InvalidParameter, match=r"one name per coefficient|model.features"):
            model_file.load_model(path)


@pytest.mark.parametrize("with_schema", [True, False])
def test_predict_takes_a_table_that_still_holds_the_target(
    with_schema: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people, schema = load_income(n=300)
    numbers = people if with_schema else people[["income", "age", "education_years"]].assign(income=1.0)
    numbers.to_csv(tmp_path / "people.csv", index=False)
    schema.save(tmp_path / "schema.json")
    stated = ["--schema", str(tmp_path / "schema.json")]
    if not with_schema:
        stated = ["--model", "ridge", "--target-bounds", "0,1", "--data-norm", "100"]
    model = str(tmp_path / "model.json")
    fit = [
        "fit",
        str(tmp_path / "people.csv"),
        "--target",
        "income",
        "--epsilon",
        "1",
        "-o",
        model,
        "-q",
        *stated,
    ]
    assert run_command_line(fit) == 0
    assert run_command_line(["predict", model, str(tmp_path / "people.csv")]) == 0
    whole = capsys.readouterr().out
    numbers.drop(columns="income").iloc[:, ::-1].to_csv(tmp_path / "features.csv", index=False)
    assert run_command_line(["predict", model, str(tmp_path / "features.csv")]) == 0
    assert capsys.readouterr().out == whole
    numbers[["income"]].to_csv(tmp_path / "features.csv", index=False)
    assert run_command_line(["predict", model, str(tmp_path / "features.csv")]) == 2
    assert "no column" in capsys.readouterr().err
