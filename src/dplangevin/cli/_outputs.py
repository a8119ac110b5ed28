"""Files that a command writes: checked before the budget is charged, and delivered once it has been."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dplangevin import _files
from dplangevin.cli.option_groups import BudgetOptions
from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:
    from dplangevin.accounting.delivery import Delivery

_SQLITE_PREFIX = "sqlite:///"
_PROBE_BYTES = bytes(2**16)  # a small model: a full disk is noticed before the charge
COMMAND_WORDS: ContextVar[Sequence[str]] = ContextVar("dplangevin_command", default=())
"""Arguments of the command line: the same arguments in the same folder are the same command."""


def check_outputs(
    path_by_flag: Mapping[str, Path | None],
    *,
    reads: Iterable[Path | None] = (),
    ledger: str | None = None,
    sign: Path | None = None,
) -> None:
    """Check that outputs (path by flag) can be written, are not also read by the command, and are distinct files.

    The signing key is checked as well.
    """
    used_paths = {
        _resolve_path(path): "a file that the command reads" for path in (*reads, sign) if path is not None
    }
    if sign is not None:
        from dplangevin.signing import Signer

        Signer(sign)
    if ledger is not None and ledger.startswith(_SQLITE_PREFIX):
        used_paths[_resolve_path(Path(ledger.removeprefix(_SQLITE_PREFIX)))] = "the ledger"
    for flag, path in path_by_flag.items():
        if path is None:
            continue
        if flag == "--report":
            from dplangevin.report.document import check_report_path

            check_report_path(path)  # the suffix
        resolved = _resolve_path(path)
        if resolved in used_paths:
            raise InvalidParameter(f"{flag} {str(path)!r} is {used_paths[resolved]}; choose another name.")
        used_paths[resolved] = f"the file of {flag}"
        if path.is_dir():
            raise InvalidParameter(f"{flag} {str(path)!r} is a directory; give the name of a file.")
        if not resolved.parent.is_dir():
            raise InvalidParameter(f"{flag}: the directory of {str(path)!r} does not exist; create it first.")
        if path.exists() and not os.access(path, os.W_OK):
            raise InvalidParameter(f"{flag} {str(path)!r} cannot be written: permission denied.")
        if path.is_file() or not path.exists():  # the file is written under another name, then renamed
            _check_writable(flag, resolved.parent)


def prepare_folder(flag: str, folder: Path | None) -> None:
    """Create a directory and check that files can be written in it."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameter(
            f"{flag}: the directory {str(folder)!r} cannot be created: {error.strerror}."
        ) from None
    _check_writable(flag, folder)


@contextmanager
def deliver_results(budget_options: BudgetOptions) -> Iterator[Delivery]:
    """Yield the delivery of a command's results, after pending results of earlier commands on the same ledger."""
    from dplangevin.accounting.delivery import Delivery, deliver_pending, fingerprint_command

    command_words = COMMAND_WORDS.get()
    fingerprint = fingerprint_command(command_words, os.getcwd())
    display_url = None
    if budget_options.ledger is not None and budget_options.dataset is not None:
        from dplangevin.ledger import Ledger

        ledger = Ledger.open(budget_options.ledger)
        display_url = ledger.display_url
        if deliver_pending(display_url, ledger.dataset, print_note, fingerprint=fingerprint):
            raise typer.Exit
    with Delivery(
        next(iter(command_words), "?"), fingerprint, display_url, budget_options.dataset, print_note
    ) as delivery:
        yield delivery


def print_note(message: str) -> None:
    """Print a note on a result that was already charged: even with --quiet, and never as an error."""
    with suppress(OSError):
        typer.echo(f"note: {message}", err=True)


def deliver_text(delivery: Delivery, name: str, output: Path | None, text: str) -> None:
    """Deliver a text to a file, or to standard output where no file is named."""
    delivery.add_result(name, output, lambda path: _files.write_text(path, text), lambda: text)


def _resolve_path(path: Path) -> Path:
    return path.expanduser().resolve()


def _check_writable(flag: str, folder: Path) -> None:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".dplangevin-") as file:
            file.write(_PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InvalidParameter(
            f"{flag}: nothing can be written in {str(folder)!r}: {error.strerror}."
        ) from None
