"""Tables whose encoded rows differ in length: what the default fit loses of the gap between base rate and plain fit.

Usage: python benchmarks/row_lengths.py [FOLDER] [--seeds 20] [--epsilon 8]

Four tables are generated: columns that are mostly missing, log1p scales with heavy tails, unlisted categories, and all
of these with a rare target. FOLDER holds the unpacked wheel of statsmodels 0.14, which ships both real tables
(statsmodels/datasets): `fair`, with 6,366 rows, and `randhie`, with 20,190. Zero-inflated columns, log1p scales,
categories (two of them unlisted) and a tenth of missing cells make row lengths differ. The plain fit is logistic
regression with its own intercept on the same encoded columns.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dplangevin import DPLogisticRegression
from dplangevin.estimators import SchemaEncoder
from dplangevin.schema import Schema

DELTA, MISSING = 1e-6, 0.1


def fair(folder: Path) -> tuple[pd.DataFrame, str, dict[str, Any]]:
    """Whether a person had an affair (statsmodels, Fair's survey)."""
    table = pd.read_csv(folder / "statsmodels/datasets/fair/fair.csv")
    table["target"] = np.where(table.pop("affairs") > 0, "yes", "no")
    for name in ("occupation", "occupation_husb"):
        table[name] = table[name].map("kind {:.0f}".format)
    columns: dict[str, Any] = {
        "rate_marriage": {"range": [1, 5]}, "age": {"range": [15, 60]}, "religious": {"range": [1, 4]},
        "yrs_married": {"range": [0, 40], "transform": "log1p"}, "children": {"range": [0, 8]},
        "educ": {"range": [8, 20]},
        "occupation": {"categories": ["kind 2", "kind 3", "kind 4", "kind 5"], "other": "own"},
        "occupation_husb": {"categories": [f"kind {k}" for k in range(1, 7)], "other": "own"},
    }  # fmt: skip
    return table, "target", columns


def randhie(folder: Path) -> tuple[pd.DataFrame, str, dict[str, Any]]:
    """Whether a person saw a doctor in the year (statsmodels, RAND health insurance experiment)."""
    table = pd.read_csv(folder / "statsmodels/datasets/randhie/randhie.csv")
    table["target"] = np.where(table.pop("mdvis") > 0, "yes", "no")
    columns = {
        name: {"range": [0.0, float(np.ceil(table[name].max()))]}
        for name in table.columns
        if name != "target"
    }
    columns["disea"] = {"range": [0, 60], "transform": "log1p"}  # type: ignore[dict-item]
    return table, "target", columns


def generated(
    seed: int, *, missing: float, heavy: bool, unlisted: bool, shift: float
) -> tuple[pd.DataFrame, str, dict[str, Any]]:
    """Return a table of 20,000 rows: six numbers and two columns of categories, on which the target depends."""
    rng, n = np.random.default_rng(8200 + seed), 20_000
    table, columns, score = pd.DataFrame(index=range(n)), {}, np.full(n, shift)
    for j in range(6):
        latent = rng.standard_normal(n)
        table[f"x{j}"] = np.exp(2 * latent) if heavy and j % 2 else latent
        columns[f"x{j}"] = (
            {"range": [0, 400], "transform": "log1p"} if heavy and j % 2 else {"range": [-4, 4]}
        )
        score += rng.normal(0, 0.6) * latent
        table[f"x{j}"] = table[f"x{j}"].mask(rng.random(n) < missing * (j < 3))
    for j in range(2):
        codes = rng.choice(8, n, p=rng.dirichlet(np.ones(8)))
        table[f"c{j}"] = [f"kind {code}" for code in codes]
        score += rng.normal(0, 0.6, 8)[codes]
        listed = [f"kind {code}" for code in range(4 if unlisted else 8)]
        columns[f"c{j}"] = {"categories": listed} | ({} if unlisted else {"other": "own"})
    table["target"] = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "yes", "no")
    return table, "target", columns


GENERATED = {
    "mostly missing": {"missing": 0.9, "heavy": False, "unlisted": False, "shift": 0.0},
    "log1p": {"missing": 0.0, "heavy": True, "unlisted": False, "shift": 0.0},
    "unlisted": {"missing": 0.2, "heavy": False, "unlisted": True, "shift": -1.0},
    "all, rare target": {"missing": 0.5, "heavy": True, "unlisted": True, "shift": -3.0},
}


def main() -> None:
    """Print one line for each table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=8.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tables = {
        name: generated(index, **settings)  # type: ignore[arg-type]
        for index, (name, settings) in enumerate(GENERATED.items())
    }
    for make in (fair, randhie) if options.folder else ():
        table, target, columns = make(options.folder)
        rng = np.random.default_rng(9)
        for name in columns:
            table[name] = table[name].mask(rng.random(len(table)) < MISSING)
        tables[make.__name__] = table, target, columns
    for title, (table, target, columns) in tables.items():
        schema = Schema.from_dict({"version": 1, "columns": columns})
        lost = []
        for seed in range(options.seeds):
            order = np.random.default_rng(seed).permutation(len(table))
            cut = 3 * len(table) // 4
            train, test = table.iloc[order[:cut]], table.iloc[order[cut:]]
            encode, truth = SchemaEncoder(schema), test[target] == "yes"
            plain = LogisticRegression(C=1e4, max_iter=2000)
            plain.fit(encode.transform(train), train[target] == "yes")
            best = log_loss(truth, plain.predict_proba(encode.transform(test))[:, 1])
            base = log_loss(truth, np.full(len(test), (train[target] == "yes").mean()))
            model = DPLogisticRegression(
                epsilon=options.epsilon, delta=DELTA, schema=schema, classes=["no", "yes"], random_state=seed
            )
            reached = log_loss(truth, model.fit(train, train[target]).predict_proba(test)[:, 1])
            lost.append(100 * (reached - best) / (base - best))
        lengths = np.linalg.norm(encode.transform(train), axis=1)
        print(
            f"{title}: {len(table)} rows, lengths {lengths.min():.2f} to {lengths.max():.2f}, gap "
            f"{base - best:.4f}, lost {np.mean(lost):+.2f} ± {np.std(lost, ddof=1) / len(lost) ** 0.5:.2f}%",
            flush=True,
        )


if __name__ == "__main__":
    main()
