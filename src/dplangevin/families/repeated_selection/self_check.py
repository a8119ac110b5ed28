"""What the largest of K noisy scores leaks when attempts are N(0, 1) against N(mu, 1) and release their score."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dplangevin.families.repeated_selection.schedule import RepeatedSelectionSchedule

Floats = NDArray[np.float64]
_CUTS = 400


def known_leak(constants: None, schedule: RepeatedSelectionSchedule, delta: float) -> float:
    """The best half-line: some score is above the cut with probability 1 - G(1 - q), G the generating function of K."""
    mu, mean = schedule.mu, schedule.repetitions
    reach = 4 + math.sqrt(2 * math.log(mean + 1))
    cuts = np.linspace(-reach, reach + min(mu, 1e6), _CUTS)
    high, low = (_above(schedule, ndtr(centre - cuts)) for centre in (mu, 0.0))
    power, size = np.concatenate([high, 1 - low]), np.concatenate([low, 1 - high])
    # differences from 1 lose digits: what they may be off by is taken from the one and given to the other
    gain = power * (1 - 1e-9) - 1e-12 - delta
    best = float(np.max(np.where(gain > 0, gain, 0.0) / (size * (1 + 1e-9) + 1e-12)))
    return math.log(best) if best > 1 else 0.0


def _above(schedule: RepeatedSelectionSchedule, each: Floats) -> Floats:
    """The probability that one of K attempts is above, each with its own."""
    if schedule.law == "poisson":
        return np.asarray(-np.expm1(-schedule.repetitions * each))
    gamma = schedule.gamma
    if schedule.law == "geometric":
        return np.asarray(each / (gamma + (1 - gamma) * each))
    return np.asarray(np.log1p((1 / gamma - 1) * each) / math.log(1 / gamma))
