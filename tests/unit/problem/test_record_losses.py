"""Losses of whole records: clipped one by one, failures count as zero, and nothing is believed that is not proved."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm as normal

from dplangevin import NoisyGradientSpec, Plan, load_plan, run_plan, save_plan
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, DplangevinError, InvalidParameter
from dplangevin.papers import quadratic_exact
from dplangevin.papers.gallery.noisy_descent import attained_mu
from dplangevin.problem import Ball, Clipped, DataBounds, Logistic, Mean, Problem, RadialHuber, RecordLoss
from dplangevin.problem.losses.record import clip_gradients
from dplangevin.problem.risk import gaussian_smoothing_excess, moreau_excess

BOUNDS = DataBounds(data_norm=2.0, target=(-1.0, 1.0))


class Wild(RecordLoss):
    """Fails in every way, depending on the record."""

    name = "wild"
    gradient_bound = 1.5

    def record_gradient(self, theta: np.ndarray, row: np.ndarray, label: float) -> Any:
        kind = int(row[0] * 10)
        theta += 100.0  # a copy: no other record sees it
        row += 100.0
        if kind == 1:
            raise RuntimeError("a record")
        return {
            2: np.full(2, np.nan),
            3: np.array([np.inf, 0.0]),
            4: np.zeros(7),
            5: np.full(2, 1e300),
            6: "words",
        }.get(kind, np.array([0.3, label]))


def problem(loss: Any, n: int, dimension: int = 2, **options: Any) -> Problem:
    return Problem(loss=loss, bounds=BOUNDS, n=n, n_features=dimension, fit_intercept=False, **options)


def test_failures_count_as_zero_and_records_do_not_meet() -> None:
    rows = np.array([[kind / 10 + 0.01, 0.0] for kind in range(1, 8)])
    labels = np.linspace(-1, 1, 7)
    theta = np.zeros(2)
    found = clip_gradients(Wild(), theta, rows.copy(), labels)
    assert not theta.any()
    assert not found[[0, 1, 2, 3, 5]].any()
    np.testing.assert_allclose(
        found[4], 1.5 / math.sqrt(2), rtol=1e-11
    )  # a huge gradient is clipped, not lost
    np.testing.assert_allclose(found[6], [0.3, 1.0])
    assert (np.linalg.norm(found, axis=1) <= 1.5).all()
    for i in range(7):  # the same whoever stands beside
        alone = clip_gradients(Wild(), theta, rows[i : i + 1].copy(), labels[i : i + 1])
        np.testing.assert_array_equal(alone[0], found[i])


@settings(max_examples=100, deadline=None)
@given(
    arrays(float, (3, 2), elements=st.floats(-1e308, 1e308)),
    arrays(float, 2, elements=st.floats(-1e154, 1e154)),
    st.floats(1e-6, 1e6),
)
def test_no_gradient_is_longer_than_its_bound(rows: np.ndarray, theta: np.ndarray, width: float) -> None:
    found = clip_gradients(RadialHuber(width=width), theta, rows, np.zeros(3))
    assert (np.hypot(found[:, 0], found[:, 1]) <= width).all()


@settings(max_examples=100, deadline=None)
@given(arrays(float, (2, 3), elements=st.floats(-5, 5)), st.floats(0.05, 5.0))
def test_a_radial_clip_keeps_the_gradient_monotone_and_smooth(points: np.ndarray, width: float) -> None:
    """0 <= <g(u) - g(v), u - v> and |g(u) - g(v)| <= |u - v|: what hidden states need."""
    record = np.array([[0.3, -0.2, 0.1]])
    first, second = (
        clip_gradients(RadialHuber(width=width), point, record, np.zeros(1))[0] for point in points
    )
    gap, move = first - second, points[0] - points[1]
    assert gap @ move >= -1e-9
    assert np.linalg.norm(gap) <= np.linalg.norm(move) + 1e-9
    assert gap @ gap <= gap @ move + 1e-9


def test_only_what_is_proved_is_believed() -> None:
    class Claims(Wild):
        convex = True
        curvature_bound = 0.1

    for loss in (Wild(), Claims()):
        constants = problem(loss, 100, ridge=0.1, constraint=Ball(1.0)).constants
        assert (constants.lipschitz, constants.smoothness, constants.convex) == (1.5, math.inf, False)
        assert constants.gradient_sensitivity == 3.0
    known = problem(RadialHuber(width=0.5), 100, ridge=0.1).constants
    assert (known.lipschitz, known.smoothness, known.convex, known.hessian_rank) == (0.5, 1.1, True, None)


def test_a_loss_that_nothing_bounds_is_refused() -> None:
    """A class of one's own states bounds that nothing enforces; gradients of 100 with a bound of 1 were believed."""

    class Own(Logistic):
        def slope(self, score: np.ndarray, y: np.ndarray) -> np.ndarray:
            return np.full(np.shape(score), 100.0)

    for loss in (Own(), Clipped(Own(), 0.5)):
        with pytest.raises(InvalidParameter, match="Subclass RecordLoss"):
            Problem(loss=loss, bounds=DataBounds(data_norm=1.0, classes=2), n=10, n_features=1)


class Loud(RecordLoss):
    """Warns, is complex or ends the program for some records."""

    name = "loud"
    gradient_bound = 1.0

    def record_gradient(self, theta: np.ndarray, row: np.ndarray, label: float) -> Any:
        if row[0] > 1:
            warnings.warn(f"seen: {row}", stacklevel=1)
        if label > 0.5:
            raise SystemExit(3)
        return (theta - row) * (1j if row[0] < -1 else 1)


@pytest.mark.parametrize(("x", "label"), [(1.5, 0.0), (-1.5, 0.0), (0.0, 1.0)])
def test_what_a_record_does_is_not_seen(x: float, label: float) -> None:
    task = problem(Loud(), 10, 1)
    rows, labels = np.zeros((10, 1)), np.zeros(10)
    rows[3], labels[3] = x, label
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release = run_plan(plan(task, n_steps=3), ArrayDataset(rows, labels, task), 0)
    assert np.isfinite(release.value).all()


def test_a_bound_that_grew_since_the_plan_is_refused() -> None:
    class Growing(Wild):
        gradient_bound = 1.0

    task = problem(Growing(), 10)
    made, data = plan(task), ArrayDataset(np.zeros((10, 2)), np.zeros(10), task)
    Growing.gradient_bound = 50.0
    with pytest.raises(InvalidParameter, match="has changed"):
        run_plan(made, data, 0)


def plan(task: Problem, **options: Any) -> Plan:
    fields: dict[str, Any] = {"step_size": 0.5, "noise_std": 0.2, "n_steps": 30} | options
    theorem = fields.pop("theorem", None)
    return Plan(problem=task, spec=NoisyGradientSpec(**fields), delta=1e-6, theorem=theorem)


def test_a_user_loss_runs_and_is_composed() -> None:
    task = problem(Wild(), 200)
    made = plan(task)
    assert made.guarantee.theorem == "composition"
    assert made.guarantee.mu == pytest.approx(math.sqrt(30) * 3 / 200 / 0.2, rel=1e-6)
    with pytest.raises(AssumptionFailed):
        plan(task, theorem="optimal-shift")
    rng = np.random.default_rng(0)
    data = ArrayDataset(rng.uniform(0, 1, (200, 2)), rng.uniform(-1, 1, 200), task)
    release = run_plan(made, data, 3)
    assert np.isfinite(release.value).all()
    hidden = plan(problem(RadialHuber(width=0.5), 200, ridge=0.1))
    assert hidden.guarantee.theorem == "optimal-shift"
    assert any("computed separately" in words for words in made.guarantee.assumptions)


def test_what_needs_scores_refuses_before_anything_is_charged() -> None:
    from dplangevin.mechanisms import OutputPerturbation, OutputPerturbationSpec

    task = problem(RadialHuber(width=0.5), 50, ridge=0.5)
    data = ArrayDataset(np.zeros((50, 2)), np.zeros(50), task)
    certified = Plan(
        problem=task,
        spec=OutputPerturbationSpec(noise="gamma", density_scale=1.0, tolerance=1e-6),
        delta=0.0,
    )
    with pytest.raises(InvalidParameter, match="needs a loss of linear scores"):
        OutputPerturbation().run(certified, data)
    with pytest.raises(InvalidParameter, match="clips its own gradients"):
        Clipped(RadialHuber(width=0.5), 1.0)
    with pytest.raises(InvalidParameter, match="not of a score"):
        Wild().slope(np.zeros(1), np.zeros(1))
    with pytest.raises(InvalidParameter, match="needs a ridge"):
        problem(Mean(), 10)
    with pytest.raises(DplangevinError):
        problem(type("Bad", (Wild,), {"gradient_bound": -1.0})(), 10)


def test_plan_files_know_the_losses_of_the_library_only(tmp_path: Path) -> None:
    made = plan(problem(RadialHuber(width=0.5), 200, ridge=0.1))
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made
    wild = plan(problem(Wild(), 200))
    with pytest.raises(InvalidParameter):
        save_plan(wild, tmp_path / "wild.json")


def test_geometric_median_is_found() -> None:
    """A fifth of the records is far away: the median does not move, the mean does."""
    rng = np.random.default_rng(1)
    rows = rng.normal(0.5, 0.2, (2000, 2))
    rows[:400] = [1.4, -1.4]
    task = problem(RadialHuber(width=0.1), 2000)
    data = ArrayDataset(rows, np.zeros(2000), task)
    value = run_plan(plan(task, step_size=1.0, noise_std=0.002, n_steps=60), data, 0).value
    assert np.linalg.norm(value - 0.5) < 0.15
    assert np.linalg.norm(rows.mean(axis=0) - 0.5) > 0.3


@pytest.mark.parametrize("steps", [1, 10, 100])
def test_the_attained_epsilon_of_a_mean_is_the_claimed_one(steps: int) -> None:
    """|theta - x|^2 / 2 as in Figure 2 of Chourasia, Ye and Shokri: shift and noise of the very code that runs."""
    n, eta, sigma = 5000, 0.02, 0.02
    task = problem(Mean(), n, 3, ridge=1.0)
    spec = NoisyGradientSpec.from_diffusion(step_size=eta, sigma=sigma, n_steps=steps)
    guarantee = Plan(problem=task, spec=spec, delta=1e-6).guarantee
    mu = attained_mu(steps)
    assert guarantee.theorem == ("composition" if steps == 1 else "optimal-shift")
    assert mu <= guarantee.mu <= mu * (1 + 2e-9)  # theorems round up by 1e-9
    exact = quadratic_exact(
        order=10, gradient_sensitivity=4.0, n=n, step_size=eta, sigma=sigma, n_steps=steps
    )
    assert 5 * mu**2 == pytest.approx(exact, rel=1e-9)
    epsilon = guarantee.epsilon()
    delta = normal.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * normal.cdf(-epsilon / mu - mu / 2)
    assert delta == pytest.approx(1e-6, rel=1e-5)


def test_smoothing_costs_what_is_said() -> None:
    """|t| on a grid: the envelope is below by at most L^2 / (2 M), and the Gaussian average above by at most L s."""
    t = np.linspace(-3, 3, 6001)
    for smoothness in (0.5, 2.0, 8.0):
        envelope = np.where(np.abs(t) <= 1 / smoothness, smoothness * t**2 / 2, np.abs(t) - 0.5 / smoothness)
        gap = np.abs(t) - envelope
        assert gap.min() >= -1e-12
        assert gap.max() == pytest.approx(moreau_excess(1.0, smoothness))
        width = 1 / smoothness
        smooth = t * (2 * normal.cdf(t / width) - 1) + 2 * width * normal.pdf(t / width)
        above = smooth - np.abs(t)
        assert above.min() >= -1e-12
        assert above.max() <= gaussian_smoothing_excess(1.0, smoothness, 1)
        assert np.abs(np.diff(smooth, 2)).max() / (t[1] - t[0]) ** 2 <= smoothness * (1 + 1e-3)
