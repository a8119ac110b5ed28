"""From every file that a run ever wrote, the run goes on to the same release, bit for bit, whatever saved it.

A file is what a killed run leaves behind. Going on with noise that was used before, with a step left out or made twice,
or with another position gives another release; the first and the last files are tried, and some in between.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts._wiring import ChargeRecorder, Spender, neighbours, quick_and_steady, resumable
from dplangevin.audit._compare import differences
from dplangevin.families.noisy_gradient import discrete_mechanism
from dplangevin.families.run_state import RunState
from unit.families import test_resume as mechanisms

SPENDERS = {spender.name: spender for spender in resumable()}
MOST_FILES = 4


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Everything that is written as the state of a run, which is saved after every step."""
    contents: list[bytes] = []
    made, write = RunState.__init__, RunState._write

    def saved_often(self: RunState, *arguments: Any, **_: Any) -> None:
        made(self, *arguments, save_every=0.0)

    def kept(self: RunState, **options: Any) -> Any:
        written = write(self, **options)
        contents.append(self.path.read_bytes())
        return written

    monkeypatch.setattr(RunState, "__init__", saved_often)
    monkeypatch.setattr(RunState, "_write", kept)
    quick_and_steady(monkeypatch)
    return contents


def assert_resumes(
    run: Callable[[Path | None], Any], path: Path, written: list[bytes], ignore: tuple[str, ...] = ()
) -> None:
    """Each of some files leads to what the run without a file gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = run(None)
        assert not differences(expected, run(path), ignore=ignore)
        files = list(dict.fromkeys(written))
        assert len(files) >= 2
        for place in np.unique(np.linspace(0, len(files) - 1, MOST_FILES).astype(int)):
            path.write_bytes(files[place])
            path.chmod(0o600)
            assert not differences(expected, run(path), ignore=ignore), f"file {place} of {len(files)}"
            assert not path.exists()


@pytest.mark.parametrize("name", [name for name in mechanisms.CASES if name != "secure shuffle"])
def test_a_mechanism_goes_on_from_every_file(
    name: str, written: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # secure noise is never in a file: it is taken away to compare the rest
    monkeypatch.setattr(discrete_mechanism, "rounded_gaussian", lambda _, size: np.zeros(size, np.int64))
    plan = mechanisms.CASES[name](1.0)
    records = mechanisms.data(plan.problem)

    def run(path: Path | None) -> Any:
        return mechanisms.run(plan, records, path)

    assert_resumes(run, tmp_path / "run.state", written)
    if name.startswith(mechanisms.WALKS):
        assert sum(b'"position": {' in file for file in written) >= 4


@pytest.mark.parametrize("name", SPENDERS)
def test_a_spender_goes_on_from_every_file(name: str, written: list[bytes], tmp_path: Path) -> None:
    spender: Spender = SPENDERS[name]
    records = neighbours(spender)[0][0]

    def run(path: Path | None) -> Any:
        account = ChargeRecorder(spender.rows_per_person)
        return spender.call(records, 7, account, state=path)

    assert_resumes(
        run, tmp_path / "run.state", written, (*spender.ignore, "state", "ledger_head_", "ledger_head")
    )
