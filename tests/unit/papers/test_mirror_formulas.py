"""Chapter 4 of the thesis: each quantity against simulation, and a printed inequality refuted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplangevin.papers import formulas as ref


def test_chi_of_the_examples() -> None:
    """Isotropic 1/k: k^2 up to the logarithm; one small eigenvalue k^-1.5 and n_pub = k^2.5: k^2 again."""
    k = 50
    flat = ref.chi_factor(np.full(k, 1 / k), 10 * k**2, math.exp(-1))
    assert flat == pytest.approx(k**2)
    spiked = np.full(k, 1 / k)
    spiked[0] = k**-1.5
    # k^1.5 times k - 1 shares of k^-1/2 and one of 1
    assert ref.chi_factor(spiked, int(k**2.5), math.exp(-1)) == pytest.approx(
        k**1.5 * ((k - 1) * k**-0.5 + 1), rel=1e-3
    )
    privacy, sampling = ref.regression_risk(np.full(k, 1 / k), 10 * k**2, 10_000, 1.0, math.exp(-1))
    assert privacy == pytest.approx(k**2 / 1e8)
    assert sampling == pytest.approx(k / 1e4)


def test_public_gradients_are_as_small_as_said() -> None:
    """Mean of n unit vectors: the radius is exceeded at most with probability delta. 4000 means, delta = 0.05."""
    rng = np.random.default_rng(0)
    for dimension in (1, 3, 30):
        vectors = rng.standard_normal((4000, 25, dimension))
        vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
        sizes = np.linalg.norm(vectors.mean(axis=1), axis=1)
        assert np.mean(sizes > ref.public_gradient_radius(25, 0.05)) <= 0.05


def test_effective_noise_is_exact() -> None:
    """Theorem 81 by simulation; fails by chance once in 10,000 times."""
    rng = np.random.default_rng(1)
    eigenvalues, direction = np.array([0.1, 0.5, 2.0]), np.array([0.6, 0.0, 0.8])
    moves = 0.3 * 0.2 * np.abs(rng.standard_normal((100_000, 3)) / eigenvalues @ direction)
    assert ref.noise_along(direction, eigenvalues, 0.3, 0.2) == pytest.approx(
        moves.mean(), abs=4 * moves.std() / math.sqrt(1e5)
    )


def test_theorem_87_is_false_and_what_holds_instead() -> None:
    """Psi = sum psi(theta_i), psi'' = 1 for theta_i > 0 and 10^6 below: the noise moves iterates to one side only."""
    rng, k = np.random.default_rng(2), 16
    direction, weights = np.full(k, k**-0.5), np.ones(k)
    noise = rng.standard_normal((50_000, k))
    moves = np.where(noise > 0, noise, noise / 1e6)  # the mirror step: psi'(theta_i) = b_i
    found = np.abs(moves @ direction)
    error = 5 * found.std() / math.sqrt(len(found))
    assert found.mean() - error > 1.9 * ref.printed_noise_along(direction, weights, 1.0, 1.0)
    assert found.mean() + error < ref.varying_noise_along(direction, weights, 1.0, 1.0)


def test_theorem_83_bounds_a_run() -> None:
    """F = |theta - t|, Psi = |theta|^2 / 2, Q the unit ball: the average of noisy mirror descent, fixed seed."""
    rng, k, steps, eta, sigma = np.random.default_rng(3), 5, 400, 0.02, 0.5
    target = np.full(k, 0.3)
    theta, total = np.zeros((300, k)), np.zeros((300, k))
    for _ in range(steps):
        total += theta
        away = theta - target
        gradient = away / np.linalg.norm(away, axis=1, keepdims=True)
        theta = theta - eta * (gradient + sigma * rng.standard_normal(theta.shape))
    excess = np.linalg.norm(total / steps - target, axis=1).mean()
    bound = ref.mirror_risk(
        gradient_deviation=float(np.linalg.norm(target)), strong_convexity=1.0, step_size=eta, n_steps=steps,
        n_public=1, lipschitz=1.0, noise_std=sigma, width=ref.ellipsoid_width(np.ones(k)), body_norm=1.0,
    )  # fmt: skip
    assert excess <= bound
    whole = ref.mirror_population_risk(
        bound, lipschitz=1.0, diameter=2.0, n_private=10_000, epsilon=0.1, delta=1e-6
    )
    assert whole == pytest.approx(bound + 0.02 + 2 * (math.expm1(0.1) + 1e-6))


def test_gaussian_widths() -> None:
    rng = np.random.default_rng(4)
    noise = rng.standard_normal((20_000, 40))
    axes = np.linspace(0.1, 2.0, 40)
    ellipsoid = np.linalg.norm(noise * axes, axis=1).mean()
    assert ellipsoid <= ref.ellipsoid_width(axes) <= 1.05 * ellipsoid
    octahedron = np.abs(noise).max(axis=1).mean()
    assert octahedron <= ref.cross_polytope_width(40) <= 1.4 * octahedron


def test_the_best_number_of_public_rows_minimises_chi() -> None:
    """1 / (l_min l_max), against a grid of n_pub, for several spectra; the isotropic one and the thesis' example."""
    rng, k = np.random.default_rng(5), 30
    spectra = [np.full(k, 1 / k), np.r_[k**-1.5, np.full(k - 1, 1 / k)], *rng.uniform(0.001, 0.1, (5, k))]
    for spectrum in spectra:
        best = ref.best_public_rows(spectrum)
        grid = [ref.chi_factor(spectrum, int(n), math.exp(-1)) for n in np.geomspace(1, 1e8, 200)]
        assert ref.chi_factor(spectrum, round(best), math.exp(-1)) <= min(grid) * (1 + 2e-3)


@pytest.mark.parametrize(("n_public", "shift"), [(5, 0.0), (40, 0.0), (400, 0.0), (400, 0.2), (400, 0.9)])
def test_public_rows_help_where_the_bound_says(n_public: int, shift: float) -> None:
    """F = |theta - t|^2 / 2 with public rows of mean t + shift: the best steps of Theorem 83, and runs below it."""
    rng, k, sigma = np.random.default_rng(6), 4, 0.05
    target = np.full(k, 0.3)
    rows = ref.count_public_rows(
        n_public=n_public, gradient_deviation=2.0, strong_convexity=1.0, distance=float(np.linalg.norm(target)),
        noise_rate=math.sqrt(k + 1) * sigma, shift=shift,
    )  # fmt: skip
    assert (rows.risk < rows.private_risk) == (n_public > rows.enough)
    assert math.isinf(rows.enough) == (shift >= rows.shift_allowed)
    # A / t + t C over a grid of t, with A = (V^2 / n + b^2) / (2 m) and C = sigma^2 (G_Q^2 + |Q|^2): sigma grows with T
    times = np.geomspace(1e-3, 1e4, 4000)
    a, c = (4 / n_public + shift**2) / 2, (k + 1) * sigma**2
    assert rows.risk == pytest.approx(np.min(a / times + times * c), rel=1e-5)
    t = math.sqrt(a / c)
    steps = max(200, math.ceil(t / 0.05))
    start = target + 2.0 / math.sqrt(n_public * k) * rng.standard_normal((400, k))
    start[:, 0] += shift
    theta, total = start, np.zeros_like(start)
    for _ in range(
        steps
    ):  # noise sigma sqrt(T) on every gradient: the same privacy for every number of steps
        total += theta
        noise = sigma * math.sqrt(steps) * rng.standard_normal(theta.shape)
        theta = theta - t / steps * (theta - target + noise)
    excess = ((total / steps - target) ** 2).sum(axis=1).mean() / 2
    assert excess <= rows.risk * 1.02
