"""Counts. The score is the likelihood ratio of the worst pair of neighbours, so the exact value is the claim."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np

from dplangevin.mechanisms.noisy_answers.mechanism import GeneralizedGaussianMechanism, SparseVectorCorrection
from dplangevin.queries import count_queries, summarize_table
from dplangevin.queries.summaries import SummarizedColumn
from dplangevin.tables import as_table
from privacy._case import Case, Draw

DELTA = 0.05


def ratios(mechanism: Any, change: np.ndarray, shrink: float = 1.0, widest: float = np.inf) -> Draw:
    """Log-likelihood ratios of releases on counts 0 and on `execute`, with the noise divided by `shrink_windows`."""

    def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        k, p = mechanism.k, mechanism.p
        seed = None if getattr(mechanism, "secure", False) else rng
        noise = np.array([mechanism.release(np.zeros(k), seed) for _ in range(runs)]) / shrink
        x = np.clip((side * change + noise) / (mechanism.sigma / shrink), -widest, widest)
        return np.sum(np.abs(x) ** p - np.abs(x - change / (mechanism.sigma / shrink)) ** p, axis=1)

    return draw


def counts(words: str, **options: Any) -> Case:
    mechanism = GeneralizedGaussianMechanism(epsilon=2.0, delta=DELTA, **options)
    change = np.zeros(mechanism.k)
    change[: mechanism.changed_counts] = mechanism.sensitivity
    return Case(
        name="generalised Gaussian counts",
        configuration=words,
        covers=("GeneralizedGaussianMechanism", "GeneralizedGaussianNoise"),
        claim=mechanism.guarantee,
        honest=ratios(mechanism, change),
        broken_variants={"noise / 2": ratios(mechanism, change, 2.0)},
        exact_ratio=1.0,
        runs=1600,
    )


def touched() -> Case:
    """A record that touches 3 counts is replaced: 6 change. Noise for 3 does not keep the guarantee."""
    options: dict[str, Any] = {"k": 50, "epsilon": 2.0, "delta": DELTA, "p": 1.0, "touched_counts": 3}
    right = GeneralizedGaussianMechanism(**options)
    wrong = GeneralizedGaussianMechanism(**options, adjacency="add-remove")
    change = np.zeros(50)
    change[:3], change[3:6] = 1, -1
    return Case(
        name="generalised Gaussian counts",
        configuration="50 counts, p = 1, 3 touched, replaced",
        covers=("GeneralizedGaussianMechanism", "GeneralizedGaussianNoise"),
        claim=right.guarantee,
        honest=ratios(right, change),
        broken_variants={"sensitivity without 2": ratios(wrong, change)},
        exact_ratio=1.0,
        runs=1600,
    )


def queries() -> Case:
    """The front end on a table: one row satisfies every query, or none does."""
    import pandas as pd

    tables = [pd.DataFrame({"x": [value, 0]}) for value in (0, 1)]
    asked = {str(i): np.zeros(2) for i in range(4)}

    def released(side: int, runs: int, rng: np.random.Generator, epsilon: float) -> np.ndarray:
        rows = {name: np.array([float(side), 0.0]) for name in asked}
        return np.array(
            [
                np.sum(
                    count_queries(
                        tables[side], rows, epsilon=epsilon, delta=DELTA, p=2.0, random_state=rng
                    ).values
                )
                for _ in range(runs)
            ]
        )

    claim = count_queries(
        tables[0], asked, epsilon=1.0, delta=DELTA, p=2.0, random_state=0
    ).mechanism.guarantee
    return Case(
        name="count_queries",
        configuration="4 queries of a data frame, p = 2",
        covers=("count_queries",),
        claim=claim,
        honest=lambda side, runs, rng: released(side, runs, rng, 1.0),
        broken_variants={"epsilon x 3": lambda side, runs, rng: released(side, runs, rng, 3.0)},
        exact_ratio=1.0,
        runs=700,
    )


def summaries() -> Case:
    """Mean, sum and median of a column: one row moves from one end of the range to the other."""
    import pandas as pd

    stated = {"columns": {"x": {"range": [0, 10], "missing": "middle"}}}
    tables = [pd.DataFrame({"x": [value, 4.0]}) for value in (0.0, 10.0)]

    asked: dict[str, Any] = {"epsilon": 1.0, "delta": DELTA, "quantiles": (0.5,), "random_state": 0}
    summary = summarize_table(tables[0], stated, **asked)
    request, mechanism = summary.request, summary.mechanism
    honest_sums = [request.sum_rows(as_table(table).blocks(), None) for table in tables]

    def released(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Release the sums of the table as the front end does, planned once."""

        def sums() -> np.ndarray:
            return request.sum_rows(as_table(tables[side]).blocks(), mechanism.grid)

        answers = np.array([mechanism.run(sums, rng, None, None).values[0] for _ in range(runs)])
        return np.asarray(answers @ (honest_sums[1] - honest_sums[0]))

    def unclipped(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Values are multiplied by 10 and neither mapped nor clipped: one row moves the sum by 100 instead of 1."""

        def map_values(self: Any, table: Any) -> Any:
            values = np.asarray(self.feature.cells(table).numbers(), float)
            return values * 10, np.minimum(values * 12.7, 127).astype(np.int64), np.ones(len(values), bool)

        with mock.patch.object(SummarizedColumn, "map_values", map_values):
            return released(side, runs, rng)

    return Case(
        name="summarize_table",
        configuration="mean, sum and median of a column",
        covers=("summarize_table",),
        claim=summary.guarantee,
        honest=released,
        broken_variants={"no clip": unclipped},
        exact_ratio=1.0,
        runs=700,
        slow=True,
    )


def sparse() -> Case:
    mechanism = SparseVectorCorrection(
        k=20, epsilon=2.0, delta=DELTA, p=2.0, corrections=1, budget_fraction=0.02
    )
    change = np.ones(20)
    return Case(
        name="sparse vector correction",
        configuration="20 counts, p = 2, share 0.02",
        covers=("SparseVectorCorrection", "SparseVector"),
        claim=mechanism.guarantee,
        honest=ratios(mechanism, change, widest=2.0),
        broken_variants={"noise / 2": ratios(mechanism, change, 2.0, widest=2.0)},
        loose="98% of the budget is the counts', which this attack attains; the correction's share it cannot see",
        runs=1600,
    )


def largest_norm(words: str, change: Any, shrink: float = 2.0, loose: str = "", **options: Any) -> Case:
    """The exponential mechanism of the largest error; the score is the likelihood ratio of a worst move."""
    mechanism = GeneralizedGaussianMechanism(epsilon=2.0, delta=DELTA, p=np.inf, **options)
    move = np.zeros(mechanism.k)
    move[: len(change)] = change

    def norm(x: np.ndarray) -> np.ndarray:
        return np.maximum(np.abs(x).max(axis=1), np.abs(x).sum(axis=1) / mechanism.changed_counts)

    def scored(shrink: float) -> Draw:
        def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
            seed = None if mechanism.secure else rng
            noise = np.array([mechanism.release(np.zeros(mechanism.k), seed) for _ in range(runs)]) / shrink
            x = side * move + noise
            return norm(x) - norm(x - move)

        return draw

    return Case(
        name="largest-norm counts",
        configuration=words,
        covers=("GeneralizedGaussianMechanism", "MaxNormNoise"),
        claim=mechanism.guarantee,
        honest=scored(1.0),
        broken_variants={f"noise / {shrink:g}": scored(shrink)},
        exact_ratio=None if loose else 1.0,
        loose=loose,
        runs=1600,
    )


ON_GRID = "on the grid the guarantee is pure epsilon; the Laplace curve of the noise does not attain it at this delta"
CASES = (
    largest_norm("20 counts, p = inf", [1.0] * 20, k=20),
    largest_norm(
        "20 counts, p = inf, 3 touched, replaced",
        [1.0] * 3 + [-1.0] * 3,
        shrink=4.0,
        loose="the Laplace curve is attained when every count changes; 6 of 20 are harder to see",
        k=20,
        touched_counts=3,
    ),
    largest_norm("20 counts, p = inf, secure", [1.0] * 20, loose=ON_GRID, k=20, secure=True),
    counts("20 counts, best p", k=20, p=None),
    counts("20 counts, p = 4", k=20, p=4.0),
    counts("8 counts, p = 1", k=8, p=1.0),
    counts("50 counts, p = 3, 3 touched", k=50, p=3.0, touched_counts=3),
    counts("20 counts, p = 2.5, sensitivity 5", k=20, p=2.5, sensitivity=5.0),
    counts("20 counts, p = 3.65, secure", k=20, p=3.65, secure=True),
    counts("8 counts, p = 1, secure", k=8, p=1.0, secure=True),
    touched(),
    queries(),
    summaries(),
    sparse(),
)
