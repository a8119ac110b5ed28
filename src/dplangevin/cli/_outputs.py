"""Files that a command writes: checked before anything is charged, and never lost once it is paid for."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dplangevin import _files
from dplangevin.cli.groups import Payer
from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:
    from dplangevin.privacy.delivery import Delivery

_SQLITE = "sqlite:///"
_ROOM = bytes(2**16)  # a small model: a full disk is noticed before the charge
COMMAND: ContextVar[Sequence[str]] = ContextVar("dplangevin_command", default=())
"""The words of the command line: the same words in the same folder are the same command."""


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


@contextmanager
def delivering(payer: Payer) -> Iterator[Delivery]:
    """The delivery of a command's results; what an earlier command on the same ledger left is settled first."""
    from dplangevin.privacy.delivery import Delivery
    from dplangevin.privacy.settlement import settle

    words = COMMAND.get()
    fingerprint = hashlib.sha256(json.dumps([os.getcwd(), *words]).encode()).hexdigest()
    shown = None
    if payer.ledger is not None and payer.dataset is not None:
        from dplangevin.ledger import Ledger

        ledger = Ledger.open(payer.ledger)
        shown = ledger.shown
        if settle(shown, ledger.dataset, note, fingerprint=fingerprint):
            raise typer.Exit
    with Delivery(next(iter(words), "?"), fingerprint, shown, payer.dataset, note) as delivery:
        yield delivery


def note(words: str) -> None:
    """A sentence on a result that somebody paid for: said even where the command is quiet, and never an error."""
    with suppress(OSError):
        typer.echo(f"note: {words}", err=True)


def put_text(delivery: Delivery, what: str, place: Path | None, text: str) -> None:
    """A result that is a text; on standard output where no place is named."""
    delivery.put(what, place, lambda path: _files.write_text(path, text), lambda: text)


def _place(path: Path) -> Path:
    return path.expanduser().resolve()


def _try(flag: str, folder: Path) -> None:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".dplangevin-") as file:
            file.write(_ROOM)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InvalidParameter(
            f"{flag}: nothing can be written in {str(folder)!r}: {error.strerror}."
        ) from None
