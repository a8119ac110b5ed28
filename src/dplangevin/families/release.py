"""Releases: what left the private rail, with the plan that paid for it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.errors import NotPrivateError
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Plan, Price

SEEDED = (
    "the noise came from random_state: the promise holds only against those who do not know it, and for this release "
    "alone: a second one from the same seed has the same noise, and the two together undo it"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Paid:
    """What every release carries: the price that was paid, whether a seed made its noise, its place in the ledger.

    Parameters
    ----------
    plan : what ran; its guarantee is the promise.
    seeded : the noise came from a user's seed. Whoever knows the seed can undo the noise.
    ledger_head : the head of the ledger's chain after this release was charged; None without a ledger.
    """

    plan: Price
    seeded: bool
    ledger_head: str | None = field(default=None, repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """What was promised."""
        return self.plan.guarantee


@dataclass(frozen=True, kw_only=True, eq=False)
class Release(Paid):
    """The released value and nothing that the guarantee does not cover.

    Parameters
    ----------
    value : the last iterate, the average, or the last checkpoint.
    plan : the plan that ran.
    iterates : the iterates the guarantee covers, by step.
    n_steps : the number of steps that ran (public).
    beside : what else was released with the value, by name; the guarantee covers it.
    """

    value: Floats
    plan: Plan
    n_steps: int
    iterates: Mapping[int, Floats] = field(default_factory=dict, repr=False)
    beside: Mapping[str, Floats] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        frozen = {step: _read_only(theta) for step, theta in self.iterates.items()}
        object.__setattr__(self, "iterates", MappingProxyType(frozen))
        object.__setattr__(self, "value", _read_only(self.value))
        kept = {name: _read_only(array) for name, array in self.beside.items()}
        object.__setattr__(self, "beside", MappingProxyType(kept))

    def iterate(self, step: int) -> Floats:
        """The iterate after `step` steps, if the guarantee covers it."""
        if step not in self.iterates:
            raise NotPrivateError(
                f"iterate {step} is not covered: the guarantee is for release={self.plan.schedule.release!r}. "
                "Plan with release='checkpoints' or 'trajectory' to release it."
            )
        return self.iterates[step]

    def digest(self) -> str:
        """A hash of the released numbers, for the ledger."""
        content = hashlib.sha256(np.ascontiguousarray(self.value).tobytes())
        for step in sorted(self.iterates):
            content.update(np.ascontiguousarray(self.iterates[step]).tobytes())
        for name in sorted(self.beside):
            content.update(np.ascontiguousarray(self.beside[name]).tobytes())
        return content.hexdigest()

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.value, self.plan, self.seeded, self.n_steps, dict(self.iterates), self.ledger_head)
        return _rebuild, (*fields, dict(self.beside))


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswersRelease(Paid):
    """Noisy answers, one array for each of the schedule's sizes; for a noisy max, the index."""

    values: tuple[Floats, ...]

    def digest(self) -> str:
        """A hash of the released numbers, for the ledger."""
        content = hashlib.sha256()
        for value in self.values:
            content.update(np.ascontiguousarray(value).tobytes())
        return content.hexdigest()


def _rebuild(
    value: Floats,
    plan: Plan,
    seeded: bool,
    n_steps: int,
    iterates: dict[int, Floats],
    ledger_head: str | None = None,
    beside: dict[str, Floats] | None = None,
) -> Release:
    return Release(
        value=value,
        plan=plan,
        seeded=seeded,
        n_steps=n_steps,
        iterates=iterates,
        ledger_head=ledger_head,
        beside=beside or {},
    )


def _read_only(array: Floats) -> Floats:
    copy = np.array(array, dtype=float)
    copy.flags.writeable = False
    return copy
