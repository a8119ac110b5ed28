"""Exact regions: whole sums whatever the order, one record's share, replays of neighbours, and their twins."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from dplangevin import DPLogisticRegression
from dplangevin.accounting.theorem import public_noise_grid
from dplangevin.audit import replay
from dplangevin.audit.replay import ReplayResult
from dplangevin.data import ArrayDataset
from dplangevin.data.integer_grids import RowGrid, snap_point, to_integers
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.rashomon_region import mechanism
from dplangevin.mechanisms.rashomon_region.objective import (
    RegionObjective,
    clipped_excess_sums,
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


def fit_region(data: Any, random_state: Any, **changes: Any) -> RashomonRegion:
    estimator = DPLogisticRegression(data_norm=1.0, classes=[0, 1], fit_intercept=False, **changes)
    region = RashomonRegion(
        estimator, thresholds=(0.05, 0.2), epsilon=3.0, delta=1e-5, n_models=4, random_state=random_state,
        public_inputs=np.random.default_rng(1).uniform(-0.5, 0.5, (10, 2)),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return region.fit(*data)


def replay_region() -> ReplayResult:
    """A region on both tables with the same releases: all that is stored is compared bit by bit."""
    first, second = make_tables()
    guarantee = fit_region(first, 0).privacy_
    return replay(lambda data, rng: vars(fit_region(data, rng).release_), first, second, guarantee=guarantee)


def test_a_neighbour_moves_no_release_by_more_than_is_charged_and_nothing_else() -> None:
    result = replay_region()
    assert result.refutation is None
    assert result.attained_fraction > 0.2


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
        with pytest.raises(InvalidParameter, match="secure=True has no proof for this region"):
            region.plan(N, 2)
    with pytest.raises(InvalidParameter, match="random_state"):
        fit_region(data, 0, secure=True)
    assert fit_region(data, None, secure=True).privacy_.arithmetic == "discrete-grid"
