"""Model files: what is written loads in a fresh process, and damage is an error of the library."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.cli.main import run_command_line
from dplangevin.datasets import load_income
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators import DPLogisticRegression, model_file
from estimators._models import EVERY, made, table


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_round_trip(cls: type, tmp_path: Path) -> None:
    X, y = table(cls)
    fitted = made(cls).fit(X, y)
    model_file.save_model(fitted, tmp_path / "model.json")
    loaded = model_file.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    assert loaded.privacy_ == fitted.privacy_
    plain = json.loads((tmp_path / "model.json").read_text())
    assert plain["guarantee"]["theorem"] == fitted.privacy_.theorem
    assert "random_state" not in plain["parameters"]
    if hasattr(fitted, "predict_proba"):
        np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))


def test_intervals_travel_with_the_model(tmp_path: Path) -> None:
    """Infinite standard errors included: a constant column has no curvature of its own."""
    X, y = table(DPLogisticRegression)
    X[:, -1] = 0.0
    fitted = made(DPLogisticRegression, intervals=True).fit(X, y)
    assert np.isinf(fitted.standard_errors_).any()
    model_file.save_model(fitted, tmp_path / "model.json")
    loaded = model_file.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.confidence_intervals(0.9), fitted.confidence_intervals(0.9))
    plain = json.loads((tmp_path / "model.json").read_text())
    for wrong in ({"center": [1.0]}, {"center": [1.0], "sampling": [-1.0], "noise": [0.0]}, [1]):
        (tmp_path / "wrong.json").write_text(json.dumps(plain | {"uncertainty": wrong}))
        with pytest.raises(InvalidParameter, match=r"damaged|lacks|must be"):
            model_file.load_model(tmp_path / "wrong.json")


def test_many_classes_and_labels(tmp_path: Path) -> None:
    X, y = table(DPLogisticRegression)
    names = np.array(["red", "green", "blue"])[y + (X[:, 2] > 0.5)]
    fitted = made(DPLogisticRegression).fit(X, names)
    model_file.save_model(fitted, tmp_path / "model.json")
    np.testing.assert_array_equal(
        model_file.load_model(tmp_path / "model.json").predict(X), fitted.predict(X)
    )


def test_command_line_from_table_to_predictions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, schema = load_income(n=3000)
    rows.iloc[:2000].to_csv(tmp_path / "train.csv", index=False)
    rows.iloc[2000:].to_parquet(tmp_path / "test.parquet")
    schema.save(tmp_path / "schema.toml")
    place = lambda name: str(tmp_path / name)  # noqa: E731
    fit = ["fit", place("train.csv"), "--target", "income", "--schema", place("schema.toml"), "--epsilon", "2",
           "--delta", "1e-6", "--output", place("model.json"), "--random-state", "1"]  # fmt: skip
    assert run_command_line([*fit, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["guarantee"]["epsilon"] <= 2.0
    assert any("random_state" in words for words in answer["guarantee"]["assumptions"])
    fresh = subprocess.run(
        [sys.executable, "-m", "dplangevin.cli.main", "predict", place("model.json"), place("test.parquet")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = fresh.stdout.splitlines()
    assert len(lines) == 1001
    assert lines[0].startswith("prediction,probability of")
    right = np.mean(
        [line.split(",")[0] == label for line, label in zip(lines[1:], rows.income[2000:], strict=True)]
    )
    assert right > 0.7
    assert run_command_line(["plan", "--n", "2000", "--n-features", "6", "--epsilon", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["guarantee"]["epsilon"] <= 2.0
    for wrong, code in (
        (["fit", place("none.csv"), *fit[2:]], 2),
        ([*fit, "--model", "tree"], 2),
        ([*fit, "--mechanism", "noisy-gd", "--delta", "0"], 2),
    ):
        assert run_command_line(wrong) == code
        assert "Traceback" not in capsys.readouterr().err


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    X, y = table(DPLogisticRegression)
    model_file.save_model(made(DPLogisticRegression).fit(X, y), tmp_path / "model.json")
    good = json.loads((tmp_path / "model.json").read_text())
    broken = tmp_path / "broken.json"
    for change in (
        {"version": 99}, {"version": "1"}, {"estimator": "os.system"}, {"estimator": "SchemaEncoder"},
        {"coefficients": "1"}, {"coefficients": [[1, None]]}, {"coefficients": [[1, 2], [3]]}, {"intercept": []},
        {"classes": [0]}, {"classes": [0, {}]}, {"link": {"slope_clip": 7}}, {"guarantee": {}}, {"parameters": []},
        {"schema": {"columns": {}}},
    ):  # fmt: skip
        broken.write_text(json.dumps(good | change))
        with pytest.raises(DplangevinError):
            model_file.load_model(broken)
    for text in ("", "[]", "{", "\x00", '{"version": NaN}'):
        broken.write_text(text)
        with pytest.raises(InvalidParameter):
            model_file.load_model(broken)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_change_of_one_field_loads_or_is_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.getbasetemp() / "fuzz.json"
    if not place.exists():
        X, y = table(DPLogisticRegression, n=50)
        model_file.save_model(made(DPLogisticRegression).fit(X, y), place)
    good = json.loads(place.read_text())
    leaf = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5))
    value = data.draw(
        st.recursive(
            leaf,
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
            ),
        )
    )
    key = data.draw(st.sampled_from(sorted(good)))
    broken = place.with_name("fuzzed.json")
    broken.write_text(json.dumps(good | {key: value}))
    with contextlib.suppress(DplangevinError):
        model_file.load_model(broken)
