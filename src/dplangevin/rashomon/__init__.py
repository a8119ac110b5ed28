"""Private Rashomon sets: many equally good models under one guarantee, and where they disagree."""

from dplangevin.mechanisms.rashomon.calibrate import SamplingAdvice, advise_sampling
from dplangevin.mechanisms.rashomon.planning import RashomonPlan, plan_rashomon
from dplangevin.mechanisms.rashomon_region.planning import RegionPlan
from dplangevin.rashomon.measures import (
    FairnessRange,
    ModelValues,
    ScoreSpread,
    ambiguity,
    coefficient_values,
    conflicted_inputs,
    disagreement,
    discrepancy,
    fairness_range,
    interval_capacity,
    model_reliance,
    private_counts,
    public_counts,
    rashomon_capacity,
    score_spread,
)
from dplangevin.rashomon.multiplicity import Multiplicity
from dplangevin.rashomon.region import ExactRegion, RashomonRegion, exact_region
from dplangevin.rashomon.region_table import RegionLevel, RegionTable
from dplangevin.rashomon.sampler import RashomonSampler, Recommendation, recommend_route

__all__ = [
    "ExactRegion",
    "FairnessRange",
    "ModelValues",
    "Multiplicity",
    "RashomonPlan",
    "RashomonRegion",
    "RashomonSampler",
    "Recommendation",
    "RegionLevel",
    "RegionPlan",
    "RegionTable",
    "SamplingAdvice",
    "ScoreSpread",
    "advise_sampling",
    "ambiguity",
    "coefficient_values",
    "conflicted_inputs",
    "disagreement",
    "discrepancy",
    "exact_region",
    "fairness_range",
    "interval_capacity",
    "model_reliance",
    "plan_rashomon",
    "private_counts",
    "public_counts",
    "rashomon_capacity",
    "recommend_route",
    "score_spread",
]
