"""Checkpoint files from which an interrupted run resumes with the same noise and without a second charge."""

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
from dplangevin._rng import make_generator
from dplangevin.accounting import serialize
from dplangevin.accounting.delivery import BudgetAccount, Chargeable, ResumableAccount, current_delivery
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.accounting.registry import mechanism_for
from dplangevin.errors import BudgetExceeded, DplangevinError, InvalidParameter

CheckpointPath: TypeAlias = str | os.PathLike[str] | None
FORMAT_VERSION = 3
SAVE_INTERVAL_SECONDS = 60.0
_MAX_FILE_BYTES = 4096 * _files.MEGABYTE
_CHARGE_FIELDS = (
    "token",
    "charged",
    "cost",
)  # checked against the ledger, and known only after the records are hashed
STATE_FORMAT = _plain.FileFormat(
    what="a state file",
    version=FORMAT_VERSION,
    oldest=FORMAT_VERSION,
    fields={
        "plan": _plain.read_text,
        "salt": _plain.read_text,
        "generator": _plain.read_mapping,
        "seeded": _plain.read_boolean,
        "token": _plain.optional_reader(_plain.read_text),
        "charged": _plain.read_boolean,
        "cost": _plain.optional_reader(_plain.read_text),
        "position": _plain.optional_reader(_plain.read_mapping),
        "generator_now": _plain.optional_reader(_plain.read_mapping),
        "records": _plain.optional_reader(_plain.read_text),
        "seal": _plain.read_text,
    },
)


@dataclass(kw_only=True)
class Position:
    """The position of a descent: step, iterates and running total. Private until the plan's last step."""

    step: int
    theta: Floats
    previous: Floats
    total: Floats
    iterates: dict[int, Floats] = field(default_factory=dict)


class RunState:
    """The state of one run in a file of mode 0600, replaced atomically and deleted when the run has ended.

    Whoever reads the file can remove the noise: it holds the state of the generator, and iterates that no guarantee
    covers. A resumed run draws the same noise again, so it must have the same records and the same plan, and it keeps
    the charge made at its start. A run that saves no position starts again with the same noise and the same charge,
    so that it gives the same release. One run at a time may use the file.

    Two keyed hashes (HMAC) protect the file. `seal`, keyed by the plan, covers the whole file and is checked
    before anything is charged or read. `records`, keyed by a salted hash of the records, covers the noise and the
    position and is checked before either is used: only someone who has all the records can compute it.

    Parameters
    ----------
    path : path of the file.
    plan, more : the plan and the settings that identify the run; all public, and the same when the run is resumed.
    save_every : seconds between two saved positions.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        plan: CertifiedSpec,
        *more: object,
        save_every: float = SAVE_INTERVAL_SECONDS,
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise InvalidParameter(f"checkpoint must be the path of a file, got {type(path).__name__}.")
        self.path = Path(path)
        self._save_every = _check.check_nonnegative("save_every", save_every)
        public = (FORMAT_VERSION, getattr(plan, "problem", None), plan.spec, plan.theorem, plan.delta, *more)
        self._plan = hashlib.sha256(repr(public).encode()).hexdigest()
        self._content: dict[str, Any] = {}
        self._records: str | None = None  # the hash of the records, once they are read
        self._lock: _files.FileLock | None = None
        self._last_saved = time.monotonic()
        self.is_default = False  # the user named no file, so failing to write it must not stop a run

    @classmethod
    def from_path(
        cls,
        path: CheckpointPath,
        plan: CertifiedSpec,
        *more: object,
        save_every: float = SAVE_INTERVAL_SECONDS,
    ) -> RunState | None:
        """Return the state in this file; None when no file is named."""
        return None if path is None else cls(path, plan, *more, save_every=save_every)

    @classmethod
    def default_for_command(
        cls, plan: CertifiedSpec, *more: object, save_every: float = SAVE_INTERVAL_SECONDS
    ) -> RunState | None:
        """Return the default checkpoint of a command, in the user's state folder; None outside a command."""
        delivery = current_delivery()
        state = cls("", plan, *more, save_every=save_every)
        path = None if delivery is None else delivery.checkpoint_path(state._plan)
        if path is None:
            return None
        state.path, state.is_default = path, True
        return state

    @classmethod
    def for_fit(
        cls,
        path: CheckpointPath,
        plan: CertifiedSpec,
        *more: object,
        ledger: BudgetAccount | None,
        save_every: float = SAVE_INTERVAL_SECONDS,
    ) -> RunState | None:
        """Return the state of a fit with this plan: in the named file, else in the default one of a command.

        By default only runs in steps are saved: the seed of a single release would be a secret of no use.
        """
        if path is not None:
            return cls(path, plan, *more, save_every=save_every)
        kind = type(plan.spec)
        if ledger is None or not kind.capabilities.checkpoints or mechanism_for(kind) is None:
            return None
        return cls.default_for_command(plan, *more, save_every=save_every)

    def start(self, random_state: object) -> tuple[np.random.Generator, bool]:
        """Return the generator at its first draw, and whether a user seeded it; from the file when it exists."""
        if self.path.is_symlink():
            raise InvalidParameter(
                f"{self.path} is a symbolic link; give the file itself. Nothing was read or charged."
            )
        try:
            self._lock = _files.FileLock(self.path)
        except OSError as error:
            raise self._write_error(error) from error
        if self.path.exists():
            self._load()
        else:
            rng, seeded = make_generator(random_state)
            # The caller may use its generator again, which must not repeat this noise; the file holds PCG64.
            if rng is random_state or not isinstance(rng.bit_generator, np.random.PCG64):
                rng = np.random.default_rng(rng.integers(0, 2**32, size=8, dtype=np.uint32))
            self._content = dict.fromkeys(STATE_FORMAT.readers)
            self._content |= {
                "version": FORMAT_VERSION,
                "plan": self._plan,
                "salt": os.urandom(16).hex(),
                "generator": rng.bit_generator.state,
                "seeded": seeded,
                "charged": False,
            }
            self._write()
            if self.is_default:  # documented, so no warning
                return self._rebuild_generator(self._content["generator"]), seeded
            warnings.warn(
                f"{self.path} holds the noise of this run, and iterates that no guarantee covers; keep it secret. "
                "It is deleted when the run ends.",
                UserWarning,
                stacklevel=3,
            )
        return self._rebuild_generator(self._content["generator"]), bool(self._content["seeded"])

    def close(self) -> None:
        """Release the lock on the file."""
        if self._lock is not None:
            self._lock.close()

    def _load(self) -> None:
        try:
            text = _files.read_private_text(self.path, "the state of a run", max_bytes=_MAX_FILE_BYTES)
        except OSError as error:
            raise self._damaged_error(error.strerror or "it cannot be read") from None
        try:
            plain = _plain.read_mapping("it", _plain.parse_json(text, "it"))
            if (
                "plan" in plain
                and _plain.whole_number_reader(1)("version", plain.get("version")) != FORMAT_VERSION
            ):
                raise InvalidParameter(
                    "it was written by another version, with which the run can be finished"
                )
            content = STATE_FORMAT.read(plain)
        except InvalidParameter as error:
            raise self._damaged_error(str(error).rstrip(".")) from None
        if content["plan"] != self._plan:
            raise InvalidParameter(
                f"{self.path} belongs to a run of another plan; give that plan, or another file. Nothing was charged."
            )
        if not hmac.compare_digest(content["seal"].encode(), self._compute_seal(content).encode()):
            raise self._damaged_error("it was altered or damaged since the run wrote it")
        if content["position"] is not None and None in (content["records"], content["generator_now"]):
            raise self._damaged_error("it has a position without records")
        self._content = content

    def _damaged_error(self, why: str) -> InvalidParameter:
        return InvalidParameter(
            f"{self.path} is not the state of a run that can be resumed: {why}. Delete it to start again, which is "
            "charged again; nothing was read or charged."
        )

    def _compute_seal(self, content: dict[str, Any]) -> str:
        """Return the keyed hash of the whole file; the key is the plan."""
        body = {name: value for name, value in content.items() if name != "seal"}
        return hmac.new(self._plan.encode(), _plain.canonical_json(body), hashlib.sha256).hexdigest()

    def _compute_witness(self, content: dict[str, Any], records: str) -> str:
        """Return the keyed hash of the noise and the position; the key is the hash of the records."""
        body = {
            name: content[name]
            for name in STATE_FORMAT.readers
            if name not in ("seal", "records", *_CHARGE_FIELDS)
        }
        return hmac.new(records.encode(), _plain.canonical_json(body), hashlib.sha256).hexdigest()

    def check_records(self, fingerprint: Callable[[str], str]) -> None:
        """Refuse records other than those of the first start; fingerprint(salt) is a salted hash of the records."""
        digest, before = fingerprint(self._content["salt"]), self._content["records"]
        if before is not None and not hmac.compare_digest(
            before, self._compute_witness(self._content, digest)
        ):
            raise InvalidParameter(
                f"{self.path} belongs to a run on other records (or was altered): the same noise on changed records "
                "would reveal the change. Give the same data (and kernel), another file, or delete this one. What was "
                "charged stays charged; nothing was released."
            )
        self._records = digest
        if before is None:
            self._write()

    def charge_once(self, plan: Chargeable, ledger: BudgetAccount | None) -> str | None:
        """Charge the plan once, and return the token of the charge; None without a ledger.

        A ledger with `reserve_with_token` gets a token that is in the file already, so that a crash between the
        charge and the next write causes no second charge. With any other account such a crash charges again.
        """
        if self._content["charged"]:
            if ledger is None:
                raise InvalidParameter(f"the run of {self.path} was charged to a ledger; give that ledger.")
            if self._content["cost"] != _hash_cost(plan):
                raise InvalidParameter(
                    f"the run of {self.path} was charged another cost than this plan has (by another version of the "
                    "library?); delete the file to start again, which is charged again. Nothing was released."
                )
            if isinstance(ledger, ResumableAccount):  # the ledger, not the file, is the record of charges
                ledger.reserve_with_token(str(self._content["token"]), plan)
            return str(self._content["token"])
        if ledger is None:
            return None
        self._content["cost"] = _hash_cost(plan)
        try:
            if isinstance(ledger, ResumableAccount):
                self._content["token"] = self._content["token"] or secrets.token_hex(16)
                self._write()
                ledger.reserve_with_token(self._content["token"], plan)
            else:
                self._content["token"] = ledger.reserve(plan)
        except BudgetExceeded:
            self.finish()
            raise
        self._content["charged"] = True
        self._write()
        return str(self._content["token"])

    def load_position(self) -> dict[str, Any] | None:
        """Return the fields of the last saved position; None when none was saved."""
        saved_position = self._content["position"]
        if saved_position is None:
            return None
        try:
            fields = {name: _decode_array(value) for name, value in saved_position.items()}
            return {
                **fields,
                "iterates": {
                    int(step): _decode_array(value) for step, value in saved_position["iterates"].items()
                },
                **{
                    name: {key: _decode_array(value) for key, value in saved_position[name].items()}
                    for name in ("auxiliary",)
                    if name in saved_position
                },
            }
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._damaged_error("its position cannot be read") from None

    def restore_generator(self, rng: np.random.Generator) -> None:
        """Set the generator to its state at the saved position."""
        rng.bit_generator.state = self._rebuild_generator(self._content["generator_now"]).bit_generator.state

    def check_generator(self, rng: np.random.Generator) -> None:
        """Check that redrawing the steps already made brought the generator to its saved state."""
        if rng.bit_generator.state != self._content["generator_now"]:
            raise DplangevinError(
                f"the noise of {self.path} cannot be drawn again (another version of NumPy?). What was charged stays "
                "charged, and nothing was released."
            )

    def save_if_due(self, position: object, rng: np.random.Generator, *, now: bool = False) -> None:
        """Save the position if the interval has passed, if `now`, or if the command received a signal to stop."""
        delivery = current_delivery()
        stop = delivery is not None and delivery.signal is not None
        if now or stop or time.monotonic() - self._last_saved >= self._save_every:
            self._content["position"] = json.loads(json.dumps(vars(position), default=_encode_array))
            self._content["generator_now"] = rng.bit_generator.state
            written = self._write(must=now)
            self._last_saved = time.monotonic()
            if delivery is not None and written:
                delivery.stop_at_checkpoint()

    def finish(self) -> None:
        """Delete the file, once the release is made."""
        self.path.unlink(missing_ok=True)
        _files.draft_path(self.path).unlink(missing_ok=True)  # of an interrupted write

    def _write(self, *, must: bool = False) -> bool:
        """Write the file. A default checkpoint that cannot be written does not stop a charged run, unless `must`."""
        if self._records is not None:
            self._content["records"] = self._compute_witness(self._content, self._records)
        self._content["seal"] = self._compute_seal(self._content)
        try:
            _files.write_private(self.path, json.dumps(self._content))
        except OSError as error:
            if self.is_default and not must and self._content.get("token") and self.path.exists():
                return False
            raise self._write_error(error) from error
        return True

    def _write_error(self, error: OSError) -> DplangevinError:
        charged = "What was charged stays charged" if self._content.get("charged") else "Nothing was charged"
        rest = f"; the last state in {self.path} is intact and can be resumed" if self.path.exists() else ""
        return DplangevinError(
            f"the state of the run could not be written to {self.path} ({error.strerror}). {charged}, and nothing was "
            f"released{rest}. Free disk space, or choose another folder."
        )

    def _rebuild_generator(self, state: Any) -> np.random.Generator:
        bits = np.random.PCG64()
        try:
            bits.state = state
        except (TypeError, ValueError, KeyError, OverflowError):
            raise self._damaged_error("its generator cannot be read") from None
        return np.random.Generator(bits)


def _hash_cost(plan: Chargeable) -> str | None:
    """Return a hash of the guarantee that is charged; None for what no ledger accepts."""
    guarantee = plan.guarantee
    return (
        hashlib.sha256(serialize.guarantee_to_json(guarantee).encode()).hexdigest()
        if isinstance(guarantee, Guarantee)
        else None
    )


def _encode_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        raw = np.ascontiguousarray(value, "<f8")
        return {"bytes": base64.b64encode(raw.tobytes()).decode(), "shape": value.shape}
    if isinstance(value, np.integer):
        return int(value)
    raise TypeError(type(value).__name__)


def _decode_array(plain: Any) -> Any:
    if not isinstance(plain, dict) or set(plain) != {"bytes", "shape"}:
        return plain
    return (
        np.frombuffer(base64.b64decode(plain["bytes"], validate=True), "<f8").reshape(plain["shape"]).copy()
    )
