"""Releases: the command of a draft runs once, in a folder of its own, and outlives the server that started it.

The folder is created under the draft's name before the command starts, which only one request can do. The command is
`dplangevin fit`, `rashomon` or `count`: it charges the ledger, and delivers its result as every command does (see
`accounting.delivery`). It holds a lock on a file in the folder while it lives, so that a later server knows. What a
killed command was charged for, a later server delivers by giving the same command again; it never does so where that
would be charged. Results are shown and converted from the files in the folder.
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
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dplangevin import _files
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.ui import plans
from dplangevin.ui.drafts import (
    COUNTS,
    DRAFT_ID,
    REGION,
    Draft,
    build_notebook,
    choice_from_entry,
    command_lines,
    draft_from_plain,
    is_learned,
)

REQUEST_FILE, LOG_FILE, ANSWER_FILE, LOCK_FILE = "request.json", "log.txt", "answer.json", "run.lock"
CHECKPOINT_FILE = "run.state"
_RESULT_FILE = {COUNTS: "counts.csv", REGION: "report.html"}
_MAX_LOG_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class PageRelease:
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

    def find(self, release_id: str) -> PageRelease | None:
        """Return a release by its name; None where there is none."""
        if DRAFT_ID.fullmatch(release_id) is None:
            return None
        folder = self._folder / release_id
        try:
            plain = _files.read_json(folder / REQUEST_FILE, "the release")
            draft = draft_from_plain(plain["draft"])
            return PageRelease(
                folder=folder, draft=draft, arguments=tuple(plain["arguments"]), ledger=plain["ledger"]
            )
        except (DplangevinError, OSError, KeyError, TypeError):
            return None

    def list_releases(self) -> list[PageRelease]:
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

    def deliver_interrupted(self) -> list[PageRelease]:
        """Deliver what killed commands were charged for; return the releases whose command runs again for it."""
        unfinished = [release for release in self.list_releases() if release.state == "failed"]
        if not unfinished:
            return []
        try:
            return self._resume(unfinished)
        except DplangevinError as error:
            self.notes.append(str(error))
            return []

    def resume(self, release: PageRelease) -> bool:
        """Finish a release that was charged; return False where it was not, or left nothing to be finished from."""
        return bool(self._resume([release]))

    def _resume(self, releases: list[PageRelease]) -> list[PageRelease]:
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


RESULT_FILES = {
    "report.html": "text/html",
    "model.json": "application/json",
    "model_card.md": "text/markdown",
    "model.onnx": "application/octet-stream",
    "schema.json": "application/json",
    "learned_schema.json": "application/json",
    "counts.csv": "text/csv",
    "answer.json": "application/json",
    "commands.sh": "text/x-shellscript",
    "notebook.ipynb": "application/x-ipynb+json",
}
ONNX_MESSAGE = "ONNX files need an extra that is not installed: pip install 'dplangevin[exports]'."


def describe_result(release: PageRelease) -> dict[str, Any]:
    """Return what a finished release shows: guarantee, facts and files."""
    draft = release.draft
    if draft.model == REGION:
        plain = release.answer() or {}
        return {
            "guarantee": plain.get("guarantee"),
            "plain": plain,
            "files": ["report.html", "answer.json", "schema.json", "commands.sh", "notebook.ipynb"],
            "onnx": "",
        }
    if draft.model == COUNTS:
        rows = _count_rows_of(release)
        return {
            "guarantee": plans.plan_draft(draft).guarantee.to_dict(draft.delta),
            "plain": {},
            "count_header": rows[:1],
            "count_rows": rows[1:41],
            "n_counts": len(rows) - 1,
            "files": ["counts.csv", "schema.json", "commands.sh", "notebook.ipynb"],
            "onnx": "",
        }
    model = _load_model(str(release.result_path), release.result_path.stat().st_mtime_ns)
    names = ["report.html", "model.json", "model_card.md"]
    onnx = "" if _can_export_onnx(model) else ONNX_MESSAGE
    names += [] if onnx else ["model.onnx"]
    learned = getattr(model, "schema_", None) is not None and bool(_learned_names(draft))
    names += ["learned_schema.json"] if learned else []
    return {
        "guarantee": model.privacy_.to_dict(draft.delta),
        "plain": {},
        "learned_schema": _learned_rows(model, draft) if learned else [],
        "coefficients": _coefficient_rows(model),
        "files": [*names, "schema.json", "commands.sh", "notebook.ipynb"],
        "onnx": onnx,
    }


@lru_cache(maxsize=8)
def _load_model(path: str, modified: int) -> Any:
    from dplangevin.estimators.model_file import load_model

    return load_model(Path(path))


def _can_export_onnx(model: Any) -> bool:
    from importlib.util import find_spec

    return hasattr(model, "to_onnx") and find_spec("onnx") is not None


def _learned_names(draft: Draft) -> list[str]:
    return [name for name, choice in draft.choices if is_learned(choice)]


def _learned_rows(model: Any, draft: Draft) -> list[tuple[str, str]]:
    from dplangevin.cli.models import describe_learned

    return [(name, describe_learned(model.schema_.column(name).to_dict())) for name in _learned_names(draft)]


def _coefficient_rows(model: Any, limit: int = 12) -> list[tuple[str, float]]:
    """Return the largest coefficients of a model with one score, by the name of their column."""
    coefficients = model.coefficients() if hasattr(model, "coefficients") else {}
    flat = {str(name): value for name, value in coefficients.items() if isinstance(value, float)}
    return sorted(flat.items(), key=lambda item: -abs(item[1]))[:limit]


def _count_rows_of(release: PageRelease) -> list[list[str]]:
    import csv

    with release.result_path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def learned_answers(release: PageRelease) -> dict[str, Any]:
    """Return the answers that state what a release has learned: its schema is public now."""
    model = _load_model(str(release.result_path), release.result_path.stat().st_mtime_ns)
    schema = getattr(model, "schema_", None)
    if schema is None:
        return {}
    columns = tuple(
        replace(choice_from_entry(schema.column(name).to_dict()), role=choice.role)
        if is_learned(choice)
        else choice
        for name, choice in release.draft.choices
    )
    return {"columns": columns}


def file_content(release: PageRelease, name: str, budgets: Callable[[], dict[str, Any]]) -> bytes | str:
    """Return a file of a release; some are made from the model when they are asked for."""
    if name == "commands.sh":
        return command_lines(release, budgets().get(release.draft.dataset))
    if name == "notebook.ipynb":
        return build_notebook(release)
    if name in ("model_card.md", "model.onnx", "learned_schema.json"):
        model = _load_model(str(release.result_path), release.result_path.stat().st_mtime_ns)
        if name == "model_card.md":
            return str(model.model_card())
        if name == "learned_schema.json":
            return json.dumps(model.schema_.to_dict(), indent=1)
        if not _can_export_onnx(model):
            raise InvalidParameter(ONNX_MESSAGE)
        return export_onnx(model)
    path = release.folder / name
    if not path.is_file():
        raise InvalidParameter(f"this release has no file {name}.")
    return path.read_bytes()


def export_onnx(model: Any) -> bytes:
    """Return the model as an ONNX file."""
    exported = model.to_onnx()
    return exported if isinstance(exported, bytes) else bytes(exported.SerializeToString())


def progress_line(release: PageRelease) -> str:
    """Return the last line of the log that is neither a note nor a warning; it depends on no record."""
    lines = [
        line for line in release.log_lines() if not line.startswith(("note:", "warning:", "error:", " - "))
    ]
    return lines[-1][:200] if lines else ""
