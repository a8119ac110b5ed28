"""Results that lie on the disk under a temporary name, and how they get to their places without being lost."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dplangevin import _files, _plain

_FIELDS = {"what": _plain.words, "draft": _plain.words, "place": _plain.optional(_plain.words)}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One file or folder that a command makes; place None is standard output.

    draft : where it lies now; None where no disk took it, and `text` is all there is, for this `reason`.
    """

    what: str
    draft: Path | None
    place: Path | None
    text: str = ""
    reason: str = ""

    def to_plain(self) -> dict[str, Any]:
        """Plain data for JSON; paths are absolute, since the next process may start elsewhere."""
        return {
            "what": self.what,
            "draft": str(self.draft),
            "place": None if self.place is None else str(self.place.expanduser().absolute()),
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Result:
        """The result again."""
        read = _plain.record("result", plain, _FIELDS)
        place = None if read["place"] is None else Path(read["place"])
        return cls(what=read["what"], draft=Path(read["draft"]), place=place)


def place_all(results: Iterable[Result], say: Callable[[str], None]) -> list[str]:
    """Put results where they belong; returns what is to be said of those that are elsewhere.

    A reader that closes the pipe has what it wanted, as of any other program: it is told where the whole result is.
    """
    problems = []
    for result in results:
        try:
            words = place(result)
        except BrokenPipeError:
            silence_stdout()
            say(
                f"the reader of standard output closed it; {result.what}, paid for and not lost: {result.draft}"
            )
            continue
        problems += [] if words is None else [words]
    return problems


def place(result: Result) -> str | None:
    """Put a result where it belongs; where that fails, somewhere else. None, or one sentence on where it is."""
    if result.draft is None:
        sys.stdout.write(result.text + "\n")
        sys.stdout.flush()
        return f"{_lost(result, result.reason)} it was printed; keep that."
    try:
        if result.place is None:
            _print(result.draft)
        else:
            _move(result.draft, result.place)
        return None
    except BrokenPipeError:
        if result.place is None:
            raise
        reason = "its reader closed it"
    except OSError as error:
        reason = error.strerror or type(error).__name__
    for rescued in _elsewhere(result.draft if result.place is None else result.place):
        with suppress(OSError):
            _move(result.draft, rescued)
            return f"{_lost(result, reason)} it was saved as {rescued}; move it from there."
    return f"{_lost(result, reason)} it is in {result.draft}; move it from there."


def _lost(result: Result, reason: str) -> str:
    where = "to standard output" if result.place is None else f"to {result.place}"
    return f"{result.what} could not be written {where} ({reason}). It is paid for and not lost:"


def vacant(wanted: Path) -> Path:
    """The place, or one beside it where something is there already: a later result is not overwritten by an earlier."""
    if not wanted.exists():
        return wanted
    names = [f"{wanted.stem}.rescued{number or ''}{wanted.suffix}" for number in range(1000)]
    return next((wanted.with_name(name) for name in names if not wanted.with_name(name).exists()), wanted)


def remove(draft: Path) -> None:
    """A draft that could not be written, and whatever its writer had under other names: all hold the draft's."""
    with suppress(OSError):
        for path in [path for path in draft.parent.iterdir() if draft.name in path.name]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def silence_stdout() -> None:
    """Nobody reads the output any more: what is still in its buffer must not fail when the process ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _print(draft: Path) -> None:
    sys.stdout.write(draft.read_text(encoding="utf-8"))
    sys.stdout.flush()
    draft.unlink(missing_ok=True)


def _move(draft: Path, wanted: Path) -> None:
    """Rename where that can be done; copy as a whole where it cannot: another disk, a pipe."""
    if draft.is_dir():
        wanted.mkdir(parents=True, exist_ok=True)
        for each in sorted(draft.iterdir()):
            _move(each, wanted / each.name)
        draft.rmdir()
        return
    if not wanted.exists() or wanted.is_file():
        target = wanted.resolve()
        with suppress(OSError):
            if target.exists():
                draft.chmod(stat.S_IMODE(target.stat().st_mode))
            os.replace(draft, target)
            _files.sync_folder(target.parent)
            return
    content = draft.read_bytes()
    with _files.replacing(wanted) as copy:
        copy.write_bytes(content)
    draft.unlink(missing_ok=True)


def _elsewhere(output: Path) -> Iterator[Path]:
    beside = output.with_name(f"{output.stem}.rescued{output.suffix}")
    for rescued in (beside, Path.cwd() / beside.name):
        if not rescued.exists():
            yield rescued
    with suppress(OSError):
        yield Path(tempfile.mkdtemp(prefix="dplangevin-")) / output.name
