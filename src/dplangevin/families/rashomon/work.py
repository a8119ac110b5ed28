"""How long draws of a Rashomon set will take, about: proved steps, expected proposals, the pace of this machine.

Nothing here reads a record: the pace is measured on random numbers.
"""

from __future__ import annotations

import time
from functools import lru_cache

import numpy as np

from dplangevin.families.rashomon.schedule import RashomonChainSchedule, RashomonSchedule
from dplangevin.privacy.proximal_certificate import expected_proposals
from dplangevin.problem.constants import Constants

_ROWS, _COLUMNS, _POINTS = 4096, 16, 16
_OVERHEAD = 4e-4  # seconds of a step or proposal, whatever its size


def expected_passes(constants: Constants, schedule: RashomonSchedule | RashomonChainSchedule) -> float:
    """Evaluations of the objective over all records, for all models together."""
    if isinstance(schedule, RashomonChainSchedule):
        return 0.75 * schedule.n_steps * schedule.n_models  # the coin stops between a half and all of them
    p = constants.dimension or 1
    if not schedule.n_steps:  # rejection from an envelope
        return 20.0 * schedule.n_models
    curvature = schedule.inverse_temperature * constants.data_smoothness / (4 * p)
    tried = expected_proposals(schedule.step_size, 0.0, curvature, p)
    return schedule.n_steps * (2 + tried) * schedule.n_models


def expected_seconds(constants: Constants, schedule: RashomonSchedule | RashomonChainSchedule) -> float:
    """An estimate, good to a factor of about three."""
    passes = expected_passes(constants, schedule)
    cell = (constants.dimension or 1) / _COLUMNS * _pace()[0] + _pace()[1]
    return passes * constants.n * cell + _OVERHEAD * passes / schedule.n_models


@lru_cache(maxsize=1)
def _pace() -> tuple[float, float]:
    """Seconds per row and model of the scores (of _COLUMNS columns), and of the loss."""
    rng = np.random.default_rng(0)
    rows, points = rng.standard_normal((_ROWS, _COLUMNS)), rng.standard_normal((_COLUMNS, _POINTS))
    scores = rows @ points
    best = [np.inf, np.inf]
    for _ in range(3):
        start = time.perf_counter()
        scores = rows @ points
        middle = time.perf_counter()
        np.logaddexp(0.0, scores).sum(axis=0)
        end = time.perf_counter()
        best = [min(best[0], middle - start), min(best[1], end - middle)]
    return best[0] / scores.size, best[1] / scores.size


def spoken(seconds: float) -> str:
    """A duration as people say it.

    Examples
    --------
    >>> spoken(0.2), spoken(42.0), spoken(600.0), spoken(20_000.0)
    ('a second', '42 seconds', '10 minutes', '5.6 hours')
    """
    if seconds < 1.5:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
