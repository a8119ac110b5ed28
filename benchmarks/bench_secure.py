"""Exact discrete noise of secure mode, against OpenDP's sampler."""

from __future__ import annotations

import numpy as np
from _measure import Row, seconds

from dplangevin.samplers.discrete import discrete_gaussian, discrete_laplace

COUNT = 200_000


def rows() -> list[Row]:
    """Samples per second of processor time; the issue asks for 5e4."""
    found = []
    for name, draw in (("Gaussian", discrete_gaussian), ("Laplace", discrete_laplace)):
        for power in (2, 20):
            rate = COUNT / seconds(lambda d=draw, k=power: d(k, COUNT), repeats=5)
            theirs = _opendp(name, 2.0**power)
            found.append(
                Row(
                    what=f"discrete {name}, scale 2^{power}, {COUNT:,} draws",
                    asked=">= 50,000 per second",
                    measured=f"{rate:,.0f} per second",
                    met=rate >= 5e4,
                    note=f"OpenDP {theirs:,.0f} per second" if theirs else "OpenDP is not installed",
                )
            )
    return found


def _opendp(name: str, scale: float) -> float | None:
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if name == "Gaussian":
        draw = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale)
    else:
        draw = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale)
    zeros = np.zeros(20_000, np.int64).tolist()
    return len(zeros) / seconds(lambda: draw(zeros), repeats=3)
