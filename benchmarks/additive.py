"""Additive models against linear ones, DP-EBM and fits without privacy; no fit is tuned on its data.

Usage: python benchmarks/additive.py [--data NAME ...] [--guarantee NAME ...] [--epsilon NUMBER ...] [--seeds 20]
       python benchmarks/additive.py --peers            non-private fits, and DP-EBM where interpret-core is installed

Prints rows of a Markdown table: accuracy in percent and log-loss on held-out rows (R2 for randhie), mean over seeds,
and the processor seconds of a fit. With --keep FILE finished rows are written there, and not measured again.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from loaders import table
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer

from dplangevin import DPAdditiveClassifier, DPAdditiveRegressor, DPLogisticRegression, DPRidge, Schema

DELTA = 1e-5
GUARANTEES = {
    "add-remove": {"adjacency": "add-remove"},
    "replace-one": {"adjacency": "replace-one"},
    "pure": {"adjacency": "replace-one", "delta": 0.0},
}
DATA = ("adult", "bank", "smooth", "stepped", "linear", "randhie")


class Case(NamedTuple):
    """Training and test tables with their schema."""

    schema: Schema
    X: Any
    y: Any
    X_test: Any
    y_test: Any


def _schema(frame: pd.DataFrame, ranges: dict[str, Any], target: dict[str, Any]) -> Schema:
    """Return a schema with the stated ranges; the categories that occur are treated as public."""
    columns = {
        name: {**ranges[name], "missing": "never"} if name in ranges else _categories(frame[name])
        for name in frame.columns
    }
    return Schema.from_dict({"columns": columns, "target": target, "missing": "own"})


def _categories(cells: Any) -> dict[str, Any]:
    """Return all values as categories; missing ones have an indicator of their own."""
    values = sorted(map(str, cells.unique()))
    return {"categories": [value for value in values if value], "other": "own" if "" in values else "ignore"}


@cache
def case(name: str, seed: int = 0) -> Case:
    """Return a data set; generated ones have 30,000 training rows, six numbers in [-1, 1] and three categories."""
    if name == "adult":
        data = table("adult")
        ranges: dict[str, Any] = {
            "age": {"range": [0, 90]}, "education_num": {"range": [0, 16]}, "hours_per_week": {"range": [0, 99]},
            "capital_gain": {"range": [0, 99999], "transform": "log1p"},
            "capital_loss": {"range": [0, 4356], "transform": "log1p"},
        }  # fmt: skip
        names = ["workclass", "marital_status", "occupation", "relationship", "race", "sex"]
        X, y, train = data[[*ranges, *names]], data.income, data.split == "train"
        stated = {"name": "income", "classes": ["<=50K", ">50K"]}
        return Case(_schema(X, ranges, stated), X[train], y[train], X[~train], y[~train])
    if name == "bank":
        data = table("bank")
        ranges = {
            "age": {"range": [18, 95]}, "balance": {"range": [-5000, 20000]}, "day": {"range": [1, 31]},
            "campaign": {"range": [1, 20]}, "pdays": {"range": [-1, 400]}, "previous": {"range": [0, 20]},
        }  # fmt: skip
        names = ["job", "marital", "education", "default", "housing", "loan", "contact", "month", "poutcome"]
        X, y, stated = data[[*ranges, *names]], data.y, {"name": "y", "classes": ["no", "yes"]}
    elif name == "randhie":
        data = table("randhie")
        X = data.drop(columns="mdvis")
        ranges = {str(c): {"range": [float(X[c].min()), float(X[c].max())]} for c in X.columns}
        y, stated = np.log1p(data.mdvis), {"name": "mdvis", "range": [0.0, float(np.log1p(77))]}
    else:
        return _generated(name, seed)
    split = train_test_split(X, y, test_size=0.25, random_state=seed)
    return Case(_schema(X, ranges, stated), split[0], split[2], split[1], split[3])


def _generated(name: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({f"x{j}": rng.uniform(-1, 1, 50_000) for j in range(6)})
    X["g"] = rng.choice(list("uvw"), 50_000)
    score = {
        "linear": 2 * X.x0 - X.x1 + 0.5 * X.x2,
        "smooth": 2 * np.sin(3 * X.x0) - 3 * (X.x1**2 - 1 / 3) + X.x2,
        "stepped": 2.0 * (X.x0 > 0.3) - 1.5 * (np.abs(X.x1) < 0.4) + X.x2,
    }[name] + 0.5 * (X.g == "u")
    y = np.where(rng.random(50_000) < 1 / (1 + np.exp(-score)), "yes", "no")
    ranges = {f"x{j}": {"range": [-1, 1]} for j in range(6)}
    schema = _schema(X, ranges, {"name": "y", "classes": ["no", "yes"]})
    return Case(schema, X[:30_000], y[:30_000], X[30_000:], y[30_000:])


def figures(model: Any, data_set: Case) -> tuple[float, float]:
    """Return accuracy and log-loss, or R2 twice."""
    if not hasattr(model, "predict_proba"):
        return (model.score(data_set.X_test, data_set.y_test),) * 2
    probabilities = model.predict_proba(data_set.X_test)
    hits = np.asarray(model.classes_)[probabilities.argmax(axis=1)] == np.asarray(data_set.y_test)
    return 100 * float(hits.mean()), float(
        log_loss(data_set.y_test, probabilities, labels=list(model.classes_))
    )


def private(name: str, guarantee: str, epsilon: float, seeds: int) -> Iterator[tuple[str, Any, float]]:
    """Yield (model, figures of every seed, processor seconds of a fit) of the linear and the additive model."""
    data_set = case(name)
    kinds = (
        (DPRidge, DPAdditiveRegressor) if name == "randhie" else (DPLogisticRegression, DPAdditiveClassifier)
    )
    results: tuple[list[Any], list[Any]] = ([], [])
    spent = [0.0, 0.0]
    for seed in [seeds, *range(seeds)]:  # the first pair is warm-up
        for index, cls in enumerate(kinds):
            model: Any = cls(
                **({"delta": DELTA} | GUARANTEES[guarantee]),
                epsilon=epsilon,
                schema=data_set.schema,
                random_state=seed,
            )
            start = time.process_time()
            model.fit(data_set.X, data_set.y)
            if seed < seeds:
                spent[index] += time.process_time() - start
                results[index].append(figures(model, data_set))
    n_knots = max(c.basis.n_knots for c in model.schema_.columns if hasattr(c, "basis"))
    for index, label in enumerate(("linear", f"{n_knots}")):
        yield label, np.array(results[index]), spent[index] / seeds


def peers(name: str, seeds: int, epsilons: list[float]) -> Iterator[tuple[str, Any]]:
    """Yield fits without privacy, and DP-EBM with its defaults and stated bounds."""
    data_set = case(name)
    numbers = [c for c in data_set.X.columns if pd.api.types.is_numeric_dtype(data_set.X[c])]
    words = [c for c in data_set.X.columns if c not in numbers]
    both = make_column_transformer(
        (SplineTransformer(n_knots=16, degree=1), numbers), (OneHotEncoder(handle_unknown="ignore"), words)
    )
    yield (
        "splines, no privacy",
        [
            figures(
                make_pipeline(both, LogisticRegression(max_iter=3000)).fit(data_set.X, data_set.y), data_set
            )
        ],
    )
    coded = make_column_transformer(
        ("passthrough", numbers), (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), words)
    )
    boosted = make_pipeline(coded, HistGradientBoostingClassifier(random_state=0))
    yield "boosting, no privacy", [figures(boosted.fit(data_set.X, data_set.y), data_set)]
    try:
        from interpret.privacy import DPExplainableBoostingClassifier
    except ImportError:
        return
    bounds = {c.name: (c.low, c.high) for c in data_set.schema.columns if hasattr(c, "low")}
    for epsilon in epsilons:
        results = []
        for seed in range(seeds):
            model = DPExplainableBoostingClassifier(
                epsilon=epsilon, delta=DELTA, privacy_bounds=bounds, random_state=seed
            )
            results.append(figures(model.fit(data_set.X, data_set.y), data_set))
        yield f"DP-EBM, epsilon {epsilon:g}", results


def cells(name: str, guarantee: str, epsilon: float, seeds: int) -> str:
    """Return the rest of a table's row: linear, additive, knots, seconds."""
    (_, first, slow), (label, second, slower) = private(name, guarantee, epsilon, seeds)
    shown = [
        f"R2 {figure[0]:.4f}" if name == "randhie" else f"{figure[0]:.2f} / {figure[1]:.4f}"
        for figure in (first.mean(axis=0), second.mean(axis=0))
    ]
    return f"{' | '.join(shown)} | {label} | {slow:.3f} / {slower:.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--guarantee", nargs="+", default=list(GUARANTEES))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.1, 0.5, 1.0, 2.0, 8.0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    done = options.keep.read_text() if options.keep and options.keep.exists() else ""
    for name in options.data:
        if options.peers and name != "randhie":
            for label, results in peers(name, options.seeds, options.epsilon):
                accuracy, loss = np.mean(results, axis=0)
                print(f"| {name} | {label} | {accuracy:.2f} / {loss:.4f} |", flush=True)
        for guarantee in [] if options.peers else options.guarantee:
            for epsilon in options.epsilon:
                start = f"| {name} | {guarantee} | {epsilon:g} |"
                if start not in done:
                    row = f"{start} {cells(name, guarantee, epsilon, options.seeds)}"
                    print(row, flush=True)
                    if options.keep:
                        with options.keep.open("a") as file:
                            file.write(row + "\n")


if __name__ == "__main__":
    main()
