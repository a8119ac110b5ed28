"""Run a secret number of private attempts and release the one with the largest noisy score."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dplangevin._progress import progress
from dplangevin._rng import SharedGenerator
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.mechanisms.mechanism import Mechanism
from dplangevin.mechanisms.release import ChargedRelease
from dplangevin.mechanisms.repeated_selection.spec import RepeatedSelectionSpec
from dplangevin.mechanisms.run_state import RunState


@dataclass(frozen=True, kw_only=True, eq=False)
class CandidateAttempts:
    """The candidates: an attempt draws one uniformly, fits it and scores it on other records.

    Parameters
    ----------
    fit_specs, score_specs : certified specs of each candidate's fit and of its score; they use disjoint records.
    run_attempt : (candidate, generator) -> its noisy score, what would be released, and a digest of it.
    """

    fit_specs: tuple[CertifiedSpec, ...]
    score_specs: tuple[CertifiedSpec, ...]
    run_attempt: Callable[[int, SharedGenerator], tuple[float, Any, str]]


@dataclass(frozen=True, kw_only=True, eq=False)
class SelectionRelease(ChargedRelease):
    """The selected attempt: index of its candidate, its noisy score, and its release with a digest."""

    candidate: int
    score: float
    value: Any
    value_digest: str

    def digest(self) -> str:
        """Return a hash of what is released, for the ledger."""
        return hashlib.sha256(f"{self.candidate} {self.score!r} {self.value_digest}".encode()).hexdigest()


class RepeatedSelection(Mechanism[RepeatedSelectionSpec, CandidateAttempts, SelectionRelease]):
    """Run K attempts and discard all but the best."""

    def _check_inputs(self, plan: CertifiedSpec, data: CandidateAttempts) -> None:
        spec = plan.spec
        assert isinstance(spec, RepeatedSelectionSpec)
        if (
            not isinstance(data, CandidateAttempts)
            or not data.fit_specs
            or len(data.fit_specs) != len(data.score_specs)
        ):
            raise InvalidParameter("repeat-and-select takes candidates, each with a fit and a score.")
        for certified in (*data.fit_specs, *data.score_specs):
            guarantee = certified.guarantee
            if guarantee.mu is None or not guarantee.mu <= spec.mu or guarantee.adjacency != spec.adjacency:
                raise InvalidParameter(
                    f"a candidate's {certified.spec.mechanism} is not within the {spec.mu:.6g}-GDP of an attempt; "
                    "leave mechanism and theorem to the search."
                )

    def _release(
        self,
        plan: CertifiedSpec,
        data: CandidateAttempts,
        run_state: RunState | None,
        rng: np.random.Generator,
        seeded: bool,
    ) -> SelectionRelease:
        spec = cast(RepeatedSelectionSpec, plan.spec)
        best: tuple[float, int, Any, str] = (-math.inf, -1, None, "")
        with progress(quiet=True):  # progress bars, logs and callbacks would reveal the number of attempts
            for _ in range(spec.sample_n_attempts(rng)):
                candidate = int(rng.integers(len(data.fit_specs)))
                score, value, digest = data.run_attempt(candidate, SharedGenerator(rng, seeded))
                if best[1] < 0 or score > best[0]:
                    best = (score, candidate, value, digest)
        if best[1] < 0:
            raise DplangevinError(
                f"the secret number of repetitions was 0, which happens with probability "
                f"{math.exp(-spec.repetitions):.1g} whatever the records are; nothing was released, and the budget "
                "remains charged. Use law='geometric', which never draws 0."
            )
        return SelectionRelease(
            candidate=best[1],
            score=best[0],
            value=best[2],
            value_digest=best[3],
            plan=plan,
            seeded=seeded,
        )
