"""Gated weights of the iterates: shrink the average where the noisy path makes weak effects more likely than not.

Windows are means of the iterates. A hypothesis fixes the size of the coefficients (rows of norm 1) and the curvatures
of the risk; given it, the windows are normal with a known covariance. All of this is post-processing of the noisy
gradients: it needs a guarantee for the whole path, and has no privacy cost of its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from dplangevin._arrays import Floats
from dplangevin.mechanisms.whitened.postprocessing import (
    EXPECTED_COEF_SIZE,
    fit_window_weights,
    solve_regularized,
)
from dplangevin.mechanisms.whitened.spec import equal_noise_path as equal_noise_path, window_response

SPECTRUM_DECAYS = (0.0, 0.5, 1.0, 1.5)
HEAD_FRACTIONS = (0.0, 0.5)
"""Fraction of the trace that a single leading direction holds."""
SPECTRUM_TRACES = tuple(0.25 * 2.0**-i for i in range(5))
EFFECT_DEVIATIONS = 2.0 ** (np.arange(-6, 11) / 2)
MAX_WEAK_EFFECT = 3.0
"""Largest standard deviation of the coefficients at which effects count as weak."""
MIN_GATED_STEPS = 8
"""Fewest steps for which the windows hold enough information."""


class Gate(NamedTuple):
    """The weights of the three windows, and the shrinkage weight lambda; (0, 0, 1) is the mean of the tail."""

    weights: Floats
    shrinkage_weight: float


def compute_gate(means: Floats, step: float, noise: float, n_steps: int) -> Gate:
    """Return the weights lambda (sum P B)^-1 (sum P c) + (1 - lambda) (0, 0, 1), lambda = max(0, 2 P(weak) - 1).

    The sums are over the hypotheses of weak effects, with their posterior probabilities P.

    Parameters
    ----------
    means : [3, p], the means of the windows.
    step, noise : step size and noise for rows of norm 1 and a loss of curvature at most 1/4.
    """
    size = means.shape[1]
    logs, parts = [], []
    for curvatures in _candidate_spectra(size):
        windows = window_response(equal_noise_path(n_steps), step * curvatures)
        outer = windows.reached_fraction[:, :, None] * windows.reached_fraction[:, None, :]
        spread = (step * noise) ** 2 * windows.noise
        log, middle, right = fit_window_weights(
            means, curvatures, outer, spread, windows.reached_fraction, EFFECT_DEVIATIONS
        )
        logs.append(log - np.log(EFFECT_DEVIATIONS / EXPECTED_COEF_SIZE) ** 2 / 2)
        parts.append((middle, right))
    posterior = np.exp(np.array(logs) - logsumexp(logs))
    posterior[:, EFFECT_DEVIATIONS > MAX_WEAK_EFFECT] = 0.0
    shrinkage_weight = max(0.0, 2 * float(posterior.sum()) - 1)
    plain = np.array([0.0, 0.0, 1.0])
    if not shrinkage_weight > 0:
        return Gate(plain, 0.0)
    middle = np.einsum("kd,kdjl->jl", posterior, np.array([part[0] for part in parts]))
    right = np.einsum("kd,kdj->j", posterior, np.array([part[1] for part in parts]))
    return Gate(
        shrinkage_weight * solve_regularized(middle, right) + (1 - shrinkage_weight) * plain, shrinkage_weight
    )


@lru_cache(maxsize=16)
def _candidate_spectra(size: int) -> tuple[Floats, ...]:
    """Return curvatures of trace at most 1/4: power laws, with or without a direction that holds half of it."""
    spectra = []
    for decay in SPECTRUM_DECAYS:
        for head in HEAD_FRACTIONS:
            if head and size < 2:
                continue
            shape = np.arange(1.0, size + 1 - (head > 0)) ** -decay
            shape *= (1 - head) / shape.sum()
            spectrum = np.concatenate([[head], shape]) if head else shape
            spectra += [trace * spectrum for trace in SPECTRUM_TRACES]
    return tuple(spectra)
