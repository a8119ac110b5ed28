"""Progress: bars after two seconds, on terminals only; callbacks are told the step and the total."""

from __future__ import annotations

import io
import sys

import pytest

from dplangevin import _progress
from dplangevin._progress import progress, watching


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
    monkeypatch.setattr(_progress, "DELAY", 0.0)
    assert list(progress(range(5), "noisy steps")) == [0, 1, 2, 3, 4]
    assert "noisy steps" in terminal.getvalue()
    assert "5/5" in terminal.getvalue()


def test_short_runs_show_nothing(monkeypatch) -> None:
    terminal = faked_terminal(monkeypatch)
    assert list(progress([3, 1], "noisy steps")) == [3, 1]
    assert terminal.getvalue() == ""


def test_pipes_and_quiet_show_nothing(monkeypatch) -> None:
    terminal = faked_terminal(monkeypatch)
    monkeypatch.setattr(_progress, "DELAY", 0.0)
    with watching(quiet=True):
        list(progress(range(5), "noisy steps"))
    assert terminal.getvalue() == ""
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    list(progress(range(5), "noisy steps"))
    assert terminal.getvalue() == ""


def test_callbacks_see_the_step_and_the_total_of_the_outermost_loop() -> None:
    seen: list[tuple[int, int]] = []
    with watching(lambda step, total: seen.append((step, total))):
        for _ in progress(range(3), "outer"):
            list(progress(range(7), "inner"))
        list(progress(range(9), "blocks of records", private=True))
    list(progress(range(2), "outside"))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_an_error_stops_the_loop_and_leaves_the_next_one_intact() -> None:
    def stop(step: int, total: int) -> None:
        raise KeyError("enough")

    with watching(stop), pytest.raises(KeyError, match="enough"):
        list(progress(range(3), "outer"))
    seen: list[int] = []
    with watching(lambda step, total: seen.append(step)):
        list(progress(range(3), "outer"))
    assert seen == [1, 2, 3]


def test_a_loop_left_early_is_closed() -> None:
    for item in progress(range(3), "outer"):
        if item == 1:
            break
    seen: list[int] = []
    with watching(lambda step, total: seen.append(step)):
        list(progress(range(2), "outer"))
    assert seen == [1, 2]
