"""Exact fits next to floating-point ones: accuracy, time, and how often a minimiser had to be refined.

Usage: DPLANGEVIN_DATA=... python benchmarks/exact_fits.py [--seeds 20] [--epsilons .5 1 4] [--guarantees pure]

Prints Markdown rows. Both forms of a fit take turns on the same records, so that load on the machine meets both alike.
The seeds of the noise differ, because the two forms draw other numbers from them.
"""

from __future__ import annotations

import argparse
import time
from typing import Any
from unittest import mock

import numpy as np
from accuracy import DELTA, _figures
from converging import ill
from loaders import Split, Unavailable, load

from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.exact_minimizer import IdealObjective
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Clipped


def tables() -> list[tuple[str, Split]]:
    """Return adult, where it can be read, and a generated table of correlated columns."""
    generated = [("correlated, 20,000 x 21", Split(*ill(0)))]
    try:
        return [("adult", load("adult")), *generated]
    except Unavailable as reason:
        print(reason)
        return generated


def measure(split: Split, epsilon: float, delta: float, seeds: int) -> dict[bool, dict[str, Any]]:
    """Fit both forms with these seeds."""
    plans = {
        secure: plan_fit(
            model="logistic", n=len(split.X), n_features=split.X.shape[1], epsilon=epsilon, delta=delta,
            adjacency="replace-one", data_norm=1.0, fit_intercept=False, secure=secure,
        ).plan
        for secure in (False, True)
    }  # fmt: skip
    results: dict[bool, dict[str, Any]] = {form: {"figures": [], "time": 0.0, "refined": 0} for form in plans}
    for seed in range(seeds):
        for form, plan in plans.items():
            data, loss = ArrayDataset(split.X, split.y, plan.problem), plan.problem.loss
            with mock.patch.object(
                IdealObjective, "sum_in_decimals", autospec=True, side_effect=IdealObjective.sum_in_decimals
            ) as refine:
                start = time.process_time()
                theta = run_plan(plan, data, 2 * seed + form).value.reshape(split.X.shape[1], -1)
                results[form]["time"] += (time.process_time() - start) / seeds
            results[form]["refined"] += refine.called
            bound = loss.bound if isinstance(loss, Clipped) else 1.0
            results[form]["figures"].append(_figures(split.X_test @ theta, split.y_test, bound))
    return results


def main() -> None:
    """Print a row for every table, guarantee and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.5, 1.0, 4.0])
    parser.add_argument("--guarantees", nargs="*", default=["replace-one", "pure"])
    parser.add_argument("--generated", action="store_true", help="the generated table alone")
    options = parser.parse_args()
    print(
        "| table | guarantee | epsilon | floating point | exact (default) | time, exact over floating point | refined |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, split in tables()[-1:] if options.generated else tables():
        for guarantee in options.guarantees:
            delta = 0.0 if guarantee == "pure" else DELTA
            for epsilon in options.epsilons:
                both = measure(split, epsilon, delta, options.seeds)
                cells = []
                for form in (False, True):
                    figures = np.array(both[form]["figures"])
                    mean, error = figures.mean(axis=0), figures.std(axis=0, ddof=1) / np.sqrt(options.seeds)
                    cells.append(f"{mean[0]:.2f} ± {error[0]:.2f} / {mean[1]:.4f} ± {error[1]:.4f}")
                ratio = both[True]["time"] / both[False]["time"]
                cells += [f"{ratio:.2f} ({both[True]['time']:.2f} s)", str(both[True]["refined"])]
                print(f"| {name} | {guarantee} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
