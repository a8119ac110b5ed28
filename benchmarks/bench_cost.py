"""The time model of docs/scale.md: fitted to three small measurements, checked on other sizes."""

from __future__ import annotations

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from _measure import Row, readable
from _scale import gradient, interleaved, problem, records

from dplangevin.data import ArrayDataset
from dplangevin.problem import Logistic

KERNELS = ["numpy", *(["numba"] if find_spec("numba") else [])]
UNSEEN = ((200_000, 50), (2_000_000, 50), (500_000, 20), (100_000, 200), (100_000, 1000))


@dataclass(frozen=True)
class Model:
    """Predicted seconds of a step: n (p per_number + per_record) / workers + per_step."""

    per_number: float
    per_record: float
    per_step: float

    def step(self, n: int, p: int, workers: float = 1.0) -> float:
        """Return the predicted time of a step."""
        return n * (p * self.per_number + self.per_record) / workers + self.per_step


def rows() -> list[Row]:
    """Compare predictions with measurements."""
    models = {kernel: fit_time_model(kernel) for kernel in KERNELS}
    return [*(_one_process(kernel, model) for kernel, model in models.items()), *_dask(models["numpy"])]


def fit_time_model(kernel: str) -> Model:
    """Fit the time model to 1000 x 50, 5e5 x 10 and 5e5 x 100."""
    tiny, narrow, wide = (_passes(n, p, kernel) for n, p in ((1000, 50), (500_000, 10), (500_000, 100)))
    per_number = (wide - narrow) / (90 * 500_000)
    per_record = max(narrow / 500_000 - 10 * per_number, 0.0)
    return Model(per_number, per_record, max(tiny - 1000 * (50 * per_number + per_record), 0.0))


def _passes(n: int, p: int, kernel: str) -> float:
    data = ArrayDataset(*records(n, p), problem(n, p))
    work = {"": gradient(data, Logistic(), np.full((p, 1), 0.01), kernel)}
    return interleaved(work, repeats=5, clock=time.perf_counter)[""]


def _one_process(kernel: str, model: Model) -> Row:
    cells, worst = [], 1.0
    for n, p in UNSEEN:
        found, expected = _passes(n, p, kernel), model.step(n, p)
        worst = max(worst, found / expected, expected / found)
        cells.append(f"{n:.0e} x {p}: {readable(expected)} / {readable(found)}")
    return Row(
        what=f"one pass in one process, {kernel}: predicted / measured",
        asked="within a factor of 2",
        measured="; ".join(cells),
        met=worst <= 2,
        note=f"wall time; {8 / model.per_number / 1e9:.1f} GB/s, {model.per_record * 1e9:.1f} ns per record, "
        f"{model.per_step * 1e6:.0f} µs per step",
    )


def _bus() -> float:
    """Return how much faster two threads read than one: two workers on one machine share its memory."""
    halves = np.split(records(1_000_000, 50)[0].ravel(), 2)
    whole = np.concatenate(halves)

    def both() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda half: half.max(), halves))

    least = interleaved({"one": whole.max, "two": both}, repeats=5, clock=time.perf_counter)
    return max(1.0, least["one"] / least["two"])


def _dask(model: Model) -> list[Row]:
    if find_spec("distributed") is None:
        return [Row(what="Dask", asked="", measured="not run", note="dask is not installed")]
    os.environ["DPLANGEVIN_KERNEL"] = "numpy"
    bus, cells, worst, notes = _bus(), [], 1.0, []
    for workers in (1, 2):
        tiny, *found = _iterations(workers, ((8_000, 50), (400_000, 50), (1_000_000, 50), (200_000, 200)))
        notes.append(f"{readable(tiny)} per step with {workers}")
        for (n, p), measured in zip(((400_000, 50), (1_000_000, 50), (200_000, 200)), found, strict=True):
            expected = Model(model.per_number, model.per_record, tiny).step(
                n, p, 1.0 if workers == 1 else bus
            )
            worst = max(worst, measured / expected, expected / measured)
            cells.append(f"{workers} worker(s), {n:.0e} x {p}: {readable(expected)} / {readable(measured)}")
    os.environ.pop("DPLANGEVIN_KERNEL")
    return [
        Row(
            what="one step on Dask, 8 partitions, NumPy: predicted / measured",
            asked="within a factor of 2",
            measured="; ".join(cells),
            met=worst <= 2,
            note=f"wall time, medians; overhead {', '.join(notes)} worker(s), from 8,000 rows; two threads read "
            f"{bus:.2f} times as fast as one",
        )
    ]


def _iterations(workers: int, sizes: tuple[tuple[int, int], ...]) -> list[float]:
    import dask.array as da
    import distributed

    from dplangevin.data.dask import DaskDataset

    options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    medians = []
    with (
        distributed.LocalCluster(n_workers=workers, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        for n, p in sizes:
            X = da.random.default_rng(0).normal(size=(n, p), chunks=(n // 8, p))
            data = DaskDataset(X, (X[:, 0] > 0).astype(float), problem(n, p), client=client)
            medians.append(statistics.median(_timed(data, np.full((p, 1), 0.01)) for _ in range(25)))
            del data
    return medians


def _timed(data: Any, theta: Any) -> float:
    start = time.perf_counter()
    data.gradient_sum(Logistic(), theta)
    return time.perf_counter() - start


if __name__ == "__main__":
    for row in rows():
        print(row)
