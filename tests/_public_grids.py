"""The tuner on public data with fewer settings: its logic in a fraction of its time."""

from __future__ import annotations

import pytest

from dplangevin.mechanisms.mirror_descent import tuning

SMALL = {
    "MIRROR_STEP_COUNTS": (5, 20), "MIRROR_STEP_SIZES": (0.1, 0.5),
    "GRADIENT_STEP_COUNTS": (10, 30), "GRADIENT_STEP_SIZES": (0.3, 1.0),
    "MIX_STEP_COUNTS": (10,), "MIXINGS": (0.7,), "MAP_RIDGES": (0.1, 1.0), "N_FOLDS_USED": 2, "N_NOISE_REPEATS": 1,
}  # fmt: skip


def small_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one test."""
    for name, value in SMALL.items():
        monkeypatch.setattr(tuning, name, value)
