"""Learned schemas compared with hand-written ones: fraction of the gap to the base rate that is closed.

`python benchmarks/raw_table.py [--seeds 20]` writes the first table of benchmarks/RAW_TABLE.md and leaves the rest of
the page. Scores are the log-loss (classification) and R2 (regression) on held-out rows; the fraction is
(base - learned) / (base - stated), the base being the training mean.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dplangevin import DPLogisticRegression, DPRidge
from dplangevin.schema import Schema

HERE = Path(os.environ.get("DPLANGEVIN_DATA", "."))
EPSILONS, DELTA = (0.5, 1.0, 2.0, 8.0), 1e-6


@dataclass(frozen=True)
class Problem:
    """A table with a hand-written schema; kinds of its columns; classes, or None for a regression."""

    name: str
    table: Callable[[int], tuple[pd.DataFrame, pd.DataFrame]]
    target: str
    stated: dict[str, Any]
    classes: list[Any] | None

    @property
    def kinds(self) -> dict[str, str]:
        """The arguments of `Schema.learn`."""
        return {name: "number" if "range" in entry else "category" for name, entry in self.stated.items()}


def _halves(table: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    order = np.random.default_rng(seed).permutation(len(table))
    cut = len(table) * 3 // 4
    return table.iloc[order[:cut]], table.iloc[order[cut:]]


def _listed(table: pd.DataFrame, names: list[str]) -> dict[str, Any]:
    return {
        name: {"categories": sorted(word for word in table[name].unique() if word), "other": "own"}
        for name in names
    }


def adult() -> Problem:
    """Ranges and lists as in the accuracy benchmark."""
    table = pd.read_csv(HERE / "adult.csv", keep_default_na=False)
    names = ["workclass", "marital_status", "occupation", "relationship", "race", "sex"]
    stated = {
        "age": {"range": [0, 90]}, "education_num": {"range": [0, 16]},
        "capital_gain": {"range": [0, 99999], "transform": "log1p"},
        "capital_loss": {"range": [0, 4356], "transform": "log1p"}, "hours_per_week": {"range": [0, 99]},
        **_listed(table, names),
    }  # fmt: skip
    halves = table[table.split == "train"], table[table.split != "train"]
    return Problem("adult", lambda seed: halves, "income", stated, ["<=50K", ">50K"])


def bank() -> Problem:
    """Ranges and lists as in the accuracy benchmark."""
    table = pd.read_csv(HERE / "bank_marketing.csv", keep_default_na=False)
    names = ["job", "marital", "education", "default", "housing", "loan", "contact", "month", "poutcome"]
    ranges = {"age": [18, 95], "balance": [-5000, 20000], "day": [1, 31], "campaign": [1, 20], "pdays": [-1, 400],
              "previous": [0, 20]}  # fmt: skip
    stated = {**{name: {"range": ends} for name, ends in ranges.items()}, **_listed(table, names)}
    return Problem("bank", lambda seed: _halves(table, seed), "y", stated, ["no", "yes"])


def randhie() -> Problem:
    """Regression on log(1 + visits)."""
    table = pd.read_csv(HERE / "randhie.csv")
    table["visits"] = np.log1p(table.pop("mdvis"))
    stated: dict[str, Any] = {
        name: {"range": [float(table[name].min()), float(table[name].max())]}
        for name in table.columns
        if name != "visits"
    }
    return Problem("randhie", lambda seed: _halves(table, seed), "visits", stated, None)


def generated(name: str) -> Problem:
    """Skewed, heavy-tailed and constant columns, and a category with a long tail; 20,000 rows to fit."""
    rng = np.random.default_rng(5)
    n = 26_667
    skewed, heavy = rng.lognormal(8, 2, n), rng.standard_t(2, n) * 100
    year, level = rng.integers(1990, 2021, n), rng.zipf(1.6, n)
    level = np.array([f"level {min(k, 500)}" for k in level])
    score = (
        0.8 * (np.log(skewed) - 8) / 2
        + np.clip(heavy / 300, -2, 2)
        + (year - 2005) / 10
        + (level == "level 1")
    )
    table = pd.DataFrame({"skewed": skewed, "heavy": heavy, "year": year, "level": level, "constant": 7.25})
    stated: dict[str, Any] = {
        "skewed": {"range": [0, 10**6], "transform": "log1p"}, "heavy": {"range": [-1000, 1000]},
        "year": {"range": [1990, 2020]},
        "level": {"categories": [f"level {k}" for k in range(1, 21)], "other": "own"},
        "constant": {"range": [0, 10]},
    }  # fmt: skip
    if name == "generated classes":
        table["y"] = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "yes", "no")
        return Problem(name, lambda seed: _halves(table, seed), "y", stated, ["no", "yes"])
    table["y"] = 1000 + 100 * (score + rng.standard_normal(n))
    return Problem(name, lambda seed: _halves(table, seed), "y", stated, None)


def nothing_to_find() -> Problem:
    """Columns independent of the label: Cauchy, missing, constant, huge, and a category of single rows."""
    rng = np.random.default_rng(6)
    n = 26_667
    table = pd.DataFrame(
        {
            "cauchy": rng.standard_cauchy(n),
            "missing": np.nan,
            "constant": -3.5,
            "huge": 1e200 * rng.standard_normal(n),
            "single": [f"row {k}" for k in range(n)],
            "y": np.where(rng.random(n) < 0.3, "yes", "no"),
        }
    )
    ends = {"cauchy": [-10, 10], "missing": [0, 1], "constant": [-10, 0], "huge": [-1e200, 1e200]}
    stated: dict[str, Any] = {name: {"range": pair} for name, pair in ends.items()}
    stated["single"] = {"categories": ["row 0"], "other": "own"}
    return Problem("nothing to find", lambda seed: _halves(table, seed), "y", stated, ["no", "yes"])


def score(problem: Problem, schema: Any, epsilon: float, seed: int) -> tuple[float, float]:
    """Return the loss of a fit and of the base rate: log-loss, or squared error over the variance."""
    train, test = problem.table(seed)
    truth = test[problem.target]
    options: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": DELTA,
        "schema": schema,
        "random_state": 100 + seed,
    }
    if problem.classes is not None:
        yes = (truth == problem.classes[1]).to_numpy()
        model = DPLogisticRegression(**options, classes=problem.classes).fit(train, problem.target)
        rate = (train[problem.target] == problem.classes[1]).mean()
        return _log_loss(yes, model.predict_proba(test)[:, 1]), _log_loss(yes, np.full(len(yes), rate))
    model = DPRidge(**options).fit(train, problem.target)
    around = ((truth - train[problem.target].mean()) ** 2).mean()
    return float(((truth - model.predict(test)) ** 2).mean() / around), 1.0


def _log_loss(yes: np.ndarray, probability: np.ndarray) -> float:
    clipped = np.clip(probability, 1e-12, 1 - 1e-12)
    return float(-np.mean(np.where(yes, np.log(clipped), np.log(1 - clipped))))


def row(problem: Problem, epsilon: float, seeds: int) -> str:
    """Return one line of the table: means over the seeds, and the fraction with its standard error."""
    target: dict[str, Any] = {"name": problem.target, "classes": problem.classes}
    stated_target, learned_target = target, target
    if problem.classes is None:
        column = problem.table(0)[0][problem.target]
        stated_target = {"name": problem.target, "range": [float(column.min()), float(column.max())]}
        learned_target = {"name": problem.target, "range": "learn"}
    stated = Schema.from_dict({"version": 1, "columns": problem.stated, "target": stated_target})
    learned = Schema.learn(problem.kinds, target=learned_target)
    by_hand = np.array([score(problem, stated, epsilon, seed) for seed in range(seeds)])
    by_rule = np.array([score(problem, learned, epsilon, seed) for seed in range(seeds)])
    base = float(by_hand[:, 1].mean())
    shares = (by_hand[:, 1] - by_rule[:, 0]) / (by_hand[:, 1] - by_hand[:, 0])
    error = 100 * shares.std() / max(seeds - 1, 1) ** 0.5
    share = f"{100 * shares.mean():.1f}% ± {error:.1f}" if problem.name != "nothing to find" else "no gap"
    return (
        f"| {problem.name} | {len(problem.table(0)[0])} | {epsilon:g} | {base:.4f} | {by_hand[:, 0].mean():.4f} | "
        f"{by_rule[:, 0].mean():.4f} | {share} | "
        f"{(by_rule[:, 0] - by_hand[:, 1]).max():+.4f} |"
    )


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    generated_problems = [generated("generated classes"), generated("generated numbers"), nothing_to_find()]
    problems = [adult(), bank(), randhie(), *generated_problems]
    lines = [
        "# From a raw table: learned against stated schemas",
        "",
        f"Mean over {seeds} seeds, delta = {DELTA:g}, replace-one. Loss is the log-loss, or the squared error over the "
        "variance for regressions (randhie, generated numbers). The stated schema is written by hand from public "
        "knowledge (ranges of randhie and of targets are taken from the table, which favours it). Written by",
        "`python benchmarks/raw_table.py`.",
        "",
        "| table | rows | epsilon | base rate | stated | learned | fraction of the gap closed | worst seed - base |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for problem in problems:
        for epsilon in EPSILONS:
            lines.append(row(problem, epsilon, seeds))
            print(lines[-1], flush=True)
    page = Path(__file__).parent / "RAW_TABLE.md"
    _, mark, rest = page.read_text().partition("\n## ")
    page.write_text("\n".join(lines) + "\n" + mark + rest)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
