"""Partitioned data on a toy cluster: the whole adapter, and releases that do not depend on where partitions are."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dplangevin.data import ArrayDataset, ArraySource, ScratchDataset, exact_sums
from dplangevin.data.dask import CountedSum, PartitionedDataset, add_counted, sum_partitions
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Problem


class ToyEngine:
    """Workers are dictionaries; whatever is sent to them or comes back is pickled.

    Whole sums are added worker by worker, in an order of its own; others in the order of the partitions.
    """

    failures = (KeyError,)

    def __init__(self, n_workers: int, seed: int = 0) -> None:
        self.workers: list[dict[int, bytes]] = [{} for _ in range(n_workers)]
        self.rng, self.n_tasks, self.largest_result = np.random.default_rng(seed), 0, 0

    def place(self, part: ArrayDataset) -> tuple[int, int]:
        worker, key = int(self.rng.integers(len(self.workers))), int(self.rng.integers(1 << 60))
        self.workers[worker][key] = pickle.dumps(part)
        return worker, key

    def load(self, handle: tuple[int, int]) -> ArrayDataset:
        part: ArrayDataset = pickle.loads(self.workers[handle[0]][handle[1]])
        return part

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.n_tasks += 1
        result = pickle.dumps(function(*pickle.loads(pickle.dumps(arguments))))
        self.largest_result = max(self.largest_result, len(result))
        return pickle.loads(result)

    def map_partitions(
        self, change: Callable[..., Any], parts: Sequence[Any], shared: tuple[Any, ...]
    ) -> list[Any]:
        return [self.place(self.run(change, self.load(part), *shared)) for part in parts]

    def reduce(
        self,
        task: Callable[..., CountedSum],
        parts: Sequence[Any],
        own: Sequence[Any],
        shared: tuple[Any, ...],
        *,
        whole: bool,
    ) -> CountedSum:
        if not whole:
            pairs = zip(parts, own, strict=True)
            return add_counted([self.run(task, self.load(part), one, *shared) for part, one in pairs])
        sums = []
        for worker in self.rng.permutation(len(self.workers)):
            mine = self.rng.permutation([i for i, (place, _) in enumerate(parts) if place == worker])
            if len(mine):
                loaded = [self.load(parts[i]) for i in mine]
                sums.append(self.run(sum_partitions, task, loaded, [own[i] for i in mine], shared))
        return add_counted(sums)

    def fetch(self, parts: Sequence[Any]) -> list[Any]:
        return [self.load(part) if isinstance(part, tuple) else part for part in parts]


N, P = 3_000, 6


def records(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) * np.geomspace(1, 0.1, P)
    return X, (X[:, 0] + rng.standard_normal(N) > 0).astype(float)


def partitioned(
    engine: ToyEngine,
    problem: Problem,
    cuts: Sequence[int],
    table: tuple[np.ndarray, np.ndarray] | None = None,
) -> PartitionedDataset:
    X, y = records() if table is None else table
    handles = []
    for rows, labels in zip(np.split(X, cuts), np.split(y, cuts), strict=True):
        part = replace(problem, n=max(len(rows), 1), adjacency="add-remove")
        handles.append(engine.place(ArrayDataset(rows, labels, part)))
    return PartitionedDataset(engine, handles, problem)


def default_plan() -> Any:
    return plan_fit(
        model="logistic", n=N, n_features=P, epsilon=2.0, delta=1e-6, adjacency="add-remove", data_norm=1.0,
        fit_intercept=True,
    ).plan  # fmt: skip


@pytest.mark.parametrize(
    ("n_workers", "cuts"), [(1, (1000,)), (3, (1, 700, 701, 2999)), (5, tuple(range(100, N, 100)))]
)
def test_a_default_fit_is_that_of_arrays_wherever_partitions_are(
    n_workers: int, cuts: tuple[int, ...]
) -> None:
    plan = default_plan()
    expected = run_plan(plan, ArrayDataset(*records(), plan.problem), 3)
    for seed in (0, 1):
        engine = ToyEngine(n_workers, seed)
        found = run_plan(plan, partitioned(engine, plan.problem, cuts), 3)
        np.testing.assert_array_equal(found.value, expected.value)


def test_a_ridge_regression_from_moments_is_the_same_wherever_its_records_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Partitions, a file and blocks of it remember other residuals, and give the same release."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((N, P))
    X /= np.linalg.norm(X, axis=1).max()
    y = X @ np.linspace(-1, 1, P) + 0.1 * rng.standard_normal(N)
    plan = plan_fit(
        model="ridge", n=N, n_features=P, epsilon=20.0, delta=1e-6, adjacency="add-remove", data_norm=1.0,
        target_bounds=(-1, 1), fit_intercept=True,
    ).plan  # fmt: skip
    n_looks, look = [0], exact_sums._clipped_records

    def count(*arguments: Any) -> np.ndarray:
        n_looks[0] += 1
        return look(*arguments)

    monkeypatch.setattr(exact_sums, "_clipped_records", count)
    expected = run_plan(plan, ArrayDataset(X, y, plan.problem), 3)
    assert n_looks[0] == expected.n_steps
    np.testing.assert_array_equal(
        run_plan(plan, ScratchDataset(ArraySource(X, y), plan.problem), 3).value, expected.value
    )
    assert n_looks[0] == 2 * expected.n_steps
    monkeypatch.undo()
    for cuts in ((1000,), (1, 700, 701, 2999)):
        found = run_plan(plan, partitioned(ToyEngine(3), plan.problem, cuts, (X, y)), 3)
        np.testing.assert_array_equal(found.value, expected.value)


def test_a_pass_is_one_task_per_worker_and_sends_sums_alone() -> None:
    plan, engine = default_plan(), ToyEngine(3)
    data = partitioned(engine, plan.problem, tuple(range(100, N, 100)))
    engine.n_tasks = engine.largest_result = 0
    release = run_plan(plan, data, 3)
    changes = 2 * data.n_partitions  # rows are rounded once, limits found once
    passes = release.n_steps + 3  # counts, second moment, and at most one more for the long rows
    assert engine.n_tasks <= changes + passes * len(engine.workers)
    for seed in range(3):
        engine.n_tasks, engine.rng = 0, np.random.default_rng(seed)
        moment = data.sum_over_blocks(count_rows, whole=True)
        assert engine.n_tasks <= 3
        assert int(moment[0]) == N


def count_rows(part: Any) -> np.ndarray:
    return np.array([sum(len(block.labels) for block in part.blocks())])


def test_floating_point_sums_keep_the_order_of_the_partitions() -> None:
    problem = default_plan().problem
    theta = np.random.default_rng(1).standard_normal((problem.n_columns, 2))
    sums = [
        partitioned(ToyEngine(3, seed), problem, (500, 600, 2000)).gradient_sum(problem.loss, theta)
        for seed in range(3)
    ]
    np.testing.assert_array_equal(sums[0], sums[1])
    np.testing.assert_array_equal(sums[0], sums[2])
    np.testing.assert_allclose(
        sums[0], ArrayDataset(*records(), problem).gradient_sum(problem.loss, theta), rtol=1e-10
    )


def test_a_lost_partition_stops_the_run() -> None:
    plan, engine = default_plan(), ToyEngine(2)
    data = partitioned(engine, plan.problem, (1500,))
    for worker in engine.workers:
        worker.clear()
    with pytest.raises(DplangevinError, match=r"a partition of the data was lost .* nothing was released"):
        run_plan(plan, data, 3)


def test_a_sum_that_misses_a_partition_is_refused() -> None:
    plan, engine = default_plan(), ToyEngine(2)
    data = partitioned(engine, plan.problem, (1500,))
    data._parts = data._parts[:1]  # what an adapter with a fault might do
    with pytest.raises(InvalidParameter, match="the number of records changed"):
        run_plan(plan, data, 3)
