"""Secure whitened descent: the same integers wherever records are, the accuracy of the floating-point form, plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dplangevin import DPLogisticRegression, DPRidge, plan_fit
from dplangevin._rng import noise_observer
from dplangevin.accounting.plan import Plan, plan_from_plain, plan_to_plain
from dplangevin.data import ArrayDataset, ArraySource, ScratchDataset
from dplangevin.data.dataset import Block, Dataset, StoredDataset
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exact_gradient import limit_records
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.run_state import RunState
from dplangevin.mechanisms.whitened.mechanism import row_grid, whitening_geometry
from dplangevin.mechanisms.whitened.spec import WhitenedComposition, WhitenedSpec
from dplangevin.problem import Ball, Clipped, DataBounds, Logistic, Problem, Softmax, Squared
from dplangevin.sampling import exact_noise

N, P = 6000, 4
LOSSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "logistic": (Logistic(), {"classes": 2}),
    "squared": (Clipped(Squared(), 0.7), {"target": (-1.0, 1.0)}),
    "softmax": (Softmax(n_classes=3), {"classes": 3}),
}


def make_plan(
    loss: str = "logistic", weight_bound: float = 1.0, *, secure: bool = True, **changes: Any
) -> Plan:
    of, labels = LOSSES[loss]
    bounds = DataBounds(data_norm=1.0, weight_bound=weight_bound, **labels)
    problem = Problem(loss=of, bounds=bounds, n=N, n_features=P, adjacency="replace-one")
    stated: dict[str, Any] = {
        "moment_noise_std": 1e-4, "noise_std": 1e-4, "n_steps": 8, "step_size": 1.0 / weight_bound, "coef_bound": 100.0,
        "n_moment_releases": 2, "average_from": 4,
    }  # fmt: skip
    return Plan(problem=problem, spec=WhitenedSpec(**(stated | {"secure": secure} | changes)), delta=1e-6)


def make_records(loss: str = "logistic", seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correlated rows, a few of them long in whitened coordinates; single precision holds them."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((N, P)) * np.geomspace(1, 0.02, P)
    rows[:50] = np.eye(P)[rng.integers(0, P, 50)]
    rows = (rows / np.maximum(np.linalg.norm(rows, axis=1), 1.0)[:, None] * 0.999).astype(np.float32)
    scores = rows @ np.array([1.0, -2.0, 5.0, 9.0])
    if loss == "squared":
        return rows, np.clip(scores / 4, -1, 1), rng.uniform(0.1, 1.0, N)
    chance = 1 / (1 + np.exp(-scores))
    return (
        rows,
        (rng.random(N) < chance).astype(float) + (loss == "softmax") * (rows[:, 0] > 0.5),
        rng.uniform(0.1, 1, N),
    )


class NoNoise:
    """An observer that records the exact sums and takes the noise away."""

    def __init__(self) -> None:
        self.exact: list[np.ndarray] = []

    def observe_sum(self, exact: Any, released: Any, law: str, scale: Any) -> Any:
        self.exact.append(np.array(exact))
        return exact


@contextmanager
def no_noise() -> Iterator[NoNoise]:
    observer = NoNoise()
    token = noise_observer.set(observer)  # type: ignore[arg-type]
    try:
        yield observer
    finally:
        noise_observer.reset(token)


def exact_run(plan: Plan, data: Dataset) -> tuple[list[np.ndarray], np.ndarray]:
    """All exact sums of a run without noise, and its result."""
    with no_noise() as observer:
        return observer.exact, run_plan(plan, data).value


def assert_same_run(first: Any, second: Any) -> None:
    assert len(first[0]) == len(second[0])
    assert all(np.array_equal(a, b) for a, b in zip(first[0], second[0], strict=True))
    assert np.array_equal(first[1], second[1])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_same_integers_in_any_order_and_place(
    loss: str, weighted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permuted rows, precision, files, threads, block sizes and compiled code; clusters follow."""
    plan, (X, y, w) = make_plan(loss, 2.0 if weighted else 1.0), make_records(loss)
    loads = 2 * w if weighted else None
    expected = exact_run(plan, ArrayDataset(X, y, plan.problem, loads))
    assert len(expected[0]) == 10
    order = np.random.default_rng(1).permutation(N)
    permuted = [None if values is None else values[order] for values in (X, y, loads)]
    others = {
        "permuted": ArrayDataset(permuted[0], permuted[1], plan.problem, permuted[2]),
        "double precision": ArrayDataset(X.astype(float), y, plan.problem, loads),
        "files": ScratchDataset(ArraySource(X, y, loads), plan.problem, folder=str(tmp_path)),
    }
    for data in others.values():
        assert_same_run(expected, exact_run(plan, data))
    for threads in (1, 2, 3):
        with threadpool_limits(limits=threads):
            assert_same_run(expected, exact_run(plan, ArrayDataset(X, y, plan.problem, loads)))
    for size in (1, 7, 1000, 4095):

        def cut(self: Any, rows: Any = None, size: int = size) -> Iterator[Block]:
            """Blocks of this size; single records are slow, so that only the first hundred are."""
            count = self.n_samples if rows is None else len(rows)
            for first in range(0, min(count, 100 * size), size):
                yield from self._slice_blocks(np.arange(first, min(first + size, count)), size)
            if 100 * size < count:
                yield from self._slice_blocks(np.arange(100 * size, count), count)

        with monkeypatch.context() as patch:
            patch.setattr(StoredDataset, "pieces", cut)
            assert_same_run(expected, exact_run(plan, ArrayDataset(X, y, plan.problem, loads)))
    if find_spec("numba") is not None:
        monkeypatch.setenv("DPLANGEVIN_KERNEL", "numba")
        assert_same_run(expected, exact_run(plan, ArrayDataset(X, y, plan.problem, loads)))


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_the_same_integers_on_a_cluster(loss: str) -> None:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    da = pytest.importorskip("dask.array")
    from dplangevin.data.dask import DaskDataset

    plan, (X, y, w) = make_plan(loss, 2.0), make_records(loss)
    expected = exact_run(plan, ArrayDataset(X, y, plan.problem, 2 * w))
    with distributed.Client(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as client:
        parts = [da.from_array(values, chunks=(700, *values.shape[1:])) for values in (X, y, 2 * w)]
        assert_same_run(
            expected, exact_run(plan, DaskDataset(*parts[:2], plan.problem, parts[2], client=client))
        )


def test_the_data_set_of_the_caller_is_not_changed() -> None:
    plan, (X, y, _) = make_plan(), make_records()
    data = ArrayDataset(X, y, plan.problem)
    before = data._rows.copy()
    run_plan(plan, data)
    assert np.array_equal(data._rows, before)
    assert data._weights is None


def test_rows_that_are_not_rounded_give_other_integers_in_another_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control of the test above: without the grid, sums are rounded, and their order shows."""
    plan, (X, y, _) = make_plan(), make_records()
    monkeypatch.setattr(StoredDataset, "with_rounded_rows", lambda self, grid, **how: self)
    order = np.random.default_rng(1).permutation(N)
    first, second = (
        exact_run(plan, ArrayDataset(X[at], y[at], plan.problem)) for at in (np.arange(N), order)
    )
    assert not all(np.array_equal(a, b) for a, b in zip(first[0], second[0], strict=True))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("weight_bound", "weighted"), [(1.0, False), (3.0, False), (3.0, True), (0.5, True)])
def test_the_result_is_that_of_floating_point(loss: str, weight_bound: float, weighted: bool) -> None:
    """With little noise, for weights of every kind: a weight of 1 is 1 / weight_bound of the largest."""
    X, y, w = make_records(loss)
    values = []
    for secure in (False, True):
        plan = make_plan(loss, weight_bound, secure=secure, moment_noise_std=1e-6, noise_std=1e-7)
        data = ArrayDataset(X, y, plan.problem, weight_bound * w if weighted else None)
        values.append(run_plan(plan, data, None if secure else 0).value)
    assert np.linalg.norm(values[1] - values[0]) < 2e-3 * np.linalg.norm(values[0])


def test_limits_are_weights_in_whole_numbers() -> None:
    plan, (X, y, w) = make_plan(weight_bound=3.0), make_records()
    grid = row_grid(plan.spec, plan.problem)  # type: ignore[arg-type]
    moments = np.stack([np.eye(P + 1) / (P + 1)] * 2)
    transform = whitening_geometry(plan.spec, moments, grid).integer_transform  # type: ignore[arg-type]
    assert transform is not None
    for loads in (None, 3 * w):
        data = ArrayDataset(X, y, plan.problem, loads).with_rounded_rows(grid)
        limited = data.with_weights(limit_records, grid, transform)
        limits = np.concatenate([block.weights for block in limited.blocks()])
        assert np.array_equal(limits, np.rint(limits))
        share = 1 / 3 if loads is None else w
        assert (limits <= grid.max_limit * share).all()
        rows = np.concatenate([block.rows for block in data.blocks()]) / grid.unit
        lengths = np.linalg.norm(rows @ transform.real, axis=1)
        expected = grid.max_limit * share * np.minimum(1, transform.bound / lengths)
        assert (limits >= expected * np.minimum(1, transform.bound / lengths) * (1 - 1e-3) - 2).all()


def accuracy_tables() -> dict[str, tuple[type, np.ndarray, np.ndarray, dict[str, Any]]]:
    rng = np.random.default_rng(8)
    mixing = np.linalg.qr(rng.standard_normal((8, 8)))[0] * np.geomspace(1, 0.05, 8)
    X = rng.standard_normal((6000, 8)) @ mixing.T
    X /= np.linalg.norm(X, axis=1).max()
    scores = X @ rng.standard_normal(8) * 20
    y = (rng.random(6000) < 1 / (1 + np.exp(-scores))).astype(int)
    heavy = np.exp(1.2 * rng.standard_normal((5000, 5)))
    heavy /= np.maximum(np.linalg.norm(heavy, axis=1) / 8, 1.0)[:, None] * 8
    target = np.clip(heavy @ np.array([1.0, -1.0, 0.5, 0.0, 2.0]) + 0.1 * rng.standard_normal(5000), -1, 1)
    return {
        "correlated": (DPLogisticRegression, X, y, {"classes": [0, 1]}),
        "heavy tails": (DPRidge, heavy, target, {"target_bounds": (-1.0, 1.0)}),
    }


@pytest.mark.parametrize("name", ["correlated", "heavy tails"])
def test_a_secure_fit_is_as_accurate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean loss of 40 fits each, within three standard errors; the noise is the same by the plan."""
    kind, X, y, options = accuracy_tables()[name]
    rng, draw = np.random.default_rng(3), exact_noise._round_noisy_sums
    monkeypatch.setattr(exact_noise, "_round_noisy_sums", lambda w, e, d, source: draw(w, e, d, rng.bytes))
    losses: dict[bool, list[float]] = {False: [], True: []}
    plans = []
    for secure, found in losses.items():
        for seed in range(40):
            model = kind(
                epsilon=1.0,
                delta=1e-6,
                data_norm=1.0,
                secure=secure,
                random_state=None if secure else seed,
                **options,
            ).fit(X, y)
            scores = X @ np.ravel(model.coef_) + model.intercept_
            found.append(
                float(
                    np.mean((scores - y) ** 2 if kind is DPRidge else np.logaddexp(0, (1 - 2 * y) * scores))
                )
            )
        plans.append(model.plan_.plan)
    assert replace(plans[1].spec, secure=False) == plans[0].spec
    assert plans[1].guarantee.parts == plans[0].guarantee.parts
    error = np.sqrt(sum(np.var(found, ddof=1) / len(found) for found in losses.values()))
    assert abs(np.mean(losses[True]) - np.mean(losses[False])) <= 3 * error


def request(**changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "model": "logistic", "n": 20_000, "n_features": 10, "epsilon": 1.0, "delta": 1e-6, "adjacency": "replace-one",
        "data_norm": 1.0, "fit_intercept": True, "secure": True,
    }  # fmt: skip
    return options | changes


@pytest.mark.parametrize("mechanism", ["auto", "whitened-gd"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_secure_plans_whiten_where_others_do(mechanism: str, adjacency: str) -> None:
    options = request(mechanism=mechanism, adjacency=adjacency)
    secure, plain = plan_fit(**options).plan, plan_fit(**(options | {"secure": False})).plan
    assert isinstance(secure.spec, WhitenedSpec)
    assert secure.spec.secure
    assert replace(secure.spec, secure=False) == plain.spec
    assert secure.guarantee.parts == plain.guarantee.parts
    assert secure.guarantee.arithmetic == "discrete-grid"
    assert plain.guarantee.arithmetic == "real"
    assert any("exact_sums.md" in words for words in secure.guarantee.assumptions)
    assert any("operating system" in words for words in secure.guarantee.assumptions)
    assert any("exact" in reason for reason in plan_fit(**options).reasons)
    assert plan_from_plain(plan_to_plain(secure)) == secure


@pytest.mark.parametrize("changes", [{"alpha": 0.1}, {"radius": 2.0}, {"n": 50, "n_features": 300}])
def test_plain_descent_is_exact_where_whitening_is_not_chosen(changes: dict[str, Any]) -> None:
    spec = plan_fit(**request(**changes)).plan.spec
    assert isinstance(spec, NoisyGradientSpec)
    assert spec.secure


def test_what_has_no_secure_form_is_refused() -> None:
    with pytest.raises(AssumptionFailed, match="has no proof here"):
        plan_fit(**request(delta=0.0, radius=1.0, mechanism="objective-perturbation"))
    with pytest.raises(InvalidParameter, match="pure"):
        plan_fit(**request(delta=0.0, mechanism="whitened-gd"))
    plan, (X, y, _) = make_plan(), make_records()
    bounded = replace(plan, problem=replace(plan.problem, constraint=Ball(1.0)))
    with pytest.raises(InvalidParameter, match="radius"):
        run_plan(bounded, ArrayDataset(X, y, bounded.problem))


def test_more_records_than_n_are_covered() -> None:
    X, y, _ = make_records()
    options: dict[str, Any] = {
        "epsilon": 5.0, "delta": 1e-6, "data_norm": 1.0, "classes": [0, 1], "adjacency": "add-remove",
        "n_public": N // 4, "secure": True,
    }  # fmt: skip
    model = DPLogisticRegression(**options).fit(X, y.astype(int))
    assert model.privacy_.arithmetic == "discrete-grid"
    assert model.plan_.plan.spec.mechanism == "whitened-gd"
    assert WhitenedComposition.secure_holds_beyond_n
    plain = DPLogisticRegression(**options, alpha=0.1).fit(X, y.astype(int))
    assert plain.plan_.plan.spec.mechanism == "noisy-gradient"
    assert plain.privacy_.arithmetic == "discrete-grid"


def test_a_saved_secure_run_goes_on_with_fresh_noise_to_one_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Exception):
        pass

    plan, (X, y, _) = make_plan(n_approach_steps=2, approach_noise_std=2e-4, max_steps=12), make_records()
    data, path = ArrayDataset(X, y, plan.problem), tmp_path / "run.state"
    with no_noise():
        expected = run_plan(plan, data).value
        saves = iter(range(4))

        def interrupted(self: Any, position: Any, rng: Any, *, now: bool = False) -> None:
            save(self, position, rng, now=True)
            if next(saves, None) is None:
                raise Interrupted

        save = RunState.save_if_due
        with monkeypatch.context() as patch:
            patch.setattr(RunState, "save_if_due", interrupted)
            with pytest.raises(Interrupted):
                run_plan(plan, data, checkpoint=path)
        assert np.array_equal(run_plan(plan, data, checkpoint=path).value, expected)
    with monkeypatch.context() as patch:  # killed after the release: no noise is drawn again
        patch.setattr(RunState, "finish", lambda self: (_ for _ in ()).throw(Interrupted))
        with pytest.raises(Interrupted):
            run_plan(plan, data, checkpoint=path)
    with no_noise() as observer:
        first, second = (run_plan(plan, data, checkpoint=copied(path, tmp_path, i)).value for i in range(2))
    assert not observer.exact
    assert np.array_equal(first, second)


def copied(path: Path, folder: Path, index: int) -> Path:
    """The same file under another name."""
    copy = folder / f"twin{index}.state"
    copy.write_bytes(path.read_bytes())
    copy.chmod(0o600)
    return copy
