"""Draws from the set of almost optimal models."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member

MEMBERS: tuple[Member, ...] = (
    Member(
        "RashomonSchedule",
        ("RashomonDrawsTheorem",),
        "RashomonDraws",
        options=("rashomon",),
        knob=Knob("inverse_temperature", rising=False, patient=True),
    ),
    Member("RashomonChainSchedule", ("RashomonChainsTheorem",), "RashomonChains"),
)
