"""Runs that several benchmarks measure, as options of `account`."""

from __future__ import annotations

from typing import Any

RIDGE: dict[str, Any] = {
    "n": 10_000,
    "lipschitz": 1.0,
    "smoothness": 0.26,
    "strong_convexity": 0.01,
    "step_size": 1.0,
}
BOUNDED: dict[str, Any] = {
    "n": 10_000,
    "lipschitz": 1.0,
    "smoothness": 0.25,
    "diameter": 2.0,
    "step_size": 1.0,
}
BATCHES: dict[str, Any] = {
    "n": 1_000,
    "batch_size": 50,
    "lipschitz": 1.0,
    "smoothness": 1.0,
    "step_size": 0.1,
}
