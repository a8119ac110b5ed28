"""What is certified at one threshold, worked out from the certified points of a release. No private record is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from dplangevin._arrays import Floats
from dplangevin.families.rashomon_region.release import RegionRelease
from dplangevin.rashomon.asked import Asked
from dplangevin.rashomon.capacity import interval_capacity, rashomon_capacity
from dplangevin.rashomon.fairness import fairness_range, public_counts
from dplangevin.rashomon.public_rows import PublicRows

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
class Told:
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
        if loss.slope_variance == "curvature":
            return np.asarray(expit(scores))
        if self.public.classes is not None:
            return scores
        values = self.public.half * scores + self.public.centre
        return np.exp(np.minimum(values, 700.0)) if loss.plain.log_link else values

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
        coefficients = self.coefficients(points)
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
        if (
            capacity is None
            and self.public.classes is not None
            and self.asked.loss.slope_variance == "curvature"
        ):
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

    def coefficients(self, points: Floats) -> Floats:
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
