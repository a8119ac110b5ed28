"""Every mechanism goes on after a crash: the same release, one charge, never on other records or another plan."""

from __future__ import annotations

import json
import math
import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from _registered import MECHANISMS
from dplangevin._progress import progress
from dplangevin.accounting.plan import Plan, Spec
from dplangevin.data import ArrayDataset, ArraySource, ScratchDataset
from dplangevin.errors import BudgetExceeded, InvalidParameter, LedgerError
from dplangevin.ledger import Ledger
from dplangevin.ledger.budget import DatasetBudget
from dplangevin.mechanisms.exponential.sampler_plans import plan_sampler
from dplangevin.mechanisms.exponential.spec import ExponentialSpec, IteratedExponentialSpec
from dplangevin.mechanisms.langevin.spec import LangevinSpec
from dplangevin.mechanisms.mechanism import Release, run_plan as run_plan
from dplangevin.mechanisms.mirror_descent.mechanism import PublicMirrorDescent
from dplangevin.mechanisms.mirror_descent.mirror_map import public_mirror_map
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec
from dplangevin.mechanisms.moments.spec import calibrate_sufficient_statistics
from dplangevin.mechanisms.noisy_answers.spec import AnswerSpec
from dplangevin.mechanisms.noisy_gradient.mechanism import NoisyGradientDescent
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.perturbation.spec import (
    calibrate_objective_perturbation,
    calibrate_output_perturbation,
)
from dplangevin.mechanisms.rashomon.spec import RashomonChainSpec
from dplangevin.mechanisms.ridge_whitened.spec import RidgeWhitenedSpec
from dplangevin.mechanisms.run_state import RunState
from dplangevin.mechanisms.underdamped.spec import UnderdampedSpec
from dplangevin.mechanisms.whitened.spec import WhitenedSpec
from dplangevin.mechanisms.whitened_objective.spec import WhitenedObjectiveSpec
from dplangevin.problem import (
    Ball,
    Clipped,
    DataBounds,
    Logistic,
    Problem,
    SmoothedPinball,
    Squared,
    WholeSpace,
)
from dplangevin.problem.problem import full_lipschitz
from dplangevin.rashomon import plan_rashomon

N, P, SEED, DELTA = 200, 2, 5, 1e-5
TOP = math.inf
SAVING = {"every": 0.0}  # seconds between two saved positions


class Interrupted(Exception):
    pass


class Fragile(ArrayDataset):
    """Records that can be read so many times, copies with rounded rows or other weights included."""

    @property
    def left(self) -> float:
        return self._shared_count()[0]

    @left.setter
    def left(self, count: float) -> None:
        self._shared_count()[0] = count

    def _shared_count(self) -> list[float]:
        return self.__dict__.setdefault("_left", [TOP])

    def pieces(self, rows: Any = None) -> Any:
        self._use()
        return super().pieces(rows)

    def blocks(self, rows: Any = None) -> Any:
        self._use()
        return super().blocks(rows)

    def _use(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Interrupted


def problem(loss: Any = None, **changes: Any) -> Problem:
    chosen = loss or Logistic()
    labels: dict[str, Any] = {"classes": 2} if chosen.label_range == (0, 1) else {"target": (-1.0, 1.0)}
    fields: dict[str, Any] = {
        "loss": chosen, "bounds": DataBounds(data_norm=1.5, **labels), "n": N, "n_features": P, "ridge": 0.05,
        "constraint": Ball(1.0), "fit_intercept": False,
    }  # fmt: skip
    return Problem(**(fields | changes))


def data(of: Problem, changed: bool = False) -> Fragile:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, of.n_features))
    y = X[:, 0] + 0.3 * rng.standard_normal(N)
    y = (y > 0).astype(float) if of.bounds.classes else np.clip(y, -1, 1)
    if changed:
        X[17] *= 0.9  # one record, a little
    return Fragile(X, y, of)


def planned(of: Problem, spec: Spec, delta: float = DELTA) -> Plan:
    return Plan(problem=of, spec=spec, delta=delta)


def perturbed(calibrated: Callable[..., Spec], epsilon: float, secure: bool = False, **changes: Any) -> Plan:
    of, options = problem(**({"constraint": WholeSpace()} | changes)), {"secure": True} if secure else {}
    return planned(of, calibrated(of.constants, epsilon=epsilon, delta=DELTA, **options))


def sampled(beta: float, **changes: Any) -> Plan:
    return planned(problem(n_features=1), ExponentialSpec(inverse_temperature=beta), 0.0)


def iterated(beta: float) -> Plan:
    draws = tuple(ExponentialSpec(inverse_temperature=value) for value in (20.0, beta))
    return planned(problem(n_features=1), IteratedExponentialSpec(draws=draws, radii=(0.5,)), 0.0)


def langevin(scale: float, **changes: Any) -> Plan:
    fields: dict[str, Any] = {"time_step": 0.1, "inverse_temperature": 0.5 * scale, "n_steps": 9}
    return planned(problem(), LangevinSpec(**(fields | changes)))


def chains(scale: float) -> Plan:
    of = problem()
    spec = RashomonChainSpec(
        threshold=0.1, ramp=0.5, n_models=3, full_lipschitz=full_lipschitz(of), inverse_temperature=0.2 * scale,
        step_size=0.3, n_steps=12, tolerance=1e-6,
    )  # fmt: skip
    return planned(of, spec)


def descent(scale: float, kind: Any = NoisyGradientSpec, **changes: Any) -> Plan:
    fields: dict[str, Any] = {"step_size": 0.5, "noise_std": 0.3 * scale, "n_steps": 8}
    return planned(problem(), kind(**(fields | changes)))


def whitened(scale: float, n_moment_releases: int = 2, **changes: Any) -> Plan:
    spec = WhitenedSpec(
        moment_noise_std=0.05, noise_std=0.1 * scale, n_steps=8, step_size=2.0, coef_bound=5.0,
        n_moment_releases=n_moment_releases,
        average_from=3, shrink=n_moment_releases == 1, **changes,
    )  # fmt: skip
    return planned(problem(constraint=WholeSpace(), ridge=0.0), spec)


def ridge_whitened(scale: float, **changes: Any) -> Plan:
    spec = RidgeWhitenedSpec(
        moment_noise_std=0.05, noise_std=0.05 * scale, step_cap=4.0, max_moment_releases=3,
        further_noise_std=0.3 * scale, further_fraction=0.2, **changes,
    )  # fmt: skip
    return planned(problem(constraint=WholeSpace(), ridge=0.0), spec)


def whitened_objective(scale: float) -> Plan:
    spec = WhitenedObjectiveSpec(
        moment_density_scale=0.05 * scale,
        ridge=0.05,
        density_scale=2.0,
        tolerance=1e-7,
        release_density_scale=1e-5,
    )
    return planned(problem(constraint=WholeSpace(), ridge=0.0), spec)


SQUARE = Clipped(Squared(), 3.0)
# each case makes its plan for a scale: another scale is another plan
CASES: dict[str, Callable[[float], Plan]] = {
    "noisy gradient descent": descent,
    "noisy gated": lambda scale: descent(
        scale, release="average", average_from=3, momentum=True, weights="gated"
    ),
    "whitened": whitened,
    "ridge whitened": ridge_whitened,
    "exact ridge whitened": lambda scale: ridge_whitened(scale, secure=True),
    "whitened once": lambda scale: whitened(scale, 1),
    "approach, then whitened": lambda scale: whitened(
        scale, n_approach_steps=3, approach_noise_std=5.0 * scale, max_steps=14
    ),
    "secure": lambda scale: descent(scale, secure=True),
    "secure shuffle": lambda scale: descent(scale, secure=True, sampling="shuffle", batch_size=50),
    "secure poisson": lambda scale: descent(scale, secure=True, sampling="poisson", batch_size=50),
    "secure whitened": lambda scale: whitened(scale, secure=True),
    "secure public mirror": lambda scale: descent(scale, PublicMirrorSpec, secure=True),
    "exact output perturbation": lambda scale: perturbed(
        calibrate_output_perturbation, scale, secure=True, constraint=WholeSpace()
    ),
    "exact sufficient statistics": lambda scale: perturbed(
        calibrate_sufficient_statistics, scale, secure=True, loss=SQUARE
    ),
    "objective perturbation": lambda scale: perturbed(calibrate_objective_perturbation, scale),
    "objective in other coordinates": whitened_objective,
    "output perturbation": lambda scale: perturbed(calibrate_output_perturbation, scale),
    "sufficient statistics": lambda scale: perturbed(calibrate_sufficient_statistics, scale, loss=SQUARE),
    "exponential": lambda scale: sampled(30.0 * scale),
    "gibbs": lambda scale: (
        plan_sampler(problem(), scale, DELTA, "certified", law="gibbs", verbose=False).plan
    ),
    "iterated exponential": lambda scale: iterated(60.0 * scale),
    "underdamped": lambda scale: planned(
        problem(constraint=WholeSpace()),
        UnderdampedSpec(inverse_temperature=0.5 * scale, step_size=0.1, n_steps=9),
    ),
    "langevin last": langevin,
    "langevin average": lambda scale: langevin(scale, release="average"),
    "langevin trajectory": lambda scale: langevin(scale, release="trajectory"),
    "langevin checkpoints": lambda scale: langevin(scale, release="checkpoints", checkpoints=(3, 7)),
    "rashomon": lambda scale: plan_rashomon(problem(), threshold=0.1, n_models=3, epsilon=scale).plan,
    "rashomon chains": chains,
    "public mirror": lambda scale: descent(scale, PublicMirrorSpec),
    "public mirror average": lambda scale: descent(scale, PublicMirrorSpec, release="average"),
}
WALKS = ("noisy", "whitened", "secure", "langevin", "rashomon chains", "public")


@pytest.fixture(autouse=True)
def saved_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    made = RunState.__init__

    def often(self: RunState, *arguments: Any, **_: Any) -> None:
        made(self, *arguments, save_every=SAVING["every"])

    monkeypatch.setattr(RunState, "__init__", often)


def run(
    plan: Plan, records: Fragile, path: Path | None, ledger: Any = None, seed: int | None = SEED
) -> Release:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if isinstance(plan.spec, PublicMirrorSpec):
            X = np.random.default_rng(1).uniform(-1, 1, (40, P))
            mirror = public_mirror_map(X, (X[:, 0] > 0).astype(float), plan.problem)
            return PublicMirrorDescent(mirror).run(plan, records, seed, ledger=ledger, checkpoint=path)
        return run_plan(plan, records, seed, ledger=ledger, checkpoint=path)


def budget(tmp_path: Path, epsilon: float = 1e5) -> DatasetBudget:
    return Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=epsilon, delta=1e-3)


def passes(plan: Plan, path: Path) -> int:
    """How often an undisturbed run with a state reads the records."""
    records = data(plan.problem)
    records.left = 10**6
    run(plan, records, path)
    return int(10**6 - records.left)


def test_every_mechanism_is_here() -> None:
    kinds = {type(make(1.0).spec) for make in CASES.values()}
    answers = {kind for kind in MECHANISMS if issubclass(kind, AnswerSpec)}  # see test_charge
    assert kinds | answers == {*MECHANISMS, PublicMirrorSpec}


@pytest.mark.parametrize("name", CASES)
def test_a_run_stopped_at_random_moments_is_the_undisturbed_one(name: str, tmp_path: Path) -> None:
    plan, path, ledger = CASES[name](1.0), tmp_path / "run.state", budget(tmp_path)
    of = plan.problem
    expected = run(plan, data(of), None)
    total = passes(plan, path)
    rng = np.random.default_rng(len(name))
    for left in [0, *rng.integers(0, total, 4)]:
        records = data(of)
        records.left = int(left)
        try:
            release = run(plan, records, path, ledger)
        except Interrupted:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        else:
            break
    else:
        release = run(plan, data(of), path, ledger)
    (entry,) = ledger.history()
    assert entry.release_hash == release.digest()
    assert not path.exists()
    assert not list(tmp_path.glob("*.new"))
    if expected is not None:
        assert release.digest() == expected.digest()
        assert (release.seeded, release.n_steps) == (expected.seeded, expected.n_steps)


@pytest.mark.parametrize("name", CASES)
def test_changed_records_and_other_plans_are_refused(name: str, tmp_path: Path) -> None:
    plan, path, ledger = CASES[name](1.0), tmp_path / "run.state", budget(tmp_path)
    total, records = passes(plan, path), data(plan.problem)
    records.left = total - 1
    with pytest.raises(Interrupted):
        run(plan, records, path, ledger)
    kept = path.read_bytes()
    with pytest.raises(InvalidParameter, match=r"on other records.*stays charged; nothing was released"):
        run(plan, data(plan.problem, changed=True), path, ledger)
    other = CASES[name](1.1)
    with pytest.raises(InvalidParameter, match=r"of another plan.*Nothing was charged"):
        run(other, data(other.problem), path, ledger)
    assert path.read_bytes() == kept
    assert len(ledger.history()) == 1


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(WALKS)])
def test_a_walk_goes_on_from_its_position(name: str, tmp_path: Path) -> None:
    plan, path = CASES[name](1.0), tmp_path / "run.state"
    steps: list[tuple[int, int]] = []

    def callback(step: int, total: int) -> None:
        steps.append((step, total))
        if len(steps) == 4:
            raise Interrupted

    with progress(callback), pytest.raises(Interrupted):
        run(plan, data(plan.problem), path)
    position = json.loads(path.read_text())["position"]
    assert position.get("step", position.get("n_steps")) == 4
    whole = steps[0][1]
    with progress(callback):
        run(plan, data(plan.problem), path)
    assert steps[4:] == [(i, whole - 4) for i in range(1, whole - 3)]


def test_a_label_that_no_gradient_shows_is_seen(tmp_path: Path) -> None:
    """The slope of a quantile loss is the same for all labels far above the score."""
    of = problem(SmoothedPinball(quantile=0.5, width=0.1), constraint=Ball(0.1))
    plan, path = planned(of, NoisyGradientSpec(step_size=0.5, noise_std=0.3, n_steps=4)), tmp_path / "s"
    X, y = np.random.default_rng(0).uniform(-1, 1, (N, P)), np.full(N, 1.0)
    records = Fragile(X, y, of)
    theta = np.full((P, 1), 0.01)
    changed = Fragile(X, np.where(np.arange(N) == 3, 0.9, y), of)
    gradients = [each.gradient_sum(of.loss, theta) for each in (records, changed)]
    np.testing.assert_array_equal(*gradients)
    records.left = 4
    with pytest.raises(Interrupted):
        run(plan, records, path)
    with pytest.raises(InvalidParameter, match="other records"):
        run(plan, changed, path)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("secure", "exact"))])
def test_unseeded_exact_noise_is_fresh_but_the_release_is_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run killed between its commit and the deletion of its file gives what was committed."""
    monkeypatch.setitem(SAVING, "every", 1e9)
    plan, path, ledger = CASES[name](1.0), tmp_path / "run.state", budget(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(RunState, "finish", lambda self: (_ for _ in ()).throw(Interrupted))
        with pytest.raises(Interrupted):
            run(plan, data(plan.problem), path, ledger, seed=None)
    release = run(plan, data(plan.problem), path, ledger, seed=None)
    (entry,) = ledger.history()
    assert entry.release_hash == release.digest()


@pytest.mark.parametrize("name", ["secure", "secure whitened", "exact output perturbation"])
def test_an_early_copy_of_the_file_buys_no_second_release(name: str, tmp_path: Path) -> None:
    """Resumed from a copy, an unseeded exact run draws other noise, and its second release is refused."""
    plan, path, ledger = CASES[name](1.0), tmp_path / "run.state", budget(tmp_path)
    records = data(plan.problem)
    records.left = 0
    with pytest.raises(Interrupted):
        run(plan, records, path, ledger, seed=None)
    copied = path.read_text()
    run(plan, data(plan.problem), path, ledger, seed=None)
    path.write_text(copied)
    path.chmod(0o600)
    with pytest.raises(LedgerError, match="another release already"):
        run(plan, data(plan.problem), path, ledger, seed=None)
    assert len(ledger.history()) == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_around_the_charge_is_no_second_charge(moment: str, tmp_path: Path, monkeypatch) -> None:
    plan, path, ledger = CASES["objective perturbation"](1.0), tmp_path / "run.state", budget(tmp_path)
    reserve = DatasetBudget.reserve_with_token

    def crashing(self: DatasetBudget, token: str, of: Any) -> None:
        if moment == "after":
            reserve(self, token, of)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(DatasetBudget, "reserve_with_token", crashing)
        with pytest.raises(Interrupted):
            run(plan, data(plan.problem), path, ledger)
    assert len(ledger.history()) == (moment == "after")
    release = run(plan, data(plan.problem), path, ledger)
    (entry,) = ledger.history()
    assert entry.release_hash == release.digest()


def test_a_token_pays_for_one_cost(tmp_path: Path) -> None:
    one, two, ledger = CASES["exponential"](1.0), CASES["exponential"](1.1), budget(tmp_path)
    for _ in range(3):
        ledger.reserve_with_token("token", one)
    assert len(ledger.history()) == 1
    with pytest.raises(LedgerError, match="charged for another release"):
        ledger.reserve_with_token("token", two)
    assert len(ledger.history()) == 1


def test_a_refused_charge_leaves_no_file(tmp_path: Path) -> None:
    plan, path, ledger = CASES["exponential"](1.0), tmp_path / "run.state", budget(tmp_path, epsilon=1e-6)
    records = data(plan.problem)
    records.left = 0
    with pytest.raises(BudgetExceeded):
        run(plan, records, path, ledger)
    assert not path.exists()


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, monkeypatch) -> None:
    plan, path = CASES["exponential"](1.0), tmp_path / "run.state"
    records = data(plan.problem)
    records.left = 3
    with pytest.raises(Interrupted):
        run(plan, records, path)
    path.chmod(0o644)
    with pytest.raises(InvalidParameter, match=r"users may read it.*nothing was read or charged"):
        run(plan, data(plan.problem), path)
    path.chmod(0o600)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
        with pytest.raises(InvalidParameter, match="belongs to another user"):
            run(plan, data(plan.problem), path)
    run(plan, data(plan.problem), path)


def test_another_mirror_map_is_another_run(tmp_path: Path) -> None:
    plan, path = CASES["public mirror"](1.0), tmp_path / "run.state"
    records = data(plan.problem)
    records.left = 5
    with pytest.raises(Interrupted):
        run(plan, records, path)
    X = np.random.default_rng(2).uniform(-1, 1, (40, P))
    mirror = public_mirror_map(X, (X[:, 0] > 0).astype(float), plan.problem)
    with pytest.raises(InvalidParameter, match="another plan"):
        PublicMirrorDescent(mirror).run(plan, data(plan.problem), SEED, checkpoint=path)


def test_a_stopped_langevin_run_stops_again(tmp_path: Path) -> None:
    plan, path = langevin(1.0, release="trajectory"), tmp_path / "run.state"

    def fails(step: int, theta: Any) -> bool:
        if step == 5:
            raise Interrupted
        return False

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(Interrupted):
            NoisyGradientDescent(stop=fails).run(plan, data(plan.problem), SEED, checkpoint=path)
    stops = NoisyGradientDescent(stop=lambda step, theta: step == 5)
    release = stops.run(plan, data(plan.problem), SEED, checkpoint=path)
    expected = stops.run(plan, data(plan.problem), SEED)
    assert release.n_steps == 5
    assert release.digest() == expected.digest()


@pytest.mark.parametrize("path", [3, True, b"file"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    plan = CASES["exponential"](1.0)
    with pytest.raises(InvalidParameter, match="checkpoint must be the path of a file"):
        run(plan, data(plan.problem), path)


def interrupted(plan: Plan, records: Any, path: Path, passes: int = 4) -> None:
    def callback(step: int, total: int) -> None:
        if step == passes:
            raise Interrupted

    with warnings.catch_warnings(action="ignore"), progress(callback), pytest.raises(Interrupted):
        run_plan(plan, records, SEED, checkpoint=path)


def test_a_run_on_arrays_goes_on_from_files(tmp_path: Path) -> None:
    """Files are read in the blocks of arrays: the records, and every bit of the sums, are the same."""
    plan, path = CASES["langevin last"](1.0), tmp_path / "run.state"
    records = data(plan.problem)
    interrupted(plan, records, path)
    X, y = records._rows, records._labels
    stored = ScratchDataset(ArraySource(X, y), plan.problem)
    assert run_plan(plan, stored, checkpoint=path).digest() == run_plan(plan, records, SEED).digest()
    interrupted(plan, stored, path)
    other = ScratchDataset(ArraySource(X, 1 - y), plan.problem)
    with pytest.raises(InvalidParameter, match="other records"):
        run_plan(plan, other, checkpoint=path)


def test_a_run_on_dask_goes_on(tmp_path: Path) -> None:
    distributed, da = pytest.importorskip("distributed"), pytest.importorskip("dask.array")
    from dplangevin.data.dask import DaskDataset

    plan, path = CASES["langevin last"](1.0), tmp_path / "run.state"
    of = plan.problem
    X, y = data(of)._rows, data(of)._labels
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "processes": False}
    with distributed.Client(**options) as client:

        def on_workers(rows: Any) -> DaskDataset:
            return DaskDataset(da.from_array(rows, (60, P)), da.from_array(y, 60), of, client=client)

        interrupted(plan, on_workers(X), path)
        changed = X.copy()
        changed[150, 0] *= 1 - 1e-15
        with pytest.raises(InvalidParameter, match="other records"):
            run_plan(plan, on_workers(changed), checkpoint=path)
        expected = run_plan(plan, on_workers(X), SEED)
        assert run_plan(plan, on_workers(X), checkpoint=path).digest() == expected.digest()
