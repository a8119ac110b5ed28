"""Audit pairs for counts: the honest noise is not refuted and a quarter of it is.

The score is the likelihood ratio of the worst pair of neighbours, so the exact value is the claim, and what the attack
certifies is at least 0.7 of it. Confidence 0.9999 per audit: the honest audits together raise a false alarm with
probability below 1e-3 (seeds are fixed).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dplangevin.audit import attack
from dplangevin.mechanisms.generalized_gaussian import GeneralizedGaussianMechanism
from dplangevin.mechanisms.sparse_vector import SparseVectorCorrection

RUNS, DELTA = 20_000, 0.05


def scores(
    mechanism: Any, change: np.ndarray, seed: int, shrink: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood ratios of releases on counts 0 and on `change`, with the noise divided by `shrink`."""
    k, p, rng = mechanism.k, mechanism.p, np.random.default_rng(seed)
    found = []
    for truth in (np.zeros(k), change):
        noise = np.array([mechanism.release(np.zeros(k), rng) for _ in range(RUNS)]) / shrink
        x = (truth + noise) / (mechanism.sigma / shrink)
        step = change / (mechanism.sigma / shrink)
        found.append(np.sum(np.abs(x) ** p - np.abs(x - step) ** p, axis=1))
    return found[0], found[1]


CASES = [
    {"k": 20, "p": None, "epsilon": 2.0},
    {"k": 20, "p": 4.0, "epsilon": 2.0},
    {"k": 8, "p": 1.0, "epsilon": 2.0},
    {"k": 50, "p": 3.0, "epsilon": 2.0, "touched_counts": 3},
    {"k": 20, "p": 2.5, "epsilon": 2.0, "sensitivity": 5.0},
]


@pytest.mark.parametrize("case", CASES)
def test_honest_noise_stands_and_a_quarter_falls(case: dict[str, Any]) -> None:
    mechanism = GeneralizedGaussianMechanism(delta=DELTA, **case)
    change = np.zeros(mechanism.k)
    change[: mechanism.changed_counts] = mechanism.sensitivity
    honest = attack(*scores(mechanism, change, 1), mechanism.guarantee, delta=DELTA, confidence=0.9999)
    assert not honest.refuted
    assert honest.epsilon_lower >= 0.7 * honest.claimed_epsilon
    assert honest.claimed_epsilon == pytest.approx(2.0, rel=1e-4)
    broken = attack(
        *scores(mechanism, change, 2, shrink=4), mechanism.guarantee, delta=DELTA, confidence=0.9999
    )
    assert broken.refuted


def test_a_missing_factor_two_falls() -> None:
    """A record that touches 3 counts is replaced: 6 change. Noise for 3 does not keep the promise."""
    wrong = GeneralizedGaussianMechanism(
        k=50, epsilon=2.0, delta=DELTA, p=3.0, touched_counts=3, adjacency="add-remove"
    )
    change = np.zeros(50)
    change[:3], change[3:6] = 1, -1
    result = attack(*scores(wrong, change, 3), wrong.guarantee, delta=DELTA, confidence=0.9999)
    assert result.refuted


def test_sparse_vector_stands_and_a_quarter_of_its_noise_falls() -> None:
    mechanism = SparseVectorCorrection(k=20, epsilon=2.0, delta=DELTA, p=2.0, corrections=1, share=0.02)
    change = np.ones(20)
    honest = attack(*scores(mechanism, change, 4), mechanism.guarantee, delta=DELTA, confidence=0.9999)
    assert not honest.refuted
    broken = attack(
        *scores(mechanism, change, 5, shrink=4), mechanism.guarantee, delta=DELTA, confidence=0.9999
    )
    assert broken.refuted
