"""Constants of privacy-critical code against values worked out by hand, where inequalities would let them drift."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest

from _registered import THEOREMS
from dplangevin.accounting import conversions as cv, proximal_certificate as chain
from dplangevin.accounting.compose import gaussian_mu
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import BoundedRange, Concentrated, Gaussian, Pure
from dplangevin.accounting.plan import round_up
from dplangevin.errors import DplangevinError
from dplangevin.mechanisms.exponential import mechanism as exponential
from dplangevin.mechanisms.exponential.spec import ExponentialSpec, IteratedExponentialSpec
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.perturbation import mechanism as objective_perturbation
from dplangevin.mechanisms.perturbation.mechanism import sample_perturbation
from dplangevin.mechanisms.perturbation.spec import ObjectivePerturbationSpec, corner_profile
from dplangevin.mechanisms.rashomon import mechanism as rashomon
from dplangevin.mechanisms.rashomon.spec import (
    RashomonDrawsTheorem,
    RashomonSpec,
    minimum_error,
    sampler_error,
    start_scale,
)
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import Ball, WholeSpace


def hockey_stick(mu: float, eps: float) -> float:
    with mpmath.workdps(30):
        m = mpmath.mpf(mu)
        return float(mpmath.ncdf(m / 2 - eps / m) - mpmath.exp(eps) * mpmath.ncdf(-m / 2 - eps / m))


def make_guarantee(**values: Any) -> Guarantee:
    plain = {"adjacency": "replace-one", "release": "draw", "theorem": "by hand", "reference": "by hand"}
    return Guarantee(**(plain | values))


def batches(**values: Any) -> NoisyGradientSpec:
    return NoisyGradientSpec(**({"step_size": 0.1, "batch_size": 2} | values))


def test_groups() -> None:
    assert Concentrated(rho=0.1).group(3).rho == pytest.approx(0.9, rel=1e-12)  # type: ignore[attr-defined]
    assert Gaussian(mu=0.1).group(3).mu == pytest.approx(0.3, rel=1e-12)  # type: ignore[attr-defined]
    assert Pure(value=0.1).group(3).pure_epsilon() == pytest.approx(0.3, rel=1e-12)
    assert BoundedRange(value=0.1).group(3).pure_epsilon() == pytest.approx(0.3, rel=1e-12)


def test_bounded_range_is_an_eighth_of_the_square() -> None:
    assert BoundedRange(value=1.0).rdp(np.array([2.0]))[0] == pytest.approx(2 / 8, rel=1e-12)
    assert BoundedRange(value=2.0).rdp(np.array([3.0]))[0] == pytest.approx(3 * 4 / 8, rel=1e-12)


def test_conversions() -> None:
    # Renyi at order 2, value 1: log delta = (1 - eps + log 1/2) - log 2
    assert cv.rdp_delta([2.0], [1.0], 3.0) == pytest.approx(math.exp(1 - 3) / 4, rel=1e-12)
    assert cv.rdp_epsilon([2.0], [1.0], 1e-3) == pytest.approx(1 + math.log(1e3) - math.log(4), rel=1e-12)
    assert cv.pure_delta(1.0, 0.0) == pytest.approx((math.e - 1) / (math.e + 1), rel=1e-12)
    assert cv.bounded_range_delta(1.0, 0.0) == pytest.approx(
        (1 - math.exp(-0.5)) ** 2 / (1 - math.exp(-1)), rel=1e-12
    )


def test_adding_guarantees_adds_their_extra_deltas() -> None:
    total = make_guarantee(parts=(Pure(value=0.1),), extra_delta=0.01) + make_guarantee(
        parts=(Pure(value=0.2),), extra_delta=0.02
    )
    assert total.extra_delta == pytest.approx(0.03, rel=1e-12)
    assert total.epsilon(0.03) < math.inf
    assert total.epsilon(0.0299) == math.inf
    assert total.delta(1.0) == pytest.approx(0.03, rel=1e-12)
    assert (3 * make_guarantee(parts=(Pure(value=0.1),), extra_delta=0.01)).extra_delta == pytest.approx(0.03)


def test_participations_of_plain_composition() -> None:
    """n = 4, b = 2: Delta / (b sigma) = 1 / sigma; three steps are begun epochs, two of them."""
    constants = Constants(n=4, lipschitz=1.0)
    for sampling in ("cyclic", "shuffle"):
        run = batches(noise_std=4.0, n_steps=3, sampling=sampling)
        assert THEOREMS["composition"].certify(constants, run).mu == pytest.approx(math.sqrt(2) / 4, rel=1e-8)
    quiet = {"noise_std": (1.0, 2.0, 4.0, 1.0), "n_steps": 4}
    # shuffled: the worst place of each epoch, 1 + 1; cyclic: the worst of the two places, 1/4 + 1
    shuffled = THEOREMS["composition"].certify(constants, batches(sampling="shuffle", **quiet))
    assert shuffled.mu == pytest.approx(math.sqrt(2), rel=1e-8)
    cyclic = THEOREMS["composition"].certify(constants, batches(sampling="cyclic", **quiet))
    assert cyclic.mu == pytest.approx(math.sqrt(1.25), rel=1e-8)


def test_corners_of_objective_perturbation() -> None:
    at = np.array([5.0])
    one = hockey_stick(1.0, 5.0)
    for rank, adjacency, factor in ((2, "replace-one", 9), (3, "replace-one", 16), (2, "add-remove", 3)):
        constants = Constants(n=10, lipschitz=1.0, adjacency=adjacency, hessian_rank=rank)  # type: ignore[arg-type]
        assert corner_profile(constants, 1.0, 0.0, at)[0] == pytest.approx(factor * one, rel=1e-6)
    parallelogram = Constants(n=10, lipschitz=1.0, hessian_rank=1)
    beside = 2 * one + 2 * hockey_stick(0.25, 5.0)
    assert corner_profile(parallelogram, 1.0, 0.0, at)[0] == pytest.approx(beside, rel=1e-6)


def test_lens_of_the_next_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage i + 1 is drawn within the stated radius of stage i: the accounted diameter is twice that radius."""
    supports: list[Any] = []

    def fake(stage: object, data: object, rng: object, *, support: Any = None) -> np.ndarray:
        supports.append(support)
        return np.array([[0.25], [0.0]])

    monkeypatch.setattr(exponential, "sample_gibbs", fake)
    stage = ExponentialSpec(inverse_temperature=10.0)
    spec = IteratedExponentialSpec(draws=(stage,) * 3, radii=(0.3, 0.2))
    data = SimpleNamespace(problem=SimpleNamespace(constraint=Ball(1.0), dimension=2))
    run = SimpleNamespace(spec=spec, data=data, rng=np.random.default_rng(0))
    exponential.IteratedExponentialMechanism().execute(run)  # type: ignore[arg-type]
    assert supports[0] is None
    assert [(support.outer, support.inner) for support in supports[1:]] == [(1.0, 0.3), (1.0, 0.2)]
    assert [support.center.tolist() for support in supports[1:]] == [[0.25, 0.0]] * 2
    assert spec.diameters(2.0) == (2.0, 0.6, 0.4)


RASHOMON = RashomonSpec(
    n_models=3, threshold=0.05, inverse_temperature=20.0, tolerance=1e-6, max_excess=2.1, tier="certified",
    step_size=0.1, n_steps=2000,
)  # fmt: skip
BODY = Constants(
    n=1000, lipschitz=1.0, smoothness=0.3, strong_convexity=0.05, diameter=2.0, dimension=2, hessian_rank=1
)


def test_rashomon_counts_every_draw_and_its_minimum() -> None:
    assert minimum_error(
        Constants(n=10, lipschitz=1.0, strong_convexity=0.5, smoothness=1.0), 1e-3
    ) == pytest.approx(1e-6 / (2 * 10 * 5), rel=1e-9)
    short = replace(RASHOMON, n_steps=60)
    tau = sampler_error(BODY, short)
    assert 1e-6 < tau < 1e-3
    # three draws of range beta Delta D / n each: (1 + e^eps) 3 tau, at most at the eps of all three together
    together = 3 * 20.0 * (2.0 / 1000) * 2.0
    spent = RashomonDrawsTheorem().certify(BODY, short).delta(1.0)
    assert 2 * 3 * tau < spent <= (1 + math.exp(together)) * 3 * tau * (1 + 1e-6)


def test_chains_start_where_their_certificate_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The set shrunk by s towards the minimiser, not the minimiser."""
    centre, uniform = np.array([0.5, 0.0]), np.array([[0.1, -0.4, 0.3], [0.2, 0.6, -0.9]])
    support = SimpleNamespace(sample_uniform=lambda size, rng: uniform, project=lambda theta: theta)
    monkeypatch.setattr(rashomon, "_make_score", lambda data, beta, spec: (None, centre))
    monkeypatch.setattr(rashomon, "support_of", lambda constraint, dimension: support)
    monkeypatch.setattr(rashomon, "run_score_chain", lambda score, support, start, *rest: start)
    data = SimpleNamespace(problem=SimpleNamespace(constraint=None, dimension=2))
    found = rashomon._sample_draws(RASHOMON, data, np.random.default_rng(0))  # type: ignore[arg-type]
    s = start_scale(2, 20.0, 0.05, 2.1)
    assert s == pytest.approx(0.1 / 2.1, rel=1e-12)  # max(psi, p / beta) / excess
    np.testing.assert_allclose(found, (1 - s) * centre[:, None] + s * uniform, rtol=1e-12)


def test_start_of_the_proximal_chain() -> None:
    """(p / 2) log(M / m) where the set is wide, and s^2 = p / (D^2 M), extra p / 2, where it is not."""
    assert chain.warm_start_ratio(1950.0, 75.0, 20, 2.0) == pytest.approx(10 * math.log(26), rel=1e-9)
    flat = 10 * math.log(1875 / 5) + 5 * 4 / 2
    assert chain.warm_start_ratio(1875.0, 0.0, 20, 2.0) == pytest.approx(flat, rel=1e-9)


def test_steps_of_the_proximal_chain() -> None:
    """step_size = C = 1 halves chi every step; the first step of the sup norm smooths by e^(D^2 / 2)."""
    log_chi = chain.log_chi(2.0)
    assert log_chi == pytest.approx(0.5 * math.log(math.exp(2.0) - 1), rel=1e-9)
    assert chain.total_variation_after(3, 2.0, 1.0, 1.0) == pytest.approx(math.exp(log_chi) / 16, rel=1e-9)
    assert chain.sup_norm_after(3, 2.0, 1.0, 1.0, 1.0) == pytest.approx(math.exp(0.5 + log_chi) / 4, rel=1e-9)
    assert chain.sup_norm_after(1, 2.0, 1.0, 1.0, 1.0) == pytest.approx(math.exp(0.5 + log_chi), rel=1e-9)


def test_objective_perturbation_blurs_what_it_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    tilts: list[np.ndarray] = []

    def solver(objective: Any, *rest: object) -> np.ndarray:
        tilts.append(objective.tilt)
        return np.array([1.0, 2.0])

    monkeypatch.setattr(objective_perturbation, "minimize_certified", solver)
    monkeypatch.setattr(objective_perturbation, "TiltedObjective", SimpleNamespace)
    spec = ObjectivePerturbationSpec(density_scale=3.0, tolerance=1e-6, release_density_scale=0.5)
    data = SimpleNamespace(problem=SimpleNamespace(dimension=2, n=10, ridge=0.1, constraint=WholeSpace()))
    run = SimpleNamespace(spec=spec, data=data, rng=np.random.default_rng(3))
    found = objective_perturbation.ObjectivePerturbation().execute(run).value  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    tilt, blur = sample_perturbation("gamma", 2, 3.0, rng), sample_perturbation("gamma", 2, 0.5, rng)
    np.testing.assert_allclose(tilts[0], tilt)
    np.testing.assert_allclose(found, np.array([1.0, 2.0]) + blur)
    assert np.linalg.norm(blur) > 0


def test_rounding_and_noise_scales() -> None:
    assert round_up(math.nan) == math.inf
    assert round_up(math.inf) == math.inf
    assert 1 < round_up(1.0) < 1 + 2e-9
    z = np.random.default_rng(1).standard_normal(3)
    np.testing.assert_allclose(sample_perturbation("gaussian", 3, 2.0, np.random.default_rng(1)), 2.0 * z)
    # the norm of the other kind is Gamma(dimension) times the scale: mean 3 * 2, 4,000 draws, 7 standard errors
    rng = np.random.default_rng(2)
    norms = [float(np.linalg.norm(sample_perturbation("gamma", 3, 2.0, rng))) for _ in range(4000)]
    assert float(np.mean(norms)) == pytest.approx(6.0, abs=7 * 2 * math.sqrt(3 / 4000))


def test_guarantees_to_different_neighbours_do_not_add() -> None:
    with pytest.raises(DplangevinError):
        make_guarantee(parts=(Pure(value=0.1),)) + make_guarantee(
            parts=(Pure(value=0.1),), adjacency="add-remove"
        )


def test_gaussian_parts_add_in_squares_as_often_as_they_were_used() -> None:
    """Four uses of mu = 1/2 are mu = 1; three of 0.2 and one of 0.4 are sqrt(3 * 0.04 + 0.16)."""
    assert gaussian_mu((Gaussian(mu=0.5, count=4),)) == pytest.approx(1.0, rel=1e-14)
    mixed = (Gaussian(mu=0.2, count=3), Gaussian(mu=0.4))
    assert gaussian_mu(mixed) == pytest.approx(math.sqrt(0.28), rel=1e-14)
