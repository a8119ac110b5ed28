"""Exact noise of secure mode: draws, a million counts, its error beside the plain one; the generator of plain noise."""

from __future__ import annotations

import numpy as np
from _measure import Row, seconds

from dplangevin._rng import generator
from dplangevin.families.noisy_answers.generalized_gaussian_mechanism import GeneralizedGaussianMechanism
from dplangevin.samplers.rounded import geometric_noise, rounded_noise

COUNT = 200_000
SHAPES = {"Gaussian": 2.0, "Laplace": 1.0, "p = 3.65": 3.65}


def rows() -> list[Row]:
    """Samples per second of processor time; 5e4 are asked for."""
    found = []
    for name, p in SHAPES.items():
        for power in (2, 20):
            rate = COUNT / seconds(lambda p=p, k=power: rounded_noise(2.0**k, p, COUNT), repeats=5)
            theirs = _opendp(name, 2.0**power)
            found.append(_rate(f"rounded {name}, scale 2^{power}, {COUNT:,} draws", rate, theirs))
    rate = COUNT / seconds(lambda: geometric_noise(20.0, COUNT), repeats=5)
    found.append(_rate(f"geometric, scale 20, {COUNT:,} draws", rate, None))
    return [*found, *_counts(), _plain_noise()]


def _rate(what: str, rate: float, theirs: float | None) -> Row:
    return Row(
        what=what,
        asked=">= 50,000 per second",
        measured=f"{rate:,.0f} per second",
        met=rate >= 5e4,
        note=f"OpenDP's discrete law {theirs:,.0f} per second" if theirs else "",
    )


def _counts() -> list[Row]:
    """A million counts: time, and the error against the plain mechanism's."""
    found, zeros = [], np.zeros(10**6)
    for words, options in (("p = 3.65", {"p": 3.65, "delta": 1e-6}), ("p = 2", {"p": 2.0, "delta": 1e-6}),
                           ("p = 1", {"p": 1.0, "delta": 0.0})):  # fmt: skip
        plain, secure = (
            GeneralizedGaussianMechanism(k=10**6, epsilon=1.0, changed_counts=2, secure=secure, **options)  # type: ignore[arg-type]
            for secure in (False, True)
        )
        times = [seconds(lambda m=m: m.release(zeros), repeats=3) for m in (plain, secure)]
        errors = [float(np.sqrt(np.mean(m.release(zeros) ** 2))) for m in (plain, secure)]
        off = abs(errors[1] / errors[0] - 1)
        found.append(
            Row(
                what=f"a million secure counts, {words}: error over the plain one",
                asked="within 1%",
                measured=f"{errors[1] / errors[0]:.4f}",
                met=off <= 0.01,
                note=f"{times[1]:.2f} s, plain {times[0]:.2f} s of processor time",
            )
        )
    return found


def _plain_noise() -> Row:
    """The generator of plain runs against PCG64, for the normals of a fit of 100 steps and 51 coefficients."""
    ours, theirs = generator(None)[0], np.random.default_rng()
    times = [seconds(lambda g=g: g.standard_normal(1_000_000), repeats=5) for g in (ours, theirs)]
    share = (times[0] - times[1]) / 1e6 * 5_100 / 0.13
    return Row(
        what=f"plain noise from {type(ours.bit_generator).__name__}: share of a fit (20,000 x 50, 100 steps)",
        asked="< 20%",
        measured=f"{max(share, 0.0):.2%}",
        met=share < 0.2,
        note=f"{times[0] * 1e3:.0f} ns a normal number, PCG64 {times[1] * 1e3:.0f} ns",
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
