"""Speed and scale: one pass, many vectors, whole runs, one axis at a time."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Row, readable
from _scale import CLIPPED_SQUARE, anonymous_memory, gradient, interleaved, problem, records
from scipy.special import expit

from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.noisy_gradient.mechanism import NoisyGradientDescent
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem import Logistic

HERE = Path(__file__).parent
KERNELS = ["numpy", *(["numba"] if find_spec("numba") else [])]
LARGE = (
    os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 12e9
)  # 1e7 rows and their clipped copy need 8 GB


def rows() -> list[Row]:
    """Measure ratios within one run; times are the shortest of several interleaved repeats."""
    return [*_one_pass(), *_threads(), *_whole_run(), *_start_up(), *_axes()]


def _one_pass() -> list[Row]:
    n, p = 1_000_000, 50
    X, y = records(n, p)
    theta = np.random.default_rng(1).normal(size=(p, 1)) / 10
    many = np.random.default_rng(2).normal(size=(p, 64)) / 10
    logistic = ArrayDataset(X, y, problem(n, p))
    squared = ArrayDataset(X, y, problem(n, p, CLIPPED_SQUARE))
    flat = X.ravel()
    work: dict[str, Callable[[], object]] = {
        "read max": flat.max,
        "read dot": lambda: flat @ flat,
        "two-pass": lambda: X.T @ (expit(X @ theta[:, 0]) - y),
        "scikit-learn": _scikit_learn(X, y, theta[:, 0]),
    }
    for kernel in KERNELS:
        work[kernel] = gradient(logistic, Logistic(), theta, kernel)
        work[f"{kernel} squared"] = gradient(squared, CLIPPED_SQUARE, theta, kernel)
    least = interleaved(work, repeats=7)
    read = min(least["read max"], least["read dot"])
    vectors = interleaved({k: gradient(logistic, Logistic(), many, k) for k in KERNELS}, repeats=1)
    results = [
        Row(
            what="read bandwidth, one thread, 1M x 50 float64",
            asked="",
            measured=f"{X.nbytes / read / 1e9:.1f} GB/s",
        )
    ]
    names = {"numpy": "NumPy blocks", "numba": "compiled"}
    for kernel in KERNELS:
        results.append(
            _share(f"logistic, {names[kernel]}", read / least[kernel], {"numpy": 0.38, "numba": 0.6}[kernel])
        )
    results += [
        _share(f"squared, {names[k]}", read / least[f"{k} squared"], 0.85 if k == "numba" else None)
        for k in KERNELS
    ]
    results.append(_share("logistic, NumPy two-pass", read / least["two-pass"], None))
    results.append(_share("logistic, scikit-learn's LinearModelLoss", read / least["scikit-learn"], None))
    results.append(_torch(X.nbytes, read))
    for kernel in KERNELS:
        ratio = vectors[kernel] / least["two-pass"]
        results.append(
            Row(
                what=f"64 vectors over one NumPy two-pass gradient, {names[kernel]}",
                asked="<= 10.5",
                measured=f"{ratio:.1f}",
                met=ratio <= 10.5,
                note=f"{readable(vectors[kernel])} against {readable(least['two-pass'])}",
            )
        )
    return results


def _share(what: str, share: float, least: float | None) -> Row:
    asked = "" if least is None else f">= {least:.0%}"
    return Row(
        what=f"{what}: fraction of the read bandwidth",
        asked=asked,
        measured=f"{share:.0%}",
        met=None if least is None else share >= least,
    )


def _scikit_learn(X: Any, y: Any, theta: Any) -> Callable[[], object]:
    """Return a gradient by scikit-learn's private class, imported at run time: only this comparison needs it."""
    try:
        linear = importlib.import_module("sklearn.linear_model._linear_loss").LinearModelLoss
        losses = importlib.import_module("sklearn._loss.loss")
        model = linear(base_loss=losses.HalfBinomialLoss(), fit_intercept=False)
        return lambda: model.gradient(theta, X, y, l2_reg_strength=0.0)
    except (ImportError, AttributeError, TypeError):
        return lambda: None


def _torch(n_bytes: int, read: float) -> Row:
    python = HERE / ".peers" / "opacus" / "bin" / "python"
    what = "logistic, torch: fraction of the read bandwidth"
    if not python.exists():
        return Row(what=what, asked="", measured="not run", note="`make bench` installs it with the peers")
    try:
        done = subprocess.run(
            [python, HERE / "_peer_torch.py"], capture_output=True, text=True, check=True, timeout=300
        )
        return Row(what=what, asked="", measured=f"{read / float(done.stdout):.0%}", note="another process")
    except (subprocess.SubprocessError, ValueError) as error:
        return Row(what=what, asked="", measured="could not be run", note=type(error).__name__)


def _threads() -> list[Row]:
    n, p = 1_000_000, 50
    X, y = records(n, p)
    data = ArrayDataset(X, y, problem(n, p))
    theta = np.full((p, 1), 0.1)
    halves = np.split(X.ravel(), 2)

    def both() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda half: half.max(), halves))

    def with_threads(number: int) -> Callable[[], object]:
        run = gradient(data, Logistic(), theta, KERNELS[-1])

        def work() -> None:
            os.environ["DPLANGEVIN_THREADS"] = str(number)
            run()
            os.environ["DPLANGEVIN_THREADS"] = "1"

        return work

    work = {"one": with_threads(1), "two": with_threads(2), "read one": X.max, "read two": both}
    least = interleaved(work, repeats=9, clock=time.perf_counter)
    gain, limit = least["one"] / least["two"], least["read one"] / least["read two"]
    return [
        Row(
            what=f"two threads over one, {KERNELS[-1]}",
            asked=">= 1.6 where the bus allows",
            measured=f"{gain:.2f}",
            met=gain >= min(1.6, 0.9 * limit),
            note=f"wall time; two threads read {limit:.2f} times as fast as one",
        )
    ]


def _whole_run() -> list[Row]:
    n, p = 100_000, 50
    of = problem(n, p)
    data = ArrayDataset(*records(n, p), of)
    spec = NoisyGradientSpec(step_size=0.1, noise_std=0.01, n_steps=100)
    plan = Plan(problem=of, spec=spec, delta=1e-6, theorem="composition")
    inside, least = 0.0, np.inf
    kernel = data.kernel(of.loss)
    cls = type(kernel)
    original = cls.gradient

    def timed(self: Any, *arguments: Any) -> Any:
        nonlocal inside
        start = time.process_time()
        result = original(self, *arguments)
        inside += time.process_time() - start
        return result

    cls.gradient = timed  # type: ignore[method-assign]
    try:
        for _ in range(4):
            inside = 0.0
            start = time.process_time()
            NoisyGradientDescent().run(plan, data, 0)
            total = time.process_time() - start
            least = min(least, 1 - inside / total)
    finally:
        cls.gradient = original  # type: ignore[method-assign]
    return [
        Row(
            what="noisy GD, 100k x 50, T = 100: time outside the kernel",
            asked="<= 5%",
            measured=f"{least:.1%}",
            met=least <= 0.05,
            note=kernel.describe(),
        )
    ]


_FIT = """
import sys, time; sys.modules.update(dict.fromkeys({hidden}))
begin = time.process_time()
import numpy as np
from dplangevin import DPLogisticRegression
rng = np.random.default_rng(0); X = rng.normal(size=(20000, 20)) / 20; y = (X[:, 0] > 0).astype(int)
DPLogisticRegression(epsilon=1.0, delta=1e-6, data_norm=1.0, classes=[0, 1], mechanism="noisy-gd").fit(X, y)
print(time.process_time() - begin)
"""
_TABLES = (
    "pandas",
    "pyarrow",
    "polars",
)  # scikit-learn imports these where they are installed; they come with other extras
_SKLEARN = "import time; begin = time.process_time(); import sklearn.base; print(time.process_time() - begin)"
_COMPILED = """
import time, numpy as np; import dplangevin.data.kernels as k; from dplangevin.problem import Logistic
import dplangevin.data.dataset, dplangevin.estimators
start = time.process_time(); import numba; imported = time.process_time()
from dplangevin.data.kernels import Block
b = Block(np.ones((100, 5)), np.ones(100), None)
k.choose_kernel(Logistic(), 0, "numba").gradient(b, np.ones((5, 1)), True)
print(imported - start, time.process_time() - imported)
"""


def _start_up() -> list[Row]:
    def run(code: str, kernel: str) -> list[float]:
        environment = {**os.environ, "DPLANGEVIN_KERNEL": kernel}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        return [float(word) for word in done.stdout.split()]

    first, tables = (
        min(run(_FIT.format(hidden=hidden), "numpy")[0] for _ in range(3)) for hidden in (_TABLES, ())
    )
    own = min(run(_SKLEARN, "numpy")[0] for _ in range(3))
    results = [
        Row(
            what="import and first fit, 20k x 20, without `fast`",
            asked="< 2 s",
            measured=readable(first),
            met=first < 2,
            note=f"processor time; {readable(tables)} with pandas and pyarrow installed, which scikit-learn imports; "
            f"`import sklearn.base` alone takes {readable(own)} then",
        )
    ]
    if "numba" in KERNELS:
        run(_COMPILED, "numba")  # fills the cache
        times = [run(_COMPILED, "numba") for _ in range(3)]
        imported, load = (min(column) for column in zip(*times, strict=True))
        results.append(
            Row(
                what="compiled kernel in a second process, numba's import included",
                asked="< 500 ms",
                measured=readable(imported + load),
                met=imported + load < 0.5,
                note=f"processor time; the import {readable(imported)}, the cached kernel {readable(load)}",
            )
        )
    return results


def _axes() -> list[Row]:
    results = []
    kernel = KERNELS[-1]
    sizes = [10_000, 100_000, 1_000_000, *([10_000_000] if LARGE else [])]
    cells = []
    for n in sizes:
        before = anonymous_memory()
        X, y = records(n, 50)
        data = ArrayDataset(X, y, problem(n, 50))
        del X
        least = interleaved({"": gradient(data, Logistic(), np.full((50, 1), 0.1), kernel)}, repeats=5)[""]
        cells.append(
            f"{n:.0e}: {readable(least)}, {least / n * 1e9:.0f} ns per row, {anonymous_memory() - before:.0f} MB"
        )
        del data
    results.append(Row(what=f"rows, p = 50, {kernel}", asked="linear", measured="; ".join(cells)))
    cells = []
    for p in (10, 100, 1000):
        data = ArrayDataset(*records(100_000, p), problem(100_000, p))
        theta = np.full((p, 1), 0.01)
        least = interleaved({"": gradient(data, Logistic(), theta, kernel)}, repeats=3)[""]
        cells.append(f"{p}: {readable(least)}, {least / p * 1e6:.0f} µs per column")
    results.append(Row(what=f"columns, n = 1e5, {kernel}", asked="linear", measured="; ".join(cells)))
    data = ArrayDataset(*records(100_000, 50), problem(100_000, 50))
    cells = []
    for k in (1, 4, 16, 64, 256):
        theta = np.random.default_rng(k).normal(size=(50, k)) / 10
        least = interleaved({"": gradient(data, Logistic(), theta, kernel)}, repeats=2)[""]
        cells.append(f"{k}: {readable(least)}, {readable(least / k)} per chain")
    results.append(Row(what=f"chains, 1e5 x 50, {kernel}", asked="below linear", measured="; ".join(cells)))
    return results
