"""The rejection loop shared by the exact envelope samplers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._progress import progress
from dplangevin.errors import AssumptionFailed
from dplangevin.samplers.log_concave import refuse_violation

_LARGEST_BATCH = 4096


def rejection(
    propose: Callable[[int], tuple[Floats, Floats]],
    dimension: int,
    size: int,
    max_proposals: int | None,
    scale: float,
    rng: np.random.Generator,
) -> tuple[Floats, int]:
    """Accept proposals with probability exp(log acceptance) until `size` are found; the points and proposals made.

    `propose(batch)` makes that many proposals and returns the points left in the body with their log acceptances,
    which must not exceed 0; `scale` is the size of the potential, for the rounding allowed in that check.
    """
    size = _check.count("size", size)
    limit = math.inf if max_proposals is None else _check.count("max_proposals", max_proposals)
    result, proposals = np.empty((dimension, size)), 0

    def accepted() -> Iterator[int]:
        """The draws one by one, as they are found."""
        nonlocal proposals
        filled, batch = 0, 16
        while filled < size:
            if proposals >= limit:
                raise AssumptionFailed(
                    f"fewer than {size} draws after {max_proposals} proposals; raise max_proposals or use the proximal "
                    "sampler."
                )
            batch = int(min(batch, limit - proposals))
            x, excess = propose(batch)
            proposals += batch
            refuse_violation(excess, np.full(1, scale))
            kept = x[:, -rng.standard_exponential(excess.size) <= excess][:, : size - filled]
            result[:, filled : filled + kept.shape[1]] = kept
            yield from range(kept.shape[1])
            filled += kept.shape[1]
            batch = int(min(max(16, 1.2 * (size - filled) * proposals / max(filled, 1)), _LARGEST_BATCH))

    for _ in progress(accepted(), "draws", total=size, private=True):  # when draws are accepted, the data say
        pass
    return result, proposals
