"""Noisy SGD on random batches against exact one-dimensional chains: every upper bound is above every lower one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.block_recursion import block_profile_sgd
from dplangevin.mechanisms.noisy_gradient.theorems.hidden_state import (
    EveryStepShift,
    best_participation_split,
    hidden_state_split,
)
from dplangevin.mechanisms.noisy_gradient.theorems.random_batches import RandomBatchRun, step_renyi_curves
from dplangevin.problem.constants import Constants

INFINITY = math.inf
SUBSET, POISSON = "without-replacement", "poisson"


def chain(steps: int, contraction: float, jumps, noise: float, diameter: float) -> np.ndarray:
    """Masses of w <- clip(a w + jump + N(0, v^2), [-D/2, D/2]) from 0 at Gauss-Legendre nodes and the two ends."""
    count = int(max(120, 12 * diameter / noise + 80))
    x, w = np.polynomial.legendre.leggauss(count)
    x, w = x * diameter / 2, w * diameter / 2
    sources = np.concatenate([[0.0, -diameter / 2], x, [diameter / 2]])  # the start, then the states
    kernel = np.zeros((count + 2, count + 3))
    for chance, jump in jumps:
        mean = contraction * sources + jump
        bell = np.exp(-(((x[:, None] - mean) / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))
        kernel[1:-1] += chance * bell * w[:, None]
        kernel[0] += chance * ndtr((-diameter / 2 - mean) / noise)
        kernel[-1] += chance * ndtr((mean - diameter / 2) / noise)
    first, kernel = kernel[:, 0], kernel[:, 1:]
    law = np.linalg.matrix_power(kernel, steps - 1) @ first if steps > 300 else first
    for _ in range(0 if steps > 300 else steps - 1):
        law = kernel @ law
    assert abs(law.sum() - 1) < 1e-8
    return law


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    keep = (p > 1e-200) & (q > 1e-200)  # below, only rounding is left
    logs = order * np.log(p[keep]) + (1 - order) * np.log(q[keep])
    return float((logs.max() + math.log(np.exp(logs - logs.max()).sum())) / (order - 1))


def test_the_chain_reproduces_the_published_walk():
    jump = 0.1 / 50
    p, q = (chain(1000, 1.0, [(0.95, 0.0), (0.05, sign * jump)], 0.04, 1.0) for sign in (1, -1))
    assert renyi(p, q, 2.0) == pytest.approx(0.0056894933, rel=1e-6)
    assert renyi(p, q, 8.0) == pytest.approx(0.022098949, rel=1e-6)


def attacked(rng: np.random.Generator, *, bounded: bool) -> tuple[RandomBatchRun, np.ndarray, np.ndarray]:
    """A random run and the exact laws of two neighbouring chains it covers (linear losses, a ridge, a common drift)."""
    contraction = float(rng.choice([1.0, 1.0, 0.5, 0.9, 0.98, 1.03]))
    shift = float(np.exp(rng.uniform(math.log(0.03), math.log(3))))
    diameter, steps = float(np.exp(rng.uniform(0, 3))), int(np.exp(rng.uniform(0, math.log(400))))
    rate, sampling = float(rng.choice([0.01, 0.1, 0.5, 1.0])), str(rng.choice([SUBSET, POISSON]))
    stated = diameter
    if contraction < 1 and not bounded:
        diameter, stated = 20 / math.sqrt(1 - contraction**2), INFINITY
    run = RandomBatchRun(
        sampling=sampling, rate=rate, noise_multiplier=1 / shift, shift=shift, noise=1.0, contraction=contraction,
        diameter=stated, n_steps=steps,
    )  # fmt: skip
    drift, pair = 0.0, (1.0, 0.0)
    if sampling == SUBSET:
        drift, pair = (
            float(rng.normal()) * 0.2 * shift,
            ((1.0, 0.0), (0.5, -0.5), (-1.0, 0.0))[rng.integers(3)],
        )
    laws = [
        chain(steps, contraction, [(1 - rate, drift), (rate, drift + shift * x)], 1.0, diameter) for x in pair
    ]
    return run, laws[0], laws[1]


@pytest.mark.parametrize("seed", range(20))
def test_renyi_bounds_are_above_exact_chains(seed):
    run, p, q = attacked(np.random.default_rng(seed), bounded=False)
    orders = np.array([1.1, 2.0, 6.0, 20.0])
    curves = step_renyi_curves(run, orders)
    bounds = [hidden_state_split(run, orders, curves).values]
    if run.contraction <= 1:
        bounds.append(best_participation_split(run, orders, curves).values)
    for i, order in enumerate(orders):
        lower = max(renyi(p, q, order), renyi(q, p, order))
        for bound in bounds:
            assert lower <= bound[i] * (1 + 1e-7) + 1e-9


@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=[pytest.mark.slow] if s > 3 else []) for s in range(20)]
)
def test_block_profile_is_above_exact_chains(seed):
    run, p, q = attacked(np.random.default_rng(100 + seed), bounded=True)
    epsilons, deltas = block_profile_sgd(run)
    for i in range(0, len(epsilons), 25):
        g = math.exp(min(epsilons[i], 700))
        lower = max(np.maximum(p - g * q, 0).sum(), np.maximum(q - g * p, 0).sum())
        assert lower <= deltas[i] * (1 + 1e-7) + 1e-9


def test_every_step_shift_is_above_exact_chains():
    for seed in range(12):
        run, p, q = attacked(np.random.default_rng(200 + seed), bounded=True)
        if run.contraction > 1:
            continue
        ridge, size = 1 - run.contraction, max(1, round(10 * run.rate))
        constants = Constants(
            n=10, lipschitz=run.shift * size / 2, smoothness=max(ridge, 1e-3), strong_convexity=ridge,
            diameter=run.diameter,
        )  # fmt: skip
        spec = NoisyGradientSpec(
            step_size=1.0, noise_std=1.0, n_steps=run.n_steps, batch_size=size, sampling=SUBSET
        )
        mu = EveryStepShift().certify(constants, spec).mu
        for order in (2.0, 6.0):
            assert max(renyi(p, q, order), renyi(q, p, order)) <= order * mu**2 / 2 * (1 + 1e-7)
