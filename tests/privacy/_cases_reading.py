"""Type canaries: one record that would change the type of its column; old readings are the broken variants."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from dplangevin.estimators import DPLogisticRegression
from dplangevin.queries.count import plan_counts
from dplangevin.queries.marginals import Marginals
from dplangevin.schema import Schema
from dplangevin.tables import Table, TableFiles, as_table
from fuzz._odd_objects import Jax, Tensor
from fuzz._old_reader import old_column
from privacy._case import Case, Draw

DELTA = 1e-6
PEOPLE = 400
SCHEMA = Schema.from_dict({"columns": {"x": {"categories": ["1", "2"]}}, "missing": "middle"})
SIDES: tuple[list[Any], list[Any]] = ([1] * PEOPLE, [None, *[1] * (PEOPLE - 1)])
CELLS = Marginals.from_schema(SCHEMA)
MECHANISM = plan_counts(block_sizes=CELLS.sizes(), epsilon=1.0, delta=DELTA, p=2.0)


def noisy(counts: tuple[np.ndarray, np.ndarray]) -> Draw:
    """The noisy count of the first category."""

    def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        return np.array([MECHANISM.release(counts[side], rng)[0] for _ in range(runs)])

    return draw


def texts(values: Any) -> np.ndarray:
    """The old reading: the text of whatever the container made of a cell."""
    words = np.array([str(value) for value in values])
    return np.array([(words == "1").sum(), (words == "2").sum()])


def csv_file(cells: list[Any], folder: Path) -> Path:
    path = folder / f"{cells[0]}.csv"
    path.write_text("x\n" + "".join(f"{'' if cell is None else cell}\n" for cell in cells))
    return path


def parquet_file(cells: list[Any], folder: Path) -> Path:
    pd.DataFrame({"x": cells}).to_parquet(folder / f"{cells[0]}.parquet")
    return folder / f"{cells[0]}.parquet"


def entry(name: str, read: Callable[[list[Any]], Table], old: Callable[[list[Any]], Any]) -> Case:
    first, second = (CELLS.count([read(cells)]) for cells in SIDES)
    return Case(
        name=f"type canary: {name}",
        configuration=f"{PEOPLE} integers, one of them null",
        covers=("tables",),
        claim=MECHANISM.guarantee,
        honest=noisy((first, second)),
        broken_variants={"types of the container": noisy((texts(old(SIDES[0])), texts(old(SIDES[1]))))},
        loose="the canary leaves one cell and enters none",
        runs=300,
    )


def labels() -> Case:
    """Labels as a list, one of them odd: once everyone became the first class."""
    lists = [1] * PEOPLE, ["?", *[1] * (PEOPLE - 1)]
    encode = DPLogisticRegression(data_norm=1.0, classes=[0, 1]).target_encoder()

    def old(given: list[Any]) -> np.ndarray:
        return (np.asarray(given) == np.array([0, 1])[1]).astype(float)

    def counts(read: Any) -> Draw:
        totals = [np.array([int(np.sum(read(given))), 0]) for given in lists]
        return noisy((totals[0], totals[1]))

    return Case(
        name="type canary: labels in a list",
        configuration=f"{PEOPLE} labels, one of them '?'",
        covers=("tables",),
        claim=MECHANISM.guarantee,
        honest=counts(encode),
        broken_variants={"labels merged by NumPy": counts(old)},
        loose="the canary leaves one cell and enters none",
        runs=300,
    )


def scalars(name: str, make: Callable[[int], Any]) -> Case:
    """Labels as a list of scalars of an array library, one of them None: NumPy read them all, the rule none."""
    lists = [make(1) for _ in range(PEOPLE)], [None, *[make(1) for _ in range(PEOPLE - 1)]]
    encode = DPLogisticRegression(data_norm=1.0, classes=[0, 1]).target_encoder()

    def counts(read: Any) -> Draw:
        totals = [np.array([int(np.sum(read(given))), 0]) for given in lists]
        return noisy((totals[0], totals[1]))

    return Case(
        name=f"type canary: {name}",
        configuration=f"{PEOPLE} labels, one of them None",
        covers=("tables",),
        claim=MECHANISM.guarantee,
        honest=counts(encode),
        broken_variants={"whatever NumPy reads": counts(lambda given: encode(old_column("list", given)))},
        loose="the canary leaves one cell and enters none",
        runs=300,
    )


def cases() -> tuple[Case, ...]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        return (
            entry(
                "list",
                lambda c: as_table([[x] for x in c], ["x"]),
                lambda c: np.array(c, float if None in c else int),
            ),
            entry("pandas", lambda c: as_table(pd.DataFrame({"x": c})), lambda c: pd.Series(c)),
            entry(
                "pandas, nullable",
                lambda c: as_table(pd.DataFrame({"x": pd.array(c, dtype="Int64")})),
                lambda c: pd.array(c, dtype="Int64").to_numpy(float, na_value=np.nan) if None in c else c,
            ),
            entry("polars", lambda c: as_table(pl.DataFrame({"x": c})), lambda c: pl.Series(c).to_numpy()),
            entry("Arrow", lambda c: as_table(pa.table({"x": c})), lambda c: pa.array(c).to_pandas()),
            entry(
                "CSV",
                lambda c: TableFiles(csv_file(c, folder)).read_table(),
                lambda c: pd.read_csv(csv_file(c, folder), skip_blank_lines=False)["x"],
            ),
            entry(
                "Parquet",
                lambda c: TableFiles(parquet_file(c, folder)).read_table(),
                lambda c: pd.read_parquet(parquet_file(c, folder))["x"],
            ),
            labels(),
            scalars("0-d arrays in a list", np.array),
            scalars("tensors in a list", Tensor),
            scalars("JAX scalars in a list", Jax),
        )


CASES = cases()
