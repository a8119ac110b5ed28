"""The theory of the region: majorants, sensitivities and both certificates against brute force and fixed vectors."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from dplangevin.accounting.conversions import gdp_mu
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.noisy_answers.curvature import pack_symmetric, unpack_symmetric
from dplangevin.mechanisms.rashomon_region.objective import (
    Ellipsoid,
    RegionObjective,
    certified_scales,
    clipped_excess_sums,
    inner_radius,
    majorant_curvature,
    majorant_sum,
)
from dplangevin.mechanisms.rashomon_region.planning import (
    _curvature_spec,
    _slack_spec,
    center_epsilon,
    noise_eigenvalue_bound,
    plan_region,
)
from dplangevin.mechanisms.rashomon_region.spec import SlackSpec, SlackTheorem
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import (
    Clipped,
    DataBounds,
    Huber,
    Logistic,
    Loss,
    Poisson,
    Problem,
    Sigmoid,
    SmoothedHinge,
    SmoothedPinball,
    Softmax,
    Squared,
)
from dplangevin.rashomon import interval_capacity, rashomon_capacity

ROWS = np.array(
    [[0.6, 0.2], [-0.5, 0.4], [0.1, -0.9], [0.7, 0.7], [-0.3, -0.6], [0.9, 0], [0, 0.8], [-0.8, 0.1]]
)
LABELS = np.array([1.0, 0, 1, 1, 0, 1, 0, 0])
RIDGE, CENTRE, PSI = 0.01, np.array([1.5, -0.5]), 0.02
LOSSES: list[tuple[Loss, tuple[float, ...]]] = [
    (Logistic(), (0.0, 1.0)),
    (Clipped(Logistic(), 0.6), (0.0, 1.0)),
    (Squared(), (-1.0, 0.3)),
    (Clipped(Squared(), 0.7), (-1.0, 0.3)),
    (Huber(transition=0.4), (-1.0, 0.5)),
    (SmoothedHinge(width=0.8), (0.0, 1.0)),
    (SmoothedPinball(quantile=0.7, width=0.3), (-0.4, 0.9)),
    (Clipped(Poisson(target_bound=9.0), 3.0), (0.0, 2.0, 9.0)),
]


def problem(loss: Loss, n: int, columns: int, adjacency: str = "replace-one") -> Problem:
    bounds = DataBounds(data_norm=1.0, classes=2)
    if loss.label_range[1] > 1:
        bounds = DataBounds(data_norm=1.0, target=(0.0, 9.0) if isinstance(loss, Clipped) else (-1.0, 1.0))
    if isinstance(loss, Softmax):
        bounds = DataBounds(data_norm=1.0, classes=loss.n_classes)
    used = Clipped(loss, 5.0) if isinstance(loss, Squared) else loss
    return Problem(
        loss=used,
        bounds=bounds,
        n=n,
        n_features=columns,
        fit_intercept=False,
        adjacency=adjacency,  # type: ignore[arg-type]
    )


def objective(
    loss: Loss, n: int, columns: int, ridge: float = 0.0, adjacency: str = "replace-one"
) -> RegionObjective:
    return RegionObjective.from_problem(problem(loss, n, columns, adjacency), loss, ridge)


def data(loss: Loss, X: np.ndarray, y: np.ndarray, adjacency: str = "replace-one") -> ArrayDataset:
    return ArrayDataset(X, y, problem(loss, len(X), X.shape[1], adjacency))


def value(theta: np.ndarray) -> float:
    return float(Logistic().value(ROWS @ theta, LABELS).mean() + RIDGE / 2 * theta @ theta)


@pytest.mark.parametrize(("loss", "labels"), LOSSES, ids=[repr(loss) for loss, _ in LOSSES])
def test_a_parabola_lies_above_every_loss_and_touches_it(loss: Loss, labels: tuple[float, ...]) -> None:
    steps = np.linspace(-40, 40, 40_001)
    steps = steps[np.abs(steps) > 1e-3]
    sharpest = 0.0
    for label in labels:
        for t in np.concatenate([np.linspace(-6, 6, 49), [-15.0, 15.0]]):
            here = np.array([t])
            weight = float(majorant_curvature(loss, here, np.array([label]))[0])
            slope = float(loss.slope(here, np.array([label]))[0])
            bend = loss.value(t + steps, np.full(len(steps), label)) - loss.value(here, np.array([label]))[0]
            needed = 2 * (bend - slope * steps) / steps**2
            assert weight <= loss.majorant_bound
            assert needed.max() <= weight * (1 + 1e-6) + 1e-7  # cancellation at short steps
            sharpest = max(sharpest, float(needed.max()) / weight)
    assert sharpest > (0.6 if isinstance(loss, Clipped) else 0.99)


def test_a_cap_at_the_largest_count_would_be_no_majorant() -> None:
    loss, label = Clipped(Poisson(target_bound=9.0), 3.0), np.array([9.0])
    here, step = np.array([math.log(11.0)]), 0.05
    bend = loss.value(here + step, label) - loss.value(here, label) - step * loss.slope(here, label)
    assert 2 * bend[0] / step**2 > 9.0


def test_boehnings_matrix_lies_above_softmax() -> None:
    rng, loss = np.random.default_rng(0), Softmax(n_classes=4)
    bound = 0.5 * (np.eye(4) - 0.25)
    for _ in range(400):
        score, step = 4 * rng.standard_normal(4), 5 * rng.standard_normal(4)
        label = np.array(rng.integers(4))
        rise = loss.value(score + step, label) - loss.value(score, label) - step @ loss.slope(score, label)
        assert rise <= step @ bound @ step / 2 + 1e-12


def test_fixed_vectors_of_the_noise() -> None:
    for epsilon, mu in {
        0.5: 0.14221055866926,
        1: 0.26805112321129,
        2: 0.50155168916966,
        4: 0.92493089766694,
    }.items():
        assert gdp_mu(epsilon, 1e-5) == pytest.approx(mu, rel=1e-9)
    known = [0.25, 0.24491866240371, 0.23105857863000, 0.19039853898894, 0.15085804227414, 0.09866142981514]
    scores = np.array([0, 0.5, 1, 2, 3, 5.0])
    assert majorant_curvature(Logistic(), scores, scores) == pytest.approx(known, rel=1e-12)
    mu, adult = gdp_mu(1.0, 1e-5), objective(Logistic(), 32_561, 50)
    deviation = _curvature_spec(adult, math.sqrt(0.2) * mu).groups[0].scale / adult.n
    assert deviation == pytest.approx(9.05783995968790e-05, rel=1e-8)
    assert noise_eigenvalue_bound(deviation, 50, 0.05) == pytest.approx(0.00112749698651, rel=1e-8)
    other = objective(Logistic(), 32_561, 50, adjacency="add-remove")
    assert _curvature_spec(other, math.sqrt(0.2) * mu).groups[0].scale / adult.n == pytest.approx(
        6.40486005839780e-05, rel=1e-8
    )
    assert _slack_spec(adult, math.sqrt(0.3) * mu).scale / adult.n == pytest.approx(
        4.18363707120189e-04, rel=1e-8
    )


def test_fixed_vectors_of_a_small_table() -> None:
    assert value(CENTRE) == pytest.approx(0.4068926281336, rel=1e-11)
    records, of = data(Logistic(), ROWS, LABELS), objective(Logistic(), 8, 2, RIDGE)
    matrix = unpack_symmetric(majorant_sum(records, of, CENTRE)) / 8
    known = [[0.08559362248986, 0.01312465328200], [0.01312465328200, 0.08638211411358]]
    assert matrix + RIDGE * np.eye(2) == pytest.approx(np.array(known), rel=1e-11)
    shape = Ellipsoid.from_matrix(matrix, 0.0, RIDGE, 1)
    x, radius = np.array([[0.3, -0.4]]), math.sqrt(2 * PSI)
    end = shape.row_directions(x)
    assert radius * (x @ end).item() == pytest.approx(0.36927845835020, rel=1e-11)
    assert (0.65**2 / (2 * shape.inverse_norms(x)))[0] == pytest.approx(0.06196532913196, rel=1e-11)
    sides = np.column_stack([end, -end])
    points = CENTRE[:, None] + radius * sides
    ends = np.array([[1.9674537094, -1.0726058638], [1.0325462906, 0.0726058638]])
    assert np.allclose(points.T, ends, rtol=1e-9)
    limits = of.loss_difference_bounds(CENTRE, points)[None]
    assert limits[0] == pytest.approx([0.7391822818] * 2, rel=1e-9)
    sums = clipped_excess_sums(records, of, CENTRE, sides, np.array([radius]), limits)
    excess = sums * limits[0] / 8 + of.penalty_difference(CENTRE, points)
    assert excess == pytest.approx([-0.05149193956059, 0.08732868543550], rel=1e-10)
    assert ((excess - PSI) / limits[0]).max() == pytest.approx(0.09108536161327, rel=1e-10)
    assert certified_scales(0.03, np.array([PSI]), limits)[0] == pytest.approx([0.4742093149] * 2, rel=1e-9)
    best = value(np.array([4.2212055777, -1.2137542236]))
    assert best == pytest.approx(0.26084129848811, rel=1e-12)
    bound = (radius / math.sqrt(2) + math.sqrt(value(CENTRE) - best)) ** 2
    assert bound == pytest.approx(0.27414437461897, rel=1e-9)
    assert all(value(point) - best <= bound for point in points.T)


def test_fixed_vectors_of_the_whole_ellipsoid_and_the_capacity() -> None:
    assert inner_radius(0.002, 0.02, best=True) ** 2 / 2 == pytest.approx(0.00935088935933, rel=1e-11)
    assert inner_radius(0.002, 0.02, best=False) == pytest.approx(0.14651621643066, rel=1e-11)
    assert inner_radius(0.03, 0.02, best=True) == 0
    assert interval_capacity([0.2, 0.05, 0.4], [0.7, 0.4, 0.4]) == pytest.approx(
        [0.1912381383143, 0.1422596705582, 0.0], rel=1e-11
    )
    low, high = np.sort(np.random.default_rng(0).random((2, 30)), axis=0)
    tables = np.stack([np.stack([1 - p, p], axis=1) for p in (low, (low + high) / 2, high)])
    assert 2 ** interval_capacity(low, high) == pytest.approx(rashomon_capacity(tables), rel=1e-5)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_no_neighbour_moves_the_curvature_further_than_its_reach(adjacency: str) -> None:
    rng, worst = np.random.default_rng(1), 0.0
    reach = (
        _curvature_spec(objective(Logistic(), 1, 3, adjacency=adjacency), 1.0)
        .groups[0]
        .sensitivity("gaussian", adjacency)
    )  # type: ignore[arg-type]
    for trial in range(3000):
        centre = rng.standard_normal(3) * rng.choice([0.0, 0.1, 3.0, 30.0])
        pair = rng.standard_normal((2, 3))
        pair /= np.linalg.norm(pair, axis=1, keepdims=True)
        if trial % 2:  # at right angles
            pair[1] -= pair[0] * (pair[0] @ pair[1])
            pair[1] /= np.linalg.norm(pair[1])
        terms = [
            majorant_curvature(Logistic(), x[None] @ centre, np.zeros(1))[0] * np.outer(x, x) for x in pair
        ]
        move = terms[0] - terms[1] if adjacency == "replace-one" else terms[0]
        worst = max(worst, float(np.linalg.norm(pack_symmetric(move))) / reach)
    assert 0.9 < worst <= 1


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("loss", [Logistic(), Squared(), Huber(transition=0.4)], ids=lambda loss: loss.name)
def test_no_neighbour_moves_the_slack_further_than_its_reach(loss: Loss, adjacency: str) -> None:
    rng, worst = np.random.default_rng(2), 0.0
    of = objective(loss, 3, 2, adjacency=adjacency)
    reach = _slack_spec(of, 1.0).sensitivity
    top = max(map(abs, problem(loss, 3, 2).bounds.label_range))
    for trial in range(400):
        centre = rng.standard_normal(2) * 10.0 ** rng.uniform(-1, 2.5)
        points = centre[:, None] * (1 + rng.choice([-0.5, 0.5], 3)) + 0.1 * rng.standard_normal((2, 3))
        along = centre / np.linalg.norm(centre)
        across = np.array([-along[1], along[0]])
        rows = rng.standard_normal((4, 2))
        rows[2], rows[3] = along, -along
        if trial % 2:  # one step across: a slope of +1 on one record, of -1 on the other
            points = (centre + across * 10.0 ** rng.uniform(-2, 0))[:, None]
            tilt = 10.0 ** rng.uniform(-2, 0)
            rows[2], rows[3] = across + tilt * along, across - tilt * along
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        labels = rng.choice([0.0 if loss.label_range[0] == 0 else -top, top], 4)
        if trial % 2:
            labels[2:] = labels[2:].min(), top
            labels[2] = 0.0 if loss.label_range[0] == 0 else -top
        limits = of.loss_difference_bounds(centre, points)[None]
        totals = []
        for kept in ([0, 1, 2], [0, 1, 3] if adjacency == "replace-one" else [0, 1]):
            records = (
                data(loss, rows[kept], labels[kept], adjacency)
                if len(kept) == 3
                else ArrayDataset(rows[kept], labels[kept], problem(loss, 3, 2, adjacency))
            )
            steps = points - centre[:, None]
            sums = clipped_excess_sums(records, of, centre, steps, np.ones(1), limits)
            totals.append((sums - 3 * 0.01 / limits[0]).max())
        worst = max(worst, abs(totals[0] - totals[1]) / reach)
    assert 0.9 < worst <= 1


def test_huge_centres_keep_the_bound() -> None:
    of = objective(Logistic(), 2, 1)
    centre, steps = np.array([1e12]), np.array([[0.5, -0.5]])
    limits = of.loss_difference_bounds(centre, centre[:, None] + steps)[None]
    records = data(Logistic(), np.array([[1.0], [-1.0]]), np.array([1.0, 0.0]))
    assert (np.abs(clipped_excess_sums(records, of, centre, steps, np.ones(1), limits)) <= 2).all()


def test_the_slack_pays_for_two_records_under_replace_one() -> None:
    assert SlackSpec(unit=1.0, scale=1.0, adjacency="replace-one").sensitivity == 2
    assert SlackSpec(unit=1.0, scale=1.0, adjacency="add-remove").sensitivity == 1
    gentle, rough = (
        SlackTheorem().certify(None, SlackSpec(unit=1.0, scale=scale, adjacency="replace-one")).mu
        for scale in (4.0, 2.0)
    )
    assert gentle == pytest.approx(0.5, rel=1e-8)
    assert rough == pytest.approx(1.0, rel=1e-8)


def cloud(loss: Loss, seed: int, n: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, columns))
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    y = (X[:, 0] + 0.5 * rng.standard_normal(n) > 0).astype(float)
    return X, y


@pytest.mark.parametrize(("n", "seed"), [(30, 0), (500, 1)])
def test_every_reported_point_is_in_the_set_as_often_as_stated(n: int, seed: int) -> None:
    """4,000 redraws: the statement holds in at least .95 - 3 standard errors of them (false alarm 1e-3)."""
    rng, redraws, psi = np.random.default_rng(seed), 4000, np.array([0.01, 0.05])
    X, y = cloud(Logistic(), seed, n, 2)
    of, records = objective(Logistic(), n, 2, RIDGE), data(Logistic(), X, y)
    centre = rng.standard_normal(2)
    shape = Ellipsoid.from_matrix(0.03 * np.eye(2), 0.0, RIDGE, 1)
    ends = shape.row_directions(rng.standard_normal((4, 2)))
    steps, lengths = np.column_stack([ends, -ends, shape.sample_uniform(4, rng)]), np.sqrt(2 * psi)
    points = [centre[:, None] + length * steps for length in lengths]
    limits = np.array([of.loss_difference_bounds(centre, block) for block in points])
    penalties = np.array([of.penalty_difference(centre, block) for block in points])
    sums = clipped_excess_sums(records, of, centre, steps, lengths, limits).reshape(limits.shape)
    exact = (sums / n + (penalties - psi[:, None]) / limits).max()
    deviation = 0.3 * max(abs(exact), 0.02)
    taus = exact + deviation * (rng.standard_normal(redraws) + 1.6448536269514722)

    def excess(theta: np.ndarray) -> np.ndarray:
        values = Logistic().value(X @ theta, y[:, None]).mean(axis=0) + RIDGE / 2 * (theta**2).sum(axis=0)
        return np.asarray(values - (Logistic().value(X @ centre, y).mean() + RIDGE / 2 * centre @ centre))

    bound = statement = 0
    for tau in taus:
        shrunk = certified_scales(float(tau), psi, limits)
        inside = all(
            (excess(centre[:, None] + length * part * steps) <= level + 1e-12).all()
            for length, part, level in zip(lengths, shrunk, psi, strict=True)
        )
        bound += tau >= exact
        statement += inside
    assert statement >= bound
    assert statement / redraws >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / redraws)


def test_the_whole_ellipsoid_is_as_good_as_stated_around_any_centre() -> None:
    rng, worst = np.random.default_rng(3), 0.0
    X, y = cloud(Logistic(), 3, 60, 3)
    of, records = objective(Logistic(), 60, 3, RIDGE), data(Logistic(), X, y)

    def excess(theta: np.ndarray) -> np.ndarray:
        return np.asarray(
            Logistic().value(X @ theta, y[:, None]).mean(axis=0) + RIDGE / 2 * (theta**2).sum(axis=0)
        )

    from scipy.optimize import minimize

    best = minimize(lambda theta: float(excess(theta[:, None])[0]), np.zeros(3), tol=1e-12).fun
    for _ in range(200):
        centre = rng.standard_normal(3) * 10 ** rng.uniform(-1, 1)
        matrix = unpack_symmetric(majorant_sum(records, of, centre)) / 60 + RIDGE * np.eye(3)
        gap = float(excess(centre[:, None])[0]) - best
        root = np.linalg.inv(np.linalg.cholesky(matrix)).T
        z = rng.standard_normal((3, 200))
        radius = 10 ** rng.uniform(-1.5, 1)
        steps = radius * root @ (z / np.linalg.norm(z, axis=0))
        bound = (radius / math.sqrt(2) + math.sqrt(gap)) ** 2
        worst = max(worst, float((excess(centre[:, None] + steps) - best).max()) / bound)
    assert 0.8 < worst <= 1 + 1e-9


def plans(**changes: object) -> tuple[object, RegionObjective]:
    options: dict[str, object] = {
        "model": "logistic", "n": 500, "n_features": 3, "epsilon": center_epsilon(1.0, 1e-5), "delta": 1e-5,
        "adjacency": "replace-one", "data_norm": 1.0, "fit_intercept": False, **changes,
    }  # fmt: skip
    centre = plan_fit(**options).plan
    return centre, RegionObjective.from_problem(centre.problem, Logistic(), 0.0)


@pytest.mark.parametrize("mechanism", ["noisy-gd", "objective-perturbation", "output-perturbation"])
@pytest.mark.parametrize("best", [False, True])
def test_the_composed_guarantee_is_the_asked_one_whatever_the_centre_guarantees(
    mechanism: str, best: bool
) -> None:
    centre, of = plans(mechanism=mechanism)
    plan = plan_region(centre, of, thresholds=(0.05,), epsilon=1.0, delta=1e-5, best=best)  # type: ignore[arg-type]
    assert plan.guarantee.epsilon(1e-5) <= 1.0
    assert plan.guarantee.epsilon(1e-5) > 0.97
    assert plan.guarantee.at_delta == 1e-5
    parts = [plan.center, plan.curvature, plan.slack, *([plan.gap] if plan.gap else [])]
    total = sum((part.guarantee for part in parts[1:]), parts[0].guarantee)
    assert total.epsilon(1e-5) == plan.guarantee.epsilon(1e-5)


def test_a_pure_centre_counted_as_gaussian_would_break_the_guarantee() -> None:
    centre, of = plans(mechanism="objective-perturbation", delta=1e-5)
    assert centre.guarantee.mu is None  # type: ignore[attr-defined]
    honest = plan_region(centre, of, thresholds=(0.05,), epsilon=1.0, delta=1e-5)  # type: ignore[arg-type]
    mu = gdp_mu(1.0, 1e-5)
    wrong = centre.guarantee + SlackTheorem().certify(  # type: ignore[attr-defined]
        None, SlackSpec(unit=1.0, scale=2 / (math.sqrt(0.5) * mu), adjacency="replace-one")
    )
    assert wrong.epsilon(1e-5) > 1.1
    assert honest.guarantee.epsilon(1e-5) <= 1.0


def test_what_cannot_be_planned_is_refused() -> None:
    centre, of = plans()
    with pytest.raises(InvalidParameter, match="RashomonSampler"):
        plan_region(centre, of, thresholds=(0.05,), epsilon=1.0, delta=0.0)  # type: ignore[arg-type]
    with pytest.raises(CalibrationFailed):
        plan_region(plans(mechanism="output-perturbation", delta=0.0)[0], of, thresholds=(0.05,), epsilon=0.3,
                    delta=1e-5)  # type: ignore[arg-type]  # fmt: skip
    with pytest.raises(AssumptionFailed, match="not convex"):
        objective(Sigmoid(), 10, 2)


def test_more_records_and_more_budget_widen_the_expected_region() -> None:
    made = []
    for n in (2_000, 8_000, 32_000):
        centre, of = plans(n=n)
        made.append(plan_region(centre, of, thresholds=(0.05,), epsilon=1.0, delta=1e-5))  # type: ignore[arg-type]
    assert all(a.expected_scale(0.05) < b.expected_scale(0.05) for a, b in pairwise(made))
    assert all(a.min_threshold > b.min_threshold for a, b in pairwise(made))
    assert made[0].expected_scale(made[0].min_threshold) == pytest.approx(0.5, rel=1e-9)
