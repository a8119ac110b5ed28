"""Files: read within a bound, replaced as a whole or not at all, and used by one run at a time."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from dplangevin import _plain
from dplangevin.errors import DplangevinError, InvalidParameter

try:
    import fcntl
except ImportError:  # no locks on this system
    fcntl = None  # type: ignore[assignment]

MEGABYTE = 2**20
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
STATE_VARIABLE = "DPLANGEVIN_STATE"
_warned_of_state: set[str] = set()


def state_folder(name: str) -> Path | None:
    """The user's own folder (mode 0700) for what must outlive a process; None where there is none.

    It is `dplangevin/<name>` in DPLANGEVIN_STATE ("off": nowhere), XDG_STATE_HOME or ~/.local/state. A place that
    cannot be written gives one warning a process: what rests on it is weaker then, and nothing else stops.
    """
    stated = os.environ.get(STATE_VARIABLE)
    if stated == "off":
        return None
    try:
        base = stated or os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        folder = Path(base).expanduser().absolute() / "dplangevin" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a user without a home
        if name not in _warned_of_state:
            _warned_of_state.add(name)
            warnings.warn(
                f"the folder for the state of this user cannot be written ({_reason(error)}): "
                f"{_WEAKER.get(name, name)}. Name another folder in {STATE_VARIABLE}, or turn this off with "
                f"{STATE_VARIABLE}=off.",
                UserWarning,
                stacklevel=2,
            )
        return None
    return folder


_WEAKER = {
    "heads": "an older copy of a ledger is not noticed by later processes",
    "pending": "a result whose process is killed cannot be found again",
    "results": "results for standard output wait in the folder for temporary files",
    "checkpoints": "an interrupted run cannot go on",
}


def read_text(path: str | Path, what: str, *, most: int = 64 * MEGABYTE, exactly: bool = False) -> str:
    """The text of a file of at most so many bytes; exactly: a byte order mark stays, as a character of the text."""
    try:
        with Path(path).open("rb") as file:
            content = _at_most(file, most)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise InvalidParameter(f"{what} {str(path)!r} cannot be read: {_reason(error)}.") from None
    return _decoded(content, f"{what} {str(path)!r}", most, "utf-8" if exactly else "utf-8-sig")


def read_plain(path: str | Path, what: str, *, most: int = 64 * MEGABYTE) -> Any:
    """The JSON of a file, parsed strictly."""
    return _plain.parse(read_text(path, what, most=most), f"{what} {str(path)!r}")


def read_private(path: Path, what: str, *, most: int) -> str:
    """The text of a regular file that the user owns and nobody else may read; a symbolic link is not followed."""
    with os.fdopen(os.open(path, os.O_RDONLY | _NO_FOLLOW), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise InvalidParameter(
                f"{path} is not {what}: it is no regular file. Nothing was read or charged."
            )
        if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
            raise InvalidParameter(
                f"{path} belongs to another user, or others may read it, and then they can undo the noise. "
                "Delete it to begin anew, which is charged anew; nothing was read or charged."
            )
        return _decoded(_at_most(file, most), str(path), most)


@contextmanager
def replacing(path: str | Path, mode: int = 0o666) -> Iterator[Path]:
    """A draft to be written; its place then holds the old content or the new one, and never a part of it.

    A symbolic link stays, and what it points to is replaced; the mode of an existing file is kept, a new one has `mode`
    within what the user's mask leaves.
    """
    place = Path(path)
    if place.exists() and not place.is_file():  # a pipe or a terminal
        yield place
        return
    place = place.resolve()
    draft = place.with_name(f".{place.name[:200]}.{secrets.token_hex(4)}.new")
    with _renamed(draft, place, mode):
        if place.exists():
            draft.chmod(stat.S_IMODE(place.stat().st_mode))
        yield draft


def write_text(path: str | Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="")


def write_private(path: Path, text: str) -> None:
    """The same for a file that nobody else may read, under the lock of its run; a link is replaced by a file."""
    draft = draft_of(path)
    draft.unlink(missing_ok=True)
    with _renamed(draft, path, 0o600):
        draft.write_text(text, encoding="utf-8")


def draft_of(path: Path) -> Path:
    """Where `write_private` writes before it renames."""
    return path.with_name(path.name + ".new")


@contextmanager
def _renamed(draft: Path, place: Path, mode: int) -> Iterator[None]:
    """Make the draft, let it be written, and put it in its place once it is on the disk."""
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        yield
        _on_disk(draft, os.O_RDWR)
        os.replace(draft, place)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    sync_folder(place.parent)


def sync_folder(folder: Path) -> None:
    """So that the names in it survive a power cut, where the system can."""
    with suppress(OSError):
        _on_disk(folder, os.O_RDONLY)


def _on_disk(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileLock:
    """A lock beside a file (its name and .lock) that one run holds; the system frees it when the process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._descriptor: int | None = None
        while fcntl is not None and self._descriptor is None:
            self._descriptor = self._try(path)

    def _try(self, path: Path) -> int | None:
        """The descriptor that holds the lock; None where its holder removed it meanwhile."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | _NO_FOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(self._path)):
                    return descriptor
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise DplangevinError(
                    f"{path} is in use by another run; wait for it, or give another file. Nothing was read or charged."
                ) from None
            raise
        os.close(descriptor)
        return None

    def close(self) -> None:
        """Free the lock; nothing happens the second time."""
        if self._descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None


def wait_for_lock(descriptor: int) -> None:
    """Wait until no other process holds this open file; closing it lets the next one go on."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _at_most(file: BinaryIO, most: int) -> bytes | None:
    """The content; None where it is larger."""
    if os.fstat(file.fileno()).st_size > most:  # 0 for a pipe
        return None
    content = file.read(most + 1)
    return content if len(content) <= most else None


def _decoded(content: bytes | None, what: str, most: int, encoding: str = "utf-8-sig") -> str:
    if content is None:
        raise InvalidParameter(f"{what} is larger than {most / MEGABYTE:g} megabytes, so it is not read.")
    try:
        return content.decode(encoding)  # editors add a byte order mark, which utf-8-sig drops
    except ValueError:
        raise InvalidParameter(f"{what} is not text in UTF-8.") from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
