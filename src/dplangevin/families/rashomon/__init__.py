"""Draws from the set of almost optimal models."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member

_BETA = Knob("inverse_temperature", rising=False, patient=True)
MEMBERS: tuple[Member, ...] = (
    Member("RashomonSchedule", ("RashomonDrawsTheorem",), "RashomonDraws", options=("rashomon",), knob=_BETA),
    Member("RashomonChainSchedule", ("RashomonChainsTheorem",), "RashomonChains"),
)
