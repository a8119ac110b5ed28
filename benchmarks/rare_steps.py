"""Rare classes: the excess of logistic fits with the number of steps by predicted risk, over that with the fewest.

Usage: python benchmarks/rare_steps.py > rare_steps.jsonl

Tables are those of rare_labels.py with seeds and shares that chose nothing; both fits have the same noise seeds.
"""

from __future__ import annotations

import json
import warnings
from itertools import product

import numpy as np
import rare_labels

from dplangevin.mechanisms.whitened import mechanism

FIRST_SEED = 88300
SIZES = ((5_000, 10, 2), (50_000, 6, 2), (200_000, 3, 1))
"""Rows, noise seeds and tables of each kind."""
RATES, EPSILONS = (0.004, 0.015, 0.025), (0.5, 1.0, 8.0)


def main() -> None:
    """Print a line of JSON for each table and epsilon."""
    warnings.simplefilter("ignore")
    rule = mechanism.MAX_RARE_CURVATURE
    for (n, seeds, tables), kind, rate in product(SIZES, rare_labels.KINDS, RATES):
        for index in range(tables):
            first = FIRST_SEED + 10 * index
            X, y, new, truth = rare_labels.table(kind, rate, n, first + rare_labels.KINDS.index(kind))
            for epsilon in EPSILONS:
                cell = [FIRST_SEED, index, int(1e4 * rate), n, int(100 * epsilon)]
                fits = {}
                for name, cut in (("fewest", 0.0), ("chosen", rule)):
                    mechanism.MAX_RARE_CURVATURE = cut
                    fits[name] = rare_labels.default_fits(
                        X, y, new[:40_000], truth[:40_000], seeds, cell, epsilon=epsilon, delta=1e-6
                    )
                change = fits["chosen"] - fits["fewest"]
                error = max(change.std(ddof=1) / np.sqrt(seeds), 1e-12)
                line = {"n": n, "kind": kind, "rate": rate, "epsilon": epsilon, "z": change.mean() / error}
                means = {name: values.mean() for name, values in fits.items()}
                print(json.dumps(line | means), flush=True)


if __name__ == "__main__":
    main()
