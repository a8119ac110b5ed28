"""Run a secret number of private attempts and release the one with the largest noisy score."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy as np

from dplangevin._progress import progress
from dplangevin._rng import SharedGenerator
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.mechanisms.mechanism import ChargedRelease, Mechanism, NoiseDraws
from dplangevin.mechanisms.repeated_selection.spec import RepeatedSelectionSpec
from dplangevin.mechanisms.run_state import RunState
from dplangevin.sampling.exact_noise import LazyUniform, sample_uniform_below

_GUARD_DIGITS = 25


@dataclass(frozen=True, kw_only=True, eq=False)
class CandidateAttempts:
    """The candidates: an attempt draws one uniformly, fits it and scores it on other records.

    Parameters
    ----------
    fit_specs, score_specs : certified specs of each candidate's fit and of its score; they use disjoint records.
    run_attempt : (candidate, generator) -> its noisy score, what would be released, and a digest of it.
    guarantee_for_person : turns the guarantee of a candidate's fit or score, which is for rows, into one for persons.
    """

    fit_specs: tuple[CertifiedSpec, ...]
    score_specs: tuple[CertifiedSpec, ...]
    run_attempt: Callable[[int, SharedGenerator], tuple[float, Any, str]]
    guarantee_for_person: Callable[[Guarantee], Guarantee] = lambda guarantee: guarantee


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
        self.check_candidates(plan, data)

    def check_candidates(self, plan: CertifiedSpec, data: CandidateAttempts) -> None:
        """Refuse candidates whose fits or scores are not within the guarantee of an attempt; no record is read."""
        spec = plan.spec
        assert isinstance(spec, RepeatedSelectionSpec)
        if (
            not isinstance(data, CandidateAttempts)
            or not data.fit_specs
            or len(data.fit_specs) != len(data.score_specs)
        ):
            raise InvalidParameter("repeat-and-select takes candidates, each with a fit and a score.")
        for certified in (*data.fit_specs, *data.score_specs):
            guarantee = data.guarantee_for_person(certified.guarantee)
            if spec.secure and guarantee.arithmetic != "discrete-grid":
                raise InvalidParameter(
                    f"a candidate's {certified.spec.mechanism} draws real-valued noise, and this selection is exact."
                )
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
            draws = NoiseDraws.from_generator(rng, seeded)
            for _ in range(sample_n_attempts(spec, draws)):
                candidate = int(sample_uniform_below(len(data.fit_specs), 1, draws.source)[0])
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


def sample_n_attempts(spec: RepeatedSelectionSpec, draws: NoiseDraws) -> int:
    """Draw K exactly: the least k whose cumulative probability is above a uniform number."""
    number = LazyUniform(int.from_bytes(draws.source(8), "big"), draws.source)
    law = _RepetitionProbabilities(spec)
    for k in itertools.count(0 if spec.law == "poisson" else 1):
        if number.is_below(partial(law.cumulative_bounds, k)):
            return k
    raise AssertionError("the probabilities add up to 1")


class _RepetitionProbabilities:
    """Bounds on Pr[K <= k], from sums of decimals that are extended as k grows."""

    def __init__(self, spec: RepeatedSelectionSpec) -> None:
        self._law = spec.law
        self._parameter = Fraction(spec.repetitions if spec.law == "poisson" else 1 - Fraction(spec.gamma))
        self._sums: dict[int, tuple[list[Decimal], Decimal]] = {}

    def cumulative_bounds(self, k: int, precision: int) -> tuple[Fraction, Fraction]:
        """Return bounds about 10^-precision apart.

        With x the parameter the terms are x^k (geometric), x^k / k (logarithmic) or x^k / k! (Poisson). A sum of k
        terms in decimals with d digits is off by at most k units of its last digit, in each of few operations.
        """
        context = Context(prec=precision + _GUARD_DIGITS)
        x = context.divide(Decimal(self._parameter.numerator), Decimal(self._parameter.denominator))
        sums, power = self._sums.setdefault(
            precision, ([Decimal(1 if self._law == "poisson" else 0)], Decimal(1))
        )
        while len(sums) <= k:
            index = len(sums)
            if self._law == "poisson":
                power = context.divide(context.multiply(power, x), Decimal(index))
                term = power
            else:
                # the geometric law needs x^0 + ... + x^(k-1), the logarithmic one x + ... + x^k / k
                term = power if self._law == "geometric" else context.multiply(power, x)
                power = context.multiply(power, x)
                term = term if self._law == "geometric" else context.divide(term, Decimal(index))
            sums.append(context.add(sums[-1], term))
            self._sums[precision] = sums, power
        if self._law == "poisson":
            value = context.multiply(sums[k], context.exp(x.copy_negate()))
        elif self._law == "geometric":
            value = context.multiply(sums[k], context.subtract(Decimal(1), x))
        else:
            value = context.divide(
                sums[k], context.ln(context.divide(Decimal(1), context.subtract(Decimal(1), x)))
            )
        error = Fraction(1, 10**precision)
        return Fraction(value) - error, Fraction(value) + error
