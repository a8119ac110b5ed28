"""DPSearchCV: how often it picks the better of two candidates, and what a search costs where they are equal.

`python benchmarks/selection.py [RUNS]` prints two tables: n = 50,000 rows, epsilon = 2, delta = 1e-6, a geometric
number of attempts of mean 30.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
import pandas as pd

from dplangevin import DPLogisticRegression, DPSearchCV
from dplangevin.families.repeated_selection.schedule import RepeatedSelectionSchedule
from dplangevin.families.repeated_selection.theorem import attempt_mu
from dplangevin.privacy import conversions as cv
from dplangevin.schema import Schema

ROWS, EPSILON, DELTA, REPETITIONS = 50_000, 2.0, 1e-6, 30


def table(seed: int) -> pd.DataFrame:
    """The label depends on log(gain): a linear scale of gain is the worse schema."""
    rng = np.random.default_rng(seed)
    age, gain = rng.uniform(18, 90, ROWS), rng.lognormal(6, 2, ROWS)
    score = (age - 50) / 20 + (np.log(gain) - 6) / 1.5
    return pd.DataFrame(
        {"age": age, "gain": gain, "y": (rng.random(ROWS) < 1 / (1 + np.exp(-score))).astype(int)}
    )


def schema(transform: str) -> Schema:
    """Two numbers, gain on this scale."""
    columns = {"age": {"range": [18, 90]}, "gain": {"range": [0, 100_000], "transform": transform}}
    return Schema.from_dict({"version": 1, "columns": columns})


def bent(seed: int) -> pd.DataFrame:
    """The label depends on the distance of age from 50: a straight line sees nothing of it."""
    data, rng = table(seed), np.random.default_rng(1000 + seed)
    score = np.abs(data.age - 50) / 10 - 1.5
    return data.assign(y=(rng.random(ROWS) < 1 / (1 + np.exp(-score))).astype(int))


def curved(additive: bool) -> Schema:
    """Two numbers, each as a line or as a piecewise-linear function."""
    basis = {"basis": {"hats": 8}} if additive else {}
    columns = {
        "age": {"range": [18, 90], **basis},
        "gain": {"range": [0, 100_000], "transform": "log1p", **basis},
    }
    return Schema.from_dict({"version": 1, "columns": columns})


def picked(runs: int, first: int = 0, pair: str = "scale") -> int:
    """In how many runs the better schema is chosen: the second one."""
    schemas = [schema("identity"), schema("log1p")] if pair == "scale" else [curved(False), curved(True)]
    found = 0
    for seed in range(first, first + runs):
        data = table(seed) if pair == "scale" else bent(seed)
        search = DPSearchCV(
            DPLogisticRegression(classes=[0, 1]), {"schema": schemas}, epsilon=EPSILON, delta=DELTA,
            repetitions=REPETITIONS, random_state=seed,
        )  # fmt: skip
        found += search.fit(data[["age", "gain"]], data.y).best_params_["schema"] == schemas[1]
        print(f"seed {seed}: {found} of {seed - first + 1}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Both tables."""
    warnings.simplefilter("ignore")
    runs, start = int(sys.argv[1]) if len(sys.argv) > 1 else 50, time.perf_counter()
    print(
        "| epsilon | law | mean attempts | mu of a single fit | mu of an attempt | epsilon left to an attempt |"
    )
    print("|---|---|---|---|---|---|")
    for epsilon in (0.5, 1.0, 2.0, 8.0):
        for law in ("geometric", "logarithmic", "poisson"):
            for mean in (10, 30, 100):
                law_of = RepeatedSelectionSchedule(mu=1.0, repetitions=mean, law=law, adjacency="replace-one")  # type: ignore[arg-type]
                mu = attempt_mu(epsilon, DELTA, law_of)
                whole = cv.gdp_mu(epsilon, DELTA)
                left = cv.gdp_epsilon(mu, DELTA)
                print(f"| {epsilon:g} | {law} | {mean} | {whole:.3f} | {mu:.3f} | {left:.3f} |")
    print(f"\nLinear or log scale of a skewed column: the better one in {picked(runs)} of {runs} runs.")
    print(f"Linear or additive: the better one in {picked(runs, pair='additive')} of {runs} runs.")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
