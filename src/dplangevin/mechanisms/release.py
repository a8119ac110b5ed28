"""Releases: the released values with the certified plan that was charged for them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec, Plan
from dplangevin.errors import InvalidParameter, NotPrivateError

SEEDED_MESSAGE = (
    "the noise came from random_state: the guarantee holds only against those who do not know the seed, and for this "
    "release alone: a second release with the same seed has the same noise, and the two together reveal it"
)


def check_seed(secure: bool | None, random_state: object) -> None:
    """Refuse a seed together with an explicit secure=True, which a seed contradicts."""
    if secure and random_state is not None:
        raise InvalidParameter(
            "random_state must be left out with secure=True: a seed would undo the noise. Leave secure out for a "
            "repeatable release with exact noise."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ChargedRelease:
    """The base of releases: the plan that was charged, whether the noise was seeded, and the entry in the ledger.

    Parameters
    ----------
    plan : the certified spec that ran, with its guarantee.
    seeded : whether the noise came from a user's seed. Whoever knows the seed can remove the noise.
    ledger_head : the head of the ledger's hash chain after this release was charged; None without a ledger.
    """

    plan: CertifiedSpec
    seeded: bool
    ledger_head: str | None = field(default=None, repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of this release."""
        return self.plan.guarantee


@dataclass(frozen=True, kw_only=True, eq=False)
class Release(ChargedRelease):
    """A released value, and nothing that its guarantee does not cover.

    Parameters
    ----------
    value : the last iterate, the average, or the last checkpoint.
    plan : the plan that ran.
    iterates : the iterates the guarantee covers, by step.
    n_steps : the number of steps that ran (public).
    auxiliary : what else was released with the value, by name; the guarantee covers it.
    """

    value: Floats
    plan: Plan
    n_steps: int
    iterates: Mapping[int, Floats] = field(default_factory=dict, repr=False)
    auxiliary: Mapping[str, Floats] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        frozen = {step: _read_only_copy(theta) for step, theta in self.iterates.items()}
        object.__setattr__(self, "iterates", MappingProxyType(frozen))
        object.__setattr__(self, "value", _read_only_copy(self.value))
        arrays = {name: _read_only_copy(array) for name, array in self.auxiliary.items()}
        object.__setattr__(self, "auxiliary", MappingProxyType(arrays))

    def iterate(self, step: int) -> Floats:
        """Return the iterate after `step` steps, if the guarantee covers it."""
        if step not in self.iterates:
            raise NotPrivateError(
                f"iterate {step} is not covered: the guarantee is for release={self.plan.spec.release!r}. "
                "Plan with release='checkpoints' or 'trajectory' to release it."
            )
        return self.iterates[step]

    def digest(self) -> str:
        """Return a hash of the released numbers, for the ledger."""
        content = hashlib.sha256(np.ascontiguousarray(self.value).tobytes())
        for step in sorted(self.iterates):
            content.update(np.ascontiguousarray(self.iterates[step]).tobytes())
        for name in sorted(self.auxiliary):
            content.update(np.ascontiguousarray(self.auxiliary[name]).tobytes())
        return content.hexdigest()

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.value, self.plan, self.seeded, self.n_steps, dict(self.iterates), self.ledger_head)
        return _rebuild_release, (*fields, dict(self.auxiliary))


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswersRelease(ChargedRelease):
    """Noisy answers, one array for each of the spec's sizes; for a noisy max, the index."""

    values: tuple[Floats, ...]

    def digest(self) -> str:
        """Return a hash of the released numbers, for the ledger."""
        content = hashlib.sha256()
        for value in self.values:
            content.update(np.ascontiguousarray(value).tobytes())
        return content.hexdigest()


def _rebuild_release(
    value: Floats,
    plan: Plan,
    seeded: bool,
    n_steps: int,
    iterates: dict[int, Floats],
    ledger_head: str | None = None,
    auxiliary: dict[str, Floats] | None = None,
) -> Release:
    return Release(
        value=value,
        plan=plan,
        seeded=seeded,
        n_steps=n_steps,
        iterates=iterates,
        ledger_head=ledger_head,
        auxiliary=auxiliary or {},
    )


def _read_only_copy(array: Floats) -> Floats:
    copy = np.array(array, dtype=float)
    copy.flags.writeable = False
    return copy
