"""The privacy profile of repeat-and-select against exact laws of discrete selections and against other bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from dplangevin.mechanisms.repeated_selection import spec as theorem
from dplangevin.mechanisms.repeated_selection.spec import (
    REPETITION_LAWS,
    RepeatedSelectionSpec,
    RepeatedSelectionTheorem,
    SelectionProfile,
    epsilon_lower_bound,
    selection_profile,
)


def make_spec(law: str, mean: float, mu: float) -> RepeatedSelectionSpec:
    return RepeatedSelectionSpec(mu=mu, repetitions=mean, law=law, adjacency="replace-one")  # type: ignore[arg-type]


def exact_selection_law(spec: RepeatedSelectionSpec, cells: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the law of the best of K attempts over cells, the best rank first, from the law of K alone."""
    better = np.concatenate([[0.0], np.cumsum(cells[order])])
    gamma, mean = spec.gamma if spec.law != "poisson" else 0.0, spec.repetitions
    if spec.law == "poisson":
        some = -np.expm1(-mean * better)
    elif spec.law == "geometric":
        some = better / (gamma + (1 - gamma) * better)
    else:
        some = np.log1p((1 / gamma - 1) * better) / math.log(1 / gamma)
    law = np.empty_like(cells)
    law[order] = np.diff(some)
    return law


def random_order(rng: np.random.Generator, kind: int, ratios: np.ndarray) -> np.ndarray:
    """Return a ranking: random, by likelihood ratio, or the neighbour's likely cells before its unlikely ones."""
    if kind == 0:
        return rng.permutation(len(ratios))
    if kind == 1:
        return np.argsort(ratios)[:: int(rng.choice([-1, 1]))]
    first, last = np.sort(rng.choice(len(ratios), 2, replace=False))
    rising = np.argsort(ratios)
    return np.concatenate([rising[last:][::-1], rising[:first], rising[first:last]])


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize("law", REPETITION_LAWS)
def test_no_discrete_selection_exceeds_the_profile(law: str) -> None:
    """Cells of a line under N(0, 1) and N(mu, 1) are mu-GDP, whatever their scores: 400 selections, exact laws."""
    rng, used = np.random.default_rng(7), []
    for trial in range(400):
        mu, mean = float(np.exp(rng.uniform(-3, 1))), float(np.exp(rng.uniform(1.7, 6)))
        spec = make_spec(law, mean, mu)
        edges = np.concatenate([[-np.inf], np.sort(rng.normal(mu / 2, 2.0, 60)), [np.inf]])
        p, q = np.diff(ndtr(edges)), np.diff(ndtr(edges - mu))
        order = random_order(rng, trial % 3, q / np.maximum(p, 1e-300))
        ours, theirs = (exact_selection_law(spec, cells, order) for cells in (p, q))
        for epsilon in np.array([0.0, 0.5, 1.0, 2.0, 4.0]) * mu * 3:
            claimed = selection_profile(spec).delta(float(epsilon))
            for a, b in ((ours, theirs), (theirs, ours)):
                attained = hockey_stick(a, b, float(epsilon))
                rounding = 1e-14 * (1 + math.exp(epsilon))  # of differences of probabilities
                assert attained <= claimed + rounding
                used.append(attained / (claimed + rounding))
    assert max(used) > 0.8  # the attack is not idle


@pytest.mark.parametrize(
    ("law", "mean", "limit"),
    [("geometric", 100, 1.02), ("geometric", 10, 1.02), ("logarithmic", 100, 1.02), ("poisson", 100, 1.3)],
)
def test_the_profile_is_sharp(law: str, mean: float, limit: float) -> None:
    spec = make_spec(law, mean, 0.2)
    claimed = RepeatedSelectionTheorem().certify(None, spec).epsilon(1e-6)
    assert claimed / limit <= epsilon_lower_bound(None, spec, 1e-6) <= claimed


def test_a_profile_without_the_shift_of_better_attempts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: the neighbour's probability of a better attempt is taken to be the same."""
    spec = make_spec("geometric", 100, 0.2)
    honest = selection_profile(spec)
    assert honest.delta(epsilon_lower_bound(None, spec, 1e-6)) >= 1e-6
    monkeypatch.setattr(theorem, "ndtr", lambda z: ndtr(z - 0.2))
    broken = selection_profile.__wrapped__(spec)
    assert broken.delta(epsilon_lower_bound(None, spec, 1e-6)) < 1e-7


def test_one_attempt_costs_what_it_costs() -> None:
    profile = selection_profile(make_spec("geometric", 1.0, 0.5))
    assert isinstance(profile, SelectionProfile)
    single = SelectionProfile(mu=0.5, masses=np.ones(1), shifts=np.zeros(1))
    for epsilon in (0.0, 0.5, 2.0):
        assert profile.delta(epsilon) == pytest.approx(single.delta(epsilon), rel=1e-6)
