"""Experimental: noisy counts whose largest errors are found and corrected with the sparse vector technique."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import gammainccinv

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.generalized_gaussian import SAFETY_MARGIN, fisher_information, round_up_digits
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.accounting.pld import find_decreasing_root
from dplangevin.errors import CalibrationFailed
from dplangevin.mechanisms.mechanism import AnswerMechanism, NoiseDraws
from dplangevin.mechanisms.noisy_answers.noise_choice import choose_independent_exponent
from dplangevin.mechanisms.noisy_answers.noisy_counts import (
    GeneralizedGaussianMechanism,
    NoisyCounts,
    sample_generalized_gaussian,
)
from dplangevin.mechanisms.noisy_answers.spec import CorrectedAnswersSpec, NoisyAnswersSpec, check_exponent
from dplangevin.problem.constants import Adjacency


@dataclass(frozen=True, kw_only=True)
class SparseVectorCorrection(NoisyCounts):
    """Noisy counts y = counts + GGauss(p, sigma), of which up to `corrections` with large errors are corrected.

    For i = 1, 2, ...: if |y_i - count_i| + Lap(4 D/a) >= threshold + rho, with rho ~ Lap(2 D/a) redrawn after
    each hit, subtract y_i - count_i + Lap(D/b) from y_i; stop after `corrections` hits. No exact count is released.

    Measured: NO GAIN over `GeneralizedGaussianMechanism` with its best p. At epsilon = 1, delta = 1e-6, with two
    corrections and half a percent of the budget, on fresh seeds, the maximum error is on average 1.53, 1.014 and
    0.999 times as large (standard errors .02, .004, .002) at 1e3, 1e4 and 1e5 counts; with ten corrections and two
    percent, 2.86, 1.070 and 1.012 times. It is included so that the claim of the literature can be checked.

    Parameters
    ----------
    k, epsilon, delta, p, sensitivity, changed_counts, adjacency, rows_per_person : as in
        GeneralizedGaussianMechanism.
    corrections : c, the maximum number of counts that are corrected.
    budget_fraction : fraction of the budget (of mu^2, in the Gaussian limit) for the corrections.
    answer_ratio : b / a, the epsilon of one corrected answer over that of one search.
    threshold : in counts; None takes the level that c of the k errors exceed on average. It must not depend on data.

    Attributes
    ----------
    sigma : scale of the generalized Gaussian noise.
    search_epsilon, answer_epsilon : a and b, of one search and of one corrected answer.
    plan : the certified spec.

    Privacy
    -------
    Noise, searches (each a-DP) and answers (Laplace, each b-DP) are composed adaptively in ONE sum of privacy losses;
    splitting epsilon and delta between them, as in the thesis, wastes most of the budget. The halved scales for
    monotone queries do not apply.

    References
    ----------
    Ganesh (2022), Theorems 36 and 37, without the step that outputs the exact counts when the noise is large.
    """

    k: int
    epsilon: float
    delta: float
    p: float = None  # type: ignore[assignment]
    corrections: int = 2
    budget_fraction: float = 0.005
    answer_ratio: float = 0.25
    threshold: float = None  # type: ignore[assignment]
    sensitivity: float = 1.0
    changed_counts: int = None  # type: ignore[assignment]
    adjacency: Adjacency = "replace-one"
    rows_per_person: int = 1
    sigma: float = field(init=False)
    search_epsilon: float = field(init=False)
    answer_epsilon: float = field(init=False)
    plan: CertifiedSpec = field(init=False, compare=False, repr=False)
    noise: AnswerMechanism[Any] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check.validate_fields(self, delta=_check.check_open_unit, corrections=_check.check_count)
        _check.validate_fields(
            self, budget_fraction=_check.check_open_unit, answer_ratio=_check.check_positive
        )
        plain = GeneralizedGaussianMechanism(
            k=self.k,
            epsilon=self.epsilon,
            delta=self.delta,
            p=2.0,
            sensitivity=self.sensitivity,
            changed_counts=self.changed_counts,
            adjacency=self.adjacency,
            rows_per_person=self.rows_per_person,
        )
        p = (
            choose_independent_exponent(self.k, plain.changed_counts, plain.epsilon, plain.delta, "max")
            if self.p is None
            else check_exponent(self.p)
        )
        _check.set_frozen(self, p=p, changed_counts=plain.changed_counts)
        if self.threshold is not None:
            _check.validate_fields(self, threshold=_check.check_nonnegative)
        self._calibrate()
        _check.set_frozen(self, threshold=self._spec.threshold, noise=SparseVector())

    @property
    def _spec(self) -> CorrectedAnswersSpec:
        spec = self.plan.spec
        assert isinstance(spec, CorrectedAnswersSpec)
        return spec

    def _calibrate(self) -> None:
        """Set the scales for the largest mu whose split meets (epsilon, delta), exactly as they were certified."""

        def excess(log_scale: float) -> float:
            guarantee = self._certify_scales(*self._split_scales(math.exp(-log_scale))).guarantee
            return max(
                math.log(max(guarantee.delta(self.epsilon * (1 - SAFETY_MARGIN)), 1e-300) / self.delta), -4.0
            )

        start = -math.log(cv.gdp_mu(self.epsilon, self.delta))
        log_scale, _ = find_decreasing_root(excess, start, -20.0, 1e-5)
        sigma, search, answer = self._split_scales(math.exp(-log_scale))
        plan = self._certify_scales(sigma, search, answer)
        if not plan.guarantee.delta(self.epsilon) <= self.delta:
            raise CalibrationFailed("no noise was certified; lower budget_fraction or corrections.")
        _check.set_frozen(self, sigma=sigma, search_epsilon=search, answer_epsilon=answer, plan=plan)

    def _split_scales(self, mu: float) -> tuple[float, float, float]:
        """Return (sigma, epsilon of a search, epsilon of an answer) for a budget of mu in the Gaussian limit."""
        noise = math.sqrt(self.changed_counts * fisher_information(self.p) / (1 - self.budget_fraction)) / mu
        search = mu * math.sqrt(self.budget_fraction / (self.corrections * (1 + self.answer_ratio**2)))
        return round_up_digits(noise * self.sensitivity), search, self.answer_ratio * search

    def _certify_scales(self, sigma: float, search: float, answer: float) -> CertifiedSpec:
        noise = NoisyAnswersSpec(
            answers=self.k,
            changed=self.changed_counts,
            sensitivity=self.sensitivity,
            p=self.p,
            sigma=sigma,
            adjacency=self.adjacency,
            rows_per_person=self.rows_per_person,
        )
        level = math.pow(float(gammainccinv(1 / self.p, min(1.0, self.corrections / self.k))), 1 / self.p)
        spec = CorrectedAnswersSpec(
            noise=noise,
            adjacency=self.adjacency,
            max_corrections=self.corrections,
            search_epsilon=search,
            answer_epsilon=answer,
            threshold=sigma * level if self.threshold is None else self.threshold,
        )
        return CertifiedSpec(spec=spec, delta=self.delta)


class SparseVector(AnswerMechanism[CorrectedAnswersSpec]):
    """Release noisy answers, after searching for the largest errors and correcting them."""

    def release_answers(
        self, spec: CorrectedAnswersSpec, exact: Sequence[Floats], draws: NoiseDraws
    ) -> tuple[Floats, ...]:
        noise, values, rng = spec.noise, exact[0], draws.rng
        errors = noise.sigma * sample_generalized_gaussian(noise.answers, noise.p, rng)
        noisy_errors = np.abs(errors) + rng.laplace(scale=4 * spec.search_scale, size=noise.answers)
        noisy, start = values + errors, 0
        for _ in range(spec.max_corrections):
            above = np.flatnonzero(
                noisy_errors[start:] >= spec.threshold + rng.laplace(scale=2 * spec.search_scale)
            )
            if above.size == 0:
                break
            index = start + int(above[0])
            noisy[index] -= errors[index] + rng.laplace(scale=spec.answer_scale)
            start = index + 1
        return (np.asarray(np.round(noisy / noise.grid) * noise.grid),)
