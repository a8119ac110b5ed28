"""B0, B1, B2: vectors, exact Gaussian values, and the counterexamples of the theory as guards."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize

from dplangevin.accounting import conversions as cv
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import Composition, StepUnits
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import (
    CyclicShift,
    OptimalShift,
    SecretPermutation,
    ShuffledShift,
    average_profiles,
    best_restart_mu,
    cyclic_energy,
    expansive_mu,
    hull_energy,
    restart_mu,
    reused_permutation_mu,
    same_start_mu,
    shuffle_mu,
    shuffle_restart_mu,
)
from dplangevin.problem.constants import Constants

INFINITY = math.inf
EXACT = 1e-6


def quadratic_mu(s: float, v: float, c: float, n_steps: int) -> float:
    """Exact value for l = (m/2)|w - x|^2: mean s sum c^i, variance v^2 sum c^{2i}."""
    powers = c ** np.arange(n_steps)
    return s * math.fsum(powers) / (v * math.sqrt(math.fsum(powers**2)))


def test_figure_two_of_chourasia() -> None:
    step, sigma, n, sensitivity = 0.02, 0.02, 5000, 4.0
    s, v, c = step * sensitivity / n, math.sqrt(2 * step) * sigma, 1 - step
    for steps, exact, plain in (
        (10, 0.0000797317182, 0.00008),
        (100, 0.000606527857, 0.0008),
        (500, 0.000791935021, 0.004),
    ):
        for order in (10, 20, 30):
            assert order * same_start_mu(s, v, c, steps) ** 2 / 2 == pytest.approx(order * exact, rel=EXACT)
            assert order * steps * (s / v) ** 2 / 2 == pytest.approx(order * plain, rel=EXACT)
    assert same_start_mu(s, v, c, 100) == pytest.approx(0.03482894936, rel=EXACT)
    strong = 1 - step * 0.5
    assert 10 * same_start_mu(s, v, strong, 100) ** 2 / 2 == pytest.approx(0.007388379339, rel=EXACT)
    assert 10 * same_start_mu(s, v, strong, INFINITY) ** 2 / 2 == pytest.approx(0.01592, rel=EXACT)


def test_closed_form_vectors() -> None:
    assert same_start_mu(0.02, 0.5, 1, 10) == pytest.approx(0.1264911064, rel=EXACT)
    assert best_restart_mu(0.02, 0.5, 1, 0.3, 100) == pytest.approx(0.3098386677, rel=EXACT)
    assert best_restart_mu(0.07, 0.5, 1, 0.3, INFINITY) == pytest.approx(0.58, rel=EXACT)
    assert same_start_mu(0.01, 0.02, 0.98, 50) == pytest.approx(3.396440588, rel=EXACT)
    assert same_start_mu(0.01, 0.02, 0.98, 100) == pytest.approx(4.35361867, rel=EXACT)
    assert best_restart_mu(0.01, 0.02, 0.98, 0.1, INFINITY) == pytest.approx(2.984968491, rel=EXACT)
    u = StepUnits(shift=0.01, noise=0.2, contraction=1.02, diameter=1.0)
    assert expansive_mu(u, INFINITY, "data-independent") == pytest.approx(1.421276105, rel=EXACT)


def test_cyclic_and_shuffle_vectors() -> None:
    u = StepUnits(shift=0.02, noise=0.2, contraction=1.0, diameter=INFINITY)
    assert math.sqrt(cyclic_energy(u, 5, 20, "data-independent")) == pytest.approx(0.1264911064, rel=EXACT)
    assert reused_permutation_mu(u, 5, 4, 5) == pytest.approx(0.1264911064, rel=EXACT)
    assert reused_permutation_mu(u, 5, 4, 1) == pytest.approx(0.0894427191, rel=EXACT)
    strong = replace(u, contraction=0.95)
    assert math.sqrt(cyclic_energy(strong, 5, 20, "data-independent")) == pytest.approx(
        0.1209793175, rel=EXACT
    )
    place = np.where(np.arange(20) % 5 == 1, 0.02, 0.0)
    assert math.sqrt(hull_energy(place, np.full(20, 0.2), np.full(20, 0.95))) == pytest.approx(
        0.0819797618, rel=EXACT
    )
    bounded = replace(u, diameter=0.02)
    assert math.sqrt(cyclic_energy(bounded, 5, 200, "data-independent")) == pytest.approx(
        0.1118033989, rel=EXACT
    )
    assert shuffle_mu(u, 5, 4, 0) == pytest.approx(0.1414213562, rel=EXACT)
    secret = StepUnits(shift=0.02, noise=0.05, contraction=1.0, diameter=INFINITY)
    mus = np.array([reused_permutation_mu(secret, 20, 3, j) for j in range(1, 21)])
    assert cv.gdp_epsilon(float(mus.max()), 1e-5) == pytest.approx(1.639390579, rel=EXACT)
    assert average_profiles(mus).epsilon(1e-5) == pytest.approx(1.307913106, rel=1e-5)
    assert float(np.mean([cv.gdp_delta(mu, 1.307913106) for mu in mus])) == pytest.approx(1e-5, rel=EXACT)


def constants(**changes: object) -> Constants:
    fields: dict[str, object] = {"n": 1000, "lipschitz": 1.0, "smoothness": 1.0, "strong_convexity": 0.1}
    return Constants(**(fields | changes))  # type: ignore[arg-type]


def make_spec(**changes: object) -> NoisyGradientSpec:
    fields: dict[str, object] = {"step_size": 0.5, "noise_std": 0.1, "n_steps": 100}
    return NoisyGradientSpec(**(fields | changes))  # type: ignore[arg-type]


def test_checkpoints_restart_from_a_public_point() -> None:
    first, second = same_start_mu(0.01, 0.02, 0.98, 50), same_start_mu(0.01, 0.02, 0.98, 50)
    assert math.hypot(first, second) == pytest.approx(4.803292343, rel=EXACT)
    run = make_spec(release="checkpoints", checkpoints=(50, 100))
    u = same_start_mu(0.5 * 2 / 1000, 0.05, 0.95, 50)
    assert OptimalShift().certify(constants(), run).mu == pytest.approx(u * math.sqrt(2), rel=1e-8)
    last = OptimalShift().certify(constants(), make_spec()).mu
    assert last is not None
    assert last < u * math.sqrt(2) < Composition().certify(constants(), run).mu  # type: ignore[operator]


@settings(max_examples=60, deadline=None)
@given(c=st.floats(0.3, 0.9999), n_steps=st.integers(1, 2000), s=st.floats(1e-4, 10), v=st.floats(1e-3, 10))
def test_strongly_convex_bound_is_the_exact_gaussian_value(
    c: float, n_steps: int, s: float, v: float
) -> None:
    assert same_start_mu(s, v, c, n_steps) == pytest.approx(quadratic_mu(s, v, c, n_steps), rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), n_steps=st.integers(1, 7), start=st.floats(0, 3))
def test_hull_solves_the_quadratic_program(data: st.DataObject, n_steps: int, start: float) -> None:
    values = st.lists(st.floats(0.1, 2), min_size=n_steps, max_size=n_steps)
    s, v = np.array(data.draw(values)), np.array(data.draw(values))
    c = np.array(data.draw(st.lists(st.floats(0.5, 1.3), min_size=n_steps, max_size=n_steps)))

    def gaps(a: np.ndarray) -> np.ndarray:
        z, out = start, []
        for t in range(n_steps):
            z = c[t] * z + s[t] - a[t]
            out.append(z)
        return np.array(out)

    answer = minimize(
        lambda a: float(np.sum((a / v) ** 2)),
        gaps(np.zeros(n_steps)) * 0 + s,
        constraints=[
            {"type": "ineq", "fun": lambda a: gaps(a)[:-1]},
            {"type": "eq", "fun": lambda a: gaps(a)[-1]},
        ],
        bounds=[(0, None)] * n_steps,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    energy = hull_energy(s, v, c, start)
    if answer.success:
        assert energy == pytest.approx(float(answer.fun), rel=1e-5)
    assert energy <= float(np.sum((s / v) ** 2)) * (1 + 1e-9) or start > 0


@settings(max_examples=60, deadline=None)
@given(
    s=st.floats(0.01, 1),
    v=st.floats(0.1, 3),
    c=st.sampled_from([1.0, 0.999, 0.9, 0.5]),
    diameter=st.floats(0.01, 20),
    n_steps=st.integers(1, 3000),
    scale=st.floats(0.1, 10),
)
def test_laws_of_the_closed_forms(
    s: float, v: float, c: float, diameter: float, n_steps: int, scale: float
) -> None:
    def mu(s: float = s, v: float = v, diameter: float = diameter, n_steps: float = n_steps) -> float:
        return min(same_start_mu(s, v, c, n_steps), best_restart_mu(s, v, c, diameter, n_steps))

    tight = 1 + 1e-9
    assert mu() <= math.sqrt(n_steps) * s / v * tight  # never above composition
    assert mu() <= mu(n_steps=n_steps + 1) * tight
    assert mu() <= mu(s=1.1 * s) * tight
    assert mu(v=1.1 * v) <= mu() * tight
    assert mu() <= mu(diameter=1.1 * diameter) * tight
    assert mu(scale * s, scale * v, scale * diameter) == pytest.approx(mu(), rel=1e-9)
    limit = best_restart_mu(s, v, c, diameter, INFINITY)
    limit = min(limit, same_start_mu(s, v, c, INFINITY)) if c < 1 else limit
    assert mu() <= limit * tight


def test_contraction_near_one_joins_the_convex_case() -> None:
    assert same_start_mu(0.1, 1.0, 1 - 1e-12, 500) == pytest.approx(
        same_start_mu(0.1, 1.0, 1.0, 500), rel=1e-8
    )
    assert restart_mu(0.1, 1.0, 1 - 1e-12, 3.0, 40) == pytest.approx(
        restart_mu(0.1, 1.0, 1.0, 3.0, 40), rel=1e-8
    )


@pytest.mark.parametrize("contraction", [1.0, 0.97, 1.05])
@pytest.mark.parametrize("diameter", [INFINITY, 0.5, 6.0])
def test_cyclic_worst_position_against_every_position(contraction: float, diameter: float) -> None:
    rng = np.random.default_rng(7)
    for _ in range(4):
        length, steps = int(rng.integers(1, 7)), int(rng.integers(1, 30))
        u = StepUnits(shift=1.0, noise=float(rng.uniform(0.3, 3)), contraction=contraction, diameter=diameter)
        worst = 0.0
        for j in range(min(length, steps)):
            s = np.where(np.arange(steps) % length == j, 1.0, 0.0)
            gap = [0.0]
            for t in range(steps):
                gap.append(min(diameter, contraction * gap[-1] + s[t]))
            taus = range(steps) if diameter < INFINITY else [0]
            full = lambda x: np.full(steps, x)  # noqa: E731, B023
            worst = max(
                worst,
                min(hull_energy(s[t:], full(u.noise)[t:], full(contraction)[t:], gap[t]) for t in taus),
            )
        assert cyclic_energy(u, length, steps, "data-independent") >= worst * (1 - 1e-9)
        assert cyclic_energy(u, length, steps, "data-independent") <= worst * (1 + 1e-6)
        assert cyclic_energy(u, length, INFINITY, "data-independent") >= worst * (1 - 1e-9)


def test_stopping_inside_an_epoch_is_not_the_whole_epoch_formula() -> None:
    u = StepUnits(shift=1.0, noise=1.0, contraction=1.0, diameter=INFINITY)
    claimed = 3 / 5 + 1 / 3  # the closed form with l = 5, j = 3, used at T = 18
    assert cyclic_energy(u, 5, 18, "data-independent") >= 1.0 > claimed
    run = make_spec(sampling="shuffle", batch_size=200, n_steps=18)
    with pytest.raises(AssumptionFailed, match="inside an epoch"):
        ShuffledShift().certify(constants(), run)


def test_cyclic_is_not_monotone_so_no_running_minimum() -> None:
    """A record in the last batch of five: nothing after four steps, something after five."""
    place = np.where(np.arange(5) == 4, 0.1, 0.0)
    assert hull_energy(place[:4], np.ones(4), np.ones(4)) == 0
    assert math.sqrt(hull_energy(place, np.ones(5), np.ones(5))) == pytest.approx(0.1)
    u = StepUnits(shift=0.1, noise=1.0, contraction=1.0, diameter=INFINITY)
    assert cyclic_energy(u, 5, 4, "data-independent") > 0  # the position is adversarial


def test_shuffle_bound_covers_every_pattern_of_positions() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        length, epochs = int(rng.integers(2, 7)), int(rng.integers(1, 6))
        places = rng.integers(0, length, epochs)
        s = np.zeros(length * epochs)
        s[np.arange(epochs) * length + places] = 1.0
        energy = hull_energy(s, np.ones_like(s), np.ones_like(s))
        u = StepUnits(shift=1.0, noise=1.0, contraction=1.0, diameter=INFINITY)
        assert energy <= shuffle_mu(u, length, epochs, length - 1 - places[-1]) ** 2 * (1 + 1e-12)
        diameter = float(rng.uniform(0.2, 4))
        gap = [0.0]
        for push in s:
            gap.append(min(diameter, gap[-1] + push))
        best = min(
            hull_energy(s[t:], np.ones_like(s)[t:], np.ones_like(s)[t:], gap[t]) for t in range(len(s))
        )
        assert best <= shuffle_restart_mu(replace(u, diameter=diameter), length, epochs) ** 2 * (1 + 1e-12)


def test_inexact_projection_is_charged_at_every_step_and_refused_elsewhere() -> None:
    error = 1e-3
    inexact = constants(projection_error=error, diameter=2.0, strong_convexity=0.0)
    honest = OptimalShift().certify(inexact, make_spec(n_steps=INFINITY)).mu
    s, v = 0.5 * 2 / 1000 + 2 * error, 0.05
    assert honest == pytest.approx(best_restart_mu(s, v, 1.0, 2.0 + 2 * error, INFINITY), rel=1e-8)
    with pytest.raises(AssumptionFailed, match="projection"):
        ShuffledShift().certify(inexact, make_spec(sampling="shuffle", batch_size=100))
    cyclic = CyclicShift().certify(inexact, make_spec(sampling="cyclic", batch_size=100, n_steps=50))
    exact = CyclicShift().certify(
        replace(inexact, projection_error=0.0), make_spec(sampling="cyclic", batch_size=100, n_steps=50)
    )
    assert cyclic.mu > exact.mu  # type: ignore[operator]


def test_unknown_start_restarts_from_the_diameter() -> None:
    bounded = constants(diameter=2.0)
    warm = OptimalShift().certify(bounded, make_spec(start="unknown", n_steps=3)).mu
    assert warm == pytest.approx(restart_mu(0.001, 0.05, 0.95, 2.0, 3), rel=1e-8)
    with pytest.raises(AssumptionFailed, match="unknown start"):
        OptimalShift().certify(constants(), make_spec(start="unknown"))
    with pytest.raises(AssumptionFailed, match="starting point"):
        Composition().certify(bounded, make_spec(start="unknown"))


def test_varying_specs() -> None:
    steps = tuple(np.linspace(1.0, 0.2, 60).tolist())
    noises = tuple(np.linspace(0.1, 0.3, 60).tolist())
    run = make_spec(step_size=steps, noise_std=noises, n_steps=60)
    ours, plain = OptimalShift().certify(constants(), run).mu, Composition().certify(constants(), run).mu
    assert plain == pytest.approx(math.sqrt(sum((2 / 1000 / x) ** 2 for x in noises)), rel=1e-8)
    assert ours is not None
    assert ours < plain  # type: ignore[operator]
    bounded = OptimalShift().certify(constants(diameter=0.01), run).mu
    assert bounded is not None
    assert bounded < ours
    flat = make_spec(step_size=(0.5,) * 100, noise_std=(0.1,) * 100)
    for limit in (INFINITY, 0.02):
        a = OptimalShift().certify(constants(diameter=limit), flat).mu
        b = OptimalShift().certify(constants(diameter=limit), make_spec()).mu
        assert a == pytest.approx(b, rel=2e-2)
        assert a >= b * (1 - 1e-9)  # type: ignore[operator]


def test_calibration_vectors() -> None:
    base = Constants(n=10_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01)
    run = NoisyGradientSpec(step_size=1.0, noise_std=0.01191928594, n_steps=INFINITY)
    assert OptimalShift().certify(base, run).epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)
    plain = NoisyGradientSpec(step_size=1.0, noise_std=0.02671921535, n_steps=1000)
    assert Composition().certify(base, plain).epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)
    convex = Constants(n=10_000, lipschitz=1.0, smoothness=0.25, diameter=2.0)
    bounded = NoisyGradientSpec(step_size=1.0, noise_std=0.1689871556, n_steps=INFINITY)
    assert OptimalShift().certify(convex, bounded).epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("theorem", "changes", "words"),
    [
        (OptimalShift(), {"momentum": True}, "momentum"),
        (OptimalShift(), {"release": "average"}, "whole path"),
        (OptimalShift(), {"release": "trajectory"}, "whole path"),
        (OptimalShift(), {"sampling": "poisson", "batch_size": 10}, "poisson"),
        (CyclicShift(), {}, "not cyclic"),
        (ShuffledShift(), {}, "not shuffle"),
        (SecretPermutation(), {"sampling": "cyclic", "batch_size": 10}, "secret"),
        (Composition(), {"n_steps": INFINITY}, "finite number"),
    ],
)
def test_each_hypothesis_is_refused_by_name(
    theorem: OptimalShift, changes: dict[str, object], words: str
) -> None:
    base = constants(adjacency="add-remove") if changes.get("sampling") == "poisson" else constants()
    with pytest.raises(AssumptionFailed, match=words):
        theorem.certify(base, make_spec(**changes))


def test_expansive_steps_fall_back_to_composition_or_use_the_diameter() -> None:
    run = make_spec(step_size=3.0)  # 3 > 2/M
    with pytest.raises(AssumptionFailed, match="2/smoothness = 2"):
        OptimalShift().certify(constants(), run)
    plain = Composition().certify(constants(), run).mu
    bounded = OptimalShift().certify(constants(diameter=0.01), run).mu
    assert bounded is not None
    assert bounded <= plain * (1 + 1e-8)  # type: ignore[operator]
    with pytest.raises(AssumptionFailed, match="expand"):
        ShuffledShift().certify(constants(), make_spec(step_size=3.0, sampling="shuffle", batch_size=100))
    rough = constants(smoothness=INFINITY)
    with pytest.raises(AssumptionFailed, match="smoothness"):
        OptimalShift().certify(rough, make_spec())
    loose = constants(convex=False, smoothness=0.1, strong_convexity=0.0, diameter=1.0)
    long = OptimalShift().certify(loose, make_spec(step_size=0.2, n_steps=INFINITY))
    assert math.isfinite(long.mu)  # type: ignore[arg-type]


def test_meaningless_combinations_name_the_parameter_and_the_fix() -> None:
    removed = constants(adjacency="add-remove")
    for sampling in ("cyclic", "shuffle", "without-replacement"):
        with pytest.raises(InvalidParameter, match="replace-one"):
            Composition().certify(removed, make_spec(sampling=sampling, batch_size=10))
    assert Composition().certify(constants(), make_spec(sampling="poisson", batch_size=10)).parts
    with pytest.raises(InvalidParameter, match="batch_size"):
        Composition().certify(constants(), make_spec(sampling="cyclic", batch_size=1001))
