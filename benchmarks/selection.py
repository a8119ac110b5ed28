"""DPModelSearch: how often it picks the better of two candidates, and the budget that a search leaves to an attempt.

`python benchmarks/selection.py [RUNS]` prints two tables: n = 50,000 rows, epsilon = 2, delta = 1e-6, a geometric
number of attempts of mean 30.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
import pandas as pd

from dplangevin import DPLogisticRegression, DPModelSearch
from dplangevin.accounting import conversions as cv
from dplangevin.mechanisms.repeated_selection.spec import RepeatedSelectionSpec, calibrate_attempt_mu
from dplangevin.schema import Schema

ROWS, EPSILON, DELTA, REPETITIONS = 50_000, 2.0, 1e-6, 30


def table(seed: int) -> pd.DataFrame:
    """Return a table whose label depends on log(gain): a linear scale of gain is the worse schema."""
    rng = np.random.default_rng(seed)
    age, gain = rng.uniform(18, 90, ROWS), rng.lognormal(6, 2, ROWS)
    score = (age - 50) / 20 + (np.log(gain) - 6) / 1.5
    return pd.DataFrame(
        {"age": age, "gain": gain, "y": (rng.random(ROWS) < 1 / (1 + np.exp(-score))).astype(int)}
    )


def schema(transform: str) -> Schema:
    """Return a schema of two numbers, gain on this scale."""
    columns = {"age": {"range": [18, 90]}, "gain": {"range": [0, 100_000], "transform": transform}}
    return Schema.from_dict({"version": 1, "columns": columns})


def curved_table(seed: int) -> pd.DataFrame:
    """Return a table whose label depends on |age - 50|, which a linear model cannot represent."""
    data, rng = table(seed), np.random.default_rng(1000 + seed)
    score = np.abs(data.age - 50) / 10 - 1.5
    return data.assign(y=(rng.random(ROWS) < 1 / (1 + np.exp(-score))).astype(int))


def spline_schema(additive: bool) -> Schema:
    """Return a schema of two numbers, each linear or with a linear spline basis."""
    basis = {"basis": {"n_knots": 8}} if additive else {}
    columns = {
        "age": {"range": [18, 90], **basis},
        "gain": {"range": [0, 100_000], "transform": "log1p", **basis},
    }
    return Schema.from_dict({"version": 1, "columns": columns})


def count_correct_choices(runs: int, first: int = 0, pair: str = "scale") -> int:
    """Return in how many runs the better schema, the second one, is chosen."""
    schemas = (
        [schema("identity"), schema("log1p")]
        if pair == "scale"
        else [spline_schema(False), spline_schema(True)]
    )
    correct = 0
    for seed in range(first, first + runs):
        data = table(seed) if pair == "scale" else curved_table(seed)
        search = DPModelSearch(
            DPLogisticRegression(classes=[0, 1]), {"schema": schemas}, epsilon=EPSILON, delta=DELTA,
            repetitions=REPETITIONS, random_state=seed,
        )  # fmt: skip
        correct += search.fit(data[["age", "gain"]], data.y).best_params_["schema"] == schemas[1]
        print(f"seed {seed}: {correct} of {seed - first + 1}", file=sys.stderr, flush=True)
    return correct


def main() -> None:
    """Print both tables."""
    warnings.simplefilter("ignore")
    runs, start = int(sys.argv[1]) if len(sys.argv) > 1 else 50, time.perf_counter()
    print(
        "| epsilon | distribution | mean attempts | mu of a single fit | mu of an attempt | epsilon per attempt |"
    )
    print("|---|---|---|---|---|---|")
    for epsilon in (0.5, 1.0, 2.0, 8.0):
        for law in ("geometric", "logarithmic", "poisson"):
            for mean in (10, 30, 100):
                selection = RepeatedSelectionSpec(mu=1.0, repetitions=mean, law=law, adjacency="replace-one")  # type: ignore[arg-type]
                mu = calibrate_attempt_mu(epsilon, DELTA, selection)
                whole = cv.gdp_mu(epsilon, DELTA)
                left = cv.gdp_epsilon(mu, DELTA)
                print(f"| {epsilon:g} | {law} | {mean} | {whole:.3f} | {mu:.3f} | {left:.3f} |")
    print(
        f"\nLinear or log scale of a skewed column: the better one in {count_correct_choices(runs)} of {runs} runs."
    )
    print(
        f"Linear or additive: the better one in {count_correct_choices(runs, pair='additive')} of {runs} runs."
    )
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
