"""Formulas of the theorems and of the runs they speak about, against values worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from _registered import THEOREMS
from dplangevin.accounting.parts import Approximate, Gaussian, Profile, RenyiCurve
from dplangevin.mechanisms.exponential import mechanism, spec as exponential_spec
from dplangevin.mechanisms.exponential.spec import ExponentialSpec
from dplangevin.mechanisms.mechanism import NoiseDraws
from dplangevin.mechanisms.moments import mechanism as sufficient_statistics
from dplangevin.mechanisms.moments.mechanism import sample_symmetric_noise
from dplangevin.mechanisms.moments.spec import SufficientStatisticsSpec
from dplangevin.mechanisms.noisy_gradient import mechanism as noisy_gradient
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import StepUnits, step_units
from dplangevin.mechanisms.noisy_gradient.theorems.hidden_state import (
    VaryingBatchRun,
    _group_multipliers,
    max_distances,
    random_distance_costs,
    worst_distance_costs,
)
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import (
    reused_permutation_mu,
    shuffle_mu,
    shuffle_restart_mu,
)
from dplangevin.mechanisms.noisy_gradient.theorems.random_batches import (
    RandomBatchRun,
    oversized_batch_probability,
)
from dplangevin.mechanisms.perturbation.spec import total_ridge
from dplangevin.mechanisms.rashomon.spec import poincare_bound
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import WholeSpace

RUN = NoisyGradientSpec(step_size=0.5, noise_std=2.0, n_steps=6)
SMOOTH = Constants(n=10, lipschitz=1.0, smoothness=1.0, strong_convexity=0.2)


def test_curves_of_parts() -> None:
    assert Gaussian(mu=2.0).rdp(np.array([3.0]))[0] == pytest.approx(6.0, rel=1e-12)
    known = RenyiCurve(orders=(2.0, 4.0), values=(0.1, 0.5))
    assert known.rdp(np.array([2.0, 2.5, 4.0, 5.0])).tolist() == [0.1, 0.5, 0.5, math.inf]
    # with probability slack anything, else randomised response
    pair = Approximate(value=1.0, slack=0.1)
    assert pair.delta(1.0) == pytest.approx(0.1)
    assert pair.delta(0.0) == pytest.approx(0.1 + 0.9 * math.tanh(0.5), rel=1e-12)
    group = Profile(epsilons=(0.0, 1.0), deltas=(0.2, 0.01)).group(2)
    assert group.delta(2.0) == pytest.approx(0.01 * (1 + math.e), rel=1e-12)
    assert group.delta(0.0) == pytest.approx(0.4, rel=1e-12)
    assert Gaussian(mu=1.0, count=3).repeat(4).count == 12


def test_an_inexact_projection_is_charged_at_every_step() -> None:
    u = step_units(replace(SMOOTH, diameter=3.0, projection_error=0.25), RUN)
    assert u.shift == pytest.approx(0.5 * 2 / 10 + 2 * 0.25, rel=1e-12)
    assert u.diameter == pytest.approx(3.5, rel=1e-12)
    assert u.noise == pytest.approx(1.0)
    assert u.contraction == pytest.approx(0.9, rel=1e-12)
    wide = step_units(replace(SMOOTH, convex=False, diameter=3.0, projection_error=0.25), RUN)
    assert wide.shift == pytest.approx(0.1 + 2 * 1.5 * 0.25, rel=1e-12)


@pytest.mark.parametrize("sampling", ["full", "cyclic"])
@pytest.mark.parametrize("steps", [6, 7])
@pytest.mark.parametrize("change", [{}, {"projection_error": 0.25, "diameter": 30.0}])
def test_a_constant_spec_written_out_costs_the_same(
    sampling: str, steps: int, change: dict[str, Any]
) -> None:
    """Closed forms for whole and begun epochs, and the minorant of all steps at every position."""
    constants = replace(SMOOTH, **change)
    batch = {} if sampling == "full" else {"batch_size": 5, "sampling": "cyclic"}
    short = replace(RUN, n_steps=steps, **batch)  # type: ignore[arg-type]
    long = replace(short, noise_std=(2.0,) * steps)
    theorem = THEOREMS["optimal-shift" if sampling == "full" else "cyclic-shift"]
    assert theorem.certify(constants, long).mu == pytest.approx(
        theorem.certify(constants, short).mu, rel=1e-7
    )


def test_sampled_composition() -> None:
    for sampling, adjacency, sensitivity in (
        ("without-replacement", "replace-one", 2.0),
        ("poisson", "add-remove", 1.0),
    ):
        constants = Constants(n=10, lipschitz=1.0, adjacency=adjacency)  # type: ignore[arg-type]
        run = replace(RUN, sampling=sampling, batch_size=4)  # type: ignore[arg-type]
        (part,) = THEOREMS["composition"].certify(constants, run).parts
        assert part.rate == pytest.approx(0.4)  # type: ignore[attr-defined]
        assert part.noise_multiplier == pytest.approx(4 * 2.0 / sensitivity, rel=1e-8)  # type: ignore[attr-defined]
        assert part.count == 6


def test_shuffled_epochs() -> None:
    """s = v = 1, l = 4: (E + 1)/l + 1/(r + 1); two epochs from D = 2: 1/4 + 4/4 + 4/4 + 1; reused: (E - 1)/l + 1."""
    u = StepUnits(shift=1.0, noise=1.0, contraction=1.0, diameter=2.0)
    assert shuffle_mu(u, 4, 3, 0) == pytest.approx(math.sqrt(2.0), rel=1e-12)
    assert shuffle_mu(u, 4, 3, 1) == pytest.approx(math.sqrt(1.5), rel=1e-12)
    assert shuffle_mu(u, 4, 1, 1) == pytest.approx(math.sqrt(0.5), rel=1e-12)
    assert shuffle_restart_mu(u, 4, 2) == pytest.approx(math.sqrt(3.25), rel=1e-12)
    assert reused_permutation_mu(u, 4, 3, 4) == pytest.approx(math.sqrt(1.5), rel=1e-12)
    assert reused_permutation_mu(u, 4, 3, 1) == pytest.approx(math.sqrt(0.75), rel=1e-12)


def test_random_batch_numbers() -> None:
    run = RandomBatchRun(
        sampling="poisson", rate=0.5, noise_multiplier=2.0, shift=1.0, noise=1.0, contraction=0.5, diameter=1.8,
        n_steps=9,
    )  # fmt: skip
    assert run.max_distance(np.array([1.0, 2.0, 9.0])).tolist() == pytest.approx([1.0, 1.5, 1.8])
    assert float(run.leverage(2.0)) == pytest.approx(0.0625 / 1.25, rel=1e-12)  # c^4 / (1 + c^2)
    flat = replace(run, contraction=1.0)
    assert flat.max_distance(np.array([1.0, 2.0])).tolist() == pytest.approx([1.0, 1.8])
    assert float(flat.leverage(4.0)) == pytest.approx(0.25)
    # Pr[Bin(3, 1/2) >= 2] = 1/2, Pr[Bin(3, 1/2) >= 3] = 1/8
    assert oversized_batch_probability(4, 0.5, 2.7) == pytest.approx(0.5, rel=1e-6)
    assert oversized_batch_probability(4, 0.5, 3.0) == pytest.approx(0.125, rel=1e-6)
    assert oversized_batch_probability(4, 0.5, 4.0) == 0.0


def test_sensitivities_of_scores() -> None:
    """Delta = 2 / 10, M = 2."""
    constants = Constants(n=10, lipschitz=1.0, smoothness=2.0, strong_convexity=0.5, diameter=4.0)
    assert exponential_spec.threshold_sensitivity(constants, 0.25, 50.0, True) == pytest.approx(
        1.2, rel=1e-12
    )
    assert exponential_spec.threshold_sensitivity(constants, 0.25, 50.0, False) == pytest.approx(50.0)
    assert exponential_spec.ramp_sensitivity(constants, 0.5, 3.0, 0.1) == pytest.approx(
        0.2 + 3 * (0.8 + 0.1) / 0.5, rel=1e-12
    )
    (part,) = exponential_spec.log_sobolev_guarantee(constants, 3.0, 0.5, 2.0).parts
    assert part.rho == pytest.approx(1.5**2 / 4, rel=1e-8)  # type: ignore[attr-defined]
    assert exponential_spec.gibbs_guarantee(constants, 8.0).mu == pytest.approx(0.2 * 4, rel=1e-8)
    assert total_ridge(constants) == pytest.approx(5.0, rel=1e-12)
    # Holley and Stroock: exp(beta plateau) / (beta m), or diameter^2 / pi^2
    assert poincare_bound(replace(constants, diameter=100.0), 2.0, 0.25) == pytest.approx(
        math.exp(0.5), rel=1e-9
    )
    assert poincare_bound(constants, 2.0, 20.0) == pytest.approx(16 / math.pi**2, rel=1e-9)


def test_batches_have_the_accounted_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 rows of a public n = 100: a batch of expected size 20 takes each row with probability 0.2, not 0.4."""
    rates: list[float] = []
    monkeypatch.setattr(noisy_gradient, "sample_poisson_rows", lambda n_rows, rate, rng: rates.append(rate))
    spec = replace(RUN, sampling="poisson", batch_size=20)
    next(noisy_gradient.sample_batches(spec, 50, 20, 100, np.random.default_rng(0)))
    assert rates == [0.2]
    for sampling, fresh in (("shuffle", True), ("cyclic", False)):
        kept = replace(RUN, sampling=sampling, batch_size=2)  # type: ignore[arg-type]
        batches = list(islice(noisy_gradient.sample_batches(kept, 40, 2, 40, np.random.default_rng(0)), 40))
        first, second = np.concatenate(batches[:20]), np.concatenate(batches[20:])  # type: ignore[arg-type]
        assert sorted(first) == sorted(second) == list(range(40))
        assert (first.tolist() != second.tolist()) == fresh


def test_nothing_after_the_last_checkpoint_is_released() -> None:
    spec = replace(RUN, release="checkpoints", checkpoints=(2, 4))
    value, iterates = noisy_gradient.run_descent(
        spec,
        6,
        np.zeros(1),
        np.ones(6),
        lambda t, point: np.full(1, -1.0),
        lambda theta: np.minimum(theta, 3.5),
    )
    assert value.tolist() == [3.5]
    assert {step: theta.tolist() for step, theta in iterates.items()} == {2: [2.0], 4: [3.5]}
    value, _ = noisy_gradient.run_descent(
        spec, 6, np.zeros(1), np.ones(6), lambda t, point: np.full(1, -1.0), lambda theta: theta
    )
    assert value.tolist() == [4.0]


def test_symmetric_noise_is_isotropic_in_the_frobenius_norm() -> None:
    """Diagonal entries have variance 1, others 1/2; 40,000 draws, deviations of 7 standard errors."""
    rng = np.random.default_rng(0)
    draws = np.array([sample_symmetric_noise(2, rng) for _ in range(40_000)])
    spread = 7 * math.sqrt(2 / 40_000)
    assert float(np.var(draws[:, 0, 0])) == pytest.approx(1.0, abs=spread)
    assert float(np.var(draws[:, 0, 1])) == pytest.approx(0.5, abs=spread / 2)


def test_moments_get_the_noise_that_is_accounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """(G + 2 S)^-1 (c + 0.5 z) with the noise drawn in this order; the floor and the ridge do nothing here."""
    gram, cross = np.array([[50.0, 1.0], [1.0, 40.0]]), np.array([3.0, -2.0])
    monkeypatch.setattr(sufficient_statistics, "second_moments", lambda data: (gram, cross))
    spec = SufficientStatisticsSpec(gram_noise_std=2.0, cross_noise_std=0.5, eigenvalue_floor=1e-3)
    data = SimpleNamespace(problem=SimpleNamespace(n=10, ridge=0.0, constraint=WholeSpace()))
    found = sufficient_statistics._solve_noisy_moments(
        spec,
        data,  # type: ignore[arg-type]
        NoiseDraws(rng=np.random.default_rng(4)),
    )
    rng = np.random.default_rng(4)
    noisy = gram + 2.0 * sample_symmetric_noise(2, rng)
    np.testing.assert_allclose(found, np.linalg.solve(noisy, cross + 0.5 * rng.standard_normal(2)), rtol=1e-9)


def test_a_pure_chain_pays_for_its_density_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exponential_spec, "chain_sup_norm", lambda constants, spec: 0.5)
    constants = Constants(n=10, lipschitz=1.0, diameter=1.0)
    spec = ExponentialSpec(inverse_temperature=5.0, tier="pure", step_size=0.1, n_steps=9)
    spent = exponential_spec.ExponentialMechanismTheorem().certify(constants, spec).epsilon(0.0)
    assert spent == pytest.approx(5.0 * 0.2 + math.log(1.5 / 0.5), rel=1e-6)


def test_exact_draws_of_a_quadratic(monkeypatch: pytest.MonkeyPatch) -> None:
    """exp(-beta F) with F = <theta, G theta> / (2n) - <c, theta> / n + ridge |theta|^2 / 2."""
    asked: list[Any] = []
    monkeypatch.setattr(
        mechanism, "second_moments", lambda data: (np.diag([20.0, 40.0]), np.array([6.0, 3.0]))
    )
    monkeypatch.setattr(
        mechanism, "sample_quadratic_gaussian", lambda mean, matrix, *rest: asked.append((mean, matrix))
    )
    potential = SimpleNamespace(
        problem=SimpleNamespace(n=10, ridge=1.0, dimension=2), data=None, inverse_temperature=7.0
    )
    mechanism._sample_gaussian(potential, None, 1, np.random.default_rng(0))  # type: ignore[arg-type]
    np.testing.assert_allclose(asked[0][1], 7.0 * np.diag([3.0, 5.0]))
    np.testing.assert_allclose(asked[0][0], [0.2, 0.06])


def test_varying_random_batches() -> None:
    """q = 1: a step costs alpha / (2 nm^2). After a loud first step, restarting one step before the end is best.

    D_1 = 1, v_2 = 2, nm_2 = 2: alpha / 2 (1/4 / (1 - rho) + 1/4 / rho), rho = 1 / (1 + e^0.35) the nearest on offer.
    """
    run = VaryingBatchRun(
        sampling="poisson", rate=1.0, shifts=np.ones(2), noises=np.array([0.1, 2.0]), contractions=np.ones(2),
        multipliers=np.array([0.1, 2.0]), multiplier_index=np.array([0, 1]), diameter=math.inf,
        oversized_probability=0.0,
    )  # fmt: skip
    share = 1 / (1 + math.exp(0.35))
    assert worst_distance_costs(run, np.array([2.0]))[0] == pytest.approx(
        0.25 / (1 - share) + 0.25 / share, rel=1e-6
    )
    # four halving steps: the distance before the last is 1/4 + 1/2 + 1, in both bounds
    halving = replace(
        run, shifts=np.ones(4), noises=np.array([0.1, 0.1, 0.1, 2.0]), contractions=np.full(4, 0.5),
        multiplier_index=np.array([0, 0, 0, 1]),
    )  # fmt: skip
    assert max_distances(halving) == pytest.approx([0, 1, 1.5, 1.75, 1.875])
    assert random_distance_costs(halving, np.array([2.0]))[0] == pytest.approx(
        worst_distance_costs(halving, np.array([2.0]))[0], rel=1e-3
    )


def test_many_noises_are_rounded_down_to_a_few() -> None:
    multipliers = np.linspace(1.0, 2.0, 40)
    kinds, place = _group_multipliers(multipliers)
    assert len(kinds) == 16
    assert np.all(kinds[place] < multipliers)
    assert np.all(kinds[place] > multipliers / 1.06)


def test_composed_noises_that_vary() -> None:
    """Delta / n = 0.2 over noises 1 and 2: 0.2 sqrt(1 + 1/4)."""
    run = replace(RUN, noise_std=(1.0, 2.0), n_steps=2)
    assert THEOREMS["composition"].certify(SMOOTH, run).mu == pytest.approx(0.2 * math.sqrt(1.25), rel=1e-8)
