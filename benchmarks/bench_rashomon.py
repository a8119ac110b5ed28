"""Rashomon sets: time and memory of many models."""

from __future__ import annotations

import resource
import time
import warnings

import loaders
import numpy as np
from _measure import Row, asked, timed

from dplangevin import DPLogisticRegression
from dplangevin.problem import Ball, DataBounds, Logistic, Problem
from dplangevin.rashomon import RashomonSampler, plan_rashomon, rashomon_capacity

MODELS, COLUMNS = 100, 50


def _adult() -> tuple[np.ndarray, np.ndarray, str]:
    """Return fifty columns of Adult (the constant one last), or synthetic rows of the same shape without the file."""
    try:
        split = loaders.load("adult")
    except loaders.Unavailable:
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((32_561, COLUMNS))
        return (
            rows / np.linalg.norm(rows, axis=1, keepdims=True),
            rng.integers(0, 2, 32_561),
            "synthetic rows",
        )
    widest = np.argsort(-split.X[:, :-1].std(axis=0))[: COLUMNS - 1]
    rows = split.X[:, [*sorted(widest), split.X.shape[1] - 1]]
    return rows, split.y, f"Adult, {rows.shape[1]} columns"


def _process() -> list[Row]:
    rows, labels, source = _adult()
    model = DPLogisticRegression(data_norm=1.0, classes=[0, 1], radius=2.0, fit_intercept=False)
    sampler = RashomonSampler(
        model,
        thresholds=0.1,
        n_models=MODELS,
        epsilon=4.0,
        delta=1e-6,
        route="ramp",
        tier="process",
        random_state=0,
    )
    start = time.process_time()
    with warnings.catch_warnings(action="ignore"):
        sampler.fit(rows, labels)
    spent = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    steps = sampler.plan_.spec.n_steps
    what = f"{MODELS} models on {source}, process tier, at most {steps} steps"
    return [
        asked(what, 120.0, spent, f"hit bound {sampler.hit_probability_:.3g}; one run"),
        Row(what="the same, peak memory", asked="< 2 GB", measured=f"{peak:.2f} GB", met=peak < 2),
    ]


def _certified() -> Row:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 10))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.integers(0, 2, 5000)
    model = DPLogisticRegression(data_norm=1.0, classes=[0, 1], radius=1.0, fit_intercept=False)
    sampler = RashomonSampler(model, thresholds=0.05, n_models=20, epsilon=2.0, delta=1e-6, random_state=0)
    return timed(
        "20 models, n = 5000, p = 10, radius 1, certified tier", None, lambda: sampler.fit(X, y), repeats=1
    )


def rows() -> list[Row]:
    """Measure the process tier on Adult, certified draws, planning and capacity."""
    problem = Problem(
        loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=30_000, n_features=20, constraint=Ball(2.0),
        ridge=1e-3, fit_intercept=False,
    )  # fmt: skip
    tables = np.random.default_rng(0).dirichlet(np.ones(3), (100, 2000))
    two = np.random.default_rng(0).dirichlet(np.ones(2), (100, 10_000))
    return [
        *_process(),
        _certified(),
        timed(
            "plan of 20 models at delta = 1e-6",
            None,
            lambda: plan_rashomon(problem, threshold=0.1, n_models=20, epsilon=1.0, delta=1e-6),
            repeats=1,
        ),
        timed(
            "capacity of 100 models, 10,000 inputs, 2 classes",
            None,
            lambda: rashomon_capacity(two),
            repeats=3,
        ),
        timed(
            "capacity of 100 models, 2,000 inputs, 3 classes",
            None,
            lambda: rashomon_capacity(tables, tolerance=1e-3),
            repeats=1,
        ),
    ]
