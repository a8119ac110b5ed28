"""What a region says about public inputs, and beside each number whether it is certified or an estimate.

A range over certified models is an INNER statement: every model in it is as good as stated (with the confidence), and
models outside may also be in the set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from dplangevin.families.rashomon_region.objective import poisson_rates
from dplangevin.families.rashomon_region.plan import RegionPlan
from dplangevin.families.rashomon_region.release import RegionRelease
from dplangevin.families.rashomon_region.shape import Ellipsoid
from dplangevin.rashomon.asked import Asked, is_likelihood, place_of
from dplangevin.rashomon.capacity import interval_capacity, rashomon_capacity
from dplangevin.rashomon.fairness import fairness_range, public_counts
from dplangevin.rashomon.public_rows import PublicRows
from dplangevin.rashomon.status import BOUNDED, OUTSIDE, PROVED, STATUS

Floats = NDArray[np.float64]
_CHUNK = 4_000_000  # scores at a time
_BITS = 1e-3  # of the capacity of several classes; half of it is taken off what is certified


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionLevel:
    """What is certified at one threshold; `certified` is psi relative to the centre, 0 when nothing is.

    low, high : range of every input's probability (of the last class; with more than two, of the centre's class),
        predicted value, or score. changes : which inputs are decided otherwise by some certified model.
    coefficients, reliance, fairness : [names, 2], lowest and highest.
    outer : (low, high): EVERY model of the set answers between them; None where nothing is proved. open : which inputs
        may be decided otherwise by some model of the set; the others are decided alike by all.
    """

    threshold: float
    certified: float
    mean_scale: float
    least_scale: float
    low: Floats
    high: Floats
    changes: NDArray[np.bool_] | None
    discrepancy: float | None
    coefficients: Floats
    capacity: Floats | None
    reliance: Floats | None
    fairness: dict[str, tuple[float, float]] = field(default_factory=dict)
    outer: tuple[Floats, Floats] | None = None
    open: NDArray[np.bool_] | None = None

    @property
    def most_ambiguity(self) -> float | None:
        """No larger share of the inputs is decided otherwise by any model of the set; None where nothing is proved."""
        return None if self.open is None else float(self.open.mean())

    @property
    def ambiguity(self) -> float | None:
        """Share of inputs that some certified model decides otherwise than the centre."""
        return None if self.changes is None else float(self.changes.mean())

    @property
    def sign_changes(self) -> NDArray[np.bool_]:
        """Which coefficients are positive under one certified model and negative under another."""
        return np.asarray((self.coefficients[:, 0] < 0) & (self.coefficients[:, 1] > 0))


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionTable:
    """All levels, for the same public inputs. Reads no private record.

    centre : the released model's answer for each input, on the scale of the ranges. decisions : its decision, or None.
    coefficients : its coefficients.
    flip_costs : how much worse a model must be, about, to decide otherwise (an estimate). own : whether the inputs were
    stated before the release; others are answered through the hull.
    """

    levels: tuple[RegionLevel, ...]
    centre: Floats
    decisions: NDArray[Any] | None
    flip_costs: Floats | None
    coefficients: Floats
    coefficient_names: tuple[str, ...]
    column_names: tuple[str, ...]
    confidence: float
    reference: str
    own: int
    public: PublicRows
    shape: Ellipsoid

    @classmethod
    def of(
        cls, release: RegionRelease, plan: RegionPlan, asked: Asked, public: PublicRows, *, own: bool
    ) -> RegionTable:
        """Post-processing of a release."""
        told = _Told(release=release, asked=asked, public=public)
        scores = told.scores(release.centre[:, None])[:, 0]
        flips = None
        if asked.classes == 1 and public.classes is not None:
            flips = scores**2 / (2 * np.maximum(release.shape.spread(public.rows), 1e-300))
        best = f"the best model within {plan.radius:g} of the released one"
        return cls(
            levels=told.levels(plan.thresholds),
            centre=told.answer(scores),
            decisions=told.decisions(scores) if public.classes is not None else None,
            flip_costs=flips,
            coefficients=told._coefficients(release.centre[:, None])[:, 0],
            coefficient_names=told.coefficient_names(),
            column_names=tuple(public.columns),
            confidence=plan.confidence,
            reference="the released model" if plan.gap is None else best,
            own=asked.own_ends if own else 0,
            public=public,
            shape=release.shape,
        )

    def level(self, threshold: float | None = None) -> RegionLevel:
        """One threshold; the largest by default."""
        if threshold is None:
            return self.levels[-1]
        return self.levels[place_of(threshold, tuple(one.threshold for one in self.levels))]

    def deciding(self, row: int) -> list[tuple[str, float]]:
        """Which columns move this input's score most within the region: shares of its range, largest first."""
        x = self.public.rows[row]
        moved = x * (self.shape.vectors @ ((self.shape.vectors.T @ x) / self.shape.values))
        total = max(float(np.abs(moved).sum()), 1e-300)
        shares = [
            (name, float(np.abs(moved[places].sum())) / total) for name, places in self.public.columns.items()
        ]
        return sorted(shares, key=lambda pair: -pair[1])

    @property
    def sentence(self) -> str:
        """What every number below rests on."""
        words = (
            f"With confidence {self.confidence:g}, all certified statements hold together: every model in them has an "
            f"objective within psi of that of {self.reference}.{OUTSIDE}"
        )
        if self.own == 0:
            words += (
                " These inputs were not stated before the release: they are answered through the hull of the "
            )
            words += "certified models, so their ranges are narrower than they could be."
        elif self.own < len(self.centre):
            words += (
                f" Inputs after the first {self.own} are answered through the hull of the certified models."
            )
        if any(level.outer is not None for level in self.levels):
            words = words.replace(OUTSIDE, BOUNDED)
        return words

    @property
    def status(self) -> dict[str, str]:
        """What is certified, what an estimate, and what unknown."""
        if not any(level.outer is not None for level in self.levels):
            return STATUS
        return STATUS | PROVED

    def to_dict(self) -> dict[str, Any]:
        """Summary numbers, ready for JSON."""
        return {
            "inputs": len(self.centre),
            "inputs_with_ends": self.own,
            "used_private_data": False,
            "confidence": self.confidence,
            "reference": self.reference,
            "status": self.status,
            "sentence": self.sentence,
            "levels": [self._plain(level) for level in self.levels],
        }

    def _plain(self, level: RegionLevel) -> dict[str, Any]:
        width = level.high - level.low
        plain: dict[str, Any] = {
            "threshold": level.threshold,
            "certified": level.certified,
            "mean_scale": level.mean_scale,
            "least_scale": level.least_scale,
            "mean_width": float(width.mean()),
            "largest_width": float(width.max()),
        }
        if level.changes is not None:
            plain |= {"ambiguity": level.ambiguity, "discrepancy": level.discrepancy}
        if level.outer is not None:
            plain["mean_outer_width"] = float((level.outer[1] - level.outer[0]).mean())
        if level.most_ambiguity is not None:
            plain["most_ambiguity"] = level.most_ambiguity
        if level.capacity is not None:
            plain |= {
                "mean_capacity": float(level.capacity.mean()),
                "largest_capacity": float(level.capacity.max()),
            }
        plain["coefficients"] = _named(self.coefficient_names, level.coefficients)
        plain["sign_changes"] = [
            name for name, one in zip(self.coefficient_names, level.sign_changes, strict=True) if one
        ]
        if level.reliance is not None:
            plain["reliance"] = _named(self.column_names, level.reliance)
        if level.fairness:
            plain["fairness"] = {name: {"low": a, "high": b} for name, (a, b) in level.fairness.items()}
        return plain

    def __str__(self) -> str:
        lines = [f"{len(self.centre)} public inputs (no private record was read for this)"]
        for level in self.levels:
            plain = self._plain(level)
            shown = ", ".join(
                f"{name.replace('_', ' ')} {value:.4g}"
                for name, value in plain.items()
                if isinstance(value, float) and name not in ("threshold", "certified")
            )
            signs = len(plain["sign_changes"])
            lines.append(
                f"  psi = {level.threshold:g} [certified]: {shown}; {signs} coefficients change sign"
            )
        if self.flip_costs is not None:
            middle = float(np.median(self.flip_costs))
            lines.append(f"  flip cost of an input, median [estimate]: {middle:.3g}")
        return "\n".join([*lines, f"  {self.sentence}"])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Told:
    """The work of a table: scores of certified points, level by level, each with the points of the smaller ones."""

    release: RegionRelease
    asked: Asked
    public: PublicRows

    def scores(self, points: Floats, rows: Floats | None = None) -> Floats:
        """[inputs, points], or [inputs, points, classes]."""
        rows, classes = self.public.rows if rows is None else rows, self.asked.classes
        if classes == 1:
            return np.asarray(rows @ points)
        return np.asarray(np.einsum("ip,pck->ikc", rows, points.reshape(rows.shape[1], classes, -1)))

    def answer(self, scores: Floats) -> Floats:
        """Scores as people read them: probabilities, predicted values, or the scores of a margin."""
        loss = self.asked.loss
        if self.asked.classes > 1:
            return np.asarray(softmax(scores, axis=-1).max(axis=-1))
        if is_likelihood(loss):
            return np.asarray(expit(scores))
        if self.public.classes is not None:
            return scores
        values = self.public.half * scores + self.public.centre
        return np.exp(np.minimum(values, 700.0)) if poisson_rates(loss) else values

    def decisions(self, scores: Floats) -> NDArray[Any]:
        assert self.public.classes is not None
        codes = scores.argmax(axis=-1) if self.asked.classes > 1 else (scores > 0).astype(int)
        return np.asarray(np.array(self.public.classes)[codes])

    def coefficient_names(self) -> tuple[str, ...]:
        names = self.public.names
        if self.asked.classes == 1 or self.public.classes is None:
            return names
        return tuple(f"{name}, class {label}" for name in names for label in self.public.classes)

    def levels(self, thresholds: tuple[float, ...]) -> tuple[RegionLevel, ...]:
        made: list[RegionLevel] = []
        for index, psi in enumerate(thresholds):
            before = made[-1] if made and made[-1].certified > 0 else None
            made.append(self._level(index, psi, before))
        return tuple(made)

    def _level(self, index: int, psi: float, before: RegionLevel | None) -> RegionLevel:
        release = self.release
        points = np.column_stack([release.centre, release.points(index)])
        low, high, changed, moved, capacity = self._inputs(points)
        coefficients = self._coefficients(points)
        reliance = None
        if self.asked.labels is not None and self.asked.columns and len(self.asked.rows) > 1:
            values = self.asked.reliances(points)
            reliance = np.column_stack([values.min(axis=1), values.max(axis=1)])
        fairness = self._fairness(points)
        if before is not None:  # a point of a smaller threshold is a point of this one
            low, high = np.minimum(low, before.low), np.maximum(high, before.high)
            coefficients = _wider(coefficients, before.coefficients)
            reliance = (
                None if reliance is None or before.reliance is None else _wider(reliance, before.reliance)
            )
            fairness = {
                name: (min(a, before.fairness[name][0]), max(b, before.fairness[name][1]))
                for name, (a, b) in fairness.items()
            }
            if capacity is not None and before.capacity is not None:
                capacity = np.maximum(capacity, before.capacity)
            if changed is not None and before.changes is not None and before.discrepancy is not None:
                changed, moved = changed | before.changes, max(moved or 0.0, before.discrepancy)
        if capacity is None and self.public.classes is not None and is_likelihood(self.asked.loss):
            capacity = 2 ** interval_capacity(low, high)
        outer, opened = self._outer(index)
        return RegionLevel(
            threshold=psi,
            certified=float(release.thresholds[index]),
            mean_scale=float(release.scales[index].mean()),
            least_scale=float(release.scales[index].min()),
            low=low,
            high=high,
            changes=changed,
            discrepancy=moved,
            coefficients=coefficients,
            capacity=capacity,
            reliance=reliance,
            fairness=fairness,
            outer=outer,
            open=opened,
        )

    def _outer(self, index: int) -> tuple[tuple[Floats, Floats] | None, NDArray[np.bool_] | None]:
        """What every model of the set answers, and which decisions that leaves open."""
        proved = self.release.outer[index] if self.release.outer else None
        if proved is None:
            return None, None
        low, high = proved.ranges(self.public.rows)
        opened = (low <= 0) & (high > 0)
        centre = self.scores(self.release.centre[:, None])[:, 0] > 0
        opened |= np.where(
            centre, high <= 0, low > 0
        )  # the set's middle may decide otherwise than the centre
        return (self.answer(low), self.answer(high)), opened if self.public.classes is not None else None

    def _inputs(
        self, points: Floats
    ) -> tuple[Floats, Floats, NDArray[np.bool_] | None, float | None, Floats | None]:
        """Lowest and highest answer of each input, whether its decision changes, and the most that change at once."""
        rows, classes = self.public.rows, self.asked.classes
        step = max(1, _CHUNK // (points.shape[1] * classes))
        low, high, changed, capacities = [], [], [], []
        flips, decides = np.zeros(points.shape[1]), self.public.classes is not None
        for start in range(0, len(rows), step):
            scores = self.scores(points, rows[start : start + step])
            if classes == 1:
                low.append(scores.min(axis=1))
                high.append(scores.max(axis=1))
                other = (scores > 0) != (scores[:, :1] > 0)
            else:
                chosen = scores.argmax(axis=2)
                other = chosen != chosen[:, :1]
                shares = softmax(scores, axis=2)
                own = np.take_along_axis(shares, chosen[:, :1, None], axis=2)[:, :, 0]
                low.append(own.min(axis=1))
                high.append(own.max(axis=1))
                few = shares[:, : self.asked.n_models + 1].transpose(1, 0, 2)
                capacities.append(np.maximum(rashomon_capacity(few, _BITS) * 2 ** (-_BITS / 2), 1.0))
            changed.append(other.any(axis=1))
            flips += other.sum(axis=0)
        least, most = np.concatenate(low), np.concatenate(high)
        if classes == 1:
            least, most = self.answer(least), self.answer(most)
        found = np.concatenate(changed) if decides else None
        return (
            least,
            most,
            found,
            float(flips.max()) / len(rows) if decides else None,
            np.concatenate(capacities) if capacities else None,
        )

    def _coefficients(self, points: Floats) -> Floats:
        """On the scale of coef_ and intercept_."""
        found = self.public.half * np.column_stack([points.min(axis=1), points.max(axis=1)])
        if self.public.names[-1] == "intercept":
            found[-self.asked.classes :] += self.public.centre
        return np.asarray(found)

    def _fairness(self, points: Floats) -> dict[str, tuple[float, float]]:
        groups, labels = self.asked.groups, self.asked.labels
        if groups is None or self.asked.classes > 1 or self.public.classes is None:
            return {}
        known = [str(name) for name in np.unique(groups)]
        if len(known) < 2:
            return {}
        truth = None if labels is None else labels > 0.5
        gaps = fairness_range(public_counts((self.scores(points) > 0).T, groups, known, truth), known)
        found = {"demographic parity": gaps.demographic_parity}
        if gaps.equalised_odds is not None:
            found["equalised odds"] = gaps.equalised_odds
        return {name: (float(values.min()), float(values.max())) for name, values in found.items()}


def _wider(first: Floats, second: Floats) -> Floats:
    return np.column_stack([np.minimum(first[:, 0], second[:, 0]), np.maximum(first[:, 1], second[:, 1])])


def _named(names: tuple[str, ...], ranges: Floats) -> dict[str, dict[str, float]]:
    return {
        name: {"low": float(low), "high": float(high)}
        for name, (low, high) in zip(names, ranges, strict=True)
    }
