"""Rashomon capacity: how many classes a set of equally good models effectively leaves open for one input.

For an input, model k predicts the distribution P_k over c classes. The capacity is 2^C, C the capacity in bits of the
channel "model -> class", the largest mutual information over all ways of picking a model. It is 1 when the models agree
and c when each class is certain under some model.

References: Hsu and Calmon (2022), definition 3; Blahut (1972) and Arimoto (1972).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter

_BLOCK = 4_000_000  # numbers per block of inputs


def rashomon_capacity(probabilities: ArrayLike, tolerance: float = 1e-6, most_steps: int = 100_000) -> Floats:
    """2^C per input, from probabilities[models, inputs, classes]; the error of C is at most `tolerance` bits.

    Two classes: the channel's rows lie on a segment, so the two extreme models alone carry the capacity.

    Examples
    --------
    >>> agree, split = [[0.5, 0.5]], [[1.0, 0.0]]
    >>> rashomon_capacity([agree, agree]).tolist(), rashomon_capacity([split, [[0.0, 1.0]]]).round(5).tolist()
    ([1.0], [2.0])
    """
    tables = _distributions(probabilities)
    bits = _check.positive("tolerance", tolerance)
    if tables.shape[2] == 2:
        every, last = np.arange(tables.shape[1]), tables[:, :, 1]
        tables = np.stack([tables[last.argmin(axis=0), every], tables[last.argmax(axis=0), every]])
    size = max(1, _BLOCK // (tables.shape[0] * tables.shape[2]))
    parts = [
        _capacities(tables[:, first : first + size], bits * np.log(2), most_steps)
        for first in range(0, tables.shape[1], size)
    ]
    return np.clip(np.exp(np.concatenate(parts)), 1.0, float(tables.shape[2]))


def _capacities(tables: Floats, tolerance: float, most_steps: int) -> Floats:
    """Blahut-Arimoto on every input at once, in nats; stops on the duality gap max_k D_k - sum_k r_k D_k."""
    models, inputs, _ = tables.shape
    result, open_ = np.zeros(inputs), np.arange(inputs)
    weights = np.full((models, inputs), 1 / models)
    entropy = np.sum(xlogy(tables, tables), axis=2)
    for _ in range(most_steps):
        mixture = np.einsum("ki,kic->ic", weights, tables)
        with np.errstate(divide="ignore"):
            logs = np.where(mixture > 0, np.log(mixture), 0.0)
        divergence = entropy - np.einsum("kic,ic->ki", tables, logs)
        lower, upper = np.sum(weights * divergence, axis=0), divergence.max(axis=0)
        done = upper - lower <= tolerance
        result[open_[done]] = np.maximum(0.5 * (lower + upper)[done], 0.0) * (upper[done] > 1e-14)
        if done.all():
            return result
        keep = ~done
        open_, tables, entropy = open_[keep], tables[:, keep], entropy[:, keep]
        divergence, weights = divergence[:, keep], weights[:, keep]
        weights = weights * np.exp(divergence - divergence.max(axis=0))
        weights /= weights.sum(axis=0)
    raise AssumptionFailed(
        f"the capacity did not converge to {tolerance / np.log(2):g} bits in {most_steps} steps; raise tolerance or "
        "most_steps."
    )


def _distributions(probabilities: ArrayLike) -> Floats:
    try:
        tables = np.asarray(probabilities, float)
    except (TypeError, ValueError):
        tables = np.zeros(0)
    if tables.ndim != 3 or 0 in tables.shape or tables.shape[2] < 2:
        raise InvalidParameter(
            "capacity needs probabilities[models, inputs, classes] with two classes or more, got shape "
            f"{list(tables.shape)}; a model without predict_proba has no capacity."
        )
    sums = tables.sum(axis=2)
    if not np.all(tables >= 0) or not np.allclose(sums, 1.0, atol=1e-6):
        raise InvalidParameter(
            "the probabilities of each model and input must not be negative and add up to 1."
        )
    return np.asarray(tables / sums[:, :, None])


def interval_capacity(low: ArrayLike, high: ArrayLike) -> Floats:
    """C in bits of two classes when the probability of one ranges over [low, high]: interior models add nothing.

    C = (a h(b) - b h(a)) / (b - a) + log2(1 + 2^((h(a) - h(b)) / (b - a))), h the binary entropy.

    Examples
    --------
    >>> interval_capacity([0.2, 0.05, 0.3], [0.7, 0.4, 0.3]).round(6).tolist()
    [0.191238, 0.14226, 0.0]
    """
    a, b = np.asarray(low, float), np.asarray(high, float)
    width = np.maximum(b - a, 1e-7)  # narrower ranges leave less than 1e-12 bits open
    first, second = (-(xlogy(p, p) + xlogy(1 - p, 1 - p)) / np.log(2) for p in (a, b))
    bits = (a * second - b * first) / width + np.logaddexp2(0.0, (first - second) / width)
    return np.asarray(np.where(b - a > 1e-7, np.maximum(bits, 0.0), 0.0))
