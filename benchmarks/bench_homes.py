"""Data larger than memory or one machine: files and Dask compared with arrays."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Row, readable
from _scale import anonymous_memory, interleaved, problem, records

from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset, ArrowSource, ScratchDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem import Logistic

# The full size writes a 4 GB file twice; set DPLANGEVIN_BENCH_LARGE=1.
ROWS = 20_000_000 if os.environ.get("DPLANGEVIN_BENCH_LARGE") else 2_000_000
COLUMNS = 50
SIZES, GROUP = (
    (100_000, 1_000_000, 4_000_000),
    25_000,
)  # rows; the row groups of the files do not grow with them
MAX_GROWTH_MB = 60.0  # MB from the second size to the third, of 600 MB that are read


def rows() -> list[Row]:
    """Measure out-of-core passes, memory, and iterations on two workers."""
    return [*_out_of_core(), *_flat_memory(), *_dask()]


class _Peak(threading.Thread):
    """Records the peak of memory that is not backed by a file."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.stopped = 0.0, threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.02):
            self.peak = max(self.peak, anonymous_memory())


def _write_files(folder: Path, n: int, group: int) -> list[Path]:
    """Write four Parquet files of float32 features, in row groups of this size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = []
    for part in range(4):
        path = folder / f"{part}.parquet"
        rng = np.random.default_rng(part)
        names = [f"x{j}" for j in range(COLUMNS)]
        schema = pa.schema([*((name, pa.float32()) for name in names), ("y", pa.float64())])
        with pq.ParquetWriter(path, schema, compression="none") as writer:
            for _ in range(n // 4 // group):
                features = rng.standard_normal((COLUMNS, group), dtype=np.float32)
                labels = (rng.random(group) < 0.5).astype(float)
                writer.write_table(
                    pa.table([*(pa.array(row) for row in features), pa.array(labels)], schema=schema)
                )
        paths.append(path)
    return paths


def _out_of_core() -> list[Row]:
    if find_spec("pyarrow") is None:
        return [Row(what="Parquet", asked="", measured="not run", note="pyarrow is not installed")]
    of, theta = problem(ROWS, COLUMNS), np.full((COLUMNS, 1), 0.1)
    with tempfile.TemporaryDirectory(dir=os.environ.get("DPLANGEVIN_SCRATCH")) as folder:
        paths = _write_files(Path(folder), ROWS, ROWS // 40)
        before = anonymous_memory()
        peak = _Peak()
        peak.start()
        start, processor = time.perf_counter(), time.process_time()
        data = ScratchDataset(ArrowSource(paths, "y"), of, folder=folder)
        first, used = time.perf_counter() - start, time.process_time() - processor
        for path in paths:
            path.unlink()
        data.gradient_sum(Logistic(), theta)
        peak.stopped.set()
        peak.join()
    small = min(ROWS, 2_000_000)
    memory = ArrayDataset(*records(small, COLUMNS, np.float32), problem(small, COLUMNS))
    work = {
        "file": lambda: data.gradient_sum(Logistic(), theta),
        "memory": lambda: memory.gradient_sum(Logistic(), theta),
    }
    least = interleaved(work, repeats=3)
    share = (least["memory"] / small) / (least["file"] / ROWS)
    size = f"{ROWS:.0e} x {COLUMNS} float32"
    return [
        Row(
            what=f"{size} from Parquet: first pass",
            asked="",
            measured=f"{ROWS / first / 1e6:.2f} million rows per second",
            note=f"wall time; {ROWS / used / 1e6:.2f} million per second of processor time; clips and writes",
        ),
        Row(
            what=f"{size}: later passes over the pass in memory",
            asked=">= 50%",
            measured=f"{share:.0%}",
            met=share >= 0.5,
            note=f"{readable(least['file'])} per pass, file in the page cache; {data.kernel(Logistic()).describe()}",
        ),
        Row(
            what=f"{size}: peak memory without file-backed pages",
            asked="< 1 GB",
            measured=f"{peak.peak:.0f} MB",
            met=peak.peak < 1000,
            note=f"{before:.0f} MB before the data were opened",
        ),
    ]


def _flat_memory() -> list[Row]:
    """Measure the peaks of whole runs on files, each in a separate process."""
    if find_spec("pyarrow") is None:
        return []
    peaks = []
    for n in SIZES:
        with tempfile.TemporaryDirectory(dir=os.environ.get("DPLANGEVIN_SCRATCH")) as folder:
            _write_files(Path(folder), n, GROUP)
            child = [sys.executable, __file__, "peak", folder, str(n)]
            done = subprocess.run(child, capture_output=True, text=True, check=True, timeout=1800)
            peaks.append(float(done.stdout))
    growth = peaks[2] - peaks[1]
    return [
        Row(
            what="noisy gradient descent, 5 steps, n x 50 float32 from Parquet: peak memory without file-backed pages "
            f"at n = {', '.join(f'{n:.0e}' for n in SIZES)}",
            asked=f"flat in n: <= {MAX_GROWTH_MB:.0f} MB more at 4e6 than at 1e6",
            measured=", ".join(f"{peak:.0f}" for peak in peaks) + " MB",
            met=growth <= MAX_GROWTH_MB,
            note=f"{growth:+.0f} MB from 1e6 to 4e6, where the records grow by 600 MB; one fresh process each",
        )
    ]


def _peak_of_a_run(folder: str, n: int) -> float:
    """Return the peak memory of reading files and five noisy steps, in this process."""
    peak = _Peak()
    peak.start()
    of = problem(n, COLUMNS)
    spec = NoisyGradientSpec(step_size=0.5, noise_std=0.1, n_steps=5)
    plan = Plan(problem=of, spec=spec, delta=1e-8, theorem="composition")
    run_plan(plan, ScratchDataset(ArrowSource(folder, "y"), of, folder=folder), 0)
    peak.stopped.set()
    peak.join()
    return peak.peak


def _dask() -> list[Row]:
    if find_spec("distributed") is None:
        return [Row(what="Dask", asked="", measured="not run", note="dask is not installed")]
    import dask.array as da
    import distributed

    from dplangevin.data.dask import DaskDataset

    os.environ["DPLANGEVIN_KERNEL"] = "numpy"
    n, of, results = 1_000_000, problem(1_000_000, COLUMNS), []
    theta = np.full((COLUMNS, 1), 0.1)
    single = ArrayDataset(*records(n, COLUMNS), of)
    for workers, parts in ((2, 8), (2, 2), (1, 8)):
        options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
        with (
            distributed.LocalCluster(n_workers=workers, **options) as cluster,
            distributed.Client(cluster) as client,
        ):
            X = da.random.default_rng(0).normal(size=(n, COLUMNS), chunks=(n // parts, COLUMNS))
            data = DaskDataset(X, (X[:, 0] > 0).astype(float), of, client=client)
            ours, alone = [], []
            for step in range(40):
                for dataset, times in ((data, ours), (single, alone)):
                    start = time.perf_counter()
                    dataset.gradient_sum(of.loss, theta + step * 1e-9)
                    times.append(time.perf_counter() - start)
            del data
        ours, alone = ours[5:], alone[5:]
        limit = 2 * statistics.median(alone) + 0.035
        median = statistics.median(ours)
        results.append(
            Row(
                what=f"Dask, 1M x 50, {workers} worker(s), {parts} partitions: median iteration",
                asked=f"<= {readable(limit)}" if (workers, parts) == (2, 8) else "",
                measured=readable(median),
                met=median <= limit if (workers, parts) == (2, 8) else None,
                note=f"wall time; one process: {readable(statistics.median(alone))}; least {readable(min(ours))}, "
                f"most {readable(max(ours))}",
            )
        )
    os.environ.pop("DPLANGEVIN_KERNEL")
    return results


if __name__ == "__main__":  # workers import this file again
    if sys.argv[1:2] == ["peak"]:
        print(_peak_of_a_run(sys.argv[2], int(sys.argv[3])))
    else:
        for row in rows():
            print(row)
