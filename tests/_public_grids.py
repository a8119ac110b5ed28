"""The tuner on public data with fewer settings: its logic in a fraction of its time."""

from __future__ import annotations

import pytest

from dplangevin.families.mirror_descent import public_tuner

SMALL = {
    "MIRROR_STEPS": (5, 20), "MIRROR_SIZES": (0.1, 0.5), "GRADIENT_STEPS": (10, 30), "GRADIENT_SIZES": (0.3, 1.0),
    "MIX_STEPS": (10,), "MIXINGS": (0.7,), "MAP_RIDGES": (0.1, 1.0), "USED": 2, "REPEATS": 1,
}  # fmt: skip


def small_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one test."""
    for name, value in SMALL.items():
        monkeypatch.setattr(public_tuner, name, value)
