"""Poisson batches under replace-one: the proved curve against exact mixtures in one and two dimensions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from dplangevin.accounting.parts import OppositeMixtures, SampledGaussian
from dplangevin.errors import AssumptionFailed
from dplangevin.mechanisms.account import account
from dplangevin.mechanisms.noisy_gradient.lower_bounds import lower_bound_epsilon
from dplangevin.mechanisms.noisy_gradient.spec import parse_descent_options

RUN: dict[str, Any] = {
    "n": 1000, "lipschitz": 1.0, "step_size": 0.1, "batch_size": 50, "sampling": "poisson", "delta": 1e-5,
}  # fmt: skip


def test_it_is_accounted_by_two_opposite_records() -> None:
    g = account(**RUN, noise_std=0.1, n_steps=20)
    assert (g.adjacency, g.theorem, g.origin.kind) == ("replace-one", "opposite-records", "proved here")
    (part,) = g.parts
    assert isinstance(part, OppositeMixtures)
    assert (part.rate, part.count) == (0.05, 20)
    assert part.noise_multiplier == pytest.approx(50 * 0.1, rel=1e-8)
    assert part.noise_multiplier < 50 * 0.1
    assert g.epsilon() > account(**RUN, noise_std=0.1, n_steps=20, adjacency="add-remove").epsilon()


def test_plain_composition_has_twice_the_reach() -> None:
    g = account(**RUN, noise_std=0.1, n_steps=20, theorem="composition")
    (part,) = g.parts
    assert isinstance(part, SampledGaussian)
    assert (part.rate, part.sampling, part.count) == (0.05, "without-replacement", 20)
    assert part.noise_multiplier == pytest.approx(50 * 0.1 / 2, rel=1e-8)
    assert g.epsilon() > account(**RUN, noise_std=0.1, n_steps=20).epsilon()


def test_each_noise_is_counted() -> None:
    g = account(**RUN, noise_std=(0.1, 0.2, 0.1), n_steps=3, theorem="opposite-records")
    assert sorted((round(part.noise_multiplier, 6), part.count) for part in g.parts) == [(5.0, 2), (10.0, 1)]  # type: ignore[attr-defined]


def test_hidden_state_bounds_are_refused() -> None:
    for name in ("hidden-state-sgd", "every-step-shift", "participation-start", "block-sgd"):
        with pytest.raises(AssumptionFailed, match="add-remove"):
            account(**RUN, noise_std=0.1, n_steps=20, smoothness=0.25, diameter=2.0, theorem=name)


def exact_delta(rate: float, deviation: float, first: complex, second: complex, epsilon: float) -> float:
    """H between (1-q) N0 + q N(first) and (1-q) N0 + q N(second) in the plane, by quadrature on a fine grid."""
    axis = np.linspace(-9 * deviation - 1, 9 * deviation + 1, 301)
    x, y = np.meshgrid(axis, axis)

    def density(centre: complex) -> np.ndarray:
        return norm.pdf(x, centre.real, deviation) * norm.pdf(y, centre.imag, deviation)

    common = (1 - rate) * density(0j)
    gap = common + rate * density(first) - math.exp(epsilon) * (common + rate * density(second))
    return float(np.sum(np.maximum(gap, 0)) * (axis[1] - axis[0]) ** 2)


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("deviation", [0.6, 2.0])
def test_no_pair_of_records_exceeds_the_curve(rate: float, deviation: float) -> None:
    """Gradients in the unit disc, opposite, at angles, one of them zero; the opposite pair attains it."""
    part = OppositeMixtures(rate=rate, noise_multiplier=deviation)
    older = SampledGaussian(rate=rate, noise_multiplier=deviation / 2, sampling="without-replacement")
    pairs = [
        (1, np.exp(2j * math.pi / 3)),
        (1, 1j),
        (1, 0),
        (0, 1),
        (1, 0.5),
        (0.5, 1),
        (1, np.exp(3j)),
        (0.9, -1),
    ]
    for epsilon in (0.0, 0.2, 1.0):
        bound = part.delta(epsilon)
        assert bound <= older.delta(epsilon)
        assert exact_delta(rate, deviation, 1, -1, epsilon) == pytest.approx(bound, rel=2e-3, abs=1e-5)
        for first, second in pairs:
            found = exact_delta(rate, deviation, complex(first), complex(second), epsilon)
            assert found <= bound * (1 + 1e-3) + 1e-7  # of the quadrature


# dp-accounting 0.6.0, pld/privacy_loss_mechanism_test.py, test_gaussian_get_delta_for_epsilon, REPLACE adjacency:
# (deviation, sensitivity, rate, eps, delta): the opposite pair
REPLACE = [
    (2.0, 1.0, 0.8, 1.0, 0.05808665654484252), (3.0, 2.0, 0.8, 1.0, 0.13711260900644096),
    (2.0, 3.0, 0.7, 1.0, 0.4013057526509164), (3.0, 6.0, 0.4, 1.0, 0.20752885274183325),
    (2.0, 1.0, 0.3, 2.0, 2.4770380148941894e-09),
]  # fmt: skip


@pytest.mark.parametrize(("deviation", "sensitivity", "rate", "epsilon", "delta"), REPLACE)
def test_their_pair(deviation: float, sensitivity: float, rate: float, epsilon: float, delta: float) -> None:
    part = OppositeMixtures(rate=rate, noise_multiplier=deviation / sensitivity)
    assert part.delta(epsilon) == pytest.approx(delta, rel=1e-7)
    assert part.delta(epsilon) >= delta


def test_their_composition() -> None:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld

    theirs = pld.from_gaussian_mechanism(
        4.0, sampling_prob=0.05, neighboring_relation=NeighboringRelation.REPLACE_ONE
    ).self_compose(200)
    ours = account(**RUN, noise_std=4.0 / 50, n_steps=200, theorem="opposite-records").epsilon()
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(1e-5), rel=1e-6)
    assert ours == pytest.approx(1.35559, abs=1e-5)


def test_a_smaller_pairwise_sensitivity_does_not_shrink_the_reach() -> None:
    """All gradients close to one long vector: their difference is small, but being in the batch is not."""
    from dplangevin.accounting.plan import certify_plan
    from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
    from dplangevin.problem.constants import Constants

    spec = NoisyGradientSpec(step_size=0.1, noise_std=0.1, n_steps=1, batch_size=50, sampling="poisson")
    constants = Constants(n=1000, lipschitz=1.0, gradient_sensitivity=0.01)
    (part,) = certify_plan(constants, spec, delta=1e-5, theorem="composition").parts
    assert isinstance(part, SampledGaussian)
    assert part.noise_multiplier == pytest.approx(5.0, rel=1e-8)
    assert (
        certify_plan(constants, spec, delta=1e-5).theorem == "composition"
    )  # sharper than two opposite records


@pytest.mark.parametrize("steps", [1, 20])
@pytest.mark.parametrize("diameter", [math.inf, 1e3])
def test_two_opposite_records_leak_nearly_as_much(steps: int, diameter: float) -> None:
    """One step: the pair itself, so the bound is attained. More: the last iterate alone tells a little less."""
    run: dict[str, Any] = {**RUN, "noise_std": 1.0 / 50, "smoothness": 1.0, "diameter": diameter}
    delta = run.pop("delta")
    lower = lower_bound_epsilon(*parse_descent_options(**run, n_steps=steps), delta)
    upper = account(**run, n_steps=steps, delta=delta, theorem="opposite-records").epsilon()
    assert lower is not None
    assert (0.999 if steps == 1 else 0.8) * upper <= lower <= upper


def test_the_free_walk_by_hand() -> None:
    """Two steps, rate 1/2, jumps of one deviation of a step either way: a mixture of three normal laws, half lines."""
    run: dict[str, Any] = {
        "n": 10, "lipschitz": 1.0, "smoothness": 1.0, "step_size": 1.0, "batch_size": 5, "sampling": "poisson",
        "noise_std": 0.2, "n_steps": 2,
    }  # fmt: skip
    cuts, root = np.linspace(-6, 8, 40_001), math.sqrt(2)
    first, second = (
        sum(p * norm.sf(cuts, sign * k, root) for k, p in enumerate((0.25, 0.5, 0.25))) for sign in (1, -1)
    )
    exact = math.log(np.max((first - 0.01) / second))
    assert lower_bound_epsilon(*parse_descent_options(**run), 0.01) == pytest.approx(exact, rel=1e-3)
