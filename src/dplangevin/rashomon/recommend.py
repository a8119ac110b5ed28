"""Recommendation of region or sampler, from what each is expected to give at a size and budget; no data is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dplangevin import _check
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.mechanisms.rashomon.calibrate import MIN_USEFUL_HIT_PROBABILITY, format_rounded_down
from dplangevin.mechanisms.rashomon.planning import format_duration
from dplangevin.rashomon.region import RashomonRegion
from dplangevin.rashomon.sampler import RashomonSampler


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The recommended route, and what region and sampler are expected to give for each threshold.

    Parameters
    ----------
    route : "region" or "pure" (the sampler).
    reason : of the recommendation, in a sentence.
    expected_scales : by threshold, expected fraction of the region that is certified (estimate); empty where a region
        cannot be planned.
    min_threshold : smallest useful psi of the region.
    hit_probabilities : by threshold, the sampler's lower bound on the probability that a draw is in the set; empty
        where it cannot be planned.
    seconds : approximate time of the sampler at the largest threshold.
    refusals : by route, why it cannot be planned.
    """

    route: str
    reason: str
    expected_scales: dict[float, float]
    min_threshold: float | None
    hit_probabilities: dict[float, float]
    seconds: float | None
    refusals: dict[str, str]

    def __str__(self) -> str:
        lines = [f"Use --route {self.route}: {self.reason}"]
        if self.expected_scales:
            values_text = ", ".join(
                f"{scale:.2f} at psi = {psi:g}" for psi, scale in self.expected_scales.items()
            )
            lines.append(f"  region: every model certified; expected scale {values_text} or more (estimate); smallest "
                         f"useful psi about {self.min_threshold:.2g}")  # fmt: skip
        if self.hit_probabilities:
            values_text = ", ".join(
                f"{format_rounded_down(hit)} at psi = {psi:g}" for psi, hit in self.hit_probabilities.items()
            )
            assert self.seconds is not None
            lines.append(
                f"  sampler: a draw is in the set with probability at least {values_text}; about "
                f"{format_duration(self.seconds)}"
            )
        lines += [f"  {name}: {reason}" for name, reason in self.refusals.items()]
        return "\n".join(lines)


def recommend_route(
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
    """Recommend region or sampler for n rows of n_features encoded columns; no data is needed.

    Examples
    --------
    >>> from dplangevin import DPLogisticRegression
    >>> model = DPLogisticRegression(data_norm=1.0, classes=[0, 1], radius=2.0, fit_intercept=False)
    >>> recommend_route(model, 30_000, 20, thresholds=(0.02,), epsilon=1.0, delta=1e-6).route
    'region'
    >>> recommend_route(model, 30_000, 2, thresholds=(0.1,), epsilon=1.0).route
    'pure'
    """
    sorted_thresholds = sorted({_check.check_positive("a threshold", psi) for psi in _as_list(thresholds)})
    if not sorted_thresholds:
        raise InvalidParameter("thresholds must be one positive number or a list of them.")
    refusals: dict[str, str] = {}
    scales, min_threshold = _plan_region_scales(
        estimator, n, n_features, n_classes, sorted_thresholds, epsilon, delta, refusals
    )
    hit_probabilities, seconds = {}, None
    options: dict[str, Any] = {"n_models": n_models, "epsilon": epsilon, "delta": delta, "radius": radius}
    for psi in sorted_thresholds:
        try:
            sampler_plan = RashomonSampler(estimator, thresholds=psi, **options).plan(
                n, n_features, n_classes
            )
        except DplangevinError as error:
            refusals.setdefault("sampler", str(error))
            continue
        hit_probabilities[psi], seconds = sampler_plan.hit_probability, sampler_plan.expected_seconds
    if not scales and not hit_probabilities:
        raise InvalidParameter(f"neither region nor sampler can be planned: {' '.join(refusals.values())}")
    route, reason = _choose_route(scales, hit_probabilities, min_threshold)
    return Recommendation(
        route=route,
        reason=reason,
        expected_scales=scales,
        min_threshold=min_threshold,
        hit_probabilities=hit_probabilities,
        seconds=seconds,
        refusals=refusals,
    )


def _as_list(thresholds: Any) -> list[Any]:
    return list(thresholds) if hasattr(thresholds, "__iter__") else [thresholds]


def _plan_region_scales(
    estimator: Any,
    n: int,
    n_features: int,
    n_classes: int,
    thresholds: list[float],
    epsilon: float,
    delta: float,
    refusals: dict[str, str],
) -> tuple[dict[float, float], float | None]:
    try:
        region = RashomonRegion(estimator, thresholds=thresholds, epsilon=epsilon, delta=delta)
        plan = region.plan(n, n_features, n_classes)
    except DplangevinError as error:
        refusals["region"] = str(error)
        return {}, None
    return {psi: plan.expected_scale(psi) for psi in thresholds}, plan.min_threshold


def _choose_route(
    scales: dict[float, float], hit_probabilities: dict[float, float], min_threshold: float | None
) -> tuple[str, str]:
    """Return route and reason: the region, unless it shows mostly noise and the sampler does not."""
    if not scales:
        is_useful = min(hit_probabilities.values()) >= MIN_USEFUL_HIT_PROBABILITY
        tail = (
            "" if is_useful else " The bound is low: raise psi or epsilon, or state delta > 0 for a region."
        )
        return "pure", f"only the sampler offers this guarantee.{tail}"
    scale, hit_probability = min(scales.values()), min(hit_probabilities.values(), default=0.0)
    if scale >= MIN_USEFUL_HIT_PROBABILITY or hit_probability < MIN_USEFUL_HIT_PROBABILITY:
        tail = (
            ""
            if scale >= MIN_USEFUL_HIT_PROBABILITY
            else f" Thresholds below about {min_threshold:.2g} show mostly noise."
        )
        return "region", f"one release certifies any number of models.{tail}"
    return "pure", "the noise would shrink the region, and the draws are likely enough to be in the set."
