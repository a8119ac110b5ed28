"""The local bound of a Rashomon draw against exact laws (line, plane, radial), and its broken variants."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dplangevin.accounting import compose
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.rashomon.calibrate import find_local_temperature, law_hit_probability
from dplangevin.mechanisms.rashomon.planning import plan_rashomon
from dplangevin.mechanisms.rashomon.spec import LocalRange, RashomonSpec, sampler_error
from dplangevin.problem import Ball, DataBounds, Logistic, Problem
from dplangevin.problem.constants import Constants

EPSILONS = np.linspace(0.0, 1.3, 9)


def hockey_sticks(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Exact delta(eps) of two laws on a grid of points with equal volume, the larger direction."""
    one, other = one / one.sum(), other / other.sum()
    return np.array(
        [
            max(
                np.maximum(one - math.exp(e) * other, 0).sum(), np.maximum(other - math.exp(e) * one, 0).sum()
            )
            for e in EPSILONS
        ]
    )


def law(objective: np.ndarray, beta: float, psi: float, volume: np.ndarray | float = 1.0) -> np.ndarray:
    """The law of a draw on a grid; the least value of the grid stands for the minimum."""
    return volume * np.exp(-beta * np.maximum(objective - objective.min() - psi, 0.0))


def shapes(x: np.ndarray, m: float, delta: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Pairs of m-strongly convex functions on a line that differ by a delta-Lipschitz function."""
    square, edge = m * x**2 / 2, 5 * np.maximum(np.abs(x) - 0.02, 0)
    return {
        "quadratic": (square - delta * x / 2, square + delta * x / 2),
        "steep on one side": (square + np.maximum(x, 0), square + np.maximum(x, 0) - delta * x),
        "kink": (square + delta * np.abs(x), square),
        "flat then steep": (square + edge, square + edge - delta * x),
    }  # fmt: skip


@pytest.mark.parametrize("m", [1.0, 0.1])
@pytest.mark.parametrize("psi", [1e-4, 1e-2])
@pytest.mark.parametrize("wall", [-1.0, 0.0])
def test_never_below_the_exact_law_on_a_line(m: float, psi: float, wall: float) -> None:
    """Minimisers inside, and on the wall of [0, 1]; the bound is attained to a factor of 10 somewhere."""
    n, largest = 2000, 0.0
    constants = Constants(
        n=n, lipschitz=1.0, smoothness=10.0, strong_convexity=m, diameter=1.0 - wall, dimension=1
    )
    beta = find_local_temperature(constants, threshold=psi, tolerance=1e-9, epsilon=1.0, delta=1e-6)
    draw = LocalRange(
        dimension=1, inverse_temperature=beta, threshold=psi, strong_convexity=m, gradient_sensitivity=2 / n,
        diameter=1.0 - wall,
    )  # fmt: skip
    bounds = np.array([draw.delta(float(e)) for e in EPSILONS])
    x = np.linspace(wall, 1.0, 200_001)
    for one, other in shapes(x, m, 2 / n).values():
        exact = hockey_sticks(law(one, beta, psi), law(other, beta, psi))
        assert np.all(exact <= bounds * (1 + 1e-6) + 1e-15)
        largest = max(largest, float(np.max(exact[bounds > 1e-12] / bounds[bounds > 1e-12])))
    assert largest > 0.1


@pytest.mark.parametrize("dimension", [2, 3, 10])
def test_never_below_the_exact_law_of_cylinders(dimension: int) -> None:
    """F = g(s) + h(r), s on an axis and r = |y| across it, with weight r^(p - 2): quadratic, cone and flat tube."""
    n, m, psi = 2000, 1.0, 1e-3
    constants = Constants(
        n=n, lipschitz=1.0, smoothness=10.0, strong_convexity=m, diameter=2.0, dimension=dimension
    )
    beta = find_local_temperature(constants, threshold=psi, tolerance=1e-9, epsilon=1.0, delta=1e-6)
    draw = LocalRange(
        dimension=dimension, inverse_temperature=beta, threshold=psi, strong_convexity=m, gradient_sensitivity=2 / n,
        diameter=2.0,
    )  # fmt: skip
    bounds = np.array([draw.delta(float(e)) for e in EPSILONS])
    reach = 3 * math.sqrt(2 * (psi + 20 * dimension / beta) / m)
    s, r = np.linspace(-reach, reach, 1201)[:, None], np.linspace(0, reach, 600)[None, :]
    across = {"quadratic": 0 * r, "cone": 0.5 * r, "tube": 20 * np.maximum(r - 0.01, 0)}
    for extra in across.values():
        base = m * (s**2 + r**2) / 2 + extra
        one, other = base - s / n, base + s / n
        weight = r ** (dimension - 2) if dimension > 2 else np.ones_like(r)
        exact = hockey_sticks(law(one, beta, psi, weight), law(other, beta, psi, weight))
        assert np.all(exact <= bounds * (1 + 1e-3) + 1e-12)


def test_broken_bounds_fall() -> None:
    """Half the sensitivity (a factor 2 of replace-one forgotten), or a ridge four times too large, is refuted."""
    n, m, psi, beta = 2000, 1.0, 1e-3, 2.2e4
    draw = LocalRange(
        dimension=1, inverse_temperature=beta, threshold=psi, strong_convexity=m, gradient_sensitivity=2 / n,
        diameter=2.0,
    )  # fmt: skip
    x = np.linspace(-1, 1, 400_001)
    pairs = shapes(x, m, 2 / n).values()
    exact = np.max(
        [hockey_sticks(law(one, beta, psi), law(other, beta, psi)) for one, other in pairs], axis=0
    )

    def refutes(claim: LocalRange) -> bool:
        bounds = np.array([claim.delta(float(e)) for e in EPSILONS])
        return bool(np.any(exact > bounds * (1 + 1e-6) + 1e-15))

    assert not refutes(draw)
    assert refutes(replace(draw, gradient_sensitivity=1 / n))
    assert refutes(replace(draw, strong_convexity=4 * m))


def test_the_curve_is_a_curve() -> None:
    draw = LocalRange(
        dimension=5,
        inverse_temperature=2e5,
        threshold=1e-3,
        strong_convexity=1.0,
        gradient_sensitivity=2 / 30_000,
    )
    profile = draw.profile()
    deltas = np.array([draw.delta(float(e)) for e in np.linspace(0, 1, 50)])
    assert np.all(np.diff(deltas) <= 0)
    for epsilon in np.linspace(0.01, 0.9, 23):
        assert draw.delta(float(epsilon)) <= profile.delta(float(epsilon)) * (1 + 1e-9)
    assert draw.tail_mass(0.0) == pytest.approx(1 - law_hit_probability(5, 2e5, 1e-3), rel=1e-5)
    # two draws of a law on a line, exactly: never above the composed profile
    line = replace(draw, dimension=1, inverse_temperature=5e4)
    x = np.linspace(-0.2, 0.2, 1501)
    one, other = (law(f, 5e4, 1e-3) for f in shapes(x, 1.0, 2 / 30_000)["quadratic"])
    pair = hockey_sticks(np.outer(one, one).ravel(), np.outer(other, other).ravel())
    composed = [compose.compose_delta((replace(line.profile(), count=2),), float(e)) for e in EPSILONS]
    assert np.all(pair <= np.array(composed) * (1 + 1e-6) + 1e-12)


@pytest.mark.parametrize(
    ("m", "p", "psi", "hit"),
    [(1.0, 20, 1e-3, 0.935), (1.0, 3, 1e-4, 0.969), (0.1, 20, 1e-3, 0.757), (0.01, 10, 1e-3, 0.485)],
)
def test_plans_hit(m: float, p: int, psi: float, hit: float) -> None:
    """n = 30,000, (1, 1e-6): hit bounds that were .000, .033, .000 and .100 by the range of the score."""
    problem = Problem(
        loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=30_000, n_features=p, constraint=Ball(1.0),
        ridge=m, fit_intercept=False,
    )  # fmt: skip
    plan = plan_rashomon(problem, threshold=psi, n_models=1, epsilon=1.0, delta=1e-6)
    assert plan.plan.guarantee.theorem == "rashomon-local"
    assert plan.plan.guarantee.epsilon(1e-6) <= 1.0
    assert plan.hit_probability == pytest.approx(hit, abs=4e-3)
    pure = plan_rashomon(problem, threshold=psi, n_models=1, epsilon=1.0)
    assert pure.plan.guarantee.theorem == "rashomon-draws"
    assert plan.hit_probability > pure.hit_probability


def test_a_cap_is_for_certified_chains() -> None:
    with pytest.raises(InvalidParameter, match="certified chains"):
        RashomonSpec(
            n_models=1,
            threshold=0.1,
            inverse_temperature=10.0,
            tolerance=1e-6,
            max_excess=2.0,
            excess_cap=0.1,
        )
    constants = Constants(
        n=1000, lipschitz=1.0, smoothness=1.3, strong_convexity=1.0, diameter=2.0, dimension=3
    )
    spec = RashomonSpec(
        n_models=1, threshold=1e-3, inverse_temperature=1e5, tolerance=1e-6, max_excess=4.0, tier="certified",
        step_size=1e-5, n_steps=8000, excess_cap=1e-3,
    )  # fmt: skip
    capped, free = (sampler_error(constants, each) for each in (spec, replace(spec, excess_cap=math.inf)))
    assert capped < 1e-6 < free
    with pytest.raises(InvalidParameter, match="part of the start"):
        sampler_error(constants, replace(spec, inverse_temperature=100.0, excess_cap=1e-3))
