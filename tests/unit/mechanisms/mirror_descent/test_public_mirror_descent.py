"""Mirror descent with public data: identities, the mirror step, the price, bad input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.accounting.plan import CertifiedSpec, Plan
from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.mirror_descent.mechanism import PublicMirrorDescent
from dplangevin.mechanisms.mirror_descent.mirror_map import (
    LossMap,
    MirrorMap,
    PublicSample,
    QuadraticMap,
    public_mirror_map,
)
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec, calibrate_mirror_noise
from dplangevin.mechanisms.noisy_gradient.mechanism import NoisyGradientDescent
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem import (
    Ball,
    Box,
    Clipped,
    Constants,
    ConstraintSet,
    DataBounds,
    Logistic,
    Loss,
    Poisson,
    Problem,
    Softmax,
    Squared,
    WholeSpace,
)

RNG = np.random.default_rng(5)
X, Y = RNG.uniform(-1, 1, (200, 3)), RNG.integers(0, 2, 200).astype(float)
SETS: dict[str, ConstraintSet] = {"space": WholeSpace(), "ball": Ball(0.7), "box": Box(-0.4, 0.3)}
LOSSES: dict[str, tuple[Loss, dict[str, Any]]] = {
    "logistic": (Clipped(Logistic(), 0.5), {"classes": 2}),
    "squared": (Clipped(Squared(), 0.5), {"target": (0.0, 1.0)}),
    "softmax": (Softmax(n_classes=2), {"classes": 2}),
    "poisson": (Clipped(Poisson(target_bound=1.0), 1.0), {"target": (0.0, 1.0)}),
}


def problem(loss: str = "squared", constraint: str = "space", **changes: Any) -> Problem:
    chosen, bounds = LOSSES[loss]
    options: dict[str, Any] = {
        "loss": chosen, "bounds": DataBounds(data_norm=2.0, **bounds), "n": 200, "n_features": 3,
        "constraint": SETS[constraint],
    }  # fmt: skip
    return Problem(**(options | changes))


def make_spec(**changes: Any) -> PublicMirrorSpec:
    return PublicMirrorSpec(**({"step_size": 0.5, "noise_std": 0.2, "n_steps": 7} | changes))


def released(mirror: MirrorMap, of: Problem, chosen: PublicMirrorSpec, seed: int = 3) -> np.ndarray:
    plan = Plan(problem=of, spec=chosen, delta=1e-5)
    return PublicMirrorDescent(mirror).run(plan, ArrayDataset(X, Y, of), seed).value


@pytest.mark.parametrize("constraint", SETS)
@pytest.mark.parametrize("release", ["last-iterate", "average"])
def test_the_half_square_is_noisy_gradient_descent_step_for_step(constraint: str, release: Any) -> None:
    of = problem("squared", constraint, ridge=0.1)
    sizes = tuple(0.1 * (t + 1) for t in range(7))
    identity = QuadraticMap(np.eye(4), start=np.zeros(4), constraint=of.constraint)
    mirrored = released(identity, of, make_spec(step_size=sizes, release=release))
    plain = NoisyGradientSpec(step_size=sizes, noise_std=0.2, n_steps=7, release=release)
    plan = Plan(problem=of, spec=plain, delta=1e-5, theorem="composition")
    expected = NoisyGradientDescent().run(plan, ArrayDataset(X, Y, of), 3).value
    assert np.allclose(mirrored, expected, rtol=0, atol=1e-12)
    assert np.array_equal(
        released(identity, of, make_spec(step_size=sizes, release=release, mode="gradient")), expected
    )


def test_effective_noise_of_theorem_81() -> None:
    """E |<theta_noisy - theta_clean, v>| = eta sigma sqrt(2/pi sum (a_i / lambda_i)^2), to 1% (400000 draws: 5 sd)."""
    values, (vectors, _) = np.array([0.2, 1.0, 3.0]), np.linalg.qr(RNG.standard_normal((3, 3)))
    mirror = QuadraticMap((vectors * values) @ vectors.T, start=np.zeros(3))
    direction = np.array([0.6, 0.64, 0.48])
    eta, sigma = 0.7, 0.3
    noise = sigma * np.random.default_rng(0).standard_normal((3, 400_000))
    base = np.repeat(RNG.standard_normal((3, 1)), noise.shape[1], axis=1)
    moved = mirror.step(base, eta * noise) - base
    shares = vectors.T @ direction
    expected = eta * sigma * math.sqrt(2 / math.pi * float(np.sum((shares / values) ** 2)))
    assert np.mean(np.abs(direction @ moved)) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, 1.7338409e-4), ({"adjacency": "add-remove"}, 1.7338409e-4 / 2)],
)
def test_noise_vector_33(changes: dict[str, Any], expected: float) -> None:
    constants = Constants(n=10_000, lipschitz=0.03, **changes)
    noise = calibrate_mirror_noise(constants, 60, epsilon=1.0, delta=1e-5)
    assert noise == pytest.approx(expected, rel=1e-6)
    thesis = math.sqrt(8 * 0.03**2 * 60 * math.log(1e5)) / 1e4
    assert thesis == pytest.approx(2.2301533e-4, rel=1e-6)
    plan = CertifiedSpec(constants=constants, spec=make_spec(noise_std=noise, n_steps=60), delta=1e-5)
    assert 1 - 1e-6 < plan.guarantee.epsilon() <= 1


@given(
    noises=st.lists(st.floats(0.01, 10), min_size=1, max_size=6), n_changed_records=st.sampled_from([1, 2])
)
@settings(max_examples=50, deadline=None)
def test_the_price_is_one_gaussian(noises: list[float], n_changed_records: int) -> None:
    of = problem(adjacency="replace-one" if n_changed_records == 2 else "add-remove")
    plan = Plan(problem=of, spec=make_spec(noise_std=tuple(noises), n_steps=len(noises)), delta=1e-5)
    expected = n_changed_records * of.constants.lipschitz / of.n * math.sqrt(sum(1 / x**2 for x in noises))
    assert plan.guarantee.mu is not None
    assert expected <= plan.guarantee.mu <= expected * (1 + 1e-6) + 1e-9


def test_the_guarantee_says_what_is_protected_and_zero_steps_are_free() -> None:
    of = problem()
    plan = Plan(problem=of, spec=make_spec(n_steps=0), delta=1e-5)
    assert plan.guarantee.epsilon() == 0
    assert any("public data set is not protected" in words for words in plan.guarantee.assumptions)
    mirror = public_mirror_map(X, Y, of)
    assert np.array_equal(released(mirror, of, make_spec(n_steps=0)), mirror.start)


@pytest.mark.parametrize("constraint", SETS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("exact", [True, False])
def test_the_mirror_step_solves_its_optimality_condition(loss: str, constraint: str, exact: bool) -> None:
    """u = project(u - (grad Psi(u) - grad Psi(theta) + shift)), to 1e-8."""
    of = problem(loss, constraint)
    mirror = public_mirror_map(X, Y, of, exact=exact, ridge=0.01)
    assert isinstance(mirror, LossMap if exact and loss != "squared" else QuadraticMap)
    for size in (0.01, 0.3):
        shift = size * np.random.default_rng(1).standard_normal(of.dimension)
        new = mirror.step(mirror.start, shift)
        slope = mirror.gradient(new) - mirror.gradient(mirror.start) + shift
        assert np.linalg.norm(new - of.constraint.project(new - slope)) < 1e-8
        assert of.constraint.contains(new, 1e-12)
    both = mirror.step(np.stack([mirror.start] * 2, axis=1), np.stack([shift, -shift], axis=1))
    assert np.allclose(both[:, 0], new, atol=1e-8)


@pytest.mark.parametrize("constraint", SETS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_start_minimises_the_map(loss: str, constraint: str) -> None:
    of = problem(loss, constraint)
    for exact in (True, False):
        mirror = public_mirror_map(X, Y, of, ridge=0.5, start_ridge=0.01, exact=exact)
        moved = of.constraint.project(mirror.start - mirror.gradient(mirror.start))
        assert np.linalg.norm(moved - mirror.start) < 1e-8


@given(seed=st.integers(0, 10_000), radius=st.floats(0.01, 2.0), spread=st.floats(0.0, 8.0))
@settings(max_examples=100, deadline=None)
def test_the_secular_equation(seed: int, radius: float, spread: float) -> None:
    """No point of the ball is closer in the map's metric."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((5, 5)))
    matrix = (basis * 10 ** rng.uniform(-spread / 2, spread / 2, 5)) @ basis.T
    matrix = (matrix + matrix.T) / 2
    point = rng.standard_normal(5) * 3
    mirror = QuadraticMap(matrix, start=np.zeros(5), constraint=Ball(radius))
    new = mirror.step(point, np.zeros(5))
    assert Ball(radius).contains(new, 1e-12)
    slope, scale = matrix @ (new - point), np.linalg.norm(matrix @ point)
    if np.linalg.norm(point) > radius:  # the slope points inwards: slope = -nu new
        multiplier = -float(slope @ new) / float(new @ new)
        assert multiplier >= 0
        assert np.linalg.norm(slope + multiplier * new) <= 1e-8 * scale


def test_mix_with_weight_one_is_the_warm_start_and_less_pulls_back() -> None:
    of, mirror = problem(), public_mirror_map(X, Y, problem())
    warm = released(mirror, of, make_spec(mode="gradient"))
    assert np.array_equal(released(mirror, of, make_spec(mode="mix", mixing=1.0)), warm)
    mixed = released(mirror, of, make_spec(mode="mix", mixing=tuple([0.5] * 7)))
    assert np.linalg.norm(mixed - mirror.start) < np.linalg.norm(warm - mirror.start)


def test_sample_parts_and_smoothing() -> None:
    sample = PublicSample(X, Y, problem("logistic"))
    theta = sample.fit_minimizer(0.01)
    smooth = sample.fit_shrinkage(theta)
    assert 0 <= smooth.weight <= 1
    few = sample.select_rows(np.arange(8)).fit_shrinkage(theta)
    assert few.weight > smooth.weight
    assert np.linalg.norm(sample.mean_gradient(theta) + 0.01 * theta) < 1e-10


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "mix"}, "needs mixing"),
        ({"mode": "mix", "mixing": 1.5}, "at most 1"),
        ({"mixing": 0.5}, "no meaning"),
        ({"step_size": (1.0, 2.0)}, "2 entries"),
        ({"release": "average", "average_from": 7}, "nothing to average"),
        ({"mode": "descent"}, "mode must be one of"),
        ({"noise_std": 0.0}, "noise_std must be positive"),
    ],
)
def test_bad_specs(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        make_spec(**changes)


def test_bad_maps() -> None:
    of = problem()
    with pytest.raises(InvalidParameter, match="public ones have 2 columns, the private ones 3"):
        public_mirror_map(X[:, :2], Y, of)
    with pytest.raises(InvalidParameter, match=r"3 rows for 4 parameters.*leave it out to use ridge = "):
        public_mirror_map(X[:3], Y[:3], of, ridge=0.0)
    with pytest.warns(UserWarning, match=r"3 rows for 4 parameters.*ridge = .* is added"):
        public_mirror_map(X[:3], Y[:3], of)
    copy = np.column_stack([X[:, 0], X[:, 0], X[:, 1]])
    for loss in ("squared", "logistic"):
        with pytest.raises(InvalidParameter, match=r"mirror map is singular.*State a larger ridge"):
            public_mirror_map(copy, Y, problem(loss), ridge=0.0)
    with pytest.raises(InvalidParameter, match="symmetric"):
        QuadraticMap(np.array([[1.0, 2.0], [0.0, 1.0]]), start=np.zeros(2))
    with pytest.raises(InvalidParameter, match="one target each"):
        public_mirror_map(X, Y[:5], of)


def test_bad_runs() -> None:
    of = problem()
    plan = Plan(problem=of, spec=make_spec(), delta=1e-5)
    data = ArrayDataset(X, Y, of)
    with pytest.raises(InvalidParameter, match="mirror map has 2 coordinates but the problem has 4"):
        PublicMirrorDescent(QuadraticMap(np.eye(2), start=np.zeros(2))).run(plan, data, 0)
    with pytest.raises(InvalidParameter, match="on the set"):
        PublicMirrorDescent(public_mirror_map(X, Y, problem(constraint="ball"))).run(plan, data, 0)
    with pytest.raises(InvalidParameter, match="needs a public mirror map"):
        run_plan(plan, data, 0)
    other = Plan(problem=of, spec=NoisyGradientSpec(step_size=1.0, noise_std=1.0, n_steps=1), delta=1e-5)
    with pytest.raises(InvalidParameter, match="not for public-mirror-descent"):
        PublicMirrorDescent(public_mirror_map(X, Y, of)).run(other, data, 0)
