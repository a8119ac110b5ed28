"""From a raw table to a model: learned ranges, learned categories, persons, and the whole of it through fit."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from dplangevin.accounting.plan import CertifiedSpec, Plan
from dplangevin.estimators import DPLogisticRegression, _raw_fit, _raw_table
from dplangevin.mechanisms.learned_schema.mechanism import CellCounts, LearnedSchemaMechanism
from dplangevin.mechanisms.learned_schema.spec import LearnedSchemaSpec, calibrate_learned_schema
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumGroup
from dplangevin.mechanisms.repeated_selection.mechanism import CandidateAttempts, RepeatedSelection
from dplangevin.mechanisms.repeated_selection.spec import RepeatedSelectionSpec
from dplangevin.schema import Schema
from privacy._case import Case, Draw

DELTA, COLUMNS, MU, TAIL = 0.05, 9, 1.5, 0.02


def _ranges(spec: LearnedSchemaSpec) -> Draw:
    """A record in the first cell of every column, or in the second."""
    plan = CertifiedSpec(spec=spec, delta=DELTA)

    def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        cells = np.zeros((COLUMNS, spec.n_cells))
        cells[:, side] = 1
        exact = CellCounts(cells, [])
        found = [LearnedSchemaMechanism().run(plan, lambda: exact, rng).cells for _ in range(runs)]
        return np.array([float((noisy[:, 0] - noisy[:, 1]).sum()) for noisy in found])

    return draw


def _categories(spec: LearnedSchemaSpec) -> Draw:
    """A record with a common label in one column and its own in the other, or with other labels in both."""
    plan = CertifiedSpec(spec=spec, delta=DELTA)

    def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        first = {"a": 1000 + side, "b": 1001 - side}
        second = {"usual": 1000} if side else {"usual": 999, "own": 1}
        exact, scores = CellCounts(np.zeros((0, 0)), [first, second]), []
        for _ in range(runs):
            labels = LearnedSchemaMechanism().run(plan, lambda: exact, rng).labels
            score = labels[0]["b"] - labels[0]["a"] - labels[1]["usual"] + 1000
            scores.append(1e6 if "own" in labels[1] else score)
        return np.array(scores)

    return draw


def _fit(rng: Any, **options: Any) -> Any:
    stated: dict[str, Any] = {
        "epsilon": 4.0, "delta": DELTA, "alpha": 100.0, "mechanism": "output-perturbation", "classes": [0, 1],
        "random_state": rng, **options,
    }  # fmt: skip
    return _Quiet(**stated)


class _Quiet(DPLogisticRegression):
    """Says nothing of few rows."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return super().fit(X, y, sample_weight)


def _person(side: int, rng: Any) -> Any:
    """A person with eight rows, of which two may count, at +1 or at -1."""
    model = _fit(
        rng,
        data_norm=1.0,
        fit_intercept=False,
        bad_rows="zero",
        person="who",
        n_public=1,
        max_rows_per_person=2,
    )
    table = pd.DataFrame({"x": [1.0 - 2.0 * side] * 8, "y": 1, "who": "a"})
    return model.fit(table, "y")


def _persons(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    return np.array([float(_person(side, rng).coef_[0, 0]) for _ in range(runs)])


def _everybody(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    with patch.object(_raw_table, "select_person_rows", lambda codes, most, rng: codes >= 0):
        return _persons(side, runs, rng)


def _whole(side: int, rng: Any) -> Any:
    """The only record is replaced: another label, and a text where there was a number."""
    return _fit(rng, schema=Schema.learn(x="number")).fit(_record(side), "y")


def _record(side: int) -> pd.DataFrame:
    return pd.DataFrame(
        {"x": pd.Series(["5" if side else 5.0], dtype=object if side else float), "y": [side]}
    )


def _wholes(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    return np.array([float(_whole(side, rng).decision_function(_record(0))[0]) for _ in range(runs)])


def _third(plan: Plan, *args: Any, **kwargs: Any) -> Any:
    """The fit with a third of the noise that was paid for."""
    spec: Any = plan.spec
    weaker = replace(spec, density_scale=spec.density_scale / 3)
    return run_plan(Plan(problem=plan.problem, spec=weaker, delta=plan.delta), *args, **kwargs)


def _weak_wholes(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    with patch.object(_raw_fit, "run_plan", _third):
        return _wholes(side, runs, rng)


def _selected(spec: RepeatedSelectionSpec, noise: float) -> Draw:
    """Attempts that release a record's number with noise, the largest of which wins."""
    plan = CertifiedSpec(spec=spec, delta=DELTA)
    group = SumGroup(answers=1, unit=1.0, scale=(1 + 1e-8) / spec.mu)
    certified = CertifiedSpec(
        spec=NoisySumsSpec(groups=(group,), noise="gaussian", adjacency="replace-one"), delta=DELTA
    )

    def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        def attempt(_: int, rng: np.random.Generator) -> tuple[float, None, str]:
            return side + noise / spec.mu * float(rng.rng.standard_normal()), None, ""

        attempts = CandidateAttempts(fit_specs=(certified,), score_specs=(certified,), run_attempt=attempt)
        return np.array([RepeatedSelection().run(plan, attempts, rng).score for _ in range(runs)])

    return draw


SELECTION = RepeatedSelectionSpec(mu=0.5, repetitions=10, adjacency="replace-one")
RANGES = calibrate_learned_schema(
    n_numbers=COLUMNS, n_cells=5, n_categories=0, adjacency="replace-one", mu=MU
)
LABELS = calibrate_learned_schema(
    n_numbers=0, n_cells=0, n_categories=2, adjacency="replace-one", mu=MU, threshold_delta=TAIL
)
CASES = (
    Case(
        name="repeat and select",
        configuration="10 attempts on average, geometric, the largest noisy number",
        covers=("RepeatedSelection",),
        claim=CertifiedSpec(spec=SELECTION, delta=DELTA).guarantee,
        honest=_selected(SELECTION, 1.0),
        broken_variants={"noise / 6": _selected(SELECTION, 1 / 6)},
        loose="the score carries what is released, so the pair of the proof is not attained",
    ),
    Case(
        name="learned ranges",
        configuration=f"Gaussian cells, {COLUMNS} columns jointly, replace-one",
        covers=("LearnedSchemaMechanism",),
        claim=CertifiedSpec(spec=RANGES, delta=DELTA).guarantee,
        honest=_ranges(RANGES),
        broken_variants={
            "sensitivity of one column": _ranges(replace(RANGES, scale=RANGES.scale / COLUMNS**0.5))
        },
        exact_ratio=1.0,
    ),
    Case(
        name="learned categories",
        configuration="Gaussian threshold, 2 columns jointly, replace-one",
        covers=("LearnedSchemaMechanism",),
        claim=CertifiedSpec(spec=LABELS, delta=DELTA).guarantee,
        honest=_categories(LABELS),
        broken_variants={
            "threshold without its delta": _categories(replace(LABELS, threshold=1.0)),
            "sensitivity of one count": _categories(replace(LABELS, scale=LABELS.scale / 2)),
        },
        loose="a column with a new label moves one count less than the claim allows for",
    ),
    Case(
        name="rows of a person",
        configuration="output perturbation, alpha 100, 2 of 8 rows, replace-one",
        covers=("DPLogisticRegression",),
        claim=_person(0, 0).privacy_,
        honest=_persons,
        broken_variants={"person bound not enforced": _everybody},
        loose="as the estimators, within 5%",
        runs=150,
        slow=True,
    ),
    Case(
        name="raw table, whole",
        configuration="a learned range and a fit; one cell changes the type of its column",
        covers=("DPLogisticRegression",),
        claim=_whole(0, 0).privacy_,
        honest=_wholes,
        broken_variants={"noise / 3": _weak_wholes},
        loose="the pair moves the fit alone, not what was spent on the ranges",
        runs=150,
        slow=True,
    ),
)
