"""What notebooks show: the guarantee of a fit beside its diagram, and nothing that is not escaped."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone

from dplangevin import DPAdditiveClassifier, DPModelSearch, DPRidge, Ledger, Schema, plan_fit
from dplangevin.rashomon import RashomonRegion, RashomonSampler
from estimators._models import EVERY

NAME = "<script>alert(1)</script>"


def fit() -> Any:
    X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    return DPRidge(epsilon=0.7, data_norm=1.5, target_bounds=(-1, 1), random_state=0).fit(X, X[:, 0])


def test_an_estimator_shows_its_guarantee() -> None:
    model = fit()
    for shown in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert "Privacy guarantee" in shown
        assert ">0.7<" in shown
        assert model.privacy_.theorem in shown
    with config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
    assert "Not fitted; a fit will satisfy" in DPRidge(epsilon=0.7)._repr_html_()


@pytest.mark.parametrize(
    "cls", [*EVERY, DPAdditiveClassifier, DPModelSearch, RashomonRegion, RashomonSampler]
)
def test_the_html_form_warns_of_nothing(cls: Any) -> None:
    parts: dict[Any, tuple[Any, ...]] = {DPModelSearch: (DPRidge(), {}), RashomonRegion: (DPRidge(),)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "<div" in cls(*parts.get(cls, (DPRidge(),) if cls is RashomonSampler else ()))._repr_html_()


def test_a_shown_epsilon_is_never_below_the_proved_one() -> None:
    guarantee = fit().privacy_
    for delta in (1e-9, 1e-5, 0.01):
        shown = replace(guarantee, at_delta=delta)._repr_html_()
        value = float(shown.partition("epsilon</th>")[2].partition(">")[2].partition("<")[0])
        assert guarantee.epsilon(delta) <= value <= guarantee.epsilon(delta) * 1.001 + 1e-3


def test_conditions_are_shown() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    with pytest.warns(UserWarning, match="conditional"):
        model = clone(DPRidge(data_norm=1.5, target_bounds=(-1, 1), random_state=0)).fit(X, X[:, 0])
    assert "conditional on" in model._repr_html_()


def test_plans_schemas_and_budgets(tmp_path: Path) -> None:
    plan = plan_fit(
        model="logistic", n=30_000, n_features=20, epsilon=1.0, delta=1e-6, data_norm=1.0, fit_intercept=False,
        adjacency="replace-one",
    )  # fmt: skip
    assert "30,000 and 20" in plan._repr_html_()
    assert "Privacy guarantee" in plan._repr_html_()
    assert plan.plan.spec.mechanism in plan.plan._repr_html_()
    schema = Schema.from_dict(
        {
            "columns": {NAME: {"range": [0, 9]}, "job": {"categories": ["a", "b"]}},
            "target": {"name": "y", "classes": [0, 1]},
        }
    )
    shown = schema._repr_html_()
    assert NAME not in shown
    assert "&lt;script&gt;" in shown
    assert "0 to 9" in shown
    assert "2 categories" in shown
    assert "target" in shown
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.declare("people", epsilon=3.0, delta=1e-6)
    budget = ledger.dataset("people")
    assert "epsilon = 3, delta = 1e-06" in budget._repr_html_()
    (tmp_path / "ledger.db").unlink()
    assert "cannot be read" in budget._repr_html_()


def test_names_from_a_schema_are_escaped_in_a_model() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, (500, 1))
    schema = {"columns": {NAME: {"range": [-1, 1]}}, "missing": "never"}
    model = DPAdditiveClassifier(schema=schema, classes=[0, 1], random_state=0).fit(
        X, (X[:, 0] > 0).astype(int)
    )
    assert NAME not in model._repr_html_()
