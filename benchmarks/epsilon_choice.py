"""Calibration of `choose_epsilon`: attained excess compared with its target, on tables not used in development.

`python benchmarks/epsilon_choice.py [FIRST LAST] [--intervals]` prints a line for each table: 20 generated ones, adult
and bank with two goals each. The schema is stated; the attained excess is the mean over four fits of the log-loss on
held-out rows above that of a plain fit. With `--intervals` the goal is a log-loss, simulated on
2,000 public rows: is the log-loss of one private fit on the other held-out rows inside the printed 90% interval?
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd
import raw_table
from sklearn.linear_model import LogisticRegression

from dplangevin import DPLogisticRegression, choose_epsilon
from dplangevin.errors import DplangevinError
from dplangevin.estimators import SchemaEncoder
from dplangevin.schema import Schema

SEEDS, DELTA = 4, 1e-6
N_PUBLIC, PART_OF_GAP = 2000, 0.8
GOALS = (0.003, 0.01, 0.03)


def generated(index: int) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any], float]:
    """Return a table of random size with skewed, bell-shaped, two-valued and category columns."""
    rng = np.random.default_rng(2000 + index)
    n, numbers, lists = int(rng.integers(4000, 20_000)), int(rng.integers(2, 9)), int(rng.integers(0, 4))
    size, columns, stated = n + 10_000, {}, {}
    for j in range(numbers):
        kind = rng.choice(["skewed", "bell", "two", "flat"])
        draw = {
            "skewed": rng.exponential(1.5, size), "bell": 5 + rng.standard_normal(size),
            "two": (rng.random(size) < 0.2) * 10.0, "flat": rng.uniform(0, 10, size),
        }[kind]  # fmt: skip
        columns[f"x{j}"], stated[f"x{j}"] = np.clip(draw, 0, 10), {"range": [0, 10]}
    for j in range(lists):
        labels = [f"w{k}" for k in range(int(rng.integers(2, 12)))]
        columns[f"c{j}"] = rng.choice(labels, size, p=rng.dirichlet(np.ones(len(labels))))
        stated[f"c{j}"] = {"categories": labels}
    table = pd.DataFrame(columns)
    rows = SchemaEncoder({"version": 1, "columns": stated}).transform(table)
    score = rows @ rng.standard_normal(rows.shape[1])
    score = rng.uniform(0.5, 3) * (score - score.mean()) / score.std() + rng.uniform(-1.5, 1.5)
    table["y"] = np.where(rng.random(size) < 1 / (1 + np.exp(-score)), "yes", "no")
    return table[:n], table[n:], stated, GOALS[index % 3]


def line(
    name: str, train: Any, test: Any, stated: dict[str, Any], target: str, classes: list[str], goal: float
) -> str:
    """Return target, chosen epsilon and attained excess as a row."""
    schema = Schema.from_dict({"version": 1, "columns": stated})
    choice = choose_epsilon("logistic", schema, n=len(train), excess=goal, delta=DELTA, n_repeats=SEEDS)
    yes = (test[target] == classes[1]).to_numpy()
    encode = SchemaEncoder(schema)
    plain = LogisticRegression(C=1e3, fit_intercept=False, max_iter=500)
    plain.fit(encode.transform(train), train[target] == classes[1])
    floor = raw_table._log_loss(yes, plain.predict_proba(encode.transform(test))[:, 1])
    options: dict[str, Any] = {
        "epsilon": choice.epsilon,
        "delta": DELTA,
        "schema": schema,
        "classes": classes,
    }
    fits = [
        DPLogisticRegression(**options, random_state=seed).fit(train, train[target]) for seed in range(SEEDS)
    ]
    gained = np.mean([raw_table._log_loss(yes, fit.predict_proba(test)[:, 1]) for fit in fits]) - floor
    ratio = gained / goal
    met = "yes" if 0.5 <= ratio <= 2 else "no"
    return f"| {name} | {len(train)} | {goal:g} | {choice.epsilon:.3g} | {gained:.4f} | {ratio:.2f} | {met} |"


def covered(
    name: str, train: Any, test: Any, stated: dict[str, Any], target: str, classes: list[str], seed: int
) -> str:
    """Return a row: the interval that public rows give for a log-loss at the chosen epsilon, and the attained one.

    The goal closes PART_OF_GAP of what a fit to the public rows gains over the base rate, both seen on public rows.
    """
    schema = Schema.from_dict({"version": 1, "columns": stated})
    order = np.random.default_rng(3000 + seed).permutation(len(test))
    public, held = test.iloc[order[:N_PUBLIC]], test.iloc[order[N_PUBLIC:]]
    encode = SchemaEncoder(schema)
    rows, yes = encode.transform(public), (public[target] == classes[1]).to_numpy()
    half = N_PUBLIC // 2
    plain = LogisticRegression(C=10.0, fit_intercept=False, max_iter=500).fit(rows[:half], yes[:half])
    reached = raw_table._log_loss(yes[half:], plain.predict_proba(rows[half:])[:, 1])
    base = raw_table._log_loss(yes[half:], np.full(N_PUBLIC - half, yes.mean()))
    goal = base - PART_OF_GAP * (base - reached)
    try:
        choice = choose_epsilon(
            "logistic", schema, n=len(train), log_loss=goal, delta=DELTA, public_data=(public, public[target])
        )
    except DplangevinError as error:
        return f"| {name} | {len(train)} | {goal:.4f} | refused: {error} |"
    fit = DPLogisticRegression(
        epsilon=choice.epsilon, delta=DELTA, schema=schema, classes=classes, random_state=11
    ).fit(train, train[target])
    attained = raw_table._log_loss((held[target] == classes[1]).to_numpy(), fit.predict_proba(held)[:, 1])
    low, high = choice.interval
    met = "yes" if low <= attained <= high else "no"
    figures = f"{goal:.4f} | {choice.epsilon:.3g} | {low:.4f} to {high:.4f} | {attained:.4f}"
    return f"| {name} | {len(train)} | {figures} | {met} |"


def main() -> None:
    """Print a line for each table."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("last", type=int, nargs="?", default=24)
    parser.add_argument(
        "--intervals", action="store_true", help="coverage of the intervals that public rows give"
    )
    options = parser.parse_args()
    for index in range(options.first, options.last):
        if index < 20:
            train, test, stated, goal = generated(index + 100 * options.intervals)
            name, target, classes = f"generated {index}", "y", ["no", "yes"]
        else:
            problem = (raw_table.adult, raw_table.bank)[index % 2]()
            train, test = problem.table(index // 22)
            name, target, stated, classes = (
                problem.name,
                problem.target,
                problem.stated,
                problem.classes or [],
            )
            goal = (0.003, 0.01)[index // 22]
        if options.intervals:
            print(covered(name, train, test, stated, target, classes, index), flush=True)
        else:
            print(line(name, train, test, stated, target, classes, goal), flush=True)


if __name__ == "__main__":
    main()
