"""Ridge-whitened descent: noisy second moments with a floor under their eigenvalues, then a few noisy steps."""

from __future__ import annotations

from dplangevin.accounting.registry import MechanismEntry, PlannerEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry(
        "RidgeWhitenedSpec",
        ("RidgeWhitenedComposition",),
        "RidgeWhitenedDescent",
        planners=(PlannerEntry("ridge-whitened-gd", rank=0, suitability="prefers_ridge_whitening"),),
    ),
)
