"""Underdamped Langevin: noisy gradient descent with a velocity, private by its own noise."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member

MEMBERS: tuple[Member, ...] = (
    Member(
        schedule="schedule:UnderdampedSchedule",
        theorems=("theorem:UnderdampedTheorem",),
        mechanism="mechanism:UnderdampedLangevin",
        known_leak="self_check:known_leak",
        options={"underdamped": "options:underdamped"},
        knob=Knob(name="inverse_temperature", rising=False),
    ),
)
