"""Progress of long runs: a bar on terminals (after two seconds), else a line in a log every ten seconds; callbacks.

Lines go to the logger "dplangevin" at level INFO, which Python hides unless a program asks for it; commands do.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import local
from typing import Any, TypeVar

T = TypeVar("T")
Callback = Callable[[int, int], object]
LOGGER = logging.getLogger("dplangevin")
SECONDS_BEFORE_BAR = 2.0
SECONDS_BETWEEN_LOG_LINES = 10.0


@dataclass(frozen=True, kw_only=True)
class _ProgressSettings:
    callback: Callback | None = None
    quiet: bool = False


_SETTINGS: ContextVar[_ProgressSettings | None] = ContextVar("dplangevin_watch", default=None)
_IS_RUNNING = local()  # only the outermost loop of a thread is shown


@contextmanager
def progress(callback: Callback | None = None, *, quiet: bool = False) -> Iterator[None]:
    """Report the progress of long runs inside the block.

    Parameters
    ----------
    callback : callback(step, total) is called after every step; neither number depends on a record. An error that it
        raises stops the run, and the charge of the run stays.
    quiet : show no bar and log nothing.

    Examples
    --------
    >>> with progress(lambda step, total: print(step, "of", total)):
    ...     for item in iterate_with_progress("ab", "letters"):
    ...         pass
    1 of 2
    2 of 2
    """
    token = _SETTINGS.set(_ProgressSettings(callback=callback, quiet=quiet))
    try:
        yield
    finally:
        _SETTINGS.reset(token)


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Show the lines of the log on standard error inside the block, as a command does."""
    handler, level = logging.StreamHandler(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)


def iterate_with_progress(
    work: Iterable[T], label: str, *, total: int | None = None, private: bool = False
) -> Iterator[T]:
    """Yield the items of `work`, with a bar once two seconds have passed if standard error is a terminal.

    Parameters
    ----------
    total : approximate number of items; None takes len(work).
    private : the count depends on records (numbers of records, draws until acceptance): no callback is called and no
        count is written to a log.
    """
    if getattr(_IS_RUNNING, "yes", False):
        yield from work
        return
    settings = _SETTINGS.get() or _ProgressSettings()
    callback = None if private else settings.callback
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    shows_bar = not settings.quiet and on_terminal
    writes_log = not settings.quiet and not on_terminal and LOGGER.isEnabledFor(logging.INFO)
    total = len(work) if total is None else total  # type: ignore[arg-type]
    start, bar = time.monotonic(), None
    last_log = start
    _IS_RUNNING.yes = True
    try:
        for done, item in enumerate(work, 1):
            yield item
            if callback is not None:
                callback(done, total)
            if shows_bar and (bar is not None or time.monotonic() - start > SECONDS_BEFORE_BAR):
                bar = bar or _start_progress_bar(label, total)
                bar.update(bar.task_ids[0], completed=done)
            if writes_log and time.monotonic() - last_log >= SECONDS_BETWEEN_LOG_LINES:
                last_log = time.monotonic()
                _log_progress(label, last_log - start, None if private else (done, total))
    finally:
        _IS_RUNNING.yes = False
        if bar is not None:
            bar.stop()


def _log_progress(label: str, elapsed: float, counts: tuple[int, int] | None) -> None:
    """Write one line of a log, which others may read: without counts where these depend on records."""
    line = f"{label}: still at work after {elapsed:.0f} s"
    if counts is not None:
        done, total = counts
        left = f", about {elapsed * (total - done) / done:.0f} s left" if done < total else ""
        line = f"{label}: {done:,} of {total:,} after {elapsed:.0f} s{left}"
    LOGGER.info(line)


def _start_progress_bar(label: str, total: int) -> Any:
    """Start a progress bar, which is erased when it stops."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task(label, total=total)
    bar.start()
    return bar
