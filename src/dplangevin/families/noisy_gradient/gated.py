"""Gated weights of the iterates: shrinkage where the released path makes weak effects more likely than not.

Windows are means of the iterates. A hypothesis says how large coefficients are (rows of norm 1) and what the curvatures
of the risk are; given it the windows are normal with a known covariance. All of it is post-processing of noisy
gradients, so it needs a promise about the whole path, and costs nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from dplangevin._arrays import Floats
from dplangevin.families.whitened.response import alike as alike, response
from dplangevin.families.whitened.shrinkage import CENTRE, solved, weighted_fit

DECAYS = (0.0, 0.5, 1.0, 1.5)
HEADS = (0.0, 0.5)
"""Share of the trace in one direction that stands out."""
TRACES = tuple(0.25 * 2.0**-i for i in range(5))
DEVIATIONS = 2.0 ** (np.arange(-6, 11) / 2)
WEAK = 3.0
"""Up to this deviation effects count as weak."""
FEWEST = 8
"""Steps below which windows are too few to tell anything."""


class Gate(NamedTuple):
    """The weights of the three windows, and lambda; (0, 0, 1) is the mean of the tail."""

    weights: Floats
    openness: float


def gate(means: Floats, step: float, noise: float, n_steps: int) -> Gate:
    """a = lambda (sum P B)^-1 (sum P c) over weak hypotheses + (1 - lambda) (0, 0, 1), lambda = max(0, 2 P(weak) - 1).

    means : [3, p], the windows. step, noise : for rows of norm 1 and a loss of curvature at most 1/4.
    """
    size = means.shape[1]
    logs, parts = [], []
    for curvatures in _spectra(size):
        seen = response(alike(n_steps), step * curvatures)
        outer = seen.reached[:, :, None] * seen.reached[:, None, :]
        spread = (step * noise) ** 2 * seen.noise
        log, middle, right = weighted_fit(means, curvatures, outer, spread, seen.reached, DEVIATIONS)
        logs.append(log - np.log(DEVIATIONS / CENTRE) ** 2 / 2)
        parts.append((middle, right))
    posterior = np.exp(np.array(logs) - logsumexp(logs))
    posterior[:, DEVIATIONS > WEAK] = 0.0
    openness = max(0.0, 2 * float(posterior.sum()) - 1)
    plain = np.array([0.0, 0.0, 1.0])
    if not openness > 0:
        return Gate(plain, 0.0)
    middle = np.einsum("kd,kdjl->jl", posterior, np.array([part[0] for part in parts]))
    right = np.einsum("kd,kdj->j", posterior, np.array([part[1] for part in parts]))
    return Gate(openness * solved(middle, right) + (1 - openness) * plain, openness)


@lru_cache(maxsize=16)
def _spectra(size: int) -> tuple[Floats, ...]:
    """Curvatures of a risk of trace at most 1/4: power laws, with or without a direction that holds half of it."""
    found = []
    for decay in DECAYS:
        for head in HEADS:
            if head and size < 2:
                continue
            shape = np.arange(1.0, size + 1 - (head > 0)) ** -decay
            shape *= (1 - head) / shape.sum()
            whole = np.concatenate([[head], shape]) if head else shape
            found += [trace * whole for trace in TRACES]
    return tuple(found)
