"""Tuning with a bill: the promise of repeat-and-select, what leaves, and what is refused."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

from dplangevin import (
    DPAdditiveClassifier,
    DPLinearSVC,
    DPLogisticRegression,
    DPModelSearch,
    DPRidge,
    Ledger,
    progress,
)
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.mechanisms.repeated_selection.mechanism import CandidateAttempts, RepeatedSelection
from dplangevin.mechanisms.repeated_selection.spec import REPETITION_LAWS, RepeatedSelectionSpec
from dplangevin.mechanisms.repeated_selection.theorem import RepeatedSelectionTheorem, calibrate_attempt_mu
from dplangevin.schema import Schema

SHAPES = {"poisson": math.inf, "geometric": 1.0, "logarithmic": 0.0}


@pytest.mark.parametrize("law", REPETITION_LAWS)
@pytest.mark.parametrize(("mu", "mean"), [(0.1, 10), (0.3, 20), (0.05, 100)])
def test_the_promise_equals_that_of_dp_accounting(law: str, mu: float, mean: float) -> None:
    from dp_accounting import dp_event, rdp

    schedule = RepeatedSelectionSpec(mu=mu, repetitions=mean, law=law, adjacency="replace-one")  # type: ignore[arg-type]
    ours = RepeatedSelectionTheorem().certify(None, schedule)
    theirs = rdp.RdpAccountant(cv.ORDERS[cv.ORDERS > 1])
    theirs.compose(dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(1 / mu), mean, SHAPES[law]))
    assert ours.epsilon(1e-6) == pytest.approx(theirs.get_epsilon(1e-6), rel=1e-3)
    assert ours.epsilon(1e-6) >= theirs.get_epsilon(1e-6) * (1 - 1e-9)


@pytest.mark.parametrize("law", REPETITION_LAWS)
def test_the_number_of_attempts_has_its_law(law: str) -> None:
    """Means of 4,000 draws within 5 standard errors (false alarm below 1e-6)."""
    schedule = RepeatedSelectionSpec(mu=0.1, repetitions=12, law=law, adjacency="replace-one")  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    drawn = np.array([schedule.sample_n_attempts(rng) for _ in range(4_000)])
    assert abs(drawn.mean() - 12) < 5 * drawn.std() / math.sqrt(len(drawn))
    assert drawn.min() >= (0 if law == "poisson" else 1)
    mu = calibrate_attempt_mu(1.0, 1e-6, schedule)
    found = RepeatedSelectionTheorem().certify(
        None,
        RepeatedSelectionSpec(mu=mu, repetitions=12, law=law, adjacency="replace-one"),  # type: ignore[arg-type]
    )
    assert 0.999 < found.epsilon(1e-6) <= 1.0


def data(n: int = 4000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, n)
    return pd.DataFrame({"x": x, "y": np.where(rng.random(n) < 1 / (1 + np.exp(5 - x)), "yes", "no")})


GOOD = Schema.from_dict({"version": 1, "columns": {"x": {"range": [0, 10]}}})
BAD = Schema.from_dict({"version": 1, "columns": {"x": {"range": [0, 10_000]}}})


def search(**options: Any) -> DPModelSearch:
    model = DPLogisticRegression(classes=["no", "yes"])
    stated = {"epsilon": 4.0, "delta": 1e-6, "repetitions": 10, "random_state": 0, **options}
    return DPModelSearch(
        stated.pop("estimator", model), stated.pop("grid", {"schema": [BAD, GOOD]}), **stated
    )


def test_the_better_candidate_leaves_and_nothing_of_the_other(tmp_path: Path) -> None:
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}")
    budget = ledger.declare("d", epsilon=5.0, delta=1e-5)
    table = data()
    found = search(ledger=budget).fit(table[["x"]], table.y)
    assert found.best_params_ == {"schema": GOOD}
    assert found.best_estimator_.schema == GOOD
    assert 3.99 < found.privacy_.epsilon(1e-6) <= 4.0
    assert found.best_estimator_.privacy_ == found.privacy_
    assert len(budget.history()) == 1
    assert found.score(table[["x"]], table.y) > 0.75
    assert list(found.classes_) == ["no", "yes"]
    fitted = {name for name in vars(found) if name.endswith("_")}
    assert fitted == {
        "privacy_",
        "best_estimator_",
        "best_params_",
        "best_score_",
        "ledger_head_",
        "classes_",
    }
    by_name = search().fit(table, "y")
    assert by_name.best_params_ == {"schema": GOOD}
    assert 0.5 < by_name.best_score_ < 1.1


def test_arrays_add_remove_and_regression() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 3))
    model = DPRidge(data_norm=2.0, target_bounds=(-2, 2), adjacency="add-remove", n_public=4000)
    found = search(estimator=model, grid=[{"alpha": [1e-3]}, {"alpha": [1e3]}]).fit(X, X[:, 0])
    assert found.best_params_ == {"alpha": 1e-3}
    assert found.privacy_.adjacency == "add-remove"
    svc = DPLinearSVC(data_norm=2.0, classes=[0, 1])
    assert (
        search(estimator=svc, grid={"alpha": [1e-3, 1e3]}).fit(X, (X[:, 0] > 0).astype(int)).best_score_ > 0.5
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grid": {"epsilon": [1, 2]}}, "change the guarantee"),
        ({"grid": {"classes": [[0, 1]]}}, "change the guarantee"),
        ({"grid": {"depth": [1]}}, "not a parameter of"), ({"grid": {"alpha": 1.0}}, "list of values"),
        ({"grid": {"alpha": []}}, "list of values"), ({"grid": []}, "dictionary"), ({"grid": "alpha"}, "dictionary"),
        ({"repetitions": 0}, "repetitions"), ({"repetitions": 0.5}, "from 1"), ({"law": "uniform"}, "law"),
        ({"law": "poisson", "repetitions": 2}, "too often"), ({"holdout": 0.99}, "holdout"),
        ({"metric": "auc"}, "metric"),
        ({"delta": 0.0}, "delta"), ({"estimator": object()}, "estimator must be"),
        ({"estimator": DPLogisticRegression(classes=["no", "yes"], person="x", n_public=9)}, "person"),
        ({"estimator": DPLogisticRegression()}, "labels"),
        ({"grid": {"schema": [Schema.learn(x="number")]}}, "stated schemas"),
        ({"grid": {"mechanism": ["objective-perturbation"], "schema": [GOOD]}}, "GDP of an attempt"),
    ],
)  # fmt: skip
def test_what_is_publicly_wrong_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        search(**options).fit(data(400)[["x"]], data(400).y)


def test_no_attempt_at_all_is_said() -> None:
    schedule = RepeatedSelectionSpec(mu=1.0, repetitions=5, law="poisson", adjacency="replace-one")
    price = CertifiedSpec(spec=schedule, delta=1e-5)

    class Never(np.random.Generator):
        def poisson(self, *_: Any, **__: Any) -> Any:
            return 0

    with pytest.raises(InvalidParameter, match="candidates"):
        RepeatedSelection().run(
            price,
            CandidateAttempts(fit_specs=(), score_specs=(), run_attempt=lambda j, rng: (0.0, None, "")),
            0,
        )
    from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumGroup

    group = SumGroup(answers=1, unit=1.0, scale=2.0)
    one = CertifiedSpec(
        spec=NoisySumsSpec(groups=(group,), noise="gaussian", adjacency="replace-one"), delta=1e-5
    )
    attempts = CandidateAttempts(
        fit_specs=(one,), score_specs=(one,), run_attempt=lambda j, rng: (0.0, None, "")
    )
    with pytest.raises(DplangevinError, match="was 0"):
        RepeatedSelection().run(price, attempts, Never(np.random.PCG64(0)))


def test_nothing_counts_the_attempts(capsys: pytest.CaptureFixture[str]) -> None:
    table = data(1000)
    seen: list[int] = []
    with progress(lambda step, total: seen.append(step), log=True):
        search(verbose=True).fit(table[["x"]], table.y)
    assert not seen
    assert capsys.readouterr().err == ""


def test_candidates_are_compared_on_the_same_targets_and_rows(tmp_path: Path) -> None:
    table, ledger = data(1000), Ledger.create(f"sqlite:///{tmp_path / 'l.db'}")
    budget = ledger.declare("d", epsilon=5.0, delta=1e-5)
    columns = {"x": {"range": [0, 10]}}
    ranges = [
        Schema.from_dict({"version": 1, "columns": columns, "target": {"name": "z", "range": [0, high]}})
        for high in (10, 10_000)
    ]
    with pytest.raises(InvalidParameter, match="not comparable"):
        search(estimator=DPRidge(), grid={"schema": ranges}, ledger=budget).fit(table[["x"]], table.x)
    for rows in (900, 1100):
        stated = DPLogisticRegression(classes=["no", "yes"], n_public=rows)
        with pytest.raises(InvalidParameter, match="is stated"):
            search(estimator=stated, ledger=budget).fit(table[["x"]], table.y)
    assert not budget.history()
    curves = DPAdditiveClassifier(classes=["no", "yes"])
    found = search(estimator=curves, ledger=budget).fit(table[["x"]], table.y)
    assert found.best_estimator_.schema_.is_additive
    assert len(found.predict(table[["x"]])) == 1000
    assert "the number of rows is public" in found.privacy_.assumptions


@pytest.mark.parametrize("n", [None, 8])
def test_a_row_that_leaves_moves_no_other_row(n: int | None) -> None:
    """Under add-remove the parts of a table with and without its last row agree on all others, for every seed."""
    from dplangevin.estimators.model_search import _Split, _UnreadRecords
    from dplangevin.tables.frames import as_table

    table = as_table(pd.DataFrame({"x": np.arange(8.0), "y": np.arange(8.0)}))

    def parts(rows: int) -> tuple[Any, Any]:
        part = table.take(np.arange(rows))
        return part.drop_columns("y"), part.column("y")

    for seed in range(50):
        splits = [
            _Split.split_records(
                _UnreadRecords(
                    n_rows=rows, names=("x",),
                    read=lambda rows=rows: parts(rows),
                ),
                0.25, "add-remove", np.random.default_rng(seed), n,
            )
            for rows in (8, 7)
        ]  # fmt: skip
        for one, other in zip(splits[0].targets, splits[1].targets, strict=True):
            assert set(other.numbers()) == set(one.numbers()) - {7.0}
        assert splits[0].n_scored == 2


def test_an_unstated_number_of_rows_is_public_and_said() -> None:
    model = DPRidge(data_norm=2.0, target_bounds=(-2, 2), adjacency="add-remove")
    X = np.random.default_rng(0).uniform(-1, 1, (4000, 3))
    found = search(estimator=model, grid=[{"alpha": [1e-3]}, {"alpha": [1e3]}]).fit(X, X[:, 0])
    assert [each.kind for each in found.privacy_.conditions] == ["public-row-count"]
    assert found.best_params_ == {"alpha": 1e-3}


def test_every_fit_of_a_plain_search_warns() -> None:
    table, model = data(300), DPLogisticRegression(schema=GOOD, classes=["no", "yes"], random_state=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        cross_val_score(model, table[["x"]], table.y, cv=2)
        GridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=2).fit(table[["x"]], table.y)
    assert sum("k fits cost k releases" in str(one.message) for one in said) == 2 + 2 * 2 + 1
