"""Releases: the command of a draft runs once, in a folder of its own, and outlives the server that started it.

The folder is created under the draft's name before the command starts, which only one request can do. The command is
`dplangevin fit`, `rashomon` or `count`: it charges the ledger, and delivers its result as every command does (see
`accounting.delivery`). It holds a lock on a file in the folder while it lives, so that a later server knows. What a
killed command was charged for, a later server delivers by giving the same command again; it never does so where that
would be charged.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dplangevin import _files
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.ui.drafts import COUNTS, DRAFT_ID, REGION, Draft, draft_from_plain

REQUEST_FILE, LOG_FILE, ANSWER_FILE, LOCK_FILE = "request.json", "log.txt", "answer.json", "run.lock"
CHECKPOINT_FILE = "run.state"
_RESULT_FILE = {COUNTS: "counts.csv", REGION: "report.html"}
_MAX_LOG_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Release:
    """One release: its folder, its draft, and the arguments of its command."""

    folder: Path
    draft: Draft
    arguments: tuple[str, ...]
    ledger: str

    @property
    def id(self) -> str:
        """The name of the release, which is that of its draft."""
        return self.draft.id

    @property
    def result_path(self) -> Path:
        """The file that exists exactly when the result was delivered."""
        return self.folder / _RESULT_FILE.get(self.draft.model, "model.json")

    @property
    def state(self) -> str:
        """Whether the release is "running", "done" or "failed"."""
        if is_locked(self.folder / LOCK_FILE):
            return "running"
        return "done" if self.result_path.exists() else "failed"

    def answer(self) -> dict[str, Any] | None:
        """Return what the command printed as JSON; None where it printed nothing, as after a resumed delivery."""
        try:
            plain = json.loads((self.folder / ANSWER_FILE).read_text())
        except (OSError, ValueError):
            return None
        return plain if isinstance(plain, dict) else None

    def log_lines(self) -> list[str]:
        """Return the last lines that the command wrote to standard error: notes, warnings, progress and errors."""
        try:
            with (self.folder / LOG_FILE).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _MAX_LOG_BYTES))
                return file.read().decode(errors="replace").splitlines()
        except OSError:
            return []

    def failure_text(self) -> str:
        """Return the sentences on why there is no result, and what was charged."""
        lines = [line for line in self.log_lines() if line.startswith(("error:", "note:", " - "))]
        if lines:
            return " ".join(line.partition(": ")[2] or line for line in lines[-6:])
        if (
            self.folder / CHECKPOINT_FILE
        ).exists():  # it is made before the charge and removed after the delivery
            return "The run was interrupted. If the ledger shows its charge, it can be finished without another one."
        return "The run ended before it began; nothing was read and nothing was charged. Release again."


class ReleaseRunner:
    """Starts commands and finds their releases again.

    Parameters
    ----------
    folder : of all releases, one folder each.
    ledger : URL of the ledger that is charged.
    """

    def __init__(self, folder: Path, ledger: str) -> None:
        self._folder, self.ledger = Path(os.path.realpath(folder)), ledger
        self._children: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self.notes: list[str] = []

    def find(self, release_id: str) -> Release | None:
        """Return a release by its name; None where there is none."""
        if DRAFT_ID.fullmatch(release_id) is None:
            return None
        folder = self._folder / release_id
        try:
            plain = _files.read_json(folder / REQUEST_FILE, "the release")
            draft = draft_from_plain(plain["draft"])
            return Release(
                folder=folder, draft=draft, arguments=tuple(plain["arguments"]), ledger=plain["ledger"]
            )
        except (DplangevinError, OSError, KeyError, TypeError):
            return None

    def list_releases(self) -> list[Release]:
        """Return all releases, the newest first."""
        names = sorted((path.parent.name for path in self._folder.glob(f"*/{REQUEST_FILE}")), reverse=True)
        return [release for name in names if (release := self.find(name)) is not None]

    def is_released(self, draft: Draft) -> bool:
        """Return whether the release of this draft was started, now or ever."""
        return (self._folder / draft.id).exists()

    def start(self, draft: Draft) -> bool:
        """Start the release of a draft; return False where it was started before, which charges nothing again."""
        folder = self._folder / draft.id
        if _files.state_folder("pending") is None:
            raise InvalidParameter(
                "no record of a charge can be kept, because the folder for the state of this user is turned off or "
                f"cannot be written: name another one in {_files.STATE_VARIABLE}, and start the page again. Nothing "
                "was charged."
            )
        with self._lock:
            self._reap_children()
            if folder.exists():
                return False
            arguments = draft.command_arguments(self.ledger)
            partial = Path(tempfile.mkdtemp(prefix=".new-", dir=self._folder))
            try:
                draft.build_schema().save(partial / "schema.json")
                request = {"draft": asdict(draft), "arguments": arguments, "ledger": self.ledger}
                _files.write_text(partial / REQUEST_FILE, json.dumps(request, indent=1))
                os.rename(partial, folder)  # only one request, of whichever server, succeeds
            except OSError:
                shutil.rmtree(partial, ignore_errors=True)
                if folder.exists():
                    return False
                raise
            except DplangevinError:
                shutil.rmtree(partial, ignore_errors=True)
                raise
            self._spawn(folder, arguments)
        return True

    def _spawn(self, folder: Path, arguments: list[str]) -> None:
        """Start a command that holds the folder's lock until it ends, in a session of its own."""
        lock = os.open(folder / LOCK_FILE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            _take_lock(lock)
            with (folder / LOG_FILE).open("ab") as log, (folder / ANSWER_FILE).open("wb") as answer:
                self._children.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "dplangevin.cli.main", *arguments],
                        cwd=folder,
                        stdin=subprocess.DEVNULL,
                        stdout=answer,
                        stderr=log,
                        pass_fds=(lock,),
                        start_new_session=True,  # the end of the server is not the end of what it was charged for
                    )
                )
        finally:
            os.close(lock)  # the command holds it now

    def _reap_children(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]

    def deliver_interrupted(self) -> list[Release]:
        """Deliver what killed commands were charged for; return the releases whose command runs again for it."""
        unfinished = [release for release in self.list_releases() if release.state == "failed"]
        if not unfinished:
            return []
        try:
            return self._resume(unfinished)
        except DplangevinError as error:
            self.notes.append(str(error))
            return []

    def resume(self, release: Release) -> bool:
        """Finish a release that was charged; return False where it was not, or left nothing to be finished from."""
        return bool(self._resume([release]))

    def _resume(self, releases: list[Release]) -> list[Release]:
        """Place results that are complete, then give the commands again that have a checkpoint of a charged run.

        In this order: a command places the complete results of all others, so that one of them, given again, would
        find nothing pending and be charged.
        """
        from dplangevin.accounting.delivery import (
            deliver_pending,
            fingerprint_command,
            has_deliverable_charge,
        )
        from dplangevin.ledger import Ledger

        ledger, resumed = Ledger.open(self.ledger), []
        with self._lock:
            deliver_pending(ledger.display_url, ledger.dataset, self.notes.append)
            for release in releases:
                fingerprint = fingerprint_command(release.arguments, str(release.folder))
                if release.state != "failed" or not has_deliverable_charge(fingerprint, ledger.dataset):
                    continue
                self._spawn(release.folder, list(release.arguments))
                resumed.append(release)
                self.notes.append(
                    f"The release of {Path(release.draft.file).name} was charged and interrupted; its run goes on "
                    "and is not charged again."
                )
        return resumed


def is_locked(path: Path) -> bool:
    """Return whether a living command holds the lock of its folder."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _take_lock(descriptor: int) -> None:
    """Take the lock; a request that looks whether it is taken may hold it for an instant."""
    for _ in range(100):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.01)
    raise DplangevinError("another run of this release is at work; wait for it.")
