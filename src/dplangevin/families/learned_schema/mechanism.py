"""Noisy counts of cells, and of the labels that reach the threshold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.families.learned_schema.schedule import LearnedSchemaSchedule
from dplangevin.families.mechanism import Mechanism
from dplangevin.families.release import Paid
from dplangevin.families.run_state import RunState
from dplangevin.privacy.plan import Price
from dplangevin.samplers.gamma_norm import discrete_laplace

Floats = NDArray[np.float64]


class Counts(NamedTuple):
    """Exact counts: of each number column's cells [numbers, cells], and of each category column's labels."""

    cells: Floats
    labels: Sequence[Mapping[str, int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedRelease(Paid):
    """Noisy counts of cells, and of the selected labels of each category column, in the order of the labels."""

    cells: Floats
    labels: tuple[Mapping[str, float], ...]

    def digest(self) -> str:
        """A hash of the released numbers, for the ledger."""
        content = hashlib.sha256(np.ascontiguousarray(self.cells).tobytes())
        content.update(repr([dict(found) for found in self.labels]).encode())
        return content.hexdigest()


class LearnedCounts(Mechanism[LearnedSchemaSchedule, Callable[[], Counts], LearnedRelease]):
    """Noise on every cell and on every label that occurs; labels below the threshold are left out."""

    def _refuse(self, plan: Price, data: Callable[[], Counts]) -> None:
        if not callable(data):
            raise InvalidParameter("learned-schema takes a function that reads the records and counts them.")

    def _released(
        self,
        plan: Price,
        data: Callable[[], Counts],
        saved: RunState | None,
        rng: np.random.Generator,
        seeded: bool,
    ) -> LearnedRelease:
        schedule, exact = cast(LearnedSchemaSchedule, plan.schedule), data()
        shape = (schedule.numbers, schedule.cells if schedule.numbers else 0)
        if exact.cells.shape != shape or len(exact.labels) != schedule.categories:
            raise InvalidParameter("the counts are not those the promise was made for; nothing was released.")
        if saved is not None:
            saved.check_records(lambda salt: counts_digest(exact, salt))
        cells = exact.cells + _noise(schedule, shape, rng)
        chosen = []
        for counts in exact.labels:
            words = sorted(counts)  # noise is given out in an order that the rows' order does not change
            noisy = np.array([counts[word] for word in words], float) + _noise(schedule, len(words), rng)
            pairs = zip(words, noisy.tolist(), strict=True)
            chosen.append({word: count for word, count in pairs if count >= (schedule.threshold or 0.0)})
        return LearnedRelease(cells=cells, labels=tuple(chosen), plan=plan, seeded=seeded)


def counts_digest(exact: Counts, salt: str) -> str:
    """A salted hash of exact counts."""
    content = hashlib.sha256(salt.encode())
    content.update(np.ascontiguousarray(exact.cells).tobytes())
    content.update(repr([sorted(counts.items()) for counts in exact.labels]).encode())
    return content.hexdigest()


def _noise(schedule: LearnedSchemaSchedule, size: int | tuple[int, ...], rng: np.random.Generator) -> Floats:
    if schedule.noise == "gaussian":
        return schedule.scale * rng.standard_normal(size)
    return discrete_laplace(schedule.scale, size, rng)
