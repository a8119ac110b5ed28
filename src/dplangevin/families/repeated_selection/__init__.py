"""Repeat and select: a random number of private attempts, of which the best one leaves."""

from __future__ import annotations

from dplangevin.privacy.registry import Member

MEMBERS: tuple[Member, ...] = (Member.named("RepeatedSelection", self_check=True),)
