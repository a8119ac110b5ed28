"""Counts with generalised Gaussian noise, shaped to make the largest error small."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._rng import POWER_LAWS, label_noise
from dplangevin.errors import InvalidParameter
from dplangevin.families.mechanism import AnswerMechanism
from dplangevin.families.noisy_answers.best_noise import (
    CubeError,
    IndependentError,
    Objective,
    best_noise,
    error_law,
    within_reach,
)
from dplangevin.families.noisy_answers.schedule import (
    CountedAnswers,
    LargestNormSchedule,
    NoisyAnswersSchedule,
    checked_power,
)
from dplangevin.families.noisy_answers.secure import whole_numbers
from dplangevin.families.release import AnswersRelease
from dplangevin.families.run_state import StatePath
from dplangevin.privacy.generalized_gaussian import norm_scale, smallest_sigma
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Price
from dplangevin.privacy.spender import Spender
from dplangevin.problem.constants import ADJACENCIES, Adjacency
from dplangevin.samplers.cut_cube import cube_sampler
from dplangevin.samplers.norm_lattice import norm_noise
from dplangevin.samplers.rounded import rounded_sums

LARGEST_EPSILON = 1000.0
_BLOCK = 2**20


class NoisyCounts:
    """Base of calibrated counts: one price, the noise that runs it, and to people with how many rows."""

    plan: Price
    noise: AnswerMechanism[Any]
    rows_per_person: int

    @property
    def guarantee(self) -> Guarantee:
        """What a release promises."""
        return self.plan.guarantee

    def release(
        self,
        counts: ArrayLike | Callable[[], ArrayLike],
        random_state: object = None,
        *,
        ledger: Spender | None = None,
        state: StatePath = None,
    ) -> Floats:
        """The noisy counts; counts that are a function are read after the ledger is charged."""
        return self.run(counts, random_state, ledger, state).values[0]

    def run(
        self,
        counts: ArrayLike | Callable[[], ArrayLike],
        random_state: object,
        ledger: Spender | None,
        state: StatePath,
    ) -> AnswersRelease:
        """Counts through the till."""
        exact = counts if callable(counts) else lambda: counts
        return self.noise.run(
            self.plan,
            lambda: [np.asarray(exact(), float).ravel()],
            random_state,
            ledger=ledger,
            state=state,
            rows_per_person=self.rows_per_person,
        )


@dataclass(frozen=True, kw_only=True)
class GeneralizedGaussianMechanism(NoisyCounts):
    """counts + x with density of x proportional to exp(-(|x|_p / sigma)^p), or to exp(-|x|_K / sigma) for p = inf.

    |x|_K = max(|x|_inf, |x|_1 / changed_counts): its unit ball is the hull of the moves of one record. For p = inf the
    promise is pure and, when every count may change, the expected largest error is k / epsilon.

    Parameters
    ----------
    k : number of counts.
    epsilon, delta : the promise; delta = 0 needs p = 1 or p = inf.
    objective : "max" chooses p for the smallest expected maximum error, "rmse" for the smallest standard deviation.
    p : the shape, 1 (Laplace), 2 (Gaussian), any number in between or above, or inf; None chooses the best.
    sensitivity : how much one count may differ between neighbouring data sets.
    changed_counts : how many counts may differ between NEIGHBOURING DATA SETS; all of them unless stated.
    touched_counts : how many counts ONE RECORD can touch, as another way to state it: under "replace-one" twice
        as many may differ (one record leaves, one comes), under "add-remove" as many.
    adjacency : "replace-one" or "add-remove".
    rows_per_person : the promise is for all rows of a person who owns at most so many; sensitivity and changed_counts
        are then those of so many rows.
    secure : counts are whole numbers, and their noise is drawn exactly, as ideal noise looks after rounding to the
        grid, from the operating system's cryptographic generator: the same error, nothing assumed of floating point.

    Privacy
    -------
    (epsilon, delta) under the stated adjacency by the worst-shift theorem; sigma is the smallest the numeric accountant
    certifies, rounded up to six digits and certified again. p = inf is paid as one Laplace answer. Answers are rounded
    to a public grid of about sigma 2^-20. Without `secure` that removes the low bits of floating-point noise but is not
    a proof about floats.

    References
    ----------
    Ganesh (2022), thesis, chapter 2 (with exact constants instead of Lemma 30); Hardt and Talwar (2010) for p = inf.

    Examples
    --------
    >>> mechanism = GeneralizedGaussianMechanism(k=1000, epsilon=1, delta=1e-6)
    >>> mechanism.p, round(mechanism.expected_maximum_error())
    (3.65, 400)
    >>> pure = GeneralizedGaussianMechanism(k=10, epsilon=1, delta=0)
    >>> pure.p, round(pure.expected_maximum_error())  # Laplace: 29
    (inf, 10)
    """

    k: int
    epsilon: float
    delta: float
    objective: Objective = "max"
    p: float = None  # type: ignore[assignment]
    sensitivity: float = 1.0
    changed_counts: int = None  # type: ignore[assignment]
    touched_counts: int | None = None
    adjacency: Adjacency = "replace-one"
    rows_per_person: int = 1
    secure: bool = False
    sigma: float = field(init=False)
    plan: Price = field(init=False, compare=False, repr=False)
    noise: AnswerMechanism[Any] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check.each(self, k=_check.count, epsilon=_check.positive)
        if self.epsilon > LARGEST_EPSILON:
            raise InvalidParameter(
                f"epsilon = {self.epsilon:g} promises nothing; the accountant goes up to {LARGEST_EPSILON:g}."
            )
        _check.put(self, delta=0.0 if self.delta == 0 else _check.open_unit("delta", self.delta))
        _check.put(self, objective=_check.choice("objective", self.objective, ("max", "rmse")))
        _check.each(self, sensitivity=_check.positive)
        _check.put(self, adjacency=_check.choice("adjacency", self.adjacency, ADJACENCIES))
        _check.put(self, changed_counts=self._changed())
        least = (self.k, self.changed_counts, self.epsilon, self.delta, self.objective)
        _check.put(self, p=best_noise(*least, secure=self.secure) if self.p is None else self._stated_shape())
        scale = (
            norm_scale(self.epsilon, self.delta, secure=self.secure)
            if self.p == math.inf
            else smallest_sigma(self.p, self.changed_counts, self.epsilon, self.delta)
        )
        _check.put(self, sigma=scale if self.sensitivity == 1 else scale * self.sensitivity * (1 + 1e-14))
        common: dict[str, Any] = {
            "answers": self.k,
            "changed": self.changed_counts,
            "sensitivity": self.sensitivity,
            "adjacency": self.adjacency,
            "rows_per_person": self.rows_per_person,
            "secure": self.secure,
        }
        schedule: CountedAnswers
        if self.p == math.inf:
            schedule = LargestNormSchedule(scale=self.sigma, **common)
            _check.put(self, noise=LargestNormNoise())
        else:
            schedule = NoisyAnswersSchedule(p=self.p, sigma=self.sigma, **common)
            _check.put(self, noise=GeneralizedGaussianNoise())
        _check.put(self, plan=Price(schedule=schedule, delta=self.delta))

    def _changed(self) -> int:
        if self.changed_counts is not None and self.touched_counts is not None:
            raise InvalidParameter("state changed_counts or touched_counts, not both.")
        if self.touched_counts is not None:
            touched = _check.count("touched_counts", self.touched_counts)
            return min(self.k, 2 * touched if self.adjacency == "replace-one" else touched)
        if self.changed_counts is None:
            return self.k
        changed = _check.count("changed_counts", self.changed_counts)
        if changed > self.k:
            raise InvalidParameter(f"changed_counts = {changed} exceeds k = {self.k}; it is at most k.")
        return changed

    def _stated_shape(self) -> float:
        if self.p == math.inf:
            if not within_reach(self.k, self.changed_counts, secure=self.secure):
                raise InvalidParameter(
                    f"p = inf would draw its noise for {self.k} counts of which {self.changed_counts} change by too "
                    "many rejections; use p = 1, or leave p out."
                )
            return math.inf
        p = checked_power(self.p)
        if self.delta == 0 and p > 1:
            raise InvalidParameter(
                f"p = {p} has no pure promise; with delta = 0 use p = 1 (Laplace), p = inf, or leave p out."
            )
        return p

    @property
    def schedule(self) -> CountedAnswers:
        """The public parameters that were certified and are run."""
        schedule = self.plan.schedule
        assert isinstance(schedule, CountedAnswers)
        return schedule

    @property
    def _error(self) -> IndependentError | CubeError:
        return error_law(self.k, self.changed_counts, self.p)

    @property
    def grid(self) -> float:
        """Answers are rounded to multiples of this power of two."""
        return self.schedule.grid

    @property
    def standard_deviation(self) -> float:
        """Of the noise on one count."""
        return self.expected_error(2.0)

    def expected_maximum_error(self) -> float:
        """E max_i |error_i| over all k counts."""
        return self.sigma * self._error.expected_maximum()

    def expected_error(self, q: float) -> float:
        """(E |error|^q)^{1/q} of one count: at least E |error|_q / k^{1/q}, and nearly that for many counts.

        q = inf is the expected maximum error.
        """
        if q == math.inf:
            return self.expected_maximum_error()
        if not _check.positive("q", q) >= 1:
            raise InvalidParameter(f"q must be at least 1, got {q!r}: below 1 it is no norm.")
        return self.sigma * self._error.power_mean(q)

    def maximum_error_quantile(self, beta: float = 0.05) -> float:
        """u with Pr[some error exceeds u] = beta."""
        return self.sigma * self._error.maximum_quantile(_check.open_unit("beta", beta))

    def margin(self, level: float = 0.95, *, simultaneous: bool = False) -> float:
        """Half-width of each count's interval; with `simultaneous`, all k hold at once with this probability."""
        if simultaneous:
            return self.maximum_error_quantile(1 - _check.open_unit("level", level))
        return self.sigma * self._error.margin(_check.open_unit("level", level))

    def intervals(
        self, released: ArrayLike, level: float = 0.95, *, simultaneous: bool = False
    ) -> tuple[Floats, Floats]:
        """(low, high) for the true count behind each released one (before any post-processing)."""
        values = np.asarray(released, float)
        width = self.margin(level, simultaneous=simultaneous)
        return values - width, values + width

    def describe(self) -> str:
        """The promise and the error in words."""
        return (
            f"{self.k} counts, of which one record can change {self.changed_counts}; noise shape p = {self.p:g}, "
            f"sigma = {self.sigma:g}. Expected largest error {self.expected_maximum_error():.4g}; with 95% probability "
            f"no count is off by more than {self.maximum_error_quantile(0.05):.4g}; a single count is within "
            f"{self.margin(0.95):.4g} of the truth with 95% probability."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "k": self.k,
            "changed_counts": self.changed_counts,
            "sensitivity": self.sensitivity,
            "p": "inf" if self.p == math.inf else self.p,
            "sigma": self.sigma,
            "grid": self.grid,
            "expected_maximum_error": self.expected_maximum_error(),
            "maximum_error_95": self.maximum_error_quantile(0.05),
            "margin_95": self.margin(0.95),
            "guarantee": self.guarantee.to_dict(),
        }


class GeneralizedGaussianNoise(AnswerMechanism[NoisyAnswersSchedule]):
    """answers + sigma GGauss(p), rounded to a public grid."""

    def draw(
        self, schedule: NoisyAnswersSchedule, exact: Sequence[Floats], rng: np.random.Generator
    ) -> tuple[Floats, ...]:
        values, result = exact[0].ravel(), np.empty(schedule.answers)
        if schedule.secure:
            whole = whole_numbers(values, schedule.grid)
            return (rounded_sums(whole, schedule.grid, schedule.sigma, schedule.p),)
        for start in range(0, schedule.answers, _BLOCK):
            part = slice(start, start + _BLOCK)
            noisy = values[part] + schedule.sigma * draw(values[part].size, schedule.p, rng)
            result[part] = np.round(noisy / schedule.grid) * schedule.grid
        return (result,)


class LargestNormNoise(AnswerMechanism[LargestNormSchedule]):
    """answers + scale Gamma(k + 1) U, U uniform in the unit ball of the norm, rounded to a public grid.

    The norm of the noise is then Gamma(k), and the noise is uniform on the sphere of that radius.

    In secure mode the noise is drawn exactly from its law on the grid, from the operating system's generator.

    The noise is drawn by rejection, without looking at the answers: its running time says nothing about them.

    References
    ----------
    Hardt and Talwar (2010), section 4; Ganesh (2022), section 2.1.
    """

    def draw(
        self, schedule: LargestNormSchedule, exact: Sequence[Floats], rng: np.random.Generator
    ) -> tuple[Floats, ...]:
        if schedule.secure:
            whole = whole_numbers(exact[0].ravel(), schedule.grid)
            moved = norm_noise(schedule.answers, schedule.changed, schedule.scale / schedule.grid)
            return (np.asarray((whole + moved) * schedule.grid),)
        ball = cube_sampler(schedule.answers, float(schedule.changed))
        noise = rng.standard_gamma(schedule.answers + 1) * ball.draw(rng)
        noisy = exact[0].ravel() + schedule.scale * noise
        return (np.round(noisy / schedule.grid) * schedule.grid,)


def draw(size: int, p: float, rng: np.random.Generator) -> Floats:
    """Independent draws for sigma = 1: sign times Gamma(1/p)^(1/p)."""
    sizes = rng.standard_gamma(1 / p, size) ** (1 / p)
    signed: Floats = np.where(rng.random(size) < 0.5, -sizes, sizes)
    if p in POWER_LAWS:
        signed = label_noise(signed, *POWER_LAWS[p])
    return signed
