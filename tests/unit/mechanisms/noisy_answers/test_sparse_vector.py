"""The sparse-vector combination: joint accounting, the mechanism's steps, and the measured verdict."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplangevin.accounting import conversions as cv
from dplangevin.accounting.generalized_gaussian import (
    CorrectedNoise,
    GeneralizedGaussian,
    fisher_information,
    response_loss,
)
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Pure
from dplangevin.accounting.pld import LossSum
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mechanism import NoiseDraws
from dplangevin.mechanisms.noisy_answers.mechanism import (
    GeneralizedGaussianMechanism,
    SparseVector,
    SparseVectorCorrection,
)


def joint(k: int, share: float, hits: int, mu: float) -> CorrectedNoise:
    sigma = math.sqrt(k * fisher_information(4) / (1 - share)) / mu
    search = mu * math.sqrt(share / (hits * 1.0625))
    noise = GeneralizedGaussian(p=4, shift=1 / sigma, changed=k, answers=k)
    return CorrectedNoise(noise=noise, n_corrections=hits, search_epsilon=search, answer_epsilon=search / 4)


def test_published_joint_delta_shows_that_the_limit_is_no_certificate() -> None:
    part = joint(10_000, 0.005, 2, cv.gdp_mu(1, 1e-6))
    assert part.delta(1.0) == pytest.approx(1.0113e-6, rel=2e-4)


def test_joint_accounting_agrees_with_general_composition() -> None:
    part = joint(400, 0.2, 3, 0.5)
    loose = Guarantee(
        parts=(
            part.noise,
            Pure(value=part.search_epsilon, count=3),
            GeneralizedGaussian(p=1, shift=part.answer_epsilon, changed=1, answers=1, count=3),
        ),
        adjacency="replace-one",
        release="x",
        theorem="x",
        reference="x",
    )
    assert part.epsilon(1e-5) == pytest.approx(loose.epsilon(1e-5), rel=2e-3)


def test_randomised_response_on_the_grid_dominates() -> None:
    for epsilon in (0.013, 0.5):
        total = LossSum(response_loss(epsilon, 1e-3, 1))
        for level in (0.0, epsilon / 2, 0.99 * epsilon):
            assert total.delta(level) >= cv.pure_delta(epsilon, level) * (1 - 1e-9)
            assert total.delta(level) <= cv.pure_delta(epsilon, level) + 1.01e-3


def test_calibration_meets_the_guarantee_and_scales() -> None:
    one = SparseVectorCorrection(k=300, epsilon=1, delta=1e-6, p=3, corrections=3, budget_fraction=0.05)
    assert one.guarantee.epsilon() <= 1
    assert one.guarantee.delta(1.0) <= 1e-6
    assert one.guarantee.delta(1.0) >= 0.999e-6
    ten = SparseVectorCorrection(
        k=300, epsilon=1, delta=1e-6, p=3, corrections=3, budget_fraction=0.05, sensitivity=10
    )
    assert ten.sigma == pytest.approx(10 * one.sigma, rel=1e-4)
    assert ten.threshold == pytest.approx(10 * one.threshold, rel=1e-4)
    assert ten.search_epsilon == pytest.approx(one.search_epsilon, rel=1e-3)


class Recorded:
    """A generator that keeps the scales it was asked for."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.scales: list[float] = []

    def laplace(self, scale: float, size: int | None = None) -> object:
        self.scales.append(scale)
        return self._rng.laplace(scale=scale, size=size)

    def __getattr__(self, name: str) -> object:
        return getattr(self._rng, name)


def test_noise_drawn_is_the_noise_accounted() -> None:
    mechanism = SparseVectorCorrection(
        k=50, epsilon=4, delta=1e-3, p=2, corrections=2, budget_fraction=0.9, threshold=0.0, sensitivity=3
    )
    rng = Recorded(0)
    SparseVector().release_answers(mechanism.plan.spec, [np.zeros(50)], NoiseDraws(rng=rng))  # type: ignore[arg-type]
    search, answer = 3 / mechanism.search_epsilon, 3 / mechanism.answer_epsilon
    assert rng.scales == pytest.approx([4 * search, 2 * search, answer, 2 * search, answer])


def test_at_most_the_stated_number_of_answers_is_mended() -> None:
    mechanism = SparseVectorCorrection(
        k=200, epsilon=200, delta=1e-2, p=2, corrections=5, budget_fraction=0.9, threshold=0.0
    )
    rng = np.random.default_rng(2)
    noise = np.abs(mechanism.release(np.zeros(200), rng))
    untouched = np.abs(np.random.default_rng(3).standard_normal(195)).mean() * mechanism.sigma / math.sqrt(2)
    assert np.sort(noise)[5:].mean() == pytest.approx(untouched, rel=0.35)


@pytest.mark.slow
def test_no_gain_is_measured() -> None:
    """Verdict of the docstring at 1e4 counts, fresh seeds; three standard errors."""
    plain = GeneralizedGaussianMechanism(k=10_000, epsilon=1, delta=1e-6)
    mended = SparseVectorCorrection(k=10_000, epsilon=1, delta=1e-6, p=plain.p)
    rng = np.random.default_rng(99)
    errors = np.array([np.abs(mended.release(np.zeros(10_000), rng)).max() for _ in range(300)])
    assert errors.mean() + 3 * errors.std() / math.sqrt(300) > plain.expected_maximum_error()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"budget_fraction": 0}, "budget_fraction must be strictly between 0 and 1"),
        ({"corrections": 0}, "corrections must be a whole number"),
        ({"delta": 0}, "delta must be strictly between 0 and 1"),
        ({"threshold": -1}, "threshold must not be negative"),
        ({"p": 0.5}, "p must be between 1 and 50"),
    ],
)
def test_bad_input(change: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        SparseVectorCorrection(**({"k": 20, "epsilon": 1, "delta": 1e-6, "p": 2} | change))  # type: ignore[arg-type]


def test_wrong_counts_are_refused() -> None:
    mechanism = SparseVectorCorrection(k=20, epsilon=1, delta=1e-6, p=2)
    with pytest.raises(InvalidParameter, match=r"made for \[20\]"):
        mechanism.release(np.zeros(3), np.random.default_rng(0))
