"""The schedules of noisy answers: bounded answers about records, their neighbours, and the noise on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.conditions import Condition, merge_conditions
from dplangevin.privacy.schedule import Capabilities, Schedule
from dplangevin.privacy.theorem import public_grid
from dplangevin.problem.constants import ADJACENCIES, Adjacency

SumNoise = Literal["geometric", "gamma", "gaussian"]
SUM_NOISES: tuple[SumNoise, ...] = ("geometric", "gamma", "gaussian")
LARGEST_POWER = 50.0
WIDEST_LATTICE = 2.0**56
"""k^2 times the scale in steps: the largest sum of sizes is a small multiple of it, and stays within 64 bits."""


@dataclass(frozen=True, kw_only=True)
class AnswerSchedule(Schedule):
    """Base of the schedules that state their own neighbours: no problem and no constants are needed to price them.

    Parameters
    ----------
    adjacency : "replace-one" or "add-remove". assumptions, conditions : more that the guarantee assumes.
    secure : the exact answers are whole numbers, and what is released is drawn exactly, as ideal noise on them looks
        after rounding to a public grid.
    """

    release: str = field(default="noisy-answers", init=False, repr=False)
    adjacency: Adjacency
    assumptions: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    secure: bool = False

    def __post_init__(self) -> None:
        _check.put(self, adjacency=_check.choice("adjacency", self.adjacency, ADJACENCIES))
        _check.each(self, secure=_check.flag)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many answers each array of exact answers holds."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class SumGroup:
    """Sums released with one scale of noise.

    Parameters
    ----------
    answers : number of sums.
    unit : bound on one record's contribution: on the sum of its (non-negative) entries for geometric noise, on its
        Euclidean (Frobenius) length otherwise.
    scale : geometric: P(k) proportional to exp(-|k| / scale) on the integers; gamma: density proportional to
        exp(-|z| / scale); gaussian: standard deviation.
    """

    answers: int
    unit: float
    scale: float

    def __post_init__(self) -> None:
        _check.each(self, answers=_check.count, unit=_check.scale, scale=_check.scale)

    def reach(self, noise: SumNoise, adjacency: Adjacency) -> float:
        """The largest move of the group between neighbours, in the norm of the noise."""
        if adjacency == "add-remove" or self.answers == 1:
            return self.unit
        return (2.0 if noise == "geometric" else math.sqrt(2.0)) * self.unit

    def deviation(self, noise: SumNoise) -> float:
        """Standard deviation of the (continuous) noise on one sum of the group."""
        return self.scale * (math.sqrt(self.answers + 1) if noise == "gamma" else 1.0)


@dataclass(frozen=True, kw_only=True)
class NoisySumsSchedule(AnswerSchedule):
    """Sums of bounded contributions in groups, each with its scale of noise."""

    mechanism: ClassVar[str] = "noisy-sums"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, secure=True, needs_no_problem=True)
    groups: tuple[SumGroup, ...]
    noise: SumNoise

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.put(self, noise=_check.choice("noise", self.noise, SUM_NOISES))
        if not self.groups:
            raise InvalidParameter("groups must hold at least one group of sums.")
        if self.noise == "geometric" and any(group.unit != int(group.unit) for group in self.groups):
            raise InvalidParameter("geometric noise is for whole numbers: state a whole unit for each group.")
        if self.noise == "geometric" or self.secure:
            for group in self.groups:
                _check.integer_scale("scale", group.scale)
        if self.noise == "gamma" and self.secure:
            raise InvalidParameter(
                "gamma noise has no secure form: its entries depend on one another and no exact sampler of their "
                "rounded law is here. Use geometric or Gaussian noise."
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of sums in each group."""
        return tuple(group.answers for group in self.groups)

    def with_assumptions(self, *words: str, conditions: tuple[Condition, ...] = ()) -> NoisySumsSchedule:
        """The same release with more to assume."""
        return replace(
            self,
            assumptions=(*self.assumptions, *words),
            conditions=merge_conditions(self.conditions, conditions),
        )


@dataclass(frozen=True, kw_only=True)
class NoisyMaxSchedule(AnswerSchedule):
    """argmax of total_i + Exponential(scale), where one record adds between 0 and unit to each total."""

    mechanism: ClassVar[str] = "noisy-max"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, secure=True, needs_no_problem=True)
    release: str = field(default="draw", init=False, repr=False)
    candidates: int
    unit: float
    scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.put(self, candidates=_check.count("candidates", self.candidates, least=2))
        _check.each(self, unit=_check.scale, scale=_check.scale)

    @property
    def sizes(self) -> tuple[int, ...]:
        """One total for each candidate."""
        return (self.candidates,)


@dataclass(frozen=True, kw_only=True)
class CountedAnswers(AnswerSchedule):
    """Base of the schedules of noisy counts.

    Parameters
    ----------
    answers : k, the number of answers.
    changed : how many of them may differ between neighbouring data sets.
    sensitivity : by how much each may differ.
    rows_per_person : neighbours differ in so many rows, and changed and sensitivity are for all of them.
    grid : answers are rounded to multiples of this power of two; in secure mode whole numbers are multiples of it.
    """

    adjacency: Adjacency = "replace-one"
    answers: int
    changed: int
    sensitivity: float
    rows_per_person: int = 1
    grid: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.each(self, answers=_check.count, changed=_check.count)
        _check.each(self, sensitivity=_check.scale, rows_per_person=_check.count)
        if self.changed > self.answers:
            raise InvalidParameter(
                f"changed = {self.changed} exceeds the number of answers, {self.answers}; it is at most that."
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """All answers lie in one array."""
        return (self.answers,)


@dataclass(frozen=True, kw_only=True)
class NoisyAnswersSchedule(CountedAnswers):
    """answers + GGauss(p, sigma): the public parameters that are accounted and executed.

    Parameters
    ----------
    p, sigma : density proportional to exp(-(|x|_p / sigma)^p).
    """

    mechanism: ClassVar[str] = "generalized-gaussian"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, secure=True, needs_no_problem=True)
    p: float
    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.put(self, p=checked_power(self.p))
        _check.each(self, sigma=_check.scale)
        _check.put(self, grid=public_grid(self.sigma, whole=self.secure))
        if self.secure:
            _check.integer_scale("sigma", self.sigma / self.grid)


@dataclass(frozen=True, kw_only=True)
class LargestNormSchedule(CountedAnswers):
    """answers + noise of density proportional to exp(-max(|x|_inf, |x|_1 / changed) / scale).

    In secure mode the noise lies on the grid, with probabilities proportional to the same, its norm rounded up.

    Parameters
    ----------
    scale : sensitivity / epsilon.
    """

    mechanism: ClassVar[str] = "largest-norm"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, secure=True, needs_no_problem=True)
    scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.each(self, scale=_check.scale)
        _check.put(self, grid=public_grid(self.scale, whole=self.secure))
        if self.secure and not self.answers**2 * max(self.scale / self.grid, 1.0) <= WIDEST_LATTICE:
            raise InvalidParameter(
                f"secure noise of the largest norm on {self.answers} counts and of scale {self.scale:g} is too wide "
                "for whole numbers of 64 bits; use p = 1."
            )


@dataclass(frozen=True, kw_only=True)
class CorrectedAnswersSchedule(AnswerSchedule):
    """Noisy answers of which up to `hits`, whose errors exceed the threshold, are found by sparse vector and mended.

    Parameters
    ----------
    noise : of the first answers. hits : the most that are mended.
    search_epsilon, answer_epsilon : of one search and of one mended answer.
    threshold : on the error of an answer; it must not depend on data.
    """

    mechanism: ClassVar[str] = "sparse-vector-correction"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, needs_no_problem=True)
    adjacency: Adjacency = "replace-one"
    noise: NoisyAnswersSchedule
    hits: int
    search_epsilon: float
    answer_epsilon: float
    threshold: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.each(
            self,
            hits=_check.count,
            search_epsilon=_check.scale,
            answer_epsilon=_check.scale,
            threshold=_check.nonnegative,
        )
        if self.secure or self.noise.secure:
            raise InvalidParameter(
                "sparse-vector corrections have no secure form: they compare real-valued errors with a threshold."
            )
        if self.noise.adjacency != self.adjacency:
            raise InvalidParameter("adjacency differs from that of the noise; state the same.")

    @property
    def sizes(self) -> tuple[int, ...]:
        """All answers lie in one array."""
        return self.noise.sizes


def checked_power(p: float) -> float:
    """p, when the proof (log-concave noise) and the sampler cover it."""
    value = _check.positive("p", p)
    if not 1 <= value <= LARGEST_POWER:
        raise InvalidParameter(
            f"p must be between 1 and {LARGEST_POWER:g}, got {p!r}: below 1 the noise is not log-concave and nothing "
            "is proved, above it the sampler underflows. Use p = 1 (Laplace), p = 2 (Gaussian), or leave p out."
        )
    return value
