"""RunState: a file from which an interrupted run goes on, with the same noise and without paying again."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin._rng import generator
from dplangevin.errors import BudgetExceeded, DplangevinError, InvalidParameter
from dplangevin.privacy.plan import Price
from dplangevin.privacy.spender import Priced, Spender, TokenSpender

Floats = NDArray[np.float64]
StatePath: TypeAlias = str | os.PathLike[str] | None
VERSION = 2
SAVE_EVERY = 60.0  # seconds


@dataclass(kw_only=True)
class Position:
    """Where a walk stands: private until the plan's last step."""

    step: int
    theta: Floats
    previous: Floats
    total: Floats
    iterates: dict[int, Floats] = field(default_factory=dict)


class RunState:
    """The state of one run in a file of mode 0600, replaced atomically, deleted when the run has ended.

    Whoever reads the file can undo the noise: it holds the state of the generator, and iterates that no promise
    covers. A run that goes on draws the same noise again, so it must see the same records and the same plan: both are
    checked by a hash. Its charge is the one made when it began. A run that saves no position starts again, with the
    same noise and the same charge, so that it gives the same release.

    Parameters
    ----------
    path : of the file. plan, more : what the run is; all of it is public and must be the same when it goes on.
    save_every : seconds between two saved positions.
    """

    def __init__(
        self, path: str | os.PathLike[str], plan: Price, *more: object, save_every: float = SAVE_EVERY
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise InvalidParameter(f"state must be the path of a file, got {type(path).__name__}.")
        self.path = Path(path)
        self._save_every = _check.nonnegative("save_every", save_every)
        public = (VERSION, getattr(plan, "problem", None), plan.schedule, plan.theorem, plan.delta, *more)
        self._plan = hashlib.sha256(repr(public).encode()).hexdigest()
        self._content: dict[str, Any] = {}
        self._saved = time.monotonic()

    @classmethod
    def at(
        cls, path: StatePath, plan: Price, *more: object, save_every: float = SAVE_EVERY
    ) -> RunState | None:
        """The state in this file; None when no file is named."""
        return None if path is None else cls(path, plan, *more, save_every=save_every)

    def begin(self, random_state: object) -> tuple[np.random.Generator, bool]:
        """The generator at its first draw, and whether a user seeded it; from the file when there is one."""
        if self.path.exists():
            self._load()
        else:
            rng, seeded = generator(random_state)
            # A generator that will be used again must not give the same noise again; and a file holds PCG64.
            if rng is random_state or not isinstance(rng.bit_generator, np.random.PCG64):
                rng = np.random.default_rng(rng.integers(0, 2**32, size=8, dtype=np.uint32))
            self._content = {
                "version": VERSION,
                "plan": self._plan,
                "salt": os.urandom(16).hex(),
                "data": None,
                "generator": rng.bit_generator.state,
                "seeded": seeded,
                "token": None,
                "paid": False,
                "position": None,
            }
            self._write()
            warnings.warn(
                f"{self.path} holds the noise of this run, and iterates that are not private; keep it to yourself. "
                "It is deleted when the run ends.",
                UserWarning,
                stacklevel=3,
            )
        return _rebuilt(self._content["generator"]), bool(self._content["seeded"])

    def _load(self) -> None:
        try:
            with self.path.open(encoding="utf-8") as file:
                self._check_owner(os.fstat(file.fileno()))
                content = json.load(file, object_hook=_arrays)
            same = content["version"] == VERSION and content["plan"] == self._plan
        except InvalidParameter:
            raise
        except (OSError, ValueError, KeyError, TypeError):
            raise InvalidParameter(
                f"{self.path} is not the state of a run; nothing was read or charged."
            ) from None
        if not same:
            raise InvalidParameter(
                f"{self.path} belongs to a run of another plan; give that plan, or another file. Nothing was charged."
            )
        self._content = content

    def _check_owner(self, found: os.stat_result) -> None:
        """Noise that someone else wrote, or could read, hides nothing from them."""
        if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
            raise InvalidParameter(
                f"{self.path} belongs to another user, or others may read it, and then they can undo the noise. "
                "Delete it to begin anew, which is charged anew; nothing was read or charged."
            )

    def check_records(self, fingerprint: Callable[[str], str]) -> None:
        """Refuse other records than those of the run's beginning: fingerprint(salt) is a hash of what is read."""
        found, before = fingerprint(self._content["salt"]), self._content["data"]
        if before is None:
            self._content["data"] = found
            self._write()
        elif found != before:
            raise InvalidParameter(
                f"{self.path} belongs to a run on other records: the same noise on changed records would reveal the "
                "change. Give the same data (and kernel), or another file. What was charged stays charged; nothing was "
                "released."
            )

    def paid(self, plan: Priced, ledger: Spender | None) -> str | None:
        """The token of the run's charge, which is made once.

        A ledger that takes a token (`reserve_under`) is told one that is in the file already, so that a crash between
        the charge and the next write is no second charge. With another Spender such a crash charges again.
        """
        if self._content["paid"]:
            if ledger is None:
                raise InvalidParameter(f"the run of {self.path} was charged to a ledger; give that ledger.")
            return str(self._content["token"])
        if ledger is None:
            return None
        try:
            if isinstance(ledger, TokenSpender):
                self._content["token"] = self._content["token"] or secrets.token_hex(16)
                self._write()
                ledger.reserve_under(self._content["token"], plan)
            else:
                self._content["token"] = ledger.reserve(plan)
        except BudgetExceeded:
            self.end()
            raise
        self._content["paid"] = True
        self._write()
        return str(self._content["token"])

    def position(self) -> dict[str, Any] | None:
        """The fields of the position that was saved last; None at the beginning."""
        found = self._content["position"]
        if found is None:
            return None
        return {**found, "iterates": {int(step): value for step, value in found["iterates"].items()}}

    def restore(self, rng: np.random.Generator) -> None:
        """Put the generator where it stood at the saved position."""
        rng.bit_generator.state = self._content["generator_now"]

    def check_generator(self, rng: np.random.Generator) -> None:
        """After the draws of the steps that were made, the generator stands where it stood."""
        if json.dumps(rng.bit_generator.state) != json.dumps(self._content["generator_now"]):
            raise DplangevinError(
                f"the noise of {self.path} cannot be drawn again (another version of NumPy?). What was charged stays "
                "charged, and nothing was released."
            )

    def after(self, position: object, rng: np.random.Generator, *, now: bool = False) -> None:
        """Called after every step; writes when it is time, or now."""
        if now or time.monotonic() - self._saved >= self._save_every:
            self._content["position"] = vars(position)
            self._content["generator_now"] = rng.bit_generator.state
            self._write()
            self._saved = time.monotonic()

    def end(self) -> None:
        """The release is out; the file has no further use."""
        self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        text = json.dumps(self._content, default=_plain)
        draft = self.path.with_name(self.path.name + ".new")
        try:
            draft.unlink(missing_ok=True)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.path)
        except OSError as error:
            self._give_up(draft, error)

    def _give_up(self, draft: Path, error: OSError) -> None:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        charged = "What was charged stays charged" if self._content["paid"] else "Nothing was charged"
        rest = f"; the last state in {self.path} is intact and can be continued" if self.path.exists() else ""
        raise DplangevinError(
            f"the state of the run could not be written to {self.path} ({error.strerror}). {charged}, and nothing was "
            f"released{rest}. Make room, or choose another folder."
        ) from error


def _rebuilt(state: Any) -> np.random.Generator:
    bits = np.random.PCG64()
    bits.state = state
    return np.random.Generator(bits)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {
            "dtype": value.dtype.str,
            "bytes": base64.b64encode(value.tobytes()).decode(),
            "shape": value.shape,
        }
    if isinstance(value, np.integer):
        return int(value)
    raise TypeError(type(value).__name__)


def _arrays(plain: dict[str, Any]) -> Any:
    if set(plain) != {"dtype", "bytes", "shape"}:
        return plain
    raw = base64.b64decode(plain["bytes"])
    return np.frombuffer(raw, plain["dtype"]).reshape(plain["shape"]).copy()
