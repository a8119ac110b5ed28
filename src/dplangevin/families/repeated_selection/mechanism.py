"""A secret number of attempts; the one with the largest noisy score leaves."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dplangevin._progress import watching
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.families.mechanism import Mechanism
from dplangevin.families.release import Paid
from dplangevin.families.repeated_selection.schedule import RepeatedSelectionSchedule
from dplangevin.families.run_state import RunState
from dplangevin.privacy.plan import Price


@dataclass(frozen=True, kw_only=True, eq=False)
class Attempts:
    """What may be tried: a candidate is drawn uniformly, fitted and scored on other records.

    Parameters
    ----------
    fits, scores : the prices of each candidate's fit and of its score; a record is in one of the two alone.
    attempt : (candidate, generator) -> its noisy score, what would be released, and a digest of it.
    """

    fits: tuple[Price, ...]
    scores: tuple[Price, ...]
    attempt: Callable[[int, np.random.Generator], tuple[float, Any, str]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Selected(Paid):
    """The winner: its place among the candidates, its noisy score, and what it released."""

    candidate: int
    score: float
    value: Any
    value_digest: str

    def digest(self) -> str:
        """A hash of what is released, for the ledger."""
        return hashlib.sha256(f"{self.candidate} {self.score!r} {self.value_digest}".encode()).hexdigest()


class RepeatedSelection(Mechanism[RepeatedSelectionSchedule, Attempts, Selected]):
    """K attempts; nothing is kept of those that lose."""

    def _refuse(self, plan: Price, data: Attempts) -> None:
        schedule = plan.schedule
        assert isinstance(schedule, RepeatedSelectionSchedule)
        if not isinstance(data, Attempts) or not data.fits or len(data.fits) != len(data.scores):
            raise InvalidParameter("repeat-and-select takes candidates, each with a fit and a score.")
        for price in (*data.fits, *data.scores):
            found = price.guarantee
            if found.mu is None or not found.mu <= schedule.mu or found.adjacency != schedule.adjacency:
                raise InvalidParameter(
                    f"a candidate's {price.schedule.mechanism} is not within the {schedule.mu:.6g}-GDP of an attempt; "
                    "leave mechanism and theorem to the search."
                )

    def _released(
        self, plan: Price, data: Attempts, saved: RunState | None, rng: np.random.Generator, seeded: bool
    ) -> Selected:
        schedule = cast(RepeatedSelectionSchedule, plan.schedule)
        best: tuple[float, int, Any, str] = (-math.inf, -1, None, "")
        with watching(quiet=True):  # bars, logs and callbacks would count the attempts
            for _ in range(schedule.number(rng)):
                candidate = int(rng.integers(len(data.fits)))
                score, value, digest = data.attempt(candidate, rng)
                if best[1] < 0 or score > best[0]:
                    best = (score, candidate, value, digest)
        if best[1] < 0:
            raise DplangevinError(
                f"the secret number of repetitions was 0, which happens with probability "
                f"{math.exp(-schedule.repetitions):.1g} whatever the records are; nothing was released, what was "
                "charged stays charged. law='geometric' never does this."
            )
        return Selected(
            candidate=best[1],
            score=best[0],
            value=best[2],
            value_digest=best[3],
            plan=plan,
            seeded=seeded,
        )
