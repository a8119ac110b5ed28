"""What a region says is true of the very models it hands out, and what it would not do is refused, not passed over."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from _public_grids import small_grids
from dplangevin.errors import InvalidParameter
from dplangevin.estimators import DPAdditiveClassifier, DPLogisticRegression
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.rashomon_region.objective import RegionObjective
from dplangevin.problem import (
    Clipped,
    Huber,
    Logistic,
    Loss,
    Poisson,
    SmoothedHinge,
    SmoothedPinball,
    Squared,
)
from dplangevin.rashomon import RashomonRegion, RashomonSampler, exact_region

RNG = np.random.default_rng(7)
N = 3000
X = RNG.uniform(-1, 1, (N, 2)) / 2**0.5
Y = (3 * X[:, 0] + RNG.logistic(size=N) > 0).astype(int)
PUBLIC = RNG.uniform(-1, 1, (30, 2)) / 2**0.5
TABLE = pd.DataFrame(X, columns=["a", "b"])
COLUMNS: dict[str, Any] = {"a": {"range": [-1, 1]}, "b": {"range": [-1, 1]}}
SCHEMA = {"columns": COLUMNS, "missing": "never"}


def logistic(**changes: Any) -> DPLogisticRegression:
    stated = {"data_norm": 1.0} if "schema" not in changes else {}
    return DPLogisticRegression(**{"classes": [0, 1], **stated, **changes})


def region(estimator: Any, **changes: Any) -> RashomonRegion:
    options = {
        "thresholds": (0.02, 0.1),
        "epsilon": 4.0,
        "delta": 1e-6,
        "public_inputs": PUBLIC,
        "n_models": 4,
    }
    return RashomonRegion(estimator, **{**options, "random_state": 1, **changes})  # type: ignore[arg-type]


def refused(estimator: Any, words: str, rows: Any = X) -> None:
    with pytest.raises(InvalidParameter, match=words):
        region(estimator).fit(rows, Y)
    with pytest.raises(InvalidParameter, match=words):
        RashomonSampler(estimator, thresholds=0.1, radius=2.0).fit(rows, Y)


def test_a_projected_model_is_not_the_certified_one() -> None:
    """A monotone column is projected after the release: the model would have another objective than was certified."""
    falling = {"columns": {**COLUMNS, "a": {"range": [-1, 1], "monotone": "decreasing"}}, "missing": "never"}
    refused(logistic(schema=falling), "'a' is monotone", TABLE)
    additive = DPAdditiveClassifier(schema=SCHEMA, classes=[0, 1], monotone={"a": "increasing"})
    refused(additive, "'a' is monotone", TABLE)


def test_models_are_the_certified_points_and_their_objective_is_within_the_threshold() -> None:
    """From the coefficients of the models that people get, with an additive basis too."""
    for model in (logistic(), DPAdditiveClassifier(schema=SCHEMA, classes=[0, 1], n_knots=3, alpha=0.001)):
        rows: Any = X if model.schema is None else TABLE
        inputs: Any = PUBLIC if model.schema is None else pd.DataFrame(PUBLIC, columns=["a", "b"])
        made = region(model, public_inputs=inputs).fit(rows, Y)

        def objective(one: Any, rows: Any = rows, ridge: float = model.alpha or 0.0) -> float:
            scores = one.decision_function(rows)
            loss = float(np.mean(np.logaddexp(0, scores) - Y * scores))
            return loss + ridge / 2 * float(np.square(one.coef_).sum() + np.square(one.intercept_).sum())

        for psi in (0.02, 0.1):
            base = objective(made.center_)
            assert all(objective(one) <= base + psi for one in made.models(psi))


def test_a_ledger_in_the_estimator_is_not_passed_over(tmp_path: Path) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=5.0, delta=1e-5)
    refused(logistic(ledger=budget), "would not be charged")
    assert not budget.history()
    made = region(logistic(ledger=budget), ledger=budget).fit(X, Y)
    (entry,) = budget.history()
    assert entry.guarantee.epsilon(1e-6) == made.privacy_.epsilon(1e-6) <= 4.0
    exact_region(logistic(ledger=budget), X, Y, 0.1, inputs=PUBLIC[:2], ranges=False)  # charges nothing
    assert len(budget.history()) == 1


def test_bounds_that_are_to_be_learned_are_refused() -> None:
    refused(logistic(data_norm="learn"), "stated bounds")
    refused(logistic(schema="learn"), "stated bounds", TABLE)
    refused(
        logistic(schema={"columns": {"a": {"range": "learn"}, "b": {"range": [-1, 1]}}}),
        "stated bounds",
        TABLE,
    )


def test_private_rows_among_the_public_inputs_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    small_grids(monkeypatch)
    with pytest.warns(UserWarning, match="public_inputs and X share rows"):
        region(logistic(), public_inputs=X[:20]).fit(X, Y)
    public = (X[:500], Y[:500])
    with pytest.warns(UserWarning, match="public_data and X share rows"):
        region(logistic(public_data=public)).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = region(logistic(public_data=public), public_inputs=X[500:520]).fit(X[520:], Y[520:])
    assert any("public data set is not protected" in words for words in made.privacy_.assumptions)


def test_what_has_no_form_here_or_was_not_asked_for_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="compare"):
        region(logistic(compare=True)).fit(X, Y)
    with pytest.raises(InvalidParameter, match="public_method"):
        region(logistic(public_method="other")).fit(X, Y)
    table = region(logistic()).fit(X, Y).multiplicity()
    assert table.level(0.02).threshold == 0.02
    assert table.level().threshold == 0.1
    with pytest.raises(InvalidParameter, match="not part of the release"):
        table.level(0.05)


def test_what_several_classes_leave_open_grows_with_the_threshold() -> None:
    labels = np.digitize(X[:, 0], [-0.2, 0.2])
    made = region(DPLogisticRegression(data_norm=1.0, classes=[0, 1, 2]), thresholds=(0.01, 0.05, 0.2)).fit(
        X, labels
    )
    levels = made.multiplicity().levels
    for small, large in itertools.pairwise(levels):
        assert small.capacity is not None
        assert large.capacity is not None
        assert np.all(large.capacity >= small.capacity)
        assert np.all(large.low <= small.low)
        assert np.all(large.high >= small.high)


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        (Logistic(), (0.0, 1.0)),
        (SmoothedHinge(width=1.0), (0.0, 1.0)),
        (Squared(), (-1.0, 1.0)),
        (Huber(transition=0.2), (-1.0, 1.0)),
        (SmoothedPinball(quantile=0.3, width=0.1), (-1.0, 1.0)),
        (Clipped(Poisson(target_bound=9.0), 3.0), (0.0, 9.0)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_no_record_changes_more_than_its_limit(loss: Loss, labels: tuple[float, float]) -> None:
    """A limit that is too small would clip records, and certify models that are not in the set."""
    rng, worst = np.random.default_rng(5), 0.0
    bounded = RegionObjective(
        loss=loss, ridge=0.0, n=1, n_columns=2, row_norm=2.0, label_bound=max(map(abs, labels)),
        adjacency="replace-one",
    )  # fmt: skip
    for _ in range(400):
        centre, point = rng.standard_normal((2, 2)) * 10.0 ** rng.uniform(-2, 2, (2, 1))
        limit = float(bounded.loss_difference_bounds(centre, point[:, None])[0])
        ways = np.array([point - centre, point + centre, *rng.standard_normal((4, 2))])
        ways /= np.linalg.norm(ways, axis=1, keepdims=True)
        rows = 2.0 * np.concatenate([ways, -ways])
        for label in np.linspace(*labels, 5):
            moved = loss.value(rows @ point, np.full(12, label)) - loss.value(
                rows @ centre, np.full(12, label)
            )
            worst = max(worst, float(np.abs(moved).max()) / limit)
    assert 0.9 < worst <= 1 + 1e-9
