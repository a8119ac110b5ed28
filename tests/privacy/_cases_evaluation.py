"""Scores, choices and curvatures. Every neighbouring pair attains the claimed sensitivity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.data import ArrayDataset
from dplangevin.estimators import _scoring
from dplangevin.estimators._posterior import plan_with_intervals
from dplangevin.estimators._scoring import Scoring
from dplangevin.estimators.evaluation import private_score
from dplangevin.estimators.uncertainty import run_with_intervals
from dplangevin.mechanisms.noisy_answers.curvature import _exact_sums
from dplangevin.mechanisms.noisy_answers.mechanism import NoisyMax, NoisySums
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, calibrate_noisy_max, calibrate_noisy_sums
from dplangevin.planner.fit_plan import Request
from privacy._case import Case, Draw


class Model:
    """Says class 1 with probability x."""

    classes_ = np.array([0, 1])

    def predict(self, X: Any) -> np.ndarray:
        return (np.asarray(X)[:, 0] > 0.5).astype(int)

    def predict_proba(self, X: Any) -> np.ndarray:
        score = np.asarray(X)[:, 0]
        return np.column_stack([1 - score, score])


def runs_of(
    plan: NoisySumsSpec, neighbours: tuple[list[np.ndarray], list[np.ndarray]], factor: float
) -> Draw:
    """Noisy sums scored by the likelihood ratio (geometric noise), or projected on the direction that differs."""
    weaker = replace(plan, groups=tuple(replace(group, scale=group.scale / factor) for group in plan.groups))
    run = certify_spec(weaker)

    def ratio(values: Any) -> float:
        total = 0.0
        for v, a, b, group in zip(values, *neighbours, plan.groups, strict=True):
            gain = np.abs(v - a) - np.abs(v - b) if plan.noise == "geometric" else v * (b - a) / group.scale
            total += float(np.sum(gain)) / group.scale
        return total

    def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        seed = None if plan.secure else rng
        return np.array(
            [ratio(NoisySums().run(run, lambda: neighbours[side], seed).values) for _ in range(runs)]
        )

    return draw


def certify_spec(spec: Any) -> CertifiedSpec:
    return CertifiedSpec(spec=spec, delta=1e-6 if getattr(spec, "noise", "") == "gaussian" else 0.0)


def exact(plan: NoisySumsSpec, neighbours: tuple[list[np.ndarray], list[np.ndarray]]) -> float:
    """epsilon (mu) of this pair over the claim: how far the sums move, in units of the noise."""
    order = 1 if plan.noise == "geometric" else 2
    moves = [
        float(np.linalg.norm(np.ravel(b - a), order)) / group.scale
        for a, b, group in zip(*neighbours, plan.groups, strict=True)
    ]
    if plan.noise == "gaussian":
        return float(np.linalg.norm(moves)) / (certify_spec(plan).guarantee.mu or np.nan)
    return sum(moves) / certify_spec(plan).guarantee.epsilon(0.0)


def sums(name: str, words: str, plan: Any, neighbours: Any, *, two: bool = False) -> Case:
    word = "sensitivity without 2" if two else "noise / 2"
    return Case(
        name=name,
        configuration=words,
        covers=("NoisySums",),
        claim=certify_spec(plan).guarantee,
        honest=runs_of(plan, neighbours, 1.0),
        broken_variants={word: runs_of(plan, neighbours, 2.0)},
        exact_ratio=exact(plan, neighbours),
        runs=1500 if plan.secure else 4000,
    )


def losses(metric: str, adjacency: str, *, secure: bool = False, delta: float = 0.0) -> Case:
    scoring = Scoring(metric=metric, adjacency=adjacency)
    best, worst = np.array([0.0, 0.3, 0.6]), np.array([1.0, 0.3, 0.6])
    if adjacency == "add-remove":
        best = best[1:]
    plan = scoring.plan_release(1.0, delta, 1, secure=secure).spec
    return sums(
        f"private score, {metric}",
        adjacency + (", secure" if secure else "") + (", Gaussian" if plan.noise == "gaussian" else ""),
        plan,
        (scoring.loss_sums(best), scoring.loss_sums(worst)),
        two=adjacency == "replace-one",
    )


def histogram(adjacency: str) -> Case:
    """Half the noise: under replace-one, that of someone who forgot that two counts move."""
    edges = _scoring.bin_edges(4)
    X, y = np.array([[0.1], [0.9], [0.4]]), np.array([0, 1, 1])
    other_X, other_y = X[1:], y[1:]
    if adjacency == "replace-one":
        other_X, other_y = np.array([[0.95], [0.9], [0.4]]), np.array([1, 1, 1])
    plan = calibrate_noisy_sums([(8, 1, 1.0)], epsilon=1.0, noise="geometric", adjacency=adjacency)  # type: ignore[arg-type]
    size = 2 * (len(edges) - 1)
    found = [
        np.bincount(_scoring.score_cells(Model(), *rows, edges), minlength=size).reshape(2, -1)
        for rows in ((X, y), (other_X, other_y))
    ]
    return sums(
        "histogram of scores", adjacency, plan, ([found[0]], [found[1]]), two=adjacency == "replace-one"
    )


def selection(adjacency: str, *, secure: bool = False) -> Case:
    """From a tie: candidate 0 then has to overcome a gap of 2 (or 1), and exp(-gap / scale) is attained."""
    plan = calibrate_noisy_max(candidates=2, unit=1, epsilon=2.0, adjacency=adjacency, secure=secure)  # type: ignore[arg-type]
    totals = [np.array([5.0, 5.0]), np.array([4.0, 6.0] if adjacency == "replace-one" else [5.0, 6.0])]

    def draw(factor: float) -> Draw:
        run = certify_spec(replace(plan, scale=plan.scale / factor))

        def wins(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
            seed = None if secure else rng
            return np.array(
                [NoisyMax().run(run, lambda: [totals[side]], seed).values[0][0] for _ in range(runs)]
            )

        return wins

    return Case(
        name="private selection (noisy max)",
        configuration=f"two candidates, a tie, {adjacency}{', secure' * secure}",
        covers=("NoisyMax",),
        claim=certify_spec(plan).guarantee,
        honest=draw(1.0),
        broken_variants={"noise / 4": draw(4.0)},
        loose="one bit: from a tie at most 0.55 of epsilon shows, so only a factor of 4 is caught",
        runs=2000 if secure else 4000,
    )


def curvature(delta: float, model: str = "logistic") -> Case:
    """The sums of two worst records, at right angles; Gaussian and exp(-|z|) noise."""
    options = {
        "model": model, "n": 2, "n_features": 2, "epsilon": 3.0, "delta": delta, "adjacency": "replace-one",
        "data_norm": 1.0, "fit_intercept": False, "radius": None, "alpha": None, "mechanism": "auto",
        "theorem": None, "weight_bound": 1.0,
    } | ({"n_classes": 3} if model == "multinomial" else {})  # fmt: skip
    _, both = plan_with_intervals(0.6, Request(**options))
    worst = {"logistic": [0.0, 0.0], "svc": [0.01, 0.01], "multinomial": [0.0, 0.0, -40.0] * 2}
    problem, theta = both.plan.problem, np.array(worst[model])
    spec: Any = both.curvature.spec
    first, second = (
        _exact_sums(ArrayDataset([row, [0.6, 0.0]], [1, 1], problem), theta, spec.sizes)
        for row in ([1.0, 0.0], [0.0, 1.0])
    )
    words = f"{model}, {'Gaussian noise' if delta else 'pure'}"
    return sums("curvature", words, spec, (first, second))


def score() -> Case:
    """The released accuracy itself, through private_score."""
    n = 40
    X, labels = np.full((n, 1), 0.9), [np.where(np.arange(n) < 20, 1, 0), np.where(np.arange(n) < 21, 1, 0)]

    def draw(epsilon: float) -> Draw:
        def values(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
            options: dict[str, Any] = {"epsilon": epsilon, "level": 0.5, "random_state": rng}
            return np.array([private_score(Model(), X, labels[side], **options).value for _ in range(runs)])

        return values

    return Case(
        name="private_score",
        configuration="accuracy, the released value",
        covers=("private_score",),
        claim=private_score(Model(), X, labels[0], epsilon=1.0, random_state=0).guarantee,
        honest=draw(1.0),
        broken_variants={"noise / 2": draw(2.0)},
        exact_ratio=1.0,
        runs=400,
    )


def intervals() -> Case:
    """The coefficient of a fit with intervals; near 0 a label moves the slope by half of its bound."""
    options = {
        "model": "logistic", "n": 2, "n_features": 1, "epsilon": 1.0, "delta": 0.0, "adjacency": "replace-one",
        "data_norm": 1.0, "fit_intercept": False, "radius": None, "alpha": 2.0, "mechanism": "auto",
        "theorem": None, "weight_bound": 1.0,
    }  # fmt: skip
    _, both = plan_with_intervals(0.15, Request(**options))
    spec: Any = both.plan.spec
    weak = replace(both, plan=replace(both.plan, spec=replace(spec, density_scale=spec.density_scale / 16)))
    tables = [ArrayDataset([[1.0], [1.0]], labels, both.plan.problem) for labels in ([1, 1], [0, 1])]

    def draw(run: Any) -> Draw:
        def centres(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
            return np.array(
                [run_with_intervals(run, tables[side], rng, None)[0].value[0] for _ in range(runs)]
            )

        return centres

    return Case(
        name="fit with intervals",
        configuration="logistic, pure, coefficient only",
        covers=("run_with_intervals",),
        claim=both.guarantee,
        honest=draw(both),
        broken_variants={"noise / 16": draw(weak)},
        loose="85% of the budget is the coefficient's, and near 0 a label moves a logistic slope by half of its bound",
        runs=400,
    )


CASES = (
    *(
        losses(metric, adjacency)
        for metric in ("accuracy", "log-loss")
        for adjacency in ("replace-one", "add-remove")
    ),
    losses("accuracy", "replace-one", secure=True),
    losses("log-loss", "add-remove", secure=True),
    selection("replace-one", secure=True),
    histogram("replace-one"),
    histogram("add-remove"),
    selection("replace-one"),
    selection("add-remove"),
    curvature(1e-5),
    curvature(0.0),
    curvature(1e-5, "svc"),
    curvature(1e-5, "multinomial"),
    score(),
    intervals(),
)
