"""Specs of noisy answers (what is released, its sensitivity and its noise), their options, and their privacy.

Noisy sums. Adding a record changes a group of sums by one contribution, of norm at most `unit`. Replacing a record
changes it by a - b, and two contributions have a non-negative inner product (their entries are non-negative, or they
are positive semidefinite matrices), so |a - b|^2 <= |a|^2 + |b|^2 <= 2 unit^2; a single sum changes by at most unit.
For counts the entries of a contribution add up to at most unit, so the L1 sensitivity is at most 2 unit. Groups are
answered together: costs add (pure), squared costs add (Gaussian).

Report noisy max (permute-and-flip). Fix the noise of every candidate but i. Candidate i wins when its noise exceeds
t = max_j (q_j + e_j) - q_i, so with probability min(1, exp(-t / scale)), and epsilon is the largest change of t over
scale. Replacing a record changes each total by at most unit either way, hence t by at most 2 unit. Adding a record
changes every total by 0 to unit in the SAME direction (contributions are non-negative), hence t by at most unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from dplangevin import _check
from dplangevin.accounting.conversions import divide_up, gdp_mu
from dplangevin.accounting.generalized_gaussian import CorrectedNoise, GeneralizedGaussian
from dplangevin.accounting.guarantee import Condition, Guarantee, merge_conditions
from dplangevin.accounting.parts import Gaussian, PrivacyPart, Pure
from dplangevin.accounting.plan import (
    ANSWER_ASSUMPTIONS,
    COMMON_ASSUMPTIONS,
    Capabilities,
    Spec,
    Theorem,
    noise_assumptions,
    public_noise_grid,
    round_down,
    round_up,
)
from dplangevin.errors import CalibrationFailed, InvalidParameter
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


REFERENCES: dict[SumNoise, str] = {
    "geometric": "Ghosh, Roughgarden and Sundararajan (2012), Theorem 2.1 (geometric mechanism)",
    "gamma": "Hardt and Talwar (2010), Theorem 4.3 (K-norm mechanism, Euclidean ball)",
    "gaussian": "Dong, Roth and Su (2022), Theorem 2.7 (Gaussian mechanism)",
}


class NoisySumsTheorem(Theorem[NoisySumsSpec], name="noisy sums", proof=""):
    """The sum over the groups of sensitivity / scale (pure epsilon), or of its squares (mu^2 of GDP).

    Examples
    --------
    >>> group = SumGroup(answers=40, unit=1, scale=2.0)
    >>> bins = NoisySumsSpec(groups=(group,), noise="geometric", adjacency="replace-one")
    >>> round(NoisySumsTheorem().certify(None, bins).epsilon(), 6)  # replacing a record changes two counts by 1
    1.0
    """

    holds_for_rounded_noise = True
    reference = "; ".join(REFERENCES.values())

    def derive_guarantee(self, constants: None, spec: NoisySumsSpec) -> Guarantee:
        costs = [group.sensitivity(spec.noise, spec.adjacency) / group.scale for group in spec.groups]
        part: PrivacyPart
        if spec.noise == "gaussian":
            part = Gaussian(mu=round_up(math.hypot(*costs)))
        else:
            part = Pure(value=round_up(math.fsum(costs)))
        assumptions = (*spec.assumptions, *noise_assumptions(ANSWER_ASSUMPTIONS, secure=spec.secure))
        return self.guarantee_of_answers(spec, part, assumptions, reference=REFERENCES[spec.noise])


def calibrate_noisy_sums(
    groups: Sequence[tuple[int, float, float]],
    *,
    epsilon: float,
    delta: float = 0.0,
    noise: SumNoise,
    adjacency: Adjacency,
    rows_per_person: int = 1,
    secure: bool = False,
) -> NoisySumsSpec:
    """Return the spec with the least noise under (epsilon, delta).

    Parameters
    ----------
    groups : (answers, unit, budget fraction) of each; the fractions, of epsilon for pure noise and of mu^2 for
        Gaussian noise, add up to 1.
    rows_per_person : the guarantee of the spec is for one record; guarantee.group(rows_per_person), for all rows of a
        person, meets (epsilon, delta).
    """
    rows = _check.check_count("rows_per_person", rows_per_person)
    if noise == "gaussian":
        budget = (
            round_down(
                gdp_mu(_check.check_positive("epsilon", epsilon), _check.check_open_unit("delta", delta))
            )
            / rows
        )
    else:
        budget = round_down(_check.check_positive("epsilon", epsilon)) / rows
    if not budget > 2e-12:
        raise CalibrationFailed(f"epsilon = {epsilon!r} is too small for double precision; raise it.")
    calibrated = []
    for answers, unit, fraction in groups:
        cost = budget * (math.sqrt(fraction) if noise == "gaussian" else fraction)
        group = SumGroup(answers=answers, unit=unit, scale=1.0)
        scale = group.sensitivity(noise, adjacency) / cost * (1 + 1e-9)
        calibrated.append(replace(group, scale=scale))
    return NoisySumsSpec(groups=tuple(calibrated), noise=noise, adjacency=adjacency, secure=secure)


class NoisyMaxTheorem(Theorem[NoisyMaxSpec], name="report noisy max", proof=""):
    """Pure epsilon = 2 unit / scale (unit / scale under add-remove).

    Examples
    --------
    >>> spec = NoisyMaxSpec(candidates=5, unit=1, scale=4.0, adjacency="replace-one")
    >>> NoisyMaxTheorem().certify(None, spec).epsilon()
    0.5...
    """

    holds_for_rounded_noise = True
    reference = (
        "McKenna and Sheldon (2020), Permute-and-Flip, Theorem 1; "
        "Ding et al. (2021): the same law as report noisy max with exponential noise"
    )

    def derive_guarantee(self, constants: None, spec: NoisyMaxSpec) -> Guarantee:
        part = Pure(value=round_up(_max_sensitivity(spec.unit, spec.adjacency) / spec.scale))
        assumptions = (*spec.assumptions, *noise_assumptions(ANSWER_ASSUMPTIONS, secure=spec.secure))
        return self.guarantee_of_answers(spec, part, assumptions)


class CenterScales(NamedTuple):
    """Scales of the exponential noise with which a center of targets and a spread are chosen, in records."""

    center: float
    spread: float

    @property
    def costs(self) -> tuple[float, float]:
        """Epsilon of each choice.

        A record of the largest weight changes each candidate's score by at most 1, the unit of the scale, either way:
        under add-remove as well.
        """
        return 2 / self.center, 2 / self.spread


def check_center_scales(spec: Any) -> None:
    """Check the fields center_scale and spread_scale of a spec: both or neither."""
    if (spec.center_scale is None) != (spec.spread_scale is None):
        raise InvalidParameter("state both center_scale and spread_scale, or neither.")
    _check.validate_fields(spec, center_scale=_check.check_scale, spread_scale=_check.check_scale)


def calibrate_noisy_max(
    *,
    candidates: int,
    unit: float,
    epsilon: float,
    adjacency: Adjacency,
    rows_per_person: int = 1,
    assumptions: tuple[str, ...] = (),
    conditions: tuple[Condition, ...] = (),
    secure: bool = False,
) -> NoisyMaxSpec:
    """Return the spec with the least noise under pure epsilon for a person with rows_per_person rows.

    The guarantee of the spec itself is for one record.
    """
    budget = round_down(_check.check_positive("epsilon", epsilon)) / _check.check_count(
        "rows_per_person", rows_per_person
    )
    _check.check_positive("epsilon, after rounding,", budget)
    return NoisyMaxSpec(
        candidates=candidates,
        unit=unit,
        scale=_max_sensitivity(unit, adjacency) / budget * (1 + 1e-9),
        adjacency=adjacency,
        assumptions=assumptions,
        conditions=conditions,
        secure=secure,
    )


def _max_sensitivity(unit: float, adjacency: Adjacency) -> float:
    return unit if adjacency == "add-remove" else 2 * unit


WORST_SHIFT_THEOREM = "worst-shift"
WORST_SHIFT_REFERENCE = (
    "Ganesh (2022), chapter 2; Dong, Roth and Su (2022), tensor products of trade-off functions"
)


class WorstShift(
    Theorem[NoisyAnswersSpec], name=WORST_SHIFT_THEOREM, proof="docs/theory/thesis.md, Worst shift"
):
    """The worst neighbour changes `changed` answers by the whole sensitivity: GDP for p = 2, else numerical."""

    holds_for_rounded_noise = True
    reference = WORST_SHIFT_REFERENCE

    def derive_guarantee(self, constants: None, spec: NoisyAnswersSpec) -> Guarantee:
        fields = _guarantee_fields(spec, "the queries, p and sigma are public")
        if spec.p == 2:
            shift = spec.sensitivity / spec.sigma
            part: PrivacyPart = Gaussian(mu=math.sqrt(2 * spec.changed) * shift * (1 + 1e-14))
        else:
            part = _noise_part(spec)
        return self.guarantee_of_answers(spec, part, **fields)


class CorrectedWorstShift(
    Theorem[CorrectedAnswersSpec], name=WORST_SHIFT_THEOREM, proof="docs/theory/thesis.md, Worst shift"
):
    """The noise and all sparse-vector corrections, accounted in one sum of privacy losses."""

    reference = WORST_SHIFT_REFERENCE

    def derive_guarantee(self, constants: None, spec: CorrectedAnswersSpec) -> Guarantee:
        fields = _guarantee_fields(
            spec.noise,
            "the queries, p and sigma are public",
            "the threshold, the number of corrections and the order of the answers do not depend on the data",
        )
        part = CorrectedNoise(
            noise=_noise_part(spec.noise),
            n_corrections=spec.max_corrections,
            search_epsilon=spec.search_epsilon,
            answer_epsilon=spec.answer_epsilon,
        )
        return self.guarantee_of_answers(spec.noise, part, **fields)


class MaxNormTheorem(Theorem[MaxNormSpec], name="norm noise", proof="docs/theory/thesis.md, Norm noise"):
    """Pure epsilon = sensitivity / scale, with the trade-off function of one Laplace answer of that epsilon.

    |x|_K = max(|x|_inf, |x|_1 / changed) is the norm whose unit ball is the convex hull of the changes: at most
    `changed` coordinates, each by at most 1. Along the line of a change the log density is concave with slopes of at
    most |change|_K / scale, so its trade-off function is above the Laplace one. In secure mode answers change by
    whole steps of the grid, at most D = sensitivity / grid in the norm, and so does the norm rounded up: pure D grid
    / scale.

    Examples
    --------
    >>> spec = MaxNormSpec(answers=100, changed=100, sensitivity=1.0, scale=2.0)
    >>> round(MaxNormTheorem().certify(None, spec).epsilon(), 6)
    0.5
    """

    holds_for_rounded_noise = True
    reference = "Hardt and Talwar (2010), K-norm mechanism; Ganesh (2022), section 2.1"

    def derive_guarantee(self, constants: None, spec: MaxNormSpec) -> Guarantee:
        fields = _guarantee_fields(spec, "the queries and the scale are public")
        cost = divide_up(spec.sensitivity, spec.scale)
        part: PrivacyPart = GeneralizedGaussian(p=1.0, shift=cost, changed=1, answers=1)
        if spec.secure:
            part = Pure(value=round_up(cost))
        return self.guarantee_of_answers(spec, part, **fields)


def _noise_part(spec: NoisyAnswersSpec) -> GeneralizedGaussian:
    return GeneralizedGaussian(
        p=spec.p,
        shift=divide_up(spec.sensitivity, spec.sigma),
        changed=spec.changed,
        answers=spec.answers,
    )


def _guarantee_fields(spec: CountsSpec, public: str, *assumptions: str) -> dict[str, Any]:
    """Return the assumptions and the rows per person of a guarantee about noisy counts."""
    rows = spec.rows_per_person
    if rows > 1:
        assumptions = (*assumptions, f"holds for all rows of a person who owns at most {rows}")
    all_assumptions = (
        f"neighbouring data sets change at most {spec.changed} of {spec.answers} answers, "
        f"each by at most {spec.sensitivity:g}",
        noise_assumptions(COMMON_ASSUMPTIONS, secure=spec.secure)[0],
        f"{public} and not chosen from the private data",
        *spec.assumptions,
        *assumptions,
    )
    return {"assumptions": all_assumptions, "rows_per_person": rows}
