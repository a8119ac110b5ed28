"""What a state file is protected from: forgeries, other costs, two runs at once, links and writes that were cut off."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin._progress import progress
from dplangevin.accounting.plan import Plan
from dplangevin.errors import DplangevinError, InvalidParameter, LedgerError
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.run_state import RunState
from unit.mechanisms.test_run_state import Interrupted, plan, run, stopped_at


def stopped(path: Path, of: Plan, **more: Any) -> dict[str, Any]:
    with stopped_at(4), pytest.raises(Interrupted):
        run(of, path, **more)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def resealed(path: Path, of: Plan, content: dict[str, Any]) -> None:
    """What somebody writes who knows the plan and this library, and not the records."""
    content["seal"] = RunState(path, of)._compute_seal(content)
    path.write_text(json.dumps(content))


def forged_position(content: dict[str, Any]) -> None:
    content["position"]["theta"]["bytes"] = base64.b64encode(np.zeros(3).tobytes()).decode()


def forged_noise(content: dict[str, Any]) -> None:
    content["generator"] = content["generator_now"] = np.random.default_rng(0).bit_generator.state


def forged_step(content: dict[str, Any]) -> None:
    content["position"]["step"] = 15


def forged_seed(content: dict[str, Any]) -> None:
    content["seeded"] = False


@pytest.mark.parametrize("forge", [forged_position, forged_noise, forged_step, forged_seed])
def test_a_forgery_needs_the_records(forge: Any, tmp_path: Path) -> None:
    of, path = plan(), tmp_path / "run.state"
    content = stopped(path, of)
    resealed(path, of, dict(content))  # the honest twin: sealed anew, and the same
    assert json.loads(path.read_text())["seal"] == content["seal"]
    forge(content)
    resealed(path, of, content)
    with pytest.raises(InvalidParameter, match=r"or was altered.*nothing was released"):
        run(of, path)


def test_a_state_of_another_version_is_refused(tmp_path: Path) -> None:
    of, path = plan(), tmp_path / "run.state"
    content = stopped(path, of)
    for other in (content | {"version": 2}, {"version": 2, "plan": content["plan"], "salt": "0"}):
        path.write_text(json.dumps(other))
        with pytest.raises(
            InvalidParameter, match=r"written by another version.*nothing was read or charged"
        ):
            run(of, path)


def test_a_position_needs_records(tmp_path: Path) -> None:
    of, path = plan(), tmp_path / "run.state"
    content = stopped(path, of)
    resealed(path, of, content | {"records": None})
    with pytest.raises(InvalidParameter, match="a position without records"):
        run(of, path)


def test_the_books_say_what_was_paid(tmp_path: Path) -> None:
    """A file that says "charged", under no token of the ledger's or under another release's, is not believed."""
    of, path = plan(), tmp_path / "run.state"
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=1000.0, delta=1e-3)
    content = stopped(path, of)
    stopped(tmp_path / "paid.state", of, ledger=budget)
    cost = json.loads((tmp_path / "paid.state").read_text())["cost"]
    resealed(path, of, content | {"charged": True, "token": "never", "cost": cost})
    run(of, path, ledger=budget)
    assert len(budget.history()) == 2  # it was charged after all
    other = budget.reserve(of)
    budget.commit(other, "0" * 64)
    content = stopped(path, of)
    resealed(path, of, content | {"charged": True, "token": other, "cost": cost})
    with pytest.raises(LedgerError, match="charged for another release"):
        run(of, path, ledger=budget)


class Cash:
    """A spender without tokens of the caller's: it cannot be asked twice."""

    def reserve(self, of: Any) -> str:
        return "token"

    def commit(self, token: str, release_hash: str) -> None:
        pass


def test_another_cost_than_the_one_charged_is_refused(tmp_path: Path) -> None:
    """A version of the library that proves less for the same plan does not finish what was charged less."""
    of, path = plan(), tmp_path / "run.state"
    stopped(path, of, ledger=Cash())
    dearer = plan()
    object.__setattr__(dearer, "guarantee", replace(of.guarantee, parts=of.guarantee.parts * 2))
    with pytest.raises(InvalidParameter, match=r"charged another cost.*Nothing was released"):
        run(dearer, path, ledger=Cash())
    assert run(of, path, ledger=Cash()).digest()


def test_two_processes_on_one_file(tmp_path: Path) -> None:
    of, path = plan(), tmp_path / "run.state"
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r});"
        "from unit.mechanisms.test_run_state import *\n"
        "def wait(step, total):\n"
        "    if step == 3:\n        print('here', flush=True); sys.stdin.readline()\n"
        f"with progress(wait):\n    print(run(plan(), Path({str(path)!r})).digest())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "here\n"
        before = path.read_bytes()
        with pytest.raises(DplangevinError, match=r"in use by another run.*Nothing was read or charged"):
            run(of, path)
        assert path.read_bytes() == before
        other.stdin.write("go on\n")
        other.stdin.close()
        assert other.stdout.readline().strip() == run(of, None).digest()
    assert list(tmp_path.iterdir()) == []


def test_two_runs_in_one_process(tmp_path: Path) -> None:
    of, path = plan(), tmp_path / "run.state"

    def second(step: int, total: int) -> None:
        if step == 2:
            with pytest.raises(DplangevinError, match="in use by another run"):
                run(of, path)

    with progress(second):
        release = run(of, path)
    assert release.digest() == run(of, None).digest()


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_is_refused(there: bool, tmp_path: Path) -> None:
    of, path, link = plan(), tmp_path / "run.state", tmp_path / "link"
    if there:
        stopped(path, of)
    link.symlink_to(path)
    with pytest.raises(InvalidParameter, match=r"symbolic link.*Nothing was read or charged"):
        run(of, link)
    assert path.exists() == there


def test_a_linked_folder_is_the_same_folder(tmp_path: Path) -> None:
    of, folder = plan(), tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "other").symlink_to(folder)
    stopped(folder / "run.state", of)
    assert run(of, tmp_path / "other" / "run.state").digest() == run(of, None).digest()
    assert list(folder.iterdir()) == []


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    of, path = plan(), tmp_path / "run.state"
    os.mkfifo(path, 0o600)
    with pytest.raises(InvalidParameter, match="no regular file"):
        run(of, path)


def test_a_write_that_was_cut_off_leaves_the_last_state(tmp_path: Path) -> None:
    """Killed between the draft and its new name: the run goes on, and the draft does not stay."""
    of, path = plan(), tmp_path / "run.state"
    code = (
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r});"
        "from unit.mechanisms.test_run_state import *\n"
        "calls, replace = [], os.replace\n"
        "def killed(*names):\n"
        "    calls.append(names)\n"
        "    os.kill(os.getpid(), 9) if len(calls) == 5 else replace(*names)\n"
        "os.replace = killed\n"
        f"run(plan(), Path({str(path)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert done.returncode == -9
    draft = tmp_path / "run.state.new"
    assert stat.S_IMODE(draft.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["position"]["step"] == 2
    assert run(of, path).digest() == run(of, None).digest()
    assert list(tmp_path.iterdir()) == []
