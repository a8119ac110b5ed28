"""Spec, calibration and privacy of a learned schema: noisy counts of public cells, and labels above a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from scipy.special import ndtr, ndtri

from dplangevin import _check
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian, PrivacyPart, Pure
from dplangevin.accounting.plan import (
    ANSWER_ASSUMPTIONS,
    Capabilities,
    Spec,
    Theorem,
    noise_assumptions,
    round_up,
)
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.noisy_answers.spec import AnswerSpec

LearnedNoise = Literal["gaussian", "geometric"]


@dataclass(frozen=True, kw_only=True)
class LearnedSchemaSpec(AnswerSpec):
    """Counts of rows in public cells of number columns, and counts of labels in category columns, released together.

    A row is in at most one cell of each number column and has at most one label in each category column. Every cell's
    count gets noise. Labels are not public: only those that occur get noise, and only those whose noisy count is at
    least `threshold` are released, with it.

    Parameters
    ----------
    n_numbers, n_cells : number columns, and public cells of each. n_categories : category columns.
    noise, scale : "gaussian" with this standard deviation, or "geometric", P(k) proportional to exp(-|k| / scale).
    threshold : on noisy counts of labels; None without category columns.
    rows_per_person : neighbours differ in all rows of a person, who owns at most this many.
    secure : the noise is drawn exactly: geometric noise is whole, and ideal Gaussian noise is rounded with its count.
    """

    mechanism: ClassVar[str] = "learned-schema"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, secure=True, needs_no_problem=True)
    n_numbers: int
    n_cells: int
    n_categories: int
    noise: LearnedNoise
    scale: float
    threshold: float | None = None
    rows_per_person: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_numbers", "n_cells", "n_categories"):
            _check.set_frozen(self, **{name: _check.check_count(name, getattr(self, name), minimum=0)})
        _check.set_frozen(self, noise=_check.check_choice("noise", self.noise, ("gaussian", "geometric")))
        check_scale = _check.check_integer_scale if self.noise == "geometric" else _check.check_scale
        _check.validate_fields(self, scale=check_scale, rows_per_person=_check.check_count)
        if self.n_columns < 1 or (self.n_numbers > 0 and self.n_cells < 2):
            raise InvalidParameter(
                f"a learned schema needs at least one column, and at least two cells per number column; got "
                f"{self.n_columns} columns and n_cells = {self.n_cells}."
            )
        if self.n_categories and self.noise != "gaussian":
            raise InvalidParameter(
                "categories cannot be learned with a pure guarantee: whether a label occurs at all would be revealed "
                "with certainty or never, so a positive delta is needed. State a delta, or the categories."
            )
        if (self.threshold is not None) != (self.n_categories > 0):
            raise InvalidParameter("state a threshold exactly when categories are learned.")
        if self.threshold is not None:
            _check.validate_fields(self, threshold=_check.check_positive)

    @property
    def n_columns(self) -> int:
        """Number of learned columns."""
        return self.n_numbers + self.n_categories

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of cells over all number columns; how many labels are released is not public."""
        return (self.n_numbers * self.n_cells,)

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the vector of all counts: L2 for Gaussian noise, L1 for geometric noise."""
        n_changed_records = 2 if self.adjacency == "replace-one" else 1
        n_changed_counts = n_changed_records * self.n_columns
        return self.rows_per_person * (
            math.sqrt(n_changed_counts) if self.noise == "gaussian" else n_changed_counts
        )

    @property
    def threshold_delta(self) -> float:
        """The largest probability of releasing a label that occurs in only one of two neighbours."""
        if self.threshold is None:
            return 0.0
        rows, k = self.rows_per_person, self.n_categories
        # never 0, however high the threshold: the probability is positive even where doubles underflow
        probabilities = [
            max(float(ndtr((a - self.threshold) / self.scale)), 1e-300) for a in range(1, rows + 1)
        ]
        if rows == 1:
            return -math.expm1(k * math.log1p(-probabilities[0])) if probabilities[0] < 1 else 1.0
        return min(1.0, k * rows * max(probability / a for a, probability in enumerate(probabilities, 1)))


def calibrate_learned_schema(
    *, n_categories: int, mu: float = 0.0, threshold_delta: float = 0.0, epsilon: float = 0.0, **stated: Any
) -> LearnedSchemaSpec:
    """Return the spec with the least noise: for mu-GDP plus threshold_delta (for categories), or pure epsilon."""
    pure = mu == 0
    budget = epsilon if pure else mu**2 - absence_mu(threshold_delta) ** 2
    if not budget > 1e-18:
        raise CalibrationFailed("the budget leaves nothing to learn the schema with; raise epsilon or delta.")
    base = LearnedSchemaSpec(
        n_categories=n_categories, noise="geometric" if pure else "gaussian", scale=1.0,
        threshold=1.0 if n_categories else None, **stated,
    )  # fmt: skip
    scale = base.sensitivity / (budget if pure else math.sqrt(budget)) * (1 + 1e-8)
    threshold = None
    if n_categories:
        k, rows = n_categories, base.rows_per_person
        tail_probabilities = (
            [-math.expm1(math.log1p(-threshold_delta) / k)]
            if rows == 1
            else [a * threshold_delta / (k * rows) for a in range(1, rows + 1)]
        )
        needed = [
            a - scale * float(ndtri(min(probability, 0.5)))
            for a, probability in enumerate(tail_probabilities, 1)
        ]
        threshold = max(needed) * (1 + 1e-9)
    return replace(base, scale=scale, threshold=threshold)


def absence_mu(threshold_delta: float) -> float:
    """Return mu of GDP for the labels that are NOT released, whose pure epsilon is at most -log(1 - threshold_delta).

    eps-DP implies mu-GDP with Phi(-mu / 2) = 1 / (1 + e^eps): the Gaussian trade-off curve is convex and meets
    that of randomised response at its end points and at its kink.
    """
    from scipy.special import erfinv

    if not 0 <= threshold_delta < 1:
        return math.inf
    return 2 * math.sqrt(2) * float(erfinv(math.tanh(-math.log1p(-threshold_delta) / 2)))


def count_noise_std(spec: Spec) -> float:
    """Return the standard deviation of the noise on a count that the rule for ranges assumes.

    For geometric noise, whose tails are heavier, it is that of the Gaussian noise that exceeds 4.5 standard
    deviations with the same probability.
    """
    assert isinstance(spec, LearnedSchemaSpec)
    if spec.noise == "gaussian":
        return spec.scale
    return spec.scale * -math.log(2 * float(ndtr(-4.5))) / 4.5


class LearnedSchemaTheorem(
    Theorem[LearnedSchemaSpec], name="learned schema", proof="docs/theory/learned_schema.md"
):
    """GDP (or pure epsilon) for the counts of labels in both neighbours, plus delta for labels in only one of them.

    Gaussian noise: GDP with mu^2 = (sensitivity / scale)^2 + mu_0^2, where mu_0 is that of pure epsilon -log(1 - t),
    and t = threshold_delta, the probability of releasing a label that only one neighbour has, is added to delta.
    Geometric noise, without labels: pure epsilon = sensitivity / scale.

    Exact runs release functions of the ideal release: noisy counts are rounded, and a label is released where its
    rounded count exceeds the threshold by half a step of the grid or more, so that the unrounded one exceeds it too.

    Examples
    --------
    >>> spec = LearnedSchemaSpec(n_numbers=3, n_cells=129, n_categories=1, noise="gaussian", scale=80.0,
    ...                          threshold=400.0, adjacency="replace-one")
    >>> guarantee = LearnedSchemaTheorem().certify(None, spec)
    >>> round(guarantee.parts[0].mu, 6), f"{guarantee.extra_delta:.1e}"
    (0.035355, '3.1e-07')
    """

    holds_for_rounded_noise = True
    reference = (
        "Korolova, Kenthapadi, Mishra and Ntoulas (2009) and Wilkins, Kifer, Zhang and Karrer (2024), for thresholds; "
        "Dong, Roth and Su (2022), Theorem 2.7; Ghosh, Roughgarden and Sundararajan (2012); joint over columns, "
        "adjacencies and persons as proved here"
    )

    def derive_guarantee(self, constants: None, spec: LearnedSchemaSpec) -> Guarantee:
        cost, threshold_delta = spec.sensitivity / spec.scale, spec.threshold_delta
        if not threshold_delta < 1:
            raise self.refuse(
                "a label of a single row exceeds the threshold with certainty",
                "Raise the threshold above the noise.",
            )
        part: PrivacyPart
        if spec.noise == "gaussian":
            part = Gaussian(mu=round_up(math.hypot(cost, absence_mu(threshold_delta))))
        else:
            part = Pure(value=round_up(cost))
        rows = spec.rows_per_person
        group_assumption = (f"holds for all rows of a person who owns at most {rows}",) if rows > 1 else ()
        noise = noise_assumptions(ANSWER_ASSUMPTIONS, secure=spec.secure)
        assumptions = (*spec.assumptions, *noise, *group_assumption)
        return self.guarantee_of_answers(
            spec, part, assumptions, extra_delta=threshold_delta * (1 + 1e-9), rows_per_person=rows
        )
