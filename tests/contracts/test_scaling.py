"""Units mean nothing, and neither does a row that is nothing: laws over everything that spends.

Rows and their stated norm in another unit (and targets, and weights) give the same guarantee, and every release moves
as far in units of its noise as before: no sensitivity holds for a norm of 1 only. Units are powers of two, for which
floating-point numbers scale exactly, so that the same draws give the same path.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from contracts._wiring import (
    ChargeRecorder,
    Records,
    SpendingCase,
    Units,
    neighbours,
    quick_and_steady,
    spenders,
)
from contracts.test_wiring import replayed
from dplangevin.audit import ReplayResult

BASE = Units(intercept=False)
SPENDERS = {spender.name: spender for spender in spenders(BASE)}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_and_steady(monkeypatch)


@cache
def scaled(units: Units) -> dict[str, SpendingCase]:
    return {spender.name: spender for spender in spenders(units)}


@cache
def run_in(units: Units, name: str) -> tuple[ReplayResult, ChargeRecorder]:
    spender = scaled(units)[name]
    return replayed(spender, neighbours(spender)[0])


def concerned(kind: str) -> list[str]:
    """Who has rows, targets or weights whose unit is free."""
    if kind == "rows":
        return list(SPENDERS)
    if kind == "weights":
        return [name for name in SPENDERS if ", weights" in name]
    return [name for name, each in SPENDERS.items() if not each.classes and "poisson" not in name.lower()]


@pytest.mark.parametrize(
    ("kind", "unit", "name"),
    [
        pytest.param(kind, unit, name, marks=[] if unit == 8 else [pytest.mark.slow])
        for kind in ("rows", "targets", "weights")
        for unit in (8.0, 1 / 8)
        for name in concerned(kind)
    ],
)
def test_the_unit_means_nothing(kind: str, unit: float, name: str) -> None:
    units = Units(intercept=False, **{kind: unit})
    (first, charged), (second, other) = run_in(BASE, name), run_in(units, name)
    assert [each.parts for each in charged.charged] == [each.parts for each in other.charged]
    if (
        "learned" in name
    ):  # cells of lengths are counted: in another unit the same row has another cell, and noise
        return
    # secure noise is drawn anew, so that paths part at the first release
    costs, others = ([release.cost for release in each.releases] for each in (first, second))
    if "secure" in name:
        costs, others = costs[:1], others[:1]
    np.testing.assert_allclose(others, costs, rtol=1e-9, atol=1e-15)
    fitted, again = first.outputs[0], second.outputs[0]
    in_unit = kind != "weights" and getattr(fitted, "schema", None) is None and "secure" not in name
    if hasattr(fitted, "coef_") and in_unit:
        np.testing.assert_allclose(again.coef_ * units.rows, fitted.coef_ * units.targets, rtol=1e-9)


# what counts rows, or asks whether a model is right about them, counts a row without numbers (marginals of a file have
# a cell for missing values); which rows of a person are used is drawn, and one row more is another draw
COUNTS_ROWS = (
    "score", "counts by group", "rows a person, groups", "learned norm", "learned number of rows", "persons", " file",
)  # fmt: skip
NOTHING = [
    name
    for name, spender in SPENDERS.items()
    if spender.adjacency == "add-remove" and not any(words in name for words in COUNTS_ROWS)
]


def with_nothing(records: Records) -> Records:
    """One row more, without a number in it: bad_rows="zero" makes nothing of it."""
    X = np.vstack([records.X, np.full((1, records.X.shape[1]), np.nan)])
    y, weights = np.append(records.y, records.y[0]), np.append(records.weights, 1.0)
    return Records(X, y, weights, np.append(records.people, len(records.people)))


@pytest.mark.parametrize("name", NOTHING)
def test_a_row_that_is_nothing_changes_nothing(name: str) -> None:
    """Under add-remove with n stated: neither the charge nor a bit of what is released."""
    spender = SPENDERS[name]
    records = neighbours(spender)[0][0]
    result, _ = replayed(spender, (records, with_nothing(records)))
    assert not result.differences
    for release in result.releases:
        assert _equal(release.exact, release.neighbor_exact), release


def _equal(first: Any, second: Any) -> bool:
    """Up to the order in which numbers are added."""
    size = float(np.max(np.abs(first), initial=1.0))
    return bool(np.max(np.abs(np.asarray(first) - np.asarray(second)), initial=0.0) <= 1e-12 * size)
