"""Draws from exp(-beta F): the exponential mechanism, Gibbs sampling, and their iteration."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member

_ONE = ("theorems.draws:ExponentialMechanismTheorem", "theorems.draws:StronglyConvexGibbs")
_BETA = Knob("inverse_temperature", rising=False)
MEMBERS: tuple[Member, ...] = (
    Member(
        "ExponentialSchedule",
        _ONE,
        "ExponentialMechanism",
        recipes=("exponential",),
        options=("exponential",),
        knob=_BETA,
    ),
    Member("GibbsSchedule", _ONE, "ExponentialMechanism", recipes=("gibbs",), options=("gibbs",), knob=_BETA),
    Member(
        "IteratedExponentialSchedule",
        ("theorems.draws:IteratedExponential",),
        "IteratedExponentialMechanism",
        recipes=("iterated-exponential",),
    ),
)
