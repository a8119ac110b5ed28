"""RunState: a file from which an interrupted run goes on, with the same noise and without paying again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dplangevin import _check, _files, _plain
from dplangevin._arrays import Floats
from dplangevin._rng import generator
from dplangevin.errors import BudgetExceeded, DplangevinError, InvalidParameter
from dplangevin.privacy import serialize
from dplangevin.privacy.delivery import current_delivery
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Price
from dplangevin.privacy.registry import mechanism_for
from dplangevin.privacy.spender import Priced, Spender, TokenSpender

StatePath: TypeAlias = str | os.PathLike[str] | None
VERSION = 3
SAVE_EVERY = 60.0  # seconds
_LARGEST = 4096 * _files.MEGABYTE
_PAYMENT = ("token", "paid", "cost")  # checked against the ledger, and not known when the records are
_FIELDS = {
    "version": _plain.whole(1), "plan": _plain.words, "salt": _plain.words, "generator": _plain.mapping,
    "seeded": _plain.boolean, "token": _plain.optional(_plain.words), "paid": _plain.boolean,
    "cost": _plain.optional(_plain.words), "position": _plain.optional(_plain.mapping),
    "generator_now": _plain.optional(_plain.mapping), "records": _plain.optional(_plain.words), "seal": _plain.words,
}  # fmt: skip


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
    covers. A run that goes on draws the same noise again, so it must see the same records and the same plan. Its charge
    is the one made when it began. A run that saves no position starts again, with the same noise and the same charge,
    so that it gives the same release. One run at a time may use the file.

    Two codes keep what is not this run's own writing from being released. `seal`, keyed by the plan, is over the whole
    file, and checked before anything is charged or read. `records`, keyed by a salted hash of the records, is over the
    noise and the position, and checked before either is used: nobody makes it who has not all the records.

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
        self._records: str | None = None  # their fingerprint, once they are read
        self._lock: _files.FileLock | None = None
        self._saved = time.monotonic()
        self.is_default = False  # the user named no file: then it must never be what stops a run

    @classmethod
    def at(
        cls, path: StatePath, plan: Price, *more: object, save_every: float = SAVE_EVERY
    ) -> RunState | None:
        """The state in this file; None when no file is named."""
        return None if path is None else cls(path, plan, *more, save_every=save_every)

    @classmethod
    def by_default(cls, plan: Price, *more: object, save_every: float = SAVE_EVERY) -> RunState | None:
        """The checkpoint of a command that charges a ledger, in the user's state folder; None outside of a command."""
        delivery = current_delivery()
        state = cls("", plan, *more, save_every=save_every)
        path = None if delivery is None else delivery.checkpoint(state._plan)
        if path is None:
            return None
        state.path, state.is_default = path, True
        return state

    @classmethod
    def of_fit(
        cls,
        path: StatePath,
        plan: Price,
        *more: object,
        ledger: Spender | None,
        save_every: float = SAVE_EVERY,
    ) -> RunState | None:
        """The state of a charge whose main part is this plan: in the file that is named, else by default.

        By default only runs in steps are saved, and none whose noise is secure: a file with the seed of a single
        release would be a secret without a use, and secure noise is never written down.
        """
        if path is not None:
            return cls(path, plan, *more, save_every=save_every)
        kind = type(plan.schedule)
        if ledger is None or not kind.capabilities.checkpoints or mechanism_for(kind) is None:
            return None
        if plan.guarantee.arithmetic == "discrete-grid":
            return None
        return cls.by_default(plan, *more, save_every=save_every)

    def begin(self, random_state: object) -> tuple[np.random.Generator, bool]:
        """The generator at its first draw, and whether a user seeded it; from the file when there is one."""
        if self.path.is_symlink():
            raise InvalidParameter(
                f"{self.path} is a symbolic link; give the file itself. Nothing was read or charged."
            )
        try:
            self._lock = _files.FileLock(self.path)
        except OSError as error:
            raise self._failed(error) from error
        if self.path.exists():
            self._load()
        else:
            rng, seeded = generator(random_state)
            # A generator that will be used again must not give the same noise again; and a file holds PCG64.
            if rng is random_state or not isinstance(rng.bit_generator, np.random.PCG64):
                rng = np.random.default_rng(rng.integers(0, 2**32, size=8, dtype=np.uint32))
            self._content = dict.fromkeys(_FIELDS)
            self._content |= {
                "version": VERSION,
                "plan": self._plan,
                "salt": os.urandom(16).hex(),
                "generator": rng.bit_generator.state,
                "seeded": seeded,
                "paid": False,
            }
            self._write()
            if self.is_default:  # the documentation says where it lies
                return self._rebuilt(self._content["generator"]), seeded
            warnings.warn(
                f"{self.path} holds the noise of this run, and iterates that are not private; keep it to yourself. "
                "It is deleted when the run ends.",
                UserWarning,
                stacklevel=3,
            )
        return self._rebuilt(self._content["generator"]), bool(self._content["seeded"])

    def close(self) -> None:
        """Let another run use the file."""
        if self._lock is not None:
            self._lock.close()

    def _load(self) -> None:
        try:
            text = _files.read_private(self.path, "the state of a run", most=_LARGEST)
        except OSError as error:
            raise self._damaged(error.strerror or "it cannot be read") from None
        try:
            plain = _plain.mapping("it", _plain.parse(text, "it"))
            if "plan" in plain and _plain.whole(1)("version", plain.get("version")) != VERSION:
                raise InvalidParameter(
                    "it was written by another version, with which the run can be finished"
                )
            content = _plain.record("state", plain, _FIELDS)
        except InvalidParameter as error:
            raise self._damaged(str(error).rstrip(".")) from None
        if content["plan"] != self._plan:
            raise InvalidParameter(
                f"{self.path} belongs to a run of another plan; give that plan, or another file. Nothing was charged."
            )
        if not hmac.compare_digest(content["seal"].encode(), self._sealed(content).encode()):
            raise self._damaged("it was altered or damaged since the run wrote it")
        if content["position"] is not None and None in (content["records"], content["generator_now"]):
            raise self._damaged("it has a position without records")
        self._content = content

    def _damaged(self, why: str) -> InvalidParameter:
        return InvalidParameter(
            f"{self.path} is not the state of a run that can go on: {why}. Delete it to begin anew, which is charged "
            "anew; nothing was read or charged."
        )

    def _sealed(self, content: dict[str, Any]) -> str:
        """The code over everything that is in the file."""
        body = {name: value for name, value in content.items() if name != "seal"}
        return hmac.new(self._plan.encode(), _plain.canonical(body), hashlib.sha256).hexdigest()

    def _witness(self, content: dict[str, Any], records: str) -> str:
        """The code over the noise and the position, which only who has the records can make."""
        body = {name: content[name] for name in _FIELDS if name not in ("seal", "records", *_PAYMENT)}
        return hmac.new(records.encode(), _plain.canonical(body), hashlib.sha256).hexdigest()

    def check_records(self, fingerprint: Callable[[str], str]) -> None:
        """Refuse other records than those of the run's beginning: fingerprint(salt) is a hash of what is read."""
        found, before = fingerprint(self._content["salt"]), self._content["records"]
        if before is not None and not hmac.compare_digest(before, self._witness(self._content, found)):
            raise InvalidParameter(
                f"{self.path} belongs to a run on other records (or was altered): the same noise on changed records "
                "would reveal the change. Give the same data (and kernel), another file, or delete this one. What was "
                "charged stays charged; nothing was released."
            )
        self._records = found
        if before is None:
            self._write()

    def paid(self, plan: Priced, ledger: Spender | None) -> str | None:
        """The token of the run's charge, which is made once.

        A ledger that takes a token (`reserve_under`) is told one that is in the file already, so that a crash between
        the charge and the next write is no second charge. With another Spender such a crash charges again.
        """
        if self._content["paid"]:
            if ledger is None:
                raise InvalidParameter(f"the run of {self.path} was charged to a ledger; give that ledger.")
            if self._content["cost"] != _cost(plan):
                raise InvalidParameter(
                    f"the run of {self.path} was charged another cost than this plan has (by another version of the "
                    "library?); delete the file to begin anew, which is charged anew. Nothing was released."
                )
            if isinstance(ledger, TokenSpender):  # the books, not the file, say what was paid
                ledger.reserve_under(str(self._content["token"]), plan)
            return str(self._content["token"])
        if ledger is None:
            return None
        self._content["cost"] = _cost(plan)
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
        try:
            read = {name: _array(value) for name, value in found.items()}
            return {
                **read,
                "iterates": {int(step): _array(value) for step, value in found["iterates"].items()},
            }
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._damaged("its position cannot be read") from None

    def restore(self, rng: np.random.Generator) -> None:
        """Put the generator where it stood at the saved position."""
        rng.bit_generator.state = self._rebuilt(self._content["generator_now"]).bit_generator.state

    def check_generator(self, rng: np.random.Generator) -> None:
        """After the draws of the steps that were made, the generator stands where it stood."""
        if rng.bit_generator.state != self._content["generator_now"]:
            raise DplangevinError(
                f"the noise of {self.path} cannot be drawn again (another version of NumPy?). What was charged stays "
                "charged, and nothing was released."
            )

    def after(self, position: object, rng: np.random.Generator, *, now: bool = False) -> None:
        """Called after every step; writes when it is time, or now, or when the command was told to stop."""
        delivery = current_delivery()
        stop = delivery is not None and delivery.signal is not None
        if now or stop or time.monotonic() - self._saved >= self._save_every:
            self._content["position"] = json.loads(json.dumps(vars(position), default=_written))
            self._content["generator_now"] = rng.bit_generator.state
            written = self._write(must=now)
            self._saved = time.monotonic()
            if delivery is not None and written:
                delivery.stop_at_checkpoint()

    def end(self) -> None:
        """The release is out; the file has no further use."""
        self.path.unlink(missing_ok=True)
        _files.draft_of(self.path).unlink(missing_ok=True)  # of a write that was cut off

    def _write(self, *, must: bool = False) -> bool:
        """Save; on a full disk a checkpoint that nobody asked for does not stop a charged run, unless it must."""
        if self._records is not None:
            self._content["records"] = self._witness(self._content, self._records)
        self._content["seal"] = self._sealed(self._content)
        try:
            _files.write_private(self.path, json.dumps(self._content))
        except OSError as error:
            if self.is_default and not must and self._content.get("token") and self.path.exists():
                return False
            raise self._failed(error) from error
        return True

    def _failed(self, error: OSError) -> DplangevinError:
        charged = "What was charged stays charged" if self._content.get("paid") else "Nothing was charged"
        rest = f"; the last state in {self.path} is intact and can be continued" if self.path.exists() else ""
        return DplangevinError(
            f"the state of the run could not be written to {self.path} ({error.strerror}). {charged}, and nothing was "
            f"released{rest}. Make room, or choose another folder."
        )

    def _rebuilt(self, state: Any) -> np.random.Generator:
        bits = np.random.PCG64()
        try:
            bits.state = state
        except (TypeError, ValueError, KeyError, OverflowError):
            raise self._damaged("its generator cannot be read") from None
        return np.random.Generator(bits)


def _cost(plan: Priced) -> str | None:
    """A hash of what is charged; None for what no ledger takes."""
    found = plan.guarantee
    return (
        hashlib.sha256(serialize.dumps(found).encode()).hexdigest() if isinstance(found, Guarantee) else None
    )


def _written(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        raw = np.ascontiguousarray(value, "<f8")
        return {"bytes": base64.b64encode(raw.tobytes()).decode(), "shape": value.shape}
    if isinstance(value, np.integer):
        return int(value)
    raise TypeError(type(value).__name__)


def _array(plain: Any) -> Any:
    if not isinstance(plain, dict) or set(plain) != {"bytes", "shape"}:
        return plain
    return (
        np.frombuffer(base64.b64decode(plain["bytes"], validate=True), "<f8").reshape(plain["shape"]).copy()
    )
