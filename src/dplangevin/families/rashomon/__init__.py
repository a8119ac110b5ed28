"""Draws from the set of almost optimal models."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member

MEMBERS: tuple[Member, ...] = (
    Member(
        schedule="schedule:RashomonSchedule",
        theorems=("theorem:RashomonDrawsTheorem",),
        mechanism="mechanism:RashomonDraws",
        options={"rashomon": "options:rashomon"},
        knob=Knob("inverse_temperature", rising=False, patient=True),
    ),
    Member(
        schedule="schedule:RashomonChainSchedule",
        theorems=("theorem:RashomonChainsTheorem",),
        mechanism="mechanism:RashomonChains",
    ),
)
