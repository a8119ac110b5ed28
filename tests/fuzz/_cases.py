"""Broken inputs: valid files with some of their parts exchanged, cut or renamed, and plain garbage."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dplangevin.accounting import serialize
from dplangevin.accounting.plan import save_plan
from dplangevin.estimators import DPAdditiveRegressor, DPLogisticRegression, DPRidge, model_file
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.schema import Schema

numbers = st.one_of(
    st.sampled_from([0, 1, -1, 2, 0.5, 1e-300, 1e300, -1e300, 2**31, 2**63, 10**400, 0.1, 1e-5, 3.0]),
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
)
words = st.one_of(
    st.sampled_from(
        ["", "inf", "-inf", "NaN", "Logistic", "Ball", "composition", "replace-one", "__class__", "../x", "0"]
    ),
    st.text(max_size=8),
)
leaves = st.one_of(st.none(), st.booleans(), numbers, words)
json_values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
    max_leaves=8,
)


@st.composite
def mutated(draw: Any, plain: Any) -> Any:
    """The JSON value with one to four of its places exchanged, removed, doubled or renamed."""
    found = copy.deepcopy(plain)
    for _ in range(draw(st.integers(1, 4))):
        spots = places(found)
        if not spots:
            return draw(json_values)
        holder, key = draw(st.sampled_from(spots))
        action = draw(st.sampled_from(["exchange", "exchange", "leaf", "leaf", "remove", "rename", "copy"]))
        if action == "remove":
            del holder[key]
        elif action == "rename" and isinstance(holder, dict):
            holder[draw(words)] = holder.pop(key)
        elif action == "copy":
            other, name = draw(st.sampled_from(spots))
            if name in other if isinstance(other, dict) else name < len(other):
                holder[key] = copy.deepcopy(other[name])
        else:
            holder[key] = draw(leaves if action == "leaf" else json_values)
    return found


LEAVES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 0.5, 1.0, -0.5, 1e-5, 1e-300, -1e-300, 1e300, -1e300, 5e-324),
    *(1.7976931348623157e308, 2**31, 2**53 + 1, 2**63, -(2**64), 10**400),
    *(
        float("inf"),
        float("-inf"),
        float("nan"),
        "",
        "inf",
        "-inf",
        "NaN",
        "1",
        "\x00",
        "\ud800",
        "é" * 50,
        "x" * 5000,
    ),
    *(
        "Logistic",
        "Squared",
        "Ball",
        "Problem",
        "DPRidge",
        "DPLogisticRegression",
        "SchemaEncoder",
        "composition",
    ),
    *(
        "gdp",
        "pure",
        "rdp",
        "optimal-shift",
        "replace-one",
        "add-remove",
        "__class__",
        "__import__('os')",
        "../x",
    ),
    *(
        "age",
        "a",
        "type",
        [],
        {},
        [[]],
        [1],
        [1, 2],
        [0.5, "x"],
        [[1, 2], [3]],
        [None],
        [1e308] * 3,
        [True, False],
    ),
    *({"a": 1}, {"type": "Ball"}, {"type": "Clipped", "loss": {"type": "Clipped"}}),
    *({"range": [0, 1]}, {"categories": [1, 1.0]}),
]


def shaken(plain: Any, rng: np.random.Generator) -> Any:
    """Like `mutated`, from a generator: a hundred times as fast, for very many cases."""
    found = copy.deepcopy(plain)
    for _ in range(int(rng.integers(1, 5))):
        spots = places(found)
        if not spots:
            return LEAVES[rng.integers(len(LEAVES))]
        holder, key = spots[rng.integers(len(spots))]
        action = rng.integers(8)
        if action == 0:
            del holder[key]
        elif action == 1 and isinstance(holder, dict):
            holder[str(LEAVES[rng.integers(len(LEAVES))])[:20]] = holder.pop(key)
        elif action == 2:
            other, name = spots[rng.integers(len(spots))]
            holder[key] = copy.deepcopy(other[name])
        elif action == 3 and isinstance(holder[key], float):
            holder[key] = holder[key] * float(rng.choice([-1.0, 0.0, 1e-9, 0.5, 2.0, 1e9]))
        elif action == 4:
            holder[key] = float(rng.standard_normal() * 10.0 ** rng.integers(-300, 300))
        else:
            holder[key] = copy.deepcopy(LEAVES[rng.integers(len(LEAVES))])
    return found


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (holder, key) in plain data."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        found += places(inner)
    return found


def text_of(value: Any) -> str:
    """JSON text, huge integers included."""
    return json.dumps(value, allow_nan=True)


SCHEMA = {
    "version": 1,
    "columns": {
        "age": {"range": [17, 90]},
        "job": {"categories": ["a", "b"], "other": "own"},
        "gain": {"range": [0, 99999], "transform": "log1p"},
    },
    "target": {"name": "income", "classes": ["<=50K", ">50K"]},
    "missing": "middle",
    "row_norm": 1.0,
}
BENT = {
    "version": 1,
    "columns": {
        "age": {"range": [17, 90], "basis": {"n_knots": 4, "smooth": 1}},
        "gain": {
            "range": [0, 99999],
            "transform": "log1p",
            "basis": {"knots": [100, 1000]},
            "monotone": "increasing",
        },
        "job": {"categories": ["a", "b"], "other": "own"},
    },
    "products": [["age", "job"]],
    "missing": "middle",
    "row_norm": 1.0,
}
"""A schema with curves, a direction and a product."""
TOML = """version = 1
missing = "own"
row_norm = 1.0
[columns.age]
range = [17, 90]
[columns.job]
categories = ["a", "b"]
[target]
name = "income"
range = [0, 1]
"""
CSV = "age,job,gain,income\n25,a,0,<=50K\n60,b,1000,>50K\n40,a,3,<=50K\n33,b,70,>50K\n"


def models(folder: Path) -> list[dict[str, Any]]:
    """Plain data of model files: schemas stated, bent and learned, classes, numbers, a learned norm."""
    import pandas as pd

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 3))
    table = pd.DataFrame(
        {"age": rng.integers(17, 90, 60), "job": ["a", "b"] * 30, "gain": rng.integers(0, 999, 60)}
    )
    found: list[Any] = [
        DPLogisticRegression(epsilon=50.0, delta=1e-3, schema=SCHEMA, random_state=0).fit(
            table, ["<=50K", ">50K"] * 30
        ),
        DPLogisticRegression(epsilon=50.0, delta=1e-3, data_norm=2.0, classes=[0, 1, 2], random_state=0).fit(
            X, rng.integers(0, 3, 60)
        ),
        DPRidge(epsilon=50.0, delta=1e-3, data_norm=2.0, target_bounds=(-1, 1), random_state=0).fit(
            X, X[:, 0]
        ),
        DPAdditiveRegressor(epsilon=50.0, delta=1e-3, schema=BENT, target_bounds=(-1, 1), random_state=0).fit(
            table, X[:, 0]
        ),
        DPLogisticRegression(
            epsilon=50.0,
            delta=1e-3,
            schema=Schema.learn(age="number", job="category"),
            classes=[0, 1],
            random_state=0,
        ).fit(table[["age", "job"]], [0, 1] * 30),
        DPLogisticRegression(epsilon=50.0, delta=1e-3, data_norm="learn", classes=[0, 1], random_state=0).fit(
            X, [0, 1] * 30
        ),
    ]
    plains = []
    for model in found:
        model_file.save_model(model, folder / "m.json")
        plains.append(json.loads((folder / "m.json").read_text()))
    return plains


def plans(folder: Path) -> list[dict[str, Any]]:
    """Plain data of plan files, one per family that the planner chooses from."""
    asked = {
        "n": 100,
        "n_features": 2,
        "epsilon": 2.0,
        "delta": 1e-3,
        "adjacency": "replace-one",
        "data_norm": 1.0,
    }
    found = []
    for model, mechanism, secure in (
        ("logistic", "noisy-gd", False), ("logistic", "noisy-gd", True), ("logistic", "whitened-gd", False),
        ("logistic", "whitened-objective", False),
        ("huber", "objective-perturbation", False),
        ("ridge", "output-perturbation", False), ("ridge", "sufficient-statistics", False),
    ):  # fmt: skip
        fit_plan = plan_fit(model=model, mechanism=mechanism, secure=secure, fit_intercept=True, **asked)
        save_plan(fit_plan.plan, folder / "p.json")
        found.append(json.loads((folder / "p.json").read_text()))
    return found


def guarantees(folder: Path) -> list[dict[str, Any]]:
    """Plain data of guarantees in several currencies."""
    from dplangevin.accounting.plan import plan_from_plain

    return [serialize.guarantee_to_plain(plan_from_plain(plain).guarantee) for plain in plans(folder)]
