"""Learned schemas: the claim against the exact curve, the rule that reads ranges, and counts read row by row."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

from dplangevin.accounting import conversions as cv
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.learned_schema.mechanism import (
    N_COARSE_CELLS,
    N_FINE_CELLS,
    N_OCTAVES,
    CellCounts,
    LearnedSchemaMechanism,
    add_counts,
    coarse_range,
    count_cells,
    find_populated_cells,
    octave_edges,
    refine_range,
)
from dplangevin.mechanisms.learned_schema.spec import (
    LearnedSchemaSpec,
    LearnedSchemaTheorem,
    calibrate_learned_schema,
    count_noise_std,
)
from dplangevin.tables import as_table

EPSILONS = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)


def labels_only(k: int, adjacency: str, scale: float, threshold: float, rows: int = 1) -> LearnedSchemaSpec:
    return LearnedSchemaSpec(
        n_numbers=0, n_cells=0, n_categories=k, noise="gaussian", scale=scale, threshold=threshold,
        adjacency=adjacency, rows_per_person=rows,  # type: ignore[arg-type]
    )  # fmt: skip


def exact_delta(epsilon: float, move: float, leaving: float, entering: float) -> float:
    """The hockey-stick divergence of docs/theory/learned_schema.md, section 4."""
    shift = math.log1p(-entering) - math.log1p(-leaving)
    shifted = epsilon + shift
    if move == 0:
        inner = max(0.0, 1 - math.exp(shifted))
    else:  # the curve holds for negative epsilons too
        inner = float(ndtr(move / 2 - shifted / move) - math.exp(shifted) * ndtr(-move / 2 - shifted / move))
    return leaving + (1 - leaving) * inner


def worst_exact(epsilon: float, k: int, adjacency: str, scale: float, threshold: float) -> float:
    f = float(ndtr((1 - threshold) / scale))
    worst = 0.0
    for c1, c2, c3, c4 in itertools.product(range(k + 1), repeat=4):
        if c1 + c2 + c3 + c4 != k:
            continue
        if adjacency == "add-remove" and (c3 or c4):
            continue  # c1: label in both tables, c2: label that only the larger table holds
        squares = (c1 if adjacency == "add-remove" else 2 * c1 + c2 + c3) / scale**2
        leaving, entering = -math.expm1((c3 + c4) * math.log1p(-f)), -math.expm1((c2 + c4) * math.log1p(-f))
        for sides in ((leaving, entering), (entering, leaving)):
            worst = max(worst, exact_delta(epsilon, math.sqrt(squares), *sides))
    return worst


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    ("k", "scale", "threshold"), [(1, 1.0, 3.0), (3, 2.0, 8.0), (4, 3.0, 7.0), (2, 0.7, 4.5)]
)
def test_the_claim_covers_every_pair_of_neighbours(
    k: int, scale: float, threshold: float, adjacency: str
) -> None:
    claim = LearnedSchemaTheorem().certify(None, labels_only(k, adjacency, scale, threshold))
    ratios = []
    for epsilon in EPSILONS:
        exact = worst_exact(epsilon, k, adjacency, scale, threshold)
        claimed = claim.delta(epsilon)
        assert exact <= claimed * (1 + 1e-12)
        ratios.append(exact / claimed)
    assert max(ratios) > 0.8


def test_a_claim_without_its_columns_or_its_tail_is_refuted() -> None:
    k, scale, threshold = 4, 3.0, 7.0
    exact = [worst_exact(epsilon, k, "replace-one", scale, threshold) for epsilon in EPSILONS]
    one = LearnedSchemaTheorem().certify(None, labels_only(1, "replace-one", scale, threshold))
    assert any(found > one.delta(epsilon) for found, epsilon in zip(exact, EPSILONS, strict=True))
    claim = LearnedSchemaTheorem().certify(None, labels_only(k, "replace-one", scale, threshold))
    bare = [float(cv.gdp_delta(claim.parts[0].mu, epsilon)) for epsilon in EPSILONS]  # type: ignore[attr-defined]
    assert any(found > without for found, without in zip(exact, bare, strict=True))


def test_one_label_near_the_threshold_integrated() -> None:
    """The release of a single label whose count is 5 or 6: absent, or its noisy count."""
    scale, threshold, grid = 1.5, 6.0, np.linspace(6.0, 30.0, 200_001)
    claim = LearnedSchemaTheorem().certify(None, labels_only(1, "add-remove", scale, threshold))

    def density(count: int) -> np.ndarray:
        return np.exp(-((grid - count) ** 2) / (2 * scale**2)) / (scale * math.sqrt(2 * math.pi))

    for first, second in ((5, 6), (6, 5)):
        absent = [float(ndtr((threshold - count) / scale)) for count in (first, second)]
        for epsilon in EPSILONS:
            gained = np.maximum(density(first) - math.exp(epsilon) * density(second), 0.0)
            exact = float(np.trapezoid(gained, grid)) + max(absent[0] - math.exp(epsilon) * absent[1], 0.0)
            assert exact <= claim.delta(epsilon) + 1e-9


def _partitions(m: int) -> list[tuple[int, ...]]:
    found = [()] if m == 0 else []
    return found + [(a, *rest) for a in range(1, m + 1) for rest in _partitions(m - a)]


@pytest.mark.parametrize("threshold", [9.0, 14.0, 30.0])
def test_the_tail_covers_every_way_a_person_spreads_rows_over_new_labels(threshold: float) -> None:
    k, m, scale = 2, 5, 3.0
    tail = labels_only(k, "replace-one", scale, threshold, rows=m).threshold_delta
    for used in range(1, m + 1):
        for parts in _partitions(used):
            hidden = math.prod(1 - float(ndtr((a - threshold) / scale)) for a in parts)
            assert 1 - hidden**k <= tail + 1e-15


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_calibration_meets_its_budget(adjacency: str, rows: int) -> None:
    made = calibrate_learned_schema(
        n_numbers=3,
        n_cells=N_COARSE_CELLS,
        n_categories=5,
        adjacency=adjacency,
        rows_per_person=rows,
        mu=0.1,
        threshold_delta=1e-7,  # type: ignore[arg-type]
    )
    found = LearnedSchemaTheorem().certify(None, made)
    assert 0.0999 < found.parts[0].mu <= 0.1
    assert found.extra_delta <= 1e-7 * (1 + 1e-8)
    assert found.rows_per_person == rows
    assert found.adjacency == adjacency
    pure = calibrate_learned_schema(
        n_numbers=3,
        n_cells=N_COARSE_CELLS,
        n_categories=0,
        adjacency=adjacency,
        rows_per_person=rows,
        epsilon=0.2,  # type: ignore[arg-type]
    )
    assert 0.1999 < LearnedSchemaTheorem().certify(None, pure).epsilon(0.0) <= 0.2


def test_refusals() -> None:
    good = {
        "n_numbers": 1,
        "n_cells": 3,
        "n_categories": 0,
        "noise": "gaussian",
        "scale": 1.0,
        "adjacency": "add-remove",
    }
    for change, words in (
        ({"n_categories": 1, "noise": "geometric", "threshold": 2.0}, "pure guarantee"),
        ({"n_categories": 1}, "threshold"),
        ({"threshold": 2.0}, "threshold"),
        ({"n_numbers": 0}, "column"),
        ({"n_cells": 1}, "two cells"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            LearnedSchemaSpec(**{**good, **change})
    with pytest.raises(AssumptionFailed, match="with certainty"):
        LearnedSchemaTheorem().certify(None, labels_only(1, "add-remove", 1e-3, 0.5))
    with pytest.raises(CalibrationFailed, match="leaves nothing"):
        calibrate_learned_schema(
            n_numbers=0, n_cells=0, n_categories=1, adjacency="add-remove", mu=1e-9, threshold_delta=0.5
        )


def test_every_cell_has_a_place_and_is_read_alone() -> None:
    cells = [0, -1, 1, 1e-9, 3, float("inf"), -1e300, None, "x", "4", float("nan")]
    edges, table = {"a": octave_edges(1.0)}, as_table(pd.DataFrame({"a": cells}))
    counts = count_cells(table, edges, {"a": False}, outer=True)
    assert counts.cells.shape == (1, N_COARSE_CELLS)
    assert counts.cells.sum() == 8
    assert counts.cells[0, 0] == 1
    assert counts.cells[0, -1] == 1
    assert counts.cells[0, N_OCTAVES] == 2
    assert counts.labels[0]["4"] == 1
    assert sum(counts.labels[0].values()) == 9
    alone = add_counts(
        [
            count_cells(as_table(pd.DataFrame({"a": [c]}, dtype=object)), edges, {"a": False}, outer=True)
            for c in cells
        ]
    )
    assert np.array_equal(alone.cells, counts.cells)
    assert alone.labels == list(counts.labels)


def _range(
    values: np.ndarray, noise: float = 0.0, seed: int = 0, log: bool | None = None
) -> tuple[float, float, bool]:
    rng, n = np.random.default_rng(seed), len(values)
    table = as_table(pd.DataFrame({"a": values}))
    first = count_cells(table, {"a": octave_edges(1.0)}, {}, outer=True).cells[0]
    span = coarse_range(first + noise * rng.standard_normal(N_COARSE_CELLS), 1.0, noise, n, log)
    second = count_cells(table, {"a": span.edges}, {}, outer=False).cells[0]
    span = refine_range(second + noise * rng.standard_normal(N_FINE_CELLS), span, noise, n)
    return span.low, span.high, span.log_scale


@pytest.mark.parametrize("noise", [0.0, 20.0])
def test_ranges_are_near_the_bulk_and_ignore_outliers(noise: float) -> None:
    rng = np.random.default_rng(1)
    years = np.append(rng.integers(1990, 2021, 5000), 10**12)
    low, high, log = _range(years, noise)
    assert 1950 <= low <= 1990
    assert 2018 <= high <= 2048
    assert not log
    low, high, log = _range(rng.standard_normal(5000) * 10, noise)
    assert -64 <= low <= -15
    assert 15 <= high <= 64
    assert not log
    skewed = np.where(rng.random(5000) < 0.9, 0.0, rng.lognormal(8, 1, 5000))
    low, high, log = _range(skewed, noise)
    assert log
    assert low == 0.0
    assert 2_000 <= high <= 131_072


def test_a_tail_that_the_octaves_show_is_not_cut_off_a_log_scale() -> None:
    """8% of the rows, over ten octaves: too few in every fine cell. Their octaves show them, for 20 of 20 seeds."""
    rng = np.random.default_rng(2)
    skewed = np.where(rng.random(15_000) < 0.92, 0.0, rng.lognormal(8.3, 1.2, 15_000))
    for seed in range(20):
        low, high, log = _range(skewed, 65.8, seed)
        assert log
        assert low == 0.0
        assert high >= 1000


@pytest.mark.parametrize("values", [np.full(2000, np.nan), np.zeros(2000), np.full(2000, 7.25), np.full(2000, 1e308),
                                    np.full(2000, -np.inf), np.full(2000, 1e-200)])  # fmt: skip
@pytest.mark.parametrize("log", [None, True, False])
def test_missing_constant_and_huge_columns_get_a_range(values: np.ndarray, log: bool | None) -> None:
    low, high, scale = _range(values, 5.0, log=log)
    assert math.isfinite(low)
    assert math.isfinite(high)
    assert low < high
    assert not (scale and low <= -1)


def test_pure_noise_gives_the_default_range() -> None:
    """False-alarm rate: 129 cells of 4.5 deviations and their partial sums, below 0.002 for each of 40 seeds."""
    found = [_range(np.full(10, np.nan), 50.0, seed=seed)[:2] for seed in range(40)]
    assert found.count((-1.0, 1.0)) >= 39


def test_pure_noise_of_a_pure_guarantee_too() -> None:
    """Geometric noise has longer tails: 200 empty columns, of which each shows somebody with chance below 0.002."""
    spec = calibrate_learned_schema(
        n_numbers=200, n_cells=N_COARSE_CELLS, n_categories=0, adjacency="replace-one", epsilon=1.0
    )
    plan = CertifiedSpec(spec=spec, delta=0.0)
    noisy = (
        LearnedSchemaMechanism().run(plan, lambda: CellCounts(np.zeros((200, N_COARSE_CELLS)), []), 0).cells
    )
    found = [find_populated_cells(cells, count_noise_std(spec), 1000) for cells in noisy]
    assert found.count(None) >= 197


def test_labels_below_the_threshold_never_leave() -> None:
    spec = labels_only(1, "add-remove", 1.0, 20.0)
    plan = CertifiedSpec(spec=spec, delta=1e-5)
    exact = CellCounts(np.zeros((0, 0)), [{"rare": 5, "common": 50}])
    found = LearnedSchemaMechanism().run(plan, lambda: exact, 0)
    assert list(found.labels[0]) == ["common"]
    assert found.seeded
    assert found.guarantee == plan.guarantee
    with pytest.raises(InvalidParameter, match="shape that the guarantee is for"):
        LearnedSchemaMechanism().run(plan, lambda: CellCounts(np.zeros((1, 3)), []), 0)
    with pytest.raises(InvalidParameter, match="function"):
        LearnedSchemaMechanism().run(plan, exact, 0)  # type: ignore[arg-type]


def test_a_label_that_is_listed_twice_is_counted_in_all() -> None:
    """Else one record that uses the second listing would change the count by that of all others."""
    pa = pytest.importorskip("pyarrow")
    cells = pa.chunked_array([pa.array(["1", "1"]), pa.array(["1.0"])])  # each chunk has a list of its own
    found = count_cells(as_table(pa.table({"job": cells})), {}, {"job": False}, outer=True)
    assert found.labels == [{"1": 3}]
