"""Private Rashomon sets: many equally good models under one guarantee, and what they disagree on."""

from dplangevin.families.rashomon.advice import Advice, advise
from dplangevin.families.rashomon.recipe import RashomonRecipe, plan_rashomon
from dplangevin.rashomon.capacity import rashomon_capacity
from dplangevin.rashomon.fairness import FairnessRange, fairness_range, private_counts, public_counts
from dplangevin.rashomon.multiplicity import Multiplicity
from dplangevin.rashomon.reliance import Cloud, coefficient_cloud, model_reliance
from dplangevin.rashomon.sampler import RashomonSampler
from dplangevin.rashomon.spread import Spread, ambiguity, conflicted, disagreement, discrepancy, score_spread

__all__ = [
    "Advice",
    "Cloud",
    "FairnessRange",
    "Multiplicity",
    "RashomonRecipe",
    "RashomonSampler",
    "Spread",
    "advise",
    "ambiguity",
    "coefficient_cloud",
    "conflicted",
    "disagreement",
    "discrepancy",
    "fairness_range",
    "model_reliance",
    "plan_rashomon",
    "private_counts",
    "public_counts",
    "rashomon_capacity",
    "score_spread",
]
