"""Counting queries: L-infinity error compared with Gaussian noise, calibration time, and tables on disk.

`python benchmarks/counting.py` prints a Markdown table; `--rows 10000000` reads the large table (about 400 MB on disk).
OpenDP is measured when it is installed.
"""

from __future__ import annotations

import argparse
import math
import resource
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Row

from dplangevin import __version__
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.generalized_gaussian import smallest_sigma
from dplangevin.mechanisms.noisy_answers.mechanism import GeneralizedGaussianMechanism, SparseVectorCorrection
from dplangevin.mechanisms.noisy_answers.noise_choice import IndependentNoiseError
from dplangevin.queries import Marginals, count_file
from dplangevin.schema import Schema

EPSILON, DELTA = 1.0, 1e-6
ASKED = {100: 0.955, 1000: 0.875, 10_000: 0.815, 100_000: 0.77}
CATEGORIES, NUMBERS, WIDTH = 6, 4, 46

INTRODUCTION = f"""\
# Counting: error and speed

Measured in {date.today():%B %Y} by `python benchmarks/counting.py` (a part of `make bench`) with dplangevin
{__version__}. "met" says whether the target that the project set itself was reached; the errors of the peers are
in the notes. The error is the L-infinity error of k counts; the peers add Gaussian noise with the same epsilon
and delta.
"""


def rows(n_rows: int = 1_000_000) -> list[Row]:
    """Measure every figure."""
    return [*pure_rows(), *error_rows(), *time_rows(), *sparse_vector_rows(), *table_rows(n_rows)]


def pure_rows() -> list[Row]:
    """Compare the simulated L-infinity error with delta = 0 with k / epsilon."""
    rng, results = np.random.default_rng(2025), []
    for k in (10, 100, 1000):
        ours = GeneralizedGaussianMechanism(k=k, epsilon=EPSILON, delta=0.0)
        mean = _simulate_error(ours, max(2000, 400_000 // k), rng)
        laplace = k * IndependentNoiseError(k, 1).expected_maximum()
        results.append(
            Row(
                what=f"L-infinity error with delta = 0, k = {k:,}",
                asked=f"{k} within 3%",
                measured=f"{mean:.1f}",
                met=abs(mean / k - 1) <= 0.03,
                note=f"p = {ours.p:g}; Laplace {laplace:.1f}",
            )
        )
    return results


def exponent_table() -> list[str]:
    """Return the expected L-infinity error for k = 1 ... 1e5 counts and three deltas, epsilon = 1, computed exactly."""
    lines = [
        "",
        "Expected L-infinity error at epsilon = 1, all k counts may change (exact, no simulation). Laplace and",
        "Gaussian are the best of their kind for the same guarantee: Laplace noise with its exact (epsilon, delta)",
        "curve, and the analytic Gaussian.",
        "",
        "| k | delta | chosen p | L-infinity error | Laplace | ours / it | Gaussian | ours / it | rmse per count |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for k in (1, 2, 3, 10, 30, 100, 125, 150, 300, 1000, 10_000, 100_000):
        for delta in (0.0, 1e-9, 1e-6):
            ours = GeneralizedGaussianMechanism(k=k, epsilon=EPSILON, delta=delta)
            mean = ours.expected_maximum_error()
            laplace = smallest_sigma(1.0, k, EPSILON, delta) * IndependentNoiseError(k, 1).expected_maximum()
            cells = [
                f"{k:,}",
                f"{delta:g}",
                f"{ours.p:g}",
                f"{mean:.5g}",
                f"{laplace:.5g}",
                f"{mean / laplace:.3f}",
            ]
            if delta:
                gauss = (
                    smallest_sigma(2.0, k, EPSILON, delta) * IndependentNoiseError(k, 2).expected_maximum()
                )
                cells += [f"{gauss:.5g}", f"{mean / gauss:.3f}"]
            else:
                cells += ["none", ""]
            lines.append("| " + " | ".join([*cells, f"{ours.standard_deviation:.5g}"]) + " |")
    return lines


def _simulate_error(mechanism: Any, runs: int, rng: np.random.Generator) -> float:
    counts = np.zeros(mechanism.k)
    return float(np.mean([np.abs(mechanism.release(counts, rng)).max() for _ in range(runs)]))


def error_rows() -> list[Row]:
    """Compare the simulated L-infinity error with that of the analytic Gaussian and of OpenDP's Gaussian."""
    rng, results = np.random.default_rng(2024), []
    for k, limit in ASKED.items():
        ours = GeneralizedGaussianMechanism(k=k, epsilon=EPSILON, delta=DELTA)
        gauss = GeneralizedGaussianMechanism(k=k, epsilon=EPSILON, delta=DELTA, p=2)
        runs = max(200, 4_000_000 // k)
        mean, other = _simulate_error(ours, runs, rng), _simulate_error(gauss, runs, rng)
        note = f"p = {ours.p:g}: {mean:.5g}, analytic Gaussian {other:.5g}{_opendp(k)}"
        results.append(
            Row(
                what=f"L-infinity error / analytic Gaussian, k = {k:,}",
                asked=f"<= {limit}",
                measured=f"{mean / other:.4f}",
                met=mean / other <= limit,
                note=note,
            )
        )
    worst = max(
        GeneralizedGaussianMechanism(k=k, epsilon=e, delta=DELTA).expected_maximum_error()
        / (math.sqrt(2 * k) / cv.gdp_mu(e, DELTA) * IndependentNoiseError(k, 2).expected_maximum())
        for k in (1, 2, 3, 7, 20, 24, 40, 60)
        for e in (0.1, 1.0, 4.0)
    )
    text = "L-infinity error / analytic Gaussian, worst of k = 1 ... 60"
    results.append(
        Row(what=text, asked="<= 1", measured=f"{worst:.4f}", met=worst <= 1 + 1e-5, note="closed form")
    )
    return results


def _opendp(k: int) -> str:
    try:
        import opendp.prelude as dp
    except ImportError:
        return ""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=k), dp.l2_distance(T=float)

    def approximate_dp(scale: float) -> Any:
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(space >> dp.m.then_gaussian(scale)), DELTA)

    root = math.sqrt(k)
    scale = dp.binary_search_param(
        approximate_dp, d_in=root, d_out=(EPSILON, DELTA), bounds=(root, 100 * root)
    )
    runs = max(1, 40_000 // k)
    noise = space >> dp.m.then_gaussian(scale)
    drawn = np.mean([np.abs(noise([0.0] * k)).max() for _ in range(runs)])
    exact = scale * math.sqrt(2) * IndependentNoiseError(k, 2).expected_maximum()
    return f", OpenDP Gaussian {exact:.5g} ({runs} draws: {drawn:.4g})"


def time_rows() -> list[Row]:
    """Measure the processor time of one calibration and of the search for p, nothing cached."""
    results = []
    for k in (2, 100, 10_000, 1_000_000):
        for what, limit, p in (("given p", 2, 3.7), ("best p", 10, None)):
            smallest_sigma.cache_clear()
            start = time.process_time()
            GeneralizedGaussianMechanism(k=k, epsilon=EPSILON, delta=DELTA, p=p)  # type: ignore[arg-type]
            spent = time.process_time() - start
            title = f"calibration, {what}, k = {k:,}"
            results.append(
                Row(what=title, asked=f"< {limit} s", measured=f"{spent:.2f} s", met=spent < limit)
            )
    return results


def sparse_vector_rows() -> list[Row]:
    """Compare the experimental sparse-vector correction with plain noise: above 1 it is worse."""
    rng, results = np.random.default_rng(77), []
    for k, runs in ((1000, 1500), (10_000, 600), (100_000, 120)):
        plain = GeneralizedGaussianMechanism(k=k, epsilon=EPSILON, delta=DELTA)
        corrected = SparseVectorCorrection(k=k, epsilon=EPSILON, delta=DELTA, p=plain.p)
        ratio = _simulate_error(corrected, runs, rng) / plain.expected_maximum_error()
        results.append(Row(what=f"sparse vector / plain, k = {k:,}", asked="", measured=f"{ratio:.3f}"))
    return results


def table_rows(n_rows: int) -> list[Row]:
    """Measure 1e5 cells of all pairs of ten columns, and 100 predicates, from a Parquet file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        _generate(path, n_rows)
        schema = _schema()
        cells = Marginals.from_schema(schema, ways=2, bins=WIDTH)
        queries = [f"x{i % NUMBERS} > {i} and c{i % CATEGORIES} <> 'v{i % 7}'" for i in range(100)]
        results = []
        for what, options in (("cells", {"marginals": cells}), ("predicates", {"queries": queries})):
            start, used = time.perf_counter(), time.process_time()
            table = count_file(
                path, schema=schema, epsilon=EPSILON, delta=DELTA, memory="1GB", threads=2, **options
            )
            wall, cpu = time.perf_counter() - start, time.process_time() - used
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            title = f"{len(table):,} {what} from {n_rows:,} rows of Parquet"
            note = f"{cpu:.1f} s of processor time, peak memory {peak:.0f} MB so far"
            results.append(
                Row(what=title, asked="< 60 s", measured=f"{wall:.1f} s", met=wall < 60, note=note)
            )
    return results


def _generate(path: Path, n_rows: int) -> None:
    import duckdb

    texts = [
        f"'v' || CAST(floor(random() * random() * {WIDTH}) AS INTEGER) AS c{i}" for i in range(CATEGORIES)
    ]
    numbers = [f"random() * 100 AS x{i}" for i in range(NUMBERS)]
    with duckdb.connect(config={"memory_limit": "2GB", "threads": 2}) as link:
        link.execute(
            f"COPY (SELECT {', '.join(texts + numbers)} FROM range({n_rows})) TO '{path}' (FORMAT parquet)"
        )


def _schema() -> Schema:
    texts = {f"c{i}": {"categories": [f"v{j}" for j in range(WIDTH)]} for i in range(CATEGORIES)}
    numbers = {f"x{i}": {"range": [0, 100]} for i in range(NUMBERS)}
    return Schema.from_dict({"columns": texts | numbers})


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--table", action="store_true", help="only the table of exponents")
    if parser.parse_args().table:
        print("\n".join(exponent_table()))
        return
    print(INTRODUCTION)
    print("| what | target | reached | met | note |\n|---|---|---|---|---|")
    for row in rows(parser.parse_args().rows):
        met = "" if row.met is None else "yes" if row.met else "NO"
        print(f"| {row.what} | {row.asked} | {row.measured} | {met} | {row.note} |", flush=True)
    print("\n".join(exponent_table()))


if __name__ == "__main__":
    main()
