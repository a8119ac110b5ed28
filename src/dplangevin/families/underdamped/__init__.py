"""Underdamped Langevin: noisy gradient descent with a velocity, private by its own noise."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member

MEMBERS: tuple[Member, ...] = (
    Member(
        "UnderdampedSchedule",
        ("UnderdampedTheorem",),
        "UnderdampedLangevin",
        options=("underdamped",),
        knob=Knob("inverse_temperature", rising=False),
        self_check=True,
    ),
)
