"""Fits over scikit-learn's at its own tolerance: processor time of one thread, models taking turns.

Usage: OMP_NUM_THREADS=1 python benchmarks/bench_fits.py [--turns 5] [--case NAME ...] [--kernel numpy numba]
    [--floating] [--memory]

scikit-learn sees columns of deviation 1, dplangevin the same table with rows of norm at most 1, epsilon 8.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from _measure import Row, readable
from loaders import Floats
from sklearn import linear_model
from sklearn.base import clone

import dplangevin

COMMON = {"epsilon": 8.0, "data_norm": 1.0, "adjacency": "add-remove", "random_state": 0}
CASES: dict[str, tuple[str, int, int, float | None]] = {
    "logistic 1e5 x 50": ("logistic", 100_000, 50, 1.0),
    "logistic 1e6 x 20": ("logistic", 1_000_000, 20, 1.0),
    "logistic 2e4 x 255": ("logistic", 20_000, 255, None),
    "logistic 2e4 x 500": ("logistic", 20_000, 500, 1.2),
    "logistic 500 x 5": ("logistic", 500, 5, 1.5),
    "ridge 1e5 x 50": ("ridge", 100_000, 50, 1.5),
    "Poisson 1e5 x 50": ("poisson", 100_000, 50, None),
    "Huber 1e5 x 50": ("huber", 100_000, 50, None),
    "multinomial, 10 classes, 1e5 x 50": ("multinomial", 100_000, 50, 0.6),
}
N_CLASSES = 10


def make_table(kind: str, n: int, p: int) -> tuple[Floats, Floats]:
    """Return independent columns and targets of the kind."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    scores = X @ rng.standard_normal(p)
    scores /= scores.std()
    if kind == "logistic":
        return X, (rng.random(n) < 1 / (1 + np.exp(-2 * scores))).astype(int)
    if kind == "poisson":
        return X, np.minimum(rng.poisson(np.exp(0.5 * scores)), 20).astype(float)
    if kind == "multinomial":
        logits = X @ rng.standard_normal((p, N_CLASSES)) / np.sqrt(p) + rng.gumbel(size=(n, N_CLASSES))
        return X, logits.argmax(axis=1)
    return X, np.clip(scores + 0.5 * rng.standard_normal(n), -4, 4)


def make_models(kind: str) -> tuple[Any, Any]:
    """Return scikit-learn's model and ours."""
    if kind == "ridge":
        ours = dplangevin.DPRidge(target_bounds=(-4, 4), **COMMON)
        return linear_model.Ridge(), ours
    if kind == "poisson":
        return linear_model.PoissonRegressor(alpha=1e-4, max_iter=1000), dplangevin.DPPoissonRegressor(
            target_bounds=(0, 20), **COMMON
        )
    if kind == "huber":
        return linear_model.HuberRegressor(max_iter=1000), dplangevin.DPHuberRegressor(
            target_bounds=(-4, 4), **COMMON
        )
    classes = list(range(N_CLASSES)) if kind == "multinomial" else [0, 1]
    return linear_model.LogisticRegression(C=1e4, max_iter=1000), dplangevin.DPLogisticRegression(
        classes=classes, **COMMON
    )


def take_turns(work: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Return the median processor time of each; the first turn (imports, compiled code) does not count."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(turns + 1):
        for name, run in work.items():
            start = time.process_time()
            run()
            if turn:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def multiply_alone(rows: Floats, n_steps: int, n_scores: int) -> None:
    """Make the matrix products of a whitened fit and nothing else: one second moment, and two products a step.

    In double precision and in blocks that fit the cache: no fit that passes over the records at every step is faster.
    """
    size = rows.shape[1]
    theta = np.ones(size) if n_scores == 1 else np.ones((size, n_scores))
    block = max(64, min(4096, (1 << 20) // (8 * size)))
    parts = [rows[start : start + block] for start in range(0, len(rows), block)]
    moment, gradient = np.zeros((size, size)), np.zeros(theta.T.shape)
    for part in parts:
        moment += part.T @ part
    for _ in range(n_steps):
        for part in parts:
            gradient += (part @ theta).T @ part


def compare_fits(case: str, turns: int, kernels: tuple[str, ...], floating: bool = False) -> Row:
    """Return the ratio of a case for each kernel, and of exact fits to floating-point ones if asked."""
    kind, n, p, target = CASES[case]
    X, y = make_table(kind, n, p)
    rows = X / np.linalg.norm(X, axis=1).max()
    theirs, ours = make_models(kind)

    def fit_with(kernel: str, model: Any = ours) -> Callable[[], object]:
        def run() -> None:
            os.environ["DPLANGEVIN_KERNEL"] = kernel
            model.fit(rows, y)

        return run

    work: dict[str, Callable[[], object]] = {"scikit-learn": lambda: theirs.fit(X, y)}
    work |= {kernel: fit_with(kernel) for kernel in kernels}
    if floating:
        other = clone(ours).set_params(secure=False)
        work |= {f"floating point, {kernel}": fit_with(kernel, other) for kernel in kernels}
    ours.fit(rows, y)
    n_scores = N_CLASSES if kind == "multinomial" else 1
    work["products"] = lambda: multiply_alone(rows, ours.n_iter_, n_scores)
    medians = take_turns(work, turns if n > 1000 else 20 * turns)
    os.environ.pop("DPLANGEVIN_KERNEL", None)
    over_floating = ""
    if floating:
        shares = [f"{medians[k] / medians[f'floating point, {k}']:.2f}" for k in kernels]
        over_floating = f"; over floating-point fits {' / '.join(shares)}"
    ratios = {kernel: medians[kernel] / medians["scikit-learn"] for kernel in kernels}
    products = medians["products"] / medians["scikit-learn"]
    return Row(
        what=f"{case}: fit over scikit-learn's, {' / '.join(kernels)}",
        asked="" if target is None else f"<= {target}",
        measured=" / ".join(f"{ratio:.2f}" for ratio in ratios.values()),
        met=None if target is None else min(ratios.values()) <= target,
        note=f"{' / '.join(readable(medians[k]) for k in kernels)} against {readable(medians['scikit-learn'])}; "
        f"{ours.n_iter_} steps; their products alone {products:.2f}{over_floating}",
    )


def weigh_fit(dtype: str, n: int = 1_000_000, p: int = 50) -> Row:
    """Return the peak memory of a fit over the caller's table, from a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", WEIGHED_FIT, dtype, str(n), str(p)], check=True, capture_output=True, text=True
    )
    more, table = map(float, done.stdout.split())
    return Row(
        what=f"logistic {n:.0e} x {p}, {dtype}: peak memory of the fit beyond the caller's table",
        asked="<= 1 copy in the caller's type",
        measured=f"{more / table:.2f} copies",
        met=more <= table,
        note=f"{more / 2**20:.0f} MB more, table {table / 2**20:.0f} MB",
    )


WEIGHED_FIT = """
import resource, sys
import numpy as np
from dplangevin import DPLogisticRegression
dtype, n, p = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
model = DPLogisticRegression(epsilon=8.0, data_norm=20.0, classes=[0, 1], adjacency="add-remove", random_state=0)
rng = np.random.default_rng(0)
X, y = rng.standard_normal((n, p), dtype=dtype), rng.integers(0, 2, n)
model.fit(X[:1000], y[:1000])
peak = lambda: 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
model.fit(X, y)
print(peak() - before, X.nbytes)
"""


def available_kernels() -> tuple[str, ...]:
    return ("numpy", "numba") if find_spec("numba") else ("numpy",)


def rows() -> list[Row]:
    """Measure all cases."""
    warnings.simplefilter("ignore")
    fits = [compare_fits(case, 5, available_kernels()) for case in CASES]
    return [*fits, weigh_fit("float32"), weigh_fit("float64")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--case", nargs="+", default=list(CASES))
    parser.add_argument("--floating", action="store_true", help="compare with floating-point fits as well")
    parser.add_argument("--memory", action="store_true", help="measure the peak memory instead")
    parser.add_argument("--kernel", nargs="+", default=available_kernels())
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for dtype in ("float32", "float64") if arguments.memory else ():
        row = weigh_fit(dtype)
        print(f"{row.what}: {row.measured} ({row.note})", flush=True)
    for case in () if arguments.memory else CASES:
        if any(wanted in case for wanted in arguments.case):
            row = compare_fits(case, arguments.turns, tuple(arguments.kernel), arguments.floating)
            print(f"{row.what}: {row.measured} ({row.note})", flush=True)


if __name__ == "__main__":
    main()
