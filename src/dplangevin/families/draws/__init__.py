"""Draws from exp(-beta F): the exponential mechanism, Gibbs sampling, and their iteration."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member, RecipeEntry

_ONE = ("theorems.draws:ExponentialMechanismTheorem", "theorems.draws:StronglyConvexGibbs")
_BETA = Knob("inverse_temperature", rising=False)
MEMBERS: tuple[Member, ...] = (
    Member(
        "ExponentialSchedule",
        _ONE,
        "ExponentialMechanism",
        recipes=(RecipeEntry("exponential", rank=6),),
        options=("exponential",),
        knob=_BETA,
    ),
    Member(
        "GibbsSchedule",
        _ONE,
        "ExponentialMechanism",
        recipes=(RecipeEntry("gibbs", lacks=("pure",)),),
        options=("gibbs",),
        knob=_BETA,
    ),
    Member(
        "IteratedExponentialSchedule",
        ("theorems.draws:IteratedExponential",),
        "IteratedExponentialMechanism",
        recipes=(RecipeEntry("iterated-exponential"),),
    ),
)
