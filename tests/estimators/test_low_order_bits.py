"""Nothing on a fitted model, in its report or in its file depends on a record other than through exact releases.

A fit is replayed on a neighbouring table with the same releases (`dplangevin.audit.replay`): whatever differs after
that, in any bit, is a number that is no function of released and public ones.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dplangevin import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPHuberRegressor,
    DPLinearSVC,
    DPLogisticRegression,
    DPModelSearch,
    DPPoissonRegressor,
    DPQuantileRegressor,
    DPRidge,
    Schema,
    private_score,
    private_selection,
    report,
    save_model,
)
from dplangevin.accounting.plan import public_noise_grid
from dplangevin.audit import replay
from dplangevin.audit.replay import ReplayResult
from dplangevin.mechanisms.whitened_objective.mechanism import WhitenedObjective
from dplangevin.queries import (
    column,
    count_learned_groups,
    count_marginals,
    count_queries,
    summarize_table,
)

N = 400
MODELS: dict[str, tuple[type, dict[str, Any], str]] = {
    "logistic": (DPLogisticRegression, {"classes": [0, 1]}, "classes"),
    "multinomial": (DPLogisticRegression, {"classes": [0, 1, 2]}, "three"),
    "svc": (DPLinearSVC, {"classes": [0, 1]}, "classes"),
    "ridge": (DPRidge, {"target_bounds": (-1, 1)}, "numbers"),
    "huber": (DPHuberRegressor, {"target_bounds": (-1, 1)}, "numbers"),
    "quantile": (DPQuantileRegressor, {"target_bounds": (-1, 1)}, "numbers"),
    "poisson": (DPPoissonRegressor, {"target_bounds": (0, 10)}, "counts"),
}
FAST_CASES = {("logistic", 0.0), ("logistic", 1e-6), ("huber", 0.0)}
CASES = [
    pytest.param(name, delta, marks=[] if (name, delta) in FAST_CASES else [pytest.mark.slow])
    for name in MODELS
    for delta in (0.0, 1e-6)
]


def neighbouring_tables(labels: str) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, 3))
    scores = X @ [1.0, -2.0, 0.5]
    y = {
        "classes": (scores > 0).astype(float),
        "three": np.digitize(scores, [-1, 1]).astype(float),
        "numbers": np.clip(scores / 3, -1, 1),
        "counts": rng.poisson(np.exp(scores / 3)).astype(float),
    }[labels]
    other, changed = X.copy(), y.copy()
    other[7], changed[7] = 1.0, 0.0
    return [(X, y), (other, changed)]


def all_outputs(model: Any, folder: Path) -> dict[str, Any]:
    """Attributes, the pickle, the report in three formats and the model file, without times and what hashes them."""
    outputs: dict[str, Any] = {k: v for k, v in vars(model).items() if k not in ("random_state", "ledger")}
    outputs["pickle"] = pickle.dumps(copy.copy(model).set_params(random_state=None))
    for suffix in ("html", "json", "md"):
        report.write_report(model, folder / f"report.{suffix}")
        text = (folder / f"report.{suffix}").read_text(encoding="utf-8")
        outputs[suffix] = re.sub(r"\d\d:\d\d(:\d\d)?(\.\d+)?", "", text)
    save_model(model, folder / "model.json")
    content = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    outputs["file"] = json.dumps({k: v for k, v in content.items() if k not in ("created", "digest")})
    return outputs


def replay_fit(name: str, delta: float, folder: Path) -> ReplayResult:
    cls, options, labels = MODELS[name]

    def fit(data: Any, rng: np.random.Generator) -> dict[str, Any]:
        model = cls(epsilon=1.0, delta=delta, data_norm=3**0.5, random_state=rng, **options).fit(*data)
        assert model.privacy_.arithmetic == "discrete-grid"
        return all_outputs(model, folder)

    return replay(fit, *neighbouring_tables(labels))


@pytest.mark.parametrize(("name", "delta"), CASES)
def test_a_default_fit_holds_nothing_but_functions_of_its_releases(
    name: str, delta: float, tmp_path: Path
) -> None:
    result = replay_fit(name, delta, tmp_path)
    assert result.releases
    assert result.differences == ()


SCHEMA = Schema.from_dict({"version": 1, "columns": {name: {"range": [-1, 1]} for name in "abc"}})
OTHER_FITS: dict[str, tuple[type, dict[str, Any], str]] = {
    "additive": (DPAdditiveClassifier, {"classes": [0, 1], "schema": SCHEMA}, "classes"),
    "additive regressor": (
        DPAdditiveRegressor, {"target_bounds": (-1, 1), "schema": SCHEMA}, "numbers",
    ),
    "ridge-whitened": (DPLogisticRegression, {"classes": [0, 1], "mechanism": "ridge-whitened-gd"}, "classes"),
    "last state": (DPLogisticRegression, {"classes": [0, 1], "theorem": "optimal-shift"}, "classes"),
    "learned schema": (
        DPLogisticRegression, {"classes": [0, 1], "schema": Schema.learn(dict.fromkeys("abc", "number"))},
        "classes",
    ),
    "learned norm": (DPLogisticRegression, {"classes": [0, 1], "data_norm": "learn"}, "classes"),
    "mini-batches": (DPLogisticRegression, {"classes": [0, 1], "mechanism": "noisy-sgd"}, "classes"),
    "moments": (DPRidge, {"target_bounds": (-1, 1), "mechanism": "sufficient-statistics"}, "numbers"),
    "intervals": (DPLogisticRegression, {"classes": [0, 1], "intervals": True}, "classes"),
}  # fmt: skip


def named_tables(labels: str) -> list[tuple[pd.DataFrame, np.ndarray]]:
    return [(pd.DataFrame(X, columns=list("abc")), y) for X, y in neighbouring_tables(labels)]


@pytest.mark.parametrize("name", OTHER_FITS)
def test_other_exact_fits_hold_nothing_but_functions_of_their_releases(name: str, tmp_path: Path) -> None:
    cls, options, labels = OTHER_FITS[name]
    bound = {} if {"schema", "data_norm"} & set(options) else {"data_norm": 3**0.5}

    def fit(data: Any, rng: np.random.Generator) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = cls(epsilon=4.0, delta=1e-4, random_state=rng, **bound, **options).fit(*data)
        assert model.privacy_.arithmetic == "discrete-grid"
        return all_outputs(model, tmp_path)

    result = replay(fit, *named_tables(labels))
    assert result.releases
    assert result.differences == ()


MODEL = DPLogisticRegression(epsilon=1.0, delta=1e-6, data_norm=3**0.5, classes=[0, 1], random_state=0).fit(
    *neighbouring_tables("classes")[0]
)
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
ANSWERS: dict[str, Any] = {
    "counts": lambda X, y, rng: count_queries(
        X, [column("a") > 0, column("b") > 0], p=2.0, random_state=rng, **BUDGET
    ),
    "marginals": lambda X, y, rng: count_marginals(X, SCHEMA, ways=2, p=2.0, random_state=rng, **BUDGET),
    "pure counts": lambda X, y, rng: count_queries(
        X, [column("a") > 0], random_state=rng, epsilon=1.0, delta=0.0
    ),
    "summaries": lambda X, y, rng: summarize_table(X, SCHEMA, quantiles=(0.5,), random_state=rng, **BUDGET),
    "learned groups": lambda X, y, rng: count_learned_groups(X.round(), "a", random_state=rng, **BUDGET),
    "score": lambda X, y, rng: private_score(MODEL, X.to_numpy(), y, epsilon=1.0, random_state=rng),
    "log-loss": lambda X, y, rng: private_score(
        MODEL, X.to_numpy(), y, metric="log-loss", random_state=rng, **BUDGET
    ),
    "selection": lambda X, y, rng: private_selection(
        [MODEL, MODEL], X.to_numpy(), y, epsilon=1.0, random_state=rng
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_hold_nothing_but_functions_of_their_releases(name: str) -> None:
    """Attributes and the pickle of counts, marginals, summaries, groups, scores and selections."""

    def answer(data: Any, rng: np.random.Generator) -> dict[str, Any]:
        made = ANSWERS[name](*data, rng)
        assert any(word in repr(vars(made)) for word in ("discrete-grid", "secure=True"))
        return {"text": repr(made), **vars(made)}

    result = replay(answer, *named_tables("classes"))
    assert result.differences == ()
    assert result.releases or name == "selection"  # an index, by exact coins


def test_counts_of_any_noise_lie_on_the_public_grid() -> None:
    """A replay knows Gaussian and Laplace noise; of other exponents every answer is a step of its grid."""
    X, _ = named_tables("classes")[0]
    for p in (1.5, 3.0, math.inf):
        table = count_queries(X, [column("a") > 0, column("b") > 0], p=p, random_state=0, **BUDGET)
        steps = table.values / public_noise_grid(table.mechanism.sigma, whole=True)
        assert np.array_equal(steps, np.rint(steps))


def test_a_search_holds_nothing_but_functions_of_its_releases(tmp_path: Path) -> None:
    def fit(data: Any, rng: np.random.Generator) -> dict[str, Any]:
        base = DPLogisticRegression(data_norm=3**0.5, classes=[0, 1])
        grid = {"alpha": [1e-3, 0.1]}
        search = DPModelSearch(base, grid, epsilon=1.0, delta=1e-6, repetitions=4, random_state=rng).fit(
            *data
        )
        assert search.privacy_.arithmetic == "discrete-grid"
        outputs = {k: v for k, v in vars(search).items() if k not in ("random_state", "ledger")}
        outputs["pickle"] = pickle.dumps(copy.copy(search).set_params(random_state=None))
        return outputs | {"best": all_outputs(search.best_estimator_, tmp_path)}

    result = replay(fit, *neighbouring_tables("classes"))
    assert result.releases
    assert result.differences == ()


def test_one_exact_number_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = WhitenedObjective.execute

    def leak(self: Any, inputs: Any) -> Any:
        output = execute(self, inputs)
        total = float(sum(block.rows.sum() for block in inputs.data.blocks()))
        return replace(output, value=output.value * (1 + 1e-15 * total))

    monkeypatch.setattr(WhitenedObjective, "execute", leak)
    assert replay_fit("logistic", 0.0, tmp_path).differences
