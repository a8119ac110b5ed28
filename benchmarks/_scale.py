"""Shared by the benchmarks of speed and scale: data, interleaved timing, memory of a process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.data import ArrayDataset, kernels
from dplangevin.problem import Ball, Clipped, DataBounds, Logistic, Loss, Problem, Squared

Floats = NDArray[np.float64]
CLIPPED_SQUARE = Clipped(Squared(), 1.0)  # the clip is active, so moments cannot be used


def interleaved(
    work: Mapping[str, Callable[[], object]], *, repeats: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Return the shortest time of each; they take turns, so that other jobs disturb all of them alike."""
    least = dict.fromkeys(work, np.inf)
    for round_number in range(repeats + 1):
        for name, call in work.items():
            start = clock()
            call()
            if round_number:  # the first round warms caches up
                least[name] = min(least[name], clock() - start)
    return {name: float(value) for name, value in least.items()}


def problem(n: int, p: int, loss: Loss | None = None) -> Problem:
    """Return a problem with rows of norm up to 10, without an intercept."""
    chosen = loss or Logistic()
    labels: dict[str, Any] = {"classes": 2} if chosen.label_classes else {"target": (0.0, 1.0)}
    bounds = DataBounds(data_norm=10.0, **labels)
    return Problem(loss=chosen, bounds=bounds, n=n, n_features=p, fit_intercept=False, constraint=Ball(5.0))


def records(n: int, p: int, dtype: Any = np.float64) -> tuple[NDArray[Any], Floats]:
    """Return Gaussian features and labels that are 0 or 1 with probability 1/2."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, p), dtype=dtype), (rng.random(n) < 0.5).astype(float)


def gradient(data: ArrayDataset, loss: Loss, theta: Floats, kernel: str) -> Callable[[], Floats]:
    """Return a function that makes one pass with the kernel of this name."""
    chosen = kernels.choose_kernel(loss, 0, kernel)
    return lambda: data._gradient(chosen, theta, None)[0]


def anonymous_memory() -> float:
    """Return the resident memory of this process that is not backed by a file, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return float("nan")
