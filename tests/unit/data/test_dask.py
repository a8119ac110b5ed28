"""Data on a Dask cluster: the same sums, the same releases, whatever happens to the workers."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin._progress import progress
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.data.kernels import second_moments
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.newton import hessian_sum
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.release import Release
from dplangevin.problem import Ball, DataBounds, Logistic, Problem, Softmax

distributed = pytest.importorskip("distributed", reason="dask is not installed")
da = pytest.importorskip("dask.array")

from dplangevin.data import dask as on_dask  # noqa: E402
from dplangevin.data.dask import DaskDataset, delayed_partitions  # noqa: E402

N, P, PARTS = 20_000, 5, 8
PROBLEM = Problem(
    loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=N, n_features=P, constraint=Ball(2.0)
)
THETA = np.random.default_rng(1).normal(size=(P + 1, 1))


def block(index: int, size: int = N // PARTS) -> np.ndarray:
    """Features and label of one partition, computed on the worker, so that they can be computed again."""
    rng = np.random.default_rng(index)
    return np.column_stack([rng.normal(size=(size, P)), rng.integers(0, 2, size)])


def everything() -> tuple[np.ndarray, np.ndarray]:
    rows = np.vstack([block(i) for i in range(PARTS)])
    return rows[:, :P], rows[:, P]


def on_workers() -> tuple[Any, Any]:
    import dask

    make = dask.delayed(block, pure=True)
    parts = [da.from_delayed(make(i), (N // PARTS, P + 1), float) for i in range(PARTS)]
    rows = da.concatenate(parts)
    return rows[:, :P], rows[:, P]


@contextmanager
def two_workers() -> Iterator[Any]:
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as found:
        found.run(lambda: sys.path.insert(0, str(Path(__file__).parents[2])))
        yield found


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with two_workers() as found:
        yield found


@pytest.fixture(scope="module")
def data(client: Any) -> DaskDataset:
    return DaskDataset(*on_workers(), PROBLEM, client=client)


def test_sums_are_those_of_arrays(data: DaskDataset) -> None:
    memory = ArrayDataset(*everything(), PROBLEM)
    assert data.n_samples == N
    assert data.n_partitions == PARTS
    for k in (1, 3):
        theta = np.random.default_rng(k).normal(size=(P + 1, k))
        for name in ("gradient_sum", "loss_sum"):
            found, expected = (getattr(d, name)(Logistic(), theta) for d in (data, memory))
            np.testing.assert_allclose(found, expected, rtol=1e-10)
        np.testing.assert_array_equal(
            data.gradient_sum(Logistic(), theta), data.gradient_sum(Logistic(), theta)
        )
    for batch in (np.array([0, 2499, 2500, 7000, 19_999]), np.array([], int), np.arange(N)[::-1]):
        found, expected = (d.gradient_sum(Logistic(), THETA, batch) for d in (data, memory))
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(
        np.vstack([b.rows for b in data.blocks()]), np.vstack([b.rows for b in memory.blocks()])
    )
    for found, expected in zip(second_moments(data), second_moments(memory), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    hessians = [hessian_sum(d, THETA[:, 0]) for d in (data, memory)]
    np.testing.assert_allclose(*hessians, rtol=1e-8)
    some = np.array([3, 2600, 19_000])
    np.testing.assert_array_equal(
        np.vstack([b.rows for b in data.blocks(some)]), np.vstack([b.rows for b in memory.blocks(some)])
    )
    data.check_row_count()


def test_a_tree_of_sums_keeps_the_order(data: DaskDataset, monkeypatch) -> None:
    expected = data.gradient_sum(Logistic(), THETA)
    monkeypatch.setattr(on_dask, "FAN_IN", 2)
    tree = data.gradient_sum(Logistic(), THETA)
    np.testing.assert_allclose(tree, expected, rtol=1e-12)
    np.testing.assert_array_equal(tree, data.gradient_sum(Logistic(), THETA))


def plan(problem: Problem = PROBLEM, **changes: Any) -> Plan:
    fields: dict[str, Any] = {"step_size": 0.5, "noise_std": 0.02, "n_steps": 12}
    spec = NoisyGradientSpec(**(fields | changes))
    return Plan(problem=problem, spec=spec, delta=1e-6, theorem="composition")


@pytest.mark.parametrize("sampling", ["full", "poisson", "without-replacement", "shuffle", "cyclic"])
def test_releases_are_those_of_arrays_for_the_same_noise(client: Any, sampling: Any) -> None:
    problem = replace(PROBLEM, adjacency="add-remove" if sampling == "poisson" else "replace-one")
    size, steps = None if sampling == "full" else 1000, 20 if sampling in ("shuffle", "cyclic") else 5
    chosen = plan(problem, sampling=sampling, batch_size=size, n_steps=steps)
    found = run_plan(chosen, DaskDataset(*on_workers(), problem, client=client), 3)
    expected = run_plan(chosen, ArrayDataset(*everything(), problem), 3)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-9)


def test_frames_weights_classes_and_addresses(client: Any) -> None:
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    X, y = everything()
    names = [f"x{j}" for j in range(P)]
    frame = pd.DataFrame(X, columns=names).assign(label=np.where(y == 1, "yes", "no"))
    problem = replace(PROBLEM, loss=Softmax(n_classes=2), bounds=replace(PROBLEM.bounds, weight_bound=2.0))
    weights = np.random.default_rng(5).random(N)
    table = dd.from_pandas(frame, npartitions=3)
    load = dd.from_pandas(pd.Series(weights), npartitions=3)
    address = client.scheduler.address
    found = DaskDataset(
        table,
        "label",
        problem,
        load,
        client=address,
        encode=lambda v: v.codes({"no": 0, "yes": 1}).astype(float),
    )
    expected = ArrayDataset(X, y, problem, weights)
    theta = np.random.default_rng(6).normal(size=(problem.dimension, 2))
    np.testing.assert_allclose(
        found.gradient_sum(problem.loss, theta), expected.gradient_sum(problem.loss, theta), rtol=1e-10
    )
    found._engine.client.close()


def _shuffled_bytes(array: np.ndarray) -> np.ndarray:
    """The same numbers at an odd address, as they may arrive over a network."""
    raw = np.empty(array.nbytes + 1, np.uint8)[1:]
    odd = raw.view(array.dtype).reshape(array.shape)
    odd[...] = array
    return odd


def test_arrays_that_arrive_at_odd_addresses_are_put_right() -> None:
    memory = ArrayDataset(*everything(), PROBLEM)
    state = {k: _shuffled_bytes(v) if isinstance(v, np.ndarray) else v for k, v in memory.__dict__.items()}
    assert not state["_rows"].flags.aligned
    arrived = ArrayDataset.__new__(ArrayDataset)
    arrived.__setstate__(state)
    assert arrived._rows.flags.aligned
    np.testing.assert_array_equal(
        arrived.gradient_sum(Logistic(), THETA), memory.gradient_sum(Logistic(), THETA)
    )
    again = pickle.loads(pickle.dumps(memory))
    np.testing.assert_array_equal(
        again.gradient_sum(Logistic(), THETA), memory.gradient_sum(Logistic(), THETA)
    )


def killed_run(client: Any, seed: int, folder: Path) -> tuple[Release, int]:
    """A run in which a worker is killed with signal 9 while a step is being computed."""
    source = DaskDataset(*on_workers(), PROBLEM, client=client)
    budget = Ledger.create(f"sqlite:///{folder}/{seed}.db").declare("d", epsilon=100.0, delta=1e-5)
    victims = list(client.run(os.getpid).values())

    def kill(step: int, total: int) -> None:
        if step == 3:
            delay = 0.002 * (seed % 10)
            threading.Timer(delay, os.kill, (victims[seed % len(victims)], signal.SIGKILL)).start()

    with progress(kill):
        release = run_plan(plan(n_steps=25), source, 11, ledger=budget)
    return release, len(budget.history())


def undisturbed(client: Any) -> Release:
    return run_plan(plan(n_steps=25), DaskDataset(*on_workers(), PROBLEM, client=client), 11)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 20])
def test_a_killed_worker_changes_nothing(client: Any, runs: int, tmp_path: Path) -> None:
    expected = undisturbed(client)
    for seed in range(
        runs
    ):  # each in a cluster of its own: after several kills a nanny may not start its worker again
        with two_workers() as workers:
            release, charged = killed_run(workers, seed, tmp_path)
        np.testing.assert_array_equal(release.value, expected.value)
        assert charged == 1


@pytest.mark.slow
def test_a_partition_lost_for_good_stops_the_run_and_says_what_was_spent(client: Any, tmp_path: Path) -> None:
    import dask

    X, y = everything()
    np.save(tmp_path / "X.npy", X)
    rows = da.from_delayed(dask.delayed(np.load)(tmp_path / "X.npy"), X.shape, float)
    source = DaskDataset(rows, da.from_array(y, chunks=N), PROBLEM, client=client)
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=100.0, delta=1e-5)

    def lose(step: int, total: int) -> None:
        if step == 2:
            (tmp_path / "X.npy").unlink()
            for process in client.run(os.getpid).values():
                os.kill(process, signal.SIGKILL)

    with progress(lose), pytest.raises(DplangevinError, match=r"lost .* stays charged, and nothing was rel"):
        run_plan(plan(), source, 0, ledger=budget)
    (entry,) = budget.history()
    assert entry.release_hash is None


def test_a_cluster_without_workers_is_given_up(monkeypatch, tmp_path: Path) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=100.0, delta=1e-5)
    monkeypatch.setattr(on_dask, "MAX_WAIT_SECONDS", 0.5)
    monkeypatch.setattr(on_dask, "POLL_SECONDS", 0.2)
    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with (
        distributed.LocalCluster(dashboard_address=None, **options) as cluster,
        distributed.Client(cluster) as lonely,
    ):
        data = DaskDataset(*on_workers(), PROBLEM, client=lonely)
        cluster.scale(0)
        while lonely.nthreads():
            time.sleep(0.05)
        with pytest.raises(DplangevinError, match="what was charged for it stays charged"):
            run_plan(plan(), data, 0, ledger=budget)
    (entry,) = budget.history()
    assert entry.release_hash is None


def test_rows_added_between_passes_stop_the_run(data: DaskDataset, monkeypatch) -> None:
    monkeypatch.setattr(data, "n_samples", data.n_samples + 1)
    for call in (
        lambda: data.gradient_sum(Logistic(), THETA),
        lambda: data.loss_sum(Logistic(), THETA),
        data.check_row_count,
        lambda: second_moments(data),
    ):
        with pytest.raises(InvalidParameter, match="changed while they were read"):
            call()


def test_bad_input(client: Any, monkeypatch) -> None:
    X, y = on_workers()
    cases: list[tuple[Any, Any, Problem, str]] = [
        (X, y, replace(PROBLEM, n=N - 1), "X has 20000 rows but the problem states n = 19999"),
        (X, y, replace(PROBLEM, n_features=P + 1), f"got {P} columns"),
        (da.where(X > 3, np.nan, X), y, PROBLEM, r"missing or infinite.*Nothing was released"),
        (np.ones((3, P)), y, PROBLEM, "must be a Dask array or DataFrame, got ndarray"),
        (X, "label", PROBLEM, "no column 'label'"),
    ]
    for features, labels, problem, words in cases:
        with pytest.raises(InvalidParameter, match=words):
            DaskDataset(features, labels, problem, client=client)
    with pytest.raises(
        InvalidParameter, match=r"client must be a distributed\.Client or an address, got int"
    ):
        DaskDataset(X, y, PROBLEM, client=3)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InvalidParameter, match=r"pip install 'dplangevin\[dask\]'.*Nothing was released"):
        DaskDataset(X, y, PROBLEM)


def test_a_data_set_on_a_cluster_is_not_pickled(data: DaskDataset) -> None:
    with pytest.raises(InvalidParameter, match="cannot be pickled"):
        pickle.dumps(data)


def test_what_dask_cannot_convert_is_refused_without_being_shown() -> None:
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": ["a", b"\xff-secret"], "y": [0, 1]})
    with pytest.raises(
        InvalidParameter, match=r"cannot create the partitions \(UnicodeDecodeError\)"
    ) as error:
        delayed_partitions(dd.from_pandas(frame, npartitions=1, sort=False), "y", None)
    assert "secret" not in str(error.value)
