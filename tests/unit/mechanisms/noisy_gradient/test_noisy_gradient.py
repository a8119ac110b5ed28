"""The mechanism runs exactly the spec that was accounted."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from dplangevin.accounting.plan import CertifiedSpec, Plan
from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter, NotPrivateError
from dplangevin.mechanisms.noisy_gradient.mechanism import NoisyGradientDescent
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem import Ball, DataBounds, Logistic, Problem

N, P = 60, 3


def problem(**changes: Any) -> Problem:
    fields: dict[str, Any] = {
        "loss": Logistic(),
        "bounds": DataBounds(data_norm=1.0, classes=2),
        "n": N,
        "n_features": P,
        "constraint": Ball(2.0),
        "ridge": 0.05,
    }
    return Problem(**(fields | changes))


def data(of: Problem, rows: int = N) -> ArrayDataset:
    rng = np.random.default_rng(0)
    return ArrayDataset(rng.standard_normal((rows, P)), rng.integers(0, 2, rows), of)


def plan(of: Problem, **changes: Any) -> Plan:
    fields: dict[str, Any] = {"step_size": 0.7, "noise_std": 0.3, "n_steps": 9}
    return Plan(problem=of, spec=NoisyGradientSpec(**(fields | changes)), delta=1e-5)


class Recorder(np.random.Generator):
    """A generator that keeps every normal draw."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(5))
        self.drawn: list[np.ndarray] = []

    def standard_normal(self, *args: Any, **kwargs: Any) -> Any:
        values = super().standard_normal(*args, **kwargs)
        self.drawn.append(np.array(values))
        return values


@pytest.mark.parametrize("momentum", [False, True])
def test_iterates_follow_the_spec_and_its_noise(momentum: bool) -> None:
    of = problem()
    steps = tuple(np.linspace(0.2, 1.0, 9).tolist())
    noises = tuple(np.linspace(0.5, 0.1, 9).tolist())
    made = plan(of, step_size=steps, noise_std=noises, momentum=momentum, release="trajectory")
    rows, recorder = data(of), Recorder()
    release = NoisyGradientDescent().run(made, rows, recorder)
    theta = previous = np.zeros(P + 1)
    assert len(recorder.drawn) == 9
    for t in range(9):
        point = theta + (t / (t + 3) if momentum else 0.0) * (theta - previous)
        gradient = rows.gradient_sum(of.loss, point[:, None])[:, 0] / N + 0.05 * point
        previous, theta = (
            theta,
            of.constraint.project(point - steps[t] * (gradient + noises[t] * recorder.drawn[t])),
        )
        np.testing.assert_allclose(release.iterate(t + 1), theta, rtol=1e-12)


def test_release_modes_give_only_what_they_cover() -> None:
    of = problem()
    rows = data(of)
    whole = NoisyGradientDescent().run(plan(of, release="trajectory"), rows, 3)
    last = NoisyGradientDescent().run(plan(of), rows, 3)
    some = NoisyGradientDescent().run(plan(of, release="checkpoints", checkpoints=(2, 9)), rows, 3)
    mean = NoisyGradientDescent().run(plan(of, release="average", average_from=4), rows, 3)
    np.testing.assert_array_equal(last.value, whole.iterate(9))
    np.testing.assert_array_equal(some.iterate(2), whole.iterate(2))
    np.testing.assert_array_equal(some.value, whole.iterate(9))
    np.testing.assert_allclose(
        mean.value, np.mean([whole.iterate(t) for t in range(5, 10)], axis=0), rtol=1e-12
    )
    for release, step in ((last, 8), (some, 8), (mean, 9)):
        with pytest.raises(NotPrivateError, match="not covered"):
            release.iterate(step)
    assert last.guarantee.epsilon() < some.guarantee.epsilon() < whole.guarantee.epsilon()
    assert mean.guarantee.theorem == "composition"
    with pytest.raises(ValueError, match="read-only"):
        last.value[0] = 1.0


@pytest.mark.parametrize(
    ("sampling", "adjacency"),
    [
        ("cyclic", "replace-one"),
        ("shuffle", "replace-one"),
        ("without-replacement", "replace-one"),
        ("poisson", "add-remove"),
    ],
)
def test_batches_have_the_accounted_law(
    sampling: str, adjacency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = problem(adjacency=adjacency)
    rows, seen = data(of), []
    original = ArrayDataset.gradient_sum

    def spy(self: ArrayDataset, loss: Any, theta: Any, batch: Any = None) -> Any:
        seen.append(np.array(batch))
        return original(self, loss, theta, batch)

    monkeypatch.setattr(ArrayDataset, "gradient_sum", spy)
    spec = NoisyGradientSpec(step_size=0.5, noise_std=0.5, n_steps=24, batch_size=20, sampling=sampling)  # type: ignore[arg-type]
    release = NoisyGradientDescent().run(
        Plan(problem=of, spec=spec, delta=1e-5, theorem="composition"), rows, 1
    )
    assert np.isfinite(release.value).all()
    sizes = {len(batch) for batch in seen}
    if sampling == "poisson":
        assert len(sizes) > 1
        assert 10 < np.mean([len(batch) for batch in seen]) < 30
    else:
        assert sizes == {20}
    epochs = [np.sort(np.concatenate(seen[i : i + 3])) for i in range(0, 24, 3)]
    if sampling in ("cyclic", "shuffle"):
        assert all(np.array_equal(epoch, np.arange(N)) for epoch in epochs)
        assert np.array_equal(np.sort(seen[0]), np.sort(seen[3])) == (sampling == "cyclic")
    if sampling == "without-replacement":
        assert not all(np.array_equal(epoch, np.arange(N)) for epoch in epochs)


def test_start_is_projected_and_both_parametrisations_agree() -> None:
    of = problem(constraint=Ball(0.1))
    spec = NoisyGradientSpec.from_diffusion(step_size=0.5, sigma=0.2, n_steps=4, strong_convexity=0.05)
    assert spec.noise_std == pytest.approx(0.2 * math.sqrt(2 / 0.5))
    assert spec.start_scale == pytest.approx(0.2 * math.sqrt(2 / 0.05))
    release = NoisyGradientDescent().run(Plan(problem=of, spec=spec, delta=1e-5), data(of), 0)
    assert np.linalg.norm(release.value) <= 0.1


def test_plans_without_a_fixed_length_and_seed_flags() -> None:
    of = problem()
    endless = plan(of, n_steps=math.inf)
    with pytest.raises(InvalidParameter, match="n_steps"):
        NoisyGradientDescent().run(endless, data(of))
    first = NoisyGradientDescent(n_steps=30).run(endless, data(of), 4)
    assert first.n_steps == 30
    assert first.seeded
    unseeded = NoisyGradientDescent().run(plan(of), data(of))
    assert not unseeded.seeded
    assert not np.array_equal(unseeded.value, NoisyGradientDescent().run(plan(of), data(of)).value)
    np.testing.assert_array_equal(first.value, pickle.loads(pickle.dumps(first)).value)
    shuffled = plan(of, n_steps=math.inf, sampling="shuffle", batch_size=20)
    with pytest.raises(InvalidParameter, match="inside an epoch"):
        NoisyGradientDescent(n_steps=31).run(shuffled, data(of))


def test_the_plan_and_the_data_must_belong_together() -> None:
    of, other = problem(), problem(ridge=0.06)
    with pytest.raises(InvalidParameter, match="another problem"):
        NoisyGradientDescent().run(plan(of), data(other))
    certified = CertifiedSpec(constants=of.constants, spec=plan(of).spec, delta=1e-5)
    with pytest.raises(InvalidParameter, match="no problem"):
        NoisyGradientDescent().run(certified, data(of))
    with pytest.raises(TypeError, match="constants"):
        Plan(problem=of, constants=other.constants, spec=plan(of).spec, delta=1e-5)  # type: ignore[call-arg]
    with pytest.raises(InvalidParameter, match="needs constants"):
        CertifiedSpec(spec=plan(of).spec, delta=1e-5)


def test_the_cost_is_reserved_before_the_data_is_read() -> None:
    calls: list[str] = []

    class Book:
        def reserve(self, made: Plan) -> str:
            calls.append(f"reserve {made.guarantee.epsilon():.3f}")
            return "token"

        def commit(self, token: str, release_hash: str) -> None:
            calls.append(f"commit {token} {len(release_hash)}")

    class Watched(ArrayDataset):  # type: ignore[misc]
        def gradient_sum(self, *args: Any, **kwargs: Any) -> Any:
            calls.append("read")
            return super().gradient_sum(*args, **kwargs)

    of = problem()
    rng = np.random.default_rng(0)
    rows = Watched(rng.standard_normal((N, P)), rng.integers(0, 2, N), of)
    made = plan(of)
    NoisyGradientDescent().run(made, rows, ledger=Book())
    assert calls[0] == f"reserve {made.guarantee.epsilon():.3f}"
    assert calls[1] == "read"
    assert calls[-1] == "commit token 64"
