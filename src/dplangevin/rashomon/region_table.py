"""What a region says about public inputs, and beside each number whether it is certified or an estimate.

A range over certified models is an INNER statement: every model in it is as good as stated (with the confidence), and
models outside may also be in the set.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.families.rashomon_region.flips import FlipLevel
from dplangevin.families.rashomon_region.plan import RegionPlan
from dplangevin.families.rashomon_region.release import RegionRelease
from dplangevin.families.rashomon_region.shape import Ellipsoid
from dplangevin.rashomon.asked import Asked, place_of
from dplangevin.rashomon.public_rows import PublicRows
from dplangevin.rashomon.region_levels import RegionLevel, Told
from dplangevin.rashomon.status import BOUNDED, LEVELS, OUTSIDE, PROVED, STATUS, rounded

_AT_MOST = ("most_ambiguity", "mean_outer_width")


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
    flip_levels: tuple[FlipLevel, ...] = ()

    @classmethod
    def of(
        cls, release: RegionRelease, plan: RegionPlan, asked: Asked, public: PublicRows, *, own: bool
    ) -> RegionTable:
        """Post-processing of a release."""
        told = Told(release=release, asked=asked, public=public)
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
            coefficients=told.coefficients(release.centre[:, None])[:, 0],
            coefficient_names=told.coefficient_names(),
            column_names=tuple(public.columns),
            confidence=plan.confidence,
            reference="the released model" if plan.gap is None else best,
            own=asked.own_ends if own else 0,
            public=public,
            shape=release.shape,
            flip_levels=release.flips if own else (),
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
        proved = any(level.outer is not None for level in self.levels)
        return STATUS | (PROVED if proved else {}) | (LEVELS if self.flip_levels else {})

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
            "flip_levels": [asdict(level) for level in self.flip_levels],
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
                f"{name.replace('_', ' ')} {rounded(value, up=name in _AT_MOST)}"
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
        lines += [f"  {words} [certified]" for words in flip_words(self.flip_levels)]
        return "\n".join([*lines, f"  {self.sentence}"])


def _named(names: tuple[str, ...], ranges: Floats) -> dict[str, dict[str, float]]:
    return {
        name: {"low": float(low), "high": float(high)}
        for name, (low, high) in zip(names, ranges, strict=True)
    }


def flip_words(levels: tuple[FlipLevel, ...]) -> list[str]:
    """Each level in words: below which psi no set does it, and above which it does."""
    told = []
    for level in levels:
        who = f"{level.count:,} of the first {level.inputs:,} inputs ({level.share:.0%})"
        where = f"models within {level.radius:g} of the released one"
        if np.isinf(level.low):
            told.append(f"{who} are not decided otherwise by {where}, at any psi")
            continue
        least = f"not below psi = {rounded(level.low)}" if level.low > 0 else "perhaps at every psi"
        most = f"certainly above psi = {rounded(level.high, up=True)} (from the released model)"
        told.append(f"{who} are decided otherwise by {where}: {least}, {most}")
    return told
