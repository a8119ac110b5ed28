"""State files of interrupted runs, and one field of them changed: what a disk, an editor or a stranger might do."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dplangevin.accounting.plan import Plan
from dplangevin.estimators import DPRidge
from dplangevin.ledger.budget import DatasetBudget
from dplangevin.mechanisms.run_state import RunState
from dplangevin.rashomon import RashomonRegion
from dplangevin.schema import Schema
from fuzz._cases import LEAVES, places
from unit.mechanisms.test_resume import CASES, Interrupted, budget, data, passes, run

KINDS = (
    "noisy gradient descent", "langevin average", "secure", "public mirror", "langevin trajectory", "rashomon chains",
    "secure shuffle", "objective perturbation", "whitened", "objective in other coordinates",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run that was stopped: its plan, the bytes of its state, and who paid."""

    plan: Plan
    content: bytes
    ledger: DatasetBudget | None

    def resumed(self, path: Path) -> Any:
        """Go on from the file, on the same records."""
        return run(self.plan, data(self.plan.problem), path, self.ledger)


def stopped(name: str, folder: Path, *, paid: bool, left: int | None = None) -> Case:
    """A run of test_resume's table, stopped before its last pass over the records, or when `left` were made."""
    plan, path = CASES[name](1.0), folder / "made.state"
    ledger = budget(folder) if paid else None
    records = data(plan.problem)
    records.left = passes(plan, path) - 1 if left is None else left
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Interrupted):
        patch.setattr(RunState, "save_if_due", partialmethod(RunState.save_if_due, now=True))
        run(plan, records, path, ledger)
    content = path.read_bytes()
    path.unlink()
    return Case(plan=plan, content=content, ledger=ledger)


@dataclass(frozen=True, kw_only=True)
class StoppedFit:
    """As Case, for a release that an estimator puts together itself."""

    make: Callable[..., Any]
    content: bytes
    ledger: DatasetBudget

    def resumed(self, path: Path) -> Any:
        """Go on from the file, on the same records."""
        fitted = self.make(checkpoint=path, ledger=self.ledger)
        return SimpleNamespace(digest=lambda: fitted.ledger_head_)


def _learned(**options: Any) -> Any:
    schema = Schema.learn(a="number", b="number")
    return DPRidge(epsilon=9.0, delta=1e-4, schema=schema, target_bounds=(-1, 1), **options).fit(
        _TABLE, _TARGET
    )


def _norm(**options: Any) -> Any:
    return DPRidge(epsilon=9.0, delta=1e-4, data_norm="learn", target_bounds=(-1, 1), **options).fit(
        _TABLE.to_numpy(), _TARGET
    )


def _person(**options: Any) -> Any:
    table = _TABLE.assign(who=np.arange(len(_TABLE)) // 2)
    return DPRidge(
        epsilon=9.0, delta=1e-4, data_norm=2.0, bad_rows="zero", target_bounds=(-1, 1), person="who",
        n_public=len(table),
        **options,
    ).fit(table, _TARGET)  # fmt: skip


def _region(**options: Any) -> Any:
    model = DPRidge(data_norm=2.0, target_bounds=(-1, 1))
    return RashomonRegion(
        model, thresholds=0.1, epsilon=9.0, delta=1e-4, n_models=1, public_inputs=np.eye(2), **options
    ).fit(_TABLE.to_numpy(), _TARGET)


_TABLE = pd.DataFrame(np.random.default_rng(0).uniform(-1, 1, (200, 2)), columns=["a", "b"])
_TARGET = _TABLE["a"].to_numpy() / 2
FITS: dict[str, Callable[..., Any]] = {
    "learned": _learned,
    "norm": _norm,
    "person": _person,
    "region": _region,
}


def stopped_fit(name: str, folder: Path) -> StoppedFit:
    """A fit that was killed when its release was made and before it was noted."""
    path, ledger, make = folder / "made.state", budget(folder), FITS[name]

    def killed(*_: Any) -> None:
        raise Interrupted

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Interrupted):
        patch.setattr(DatasetBudget, "commit", killed)
        make(checkpoint=path, ledger=ledger)
    content = path.read_bytes()
    path.unlink()
    return StoppedFit(make=make, content=content, ledger=ledger)


def changed(plain: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """One field changed by what its type suggests: a bit, a sign, a neighbour, another type, another field's value."""
    while True:
        found = copy.deepcopy(plain)
        spots = places(found)
        holder, key = spots[rng.integers(len(spots))]
        action = rng.integers(8)
        if action == 0:
            del holder[key]
        elif action == 1 and isinstance(holder, dict):
            holder[str(LEAVES[rng.integers(len(LEAVES))])[:20]] = holder.pop(key)
        elif action == 2:
            other, name = spots[rng.integers(len(spots))]
            holder[key] = copy.deepcopy(other[name])
        elif action <= 5:
            holder[key] = _near(holder[key], rng)
        else:
            holder[key] = copy.deepcopy(LEAVES[rng.integers(len(LEAVES))])
        if _text(found) != _text(plain):
            return found


def _near(value: Any, rng: np.random.Generator) -> Any:
    """A value of the same type that is not far off, so that it looks right."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return [value + 1, value - 1, -value, value ^ 1 << int(rng.integers(64)), 0][rng.integers(5)]
    if isinstance(value, float):
        return [value * 2, -value, value + 1e-9, 0.0, 1e300][rng.integers(5)]
    if isinstance(value, str):
        return _near_text(value, rng)
    if isinstance(value, list):
        return [value[::-1], value * 2, value[:-1], [value]][rng.integers(4)]
    return {**value, "more": 1} if rng.integers(2) else {}


def _near_text(value: str, rng: np.random.Generator) -> str:
    if not value:
        return "x"
    at = int(rng.integers(len(value)))
    one = value[:at] + chr(ord(value[at]) ^ 1) + value[at + 1 :]
    try:
        raw = bytearray(base64.b64decode(value, validate=True))
        raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
        bits = base64.b64encode(raw).decode()
    except (ValueError, IndexError):
        bits = one
    return [one, bits, value[:-1], value + value[-1], value.upper(), " " + value][rng.integers(6)]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
