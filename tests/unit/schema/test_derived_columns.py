"""Dates and hashed columns: closed forms, one cell at a time, the same from every source, refused where unreadable."""

import hashlib
import json
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from dplangevin import DPAdditiveClassifier, DPLogisticRegression, SchemaEncoder, check_schema
from dplangevin.errors import InvalidParameter
from dplangevin.queries import count_marginals, count_queries
from dplangevin.schema import LearnableSchema, Schema
from dplangevin.schema.learned import draft_schema_from_public
from dplangevin.schema.schema import build_json_schema
from dplangevin.tables.cells import DATE_FORMATS, DateReading, hash_bucket, read_date, text_of_days

ENTRIES: dict[str, Any] = {
    "day": {"dates": ["2015-01-01", "2026-12-31"], "parts": ["trend", "quarter", "month", "weekday", "hour"]},
    "zip": {"hash": 50, "as": "text"},
    "age": {"range": [0, 100]},
}
SCHEMA = Schema.from_dict({"columns": ENTRIES, "target": {"name": "y", "classes": [0, 1]}})


def people(n: int = 2000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3600 * 24 * 4000, n), "s")
    table = {
        "day": days,
        "zip": [f"{i:05}" for i in rng.integers(0, 10_000, n)],
        "age": rng.uniform(0, 100, n),
    }
    return pd.DataFrame({**table, "y": (days.month > 6).astype(int)})


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)), st.integers(-1439, 1439))
def test_dates_are_those_of_the_calendar(moment: datetime, minutes: int) -> None:
    moment = moment.replace(microsecond=0)
    seconds = round((moment - datetime(1970, 1, 1)).total_seconds())
    assert read_date(moment.isoformat(" ")) == read_date(moment.isoformat() + "Z") == seconds
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert read_date(zoned.isoformat()) == seconds - 60 * minutes
    day = moment.strftime(f"%d.%m.{moment.year:04} %H:%M:%S")
    assert read_date(day, "day.month.year") == seconds
    assert read_date(moment.strftime(f"%m/%d/{moment.year:04} %H:%M:%S"), "month/day/year") == seconds
    assert (
        read_date(f"{moment.year:04}{moment.month:02}{moment.day:02}", "yyyymmdd") == seconds // 86400 * 86400
    )
    assert read_date(str(seconds), "unix") == seconds
    label = moment.isoformat(" ")
    parts = {
        part: DateReading(part=part, date_format="iso").derive(label) for part in ("month", "weekday", "hour")
    }
    assert parts == {"month": moment.month, "weekday": moment.isoweekday(), "hour": moment.hour}
    assert DateReading(part="quarter", date_format="iso").derive(label) == (moment.month - 1) // 3 + 1
    assert read_date(text_of_days(seconds / 86400)) == seconds


@given(st.text(max_size=80), st.sampled_from(DATE_FORMATS))
def test_any_text_is_a_date_or_none(text: str, date_format: Any) -> None:
    seconds = read_date(text, date_format)
    assert seconds is None or date(1, 1, 1) <= date.fromordinal(719163 + seconds // 86400)


@pytest.mark.parametrize(
    "label",
    ["2026-02-30", "2026-13-01", "2026-01-01 24:00", "31.1.26", "soon", "10000-01-01", "2026-01-01 1:00", ""],
)
def test_what_is_no_date_is_missing(label: str) -> None:
    assert all(read_date(label, date_format) is None for date_format in DATE_FORMATS)


def test_the_hash_is_the_published_function() -> None:
    for label in ("02139", "zurich", "é"):
        assert hash_bucket(label, 97) == int(hashlib.sha256(label.encode()).hexdigest()[:16], 16) % 97


def test_every_source_gives_the_same_rows() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    moments = [datetime(2020, 2, 29, 23, 59, 59), datetime(2015, 1, 1), None, datetime(2031, 7, 4, 1)]
    plain: dict[str, list[Any]] = {
        "day": moments,
        "zip": ["02139", "x", None, "02139"],
        "age": [1.0, 2.0, 3.0, None],
    }
    first = SchemaEncoder(SCHEMA).transform(plain)
    zoned = [None if moment is None else moment.replace(tzinfo=UTC).astimezone(east) for moment in moments]
    texts = [None if moment is None else moment.isoformat() for moment in moments]
    frame = pd.DataFrame(plain)
    sources: list[Any] = [
        frame, pl.DataFrame(plain), pa.table(plain), pl.DataFrame(plain).lazy(),
        *({**plain, "day": pa.array(moments, pa.timestamp(unit))} for unit in ("s", "ms", "us", "ns")),
        {**plain, "day": pa.array(moments, pa.timestamp("us", tz="Asia/Kolkata"))},
        {**plain, "day": zoned}, {**plain, "day": texts}, {**plain, "day": pl.Series(texts)},
        {**plain, "day": pd.Series(moments, dtype="datetime64[ns]")},
        {**plain, "day": np.array(moments, "datetime64[s]")},
        {**plain, "day": pa.array([None if text is None else text + ".123456789" for text in texts])},
    ]  # fmt: skip
    for source in sources:
        np.testing.assert_array_equal(SchemaEncoder(SCHEMA).transform(source), first)
    assert np.linalg.norm(first, axis=1).max() <= 1


@pytest.mark.parametrize(
    "poison", ["soon", 10**30, float("nan"), None, date(1, 1, 1), np.datetime64("30000"), b"\xff"]
)
def test_one_cell_changes_one_row(poison: Any) -> None:
    table = people(20)
    first = SchemaEncoder(SCHEMA).transform(table)
    for column in ("day", "zip"):
        cells = table[column].astype(object)
        cells.iloc[3] = poison
        second = SchemaEncoder(SCHEMA).transform(table.assign(**{column: cells}))
        np.testing.assert_array_equal(np.delete(first, 3, axis=0), np.delete(second, 3, axis=0))


def test_files_and_drafts(tmp_path: Any) -> None:
    for suffix in ("json", "toml"):
        SCHEMA.save(tmp_path / f"schema.{suffix}")
        assert Schema.load(tmp_path / f"schema.{suffix}") == SCHEMA
    (tmp_path / "dates.toml").write_text("[columns.day]\ndates = [2015-01-01, 2020-12-31]\n")
    assert Schema.load(tmp_path / "dates.toml").columns[0].to_dict()["dates"] == ["2015-01-01", "2020-12-31"]
    rows = [
        {"day": f"{i % 28 + 1}.{i % 12 + 1}.2021", "user": f"u{i}", "town": f"t{i % 60}"} for i in range(200)
    ]
    draft = draft_schema_from_public(rows)
    assert 'dates = ["2021-01-01", "2021-12-31"]' in draft
    assert 'format = "day.month.year"' in draft
    assert "hash = 64" in draft
    (tmp_path / "draft.toml").write_text(draft)
    with pytest.raises(InvalidParameter, match=r"columns\.user needs"):
        Schema.load(tmp_path / "draft.toml")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dates": ["2020-01-01"]}, "two numbers"),
        ({"dates": ["2020-01-01", "soon"]}, "two dates"),
        ({"dates": ["2021-01-01", "2020-01-01"]}, "low < high"),
        ({"dates": "learn"}, "cannot be learned"),
        ({"dates": ["2020-01-01", "2021-01-01"], "parts": ["second"]}, "parts"),
        ({"dates": ["2020-01-01", "2021-01-01"], "parts": []}, "parts"),
        ({"dates": ["2020-01-01", "2021-01-01"], "format": "%d"}, "format"),
        ({"dates": ["2020-01-01", "2021-01-01"], "parts": ["month"], "basis": {"n_knots": 4}}, "basis"),
        ({"hash": 1}, "hash"),
        ({"hash": 10**6}, "hash"),
        ({"hash": 10, "monotone": "increasing"}, "categories have no order"),
        ({"id": True}, "person='c'"),
    ],
)
def test_bad_entries(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        Schema.from_dict({"columns": {"c": entry}})


def test_an_id_is_offered_as_person_and_derived_names_are_not_taken_twice() -> None:
    for kind in ("id", "date"):
        with pytest.raises(InvalidParameter, match="person='user'" if kind == "id" else "2030-12-31"):
            Schema.learn(user=kind)
    with pytest.raises(InvalidParameter, match="'day month'"):
        Schema.from_dict({"columns": {**ENTRIES, "day month": {"range": [0, 1]}}})
    with pytest.raises(InvalidParameter, match="products"):
        Schema.from_dict({"columns": ENTRIES, "products": [["day", "age"]]})


def test_models_learn_from_dates_and_exports_agree_or_refuse() -> None:
    table = people(4000)
    X, y = table.drop(columns="y"), table["y"]
    learnable = Schema.learn({**ENTRIES, "age": "number"}, target={"name": "y", "classes": [0, 1]})
    assert isinstance(learnable, LearnableSchema)
    for kind, schema in (
        (DPLogisticRegression, SCHEMA),
        (DPAdditiveClassifier, SCHEMA),
        (DPLogisticRegression, learnable),
    ):
        model = kind(epsilon=2.0, delta=1e-6, schema=schema, random_state=0).fit(X, y)
        assert model.score(X, y) > 0.95
        np.testing.assert_allclose(model.to_sklearn().predict_proba(X), model.predict_proba(X))
        card = model.to_scorecard()
        assert {"date": "month", "format": "iso"} in [
            term["factors"][0].get("derived") for term in card["terms"]
        ]
        for export in (model.to_onnx, lambda model=model: model.to_sql("people")):
            with pytest.raises(InvalidParameter, match="column 'day'"):
                export()
    assert "day trend" in [shape.name for shape in DPAdditiveClassifier(
        epsilon=2.0, delta=1e-6, schema=SCHEMA, random_state=0
    ).fit(X, y).shapes()]  # fmt: skip
    assert "outside" not in repr(check_schema(SCHEMA, X))


def test_counts_by_parts_and_by_timestamps() -> None:
    table = people(3000)
    counts = count_marginals(
        table, SCHEMA, columns=["day month", "zip bucket", ("day trend", "y")], epsilon=900.0, delta=1e-6, bins=3
    ).postprocess().to_pandas()  # fmt: skip
    by_month = counts[counts.table == "day month"].set_index("cell")["count"]
    assert by_month["day month=2"] == (table.day.dt.month == 2).sum()
    assert (counts[counts.table == "zip bucket"]["count"].sum()) == len(table)
    assert any(cell.startswith("day trend=[2015-01-01, ") for cell in counts.cell)
    predicate = "day >= '2020-01-01' AND day < '2021-01-01'"
    counted = count_queries(table, [predicate], schema=SCHEMA, epsilon=900.0, delta=1e-6).values[0]
    assert round(counted) == (table.day.dt.year == 2020).sum()


def test_the_published_json_schema_accepts_what_loads() -> None:
    published = json.loads((Path(__file__).parents[3] / "docs/assets/schemas/schema.json").read_text())
    assert published == build_json_schema()
    check = jsonschema.Draft202012Validator(published)
    learnable = Schema.learn(
        {**ENTRIES, "age": "number", "job": "category"}, target={"name": "y", "classes": [0, 1]}
    )
    curved: dict[str, Any] = {"columns": {"a": {"range": [0, 1], "basis": {"n_knots": 4}, "monotone": "increasing"},
                                          "b": {"categories": ["x", 2, True]}}, "products": [["b", "c"]]}  # fmt: skip
    curved["columns"]["c"] = {"range": [0, 2], "transform": "log1p", "missing": "own"}
    for content in (SCHEMA.to_dict(), learnable.to_dict(), Schema.from_dict(curved).to_dict(), curved):
        assert not list(check.iter_errors(content))
    for entry in (
        {"range": [0]},
        {"range": [0, 1], "hash": 3},
        {"id": True},
        {"dates": "learn"},
        {"hash": 1},
        {},
        3,
    ):
        assert list(check.iter_errors({"columns": {"c": entry}}))
        with pytest.raises(InvalidParameter):
            Schema.from_dict({"columns": {"c": entry}})
