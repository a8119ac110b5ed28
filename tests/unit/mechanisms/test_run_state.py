"""Interrupted runs go on: the same release, the same charge, and a file nobody else may read."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin._progress import progress
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.errors import DplangevinError, InvalidParameter, LedgerError
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.noisy_gradient import mechanism
from dplangevin.mechanisms.noisy_gradient.mechanism import NoisyGradientDescent
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.release import Release
from dplangevin.problem import Ball, DataBounds, Logistic, Problem

N, P = 40, 3


class Interrupted(Exception):
    pass


def problem(adjacency: Any = "replace-one") -> Problem:
    bounds = DataBounds(data_norm=1.0, classes=2)
    return Problem(
        loss=Logistic(), bounds=bounds, n=N, n_features=P, constraint=Ball(2.0), adjacency=adjacency
    )


def plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {"step_size": 0.7, "noise_std": 0.3, "n_steps": 16}
    adjacency = "add-remove" if changes.get("sampling") == "poisson" else "replace-one"
    spec = NoisyGradientSpec(**(fields | changes))
    return Plan(problem=problem(adjacency), spec=spec, delta=1e-5, theorem="composition")


def data(of: Plan, seed: int = 0) -> ArrayDataset:
    rng = np.random.default_rng(seed)
    return ArrayDataset(rng.standard_normal((N, P)), rng.integers(0, 2, N), of.problem)


def stopped_at(step: int) -> Any:
    def callback(done: int, total: int) -> None:
        if done == step:
            raise Interrupted

    return progress(callback)


def run(of: Plan, path: Path | None, *, seed: Any = 5, records: int = 0, **more: Any) -> Release:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return NoisyGradientDescent().run(
            of, data(of, records), seed, checkpoint=path, save_every=0.0, **more
        )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"momentum": True, "release": "trajectory"},
        {"release": "average", "average_from": 3},
        {"release": "checkpoints", "checkpoints": (2, 9, 14)},
        {"sampling": "shuffle", "batch_size": 10},
        {"sampling": "cyclic", "batch_size": 10, "order": "secret"},
        {"sampling": "without-replacement", "batch_size": 10},
        {"sampling": "poisson", "batch_size": 10, "start_scale": 0.5},
    ],
    ids=str,
)
def test_an_interrupted_run_gives_the_same_release(changes: dict[str, Any], tmp_path: Path) -> None:
    of, path = plan(**changes), tmp_path / "run.state"
    expected = run(of, None)
    for step in (1, 6, 2):  # interrupted three times, the last two counted from where the run went on
        with stopped_at(step), pytest.raises(Interrupted):
            run(of, path)
    release = run(of, path, seed=99)  # the seed is not asked again
    np.testing.assert_array_equal(release.value, expected.value)
    assert release.digest() == expected.digest()
    assert release.seeded
    assert not path.exists()


def test_the_charge_is_made_once(tmp_path: Path) -> None:
    of, path = plan(), tmp_path / "run.state"
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=1000.0, delta=1e-3)
    for step in (4, 3):
        with stopped_at(step), pytest.raises(Interrupted):
            run(of, path, ledger=budget)
    (entry,) = budget.history()
    assert entry.release_hash is None
    with pytest.raises(InvalidParameter, match="was charged to a ledger; give that ledger"):
        run(of, path)
    release = run(of, path, ledger=budget)
    (entry,) = budget.history()
    assert entry.release_hash == release.digest()
    run(of, path, ledger=budget)  # a new run pays anew
    assert len(budget.history()) == 2


def test_a_token_that_paid_for_something_else_pays_for_nothing(tmp_path: Path) -> None:
    """A state file says that it has paid; the books say for what."""
    of, path = plan(), tmp_path / "run.state"
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=1000.0, delta=1e-3)
    with stopped_at(4), pytest.raises(Interrupted):
        run(of, path, ledger=budget)
    cheap = budget.charge(replace(of.guarantee, parts=(Gaussian(mu=1e-6),)))
    content = json.loads(path.read_text())
    honest = content["token"]
    content["token"] = cheap
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidParameter, match="altered or damaged"):  # sealed
        run(of, path, ledger=budget)
    with pytest.raises(LedgerError, match="charged for another release"):  # and the books know better
        budget.reserve_with_token(cheap, of)
    assert budget.was_charged(honest)


def test_the_file_is_private_and_says_so(tmp_path: Path) -> None:
    of, path = plan(), tmp_path / "run.state"
    modes = []
    os.umask(os.umask(0))
    with (
        progress(lambda step, total: modes.append(stat.S_IMODE(path.stat().st_mode))),
        pytest.warns(UserWarning, match="holds the noise of this run.*keep it secret"),
    ):
        NoisyGradientDescent().run(of, data(of), checkpoint=path, save_every=0.0)
    assert set(modes) == {0o600}
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_is_continued_by_another(tmp_path: Path) -> None:
    of, path = plan(), tmp_path / "run.state"
    code = (
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r});"
        "from unit.mechanisms.test_run_state import *\n"
        "with progress(lambda s, t: os.kill(os.getpid(), 9) if s == 7 else None):\n"
        f"    run(plan(), Path({str(path)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert done.returncode == -9
    assert json.loads(path.read_text())["position"]["step"] == 7
    np.testing.assert_array_equal(run(of, path).value, run(of, None).value)


def test_a_generator_is_not_left_where_it_was(tmp_path: Path) -> None:
    of, rng = plan(), np.random.default_rng(3)
    one, two = (run(of, tmp_path / "run.state", seed=rng) for _ in range(2))
    assert not np.array_equal(one.value, two.value)


def _one_draw_more(rng: np.random.Generator) -> Iterator[None]:
    """Batches of the whole data, by a version of the library that draws a number for each."""
    while True:
        rng.random()
        yield None


def test_other_plans_records_and_files_are_refused(tmp_path: Path, monkeypatch) -> None:
    of, path = plan(), tmp_path / "run.state"
    with stopped_at(4), pytest.raises(Interrupted):
        run(of, path)
    kept = path.read_bytes()
    with pytest.raises(InvalidParameter, match=r"another plan.*Nothing was charged"):
        run(plan(noise_std=0.4), path)
    with pytest.raises(InvalidParameter, match=r"other records.*nothing was released"):
        run(of, path, records=1)
    content = json.loads(kept)
    content["generator_now"]["state"]["inc"] += 2
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidParameter, match=r"altered or damaged.*nothing was read or charged"):
        run(of, path)
    path.write_bytes(kept)
    with monkeypatch.context() as patch:
        patch.setattr(mechanism, "sample_batches", lambda *arguments: _one_draw_more(arguments[-1]))
        with pytest.raises(DplangevinError, match=r"cannot be drawn again.*nothing was released"):
            run(of, path)
    for text in ("", "[1]", "{}", '{"version": 1}'):
        path.write_text(text)
        with pytest.raises(InvalidParameter, match=r"not the state of a run.*nothing was read or charged"):
            run(of, path)
    path.write_bytes(kept)
    np.testing.assert_array_equal(run(of, path).value, run(of, None).value)


@pytest.mark.parametrize("at", [1, 2, 3, 4, 6])  # begun, about to pay, paid, records known, a position
def test_a_full_disk_stops_the_run_and_keeps_the_last_state(at: int, tmp_path: Path, monkeypatch) -> None:
    of, path, calls = plan(), tmp_path / "run.state", []
    words = "What was charged stays charged" if at > 2 else "Nothing was charged"
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=1000.0, delta=1e-3)
    sync = os.fsync

    def full(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # and not its folder
            calls.append(descriptor)
        if len(calls) == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DplangevinError, match=rf"No space left.*{words}, and nothing was released"):
        run(of, path, ledger=budget)
    assert len(budget.history()) == (at > 2)
    assert path.exists() == (at > 1)
    assert not list(tmp_path.glob("*.new"))
    np.testing.assert_array_equal(run(of, path, ledger=budget).value, run(of, None).value)
    assert len(budget.history()) == 1
