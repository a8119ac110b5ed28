"""Files that a command writes: checked before anything is charged, and never lost once it is paid for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import typer

from dplangevin.errors import DplangevinError, InvalidParameter

_SQLITE = "sqlite:///"


def ready(
    files: Mapping[str, Path | None],
    *,
    reads: Iterable[Path | None] = (),
    ledger: str | None = None,
    sign: Path | None = None,
) -> None:
    """Refuse outputs (flag to path) that cannot be written, that a command also reads, or that are one file twice.

    A key that cannot sign is refused as well.
    """
    taken = {_place(path): "a file that the command reads" for path in (*reads, sign) if path is not None}
    if sign is not None:
        from dplangevin.signing import Signer

        Signer(sign)
    if ledger is not None and ledger.startswith(_SQLITE):
        taken[_place(Path(ledger.removeprefix(_SQLITE)))] = "the ledger"
    for flag, path in files.items():
        if path is None:
            continue
        if flag == "--report":
            from dplangevin.report.document import checked_path

            checked_path(path)  # the suffix
        place = _place(path)
        if place in taken:
            raise InvalidParameter(f"{flag} {str(path)!r} is {taken[place]}; choose another name.")
        taken[place] = f"the file of {flag}"
        if path.is_dir():
            raise InvalidParameter(f"{flag} {str(path)!r} is a directory; give the name of a file.")
        if not place.parent.is_dir():
            raise InvalidParameter(f"{flag}: the directory of {str(path)!r} does not exist; create it first.")
        if path.exists() and not os.access(path, os.W_OK):
            raise InvalidParameter(f"{flag} {str(path)!r} cannot be written: permission denied.")
        if path.is_file() or not path.exists():  # written beside, and renamed
            _try(flag, place.parent)


def folder_ready(flag: str, folder: Path | None) -> None:
    """Make the directory, and refuse one that cannot be written in."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameter(
            f"{flag}: the directory {str(folder)!r} cannot be made: {error.strerror}."
        ) from None
    _try(flag, folder)


def deliver(write: Callable[[Path], object], output: Path, what: str, text: Callable[[], str]) -> None:
    """Write what was paid for; where that fails after all, beside, here or in the temporary folder, and say where."""
    try:
        write(output)
        return
    except OSError as error:
        reason = error.strerror or type(error).__name__
    said = f"{what} could not be written to {output} ({reason}). It is paid for and not lost:"
    for place in _elsewhere(output):
        try:
            write(place)
        except OSError:
            continue
        raise DplangevinError(f"{said} it was saved as {place}; move it from there.")
    typer.echo(text())
    raise DplangevinError(f"{said} it was printed; keep that.")


def _elsewhere(output: Path) -> Iterator[Path]:
    beside = output.with_name(f"{output.stem}.rescued{output.suffix}")
    for place in (beside, Path.cwd() / beside.name):
        if not place.exists():
            yield place
    try:
        yield Path(tempfile.mkdtemp(prefix="dplangevin-")) / output.name
    except OSError:
        return


def _place(path: Path) -> Path:
    return path.expanduser().resolve()


def _try(flag: str, folder: Path) -> None:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".dplangevin-"):
            pass
    except OSError as error:
        raise InvalidParameter(
            f"{flag}: nothing can be written in {str(folder)!r}: {error.strerror}."
        ) from None
