"""Exact noise on an integer grid: speed, error compared with floating point, and the generator of plain noise."""

from __future__ import annotations

import numpy as np
from _measure import Row, seconds

from dplangevin._rng import make_generator
from dplangevin.mechanisms.noisy_answers.mechanism import GeneralizedGaussianMechanism
from dplangevin.sampling.exact_noise import sample_geometric_noise, sample_rounded_noise

COUNT = 200_000
EXPONENTS = {"Gaussian": 2.0, "Laplace": 1.0, "p = 3.65": 3.65}


def rows() -> list[Row]:
    """Measure samples per second of processor time; the target is 5e4."""
    results = []
    for name, p in EXPONENTS.items():
        for power in (2, 20):
            rate = COUNT / seconds(lambda p=p, k=power: sample_rounded_noise(2.0**k, p, COUNT), repeats=5)
            theirs = _opendp(name, 2.0**power)
            results.append(_rate(f"rounded {name}, scale 2^{power}, {COUNT:,} draws", rate, theirs))
    rate = COUNT / seconds(lambda: sample_geometric_noise(20.0, COUNT), repeats=5)
    results.append(_rate(f"geometric, scale 20, {COUNT:,} draws", rate, None))
    return [*results, *_counts(), _plain_noise()]


def _rate(what: str, rate: float, theirs: float | None) -> Row:
    return Row(
        what=what,
        asked=">= 50,000 per second",
        measured=f"{rate:,.0f} per second",
        met=rate >= 5e4,
        note=f"OpenDP's discrete distribution {theirs:,.0f} per second" if theirs else "",
    )


def _counts() -> list[Row]:
    """Measure a million counts: time, and the error compared with that of floating-point noise."""
    results, zeros = [], np.zeros(10**6)
    for label, options in (("p = 3.65", {"p": 3.65, "delta": 1e-6}), ("p = 2", {"p": 2.0, "delta": 1e-6}),
                           ("p = 1", {"p": 1.0, "delta": 0.0})):  # fmt: skip
        plain, secure = (
            GeneralizedGaussianMechanism(k=10**6, epsilon=1.0, changed_counts=2, secure=secure, **options)  # type: ignore[arg-type]
            for secure in (False, True)
        )
        times = [seconds(lambda m=m: m.release(zeros), repeats=3) for m in (plain, secure)]
        errors = [float(np.sqrt(np.mean(m.release(zeros) ** 2))) for m in (plain, secure)]
        off = abs(errors[1] / errors[0] - 1)
        results.append(
            Row(
                what=f"a million secure counts, {label}: error over that of plain noise",
                asked="within 1%",
                measured=f"{errors[1] / errors[0]:.4f}",
                met=off <= 0.01,
                note=f"{times[1]:.2f} s, plain {times[0]:.2f} s of processor time",
            )
        )
    return results


def _plain_noise() -> Row:
    """Compare the generator of plain noise with PCG64, for a fit of 100 steps and 51 coefficients."""
    ours, theirs = make_generator(None)[0], np.random.default_rng()
    times = [seconds(lambda g=g: g.standard_normal(1_000_000), repeats=5) for g in (ours, theirs)]
    share = (times[0] - times[1]) / 1e6 * 5_100 / 0.13
    return Row(
        what=f"plain noise from {type(ours.bit_generator).__name__}: fraction of a fit (20,000 x 50, 100 steps)",
        asked="< 20%",
        measured=f"{max(share, 0.0):.2%}",
        met=share < 0.2,
        note=f"{times[0] * 1e3:.0f} ns per normal number, PCG64 {times[1] * 1e3:.0f} ns",
    )


def _opendp(name: str, scale: float) -> float | None:
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if name == "Gaussian":
        draw = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale)
    elif name == "Laplace":
        draw = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale)
    else:
        return None
    zeros = np.zeros(20_000, np.int64).tolist()
    return len(zeros) / seconds(lambda: draw(zeros), repeats=3)
