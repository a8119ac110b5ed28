"""Renyi curve of the Poisson sampled Gaussian over the whole grid of orders, compared with dp-accounting."""

from __future__ import annotations

from itertools import count

from _measure import Row, readable, seconds
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from dplangevin.accounting.conversions import ORDERS
from dplangevin.accounting.sampled_gaussian import renyi_poisson

SETTINGS = ((0.01, 1.0), (0.03, 2.0), (0.001, 4.0))  # where dp-accounting converges at every order
_fresh = count(1)


def _theirs(rate: float, noise: float) -> None:
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    RdpAccountant(orders=ORDERS.tolist()).compose(event)


def rows() -> list[Row]:
    """Measure the same orders and runs; the noise changes a little each time, so that no cache applies."""
    results = []
    for rate, noise in SETTINGS:
        ours = seconds(
            lambda q=rate, s=noise: renyi_poisson(ORDERS, q, s * (1 + 1e-6 * next(_fresh))), repeats=5
        )
        theirs = seconds(lambda q=rate, s=noise: _theirs(q, s * (1 + 1e-6 * next(_fresh))), repeats=3)
        results.append(
            Row(
                what=f"rate {rate}, noise multiplier {noise}, {len(ORDERS)} orders",
                asked=f"<= dp-accounting, {readable(theirs)}",
                measured=readable(ours),
                met=ours <= theirs,
            )
        )
    return results
