"""Exact regions: whole sums whatever the order, one record's share, replays of neighbours, and their twins."""

from __future__ import annotations

import warnings
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from dplangevin import DPLogisticRegression, DPPoissonRegressor
from dplangevin.accounting.plan import public_noise_grid
from dplangevin.audit import replay
from dplangevin.audit.replay import ReplayResult
from dplangevin.data import ArrayDataset
from dplangevin.data.integer_grids import RowGrid, snap_point, to_integers
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms import exact_minimizer
from dplangevin.mechanisms.rashomon_region import (
    mechanism,
    minimizers,
    objective as objective_module,
    planning,
)
from dplangevin.mechanisms.rashomon_region.objective import (
    RegionObjective,
    clipped_excess_sums,
    exact_majorant_and_hessian_sums,
    exact_majorant_sum,
    majorant_sum,
)
from dplangevin.mechanisms.rashomon_region.spec import CONTRIBUTION_STEP
from dplangevin.problem import Clipped, DataBounds, Logistic, Problem, Softmax, Squared
from dplangevin.rashomon import RashomonRegion
from dplangevin.sampling.exact_noise import gaussian_density_scale

LOSSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "logistic": (Logistic(), {"classes": 2}),
    "squared": (Clipped(Squared(), 1.5), {"target": (-1.0, 1.0)}),
    "softmax": (Softmax(n_classes=3), {"classes": 3}),
}
N = 500


def make_records(
    name: str, seed: int = 0
) -> tuple[ArrayDataset, RegionObjective, RowGrid, np.random.Generator]:
    loss, labels = LOSSES[name]
    rng = np.random.default_rng(seed)
    problem = Problem(
        loss=loss, bounds=DataBounds(data_norm=1.3, **labels), n=N, n_features=3, fit_intercept=False,
        adjacency="replace-one",
    )  # fmt: skip
    rows = rng.standard_normal((N, 3))
    y = rng.integers(0, labels["classes"], N).astype(float) if "classes" in labels else rng.uniform(-1, 1, N)
    data = ArrayDataset(rows, y, problem)
    grid = RowGrid(row_norm=problem.row_norm)
    return data.with_rounded_rows(grid), RegionObjective.from_problem(problem, loss, 0.0), grid, rng


def shuffle(data: Any, order: np.ndarray) -> ArrayDataset:
    return data._copy_with(_rows=np.ascontiguousarray(data._rows[order]), _labels=data._labels[order])


@pytest.mark.parametrize("name", LOSSES)
def test_sums_are_whole_and_have_no_order(name: str) -> None:
    """They agree with the sums in floating point, and a record adds no more than its share."""
    data, objective, grid, rng = make_records(name)
    shape = (objective.n_columns, objective.n_classes)
    center = snap_point(rng.standard_normal(shape), grid)
    words = exact_majorant_sum(data, objective, center, grid)
    other = shuffle(data, rng.permutation(N))
    assert np.array_equal(words, exact_majorant_sum(other, objective, center, grid))
    unit = objective.loss.majorant_bound * grid.unit**2
    packed = majorant_sum(data, objective, center.ravel())
    whole = to_integers(words)
    assert np.allclose(unit * np.diag(whole), packed[[0, 3, 5]], rtol=1e-4)
    alone = shuffle(data, np.array([7]))
    alone.n_samples = 1
    one = to_integers(exact_majorant_sum(alone, objective, center, grid)).astype(object)
    assert np.trace(one) <= grid.max_square  # of v v' it is the norm
    directions = mechanism._snap_columns(rng.standard_normal((objective.dimension, 9)), objective, grid)
    lengths, limits = np.array([0.1, 1.0]), np.full((2, 9), 0.2)
    given = (objective, center.ravel(), directions, lengths, limits)
    steps = clipped_excess_sums(data, *given, CONTRIBUTION_STEP)
    assert steps.dtype == np.int64
    assert np.array_equal(steps, clipped_excess_sums(other, *given, CONTRIBUTION_STEP))
    real = clipped_excess_sums(data, *given)
    assert (steps * CONTRIBUTION_STEP >= real - 1e-9).all()  # rounded up: a slack stays an upper bound
    assert (steps * CONTRIBUTION_STEP <= real + N * CONTRIBUTION_STEP + 1e-9).all()
    assert (np.abs(clipped_excess_sums(alone, *given, CONTRIBUTION_STEP)) <= 1 / CONTRIBUTION_STEP).all()


def make_tables() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    X = rng.uniform(-0.5, 0.5, (N, 2))
    y = (X @ [4.0, -2.0] + rng.logistic(size=N) > 0).astype(int)
    other, flipped = X.copy(), y.copy()
    X[0], y[0] = [0.7, 0.7], 1
    other[0], flipped[0] = [-0.7, 0.7], 0
    return [(X, y), (other, flipped)]


PARTS: dict[str, dict[str, Any]] = {
    "slack": {},
    "gap": {"reference": "best"},
    "outer": {"outer": True},
    "flips": {"flip_shares": (0.2, 0.5)},
}


def fit_region(data: Any, random_state: Any, part: str = "slack", **changes: Any) -> RashomonRegion:
    estimator = DPLogisticRegression(data_norm=1.0, classes=[0, 1], fit_intercept=False, **changes)
    region = RashomonRegion(
        estimator, thresholds=(0.05, 0.2), epsilon=3.0, delta=1e-5, n_models=4, random_state=random_state,
        public_inputs=np.random.default_rng(1).uniform(-0.5, 0.5, (10, 2)), **PARTS[part],
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return region.fit(*data)


def replay_region(part: str = "slack") -> ReplayResult:
    """A region on both tables with the same releases: all that is stored is compared bit by bit."""
    first, second = make_tables()
    guarantee = fit_region(first, 0, part).privacy_
    assert guarantee.arithmetic == "discrete-grid"
    return replay(
        lambda data, rng: vars(fit_region(data, rng, part).release_), first, second, guarantee=guarantee
    )


@pytest.mark.parametrize("part", PARTS)
def test_a_neighbour_moves_no_release_by_more_than_is_charged_and_nothing_else(part: str) -> None:
    result = replay_region(part)
    assert result.refutation is None
    assert result.attained_fraction > 0.2


def test_exact_gap_and_levels_agree_with_those_in_floating_point() -> None:
    """Noise apart: the same statements with the noise of another run."""
    data = make_tables()[0]
    for part in ("gap", "flips", "outer"):
        exact, real = (fit_region(data, 0, part, secure=secure) for secure in (None, False))
        assert (exact.privacy_.arithmetic, real.privacy_.arithmetic) == ("discrete-grid", "real")
        plan = exact.plan_
        if part == "gap":
            bound = 6 * plan.gap_noise_std + 0.02
            assert abs(exact.release_.gap - real.release_.gap) < bound
        elif part == "flips":
            for one, other in zip(exact.flip_levels_, real.flip_levels_, strict=True):
                assert one.low <= other.high
                assert other.low <= one.high
        else:
            assert exact.release_.gradient is not None
            unit = plan.objective.row_norm / N
            away = exact.release_.gradient - real.release_.gradient
            assert np.abs(away).max() < 12 * unit * plan.gradient.spec.scale + 0.2


@pytest.mark.parametrize("slip", ["contributions", "noise", "low bits"])
def test_slips_are_caught(slip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if slip == "contributions":
        monkeypatch.setattr(mechanism, "clipped_excess_sums", lambda *of: 60 * clipped_excess_sums(*of))
    elif slip == "noise":
        add = mechanism.add_rounded_noise
        monkeypatch.setattr(
            mechanism,
            "add_rounded_noise",
            lambda whole, unit, scale, p, source: add(whole, unit, scale / 60, p, source),
        )
    else:
        snap = mechanism.RegionRelease
        monkeypatch.setattr(
            mechanism,
            "RegionRelease",
            lambda **parts: snap(**parts | {"slack": parts["slack"] + 1e-15 * LEAK[0]}),
        )
        real = mechanism.exact_majorant_sum

        def leak(*given: Any) -> Any:
            LEAK[0] = int(real(*given)[1, 0, 0])
            return real(*given)

        monkeypatch.setattr(mechanism, "exact_majorant_sum", leak)
    assert replay_region().refutation is not None


LEAK = [0]


@pytest.mark.parametrize("part", ["gap", "outer", "flips"])
def test_slips_of_the_other_parts_are_caught(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contributions that are too large, and noise that is too small."""
    if part == "outer":
        add = mechanism.add_rounded_gaussian_noise
        monkeypatch.setattr(
            mechanism, "add_rounded_gaussian_noise", lambda w, e, d, source: add(w, e, d / 60, source)
        )
    else:
        name = "excess_totals"
        module = mechanism if part == "gap" else planning
        totals = minimizers.excess_totals
        monkeypatch.setattr(module, name, lambda *of: 1e5 * totals(*of))
    assert replay_region(part).refutation is not None


def test_slack_and_majorant_lie_on_public_grids() -> None:
    """In exact regions, and not in those in floating point."""
    data = make_tables()[0]
    exact, real = fit_region(data, 0), fit_region(data, 0, secure=False)
    assert exact.privacy_.arithmetic == "discrete-grid"
    assert real.privacy_.arithmetic == "real"
    plan, release = exact.plan_, exact.release_
    unit = plan.objective.loss.majorant_bound * RowGrid(row_norm=plan.objective.row_norm).unit ** 2
    grid = public_noise_grid(gaussian_density_scale(plan.curvature_sum_noise_std / unit))
    for region, is_on_grid in ((exact, True), (real, False)):
        steps = np.diag(region.release_.matrix) * plan.objective.n / (unit * grid)
        assert (np.abs(steps - np.rint(steps)) < 1e-5).all() == is_on_grid
    slack = (release.slack - plan.noise_quantile * plan.slack_noise_std) * N / CONTRIBUTION_STEP
    assert abs(slack - round(slack)) < 1e-4


def test_what_has_no_exact_form_is_refused_or_reported() -> None:
    data = make_tables()[0]
    for more in ({"reference": "best"}, {"outer": True}, {"flip_shares": (0.2,)}):
        region = RashomonRegion(
            DPLogisticRegression(data_norm=1.0, classes=[0, 1], secure=True), thresholds=0.2,
            epsilon=3.0, delta=1e-5, public_inputs=data[0][:5], **more,  # type: ignore[arg-type]
        )  # fmt: skip
        assert region.plan(N, 2).guarantee.arithmetic == "discrete-grid"
    counts = RashomonRegion(
        DPPoissonRegressor(data_norm=1.0, target_bounds=(0, 5), secure=True), thresholds=0.2,
        epsilon=3.0, delta=1e-5, public_inputs=data[0][:5], reference="best",
    )  # fmt: skip
    with pytest.raises(InvalidParameter, match="secure=True has no proof for this region"):
        counts.plan(N, 2)
    with pytest.raises(InvalidParameter, match="random_state"):
        fit_region(data, 0, secure=True)
    assert fit_region(data, None, secure=True).privacy_.arithmetic == "discrete-grid"


def test_a_pair_of_curvatures_has_the_norm_of_one() -> None:
    """|v|^4 + |w|^4 <= row_norm^4 in Python integers, for rows at the bound and scores of all sizes."""
    data, objective, grid, rng = make_records("logistic")
    rows = np.eye(3)[rng.integers(0, 3, N)] * objective.row_norm
    data = data._copy_with(_rows=rows).with_rounded_rows(grid)
    most = 0
    for size in (0.0, 0.3, 1.0, 3.0, 30.0):
        center = snap_point(np.array([[size], [-size], [size / 3]]), grid)
        for k in range(3):
            alone = shuffle(data, np.array([k]))
            alone.n_samples = 1
            words = exact_majorant_and_hessian_sums(alone, objective, center, grid)
            v, w = to_integers(words).astype(object)
            squares = int(np.trace(v)) ** 2 + int(np.trace(w)) ** 2
            assert squares <= grid.max_square**2
            most = max(most, squares)
    assert most > 0.9999 * grid.max_square**2
    # weights that are too large do not pass the check
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objective_module, "PAIR_WEIGHT", 20.0)
        center = snap_point(np.full((3, 1), 2.0), grid)
        assert not to_integers(exact_majorant_and_hessian_sums(data, objective, center, grid)).any()


def test_a_minimum_is_within_its_tolerance_on_every_table() -> None:
    """The computed excess against one in 40 digits, for adversarial tables; crude gradients are caught."""
    worst = {False: 0.0, True: 0.0}
    for crude in worst:
        for seed in range(4):
            rng = np.random.default_rng(seed)
            data, objective, _, _ = make_records("logistic", seed)
            if seed % 2:  # all records alike, so that the minimum is on the edge of the ball
                data = data._copy_with(_rows=np.full((N, 3), 0.7), _labels=np.ones(N))
            rho, center = 2.0, rng.standard_normal(3) / 3
            limit = float(objective.loss_difference_bounds(center, center[:, None] + rho / 3**0.5)[0])
            tolerance = 0.05 * limit / N
            steps = int(np.ceil(rho * np.sqrt(2 * objective.smoothness / tolerance)))
            assert minimizers.rounding_error(objective, center, rho, steps, limit) < 1e-3
            with pytest.MonkeyPatch.context() as patch:
                if crude:
                    rough = minimizers._mean_gradients
                    patch.setattr(minimizers, "_mean_gradients", lambda *of, rough=rough: rough(*of) + 0.02)

                def project(moves: np.ndarray, rho: float = rho) -> np.ndarray:
                    return moves * min(1.0, rho / max(float(np.linalg.norm(moves)), 1e-300))

                found = minimizers.minimize_near(
                    data, objective, center, np.zeros((3, 1)), project, rho, steps
                )
            total = float(minimizers.excess_totals(data, objective, center, found, limit)[0])
            best = float(minimum_near(data, objective, center, rho)) * N / limit
            assert total > best - minimizers.ROUNDING_TOLERANCE
            worst[crude] = max(worst[crude], total - best)
    assert worst[False] < 0.05 + minimizers.ROUNDING_TOLERANCE
    assert worst[True] > 0.06


def minimum_near(data: Any, objective: RegionObjective, center: np.ndarray, rho: float) -> float:
    """min F(c + d) - F(c) within rho, by another solver."""

    def value(d: np.ndarray) -> float:
        return float(objective.loss.value(data._rows @ (center + d), data._labels).mean())

    ball = {"type": "ineq", "fun": lambda d: rho**2 - d @ d}
    runs = [
        minimize(value, start, constraints=[ball], method="SLSQP", options={"ftol": 1e-15, "maxiter": 1000})
        for start in (np.zeros(3), np.full(3, rho / 2), np.full(3, -rho / 2))
    ]
    inside = [run.fun for run in runs if run.x @ run.x <= rho**2 * (1 + 1e-9)]
    return float(min(inside) - value(np.zeros(3)))


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_values_are_within_their_bound_whatever_the_library(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against decimals, with a logarithm that is wrong by a tenth."""
    right, rng = np.log, np.random.default_rng(0)
    monkeypatch.setattr(exact_minimizer.np, "log", lambda values: 0.9 * right(values) + 0.01)
    loss = LOSSES[name][0]
    scores = rng.choice([0.0, 1e-12, 0.3, 5.0, 40.0, 300.0], (60, 3)) * rng.choice([-1, 1], (60, 3))
    labels = rng.integers(0, loss.score_dimension if name == "softmax" else 2, 60).astype(float)
    given = scores if name == "softmax" else scores[:, 0]
    found = exact_minimizer.enclosed_losses(loss, given, labels)
    with localcontext(Context(prec=60)):
        for k, label in enumerate(labels):
            own = [Decimal(float(s)) for s in np.atleast_1d(given[k])]
            if name == "softmax":
                true = sum(s.exp() for s in own).ln() - own[int(label)]
            else:
                true = (1 + own[0].exp()).ln() - Decimal(label) * own[0]
            assert abs(Decimal(float(found[k])) - true) <= Decimal(2.0**-46) * (1 + max(map(abs, own)))
