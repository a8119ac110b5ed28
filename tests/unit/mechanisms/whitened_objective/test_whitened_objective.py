"""Whitened objective perturbation: noise with the claimed law, bounds on the code that runs, budget, routes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy import stats

from dplangevin import DPLogisticRegression, DPRidge, Ledger, plan_fit
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset, ArraySource, Dataset, ScratchDataset
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exact_gradient import public_row_grid
from dplangevin.mechanisms.mechanism import NoiseDraws, run_plan
from dplangevin.mechanisms.newton import TiltedObjective
from dplangevin.mechanisms.perturbation.spec import ObjectivePerturbationTheorem, gamma_minimizer_cost
from dplangevin.mechanisms.whitened.whitening import second_moment_sum
from dplangevin.mechanisms.whitened_objective import mechanism as rows_module, mechanism as running
from dplangevin.mechanisms.whitened_objective.mechanism import (
    WhitenedDataset,
    make_whitened_dataset,
    minimize_perturbed,
    moment_spectrum,
    release_second_moment,
    whiten_and_weight,
    whitening_basis,
)
from dplangevin.mechanisms.whitened_objective.spec import (
    WhitenedObjectiveSpec,
    WhitenedObjectiveTheorem,
    whitened_constants,
)
from dplangevin.planner.fit_plan import Request
from dplangevin.planner.rules import PURE_EDGE_FACTOR, PureMomentBudget
from dplangevin.problem import Ball, Clipped, DataBounds, Huber, Logistic, Problem, Softmax, Squared
from dplangevin.sampling.float_noise import sample_wishart_difference

ADJACENCIES = pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])


def stated(**changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "model": "logistic", "n": 20_000, "n_features": 20, "epsilon": 1.0, "delta": 0.0,
        "adjacency": "add-remove", "data_norm": 1.0, "fit_intercept": False, "secure": False,
    }  # fmt: skip
    return options | changes


def make_spec(**changes: Any) -> WhitenedObjectiveSpec:
    options: dict[str, Any] = {
        "moment_density_scale": 0.05, "ridge": 0.1, "density_scale": 2.0, "tolerance": 1e-6,
        "release_density_scale": 1e-3,
    }  # fmt: skip
    return WhitenedObjectiveSpec(**(options | changes))


def seeded(seed: int) -> NoiseDraws:
    rng = np.random.default_rng(seed)
    return NoiseDraws(rng=rng, source=rng.bytes)


def problem(loss: Any = None, n: int = 6, p: int = 2, **changes: Any) -> Problem:
    chosen = loss or Logistic()
    labels: dict[str, Any] = {"target": (-1, 1)} if isinstance(chosen, Huber | Clipped) else {"classes": 2}
    if isinstance(chosen, Softmax):
        labels = {"classes": chosen.n_classes}
    bounds = DataBounds(
        data_norm=changes.pop("data_norm", 1.0), weight_bound=changes.pop("weight", 1.0), **labels
    )
    return Problem(loss=chosen, bounds=bounds, n=n, n_features=p,
                   fit_intercept=changes.pop("fit_intercept", False), **changes)  # fmt: skip


# sensitivities, on the code that runs

SETTINGS = [
    (loss, weight, intercept, norm)
    for loss in (Logistic(), Clipped(Squared(), 0.5), Softmax(n_classes=3))
    for weight, intercept, norm in ((1.0, False, 1.0), (0.3, True, 5.0), (7.0, False, 0.2))
]


@ADJACENCIES
@pytest.mark.parametrize(("loss", "weight", "intercept", "norm"), SETTINGS)
def test_one_record_moves_what_is_released_by_no_more_than_is_claimed(
    adjacency: str, loss: Any, weight: float, intercept: bool, norm: float
) -> None:
    """Whatever T, theta, rows out of bounds and weights out of range are; and nearly that much where it can be."""
    rng = np.random.default_rng(3)
    of = problem(loss, 8, 3, weight=weight, fit_intercept=intercept, data_norm=norm, adjacency=adjacency)
    constants, columns, classes = of.constants, of.n_columns, loss.score_dimension
    labels = (
        rng.integers(0, 3, 400) % getattr(loss, "n_classes", 2)
        if not isinstance(loss, Clipped)
        else rng.uniform(-2, 2, 400)
    )
    largest = np.zeros(3)
    for k in range(60):
        rows = 3 * norm * rng.standard_normal((8, 3)) * rng.choice([0.05, 1.0])
        if k % 3 == 0:
            rows[:2] = 9 * norm * np.eye(3)[:2]
        loads, y = rng.uniform(-1, 3 * weight, 8), labels[k : k + 8].astype(float)
        loads[:2] = 3 * weight
        basis = rng.standard_normal((columns, columns)) * rng.choice([1e-8, 0.7, 40.0, 1e9], (1, columns))
        theta = rng.standard_normal(columns * classes) * rng.choice([0.0, 1.0, 1e3]) / norm
        sides = [np.r_[0, 2:8], np.r_[1, 2:8]] if adjacency == "replace-one" else [np.r_[0, 2:8], np.r_[2:8]]
        smaller = problem(
            loss, 7, 3, weight=weight, fit_intercept=intercept, data_norm=norm, adjacency=adjacency
        )
        data = [ArrayDataset(rows[s], y[s], smaller, loads[s]) for s in sides]
        moments = [d.sum_over_blocks(second_moment_sum, None) for d in data]
        made = make_whitened_dataset if k % 2 else WhitenedDataset
        q = [TiltedObjective(data=made(d, basis), ridge=0.0, tilt=np.zeros(len(theta))) for d in data]
        largest = np.maximum(largest, [
            np.abs(np.linalg.eigvalsh(moments[0] - moments[1])).sum(),
            np.linalg.norm(q[0].gradient(theta) - q[1].gradient(theta)) / constants.gradient_sensitivity,
            max(np.abs(np.linalg.eigvalsh(q[0].hessian(theta) - q[1].hessian(theta)))) / constants.data_smoothness,
        ])  # fmt: skip
    assert largest[0] <= (2 if adjacency == "replace-one" else 1) * (1 + 1e-9)
    assert (largest[1:] <= 1 + 1e-7).all()
    assert largest[0] > (0.9 if adjacency == "add-remove" or not intercept else 1.0)
    assert largest[1] > 0.25


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e-9, 1.0, 1e9, 1e160, 1e300, math.inf, math.nan])
def test_no_row_is_longer_than_its_weight_allows(scale: float) -> None:
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((200, 4)) * np.geomspace(1, 1e-5, 4)
    with np.errstate(invalid="ignore"):
        basis = rng.standard_normal((4, 4)) * scale
    weights, z = whiten_and_weight(rows, basis, 0.5)
    assert ((weights >= 0) & (weights <= 1)).all()
    assert np.isfinite(z[weights > 0]).all()
    assert (weights * np.einsum("ij,ij->i", z, z) <= 0.25 * (1 + 1e-12)).all()
    alone, _ = whiten_and_weight(rows[7:8], basis, 0.5)
    assert alone[0] == pytest.approx(weights[7], rel=1e-9)


@pytest.mark.parametrize("made", [make_whitened_dataset, WhitenedDataset])
def test_long_rows_are_not_summed_by_moments(made: Any) -> None:
    """A whitened row may be longer than the bound of the problem, so that a clip may be active where the shortcut of
    squared losses thinks that none is."""
    of = problem(Clipped(Squared(), 2.0), 1, 1)
    data = made(ArrayDataset([[1.0]], [-1.0], of), np.array([[10.0]]))
    for _ in range(20):  # of one object, which would remember
        found = Dataset.gradient_sum(data, of.loss, np.array([[0.9]]))[0, 0]
    assert found == pytest.approx(0.01 * 10 * 2.0)  # weight, row, clipped slope (10 * .9 + 1 = 10)


def test_rows_made_once_are_those_made_at_every_pass() -> None:
    """Single precision, weights and two blocks; what is larger than memory allows is made block by block."""
    rng, of = np.random.default_rng(11), problem(n=5000, p=3, weight=2.0)
    X, y = rng.standard_normal((5000, 3)).astype(np.float32), rng.integers(0, 2, 5000)
    data, basis = ArrayDataset(X, y, of, rng.uniform(0, 3, 5000)), 4 * rng.standard_normal((3, 3))
    kept, anew = make_whitened_dataset(data, basis), WhitenedDataset(data, basis)
    assert isinstance(kept, ArrayDataset)
    assert not kept.within_bounds
    assert data.within_bounds
    for one, other in zip(kept.blocks(), anew.blocks(), strict=True):
        for given, made in zip(one, other, strict=True):
            np.testing.assert_array_equal(given, made)
    with mock.patch.object(rows_module, "MAX_BYTES_IN_MEMORY", 8 * 5000 * 3 - 1):
        assert isinstance(make_whitened_dataset(data, basis), WhitenedDataset)
    with mock.patch.object(ArrayDataset, "with_transformed_rows", side_effect=MemoryError):
        assert isinstance(make_whitened_dataset(data, basis), WhitenedDataset)
    theta = rng.standard_normal(3)
    found = [TiltedObjective(data=d, ridge=1.0, tilt=theta) for d in (kept, anew)]
    for what in ("value", "gradient", "hessian"):
        np.testing.assert_allclose(*(getattr(phi, what)(theta) for phi in found), rtol=1e-12, atol=1e-9)


@ADJACENCIES
def test_density_ratios_of_the_minimiser_stay_within_the_claim(adjacency: str) -> None:
    """nu(-grad Phi) det Hessian at the same q for neighbours, exactly, in both directions: T stretched, so that the
    record is far beyond the bound before its weight. A Huber loss, curved on one side and straight on the other,
    reaches nine tenths of the claim."""
    rng, of, ridge = np.random.default_rng(5), problem(Huber(transition=0.2), 1, 2, adjacency=adjacency), 1.5
    ran = make_spec(ridge=ridge, density_scale=0.5, release_density_scale=1e9)
    claim = (
        ObjectivePerturbationTheorem()
        .certify(whitened_constants(of.constants, ridge), ran.objective_spec)
        .epsilon()
    )
    largest = 0.0
    for k in range(10):
        row, basis = rng.uniform(-1, 1, (1, 2)), rng.standard_normal((2, 2)) * np.array([3.0, 0.5])
        z = row @ basis if k else 20 * row  # a long one first
        basis = basis if k else 20 * np.eye(2)
        scores = np.linspace(-0.99, 0.99, 23) if k else 20 * np.linspace(-0.99, 0.99, 23)
        for y in (1.0, 0.55):
            sides = [ArrayDataset(row, [y], of), ArrayDataset(row, [-1.0], of)]
            if adjacency == "add-remove":
                sides[1] = ArrayDataset(np.zeros((0, 2)), [], of)
            logs = []
            for data in sides:
                phi = TiltedObjective(data=make_whitened_dataset(data, basis), ridge=ridge, tilt=np.zeros(2))
                points = [score * z[0] / (z @ z.T).item() for score in scores]
                logs.append(
                    [
                        -np.linalg.norm(phi.gradient(q)) / 0.5 + np.linalg.slogdet(phi.hessian(q))[1]
                        for q in points
                    ]
                )
            largest = max(largest, np.abs(np.subtract(*logs)).max())
    assert 0.9 * claim < largest <= claim


def objective_of(ran: WhitenedObjectiveSpec, data: Dataset, basis: np.ndarray) -> TiltedObjective:
    """What the mechanism minimises, without its tilt."""
    with mock.patch.object(
        running, "minimize_certified", return_value=np.zeros(data.problem.dimension)
    ) as solver:
        minimize_perturbed(ran, data, basis, seeded(0))
    return replace(solver.call_args.args[0], tilt=np.zeros(data.problem.dimension))


def exact_objective_of(ran: WhitenedObjectiveSpec, data: Dataset, basis: np.ndarray) -> TiltedObjective:
    """The ideal objective of an exact run, without its tilt, in the units of the records."""
    with mock.patch.object(
        running, "release_minimizer", return_value=np.zeros(data.problem.dimension)
    ) as solver:
        minimize_perturbed(ran, data, basis, seeded(0))
    ideal = solver.call_args.args[0]
    factor = float(ideal.ridge) / ideal.rough.ridge
    limited = ideal.data.with_weights(lambda _, block: block.weights * factor)
    zero = np.zeros(data.problem.dimension)
    return replace(ideal.rough, data=limited, ridge=float(ideal.ridge), tilt=zero)


def joint_ratio(adjacency: str, model: str, *, secure: bool = False) -> float:
    """The largest log ratio of the joint density of moment and minimiser over what the plan claims, one column, exact:
    a Laplace density for the moment, then nu(-grad Phi) det Hessian of the objective that runs at this moment."""
    plan = plan_fit(**stated(model=model, n=40, n_features=1, epsilon=8.0, data_norm=50.0, weight_bound=4.0,
                           adjacency=adjacency, mechanism="whitened-objective", secure=secure,
                           )).plan  # fmt: skip
    assert plan.spec.secure == secure
    ran, largest, replaced = plan.spec, 0.0, adjacency == "replace-one"
    assert isinstance(ran, WhitenedObjectiveSpec)
    points = np.concatenate([s * np.geomspace(1e-4, 1e2, 9) for s in (-1, 1)] + [[0.0]]) / 50
    for first, second in ((1e9, 0.0), (1e9, -1e9), (-1e9, 15.0), (0.5, 1e9)):
        sides = []
        for last, label in ((first, 1.0), (second, -1.0 if model == "ridge" else 0.0))[
            : 2 if replaced else 1
        ]:
            X, y = np.zeros((40, 1)), np.append(np.zeros(39), label)
            X[36:, 0] = -30.0, 4.0, 70.0, last
            sides.append(ArrayDataset(X, y, plan.problem, np.full(40, 9.0)))
        if not replaced:
            sides.append(ArrayDataset(X[:39], y[:39], plan.problem, np.full(39, 9.0)))
        if secure:
            sides = [data.with_rounded_rows(public_row_grid(plan.problem)) for data in sides]
        with (
            mock.patch.object(running, "sample_wishart_difference", return_value=0.0),
            mock.patch.object(running, "add_rounded_wishart_noise", lambda whole, *_: whole.astype(float)),
        ):
            means = [float(release_second_moment(ran, data, seeded(0))[0, 0]) for data in sides]
        for seen in [-1e3, -1.0, 1e-3, 0.3, 1.0, 4.0, *means]:
            basis = whitening_basis(moment_spectrum(ran, np.array([[seen]])))
            ratio = (abs(seen - means[1]) - abs(seen - means[0])) / ran.moment_density_scale
            phis = [(exact_objective_of if secure else objective_of)(ran, data, basis) for data in sides]
            for q in points[:, None]:
                one, other = (
                    -abs(phi.gradient(q)[0]) / ran.density_scale + math.log(phi.hessian(q)[0, 0])
                    for phi in phis
                )
                largest = max(largest, abs(ratio + one - other))
    return largest / plan.guarantee.epsilon()


@ADJACENCIES
@pytest.mark.parametrize("model", ["logistic", "ridge"])
def test_joint_density_ratios_stay_within_the_claim(adjacency: str, model: str) -> None:
    """From raw cells far out of bounds, weights above theirs, and a plan as it is made; with rows that no weight bounds
    after whitening they exceed it."""
    assert 0.25 < joint_ratio(adjacency, model) <= 1
    with mock.patch.object(
        rows_module, "whiten_and_weight", lambda rows, T, bound: (np.ones(len(rows)), rows @ T)
    ):
        assert joint_ratio(adjacency, model) > 1


@ADJACENCIES
@pytest.mark.parametrize("model", ["logistic", "ridge"])
def test_joint_density_ratios_of_exact_runs_stay_within_the_claim(adjacency: str, model: str) -> None:
    """The same of whole moments and limits; with limits that bound nothing they exceed it."""
    assert 0.25 < joint_ratio(adjacency, model, secure=True) <= 1
    full = mock.patch.object(
        rows_module, "limit_squares", lambda _, block, grid, __: np.full(len(block.rows), grid.max_limit)
    )
    with full:
        assert joint_ratio(adjacency, model, secure=True) > 1


# the guarantee


@ADJACENCIES
def test_the_shares_add_up_to_the_budget(adjacency: str) -> None:
    for more in ({}, {"fit_intercept": True, "data_norm": 7.0, "weight_bound": 3.0}, {"model": "ridge"}):
        exact = plan_fit(
            **stated(adjacency=adjacency, mechanism="whitened-objective", **more) | {"secure": True}
        ).plan
        assert 1 - 1e-6 < exact.guarantee.epsilon() <= 1.0
        plan = plan_fit(**stated(adjacency=adjacency, mechanism="whitened-objective", **more)).plan
        assert isinstance(exact.spec, WhitenedObjectiveSpec)
        assert isinstance(plan.spec, WhitenedObjectiveSpec)
        ran, constants = plan.spec, plan.problem.constants
        assert isinstance(ran, WhitenedObjectiveSpec)
        moment, rest = (part.pure_epsilon() for part in plan.guarantee.parts)
        assert moment == pytest.approx(0.2, rel=1e-6)
        assert 1 - 1e-6 < moment + rest <= 1.0
        assert plan.guarantee.epsilon() == pytest.approx(moment + rest, rel=1e-12)
        sides = 2 if adjacency == "replace-one" else 1
        assert moment == pytest.approx(sides / (20_000 * ran.moment_density_scale), rel=1e-6)
        inner = whitened_constants(constants, ran.ridge)
        solver = 2 * ran.tolerance / (20_000 * ran.ridge * ran.release_density_scale)
        assert rest == pytest.approx(gamma_minimizer_cost(inner, ran.density_scale) + solver, rel=1e-7)
        assert constants.gradient_sensitivity == pytest.approx(sides * constants.lipschitz)
        separate = constants.gradient_sensitivity / ran.density_scale + math.log1p(
            constants.data_smoothness / (20_000 * ran.ridge)
        )
        is_logistic = more.get("model") != "ridge"
        assert (rest - solver < separate * (1 - 1e-4)) == is_logistic
        # an exact run has nothing that hides the solver, so its noise takes that share as well
        assert gamma_minimizer_cost(inner, exact.spec.density_scale) == pytest.approx(rest, rel=1e-7)


def test_hypotheses_are_refused_by_name() -> None:
    of = problem(n=100)
    theorem = WhitenedObjectiveTheorem()
    for changes in ({"ridge": 0.1}, {"constraint": Ball(1.0)}):
        with pytest.raises(AssumptionFailed, match="ridge or a radius"):
            theorem.certify(problem(n=100, **changes).constants, make_spec())
    assert theorem.certify(of.constants, make_spec()).epsilon() > 0
    for changes, words in (
        ({"alpha": 0.1}, "neither ridge nor radius"),
        ({"radius": 1.0}, "neither ridge nor radius"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            plan_fit(**stated(mechanism="whitened-objective", **changes))


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "whitened-objective"),
        ({"model": "ridge"}, "whitened-objective"),
        ({"delta": 1e-6}, "whitened-gd"),
        ({"alpha": 0.01}, "objective-perturbation"),
        ({"radius": 3.0}, "objective-perturbation"),
        ({"theorem": "objective-perturbation"}, "objective-perturbation"),
        ({"theorem": "whitened-objective-perturbation"}, "whitened-objective"),
        ({"mechanism": "objective-perturbation"}, "objective-perturbation"),
        ({"model": "huber"}, "objective-perturbation"),
        ({"n": 300, "epsilon": 0.1}, "objective-perturbation"),  # the moment would show nothing
        ({"n": 300, "epsilon": 0.1, "mechanism": "whitened-objective"}, "whitened-objective"),
        ({"delta": 1e-6, "mechanism": "whitened-objective"}, "whitened-objective"),
    ],
)
def test_the_route_is_public(changes: dict[str, Any], kind: str) -> None:
    fit_plan = plan_fit(**stated(**changes))
    assert fit_plan.plan.spec.mechanism == kind
    assert fit_plan.plan.guarantee.epsilon() <= fit_plan.plan.guarantee.epsilon(0.0) * (1 + 1e-12)
    assert ("second-moment matrix" in str(fit_plan)) == (kind.startswith("whitened"))


@pytest.mark.parametrize(("n", "share"), [(20_000, 0.2), (2700, 0.1)])
def test_the_edge_is_that_of_the_noise_of_the_plan(n: int, share: float) -> None:
    """A fifth of epsilon where records are many, else a tenth."""
    ran, look = plan_fit(**stated(n=n)).plan.spec, PureMomentBudget.for_request(Request(**stated(n=n)))
    assert isinstance(ran, WhitenedObjectiveSpec)
    assert look.budget_fraction == share
    assert look.edge(share) == pytest.approx(PURE_EDGE_FACTOR * 21 * ran.moment_density_scale, rel=1e-6)
    found = moment_spectrum(ran, np.eye(20) / 20)
    assert found.edge == pytest.approx(PURE_EDGE_FACTOR * 21 * ran.moment_density_scale)
    basis = whitening_basis(found)
    assert np.trace(basis.T @ (found.vectors * found.values) @ found.vectors.T @ basis) == pytest.approx(1.0)
    np.testing.assert_allclose(
        (basis**2).sum(axis=0) * found.values**0.5,
        (basis**2).sum(axis=0)[0] * found.values[0] ** 0.5,
    )


def test_each_noise_is_drawn_where_the_proof_has_it() -> None:
    """Without records: the moment is its noise, the minimiser -b / Lambda and a little noise. Bounds: 5 deviations."""
    of = problem(n=4, adjacency="add-remove")
    ran = make_spec(ridge=0.5, tolerance=1e-9)
    data, rng = ArrayDataset(np.zeros((0, 2)), [], of), np.random.default_rng(6)
    draws = NoiseDraws(rng=rng)
    moments = np.array([release_second_moment(ran, data, draws) for _ in range(2000)])
    assert np.abs(moments).mean(axis=0)[0, 0] / 0.05 == pytest.approx(np.abs(
        [sample_wishart_difference(2, 1.0, rng)[0, 0] for _ in range(2000)]).mean(), rel=0.12)  # fmt: skip
    found = np.array([minimize_perturbed(ran, data, np.eye(2), draws) for _ in range(400)])
    lengths = np.linalg.norm(found, axis=1) * 2.0 / 2.0  # Lambda over the scale: Gamma(2)
    assert stats.kstest(lengths, stats.gamma(2).cdf).pvalue > 1e-4
    blurred = np.array([
        minimize_perturbed(make_spec(ridge=0.5, density_scale=1e-12, release_density_scale=3.0), data, np.eye(2), draws)
        for _ in range(400)
    ])  # fmt: skip
    assert stats.kstest(np.linalg.norm(blurred, axis=1) / 3.0, stats.gamma(2).cdf).pvalue > 1e-4


def scales(n: int, p: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((n, p - 1)) * np.geomspace(1, 0.03, p - 1)
    scores = (raw / raw.std(axis=0)) @ rng.standard_normal(p - 1)
    X = np.column_stack([raw, np.ones(n)])
    return X / np.linalg.norm(X, axis=1).max(), (
        rng.random(n) < 1 / (1 + np.exp(-2 * scores / scores.std()))
    ).astype(float)


def test_unequal_scales_cost_less_than_without_the_moment() -> None:
    """12,000 x 8 at epsilon 2, scales over a decade and a half, three draws: the excess over .40 falls by half."""
    X, y = scales(16_000, 8, 7)
    loss, rest, found = Logistic(), slice(12_000, None), {}
    for mechanism in ("auto", "objective-perturbation"):
        plan = plan_fit(**stated(n=12_000, n_features=8, epsilon=2.0, mechanism=mechanism)).plan
        data = ArrayDataset(X[:12_000], y[:12_000], plan.problem)
        found[mechanism] = np.mean(
            [loss.value(X[rest] @ run_plan(plan, data, s).value, y[rest]).mean() for s in range(3)]
        )
    best = plan_fit(**stated(n=12_000, n_features=8, epsilon=1000.0)).plan
    least = loss.value(
        X[rest] @ run_plan(best, ArrayDataset(X[:12_000], y[:12_000], best.problem), 0).value, y[rest]
    ).mean()
    assert found["auto"] - least < 0.5 * (found["objective-perturbation"] - least)


def test_an_estimator_charges_what_it_says_and_keeps_the_geometry(tmp_path: Any) -> None:
    X, y = scales(3000, 5, 8)
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("table", epsilon=9.0, delta=0.0)
    model = DPLogisticRegression(
        epsilon=2.0, delta=0.0, data_norm=1.0, classes=[0, 1], random_state=0, ledger=budget
    ).fit(X, y)
    assert 9.0 - budget.remaining().pure_epsilon == pytest.approx(model.privacy_.epsilon(), rel=1e-9)
    model.set_params(ledger=None)
    assert model.privacy_.theorem == "whitened-objective-perturbation"
    assert set(model.geometry_) == {"resolved", "excess_risk"}  # no floating-point sum
    assert "second-moment matrix, released once" in str(model.plan_)
    people = DPLogisticRegression(
        epsilon=2.0, delta=0.0, data_norm=1.0, classes=[0, 1], random_state=0, max_rows_per_person=2
    ).fit(X, y)
    assert people.privacy_.epsilon() <= 2.0
    assert people.plan_.plan.guarantee.epsilon() <= 1.0
    with pytest.raises((AssumptionFailed, InvalidParameter), match="random_state"):
        model.set_params(mechanism="whitened-objective", secure=True).fit(X, y)
    model.set_params(random_state=None).fit(X, y)
    assert model.privacy_.arithmetic == "discrete-grid"


def test_sample_weights_scale_the_tilt_and_not_the_moment() -> None:
    X, y = scales(4000, 6, 9)
    options: dict[str, Any] = {
        "epsilon": 2.0,
        "delta": 0.0,
        "data_norm": 1.0,
        "target_bounds": (0, 1),
        "random_state": 0,
    }
    made: list[Any] = []
    with mock.patch.object(
        running, "release_second_moment", lambda *of: made.append(release_second_moment(*of)) or made[-1]
    ):
        plain = DPRidge(**options).fit(X, y)
        weighted_fit = DPRidge(**options, weight_bound=3.0).fit(X, y, sample_weight=np.full(4000, 3.0))
    one, three = plain.plan_.plan.spec, weighted_fit.plan_.plan.spec
    assert three.density_scale == pytest.approx(3 * one.density_scale, rel=1e-9)
    assert three.moment_density_scale == one.moment_density_scale
    np.testing.assert_allclose(*made)
    np.testing.assert_allclose(
        plain.coef_, weighted_fit.coef_, rtol=1e-4, atol=1e-6
    )  # equal weights change nothing


def test_a_plan_for_another_number_of_scores() -> None:
    """Three classes: one T for all of them, and coefficients in the layout of the problem."""
    rng = np.random.default_rng(10)
    X = rng.uniform(-1, 1, (3000, 3)) * np.array([1.0, 0.3, 0.1])
    y = np.argmax(X @ rng.standard_normal((3, 3)) + 0.05 * rng.standard_normal((3000, 3)), axis=1).astype(
        float
    )
    fit_plan = plan_fit(**stated(model="multinomial", n_classes=3, n=3000, n_features=3, data_norm=1.1, epsilon=50.0,
                             mechanism="whitened-objective"))  # fmt: skip
    plan: Plan = fit_plan.plan
    found = run_plan(plan, ArrayDataset(X, y, plan.problem), 0).value.reshape(3, 3)
    assert (np.argmax(X @ found, axis=1) == y).mean() > 0.9


def test_exact_fits_are_the_same_bits_in_any_order_and_place(tmp_path: Any) -> None:
    """Rows in another order, in single precision and in files, with weights; floating-point fits differ."""
    X, y = scales(3000, 5, 12)
    X, loads, order = (
        X.astype(np.float32),
        np.random.default_rng(0).uniform(0.1, 2.0, 3000),
        np.arange(3000)[::-1],
    )
    for secure in (True, False):
        plan = plan_fit(**stated(n=3000, n_features=5, weight_bound=2.0, secure=secure)).plan
        values = [
            run_plan(plan, data, 5).value
            for data in (
                ArrayDataset(X, y, plan.problem, loads),
                ArrayDataset(X[order].astype(float), y[order], plan.problem, loads[order]),
                ScratchDataset(ArraySource(X, y, loads), plan.problem, folder=str(tmp_path)),
            )
        ]
        assert all(np.array_equal(values[0], each) for each in values) == secure
