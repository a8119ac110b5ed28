"""Displays draw on the axes that they are given, and show the numbers of the objects that they are made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dplangevin import DPAdditiveClassifier, DPLogisticRegression, Ledger
from dplangevin.errors import InvalidParameter
from dplangevin.report import BudgetDisplay, ShapeDisplay, StabilityDisplay, TradeoffDisplay

figure_module = pytest.importorskip("matplotlib.figure")
SCHEMA: dict[str, Any] = {"columns": {"age": {"range": [0, 100]}, "job": {"categories": ["a", "b"]}}}


def axes() -> Any:
    return figure_module.Figure().subplots()


@pytest.fixture(scope="module")
def table() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"age": rng.uniform(0, 100, 5000), "job": rng.choice(["a", "b"], 5000)})
    return rows, (rows.age + 20 * (rows.job == "a") + rng.normal(0, 10, 5000) > 60).to_numpy().astype(int)


def test_shapes_are_those_of_the_model(table: Any) -> None:
    options: dict[str, Any] = {
        "epsilon": 2.0,
        "delta": 1e-6,
        "schema": SCHEMA,
        "intervals": True,
        "random_state": 0,
    }
    model = DPAdditiveClassifier(**options).fit(*table)
    ax = axes()
    display = ShapeDisplay.from_estimator(model, "age", ax=ax)
    assert display.ax_ is ax
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.partial_effect("age").values)
    assert len(ax.collections) == 1  # the band
    bars = ShapeDisplay.from_estimator(model, "job", ax=axes()).ax_
    assert [label.get_text() for label in bars.get_yticklabels()] == ["a", "b"]


def test_the_tradeoff_is_that_of_the_guarantee_and_stability_that_of_the_model(table: Any) -> None:
    options: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "schema": SCHEMA,
        "intervals": True,
        "random_state": 0,
    }
    model = DPLogisticRegression(**options).fit(*table)
    display = TradeoffDisplay.from_estimator(model, ax=axes())
    assert (display.tpr >= display.fpr - 1e-12).all()
    np.testing.assert_allclose(display.tpr, 1 - model.privacy_.tradeoff(display.fpr))
    stability = StabilityDisplay.from_estimator(model, table[0][:200], ax=axes())
    assert stability.ax_.lines[0].get_ydata()[0] == model.flip_probability(table[0][:200]).max()


def test_the_budget_is_that_of_the_ledger(tmp_path: Path) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("people", epsilon=2.0, delta=1e-6)
    display = BudgetDisplay.from_estimator(DPLogisticRegression(ledger=budget), ax=axes())
    assert display.epsilons[0] == 2.0
    assert max(display.epsilons) == 2.0
    with pytest.raises(InvalidParameter, match="no ledger"):
        BudgetDisplay.from_estimator(DPLogisticRegression())
