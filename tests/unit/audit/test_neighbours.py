"""audit.neighbours: careless pipelines are caught, careful ones pass, and no cell is shown."""

from __future__ import annotations

import importlib.util
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import LabelEncoder, StandardScaler

from dplangevin.audit import ADVERSARIAL_CELLS, PipelineAuditResult, audit_pipeline
from dplangevin.audit.containers import CONTAINER_BUILDERS, read_records
from dplangevin.cli.main import run_command_line
from dplangevin.errors import InvalidParameter
from dplangevin.estimators import SchemaEncoder
from dplangevin.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"range": [17, 90]},
            "job": {"categories": ["clerk", "smith"], "other": "own"},
            "ward": {"categories": ["1", "2"]},
        },
        "target": {"name": "sick", "classes": [0, 1]},
    }
)
PEOPLE = [
    {"age": 20 + i, "job": ("clerk", "smith")[i % 2], "ward": 1 + i % 2, "sick": i % 2} for i in range(6)
]


def _number(cell: object) -> float:
    try:
        number = float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 17.0
    return min(max(number, 17.0), 90.0) if number == number else 17.0


def careful(records: list[dict[str, Any]]) -> list[list[float]]:
    return [[_number(r.get("age")), r.get("job") == "clerk", r.get("sick") == 1] for r in records]


def _pairs(result: PipelineAuditResult, effect: str) -> set[tuple[str, str]]:
    return {(f.column, f.canary) for f in result.findings if f.effect == effect}


def test_a_careful_pipeline_passes() -> None:
    found = audit_pipeline(careful, PEOPLE, SCHEMA, containers=["records"])
    assert found.has_passed
    assert repr(found).startswith("passed")
    # every canary and extreme, in the first and the last row, and records of two odd lengths
    assert found.n_neighbors == 2 * (4 * len(ADVERSARIAL_CELLS) + 3 + 2 + 2 + 2 + 2)


def test_one_null_turns_integers_into_floats() -> None:
    found = audit_pipeline(lambda table: table["ward"].astype(str), PEOPLE, SCHEMA, containers=["pandas"])
    assert ("ward", "null") in _pairs(found, "changed")
    null = next(f for f in found.findings if (f.column, f.canary) == ("ward", "null"))
    assert null.row == 0
    assert null.others == (1, 2, 3, 4, 5)
    assert not any(f.column == "age" for f in found.findings)


def test_the_usual_steps_are_caught() -> None:
    steps = {
        "dummies": lambda table: pd.get_dummies(table[["job"]]),
        "scaler": lambda table: StandardScaler().fit_transform(table[["age"]]),
        "numbers": lambda table: pd.to_numeric(table["age"], errors="coerce"),
        "labels": lambda table: LabelEncoder().fit_transform(table["sick"]),
        "drop": lambda table: table.dropna(),
        "file": lambda path: pd.read_csv(path),
    }
    found = {name: audit_pipeline(step, PEOPLE, SCHEMA, rows=[0]) for name, step in steps.items()}
    assert not any(result.has_passed for result in found.values())
    assert ("job", "unseen category") in _pairs(found["dummies"], "columns")
    assert ("age", "high end") in _pairs(found["scaler"], "changed")
    assert ("age", "question mark") in _pairs(found["numbers"], "changed")
    assert ("sick", "unseen category") in _pairs(found["labels"], "raised")
    assert ("age", "null") in _pairs(found["drop"], "rows")
    assert ("job", "quote") in _pairs(found["file"], "raised")
    assert found["file"].containers == ("csv",)
    assert ("pandas", "ValueError") in found["file"].skipped


def test_changed_labels_renumber_the_others() -> None:
    texts = [{"y": word} for word in ("b", "c", "b", "c")]
    found = audit_pipeline(
        lambda t: LabelEncoder().fit_transform(t["y"]), texts, containers=["pandas"], rows=[0]
    )
    assert ("y", "unseen category") in _pairs(found, "changed")


def test_warnings_count_and_the_usual_ones_do_not() -> None:
    def chatty(records: list[dict[str, Any]]) -> list[int]:
        warnings.warn("as always", UserWarning, stacklevel=2)
        if records[0]["age"] is None:
            warnings.warn("somebody has no age", RuntimeWarning, stacklevel=2)
        return [0] * len(records)

    found = audit_pipeline(chatty, PEOPLE, containers=["records"], columns=["age"])
    assert [(f.effect, f.canary, f.row, f.detail) for f in found.findings] == [
        ("warned", "null", 0, "RuntimeWarning")
    ]


@pytest.mark.parametrize(("norm", "size"), [("l2", math.sqrt(2)), ("l1", 2.0), ("max", 1.0)])
def test_a_stated_sensitivity(norm: Any, size: float) -> None:
    def counts(records: list[dict[str, Any]]) -> list[int]:
        return [sum(r.get("job") == job for r in records) for job in ("clerk", "smith")]

    assert audit_pipeline(counts, PEOPLE, SCHEMA, containers=["records"], bound=size, norm=norm).has_passed
    found = audit_pipeline(counts, PEOPLE, SCHEMA, containers=["records"], bound=0.99 * size, norm=norm)
    assert _pairs(found, "distance") >= {("job", "first category"), ("job", "last category")}


def test_a_result_of_another_shape_is_beyond_every_bound() -> None:
    found = audit_pipeline(
        lambda t: t["job"].value_counts().to_numpy(), PEOPLE, SCHEMA, containers=["pandas"], bound=1e9
    )
    assert ("job", "unseen category") in _pairs(found, "distance")


@pytest.mark.parametrize("container", CONTAINER_BUILDERS)
def test_every_container_is_built_from_raw_records(container: str, tmp_path: Path) -> None:
    """A copy of what was handed over is the same for the same records, and every canary can be built."""
    for name, cell in ADVERSARIAL_CELLS.items():
        for column in PEOPLE[0]:
            records = [{**PEOPLE[0], column: cell}, *PEOPLE[1:]]
            made = CONTAINER_BUILDERS[container](records, tmp_path, 0)
            assert container in ("csv", "records") or name == "line break" or len(_rows(made)) == len(PEOPLE)


def _rows(made: Any) -> Any:
    return read_records(made) if isinstance(made, Path) else made


def test_a_slice_would_hide_what_a_new_table_shows() -> None:
    table = pd.DataFrame([{**PEOPLE[0], "ward": None}, *PEOPLE[1:]])
    assert table[1:]["ward"].astype(str).tolist() != pd.DataFrame(PEOPLE)[1:]["ward"].astype(str).tolist()
    assert read_records(pd.DataFrame(PEOPLE)) == PEOPLE


def test_no_cell_is_shown() -> None:
    marked = [{"name": f"SECRET-{i}", "age": 4711 + i} for i in range(5)]

    def leaky(records: list[dict[str, Any]]) -> Any:
        if not isinstance(records[0]["age"], int):
            raise ValueError(f"could not read {records[1]['name']}")
        warnings.warn(records[int(records[0]["age"] == 3) + 1]["name"], UserWarning, stacklevel=2)
        return pd.get_dummies(pd.DataFrame(records))

    found = audit_pipeline(leaky, marked, containers=["records"])
    text = repr(found) + found.to_json() + str(found.findings)
    assert not found.has_passed
    assert "SECRET" not in text
    assert "4711" not in text


def test_json_and_frozen() -> None:
    found = audit_pipeline(lambda t: StandardScaler().fit_transform(t[["age"]]), PEOPLE, SCHEMA)
    plain = json.loads(found.to_json())
    assert plain["passed"] is False
    assert plain["findings"][0]["others"]
    with pytest.raises(AttributeError):
        found.findings = ()  # type: ignore[misc]


def test_a_file_keeps_leading_zeros(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("zip,age,x\n02139,30,1.5\n10001,,ab\n")
    assert read_records(path) == [
        {"zip": "02139", "age": 30, "x": 1.5},
        {"zip": 10001, "age": None, "x": "ab"},
    ]


@pytest.mark.parametrize(
    ("pipeline", "options", "words"),
    [
        (7, {}, "must be a callable"),
        (careful, {"table": []}, "at least one row"),
        (careful, {"table": PEOPLE[:1]}, "two rows or more"),
        (careful, {"containers": ["excel"]}, "containers must be one of"),
        (careful, {"columns": ["nonsense"]}, "names of the table"),
        (careful, {"rows": [99]}, "numbers of records"),
        (careful, {"bound": -1.0}, "must not be negative"),
        (careful, {"norm": "l7"}, "norm must be one of"),
        (careful, {"containers": ["numpy"]}, "does not run on the table itself"),
        (lambda rows: [1.0], {}, "state with bound how far one record may move it"),
        (lambda rows: np.random.default_rng().uniform(size=len(rows)), {}, "fix its seed"),
    ],
)
def test_bad_input(pipeline: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        audit_pipeline(pipeline, **{"table": PEOPLE, "containers": ["records"], **options})


MODULE = """
import pandas as pd
def naive(path):
    return pd.read_csv(path)["age"]
def lines(path):
    rows = open(path, "rb").read().split(b"\\n")[1:-1]
    return [len(row) > 0 for row in rows]
"""


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("steps_under_audit.py").write_text(MODULE)
    pd.DataFrame(PEOPLE).to_csv("people.csv", index=False)
    SCHEMA.save("schema.toml")
    command = ["audit", "pipeline", "--table", "people.csv", "--schema", "schema.toml"]
    assert (
        run_command_line([*command, "steps_under_audit:naive", "--container", "csv", "-o", "found.json"]) == 3
    )
    assert "int64 became float64" in capsys.readouterr().out
    assert json.loads(Path("found.json").read_text())["passed"] is False
    assert run_command_line([*command, "steps_under_audit:lines", "--container", "csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True
    assert run_command_line([*command, "steps_under_audit:nothing"]) == 2
    assert run_command_line([*command, "steps_under_audit"]) == 2
    assert "MODULE:FUNCTION" in capsys.readouterr().err


def test_an_encoder_object_gets_the_features_alone() -> None:
    class Encoder:
        seen: set[str]

        def transform(self, records: list[dict[str, Any]]) -> list[int]:
            self.seen = set(records[0])
            return [1] * len(records)

    encoder = Encoder()
    assert audit_pipeline(encoder, PEOPLE, SCHEMA, containers=["records"], rows=[-1]).has_passed
    assert encoder.seen == {"age", "job", "ward"}


@pytest.mark.skipif(importlib.util.find_spec("dplangevin.tables") is None, reason="needs record-wise reading")
def test_the_schema_encoder_reads_every_record_alone() -> None:
    found = audit_pipeline(SchemaEncoder(SCHEMA), PEOPLE, SCHEMA)
    assert found.has_passed, repr(found)
    assert {"pandas", "polars"} <= set(found.containers)
