"""Progress: a bar with the remaining time after two seconds on terminals, a line now and then in logs, a callback."""

from __future__ import annotations

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
DELAY = 2.0  # seconds before a bar appears
EVERY = 10.0  # seconds between the lines of a log


@dataclass(frozen=True, kw_only=True)
class _Watch:
    callback: Callback | None = None
    quiet: bool = False
    log: bool = False


_WATCH: ContextVar[_Watch | None] = ContextVar("dplangevin_watch", default=None)
_RUNNING = local()  # only the outermost loop of a thread is shown


@contextmanager
def watching(callback: Callback | None = None, *, quiet: bool = False, log: bool = False) -> Iterator[None]:
    """Follow long runs inside the block.

    callback(step, total) is called after every step, and is told nothing else: neither number depends on a
    record. quiet=True shows no bar. log=True writes a line every ten seconds where standard error is no terminal, as in
    a batch job; commands do. An error raised by the callback stops the run, and what was charged for it
    stays charged.

    Examples
    --------
    >>> with watching(lambda step, total: print(step, "of", total)):
    ...     for item in progress("ab", "letters"):
    ...         pass
    1 of 2
    2 of 2
    """
    token = _WATCH.set(_Watch(callback=callback, quiet=quiet, log=log))
    try:
        yield
    finally:
        _WATCH.reset(token)


def progress(
    work: Iterable[T], label: str, *, total: int | None = None, private: bool = False
) -> Iterator[T]:
    """The items of `work`, with a bar once two seconds have passed if standard error is a terminal.

    total : number of items, about; None asks for len(work). private=True, for a count of records or a pace that the
        data set (draws as they are accepted), calls no callback and puts no count into a log.
    """
    if getattr(_RUNNING, "yes", False):
        yield from work
        return
    watch = _WATCH.get() or _Watch()
    callback = None if private else watch.callback
    terminal = sys.stderr is not None and sys.stderr.isatty()
    shown = not watch.quiet and terminal
    logged = watch.log and not watch.quiet and not terminal
    total = len(work) if total is None else total  # type: ignore[arg-type]
    start, bar = time.monotonic(), None
    said = start
    _RUNNING.yes = True
    try:
        for done, item in enumerate(work, 1):
            yield item
            if callback is not None:
                callback(done, total)
            if shown and (bar is not None or time.monotonic() - start > DELAY):
                bar = bar or _bar(label, total)
                bar.update(bar.task_ids[0], completed=done)
            if logged and time.monotonic() - said >= EVERY:
                said = time.monotonic()
                _say(label, said - start, None if private else (done, total))
    finally:
        _RUNNING.yes = False
        if bar is not None:
            bar.stop()


def _say(label: str, spent: float, counts: tuple[int, int] | None) -> None:
    """One line of a log, which may be kept and read by others: without counts where these depend on records."""
    words = f"{label}: still at work after {spent:.0f} s"
    if counts is not None:
        done, total = counts
        left = f", about {spent * (total - done) / done:.0f} s left" if done < total else ""
        words = f"{label}: {done:,} of {total:,} after {spent:.0f} s{left}"
    if sys.stderr is not None:
        print(words, file=sys.stderr, flush=True)


def _bar(label: str, total: int) -> Any:
    """A bar that has started; it is erased when it stops."""
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
