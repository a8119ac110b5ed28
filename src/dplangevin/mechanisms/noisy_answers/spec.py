"""Specs of noisy answers (what is released, its sensitivity and its noise), and readers of their options."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeVar

from dplangevin import _check
from dplangevin.accounting.guarantee import Condition, merge_conditions
from dplangevin.accounting.theorem import Capabilities, Spec, public_noise_grid
from dplangevin.errors import InvalidParameter
from dplangevin.problem.constants import ADJACENCIES, Adjacency

SumNoise = Literal["geometric", "gamma", "gaussian"]
SUM_NOISES: tuple[SumNoise, ...] = ("geometric", "gamma", "gaussian")
MAX_EXPONENT = 50.0
MAX_LATTICE_WIDTH = 2.0**56
"""Maximum of k^2 times the scale in grid steps: the largest sum of magnitudes, a small multiple, stays in 64 bits."""


@dataclass(frozen=True, kw_only=True)
class AnswerSpec(Spec):
    """Base of the specs that state their own sensitivity: certifying them needs no problem and no constants.

    Parameters
    ----------
    adjacency : "replace-one" or "add-remove".
    assumptions, conditions : further ones of the guarantee.
    secure : the exact answers are whole numbers, and the ideal noise, rounded to a public grid, is drawn with exact
        arithmetic.
    """

    release: str = field(default="noisy-answers", init=False, repr=False)
    adjacency: Adjacency
    assumptions: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    secure: bool = False

    def __post_init__(self) -> None:
        _check.set_frozen(self, adjacency=_check.check_choice("adjacency", self.adjacency, ADJACENCIES))
        _check.validate_fields(self, secure=_check.check_flag)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of answers in each array of exact answers."""
        raise NotImplementedError


P = TypeVar("P")


def plan_exact_noise(plan: Callable[[bool], P], secure: bool | None) -> P:
    """Return plan(secure); None means exact noise, or floating-point noise where no exact sampler has the scale."""
    if secure is not None:
        return plan(_check.check_flag("secure", secure))
    try:
        return plan(True)
    except InvalidParameter:
        return plan(False)


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
        _check.validate_fields(
            self, answers=_check.check_count, unit=_check.check_scale, scale=_check.check_scale
        )

    def sensitivity(self, noise: SumNoise, adjacency: Adjacency) -> float:
        """Return the sensitivity of the group in the norm of the noise."""
        if adjacency == "add-remove" or self.answers == 1:
            return self.unit
        return (2.0 if noise == "geometric" else math.sqrt(2.0)) * self.unit

    def noise_std(self, noise: SumNoise) -> float:
        """Return the standard deviation of the (continuous) noise on one sum of the group."""
        return self.scale * (math.sqrt(self.answers + 1) if noise == "gamma" else 1.0)


@dataclass(frozen=True, kw_only=True)
class NoisySumsSpec(AnswerSpec):
    """Sums of bounded contributions in groups, each with its own noise scale."""

    mechanism: ClassVar[str] = "noisy-sums"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, secure=True, needs_no_problem=True)
    groups: tuple[SumGroup, ...]
    noise: SumNoise

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.set_frozen(self, noise=_check.check_choice("noise", self.noise, SUM_NOISES))
        if not self.groups:
            raise InvalidParameter("groups must hold at least one group of sums.")
        if self.noise == "geometric" and any(group.unit != int(group.unit) for group in self.groups):
            raise InvalidParameter("geometric noise is for whole numbers: state a whole unit for each group.")
        if self.noise == "geometric" or self.secure:
            for group in self.groups:
                _check.check_integer_scale("scale", group.scale)
        if self.noise == "gamma" and self.secure:
            raise InvalidParameter(
                "gamma noise has no secure form: its entries are dependent, and no exact sampler of their rounded law "
                "is implemented. Use geometric or Gaussian noise."
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of sums in each group."""
        return tuple(group.answers for group in self.groups)

    def with_assumptions(self, *assumptions: str, conditions: tuple[Condition, ...] = ()) -> NoisySumsSpec:
        """Return the same spec with further assumptions and conditions."""
        return replace(
            self,
            assumptions=(*self.assumptions, *assumptions),
            conditions=merge_conditions(self.conditions, conditions),
        )


@dataclass(frozen=True, kw_only=True)
class NoisyMaxSpec(AnswerSpec):
    """Report noisy max: argmax of total_i + Exponential(scale), where one record adds 0 to `unit` to each total."""

    mechanism: ClassVar[str] = "noisy-max"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, secure=True, needs_no_problem=True)
    release: str = field(default="draw", init=False, repr=False)
    candidates: int
    unit: float
    scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.set_frozen(self, candidates=_check.check_count("candidates", self.candidates, minimum=2))
        _check.validate_fields(self, unit=_check.check_scale, scale=_check.check_scale)

    @property
    def sizes(self) -> tuple[int, ...]:
        """One total for each candidate."""
        return (self.candidates,)


@dataclass(frozen=True, kw_only=True)
class CountsSpec(AnswerSpec):
    """Base of the specs of noisy counts.

    Parameters
    ----------
    answers : k, the number of answers.
    changed : how many of them may differ between neighbouring data sets.
    sensitivity : by how much each may differ.
    rows_per_person : neighbours differ in at most this many rows; changed and sensitivity are for all of them.
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
        _check.validate_fields(self, answers=_check.check_count, changed=_check.check_count)
        _check.validate_fields(self, sensitivity=_check.check_scale, rows_per_person=_check.check_count)
        if self.changed > self.answers:
            raise InvalidParameter(
                f"changed = {self.changed} exceeds the number of answers, {self.answers}; it is at most that."
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """All answers are in one array."""
        return (self.answers,)


@dataclass(frozen=True, kw_only=True)
class NoisyAnswersSpec(CountsSpec):
    """Answers plus generalized Gaussian noise with exponent p.

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
        _check.set_frozen(self, p=check_exponent(self.p))
        _check.validate_fields(self, sigma=_check.check_scale)
        _check.set_frozen(self, grid=public_noise_grid(self.sigma, whole=self.secure))
        if self.secure:
            _check.check_integer_scale("sigma", self.sigma / self.grid)


@dataclass(frozen=True, kw_only=True)
class MaxNormSpec(CountsSpec):
    """Answers plus noise of density proportional to exp(-max(|x|_inf, |x|_1 / changed) / scale).

    In secure mode the noise lies on the grid, with probabilities of the same form in which the norm is rounded up.

    Parameters
    ----------
    scale : sensitivity / epsilon.
    """

    mechanism: ClassVar[str] = "largest-norm"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, secure=True, needs_no_problem=True)
    scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.validate_fields(self, scale=_check.check_scale)
        _check.set_frozen(self, grid=public_noise_grid(self.scale, whole=self.secure))
        if self.secure and not self.answers**2 * max(self.scale / self.grid, 1.0) <= MAX_LATTICE_WIDTH:
            raise InvalidParameter(
                f"secure L-infinity noise of scale {self.scale:g} on {self.answers} counts does not fit into 64-bit "
                "integers; use p = 1."
            )


@dataclass(frozen=True, kw_only=True)
class CorrectedAnswersSpec(AnswerSpec):
    """Noisy answers, of which sparse vector finds and corrects up to max_corrections with errors above the threshold.

    Parameters
    ----------
    noise : spec of the first answers. max_corrections : the most answers that are corrected.
    search_epsilon, answer_epsilon : of one search and of one corrected answer.
    threshold : on the error of an answer; it must not depend on data.
    """

    mechanism: ClassVar[str] = "sparse-vector-correction"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, needs_no_problem=True)
    adjacency: Adjacency = "replace-one"
    noise: NoisyAnswersSpec
    max_corrections: int
    search_epsilon: float
    answer_epsilon: float
    threshold: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.validate_fields(
            self,
            max_corrections=_check.check_count,
            search_epsilon=_check.check_scale,
            answer_epsilon=_check.check_scale,
            threshold=_check.check_nonnegative,
        )
        if self.secure or self.noise.secure:
            raise InvalidParameter(
                "sparse-vector corrections have no secure form: they compare real-valued errors with a threshold."
            )
        if self.noise.adjacency != self.adjacency:
            raise InvalidParameter(
                f"adjacency = {self.adjacency!r} differs from that of the noise, {self.noise.adjacency!r}; state the "
                "same."
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """All answers are in one array."""
        return self.noise.sizes

    @property
    def search_scale(self) -> float:
        """Scale b such that noise Lap(2 b) on the threshold and Lap(4 b) on the errors makes a search private."""
        return self.noise.sensitivity / self.search_epsilon

    @property
    def answer_scale(self) -> float:
        """Scale of the Laplace noise on a corrected answer."""
        return self.noise.sensitivity / self.answer_epsilon


def check_exponent(p: float) -> float:
    """Return p if the proof (log-concave noise) and the sampler cover it, else raise InvalidParameter."""
    value = _check.check_positive("p", p)
    if not 1 <= value <= MAX_EXPONENT:
        raise InvalidParameter(
            f"p must be between 1 and {MAX_EXPONENT:g}, got {p!r}: below 1 the noise is not log-concave and nothing "
            "is proved, above it the sampler underflows. Use p = 1 (Laplace), p = 2 (Gaussian), or leave p out."
        )
    return value


def read_counting_options(
    *,
    answers: int,
    sigma: float,
    changed: int | None = None,
    sensitivity: float = 1.0,
    p: float = 2.0,
    adjacency: str = "replace-one",
) -> tuple[None, NoisyAnswersSpec]:
    """Read the options of answers plus generalized Gaussian noise of density exp(-(|x|_p / sigma)^p)."""
    if p == math.inf:
        raise InvalidParameter("p = inf, L-infinity noise, is mechanism='largest-norm' here.")
    return None, NoisyAnswersSpec(
        answers=answers,
        changed=answers if changed is None else changed,
        sensitivity=sensitivity,
        p=p,
        sigma=sigma,
        adjacency=adjacency,  # type: ignore[arg-type]
    )


def read_largest_norm_options(
    *,
    answers: int,
    scale: float,
    changed: int | None = None,
    sensitivity: float = 1.0,
    adjacency: str = "replace-one",
) -> tuple[None, MaxNormSpec]:
    """Read the options of answers plus noise of density exp(-max(|x|_inf, |x|_1 / changed) / scale)."""
    return None, MaxNormSpec(
        answers=answers,
        changed=answers if changed is None else changed,
        sensitivity=sensitivity,
        scale=scale,
        adjacency=adjacency,  # type: ignore[arg-type]
    )
