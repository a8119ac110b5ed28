"""Region or sampler: what each would give at this size and budget, before anything is read or spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dplangevin import _check
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.families.rashomon.advice import WORTHWHILE
from dplangevin.families.rashomon.hit import rounded_down
from dplangevin.families.rashomon.work import spoken
from dplangevin.rashomon.region import RashomonRegion
from dplangevin.rashomon.sampler import RashomonSampler


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What the two ways would give for each threshold.

    scales : expected share of the region that is certified (estimate); empty where a region cannot be planned.
    least_threshold : the smallest psi worth asking of the region. hits : the sampler's bound on the chance that a draw
    is in the set; empty where it cannot be planned. seconds : of the sampler, about, at the largest threshold.
    route : "region" or "pure" (the sampler). reason : in a sentence. refused : why a way cannot be planned.
    """

    route: str
    reason: str
    scales: dict[float, float]
    least_threshold: float | None
    hits: dict[float, float]
    seconds: float | None
    refused: dict[str, str]

    def __str__(self) -> str:
        lines = [f"Use --route {self.route}: {self.reason}"]
        if self.scales:
            told = ", ".join(f"{scale:.2f} at psi = {psi:g}" for psi, scale in self.scales.items())
            lines.append(f"  region: every model certified; expected scale {told} or more (estimate); smallest psi "
                         f"worth asking about {self.least_threshold:.2g}")  # fmt: skip
        if self.hits:
            told = ", ".join(f"{rounded_down(hit)} at psi = {psi:g}" for psi, hit in self.hits.items())
            assert self.seconds is not None
            lines.append(
                f"  sampler: a draw is in the set with probability at least {told}; about {spoken(self.seconds)}"
            )
        lines += [f"  {name}: {words}" for name, words in self.refused.items()]
        return "\n".join(lines)


def recommend(
    estimator: Any,
    n: int,
    n_features: int,
    *,
    thresholds: Any,
    epsilon: float,
    delta: float = 0.0,
    n_models: int = 10,
    radius: float | None = None,
    n_classes: int = 2,
) -> Recommendation:
    """Which of region and sampler to use for n rows of n_features encoded columns; no data is needed.

    Examples
    --------
    >>> from dplangevin import DPLogisticRegression
    >>> model = DPLogisticRegression(data_norm=1.0, classes=[0, 1], radius=2.0, fit_intercept=False)
    >>> recommend(model, 30_000, 20, thresholds=(0.02,), epsilon=1.0, delta=1e-6).route
    'region'
    >>> recommend(model, 30_000, 2, thresholds=(0.1,), epsilon=1.0).route
    'pure'
    """
    asked = sorted({_check.positive("a threshold", psi) for psi in _listed(thresholds)})
    if not asked:
        raise InvalidParameter("thresholds must be one positive number or a list of them.")
    refused: dict[str, str] = {}
    scales, least = _region(estimator, n, n_features, n_classes, asked, epsilon, delta, refused)
    hits, seconds = {}, None
    options = {"n_models": n_models, "epsilon": epsilon, "delta": delta, "radius": radius}
    for psi in asked:
        try:
            recipe = RashomonSampler(estimator, threshold=psi, **options).plan(n, n_features, n_classes)  # type: ignore[arg-type]
        except DplangevinError as error:
            refused.setdefault("sampler", str(error))
            continue
        hits[psi], seconds = recipe.hit_probability, recipe.seconds
    if not scales and not hits:
        raise InvalidParameter(f"neither region nor sampler can be planned: {' '.join(refused.values())}")
    route, reason = _choice(scales, hits, least)
    return Recommendation(
        route=route,
        reason=reason,
        scales=scales,
        least_threshold=least,
        hits=hits,
        seconds=seconds,
        refused=refused,
    )


def _listed(thresholds: Any) -> list[Any]:
    return list(thresholds) if hasattr(thresholds, "__iter__") else [thresholds]


def _region(
    estimator: Any,
    n: int,
    n_features: int,
    n_classes: int,
    asked: list[float],
    epsilon: float,
    delta: float,
    refused: dict[str, str],
) -> tuple[dict[float, float], float | None]:
    try:
        region = RashomonRegion(estimator, thresholds=asked, epsilon=epsilon, delta=delta)
        plan = region.plan(n, n_features, n_classes)
    except DplangevinError as error:
        refused["region"] = str(error)
        return {}, None
    return {psi: plan.expected_scale(psi) for psi in asked}, plan.least_threshold


def _choice(scales: dict[float, float], hits: dict[float, float], least: float | None) -> tuple[str, str]:
    """The region unless it shows mostly noise where the sampler does not."""
    if not scales:
        good = min(hits.values()) >= WORTHWHILE
        tail = "" if good else " The bound is low: raise psi or epsilon, or state delta > 0 for a region."
        return "pure", f"only the sampler makes this promise.{tail}"
    wide, sure = min(scales.values()), min(hits.values(), default=0.0)
    if wide >= WORTHWHILE or not hits or sure < WORTHWHILE:
        tail = "" if wide >= WORTHWHILE else f" Thresholds below about {least:.2g} show mostly noise."
        return "region", f"one release certifies as many models as wanted.{tail}"
    return "pure", "the noise would shrink the region, and the draws are likely enough to be in the set."
