"""Measures of a region on public inputs, each marked as certified, estimated or unknown; no private record is read.

A range over certified models is an INNER bound: every model in it is as good as stated (with the confidence), and
models outside may also be in the set.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from dplangevin._arrays import Floats
from dplangevin.mechanisms.rashomon_region.mechanism import RegionRelease
from dplangevin.mechanisms.rashomon_region.objective import Ellipsoid
from dplangevin.mechanisms.rashomon_region.planning import FlipLevel, RegionPlan
from dplangevin.rashomon.measures import fairness_range, interval_capacity, public_counts, rashomon_capacity
from dplangevin.rashomon.region_request import PublicRows, RegionRequest, threshold_index

OUTSIDE_MESSAGE = " Models outside may also be in the set."
BOUNDED_MESSAGE = " EVERY model of the set lies within the outer ranges, where they are given."
UNKNOWN_STATUS = "unknown: models outside these ranges may also be in the set"
STATUS_BY_QUANTITY = {
    "ranges": "certified",
    "ambiguity": "certified (at least)",
    "discrepancy": "certified (at least)",
    "coefficients": "certified",
    "capacity": "certified (at least)",
    "reliance": "certified",
    "fairness": "certified",
    "flip cost": "estimate",
    "widest possible ranges": UNKNOWN_STATUS,
}
OUTER_RANGE_STATUS = {
    "widest possible ranges": "certified (at most)",
    "ambiguity at most": "certified (at most)",
}
FLIP_LEVEL_STATUS = {"flip-cost levels": "certified (both sides)"}


def format_bound(value: float, *, up: bool = False) -> str:
    """Return a bound with four digits, rounded so that it stays true: down, or up for an upper bound."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 3)
    digits = math.ceil(value / unit * (1 - 1e-12)) if up else math.floor(value / unit * (1 + 1e-12))
    return f"{digits * unit:.4g}"


_SCORES_PER_CHUNK = 4_000_000  # scores at a time
_CAPACITY_TOLERANCE_BITS = (
    1e-3  # of the capacity of several classes; half of it is subtracted, so that the bound stays certified
)


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionLevel:
    """What is certified at one threshold.

    Parameters
    ----------
    threshold : psi. certified_threshold : psi relative to the centre, 0 when nothing is certified.
    mean_scale, min_scale : of the certified points.
    low, high : range of every input's probability (of the last class; with more than two, of the centre's class),
        predicted value, or score.
    decision_changes : which inputs some certified model decides otherwise.
    discrepancy : largest fraction of decisions that one certified model changes.
    coefficients, reliance, fairness : [names, 2], lowest and highest. capacity : Rashomon capacity per input.
    outer_ranges : (low, high) that contain the predictions of EVERY model of the set; None where nothing is proved.
    undecided_inputs : which inputs some model of the set may decide otherwise; all models agree on the others.
    """

    threshold: float
    certified_threshold: float
    mean_scale: float
    min_scale: float
    low: Floats
    high: Floats
    decision_changes: NDArray[np.bool_] | None
    discrepancy: float | None
    coefficients: Floats
    capacity: Floats | None
    reliance: Floats | None
    fairness: dict[str, tuple[float, float]] = field(default_factory=dict)
    outer_ranges: tuple[Floats, Floats] | None = None
    undecided_inputs: NDArray[np.bool_] | None = None

    @property
    def max_ambiguity(self) -> float | None:
        """Upper bound on the fraction of inputs that any model of the set decides otherwise; None where unproved."""
        return None if self.undecided_inputs is None else float(self.undecided_inputs.mean())

    @property
    def ambiguity(self) -> float | None:
        """Fraction of inputs that some certified model decides otherwise than the centre."""
        return None if self.decision_changes is None else float(self.decision_changes.mean())

    @property
    def sign_changes(self) -> NDArray[np.bool_]:
        """Mask of coefficients that are positive under one certified model and negative under another."""
        return np.asarray((self.coefficients[:, 0] < 0) & (self.coefficients[:, 1] > 0))


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelTables:
    """Computes the levels of a table from scores of certified points; a level includes those of smaller thresholds."""

    release: RegionRelease
    request: RegionRequest
    public: PublicRows

    def compute_scores(self, points: Floats, rows: Floats | None = None) -> Floats:
        """Return scores [inputs, points], or [inputs, points, classes]."""
        rows, classes = self.public.rows if rows is None else rows, self.request.n_scores
        if classes == 1:
            return np.asarray(rows @ points)
        return np.asarray(np.einsum("ip,pck->ikc", rows, points.reshape(rows.shape[1], classes, -1)))

    def scores_to_answers(self, scores: Floats) -> Floats:
        """Convert scores to probabilities or predicted values; the scores of a margin stay."""
        loss = self.request.loss
        if self.request.n_scores > 1:
            return np.asarray(softmax(scores, axis=-1).max(axis=-1))
        if loss.slope_variance == "curvature":
            return np.asarray(expit(scores))
        if self.public.classes is not None:
            return scores
        values = self.public.half_range * scores + self.public.center
        return np.exp(np.minimum(values, 700.0)) if loss.unclipped_loss.log_link else values

    def scores_to_decisions(self, scores: Floats) -> NDArray[Any]:
        assert self.public.classes is not None
        codes = scores.argmax(axis=-1) if self.request.n_scores > 1 else (scores > 0).astype(int)
        return np.asarray(np.array(self.public.classes)[codes])

    def coefficient_names(self) -> tuple[str, ...]:
        names = self.public.names
        if self.request.n_scores == 1 or self.public.classes is None:
            return names
        return tuple(f"{name}, class {label}" for name in names for label in self.public.classes)

    def compute_levels(self, thresholds: tuple[float, ...]) -> tuple[RegionLevel, ...]:
        levels: list[RegionLevel] = []
        for index, psi in enumerate(thresholds):
            previous_level = levels[-1] if levels and levels[-1].certified_threshold > 0 else None
            levels.append(self._compute_level(index, psi, previous_level))
        return tuple(levels)

    def _compute_level(self, index: int, psi: float, previous_level: RegionLevel | None) -> RegionLevel:
        release = self.release
        points = np.column_stack([release.center, release.certified_points(index)])
        low, high, decision_changes, discrepancy, capacity = self._input_ranges(points)
        coefficients = self.coefficient_ranges(points)
        reliance = None
        if self.request.labels is not None and self.request.columns and len(self.request.rows) > 1:
            values = self.request.column_reliances(points)
            reliance = np.column_stack([values.min(axis=1), values.max(axis=1)])
        fairness = self._fairness_ranges(points)
        if previous_level is not None:  # a point of a smaller threshold is a point of this one
            low, high = np.minimum(low, previous_level.low), np.maximum(high, previous_level.high)
            coefficients = _union_ranges(coefficients, previous_level.coefficients)
            reliance = (
                None
                if reliance is None or previous_level.reliance is None
                else _union_ranges(reliance, previous_level.reliance)
            )
            fairness = {
                name: (min(a, previous_level.fairness[name][0]), max(b, previous_level.fairness[name][1]))
                for name, (a, b) in fairness.items()
            }
            if capacity is not None and previous_level.capacity is not None:
                capacity = np.maximum(capacity, previous_level.capacity)
            if (
                decision_changes is not None
                and previous_level.decision_changes is not None
                and previous_level.discrepancy is not None
            ):
                decision_changes, discrepancy = (
                    decision_changes | previous_level.decision_changes,
                    max(discrepancy or 0.0, previous_level.discrepancy),
                )
        if (
            capacity is None
            and self.public.classes is not None
            and self.request.loss.slope_variance == "curvature"
        ):
            capacity = 2 ** interval_capacity(low, high)
        outer, undecided = self._outer_ranges(index)
        return RegionLevel(
            threshold=psi,
            certified_threshold=float(release.thresholds[index]),
            mean_scale=float(release.scales[index].mean()),
            min_scale=float(release.scales[index].min()),
            low=low,
            high=high,
            decision_changes=decision_changes,
            discrepancy=discrepancy,
            coefficients=coefficients,
            capacity=capacity,
            reliance=reliance,
            fairness=fairness,
            outer_ranges=outer,
            undecided_inputs=undecided,
        )

    def _outer_ranges(self, index: int) -> tuple[tuple[Floats, Floats] | None, NDArray[np.bool_] | None]:
        """Return ranges that contain every model's prediction, and which decisions they leave undecided."""
        outer_set = self.release.outer[index] if self.release.outer else None
        if outer_set is None:
            return None, None
        low, high = outer_set.score_ranges(self.public.rows)
        undecided = (low <= 0) & (high > 0)
        center_is_positive = self.compute_scores(self.release.center[:, None])[:, 0] > 0
        undecided |= np.where(
            center_is_positive, high <= 0, low > 0
        )  # the middle of the set may decide otherwise than the centre
        return (
            self.scores_to_answers(low),
            self.scores_to_answers(high),
        ), undecided if self.public.classes is not None else None

    def _input_ranges(
        self, points: Floats
    ) -> tuple[Floats, Floats, NDArray[np.bool_] | None, float | None, Floats | None]:
        """Return per input the lowest and highest prediction and whether its decision changes, the discrepancy, and
        the capacities.
        """
        rows, classes = self.public.rows, self.request.n_scores
        step = max(1, _SCORES_PER_CHUNK // (points.shape[1] * classes))
        low, high, changed, capacities = [], [], [], []
        flips, decides = np.zeros(points.shape[1]), self.public.classes is not None
        for start in range(0, len(rows), step):
            scores = self.compute_scores(points, rows[start : start + step])
            if classes == 1:
                low.append(scores.min(axis=1))
                high.append(scores.max(axis=1))
                other = (scores > 0) != (scores[:, :1] > 0)
            else:
                classes_chosen = scores.argmax(axis=2)
                other = classes_chosen != classes_chosen[:, :1]
                probabilities = softmax(scores, axis=2)
                own = np.take_along_axis(probabilities, classes_chosen[:, :1, None], axis=2)[:, :, 0]
                low.append(own.min(axis=1))
                high.append(own.max(axis=1))
                drawn_probabilities = probabilities[:, : self.request.n_models + 1].transpose(1, 0, 2)
                capacities.append(
                    np.maximum(
                        rashomon_capacity(drawn_probabilities, _CAPACITY_TOLERANCE_BITS)
                        * 2 ** (-_CAPACITY_TOLERANCE_BITS / 2),
                        1.0,
                    )
                )
            changed.append(other.any(axis=1))
            flips += other.sum(axis=0)
        lowest, highest = np.concatenate(low), np.concatenate(high)
        if classes == 1:
            lowest, highest = self.scores_to_answers(lowest), self.scores_to_answers(highest)
        decision_changes = np.concatenate(changed) if decides else None
        return (
            lowest,
            highest,
            decision_changes,
            float(flips.max()) / len(rows) if decides else None,
            np.concatenate(capacities) if capacities else None,
        )

    def coefficient_ranges(self, points: Floats) -> Floats:
        """Return ranges of the coefficients, on the scale of coef_ and intercept_."""
        ranges = self.public.half_range * np.column_stack([points.min(axis=1), points.max(axis=1)])
        if self.public.names[-1] == "intercept":
            ranges[-self.request.n_scores :] += self.public.center
        return np.asarray(ranges)

    def _fairness_ranges(self, points: Floats) -> dict[str, tuple[float, float]]:
        groups, labels = self.request.groups, self.request.labels
        if groups is None or self.request.n_scores > 1 or self.public.classes is None:
            return {}
        group_names = [str(name) for name in np.unique(groups)]
        if len(group_names) < 2:
            return {}
        truth = None if labels is None else labels > 0.5
        counts = public_counts((self.compute_scores(points) > 0).T, groups, group_names, truth)
        gaps = fairness_range(counts, group_names)
        gap_values = {"demographic parity": gaps.demographic_parity}
        if gaps.equalized_odds is not None:
            gap_values["equalized odds"] = gaps.equalized_odds
        return {name: (float(values.min()), float(values.max())) for name, values in gap_values.items()}


def _union_ranges(first: Floats, second: Floats) -> Floats:
    return np.column_stack([np.minimum(first[:, 0], second[:, 0]), np.maximum(first[:, 1], second[:, 1])])


_UPPER_BOUND_FIELDS = ("max_ambiguity", "mean_outer_width")


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionTable:
    """Measures of a region at all thresholds, for the same public inputs; no private record is read.

    Parameters
    ----------
    levels : one per threshold.
    center : the released model's prediction for each input, on the scale of the ranges.
    decisions : its decisions, or None. coefficients : its coefficients.
    flip_costs : approximately how much worse a model must be to decide otherwise (an estimate).
    coefficient_names, column_names : of coefficients and of the table's columns.
    confidence : that all certified statements hold. reference : the model that psi is relative to, in words.
    n_rows_with_ends : inputs that were stated before the release; others are evaluated on the certified models.
    public : the inputs. shape : the released ellipsoid.
    flip_levels : bounds on the thresholds of flip_shares.
    """

    levels: tuple[RegionLevel, ...]
    center: Floats
    decisions: NDArray[Any] | None
    flip_costs: Floats | None
    coefficients: Floats
    coefficient_names: tuple[str, ...]
    column_names: tuple[str, ...]
    confidence: float
    reference: str
    n_rows_with_ends: int
    public: PublicRows
    shape: Ellipsoid
    flip_levels: tuple[FlipLevel, ...] = ()

    @classmethod
    def from_release(
        cls,
        release: RegionRelease,
        plan: RegionPlan,
        request: RegionRequest,
        public_rows: PublicRows,
        *,
        inputs_were_stated: bool,
    ) -> RegionTable:
        """Compute the table from a release, as post-processing."""
        tables = LevelTables(release=release, request=request, public=public_rows)
        scores = tables.compute_scores(release.center[:, None])[:, 0]
        flip_costs = None
        if request.n_scores == 1 and public_rows.classes is not None:
            flip_costs = scores**2 / (
                2 * np.maximum(release.ellipsoid.inverse_norms(public_rows.rows), 1e-300)
            )
        best = f"the best model within {plan.radius:g} of the released one"
        return cls(
            levels=tables.compute_levels(plan.thresholds),
            center=tables.scores_to_answers(scores),
            decisions=tables.scores_to_decisions(scores) if public_rows.classes is not None else None,
            flip_costs=flip_costs,
            coefficients=tables.coefficient_ranges(release.center[:, None])[:, 0],
            coefficient_names=tables.coefficient_names(),
            column_names=tuple(public_rows.columns),
            confidence=plan.confidence,
            reference="the released model" if plan.gap is None else best,
            n_rows_with_ends=request.n_rows_with_ends if inputs_were_stated else 0,
            public=public_rows,
            shape=release.ellipsoid,
            flip_levels=release.flips if inputs_were_stated else (),
        )

    def level(self, threshold: float | None = None) -> RegionLevel:
        """Return the level of one threshold; the largest by default."""
        if threshold is None:
            return self.levels[-1]
        return self.levels[threshold_index(threshold, tuple(one.threshold for one in self.levels))]

    def influential_columns(self, row: int) -> list[tuple[str, float]]:
        """Return the columns that move this input's score within the region, with their fraction, largest first."""
        x = self.public.rows[row]
        contributions = x * (self.shape.vectors @ ((self.shape.vectors.T @ x) / self.shape.values))
        total = max(float(np.abs(contributions).sum()), 1e-300)
        fractions = [
            (name, float(np.abs(contributions[column_indices].sum())) / total)
            for name, column_indices in self.public.columns.items()
        ]
        return sorted(fractions, key=lambda pair: -pair[1])

    @property
    def sentence(self) -> str:
        """Statement of what all certified numbers mean."""
        statement = (
            f"With confidence {self.confidence:g}, all certified statements hold together: every model in them has an "
            f"objective within psi of that of {self.reference}.{OUTSIDE_MESSAGE}"
        )
        if self.n_rows_with_ends == 0:
            statement += (
                " These inputs were not stated before the release: they are evaluated on the certified models at hand, "
                "so their ranges are narrower than they could be."
            )
        elif self.n_rows_with_ends < len(self.center):
            first = self.n_rows_with_ends
            statement += f" Inputs after the first {first} are evaluated on the certified models at hand."
        if any(level.outer_ranges is not None for level in self.levels):
            statement = statement.replace(OUTSIDE_MESSAGE, BOUNDED_MESSAGE)
        return statement

    @property
    def status(self) -> dict[str, str]:
        """Status of each quantity: certified, estimate or unknown."""
        has_outer_ranges = any(level.outer_ranges is not None for level in self.levels)
        return (
            STATUS_BY_QUANTITY
            | (OUTER_RANGE_STATUS if has_outer_ranges else {})
            | (FLIP_LEVEL_STATUS if self.flip_levels else {})
        )

    def to_dict(self) -> dict[str, Any]:
        """Return summary numbers, ready for JSON."""
        return {
            "inputs": len(self.center),
            "inputs_with_ends": self.n_rows_with_ends,
            "used_private_data": False,
            "confidence": self.confidence,
            "reference": self.reference,
            "status": self.status,
            "sentence": self.sentence,
            "levels": [self._level_to_plain(level) for level in self.levels],
            "flip_levels": [asdict(level) for level in self.flip_levels],
        }

    def _level_to_plain(self, level: RegionLevel) -> dict[str, Any]:
        width = level.high - level.low
        plain: dict[str, Any] = {
            "threshold": level.threshold,
            "certified_threshold": level.certified_threshold,
            "mean_scale": level.mean_scale,
            "min_scale": level.min_scale,
            "mean_width": float(width.mean()),
            "max_width": float(width.max()),
        }
        if level.decision_changes is not None:
            plain |= {"ambiguity": level.ambiguity, "discrepancy": level.discrepancy}
        if level.outer_ranges is not None:
            plain["mean_outer_width"] = float((level.outer_ranges[1] - level.outer_ranges[0]).mean())
        if level.max_ambiguity is not None:
            plain["max_ambiguity"] = level.max_ambiguity
        if level.capacity is not None:
            plain |= {
                "mean_capacity": float(level.capacity.mean()),
                "max_capacity": float(level.capacity.max()),
            }
        plain["coefficients"] = _ranges_by_name(self.coefficient_names, level.coefficients)
        plain["sign_changes"] = [
            name for name, one in zip(self.coefficient_names, level.sign_changes, strict=True) if one
        ]
        if level.reliance is not None:
            plain["reliance"] = _ranges_by_name(self.column_names, level.reliance)
        if level.fairness:
            plain["fairness"] = {name: {"low": a, "high": b} for name, (a, b) in level.fairness.items()}
        return plain

    def __str__(self) -> str:
        lines = [f"{len(self.center)} public inputs (no private record was read for this)"]
        for level in self.levels:
            plain = self._level_to_plain(level)
            numbers_text = ", ".join(
                f"{name.replace('_', ' ')} {format_bound(value, up=name in _UPPER_BOUND_FIELDS)}"
                for name, value in plain.items()
                if isinstance(value, float) and name not in ("threshold", "certified_threshold")
            )
            signs = len(plain["sign_changes"])
            lines.append(
                f"  psi = {level.threshold:g} [certified]: {numbers_text}; {signs} coefficients change sign"
            )
        if self.flip_costs is not None:
            middle = float(np.median(self.flip_costs))
            lines.append(f"  flip cost of an input, median [estimate]: {middle:.3g}")
        lines += [f"  {flip_text} [certified]" for flip_text in flip_level_texts(self.flip_levels)]
        return "\n".join([*lines, f"  {self.sentence}"])


def _ranges_by_name(names: tuple[str, ...], ranges: Floats) -> dict[str, dict[str, float]]:
    return {
        name: {"low": float(low), "high": float(high)}
        for name, (low, high) in zip(names, ranges, strict=True)
    }


def flip_level_texts(levels: tuple[FlipLevel, ...]) -> list[str]:
    """Return each level as a sentence: the psi below which it is impossible, and above which it is certain."""
    texts = []
    for level in levels:
        inputs_text = f"{level.count:,} of the first {level.n_inputs:,} inputs ({level.fraction:.0%})"
        models_text = f"models within {level.radius:g} of the released one"
        if np.isinf(level.low):
            texts.append(f"{inputs_text} are not decided otherwise by {models_text}, at any psi")
            continue
        lower_text = f"not below psi = {format_bound(level.low)}" if level.low > 0 else "perhaps at every psi"
        upper_text = f"certainly above psi = {format_bound(level.high, up=True)} (from the released model)"
        texts.append(f"{inputs_text} are decided otherwise by {models_text}: {lower_text}, {upper_text}")
    return texts
