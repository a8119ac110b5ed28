"""Draws from exp(-beta F): the exponential mechanism, Gibbs sampling, and their iteration."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member

MEMBERS: tuple[Member, ...] = (
    Member(
        schedule="schedule:ExponentialSchedule",
        theorems=(
            "theorems.draws:ExponentialMechanismTheorem",
            "theorems.draws:StronglyConvexGibbs",
        ),
        mechanism="mechanism:ExponentialMechanism",
        recipes={"exponential": "recipe:exponential"},
        options={"exponential": "options:exponential"},
        knob=Knob("inverse_temperature", rising=False),
    ),
    Member(
        schedule="schedule:GibbsSchedule",
        theorems=(
            "theorems.draws:ExponentialMechanismTheorem",
            "theorems.draws:StronglyConvexGibbs",
        ),
        mechanism="mechanism:ExponentialMechanism",
        recipes={"gibbs": "recipe:gibbs"},
        options={"gibbs": "options:gibbs"},
        knob=Knob("inverse_temperature", rising=False),
    ),
    Member(
        schedule="schedule:IteratedExponentialSchedule",
        theorems=("theorems.draws:IteratedExponential",),
        mechanism="mechanism:IteratedExponentialMechanism",
        recipes={"iterated-exponential": "recipe:iterated_exponential"},
    ),
)
