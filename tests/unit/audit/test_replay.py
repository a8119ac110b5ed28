"""Replays: the honest mechanism is not refuted, each broken variant of it is, and laws of noise are priced exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from dplangevin import DPLogisticRegression, DPRidge
from dplangevin._rng import noise_observer
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.audit import replay
from dplangevin.audit.replay import find_differences
from dplangevin.mechanisms.whitened import curvature
from dplangevin.sampling.exact_noise import (
    add_rounded_noise,
    sample_geometric_noise,
)
from dplangevin.sampling.float_noise import sample_gamma_norm, sample_wishart_difference

DATA, NEIGHBOUR = np.array([[3.0, 4.0], [1.0, 1.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])  # 5 apart


def claim(*parts: Any) -> Guarantee:
    return Guarantee(
        parts=parts, theorem="composition", reference="", assumptions=(), adjacency="replace-one", release="draw",
        at_delta=1e-5,
    )  # fmt: skip


def two_steps(rows: Any, rng: np.random.Generator, *, scale: float = 10.0, leak: Any = None) -> Any:
    """An adaptive mechanism: the second release is a sum in a direction that the first one chose."""
    first = rows.sum(axis=0) + scale * rng.standard_normal(2)
    along = first / np.linalg.norm(first)
    second = np.array([(rows @ along).clip(-5, 5).sum()])
    second += scale * rng.standard_normal(1)
    return {"value": first * second, "leak": None if leak is None else leak(rows)}


def test_an_adaptive_mechanism_follows_the_recorded_path() -> None:
    result = replay(two_steps, DATA, NEIGHBOUR, guarantee=claim(Gaussian(mu=0.5), Gaussian(mu=0.5)))
    assert [release.law for release in result.releases] == ["gaussian", "gaussian"]
    assert 0.5 < result.mu <= 0.5 * 2**0.5
    assert result.refutation is None


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (lambda x, rng: two_steps(x, rng, scale=5.0), "attain mu"),
        (lambda x, rng: two_steps(x, rng, leak=np.max), "leak"),
        (lambda x, rng: two_steps(x, rng, leak=lambda rows: float(rows[0, 0])), "3.0 against 0.0"),
        (lambda x, rng: x.sum(axis=0) + 10 * np.array([1.0, 0.0]) * rng.standard_normal(2), "has no noise"),
        (lambda x, rng: x.sum(axis=0) + 0.0 * rng.standard_normal(2), "has no noise"),
        (
            lambda x, rng: x.sum(axis=0) + 10 * rng.standard_normal(1),
            "has no noise",
        ),  # one draw for two entries
        (lambda x, rng: x.sum(axis=0), "output"),
        (
            lambda x, rng: x.sum(axis=0) + 100 * np.abs(rng.standard_normal(2)),
            "output",
        ),  # not followed: not cleared
        (lambda x, rng: x.sum(axis=0) + (1 + x[0, 0]) * 10 * rng.standard_normal(2), "other noise"),
        (
            lambda x, rng: [x.sum(axis=0) + 10 * rng.standard_normal(2) for _ in range(1 + int(x[0, 0] > 0))],
            "releases",
        ),
        (lambda x, rng: x.sum(axis=0) + 10.0 * rng.geometric(0.1, 2), "has no noise"),  # one-sided
    ],
)
def test_broken_variants_are_refuted(broken: Callable[..., Any], why: str) -> None:
    result = replay(broken, DATA, NEIGHBOUR, guarantee=claim(Gaussian(mu=0.5), Gaussian(mu=0.5)))
    assert result.refutation is not None
    assert why in result.refutation


@pytest.mark.parametrize(
    ("noise", "mu", "epsilon"),
    [
        (lambda rng: 10 * rng.standard_normal(2), 0.5, 0.0),
        (lambda rng: rng.normal(0.0, 10.0, 2), 0.5, 0.0),
        (lambda rng: (np.array([[2.0, 0.0], [0.0, 4.0]]) @ rng.standard_normal(2)) / 2, 13**0.5, 0.0),
        (lambda rng: rng.standard_normal(2) + rng.standard_normal(2), 5 / 2**0.5, 0.0),
        (lambda rng: rng.standard_normal((2, 2)).T[0] * -2.0, 2.5, 0.0),
        (lambda rng: rng.laplace(scale=7.0, size=2), 0.0, 1.0),
        (lambda rng: sample_gamma_norm(2, 5.0, 1, rng)[:, 0], 0.0, 1.0),
        (lambda rng: rng.geometric(-np.expm1(-1 / 7), 2) - rng.geometric(-np.expm1(-1 / 7), 2), 0.0, 1.0),
        (lambda rng: sample_geometric_noise(7.0, 2), 0.0, 1.0),
    ],
)
def test_laws_of_noise(noise: Callable[..., Any], mu: float, epsilon: float) -> None:
    """The sums differ by (3, 4)."""
    result = replay(lambda x, rng: x.sum(axis=0) + noise(rng), DATA, NEIGHBOUR)
    assert result.mu == pytest.approx(mu, rel=1e-9)
    assert result.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert result.refutation is None


def test_matrices_and_sums_with_their_own_noise() -> None:
    symmetric = replay(lambda x, rng: x.T @ x + sample_wishart_difference(2, 5.0, rng), DATA, NEIGHBOUR)
    assert symmetric.epsilon == pytest.approx(25 / 5)  # the nuclear norm of (3, 4)'(3, 4)
    exact = replay(
        lambda x, rng: add_rounded_noise(x.sum(axis=0).astype(np.int64), 1.0, 2**0.5 * 10, 2.0),
        DATA,
        NEIGHBOUR,
    )
    assert exact.mu == pytest.approx(0.5)
    assert noise_observer.get() is None


@pytest.mark.parametrize("delta", [1e-3, 0.0])
@pytest.mark.parametrize("model", [DPLogisticRegression(classes=[0, 1]), DPRidge(target_bounds=(0, 1))])
def test_whole_estimators(model: Any, delta: float) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), (rng.random(60) < 0.5).astype(float)
    X[0] = [40, 0, 0]
    X2, y2 = X.copy(), y.copy()
    X2[0], y2[0] = [0, -40, 0], 1 - y[0]
    model = clone(model).set_params(data_norm=8.0, epsilon=5.0, delta=delta)

    def release(records: Any, rng: Any) -> Any:
        return clone(model).set_params(random_state=rng).fit(*records)

    claimed = release((X, y), 0).privacy_
    result = replay(release, (X, y), (X2, y2), guarantee=claimed, ignore=("random_state",))
    assert result.refutation is None
    assert result.mu > 0.2 * (claimed.mu or 0) if delta else result.epsilon > 0.1 * claimed.epsilon(0.0)


@pytest.mark.parametrize("weakened", ["curvature_noise_std", "slope_noise_std", None])
def test_fits_with_intervals(weakened: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The curvature and the squared slopes follow the recorded path; with little of their noise either is refuted."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (3000, 2)), rng.uniform(0.4, 0.6, 3000)
    X2, y2 = X.copy(), y.copy()
    X[0], y[0], X2[0], y2[0] = [1, 0], 0.5, [0, 1], 1  # the second slope is clipped and has no curvature
    model = DPRidge(target_bounds=(0, 1), data_norm=1.5, epsilon=2.0, delta=1e-5, intervals=True)

    def release(records: Any, rng: Any) -> Any:
        return clone(model).set_params(random_state=rng).fit(*records)

    claimed = release((X, y), 0).privacy_
    if weakened:
        honest = curvature._release_exact_curvature

        def broken(spec: Any, *others: Any) -> Any:
            return honest(replace(spec, **{weakened: getattr(spec, weakened) / 200}), *others)

        monkeypatch.setattr(curvature, "_release_exact_curvature", broken)
    result = replay(release, (X, y), (X2, y2), guarantee=claimed, ignore=("random_state",))
    assert (result.refutation is None) == (weakened is None)


@pytest.mark.parametrize("weakened", [True, False])
def test_decisions_of_fits_with_intervals(weakened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that decisions are computed from, the released curvature included, is the same for both neighbours."""
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, (3000, 2)), (rng.random(3000) < 0.4).astype(int)
    X2, y2 = X.copy(), y.copy()
    X[0], y[0], X2[0], y2[0] = [1, 0], 0, [0, 1], 1
    model = DPLogisticRegression(classes=[0, 1], data_norm=1.5, epsilon=2.0, delta=1e-5, intervals=True)

    def release(records: Any, rng: Any) -> Any:
        fitted = clone(model).set_params(random_state=rng).fit(*records)
        return fitted.flip_probability(X[:20]), fitted

    claimed = release((X, y), 0)[1].privacy_
    if weakened:
        honest = curvature._release_exact_curvature

        def broken(spec: Any, *others: Any) -> Any:
            return honest(replace(spec, curvature_noise_std=spec.curvature_noise_std / 200), *others)

        monkeypatch.setattr(curvature, "_release_exact_curvature", broken)
    result = replay(release, (X, y), (X2, y2), guarantee=claimed, ignore=("random_state",))
    assert (result.refutation is None) == (not weakened)


def test_differences_name_the_place() -> None:
    assert find_differences({"a": [1, 2.0]}, {"a": [1, 2.0]}) == []
    assert find_differences({"a": [1, 2.0]}, {"a": [1, 2.5]}) == ["output['a'][1]: 2.0 against 2.5"]
    assert find_differences(np.array([1.0, np.nan]), np.array([1.0, np.nan])) == []
    assert find_differences(np.array([1.0]), np.array([1])) == ["output: float64(1,) against int64(1,)"]
    assert find_differences([1], [1, 2]) == ["output: 1 against 2 entries"]
