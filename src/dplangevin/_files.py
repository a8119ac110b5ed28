"""File access: reading with a size limit, atomic replacement, and locks that one run holds at a time."""

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
except ImportError:  # this system has no file locks
    fcntl = None  # type: ignore[assignment]

MEGABYTE = 2**20
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
STATE_VARIABLE = "DPLANGEVIN_STATE"
_warned_of_state_folder: set[str] = set()


def state_folder(name: str) -> Path | None:
    """Return the user's own folder (mode 0700) for data that must outlive a process; None where there is none.

    It is `dplangevin/<name>` in DPLANGEVIN_STATE ("off" disables it), XDG_STATE_HOME or ~/.local/state. A folder that
    cannot be written gives one warning per process, which names the protection that is lost; the run continues.
    """
    stated_folder = os.environ.get(STATE_VARIABLE)
    if stated_folder == "off":
        return None
    try:
        base = stated_folder or os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        folder = Path(base).expanduser().absolute() / "dplangevin" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a user without a home
        if name not in _warned_of_state_folder:
            _warned_of_state_folder.add(name)
            warnings.warn(
                f"the folder for the state of this user cannot be written ({_describe_os_error(error)}): "
                f"{_WITHOUT_STATE_FOLDER.get(name, name)}. Name another folder in {STATE_VARIABLE}, or turn "
                f"this off with {STATE_VARIABLE}=off.",
                UserWarning,
                stacklevel=2,
            )
        return None
    return folder


_WITHOUT_STATE_FOLDER = {
    "heads": "an older copy of a ledger is not noticed by later processes",
    "pending": "a result whose process is killed cannot be found again",
    "results": "results for standard output wait in the folder for temporary files",
    "checkpoints": "an interrupted run cannot be resumed",
}
"""What is lost without each subfolder, as the warning states it."""


def read_text(
    path: str | Path, what: str, *, max_bytes: int = 64 * MEGABYTE, keep_byte_order_mark: bool = False
) -> str:
    """Return the text of a UTF-8 file of at most `max_bytes`.

    A byte order mark is dropped, unless `keep_byte_order_mark` asks for the text exactly as it is. `what` names the
    file in errors.
    """
    try:
        with Path(path).open("rb") as file:
            content = _read_at_most(file, max_bytes)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise InvalidParameter(f"{what} {str(path)!r} cannot be read: {_describe_os_error(error)}.") from None
    return _decode_text(
        content, f"{what} {str(path)!r}", max_bytes, "utf-8" if keep_byte_order_mark else "utf-8-sig"
    )


def read_json(path: str | Path, what: str, *, max_bytes: int = 64 * MEGABYTE) -> Any:
    """Return the JSON value in a file, parsed strictly."""
    return _plain.parse_json(read_text(path, what, max_bytes=max_bytes), f"{what} {str(path)!r}")


def read_private_text(path: Path, what: str, *, max_bytes: int) -> str:
    """Return the text of a regular file that the user owns and nobody else may read; symbolic links are refused."""
    with os.fdopen(os.open(path, os.O_RDONLY | _NO_FOLLOW), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise InvalidParameter(
                f"{path} is not {what}: it is no regular file. Nothing was read or charged."
            )
        if os.name == "posix" and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
            raise InvalidParameter(
                f"{path} belongs to another user, or other users may read it, and then they can undo the "
                "noise. Delete it to start again, which is charged again; nothing was read or charged."
            )
        return _decode_text(_read_at_most(file, max_bytes), str(path), max_bytes)


@contextmanager
def replace_atomically(path: str | Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield the path of a draft to write, and rename it to `path` afterwards: a reader sees the old or the new file.

    A symbolic link stays, and its target is replaced. The mode of an existing file is kept; a new file has `mode`
    within the user's mask.
    """
    target = Path(path)
    if target.exists() and not target.is_file():  # a pipe or a terminal
        yield target
        return
    target = target.resolve()
    draft = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.new")
    with _write_then_rename(draft, target, mode):
        if target.exists():
            draft.chmod(stat.S_IMODE(target.stat().st_mode))
        yield draft


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically."""
    with replace_atomically(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="")


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a binary file atomically."""
    with replace_atomically(path) as draft:
        draft.write_bytes(content)


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 atomically, while its run holds the lock; a symbolic link is replaced by a file."""
    draft = draft_path(path)
    draft.unlink(missing_ok=True)
    with _write_then_rename(draft, path, 0o600):
        draft.write_text(text, encoding="utf-8")


def draft_path(path: Path) -> Path:
    """Return the path at which `write_private` writes before it renames."""
    return path.with_name(path.name + ".new")


@contextmanager
def _write_then_rename(draft: Path, target: Path, mode: int) -> Iterator[None]:
    """Create the draft, let the caller write it, and rename it to the target once it is on the disk."""
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        yield
        _sync_to_disk(draft, os.O_RDWR)
        os.replace(draft, target)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder to the disk, so that its file names survive a power cut, where the system supports it."""
    with suppress(OSError):
        _sync_to_disk(folder, os.O_RDONLY)


def _sync_to_disk(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileLock:
    """A lock on a file, held by one run in `<file>.lock`; the system frees it when the process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._descriptor: int | None = None
        while fcntl is not None and self._descriptor is None:
            self._descriptor = self._try_lock(path)

    def _try_lock(self, path: Path) -> int | None:
        """Return the descriptor that holds the lock; None where its previous holder removed the file meanwhile."""
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
                    f"{path} is in use by another run; wait for it, or give another file. Nothing was read "
                    "or charged."
                ) from None
            raise
        os.close(descriptor)
        return None

    def close(self) -> None:
        """Free the lock; a second call does nothing."""
        if self._descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None


def wait_for_lock(descriptor: int) -> None:
    """Wait until no other process holds the lock on this open file; closing the file frees it."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _read_at_most(file: BinaryIO, max_bytes: int) -> bytes | None:
    """Return the content of a file; None where it is larger than `max_bytes`."""
    if os.fstat(file.fileno()).st_size > max_bytes:  # 0 for a pipe
        return None
    content = file.read(max_bytes + 1)
    return content if len(content) <= max_bytes else None


def _decode_text(content: bytes | None, what: str, max_bytes: int, encoding: str = "utf-8-sig") -> str:
    if content is None:
        raise InvalidParameter(
            f"{what} is larger than {max_bytes / MEGABYTE:g} megabytes, so it is not read."
        )
    try:
        return content.decode(encoding)  # editors add a byte order mark, which utf-8-sig drops
    except ValueError:
        raise InvalidParameter(f"{what} is not text in UTF-8.") from None


def _describe_os_error(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
