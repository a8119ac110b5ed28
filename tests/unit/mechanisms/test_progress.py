"""Progress: bars after two seconds, on terminals only; callbacks are told the step and the total."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dplangevin import _progress
from dplangevin._progress import iterate_with_progress, progress
from dplangevin.audit.auditor import AuditTarget, collect_outputs
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.exponential.mechanism import UNCERTIFIED_SAMPLERS, run_uncertified_chains
from dplangevin.mechanisms.newton import TiltedObjective, minimize_certified
from dplangevin.problem import Ball, DataBounds, Logistic, Problem, WholeSpace
from dplangevin.sampling.rejection import sample_by_rejection


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def faked_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called inside the test: capturing replaces sys.stderr between a fixture and its test."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    return screen


def test_a_bar_with_the_remaining_time_appears_after_the_delay(monkeypatch) -> None:
    terminal = faked_terminal(monkeypatch)
    monkeypatch.setattr(_progress, "SECONDS_BEFORE_BAR", 0.0)
    assert list(iterate_with_progress(range(5), "noisy steps")) == [0, 1, 2, 3, 4]
    assert "noisy steps" in terminal.getvalue()
    assert "5/5" in terminal.getvalue()


def test_short_runs_show_nothing(monkeypatch) -> None:
    terminal = faked_terminal(monkeypatch)
    assert list(iterate_with_progress([3, 1], "noisy steps")) == [3, 1]
    assert terminal.getvalue() == ""


def test_pipes_and_quiet_show_nothing(monkeypatch) -> None:
    terminal = faked_terminal(monkeypatch)
    monkeypatch.setattr(_progress, "SECONDS_BEFORE_BAR", 0.0)
    with progress(quiet=True):
        list(iterate_with_progress(range(5), "noisy steps"))
    assert terminal.getvalue() == ""
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    list(iterate_with_progress(range(5), "noisy steps"))
    assert terminal.getvalue() == ""


def test_callbacks_see_the_step_and_the_total_of_the_outermost_loop() -> None:
    seen: list[tuple[int, int]] = []
    with progress(lambda step, total: seen.append((step, total))):
        for _ in iterate_with_progress(range(3), "outer"):
            list(iterate_with_progress(range(7), "inner"))
        list(iterate_with_progress(range(9), "blocks of records", private=True))
    list(iterate_with_progress(range(2), "outside"))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_an_error_stops_the_loop_and_leaves_the_next_one_intact() -> None:
    def stop(step: int, total: int) -> None:
        raise KeyError("enough")

    with progress(stop), pytest.raises(KeyError, match="enough"):
        list(iterate_with_progress(range(3), "outer"))
    seen: list[int] = []
    with progress(lambda step, total: seen.append(step)):
        list(iterate_with_progress(range(3), "outer"))
    assert seen == [1, 2, 3]


def test_a_loop_left_early_is_closed() -> None:
    for item in iterate_with_progress(range(3), "outer"):
        if item == 1:
            break
    seen: list[int] = []
    with progress(lambda step, total: seen.append(step)):
        list(iterate_with_progress(range(2), "outer"))
    assert seen == [1, 2]


def seen_by(work: Callable[[], object]) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []
    with progress(lambda step, total: seen.append((step, total))):
        work()
    return seen


def records(**changes: Any) -> ArrayDataset:
    rng = np.random.default_rng(0)
    fields: dict[str, Any] = {"constraint": Ball(1.0), "fit_intercept": False, "ridge": 0.1} | changes
    bounds = DataBounds(data_norm=1.0, classes=2)
    of = Problem(loss=Logistic(), bounds=bounds, n=50, n_features=2, **fields)
    return ArrayDataset(rng.standard_normal((50, 2)), rng.integers(0, 2, 50), of)


@pytest.mark.parametrize("sampler", UNCERTIFIED_SAMPLERS)
def test_chains_for_research_are_followed(sampler: Any) -> None:
    constraint = {} if sampler in ("mala", "hit-and-run") else {"constraint": WholeSpace()}
    data = records(**constraint)
    found = seen_by(
        lambda: run_uncertified_chains(
            data, inverse_temperature=5.0, sampler=sampler, n_steps=6, n_chains=2, random_state=0
        )
    )
    assert found == [(i, 6) for i in range(1, 7)]


def test_a_sampler_that_rejects_tells_no_callback_when_it_accepts() -> None:
    rng = np.random.default_rng(0)

    def propose(batch: int) -> tuple[Any, Any]:
        return rng.random((2, batch)), np.full(batch, np.log(0.1))

    assert seen_by(lambda: sample_by_rejection(propose, 2, 7, None, 1.0, rng)) == []


def test_a_solver_that_stops_when_the_data_let_it_tells_no_callback() -> None:
    data = records(constraint=WholeSpace())
    objective = TiltedObjective(data=data, ridge=5.0, tilt=np.zeros(2))
    assert seen_by(lambda: minimize_certified(objective, 1e-6)) == []
    assert seen_by(lambda: minimize_certified(objective, 1e-6, iterations=8)) == [(i, 8) for i in range(1, 9)]


def test_the_runs_of_an_audit_are_followed() -> None:
    target = AuditTarget(
        prepare_run=lambda X, y: lambda rng: rng.standard_normal(2), claim=None, problem=None
    )
    work = seen_by(
        lambda: collect_outputs(target, (np.zeros((1, 1)), np.zeros(1)), 5, np.random.default_rng(0), "x")
    )
    assert work == [(i, 4) for i in range(1, 5)]  # the first run, which says the shape, comes before


def test_a_log_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_progress, "SECONDS_BETWEEN_LOG_LINES", 0.0)
    with _progress.log_to_stderr():
        list(_progress.iterate_with_progress(range(2), "steps"))
        list(_progress.iterate_with_progress(range(2), "draws", private=True))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("steps: 1 of 2 after 0 s, about")
    assert lines[1] == "steps: 2 of 2 after 0 s"
    assert lines[2:] == ["draws: still at work after 0 s"] * 2  # how many were accepted is not told


def test_a_log_gets_nothing_unasked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_progress, "SECONDS_BETWEEN_LOG_LINES", 0.0)
    list(_progress.iterate_with_progress(range(2), "steps"))
    with _progress.log_to_stderr(), _progress.progress(quiet=True):
        list(_progress.iterate_with_progress(range(2), "steps"))
    list(_progress.iterate_with_progress(range(2), "steps"))
    assert capsys.readouterr().err == ""
    assert not _progress.LOGGER.handlers


def test_a_program_asks_for_the_lines_as_of_any_library(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_progress, "SECONDS_BETWEEN_LOG_LINES", 0.0)
    caplog.set_level("INFO", logger="dplangevin")
    list(_progress.iterate_with_progress(range(1), "steps"))
    assert caplog.messages == ["steps: 1 of 1 after 0 s"]
