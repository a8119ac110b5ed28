"""Every exported loss: its slope, its bounds, and the constants a problem derives from them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.problem import (
    LOSSES,
    Bump,
    Clipped,
    DataBounds,
    Huber,
    Logistic,
    Loss,
    Mean,
    MulticlassHinge,
    Poisson,
    Problem,
    RadialHuber,
    RecordLoss,
    Sigmoid,
    SmoothedHinge,
    SmoothedPinball,
    Softmax,
    Squared,
    losses,
)

PLAIN: list[Loss] = [
    Logistic(),
    Squared(),
    Huber(transition=0.7),
    SmoothedHinge(width=0.5),
    SmoothedPinball(quantile=0.3, width=0.4),
    Poisson(target_bound=4.0),
    Mean(),
    Softmax(n_classes=2),
    Softmax(n_classes=4),
    MulticlassHinge(n_classes=2),
    MulticlassHinge(n_classes=4, width=0.5),
]
SCALAR = [loss for loss in PLAIN if loss.score_dimension == 1 and loss.curvature_bound > 0]  # may be clipped
CLIPPED: list[Loss] = [Clipped(loss, bound) for loss in SCALAR for bound in (0.25, 2.0)]
CONVEX = PLAIN + CLIPPED
NONCONVEX: list[Loss] = [Sigmoid()]
BOUNDED = [loss for loss in CONVEX if math.isfinite(loss.slope_bound) and loss.curvature_bound > 0]
NORMS = (0.1, 1.0, 10.0, 100.0)


def words(loss: object) -> str:
    return repr(loss).replace(" ", "")


def labels(loss: Loss) -> np.ndarray:
    """Every class, or a spread of the admissible range with its ends."""
    if loss.label_classes is not None:
        return np.arange(float(loss.label_classes))
    low, high = loss.label_range
    return np.linspace(low, high, 5) if math.isfinite(high) else np.array([-3.0, 0.0, 2.5])


def bounds(loss: Loss, data_norm: float, weight_bound: float = 1.0) -> DataBounds:
    if loss.label_classes is not None:
        return DataBounds(data_norm=data_norm, classes=loss.label_classes, weight_bound=weight_bound)
    low, high = loss.label_range
    target = (low, high) if math.isfinite(high) else (-3.0, 2.5)
    return DataBounds(data_norm=data_norm, target=target, weight_bound=weight_bound)


def scores(loss: Loss, size: int, scale: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores [size, labels(, K)] and labels [labels]."""
    y = labels(loss)
    shape = (size, len(y)) + ((loss.score_dimension,) if loss.score_dimension > 1 else ())
    return scale * rng.uniform(-1, 1, shape), y


def inner(loss: Loss, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=-1) if loss.score_dimension > 1 else a * b


def size_of(loss: Loss, a: np.ndarray) -> np.ndarray:
    return np.sqrt(inner(loss, a, a))


def test_every_exported_loss_is_tested() -> None:
    named = (getattr(losses, name) for name in losses.__all__)
    exported = {each for each in named if isinstance(each, type) and issubclass(each, Loss)} - {Loss}
    whole = {RecordLoss, RadialHuber, Bump}  # tests/unit/problem/test_record_losses.py
    assert exported - whole == {type(loss) for loss in CONVEX + NONCONVEX}
    assert exported == {*LOSSES.values(), Clipped, RecordLoss}
    assert all(LOSSES[loss.name] is type(loss) for loss in PLAIN + NONCONVEX)


@pytest.mark.parametrize("size", [0, 1, 513, 3000])
@pytest.mark.parametrize("loss", CONVEX + NONCONVEX, ids=words)
def test_totals_are_sums_of_values(loss: Loss, size: int) -> None:
    u, y = scores(loss, size, 30.0, np.random.default_rng(size))
    expected = loss.value(u, y).sum(axis=0)
    np.testing.assert_allclose(loss.sum_values(u, y), expected, rtol=1e-12, atol=1e-13 * size)


@pytest.mark.parametrize("loss", NONCONVEX, ids=words)
def test_losses_that_are_not_convex_say_so(loss: Loss) -> None:
    u = np.linspace(-20, 20, 4001)
    assert not loss.convex
    assert any(np.diff(loss.slope(u, np.full_like(u, label))).min() < -1e-6 for label in labels(loss))
    with pytest.raises(InvalidParameter, match="not convex"):
        loss.inverse_slope(u, np.zeros_like(u))


@pytest.mark.parametrize("loss", CONVEX + NONCONVEX, ids=words)
def test_slope_is_the_derivative_of_the_value(loss: Loss) -> None:
    rng = np.random.default_rng(1)
    u, y = scores(loss, 400, 6.0, rng)
    step = 1e-5 * rng.uniform(-1, 1, u.shape)
    change = (loss.value(u + step, y) - loss.value(u - step, y)) / 2e-5
    curvature = min(
        loss.curvature_bound, math.exp(6.01)
    )  # a Lipschitz slope: off by at most curvature * |step|
    np.testing.assert_allclose(
        change, inner(loss, loss.slope(u, y), step / 1e-5), atol=2e-5 * curvature + 1e-9, rtol=0
    )


@pytest.mark.parametrize("loss", CONVEX + NONCONVEX, ids=words)
def test_curvature_is_the_derivative_of_the_slope_within_its_bound(loss: Loss) -> None:
    """Up to corners of the slope, which a random score meets with probability 0 (1e-5 of them within the width)."""
    rng = np.random.default_rng(0)
    width = 1e-5
    u, y = scores(loss, 200, 4.0, rng)
    curvature = loss.curvature(u, y)
    if loss.score_dimension == 1:
        change = (loss.slope(u + width, y) - loss.slope(u - width, y)) / (2 * width)
        corner = np.abs(change - curvature) > 1e-4
        assert corner.mean() < 0.01
        change = np.where(corner, curvature, change)
        size = np.abs(curvature)
    else:
        steps = width * np.eye(loss.score_dimension)
        change = np.stack(
            [(loss.slope(u + step, y) - loss.slope(u - step, y)) / (2 * width) for step in steps], axis=-1
        )
        size = np.linalg.norm(curvature, ord=2, axis=(-2, -1))
    np.testing.assert_allclose(curvature, change, atol=1e-6 * (1 + np.exp(4.0)), rtol=1e-6)
    assert size.max() <= loss.curvature_bound * (1 + 1e-12)
    if loss.convex:
        least = curvature if loss.score_dimension == 1 else np.linalg.eigvalsh(curvature)
        assert least.min() >= -1e-15
    far = np.array([-1e300, -800.0, 800.0, 1e300])
    if loss.score_dimension == 1 and math.isfinite(loss.curvature_bound):
        assert np.all(np.isfinite(loss.curvature(far, labels(loss)[0])))


@pytest.mark.parametrize("loss", CONVEX, ids=words)
def test_convex_in_the_score(loss: Loss) -> None:
    rng = np.random.default_rng(2)
    for scale in (0.1, 3.0, 30.0):
        u, y = scores(loss, 500, scale, rng)
        w, _ = scores(loss, 500, scale, rng)
        rise = inner(loss, loss.slope(u, y) - loss.slope(w, y), u - w)
        assert np.all(rise >= -1e-12)
        ends, middle = (loss.value(u, y) + loss.value(w, y)) / 2, loss.value((u + w) / 2, y)
        assert np.all(middle <= ends + 1e-12 * (1 + np.abs(ends)))
    assert loss.convex


@pytest.mark.parametrize("loss", CONVEX + NONCONVEX, ids=words)
def test_slope_and_curvature_bounds_hold_and_are_nearly_attained(loss: Loss) -> None:
    rng = np.random.default_rng(3)
    steepest = sharpest = 0.0
    for scale in (1.0, 6.0, 1e4):
        u, y = scores(loss, 4000, scale, rng)
        slopes = loss.slope(u, y)
        steepest = max(steepest, float(size_of(loss, np.minimum(slopes, 1e100)).max()))
        if math.isfinite(loss.curvature_bound):
            w = u + 1e-3 * rng.normal(size=u.shape)
            secant = size_of(loss, slopes - loss.slope(w, y)) / size_of(loss, u - w)
            sharpest = max(sharpest, float(secant[size_of(loss, u - w) > 1e-5].max()))
    assert steepest <= loss.slope_bound
    assert sharpest <= loss.curvature_bound * (1 + 1e-6)  # rounding of scores near 1e4
    if math.isfinite(loss.slope_bound):
        assert steepest >= 0.99 * loss.slope_bound
    if math.isfinite(
        loss.curvature_bound
    ):  # a hidden factor of 2 would show; 4 classes are rarely at their worst
        assert sharpest >= (0.9 if loss.score_dimension < 4 else 0.55) * loss.curvature_bound


@pytest.mark.parametrize("loss", [loss for loss in CONVEX if loss.score_dimension == 1], ids=words)
def test_inverse_slope(loss: Loss) -> None:
    y = labels(loss)
    wanted = np.linspace(-3, 3, 241)[:, None] * np.ones(len(y))
    u = loss.inverse_slope(wanted, y)
    assert not np.isnan(u).any()
    at = np.isfinite(u)
    assert at.any()
    np.testing.assert_allclose(loss.slope(np.where(at, u, 0.0), y)[at], wanted[at], atol=1e-12)
    far = np.full_like(u, 1e4)
    assert np.all(loss.slope(far, y)[u == np.inf] <= wanted[u == np.inf])
    assert np.all(loss.slope(-far, y)[u == -np.inf] >= wanted[u == -np.inf])


@pytest.mark.parametrize("loss", CONVEX, ids=words)
def test_stable_for_huge_scores(loss: Loss) -> None:
    y = labels(loss)
    shape = (2, len(y)) + ((loss.score_dimension,) if loss.score_dimension > 1 else ())
    u = np.full(shape, 1e4) * np.array([1.0, -1.0]).reshape((2,) + (1,) * (len(shape) - 1))
    if loss.score_dimension > 1:
        u[..., 1:] *= -1
    if isinstance(loss, Poisson):  # e^10000 is beyond doubles
        u = u[1:]
    assert np.isfinite(loss.value(u, y)).all()
    assert np.isfinite(loss.slope(u, y)).all()


@pytest.mark.parametrize("loss", SCALAR, ids=words)
def test_clipping_keeps_the_loss_where_the_slope_is_small(loss: Loss) -> None:
    rng = np.random.default_rng(4)
    u, y = scores(loss, 500, 4.0, rng)
    clipped = Clipped(loss, 0.4)
    small = np.abs(loss.slope(u, y)) <= 0.4
    assert small.any()
    assert (~small).any()
    np.testing.assert_allclose(clipped.value(u, y)[small], loss.value(u, y)[small], atol=1e-12)
    np.testing.assert_array_equal(clipped.slope(u, y), np.clip(loss.slope(u, y), -0.4, 0.4))
    assert np.all(clipped.value(u, y) <= loss.value(u, y) + 1e-12)


def rows_at_norm(norm: float, rng: np.random.Generator) -> np.ndarray:
    """Random rows, rows far beyond the bound, the zero row, and nearly parallel pairs at the bound."""
    random = rng.normal(size=(6, 3)) * norm
    far = rng.normal(size=(6, 3)) * norm * 1e6
    angle = 0.01
    pair = norm * np.array([[math.cos(angle), math.sin(angle), 0], [math.cos(angle), -math.sin(angle), 0]])
    return np.vstack([random, far, np.zeros((1, 3)), pair, -pair])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("loss", [*BOUNDED, Softmax(n_classes=3, slope_clip=0.5)], ids=words)
def test_record_gradients_never_exceed_the_constants(loss: Loss, adjacency: str, intercept: bool) -> None:
    rng = np.random.default_rng(5)
    for norm in NORMS:
        base = rows_at_norm(norm, rng)
        y = np.repeat(labels(loss), len(base))
        X = np.tile(base, (len(labels(loss)), 1))
        weights = rng.choice([0.5, 2.0, 1e9], len(y))
        problem = Problem(
            loss=loss, bounds=bounds(loss, norm, 2.0), n=len(y), n_features=3, fit_intercept=intercept,
            adjacency=adjacency,
        )  # fmt: skip
        constants = problem.constants
        data = ArrayDataset(X, y, problem, weights=weights)
        saturating = np.zeros((problem.n_columns, loss.score_dimension, 1))
        saturating[1, 0] = 1e5 / (norm * math.sin(0.01))
        theta = np.hstack([
            rng.normal(size=(problem.dimension, 3)), 1e3 / norm * rng.normal(size=(problem.dimension, 3)),
            saturating.reshape(-1, 1), -saturating.reshape(-1, 1),
        ])  # fmt: skip
        gradients = np.stack([data.gradient_sum(loss, theta, [i]) for i in range(len(y))])
        norms = np.linalg.norm(gradients, axis=1)
        assert norms.max() <= constants.lipschitz * (1 + 1e-12)
        assert norms.max() >= 0.99 * constants.lipschitz
        if adjacency == "add-remove":
            assert constants.gradient_sensitivity == constants.lipschitz
        else:
            gap = np.linalg.norm(gradients[:, None] - gradients[None], axis=2).max()
            assert gap <= constants.gradient_sensitivity * (1 + 1e-12)
            assert gap >= 0.7 * constants.gradient_sensitivity


def test_the_replace_one_sensitivity_is_attained_by_nearly_parallel_rows() -> None:
    for norm in NORMS:
        problem = Problem(loss=Logistic(), bounds=bounds(Logistic(), norm), n=2, n_features=2)
        side = norm * math.sin(0.001)
        X = [[norm * math.cos(0.001), side], [norm * math.cos(0.001), -side]]
        data = ArrayDataset(X, [0, 1], problem)
        theta = np.array([[0.0], [50 / side], [0.0]])
        gap = data.gradient_sum(Logistic(), theta, [0]) - data.gradient_sum(Logistic(), theta, [1])
        ratio = np.linalg.norm(gap) / problem.constants.gradient_sensitivity
        assert 0.99999 <= ratio <= 1


@pytest.mark.parametrize("loss", BOUNDED, ids=words)
def test_the_gradient_step_contracts_as_stated(loss: Loss) -> None:
    rng = np.random.default_rng(6)
    for norm, ridge in ((0.1, 0.0), (1.0, 0.05), (10.0, 1.0), (100.0, 0.0)):
        X = rows_at_norm(norm, rng)
        y = rng.choice(labels(loss), len(X))
        problem = Problem(loss=loss, bounds=bounds(loss, norm), n=len(X), n_features=3, ridge=ridge)
        data, constants = ArrayDataset(X, y, problem), problem.constants
        one = rng.normal(size=(problem.dimension, 60)) / norm
        other = one + rng.normal(size=one.shape) * rng.choice([1e-3, 1.0], 60) / norm
        start = np.linalg.norm(one - other, axis=0)
        shift = (data.gradient_sum(loss, one) - data.gradient_sum(loss, other)) / problem.n + ridge * (
            one - other
        )
        big = constants.smoothness
        for step in (0.5 / big, 1 / big, 2 / (big + ridge), 2 / big, 3 / big):
            end = np.linalg.norm(one - other - step * shift, axis=0)
            assert np.all(end <= constants.contraction(step) * start * (1 + 1e-9))
            assert constants.contraction(step) <= (1 if step <= 2 / big else 2) + 1e-12


def test_the_stated_smoothness_is_needed() -> None:
    # all rows aligned at the bound and scores near 0: twice the stated largest step expands the distance
    problem = Problem(
        loss=Logistic(), bounds=bounds(Logistic(), 10.0), n=4, n_features=1, fit_intercept=False
    )
    data = ArrayDataset([[10.0]] * 4, [0, 1, 0, 1], problem)
    one, other = np.array([[1e-4]]), np.array([[-1e-4]])
    step = 4 / problem.constants.smoothness
    shift = (data.gradient_sum(problem.loss, one) - data.gradient_sum(problem.loss, other)) / 4
    growth = abs(one - other - step * shift).item() / abs(one - other).item()
    assert growth == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("loss", BOUNDED, ids=words)
def test_gradient_sum_is_the_derivative_of_loss_sum(loss: Loss) -> None:
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(30, 3)), rng.choice(labels(loss), 30)
    problem = Problem(loss=loss, bounds=bounds(loss, 1.5, 3.0), n=30, n_features=3)
    data = ArrayDataset(X, y, problem, weights=rng.uniform(-1, 5, 30))
    theta = rng.normal(size=(problem.dimension, 2))
    gradient = data.gradient_sum(loss, theta)
    assert gradient.shape == theta.shape
    for i in range(problem.dimension):
        step = np.zeros_like(theta)
        step[i] = 1e-5
        change = (data.loss_sum(loss, theta + step) - data.loss_sum(loss, theta - step)) / 2e-5
        # 30 records of weight at most 3: one kink per record moves the difference by curvature * step
        np.testing.assert_allclose(
            change, gradient[i], atol=30 * 3 * 5 * loss.curvature_bound * 1e-5 / 10 + 1e-6
        )


def test_clipped_softmax_is_not_monotone_and_is_refused_for_hidden_states() -> None:
    u, w = np.array([-0.305, -2.141, -1.352]), np.array([-6.093, 2.202, 5.964])
    clipped, y = Softmax(n_classes=3, slope_clip=0.2), np.array(0.0)
    fall = (clipped.slope(u, y) - clipped.slope(w, y)) @ (u - w)
    assert fall == pytest.approx(-0.0787, abs=5e-5)
    plain = Softmax(n_classes=3)
    assert (plain.slope(u, y) - plain.slope(w, y)) @ (u - w) > 0
    assert not clipped.convex
    for classes in (2, 3):
        problem = Problem(
            loss=Softmax(n_classes=classes, slope_clip=0.2), bounds=DataBounds(data_norm=1, classes=classes),
            n=10, n_features=2,
        )  # fmt: skip
        assert not problem.constants.convex
        assert problem.constants.contraction(1e-9) == math.inf
        assert problem.constants.lipschitz == pytest.approx(0.2 * math.sqrt(2))
    with pytest.raises(InvalidParameter, match="no value"):
        clipped.value(u, y)
    with pytest.raises(InvalidParameter, match="one score"):
        Clipped(plain, 0.2)


def test_weights_and_intercept_are_never_clipped_apart() -> None:
    # clipping them apart is not a gradient: one record, squared loss, some step below 2/M expands
    x, rng = 1.0, np.random.default_rng(8)

    def apart(theta: np.ndarray) -> np.ndarray:
        slope = theta[0] * x + theta[1] - 0.3
        return np.array([np.clip(slope * x, -0.2, 0.2), np.clip(slope, -1.0, 1.0)])

    pairs = rng.uniform(-1, 1, (4000, 2, 2))
    smoothness = x * x + 1
    growth = [
        np.linalg.norm(a - b - 0.3 * (apart(a) - apart(b))) / np.linalg.norm(a - b) for a, b in pairs
    ]  # fmt: skip
    assert smoothness * 0.3 < 2
    assert max(growth) > 1.001
    # the library multiplies one clipped slope by the joint row, whatever the loss
    for loss in CLIPPED:
        problem = Problem(loss=loss, bounds=bounds(loss, 5.0), n=1, n_features=2)
        data = ArrayDataset([[1.0, -2.0]], [labels(loss)[-1]], problem)
        gradient = data.gradient_sum(loss, rng.normal(size=(3, 5)))
        np.testing.assert_allclose(gradient[:2], np.array([[1.0], [-2.0]]) * gradient[2], atol=1e-15)


@pytest.mark.parametrize("loss", [loss for loss in CONVEX if loss.score_dimension == 1], ids=words)
def test_what_a_loss_states_of_itself(loss: Loss) -> None:
    """Majorant, curvature from below, quadratic part and local bounds, on a grid of scores, steps and labels."""
    here, steps = np.linspace(-6, 6, 49)[:, None, None], np.linspace(-5, 5, 41)[None, :, None]
    y = labels(loss)
    base, slope, bend = loss.value(here, y), loss.slope(here, y), loss.curvature(here, y)
    there = loss.value(here + steps, y)
    slack = 1e-9 * (1 + np.abs(base) + np.abs(there))
    if math.isfinite(loss.majorant_bound):
        flat, column = np.broadcast_arrays(here[:, 0, :], y)
        weights = np.clip(loss.majorant(flat.ravel(), column.ravel()), 0, loss.majorant_bound)
        above = base + slope * steps + weights.reshape(flat.shape)[:, None, :] * steps**2 / 2
        assert (there <= above + slack).all()
        share = loss.min_curvature_ratio(5.0)
        assert (there >= base + slope * steps + share * bend * steps**2 - slack).all()
        if share and not loss.is_quadratic:
            pair = np.hypot(bend[:, 0, :], 2 * (weights.reshape(flat.shape) - bend[:, 0, :]))
            assert (pair <= loss.curvature_bound * (1 + 1e-9)).all()
    near = np.abs(here - y) < loss.quadratic_radius
    assert np.allclose(base[near], (np.broadcast_to((here - y) ** 2 / 2, base.shape))[near])
    largest = float(np.abs(y).max())
    assert (np.abs(slope) <= loss.slope_bound_within(6.0, largest) + 1e-9).all()
    if math.isfinite(loss.slope_bound_within(6.0, largest)):
        limit = loss.difference_bound(np.abs(steps), np.abs(2 * here + steps), largest)
        assert (np.abs(there - base) <= limit + slack).all()
    assert loss.excess((here + steps) * np.ones_like(y), y, base) == pytest.approx(there - base, abs=1e-9)
