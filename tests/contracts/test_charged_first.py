"""No cell is read before the budget is charged: the first touch of every column comes after `reserve`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from dplangevin import (
    DPAdditiveClassifier,
    DPLogisticRegression,
    DPModelSearch,
    DPRidge,
    Schema,
    private_score,
)
from dplangevin.estimators import _held_out, _reading
from dplangevin.queries import count_learned_groups, summarize_table
from dplangevin.rashomon import RashomonRegion, RashomonSampler
from dplangevin.tables import columns
from dplangevin.tables.files import TableFiles

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (600, 2))
Y = (X[:, 0] > 0).astype(int)
TABLE = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "who": np.arange(600), "y": Y})
RANGES = {"version": 1, "columns": {name: {"range": [-1, 1]} for name in "ab"}, "missing": "never"}
LEARNED = Schema.learn(a="number", b="number", target={"name": "y", "classes": [0, 1]})
STATED: dict[str, Any] = {"data_norm": 2.0, "classes": [0, 1], "bad_rows": "zero"}
FITTED = DPLogisticRegression(**STATED, random_state=0).fit(X, Y)


class Budget:
    """A spender that notes its call in a shared list."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def reserve(self, plan: Any) -> str:
        self._events.append("charge")
        return "token"

    def commit(self, token: str, release_hash: str) -> None:
        self._events.append("commit")


def _linear(**options: Any) -> Callable[[Any], Any]:
    return lambda ledger: DPLogisticRegression(**{**STATED, **options}, ledger=ledger)


def _by_schema(ledger: Any) -> Any:
    return DPLogisticRegression(schema=RANGES, classes=[0, 1], ledger=ledger)


def _search(ledger: Any) -> Any:
    return DPModelSearch(DPLogisticRegression(**STATED), {"alpha": [0.1, 1.0]}, ledger=ledger)


ROUTES: dict[str, Callable[[Any], Any]] = {
    "array": lambda b: _linear()(b).fit(X, Y),
    "refusing": lambda b: _linear(bad_rows="refuse")(b).fit(X, Y),
    "lists": lambda b: _linear(bad_rows="refuse")(b).fit(X.tolist(), Y.tolist()),
    "weights": lambda b: _linear(weight_bound=1.0)(b).fit(X, Y, np.ones(600)),
    "sparse": lambda b: _linear()(b).fit(sparse.csr_matrix(X), Y),
    "frame": lambda b: _linear()(b).fit(TABLE[["a", "b"]], TABLE.y),
    "column by name": lambda b: _linear()(b).fit(TABLE[["a", "b", "y"]], "y"),
    "schema": lambda b: _by_schema(b).fit(TABLE[["a", "b"]], TABLE.y),
    "person": lambda b: _linear(person="who", n_public=600)(b).fit(TABLE, "y"),
    "learned schema": lambda b: DPLogisticRegression(schema=LEARNED, ledger=b).fit(
        TABLE[["a", "b", "y"]], "y"
    ),
    "learned norm": lambda b: _linear(data_norm="learn")(b).fit(X, Y),
    "public data": lambda b: _linear(public_data=(X[:50] / 2, Y[:50]))(b).fit(X, Y),
    "intervals": lambda b: _linear(intervals=True)(b).fit(X, Y),
    "regression": lambda b: DPRidge(data_norm=2.0, target_bounds=(-1, 1), ledger=b).fit(X, X[:, 0]),
    "additive": lambda b: DPAdditiveClassifier(schema=RANGES, classes=[0, 1], ledger=b).fit(
        TABLE[["a", "b"]], TABLE.y
    ),
    "search": lambda b: _search(b).fit(X, Y),
    "search on sparse rows": lambda b: _search(b).fit(sparse.csr_matrix(X), Y.tolist()),
    "score": lambda b: private_score(FITTED, X, Y.tolist(), epsilon=1.0, ledger=b),
    "summaries": lambda b: summarize_table(TABLE, RANGES, ["a"], epsilon=1.0, delta=1e-6, ledger=b),
    "learned groups": lambda b: count_learned_groups(TABLE, "a", epsilon=1.0, delta=1e-6, ledger=b),
    "sampler": lambda b: RashomonSampler(
        DPLogisticRegression(**STATED), thresholds=0.05, n_models=2, radius=1.0, ledger=b
    ).fit(X, Y),
    "region": lambda b: RashomonRegion(
        DPLogisticRegression(**STATED), thresholds=(0.05,), n_models=2, public_inputs=X[:5] / 2, ledger=b
    ).fit(X, Y),
}


def _note_readers(monkeypatch: pytest.MonkeyPatch, events: list[str]) -> None:
    """Every function that turns private cells into values notes that it was called."""

    def noting(function: Any) -> Any:
        def noted(*given: Any, **options: Any) -> Any:
            events.append("read")
            return function(*given, **options)

        return noted

    for module, name in (
        (_reading, "as_matrix"), (_reading, "to_dense"), (_reading, "zero_nonfinite_rows"), (_reading, "read_numbers"),
        (_held_out, "to_dense"), (_held_out, "zero_nonfinite_rows"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    for kind in (columns.ArrayColumn, columns.ArrowColumn):
        for name in ("numbers", "labels", "persons", "take"):
            monkeypatch.setattr(kind, name, noting(getattr(kind, name)))
    monkeypatch.setattr(TableFiles, "batches", noting(TableFiles.batches))


@pytest.mark.parametrize("name", ROUTES)
def test_the_first_cell_is_read_after_the_charge(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    if name not in ("public data", "region"):  # these read public rows before, through the same functions
        _note_readers(monkeypatch, events)
    else:
        read = DPLogisticRegression.read_cells
        monkeypatch.setattr(
            DPLogisticRegression, "read_cells", lambda *given: events.append("read") or read(*given)
        )
    with warnings.catch_warnings(action="ignore"):
        ROUTES[name](Budget(events))
    assert events.count("charge") == 1
    assert events.index("charge") < events.index("read")


def test_files_are_read_after_the_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TABLE[["a", "b", "y"]].to_csv(tmp_path / "t.csv", index=False)
    events: list[str] = []
    _note_readers(monkeypatch, events)
    DPLogisticRegression(**STATED, ledger=Budget(events)).fit(tmp_path / "t.csv", "y")  # type: ignore[arg-type]
    assert events[0] == "charge"
    assert "read" in events


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((X[:, 0], Y), "Expected 2D array"),
        ((X, Y[:-1]), "inconsistent numbers"),
        ((X, None), "requires y"),
        ((X, Y, np.ones(3)), "inconsistent numbers"),
        ((X[:0], Y[:0]), "0 sample"),
        ((X[:, :0], Y), "0 feature"),
        ((X + 1j, Y), "Complex data"),
        ((np.ma.masked_array(X), Y), "masked"),
        (({"a": 1.0}, Y), "must be a list or an array"),
    ],
)
def test_public_faults_are_refused_before_the_charge(given: Any, words: str) -> None:
    events: list[str] = []
    model = DPLogisticRegression(**{**STATED, "bad_rows": "refuse"}, ledger=Budget(events))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words):
        model.fit(*given)
    assert events == []


def test_an_error_about_a_record_comes_after_the_charge_and_says_so() -> None:
    events: list[str] = []
    bad = np.where(np.arange(600)[:, None] == 7, np.nan, X)
    model = DPLogisticRegression(**{**STATED, "bad_rows": "refuse"}, ledger=Budget(events))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="NaN") as caught:
        model.fit(bad, Y)
    assert events == ["charge"]
    assert "charged" in " ".join(caught.value.__notes__)
