"""Additive models: what they learn, what they guarantee, and where they run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dplangevin import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPLogisticRegression,
    InvalidParameter,
    Ledger,
    Schema,
    SchemaEncoder,
)
from dplangevin.estimators import model_file
from dplangevin.estimators.additive import choose_n_knots
from dplangevin.estimators.schema_encoder import flat_directions

SCHEMA: dict[str, Any] = {
    "columns": {"a": {"range": [-1, 1]}, "b": {"range": [-1, 1]}, "g": {"categories": ["u", "v"]}},
    "missing": "never",
}


def people(n: int = 3000, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"a": rng.uniform(-1, 1, n), "b": rng.uniform(-1, 1, n), "g": rng.choice(["u", "v"], n)}
    )
    score = 6 * (np.abs(frame.a) - 0.5) + 2 * frame.b + (frame.g == "u")
    return frame, (rng.random(n) < 1 / (1 + np.exp(-score))).to_numpy()


def made(cls: type = DPAdditiveClassifier, **changes: Any) -> Any:
    own = {"classes": [False, True]} if cls is DPAdditiveClassifier else {"target_bounds": (-1, 1)}
    return cls(**({"epsilon": 2.0, "delta": 1e-6, "schema": SCHEMA, "random_state": 0} | own | changes))


def test_curves_are_learned_where_a_line_sees_nothing() -> None:
    X, y = people(8000)
    line = DPLogisticRegression(epsilon=2.0, delta=1e-6, schema=SCHEMA, classes=[False, True], random_state=0)
    assert made().fit(X, y).score(X, y) > line.fit(X, y).score(X, y) + 0.1
    target = X.a.to_numpy() ** 2 - 0.3
    assert made(DPAdditiveRegressor).fit(X, target).score(X, target) > 0.8


def test_the_score_is_the_sum_of_its_shapes() -> None:
    X, y = people()
    model = made(products=[("a", "g")], n_knots=4).fit(X, y)
    total = sum(
        np.array(model.partial_effect(name, at=list(X[name][:50])).values) for name in ("a", "b", "g")
    ) + np.array(model.partial_effect("a x g", at=list(zip(X.a[:50], X.g[:50], strict=True))).values)
    scores = model.decision_function(X[:50])
    np.testing.assert_allclose(scores - scores[0], total - total[0], atol=1e-10)


def test_monotone_columns_are_so_and_nothing_else_is_spent() -> None:
    X, y = people()
    free, bound = made().fit(X, y), made(monotone={"a": "increasing", "b": "decreasing"}).fit(X, y)
    rising, falling = (bound.partial_effect(name, at=list(np.linspace(-1, 1, 101))).values for name in "ab")
    assert (np.diff(rising) >= -1e-12).all()
    assert (np.diff(falling) <= 1e-12).all()
    assert not (np.diff(free.partial_effect("a").values) >= 0).all()
    assert bound.privacy_.epsilon() == free.privacy_.epsilon()
    np.testing.assert_array_equal(bound.partial_effect("g").values, free.partial_effect("g").values)


def test_a_direction_is_kept_by_linear_models_too() -> None:
    X, y = people()
    stated = {**SCHEMA, "columns": {**SCHEMA["columns"], "b": {"range": [-1, 1], "monotone": "decreasing"}}}
    model = DPLogisticRegression(
        epsilon=2.0, delta=1e-6, schema=stated, classes=[False, True], random_state=0
    )
    assert model.fit(X, y).coefficients()["b"] == 0.0


def test_a_direction_holds_for_whole_scores_whatever_the_other_columns_are() -> None:
    """Rows divided by their own norms would let the score fall where the weight says that it rises."""
    X, _ = people()
    y = np.random.default_rng(0).random(len(X)) < 1 / (1 + np.exp(-2 - 0.3 * X.a))
    stated = {**SCHEMA, "columns": {**SCHEMA["columns"], "a": {"range": [-1, 1], "monotone": "increasing"}}}
    model = DPLogisticRegression(epsilon=2.0, schema=stated, classes=[False, True], random_state=0).fit(X, y)
    for b, g in ((0.0, "u"), (1.0, "v"), (-1.0, "neither")):
        grid = pd.DataFrame({"a": np.linspace(-1, 1, 101), "b": b, "g": g})
        assert (np.diff(model.decision_function(grid)) >= -1e-12).all()


def test_a_direction_leaves_missing_cells_alone() -> None:
    X, y = people()
    X.loc[:500, "a"] = np.nan
    columns = {
        **SCHEMA["columns"],
        "a": {"range": [-1, 1], "basis": {"knots": [-0.9, -0.8, -0.5]}, "missing": "own"},
    }
    free, bound = (
        DPLogisticRegression(
            epsilon=2.0,
            schema={**SCHEMA, "columns": columns | {"a": columns["a"] | direction}},
            classes=[False, True],
            random_state=0,
        ).fit(X, y)
        for direction in ({}, {"monotone": "increasing"})
    )
    assert not np.allclose(free.decision_function(X[600:]), bound.decision_function(X[600:]))
    np.testing.assert_allclose(free.decision_function(X[:500]), bound.decision_function(X[:500]), atol=1e-9)


def test_products_have_flat_directions() -> None:
    schema = Schema.from_dict(
        {
            "columns": {
                "a": {"range": [-1, 1], "basis": {"n_knots": 4}},
                "b": {"range": [-1, 1], "basis": {"n_knots": 6}},
                "g": {"categories": ["u", "v"]},
                "h": {"categories": [1, 2, 3], "other": "own"},
            },
            "products": [["a", "g"], ["g", "h"], ["b", "g"]],
            "missing": "never",
        }
    )
    rng = np.random.default_rng(0)
    X, _ = people()
    X["h"] = rng.choice([1, 2, 3, 9], len(X))
    rows = SchemaEncoder(schema).transform(X)
    flat = flat_directions(schema)
    assert np.abs(rows @ flat).max() < 1e-12
    rank = np.linalg.matrix_rank(rows.T @ rows)  # of these rows, among which every case occurs
    assert np.linalg.matrix_rank(flat) == rows.shape[1] - rank


def test_classes_may_be_an_array() -> None:
    X, y = people(200)
    assert made(classes=np.array([False, True])).fit(X, y).schema_ == made().fit(X, y).schema_


@pytest.mark.parametrize("cls", [DPAdditiveClassifier, DPAdditiveRegressor])
@pytest.mark.parametrize(
    "changes", [{"delta": 0.0}, {"adjacency": "add-remove"}, {"secure": True, "random_state": None}]
)
def test_guarantees_are_kept(cls: type, changes: dict[str, Any]) -> None:
    X, y = people(1500)
    model = made(cls, **changes).fit(X, y if cls is DPAdditiveClassifier else X.a)
    assert model.privacy_.epsilon(changes.get("delta", 1e-6)) <= 2.0
    assert model.privacy_.adjacency == changes.get("adjacency", "replace-one")


def test_files_ledger_and_memory_agree(tmp_path: Path) -> None:
    X, y = people(1500)
    X.assign(y=y).to_parquet(tmp_path / "t.parquet")
    budget = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}").declare(
        "people", epsilon=10.0, delta=1e-3, adjacency="replace-one"
    )
    here = made().fit(X, y)
    there = made(ledger=budget).fit(tmp_path / "t.parquet", "y")
    np.testing.assert_allclose(here.coef_, there.coef_, atol=1e-9)
    assert len(budget.history()) == 1
    model_file.save_model(here, tmp_path / "m")
    np.testing.assert_array_equal(
        model_file.load_model(tmp_path / "m").predict_proba(X), here.predict_proba(X)
    )


def test_a_saved_model_keeps_products_directions_and_bands(tmp_path: Path) -> None:
    X, y = people()
    model = made(products=[("a", "g")], monotone={"b": "increasing"}, n_knots=4, intervals=True).fit(X, y)
    model_file.save_model(model, tmp_path / "model.json")
    again = model_file.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    for old, new in zip(model.shapes(), again.shapes(), strict=True):
        assert old.to_dict() == new.to_dict()
    assert again.summary().to_frame().equals(model.summary().to_frame())


def test_knots_come_from_public_quantities() -> None:
    def n_knots(n: int, epsilon: float, delta: float = 1e-6) -> int:
        return choose_n_knots(made(epsilon=epsilon, delta=delta).planning_request(n, 5, 2), 2)

    assert [n_knots(n, 1.0) for n in (10, 300, 3000, 30_000, 10**6)] == sorted(
        n_knots(n, 1.0) for n in (10, 300, 3000, 30_000, 10**6)
    )
    assert n_knots(10, 0.1) == 2
    assert n_knots(10**6, 1.0) == 16
    assert n_knots(3000, 0.1) < n_knots(3000, 1.0)
    X, y = people(1500)
    other = made().fit(X.assign(a=0.0), ~y)
    assert other.schema_ == made().fit(X, y).schema_  # values do not matter


def test_learned_ranges_and_persons() -> None:
    """A curve over a learned range, with and without a column of persons; knots do not depend on values."""
    rng = np.random.default_rng(4)
    table = pd.DataFrame(
        {"a": rng.uniform(-40, 40, 6000), "c": rng.choice(list("uv"), 6000), "who": np.arange(6000) // 2}
    )
    y = (np.abs(table.a) > 20).astype(int)
    to_learn = Schema.learn(a="number", c="category")
    stated: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "classes": [0, 1], "random_state": 0}
    learned = DPAdditiveClassifier(schema=to_learn, **stated).fit(table[["a", "c"]], y)
    assert learned.schema_.is_additive
    assert learned.score(table[["a", "c"]], y) > 0.85
    assert learned.privacy_.epsilon() <= 4.0
    by_person: dict[str, Any] = {"person": "who", "max_rows_per_person": 2, "n_public": 6000}
    whole = DPAdditiveClassifier(schema=to_learn, **stated, **by_person).fit(table, y)
    assert whole.privacy_.rows_per_person == 2
    assert whole.score(table[["a", "c"]], y) > 0.8
    other = DPAdditiveClassifier(schema=to_learn, **stated).fit(
        table[["a", "c"]].assign(a=table.a / 7), 1 - y
    )
    assert other.schema_.columns[0].basis == learned.schema_.columns[0].basis


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": None, "data_norm": 1.0}, "needs a schema"),
        (
            {
                "schema": {"columns": {"a": {"range": "learn"}, "b": {"range": [-1, 1]}}},
                "products": [("a", "b")],
            },
            "products do not go with a learned schema",
        ),
        ({"person": "g", "n_public": 200}, "cannot be a feature as well"),
        ({"monotone": {"g": "increasing"}}, "no order"),
        ({"monotone": {"z": "increasing"}}, "no column"),
        ({"monotone": {"a": "up"}}, "monotone"),
        ({"monotone": ["a"]}, "table such as"),
        ({"products": [("a", "z")]}, "do not list"),
        ({"n_knots": 1}, "n_knots"),
        ({"schema": {"columns": {"a": {"range": [-1, 1], "basis": {"knots": [0.1, 0.1 + 1e-12]}}}}}, "apart"),
        ({"schema": {"columns": {"a": {"range": [-1e308, 1e308]}}}}, "wider"),
        ({"smooth": -1.0}, "smooth"),
        ({"classes": [0, 1, 2], "monotone": {"a": "increasing"}}, "3 classes"),
    ],
)
def test_bad_input(changes: dict[str, Any], words: str) -> None:
    X, y = people(200)
    with pytest.raises(InvalidParameter, match=words) as error:
        made(**changes).fit(X, y)
    assert str(error.value).count(". ") == 0


def test_too_many_parameters_are_a_caution_with_the_n_that_would_do() -> None:
    X, y = people(300)
    with pytest.warns(UserWarning, match=r"n = \d+|records"):
        made(n_knots=40, epsilon=0.2).fit(X, y)


def test_pictures_hold_every_column(tmp_path: Path) -> None:
    X, y = people()
    model = made(products=[("a", "g")], n_knots=4, intervals=True).fit(X, y)
    model.plot_shapes(tmp_path / "shapes.html")
    model.plot_shapes(tmp_path / "shapes.svg")
    page = (tmp_path / "shapes.html").read_text()
    assert page.count("<svg") == 4
    assert "polygon" in page
    assert "nan" not in page
    with pytest.raises(InvalidParameter, match=r"\.html or \.svg"):
        model.plot_shapes(tmp_path / "shapes.png")
    with pytest.raises(InvalidParameter, match="basis"):
        DPLogisticRegression(data_norm=1.0, classes=[False, True], random_state=0).fit(X[["a"]], y).shapes()


def test_importance_finds_the_columns_that_matter() -> None:
    X, y = people(8000)
    shapes = {shape.name: shape.importance for shape in made(epsilon=8.0).fit(X, y).shapes()}
    assert shapes["a"] > shapes["g"]
    assert all(math.isfinite(value) for value in shapes.values())
