"""The one-step estimate and the curvature behind it: algebra, sensitivity, exact sums, and what is charged."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dplangevin import plan_fit
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.data.integer_grids import RowGrid, to_integers
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mechanism import NoiseDraws, run_plan
from dplangevin.mechanisms.whitened import one_step
from dplangevin.mechanisms.whitened.curvature import (
    SLOPE_STEPS,
    CurvatureLimit,
    EllipticalRows,
    WhitenedCurvature,
    describe_rows,
    limit_curvature,
    release_curvature,
    sum_curvatures,
    sum_exact_curvatures,
)
from dplangevin.mechanisms.whitened.mechanism import row_grid, whitening_geometry
from dplangevin.mechanisms.whitened.one_step import DescentRecord, OneStepEstimate, estimate_one_step
from dplangevin.mechanisms.whitened.whitening import (
    Spectrum,
    WhitenedGeometry,
    WhiteningTransform,
    whiten_first_release,
)
from dplangevin.problem import Clipped, DataBounds, Logistic, Poisson, Problem, Squared


def stated(model: str = "logistic", **more: Any) -> dict[str, Any]:
    targets = {"poisson": {"target_bounds": (0.0, 9.0)}}.get(model, {})
    return {
        "model": model, "n": 4000, "n_features": 4, "epsilon": 2.0, "delta": 1e-5, "adjacency": "replace-one",
        "data_norm": 2.0, "fit_intercept": True, "mechanism": "whitened-gd", "curvature_fraction": 0.05,
    } | targets | more  # fmt: skip


def problem_of(loss: Any, n: int = 50, columns: int = 4) -> Problem:
    labels: dict[str, Any] = {"classes": 2} if isinstance(loss, Logistic) else {"target": (0.0, 9.0)}
    bounds = DataBounds(data_norm=1.0, **labels)
    return Problem(loss=loss, bounds=bounds, n=n, n_features=columns, fit_intercept=False)


# --- the estimate -------------------------------------------------------------------------------------------------


def white_geometry(size: int) -> WhitenedGeometry:
    spectrum = Spectrum(
        values=np.ones(size),
        vectors=np.eye(size),
        above_noise=np.ones(size, bool),
        upper_bounds=np.ones(size),
        edge=0.1,
    )
    return WhitenedGeometry(
        transform=WhiteningTransform(np.eye(size), math.sqrt(size)),
        moments=np.ones(size),
        curvature_bounds=np.ones(size),
        spectrum=spectrum,
    )


@pytest.mark.parametrize("size_of_steps", [0.3, 0.1, 0.01])
@pytest.mark.parametrize("n_steps", [5, 17])
def test_the_steps_do_not_matter_for_a_quadratic_loss(size_of_steps: float, n_steps: int) -> None:
    """With the true curvature the estimate is the minimiser - H^-1 xi, whatever the steps were, converged or not."""
    rng = np.random.default_rng(0)
    size, noise = 4, 1e-4
    root = rng.standard_normal((size, size))
    curvature, minimiser = root @ root.T / size + 0.5 * np.eye(size), 0.3 * rng.standard_normal(size)
    noise_stds = noise * np.where(np.arange(n_steps) < 3, 2.0, 1.0)
    theta = previous = np.zeros(size)
    points, gradients, xi = [], [], noise_stds[:, None] * rng.standard_normal((n_steps, size))
    for t in range(n_steps):
        points.append(theta + t / (t + 3) * (theta - previous))
        gradients.append(curvature @ (points[-1] - minimiser) + xi[t])
        previous, theta = theta, points[-1] - size_of_steps * gradients[-1]
    record = DescentRecord(
        np.array(points),
        np.array(gradients),
        noise_stds,
        np.full(size, size_of_steps),
        1,
        theta,
        theta,
        np.eye(size),
        np.zeros(size),
    )
    problem = replace(problem_of(Clipped(Squared(), 1.0)), n=10**12)
    released = WhitenedCurvature(curvature, 1e-12, 1e-12, 1e-13, 1e-12)
    estimate = estimate_one_step(record, white_geometry(size), released, problem, np.eye(size))
    first = one_step._choose_first_step(record, np.ones(size), float(np.trace(curvature)) / size)
    weights = noise_stds[first:] ** -2.0
    expected = minimiser - np.linalg.solve(curvature, weights @ xi[first:] / weights.sum())
    np.testing.assert_allclose(estimate.center, expected, atol=1e-4 * noise)
    inverse = np.linalg.inv(curvature)
    np.testing.assert_allclose(estimate.noise, inverse @ inverse / weights.sum(), rtol=1e-4, atol=1e-12)


def test_remainders_vanish_at_the_answer_and_to_second_order() -> None:
    rng = np.random.default_rng(1)
    problem, geometry = replace(problem_of(Logistic()), fit_intercept=True, n_features=3), white_geometry(4)
    rows = describe_rows(geometry, problem, np.eye(4))
    assert rows is not None
    answer, direction = rng.standard_normal((2, 4))
    sizes = []
    for step in (0.0, 0.01, 0.02):
        points = np.array([answer + step * direction])
        record = DescentRecord(
            points, points, np.ones(1), np.ones(4), 0, answer, answer, np.eye(4), np.zeros(4)
        )
        sizes.append(np.linalg.norm(one_step._compute_remainders(rows, record, answer, np.eye(4), np.eye(4))))
    assert sizes[0] == pytest.approx(0.0, abs=1e-14)
    assert sizes[2] / sizes[1] == pytest.approx(4.0, rel=0.05)
    assert describe_rows(geometry, problem_of(Clipped(Squared(), 1.0)), np.eye(4)) is None


def test_the_law_of_elliptical_rows_is_that_of_simulated_ones() -> None:
    rng = np.random.default_rng(2)
    size = 4
    rows = EllipticalRows(np.ones(size), np.eye(size)[-1], "logistic", 0.25)
    answer = np.array([0.8, -0.5, 0.0, -1.0])
    z = np.column_stack([rng.standard_normal((400_000, size - 1)), np.ones(400_000)])
    probabilities = 1 / (1 + np.exp(-z @ answer))
    slope, curvature = rows.law_at(answer)
    np.testing.assert_allclose(slope, probabilities @ z / len(z), atol=4e-3)
    weights = probabilities * (1 - probabilities)
    np.testing.assert_allclose(curvature, (z * weights[:, None]).T @ z / len(z), atol=4e-3)


def test_shrinking_keeps_an_exact_curvature_and_forgets_a_hidden_one() -> None:
    rng = np.random.default_rng(3)
    root = rng.standard_normal((6, 6))
    exact, guess = root @ root.T + np.eye(6), np.diag(np.arange(1.0, 7))
    np.testing.assert_allclose(one_step.shrink_curvature(exact, guess, 1e-9)[0], exact, rtol=1e-6)
    noisy = guess + 1e3 * (lambda z: (z + z.T) / 2)(rng.standard_normal((6, 6)))
    mean = one_step.shrink_curvature(noisy, guess, 1e3)[0]
    assert np.abs(mean - guess).max() < 0.8 * np.abs(noisy - guess).max()


def test_a_lone_eigenvalue_outside_of_the_noise_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that nearly repeats others: the entries of all others would outvote one small eigenvalue.

    Part of its eigenvector lies elsewhere, 1 - edge^2 / 4 = .94 of it where it should be. The mean of 40 has a standard
    deviation of .016.
    """
    rng, size, noise = np.random.default_rng(4), 12, 0.1
    direction = rng.standard_normal(size)
    direction /= np.linalg.norm(direction)
    exact = np.eye(size) - 0.98 * np.outer(direction, direction)
    noisy = [exact + noise * (z + z.T) / 2 for z in rng.standard_normal((40, size, size))]

    def mean_along() -> float:
        shrunk = [one_step.shrink_curvature(matrix, np.eye(size), noise)[0] for matrix in noisy]
        return float(np.mean([direction @ matrix @ direction for matrix in shrunk]))

    assert mean_along() < 0.2
    monkeypatch.setattr(one_step, "OUTSIDE_SPECTRUM", math.inf)
    assert mean_along() > 0.3


def test_a_weak_direction_is_seen_behind_strong_ones() -> None:
    """The geometry shows a direction of curvature .02 tilted by a fifth: alone it has .02, its block has .06.

    The mean of 60 has a standard deviation of .013 at noise .1.
    """
    rng, size, noise = np.random.default_rng(12), 10, 0.1
    exact = np.diag([0.02] + [1.0] * (size - 1))
    tilted = np.array([math.sqrt(0.96), 0.2] + [0.0] * (size - 2))[:, None]
    noisy = [exact + noise * (z + z.T) / 2 for z in rng.standard_normal((60, size, size))]
    alone = np.mean([one_step._curvature_alone(matrix, tilted, noise)[0, 0] for matrix in noisy])
    assert alone == pytest.approx(1 / (tilted.T @ np.linalg.inv(exact) @ tilted)[0, 0], abs=0.04)
    assert (tilted.T @ exact @ tilted)[0, 0] > 0.058
    whole = one_step._curvature_alone(exact, np.eye(size)[:, :2], 0.0)
    np.testing.assert_allclose(whole, exact[:2, :2])


def test_the_prior_widens_for_effects_that_the_released_model_hides() -> None:
    """At small budgets a released model is shrunk to a constant: the one-step estimate still shows large effects."""
    problem, size = problem_of(Logistic(), n=1000, columns=4), 4
    known = (problem, np.eye(size), 0.01 * np.eye(size), 0.01, np.eye(size))
    public = one_step.PRIOR_SHARE * 10.0 / problem.row_norm
    hidden, shown = np.zeros(size), np.array([40.0, -30.0, 20.0, 10.0])
    assert one_step._prior_scale(*known, hidden) == public
    assert one_step._prior_scale(*known, shown) == pytest.approx(
        4 * math.sqrt(np.mean(shown**2) - 0.02), rel=1e-6
    )


def test_the_limit_of_a_curvature_keeps_most_of_normal_rows() -> None:
    rng = np.random.default_rng(9)
    geometry, normal = white_geometry(4), rng.standard_normal((200_000, 3))
    z = np.column_stack([normal, np.ones(len(normal))])
    for loss, answer in (
        (Logistic(), np.array([0.8, 0.3, 0.0, -4.0])),
        (Poisson(target_bound=50.0).with_clip(3.0), np.array([0.5, 0.0, 0.2, 0.3])),
    ):
        problem = replace(problem_of(loss), fit_intercept=True, n_features=3)
        limit = limit_curvature(geometry, problem, np.eye(4), answer)
        curvatures = loss.unclipped_loss.curvature(z @ answer, np.zeros(len(z)))
        kept = np.minimum(curvatures, 1.25 * limit.largest).mean() / curvatures.mean()
        assert limit.largest < 0.6 * loss.typical_curvature_bound
        assert kept == pytest.approx(limit.kept_share, abs=0.02)
        assert limit.kept_share >= 0.9
    linear = replace(problem_of(Clipped(Squared(), 1.0)), fit_intercept=True, n_features=3)
    assert limit_curvature(geometry, linear, np.eye(4), answer).largest == 1.0


def test_arrays_of_a_release_are_single_precision_and_come_back() -> None:
    rng = np.random.default_rng(4)
    matrices = {
        name: rng.standard_normal((3, 3))
        for name in ("sampling", "noise", "prior", "curvature", "answer_noise")
    }
    estimate = OneStepEstimate(
        center=rng.standard_normal(3), prior_scale=2.0, flat=np.zeros((3, 0)), **matrices
    )
    arrays = estimate.to_arrays()
    for value in arrays.values():
        np.testing.assert_array_equal(value, value.astype(np.float32))
    back = OneStepEstimate.from_arrays(arrays)
    assert back is not None
    assert back.dispersion is None
    np.testing.assert_allclose(back.noise, estimate.noise, rtol=1e-6)
    assert OneStepEstimate.from_arrays({"resolved": np.ones(3)}) is None


# --- sensitivity --------------------------------------------------------------------------------------------------


def geometries(size: int, rng: np.random.Generator) -> list[WhitenedGeometry]:
    """Coordinates from noisy moments: ordinary, of one direction, negative, and of very different sizes."""
    noise = (lambda z: (z + z.T) / 2)(rng.standard_normal((size, size)))
    moments = [np.eye(size) / size, 1e-3 * noise, -np.eye(size), np.diag(np.geomspace(1e-9, 0.5, size))]
    return [whiten_first_release(moment, 1e-4, False) for moment in moments]


@pytest.mark.parametrize(
    "loss", [Logistic(), Clipped(Squared(), 0.7), Poisson(target_bound=9.0).with_clip(3.0)]
)
def test_no_record_moves_a_curvature_by_more_than_its_unit(loss: Any) -> None:
    """One record: |v v'|_F <= 1 and squared slopes in [0, 1], in doubles and in whole numbers, whatever it is."""
    rng = np.random.default_rng(5)
    size = 4
    problem = problem_of(loss, n=1, columns=size)
    grid = RowGrid(row_norm=problem.row_norm)
    rows = [row / np.linalg.norm(row) for row in np.vstack([np.eye(size), rng.standard_normal((6, size))])]
    rows += [1e-300 * rows[0], 1e300 * rows[5], 0 * rows[0], (1 + 1e-12) * rows[6]]
    labels = (0.0, 1.0) if isinstance(loss, Logistic) else (0.0, 9.0)
    largest = 0.0
    for geometry in geometries(size, rng):
        exact = geometry.round_to_integers(grid).integer_transform
        assert exact is not None
        for row in rows:
            for label in labels:
                for theta in (np.zeros(size), 3 * rng.standard_normal(size), 1e200 * np.ones(size)):
                    data = ArrayDataset(row[None], np.array([label]), problem)
                    limit = rng.choice([1e-300, 0.01, 1.0]) * loss.typical_curvature_bound
                    sums = sum_curvatures(data, geometry.transform, theta, limit)
                    norm = np.linalg.norm(sums[: size**2])
                    assert norm <= 1 + 1e-11
                    assert ((sums[size**2 :] >= 0) & (sums[size**2 :] <= 1)).all()
                    largest = max(largest, norm)
                    words = to_integers(
                        sum_exact_curvatures(data.with_rounded_rows(grid), exact, theta, limit)
                    )
                    square = sum(int(entry) ** 2 for entry in words[: size**2])
                    assert square <= exact.max_steps_square**2
                    assert all(0 <= int(entry) <= SLOPE_STEPS for entry in words[size**2 :])
    assert largest > 0.5


@pytest.mark.parametrize("power", [1, 2])
def test_a_row_counts_with_its_weight_up_to_the_limit(power: int) -> None:
    """Curvature w h'' |B' x|^2 up to k M R^2, as in the gradients: with the weight squared (2) it is half."""
    problem = problem_of(Logistic(), n=1, columns=2)
    transform = WhiteningTransform(np.eye(2), 0.5)  # rows of norm 1 have the length 2 R, and weight 1/2
    data = ArrayDataset(np.array([[0.6, 0.8]]), np.zeros(1), problem)
    for limit in (0.4, 0.25, 0.01):
        counted = (
            1.25 * limit * 0.5**2 * np.linalg.norm(sum_curvatures(data, transform, np.zeros(2), limit)[:4])
        )
        whole = min(0.5**power * 0.25, 1.25 * limit * 0.5**2)
        assert (counted == pytest.approx(whole, rel=1e-9)) == (power == 1 or limit == 0.01)


def test_orthogonal_records_attain_the_sensitivity_of_a_replaced_one() -> None:
    """|v v' - u u'|_F = sqrt 2 for orthogonal v, u: without the root the charge would be too small."""
    problem = problem_of(Logistic(), n=1, columns=2)
    transform = WhiteningTransform(np.eye(2), 0.5)  # rows of norm 1 have the length 2 R, and weight 1/2
    sums = [
        sum_curvatures(ArrayDataset(row[None], np.zeros(1), problem), transform, np.zeros(2), 0.25)[:4]
        for row in np.eye(2)
    ]
    assert np.linalg.norm(sums[0] - sums[1]) == pytest.approx(math.sqrt(2), rel=1e-9)
    for adjacency, root in (("replace-one", math.sqrt(2)), ("add-remove", 1.0)):
        plan = plan_fit(**stated(adjacency=adjacency)).plan
        part = plan.guarantee.parts[-1]
        assert part.mu == pytest.approx(root / (plan.problem.n * plan.spec.curvature_noise_std), rel=1e-8)


def test_exact_sums_are_those_of_doubles_and_do_not_depend_on_order() -> None:
    rng = np.random.default_rng(6)
    problem = problem_of(Logistic(), n=9000, columns=5)
    rows = rng.uniform(-1, 1, (9000, 5)) / math.sqrt(5)
    labels, theta = rng.integers(0, 2, 9000).astype(float), rng.standard_normal(5)
    geometry = whiten_first_release(rows.T @ rows / 9000, 1e-5, False)
    grid = RowGrid(row_norm=problem.row_norm)
    geometry = geometry.round_to_integers(grid)
    exact = geometry.integer_transform
    assert exact is not None
    order = rng.permutation(9000)
    words = [
        to_integers(
            sum_exact_curvatures(
                ArrayDataset(rows[at], labels[at], problem).with_rounded_rows(grid), exact, theta, 0.2
            )
        )
        for at in (np.arange(9000), order)
    ]
    np.testing.assert_array_equal(words[0], words[1])
    sums = sum_curvatures(ArrayDataset(rows, labels, problem), geometry.transform, theta, 0.2)
    np.testing.assert_allclose(
        words[0][:25].astype(float) / exact.max_steps**2, sums[:25], rtol=1e-3, atol=0.02
    )
    np.testing.assert_allclose(words[0][25:] / SLOPE_STEPS, sums[25:], rtol=1e-3)


@pytest.mark.parametrize("exact", [False, True])
def test_every_number_of_a_curvature_has_its_noise(exact: bool) -> None:
    """300 releases of nothing: each standard deviation is off by more than 20% less than once in a million."""
    rng = np.random.default_rng(8)
    problem = problem_of(Clipped(Squared(), 0.7), n=1, columns=2)
    data, grid = ArrayDataset(np.zeros((1, 2)), np.zeros(1), problem), RowGrid(row_norm=problem.row_norm)
    geometry = whiten_first_release(np.eye(2) / 2, 1e-4, False)
    if exact:
        geometry, data = geometry.round_to_integers(grid), data.with_rounded_rows(grid)
    spec = replace(plan_fit(**stated("ridge")).plan.spec, curvature_noise_std=3.0, slope_noise_std=5.0)
    draws = NoiseDraws(rng=rng, source=rng.bytes)
    limit = CurvatureLimit(1.0)
    made = [release_curvature(spec, data, geometry, np.zeros(2), draws, limit) for _ in range(300)]
    unit = 1.25 * geometry.transform.bound**2
    matrices = np.array([release.matrix for release in made]) / unit
    assert np.std(matrices[:, 0, 0]) == pytest.approx(3.0, rel=0.2)
    assert np.std(matrices[:, 0, 1]) == pytest.approx(3.0 / math.sqrt(2), rel=0.2)
    squares = np.array([release.weighted_square for release in made]) / (0.7 * geometry.transform.bound) ** 2
    assert np.std(squares) == pytest.approx(5.0, rel=0.2)
    assert made[0].noise_std == pytest.approx(3.0 * unit)
    for release in (made[0], WhitenedCurvature(np.eye(3), 2.0)):
        back = WhitenedCurvature.from_array(release.to_array())
        np.testing.assert_array_equal(back.matrix, release.matrix)
        assert back[1:] == release[1:]


# --- what is charged and what runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("model", ["logistic", "ridge", "poisson"])
def test_the_parts_add_up_to_the_stated_budget(model: str, adjacency: str) -> None:
    options = stated(model, adjacency=adjacency)
    plan = plan_fit(**options).plan
    assert 0.9999 * 2 < plan.guarantee.epsilon(1e-5) <= 2.0
    alone = plan_fit(**(options | {"curvature_fraction": 0.0})).plan
    squares = {
        len(each.guarantee.parts): sum(p.count * p.mu**2 for p in each.guarantee.parts)
        for each in (plan, alone)
    }
    assert max(squares.values()) / min(squares.values()) == pytest.approx(1.0, abs=1e-5)
    own = sum(part.mu**2 for part in plan.guarantee.parts[len(alone.guarantee.parts) :])
    assert own / max(squares.values()) == pytest.approx(0.05, rel=1e-4)


@pytest.mark.parametrize("model", ["logistic", "ridge", "poisson"])
def test_the_descent_is_the_same_bits_with_and_without_a_curvature(model: str) -> None:
    rng = np.random.default_rng(7)
    plan = plan_fit(**stated(model)).plan
    X = rng.uniform(-1, 1, (4000, 4))
    y = (rng.random(4000) < 0.4).astype(float)
    data = ArrayDataset(X, y, plan.problem)
    without = Plan(
        problem=plan.problem,
        spec=replace(plan.spec, curvature_noise_std=0.0, slope_noise_std=0.0),
        delta=1e-5,
    )
    values = [run_plan(each, data, 3).value for each in (plan, without)]
    np.testing.assert_array_equal(*values)
    geometry = whitening_geometry(plan.spec, np.stack([np.eye(5) / 5] * plan.spec.n_moment_releases))
    assert geometry.transform.basis.shape == (5, 5)
    assert row_grid(plan.spec, plan.problem).row_bits in (20, 24)


def test_what_has_no_curvature_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="releases no curvature"):
        plan_fit(**stated(mechanism="noisy-gd"))
    for model, more in (("multinomial", {"n_classes": 3}), ("svc", {}), ("quantile", {"quantile": 0.5})):
        plan = plan_fit(**stated(model, **more)).plan
        with pytest.raises(InvalidParameter, match="has no intervals"):
            run_plan(plan, ArrayDataset(np.zeros((4000, 4)), np.zeros(4000), plan.problem), 0)
    weighted = plan_fit(**stated(weight_bound=2.0)).plan
    with pytest.raises(InvalidParameter, match="equally weighted"):
        run_plan(weighted, ArrayDataset(np.zeros((4000, 4)), np.zeros(4000), weighted.problem), 0)
