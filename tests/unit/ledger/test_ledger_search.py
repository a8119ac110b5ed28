"""A search makes many fits from copies of one estimator: they share one budget."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV

from dplangevin.accounting import conversions as cv
from dplangevin.errors import BudgetExceeded, InvalidParameter
from dplangevin.estimators import DPLogisticRegression
from dplangevin.ledger import DatasetBudget, Ledger

pytestmark = pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, (200, 2))
Y = X[:, 0] + 0.1 * RNG.standard_normal(200) > 0


def budget(tmp_path: Path, epsilon: float, delta: float) -> DatasetBudget:
    return Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}").declare("a", epsilon=epsilon, delta=delta)


def model(ledger: DatasetBudget | None, delta: float | None = None) -> DPLogisticRegression:
    return DPLogisticRegression(
        mechanism="auto"
        if delta is None
        else "noisy-gd",  # few parameters: "auto" would guarantee pure epsilon
        epsilon=1.0,
        delta=delta,
        data_norm=2**0.5,
        classes=[False, True],
        radius=1.0,
        ledger=ledger,
    )


def search(estimator: DPLogisticRegression, fits: int, **options: Any) -> GridSearchCV:
    grid = {"alpha": list(np.geomspace(0.01, 1, fits // 5))}
    return GridSearchCV(estimator, grid, cv=5, refit=False, **options)


def succeeded(found: GridSearchCV) -> int:
    scores = [found.cv_results_[f"split{fold}_test_score"] for fold in range(5)]
    return int(np.isfinite(scores).sum())


@pytest.mark.parametrize("jobs", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_five_of_ten_pure_fits_pass(tmp_path: Path, jobs: int | None) -> None:
    spender = budget(tmp_path, 5, 0)
    with pytest.warns(FitFailedWarning, match="BudgetExceeded"):
        found = search(model(spender), 10, n_jobs=jobs).fit(X, Y)
    assert succeeded(found) == 5
    entries = spender.history()
    assert len(entries) == 5
    assert all(entry.release_hash for entry in entries)
    assert 0 <= spender.remaining().pure_epsilon < 0.01


def test_a_search_that_must_not_fail_stops(tmp_path: Path) -> None:
    spender = budget(tmp_path, 5, 0)
    with pytest.raises(BudgetExceeded):
        search(model(spender), 10, error_score="raise").fit(X, Y)
    assert len(spender.history()) == 5


def test_without_a_ledger_every_fit_passes() -> None:
    assert succeeded(search(model(None), 10).fit(X, Y)) == 10


def test_as_many_fits_pass_as_exact_composition_admits(tmp_path: Path) -> None:
    # Every fit is GDP with the mu that its plan states; they are all planned for (1, 1e-6).
    mu = model(None, delta=1e-6).fit(X, Y).privacy_.mu
    assert mu is not None
    expected = math.floor((cv.gdp_mu(5, 1e-5) / mu) ** 2)
    assert 5 < expected < 60
    spender = budget(tmp_path, 5, 1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitFailedWarning)
        found = search(model(spender, delta=1e-6), 60).fit(X, Y)
    spent = [entry.guarantee.mu for entry in spender.history()]
    total = math.sqrt(sum(each**2 for each in spent if each is not None))
    assert succeeded(found) == len(spent) == expected
    assert float(cv.gdp_delta(total, 5)) <= 1e-5
    assert float(cv.gdp_delta(math.hypot(total, mu), 5)) > 1e-5


@pytest.mark.parametrize(("stated", "kept"), [(1, 2), (2, 1), (3, 2)])
def test_estimator_and_ledger_guarantee_to_the_same_person(tmp_path: Path, stated: int, kept: int) -> None:
    spender = Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}").declare(
        "a", epsilon=5, delta=0, max_rows_per_person=kept
    )
    assert spender.max_rows_per_person == kept
    with pytest.raises(
        InvalidParameter, match=f"max_rows_per_person = {stated} differs from the ledger's {kept}"
    ):
        model(spender).set_params(max_rows_per_person=stated).fit(X, Y)
    assert not spender.history()
    model(spender).set_params(max_rows_per_person=kept).fit(X, Y)
    assert 4 <= spender.remaining().pure_epsilon < 4.1
