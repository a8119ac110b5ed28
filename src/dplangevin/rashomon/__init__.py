"""Private Rashomon sets: many equally good models under one guarantee, and what they disagree on."""

from dplangevin.families.rashomon.advice import Advice, advise
from dplangevin.families.rashomon.recipe import RashomonRecipe, plan_rashomon
from dplangevin.families.rashomon_region.plan import RegionPlan
from dplangevin.rashomon.capacity import interval_capacity, rashomon_capacity
from dplangevin.rashomon.exact import ExactRegion, exact_region
from dplangevin.rashomon.fairness import FairnessRange, fairness_range, private_counts, public_counts
from dplangevin.rashomon.multiplicity import Multiplicity
from dplangevin.rashomon.recommend import Recommendation, recommend
from dplangevin.rashomon.region import RashomonRegion
from dplangevin.rashomon.region_levels import RegionLevel
from dplangevin.rashomon.region_table import RegionTable
from dplangevin.rashomon.reliance import Cloud, coefficient_cloud, model_reliance
from dplangevin.rashomon.sampler import RashomonSampler
from dplangevin.rashomon.spread import Spread, ambiguity, conflicted, disagreement, discrepancy, score_spread

__all__ = [
    "Advice",
    "Cloud",
    "ExactRegion",
    "FairnessRange",
    "Multiplicity",
    "RashomonRecipe",
    "RashomonRegion",
    "RashomonSampler",
    "Recommendation",
    "RegionLevel",
    "RegionPlan",
    "RegionTable",
    "Spread",
    "advise",
    "ambiguity",
    "coefficient_cloud",
    "conflicted",
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
    "recommend",
    "score_spread",
]
