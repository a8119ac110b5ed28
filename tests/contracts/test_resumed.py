"""From every file that a run ever wrote, the run goes on to the same release, bit for bit, whatever saved it.

A file is what a killed run leaves behind. Going on with noise that was used before, with a step left out or made twice,
or with another position gives another release; the first and the last files are tried, and some in between. On other
records the run is refused: the noise of a file hides one table only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts._wiring import (
    COLUMNS,
    LEARNED,
    ChargeRecorder,
    SpendingCase,
    estimator,
    neighbours,
    quick_and_steady,
    resumable,
)
from dplangevin import DPLogisticRegression
from dplangevin.audit.replay import find_differences
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.run_state import RunState
from unit.mechanisms import test_resume as mechanisms

SPENDERS = {spender.name: spender for spender in resumable()}
IN_ANY_UNIT = {  # so little noise that twice the table has twice the range: the rows that are fitted are the same
    "learned schema": estimator(
        "learned schema", DPLogisticRegression, schema=LEARNED, frame=COLUMNS, epsilon=1e4
    ),
    "learned norm": estimator("learned norm", DPLogisticRegression, data_norm="learn", epsilon=1e4),
}
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
        assert not find_differences(expected, run(path), ignore=ignore)
        files = list(dict.fromkeys(written))
        assert len(files) >= 2
        for place in np.unique(np.linspace(0, len(files) - 1, MOST_FILES).astype(int)):
            path.write_bytes(files[place])
            path.chmod(0o600)
            assert not find_differences(expected, run(path), ignore=ignore), f"file {place} of {len(files)}"
            assert not path.exists()


@pytest.mark.parametrize("name", mechanisms.CASES)
def test_a_mechanism_goes_on_from_every_file(name: str, written: list[bytes], tmp_path: Path) -> None:
    plan = mechanisms.CASES[name](1.0)
    records = mechanisms.data(plan.problem)

    def run(path: Path | None) -> Any:
        return mechanisms.run(plan, records, path)

    assert_resumes(run, tmp_path / "run.state", written)
    if name.startswith(mechanisms.WALKS):
        assert sum(b'"position": {' in file for file in written) >= 4


@pytest.mark.parametrize("name", SPENDERS)
def test_a_spender_goes_on_from_every_file(name: str, written: list[bytes], tmp_path: Path) -> None:
    spender: SpendingCase = SPENDERS[name]
    records = neighbours(spender)[0][0]

    def run(path: Path | None) -> Any:
        account = ChargeRecorder(spender.rows_per_person)
        return spender.call(records, 7, account, state=path)

    assert_resumes(
        run, tmp_path / "run.state", written, (*spender.ignore, "checkpoint", "ledger_head_", "ledger_head")
    )


def assert_refused(spender: SpendingCase, others: list[Any], path: Path, written: list[bytes]) -> list[str]:
    """A file that knows its records is of no use on others, unless what they release is the same; what was said."""
    ignore, refused = (*spender.ignore, "checkpoint"), []

    def run(records: Any) -> Any:
        return spender.call(records, 7, ChargeRecorder(spender.rows_per_person), state=path)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = run(neighbours(spender)[0][0])
        file = written[-1]
        assert b'"records": null' not in file
        for records in others:
            path.write_bytes(file)
            path.chmod(0o600)
            try:
                found = run(records)
            except InvalidParameter as error:
                refused.append(str(error))
            else:
                assert not find_differences(expected, found, ignore=ignore)
    assert all("on other records" in text for text in refused)
    return refused


@pytest.mark.parametrize("name", SPENDERS)
def test_noise_that_was_drawn_is_not_used_on_other_records(
    name: str, written: list[bytes], tmp_path: Path
) -> None:
    spender = SPENDERS[name]
    pairs = neighbours(spender)
    records = pairs[0][0]
    others = [pairs[0][1], pairs[2][1], replace(records, X=2 * records.X)]
    assert assert_refused(spender, others, tmp_path / "run.state", written)


@pytest.mark.parametrize("name", IN_ANY_UNIT)
def test_exact_counts_are_part_of_the_records(name: str, written: list[bytes], tmp_path: Path) -> None:
    """A table in another unit may give the same rows to the fit: only what was counted to learn the range differs."""
    spender = IN_ANY_UNIT[name]
    records = neighbours(spender)[0][0]
    doubled = replace(records, X=2 * records.X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = (spender.call(table, 7, ChargeRecorder()) for table in (records, doubled))
    unit = 2.0 if name == "learned norm" else 1.0  # a schema's coefficients are those of the scaled columns
    np.testing.assert_array_equal(one.coef_, unit * two.coef_)
    assert find_differences(one, two, ignore=spender.ignore)
    assert len(assert_refused(spender, [doubled], tmp_path / "run.state", written)) == 1
