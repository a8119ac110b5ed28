"""Compare flip_probability with refits: how often do two releases decide differently about the same person?

Usage: python benchmarks/decision_stability.py adult bank heavy dummies autoregressive [--epsilons .5 1] [--refits 200]
           [--source noise | sample] [--split 0] [--subsample SEED]

Rows with a predicted probability above .1% are judged, in deciles of it, over all refits. With --source sample
(generated tables only) every refit has records of its own. adult and bank need DPLANGEVIN_DATA (see loaders.py); with
--subsample, six tenths of their training rows and two thirds of their columns, drawn from this seed.
"""

from __future__ import annotations

import argparse
import math
import warnings
from typing import Any

import numpy as np
from intervals import KINDS, draw_table
from loaders import Floats, load

from dplangevin.estimators import DPLogisticRegression

N_TEST, MIN_PROBABILITY, MIN_FLIPS = 20_000, 0.001, 0.01
FIRST_SEED, TABLE = 70_000, 20


def draw_records(name: str, index: int, seed: int, n: int | None = None) -> tuple[Floats, Floats]:
    """Return rows and labels of generated table `index`, as many as it has or n."""
    table = draw_table(name, "logistic", index)
    return table._replace(n=n or table.n).draw(np.random.default_rng([77, seed]))


def measure(
    name: str, epsilon: float, refits: int, source: Any, index: int, subsample: int | None = None
) -> str:
    """Return the figures of one cell as text."""
    if name in KINDS:
        (rows, labels), (test, _) = draw_records(name, index, 0), draw_records(name, index, 1, N_TEST)
        norm, intercept = math.sqrt(rows.shape[1]), True
    else:
        rows, labels, test, _ = load(name, index)
        norm, intercept = 1.0, False
        if subsample is not None:
            rng = np.random.default_rng([78, subsample])
            kept = rng.permutation(len(rows))[: len(rows) * 6 // 10]
            columns = np.append(
                rng.permutation(rows.shape[1] - 1)[: rows.shape[1] * 2 // 3], rows.shape[1] - 1
            )
            rows, labels, test = rows[np.ix_(kept, columns)], labels[kept], test[:, columns]
    test = test[np.random.default_rng(5).permutation(len(test))[:N_TEST]]
    decisions, predicted, bounds = [], [], []
    for seed in range(refits):
        model = DPLogisticRegression(
            epsilon=epsilon, delta=1e-5, data_norm=norm, classes=[0, 1], intervals=True, adjacency="add-remove",
            n_public=len(rows), fit_intercept=intercept, random_state=FIRST_SEED + seed,
        )  # fmt: skip
        if source == "sample":
            rows, labels = draw_records(name, index, 2 + seed)
        with warnings.catch_warnings(action="ignore"):
            model.fit(rows, labels)
        decisions.append(model.predict(test))
        predicted.append(model.flip_probability(test, source))
        bounds.append(model.flip_probability(test, source, conservative=True))
    chosen, probabilities = np.array(decisions), np.array(predicted)
    share = chosen.mean(axis=0)
    actual = np.where(chosen == 1, 1 - share, share) * refits / (refits - 1)
    near = probabilities > MIN_PROBABILITY
    order = np.argsort(probabilities[near])
    errors = [
        100 * abs(probabilities[near][part].mean() - actual[near][part].mean())
        for part in np.array_split(order, 10)
    ]
    flips = (chosen != (share > 0.5)).mean(axis=0)
    failed = np.mean((np.array(bounds) < flips)[:, flips > MIN_FLIPS])
    return (
        f"{name} epsilon={epsilon:g} {source}: actual {100 * actual[near].mean():.1f} predicted "
        f"{100 * probabilities[near].mean():.1f}, decile errors {np.mean(errors):.1f} (mean) {max(errors):.1f} "
        f"(largest); conservative too low {100 * failed:.1f}%; all rows {100 * actual.mean():.2f}%"
    )


def main() -> None:
    """Print one line a cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--epsilons", nargs="+", type=float, default=(0.5, 1.0))
    parser.add_argument("--refits", type=int, default=200)
    parser.add_argument("--source", choices=("noise", "sample"), default="noise")
    parser.add_argument("--subsample", type=int, help="seed of fewer rows and columns of adult and bank")
    parser.add_argument("--split", type=int, default=0, help="of adult and bank into training and test rows")
    parser.add_argument("--table", type=int, default=TABLE, help="which generated table of a kind")
    options = parser.parse_args()
    for name in options.tables:
        index = options.table if name in KINDS else options.split
        for epsilon in options.epsilons:
            print(
                measure(name, epsilon, options.refits, options.source, index, options.subsample), flush=True
            )


if __name__ == "__main__":
    main()
