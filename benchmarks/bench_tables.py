"""Reading tables: a first pass over Parquet and text, compared with readers that infer or are given types."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Row, seconds

from dplangevin.data import ArrowSource
from dplangevin.estimators import SchemaEncoder
from dplangevin.schema import Schema
from dplangevin.tables import TableFiles

ROWS = int(os.environ.get("DPLANGEVIN_BENCH_ROWS", "2000000"))
COLUMNS = 50
LINES, NUMBERS, WORDS = min(ROWS, 1_000_000), 15, 5
KINDS = ("north", "south", "east", "west")


def rows() -> list[Row]:
    """Compare the processor time of one pass with that of other readers."""
    with tempfile.TemporaryDirectory() as folder:
        return [_parquet(Path(folder)), *_text(Path(folder))]


def _parquet(folder: Path) -> Row:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    columns = {f"x{j}": rng.random(ROWS, np.float32) for j in range(COLUMNS)}
    pq.write_table(
        pa.table({**columns, "y": rng.integers(0, 2, ROWS)}), folder / "t.parquet", row_group_size=100_000
    )
    source = ArrowSource(folder / "t.parquet", "y")

    def ours() -> None:
        for _ in source.records():
            pass

    plain, ours_seconds = (seconds(work, repeats=3) for work in (lambda: _typed(folder / "t.parquet"), ours))
    return _ratio(
        f"first pass over Parquet, {ROWS:.0e} x {COLUMNS}",
        1.1,
        ours_seconds,
        plain,
        "columns to arrays as stored",
    )


def _typed(path: Path) -> None:
    """Read the file as a reader that trusts its types: columns to arrays, arrays to rows."""
    import pyarrow.dataset as ds

    options = ds.ParquetFragmentScanOptions(use_buffered_stream=True, buffer_size=1 << 20, pre_buffer=False)
    data = ds.dataset(path, format=ds.ParquetFileFormat(default_fragment_scan_options=options))
    scanner = data.scanner(batch_size=1 << 16, batch_readahead=1, fragment_readahead=1, use_threads=False)
    for batch in scanner.to_batches():
        arrays = [batch.column(j).to_numpy(zero_copy_only=False) for j in range(COLUMNS)]
        features = np.empty((batch.num_rows, COLUMNS), np.float32)
        for start in range(0, batch.num_rows, 1024):
            for j, array in enumerate(arrays):
                features[start : start + 1024, j] = array[start : start + 1024]


def _text(folder: Path) -> list[Row]:
    import pandas as pd

    rng = np.random.default_rng(1)
    frame: dict[str, Any] = {f"x{j}": rng.standard_normal(LINES).round(6) for j in range(NUMBERS)}
    frame |= {f"c{j}": rng.choice(KINDS, LINES) for j in range(WORDS)}
    path = folder / "t.csv"
    pd.DataFrame(frame).to_csv(path, index=False)
    kinds = {name: float if name.startswith("x") else "category" for name in frame}
    schema = Schema.from_dict(
        {
            "columns": {
                name: {"range": [-3, 3]} if name.startswith("x") else {"categories": list(KINDS)}
                for name in frame
            }
        }
    )
    listed = {kind: i for i, kind in enumerate(KINDS)}

    def ours() -> None:
        for table in TableFiles(path).batches(schema.names):
            for name in schema.names:
                cells = table.column(name)
                _ = cells.numbers() if name.startswith("x") else cells.codes(listed)

    def encoded() -> None:
        for table in TableFiles(path).batches(schema.names):
            SchemaEncoder(schema).transform(table)

    theirs = seconds(lambda: pd.read_csv(path, dtype=kinds), repeats=3)
    size = f"{LINES:.0e} x {NUMBERS + WORDS}"
    return [
        _ratio(
            f"text of {size}, cells read by a schema",
            2.0,
            seconds(ours, repeats=3),
            theirs,
            "pandas' typed reader",
        ),
        _ratio(
            "the same, encoded to rows", None, seconds(encoded, repeats=3), theirs, "which does not encode"
        ),
    ]


def _ratio(what: str, limit: float | None, ours: float, theirs: float, note: str) -> Row:
    ratio = ours / theirs
    return Row(
        what=what,
        asked="" if limit is None else f"{limit:g} times",
        measured=f"{ratio:.2f} times ({ours:.2f} s)",
        met=None if limit is None else ratio <= limit,
        note=f"against {theirs:.2f} s: {note}",
    )
