"""Results of commands: written under a temporary name first, then moved to their destination without being lost."""

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

_FIELDS = {
    "what": _plain.read_text,
    "draft": _plain.read_text,
    "place": _plain.optional_reader(_plain.read_text),
}


@dataclass(frozen=True, kw_only=True)
class PendingResult:
    """One file or folder that a command makes.

    Parameters
    ----------
    what : name of the result in messages.
    draft : its temporary path; None where it could be written nowhere, for this `reason`, and only `text` exists.
    destination : where it belongs; None is standard output.
    """

    what: str
    draft: Path | None
    destination: Path | None
    text: str = ""
    reason: str = ""

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for JSON; paths are absolute, since the next process may start in another folder."""
        return {
            "what": self.what,
            "draft": str(self.draft),
            "place": None if self.destination is None else str(self.destination.expanduser().absolute()),
        }

    @classmethod
    def from_plain(cls, plain: Any) -> PendingResult:
        """Read what `to_plain` returned."""
        read = _plain.read_record("result", plain, _FIELDS)
        destination = None if read["place"] is None else Path(read["place"])
        return cls(what=read["what"], draft=Path(read["draft"]), destination=destination)


def deliver_all(results: Iterable[PendingResult], notify: Callable[[str], None]) -> list[str]:
    """Move results to their destinations; return a message for each that had to be saved elsewhere.

    A reader that closes the pipe is no error, as in other programs: `notify` shows where the whole result is.
    """
    problems = []
    for result in results:
        try:
            problem = deliver_result(result)
        except BrokenPipeError:
            silence_stdout()
            notify(
                f"the reader of standard output closed it; {result.what}, charged and not lost: "
                f"{result.draft}"
            )
            continue
        problems += [] if problem is None else [problem]
    return problems


def deliver_result(result: PendingResult) -> str | None:
    """Move a result to its destination, or elsewhere where that fails; return None, or a message on where it is."""
    if result.draft is None:
        sys.stdout.write(result.text + "\n")
        sys.stdout.flush()
        return f"{_describe_loss(result, result.reason)} it was printed; keep that."
    try:
        if result.destination is None:
            _print_draft(result.draft)
        else:
            _move_draft(result.draft, result.destination)
        return None
    except BrokenPipeError:
        if result.destination is None:
            raise
        reason = "its reader closed the pipe"
    except OSError as error:
        reason = error.strerror or type(error).__name__
    for rescued in _fallback_paths(result.draft if result.destination is None else result.destination):
        with suppress(OSError):
            _move_draft(result.draft, rescued)
            return f"{_describe_loss(result, reason)} it was saved as {rescued}; move it from there."
    return f"{_describe_loss(result, reason)} it is in {result.draft}; move it from there."


def _describe_loss(result: PendingResult, reason: str) -> str:
    where = "to standard output" if result.destination is None else f"to {result.destination}"
    return f"{result.what} could not be written {where} ({reason}). It is charged and not lost:"


def free_path(path: Path) -> Path:
    """Return the path, or a free one beside it where a file exists: an older result must not replace a newer one."""
    if not path.exists():
        return path
    names = [f"{path.stem}.rescued{number or ''}{path.suffix}" for number in range(1000)]
    return next((path.with_name(name) for name in names if not path.with_name(name).exists()), path)


def remove_draft(draft: Path) -> None:
    """Remove a draft that could not be written, and its writer's temporary files, whose names contain the draft's."""
    with suppress(OSError):
        for path in [path for path in draft.parent.iterdir() if draft.name in path.name]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def silence_stdout() -> None:
    """Discard further output once its reader is gone, so that flushing the buffer at exit does not fail."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _print_draft(draft: Path) -> None:
    sys.stdout.write(draft.read_text(encoding="utf-8"))
    sys.stdout.flush()
    draft.unlink(missing_ok=True)


def _move_draft(draft: Path, destination: Path) -> None:
    """Rename the draft where that is possible; else (another disk, a pipe) copy it as a whole."""
    if draft.is_dir():
        destination.mkdir(parents=True, exist_ok=True)
        for path in sorted(draft.iterdir()):
            _move_draft(path, destination / path.name)
        draft.rmdir()
        return
    if not destination.exists() or destination.is_file():
        target = destination.resolve()
        with suppress(OSError):
            if target.exists():
                draft.chmod(stat.S_IMODE(target.stat().st_mode))
            os.replace(draft, target)
            _files.sync_folder(target.parent)
            return
    content = draft.read_bytes()
    with _files.replace_atomically(destination) as copy:
        copy.write_bytes(content)
    draft.unlink(missing_ok=True)


def _fallback_paths(output: Path) -> Iterator[Path]:
    neighbor = output.with_name(f"{output.stem}.rescued{output.suffix}")
    for rescued in (neighbor, Path.cwd() / neighbor.name):
        if not rescued.exists():
            yield rescued
    with suppress(OSError):
        yield Path(tempfile.mkdtemp(prefix="dplangevin-")) / output.name
