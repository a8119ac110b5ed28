"""Front ends: predicates over a DataFrame, marginals over a schema, and both over files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.families.noisy_answers.generalized_gaussian_mechanism import (
    GeneralizedGaussianMechanism,
)
from dplangevin.families.run_state import StatePath
from dplangevin.privacy.spender import Spender
from dplangevin.problem.constants import Adjacency
from dplangevin.queries.axes import DEFAULT_BINS, Bins
from dplangevin.queries.count_table import CountTable
from dplangevin.queries.duckdb_table import SqlCounter
from dplangevin.queries.marginals import Marginals
from dplangevin.queries.row_queries import RowQueries
from dplangevin.schema import Schema, as_schema
from dplangevin.tables import Dialect, Files, Table, is_path, table_of

Progress = Callable[[int], None]


def count_queries(
    table: Any,
    queries: Mapping[str, Any] | Sequence[Any],
    *,
    epsilon: float,
    delta: float,
    schema: Schema | None = None,
    touched_counts: int | None = None,
    max_rows_per_person: int = 1,
    random_state: object = None,
    ledger: Spender | None = None,
    state: StatePath = None,
    **noise: Any,
) -> CountTable:
    """How many rows of a table (pandas, polars, Arrow) satisfy each query, with noise.

    Parameters
    ----------
    table : the table; every cell is read by itself.
    queries : named (or listed) queries, each a predicate built from `column(...)`, a SQL text over one row (needs
        DuckDB and a schema), a function of one row (a dict of numbers, texts and None) with values in [0, 1], or an
        array of one value in [0, 1] per row; values outside are clipped.
    touched_counts : the most queries one row can satisfy, when that is known (for example 1 for disjoint ones); of a
        row that satisfies more only the first so many count.
    max_rows_per_person : the promise covers all rows of a person who owns at most so many.
    schema : gives the columns their types for SQL; without it types would come from the records.
    state : path of a private file from which the same call goes on after a crash, with its noise and its charge.
    noise : objective, p, secure, adjacency of GeneralizedGaussianMechanism. With secure=True values are rounded to the
        noise's public grid row by row.
    """
    schema = None if schema is None else as_schema(schema)
    rows = table_of(table, None if schema is None else schema.names)
    asked = RowQueries.of(queries, rows, schema)
    with asked.sql or nullcontext():
        mechanism = planned(
            queries=len(asked.names),
            touched_queries=touched_counts,
            rows_per_person=max_rows_per_person,
            epsilon=epsilon,
            delta=delta,
            **noise,
        )
        exact = partial(asked.count, mechanism.grid if mechanism.secure else None, touched_counts)
        return _released(mechanism, exact, asked.names, None, random_state, ledger, state)


def count_marginals(
    table: Any,
    schema: Schema,
    *,
    epsilon: float,
    delta: float,
    ways: int = 1,
    columns: Iterable[str | Sequence[str]] | None = None,
    bins: Bins = DEFAULT_BINS,
    max_rows_per_person: int = 1,
    random_state: object = None,
    ledger: Spender | None = None,
    state: StatePath = None,
    **noise: Any,
) -> CountTable:
    """All `ways`-way tables of counts of a DataFrame (1: histograms), or the sets of columns listed, with noise.

    The cells come from the schema: categories as listed, ranges cut into `bins` (a number, or edges per column).
    """
    schema = as_schema(schema)
    rows = table_of(table, schema.names)
    cells = Marginals.over(schema, ways=ways, columns=columns, bins=bins)
    for name in cells.axes:
        rows.column(name)
    mechanism = planned(
        tables=cells, rows_per_person=max_rows_per_person, epsilon=epsilon, delta=delta, **noise
    )
    return _released(mechanism, lambda: cells.count(rows.blocks()), (), cells, random_state, ledger, state)


def count_file(
    path: str | Path,
    *,
    epsilon: float,
    delta: float,
    schema: Schema | None = None,
    queries: Mapping[str, str] | Sequence[str] | None = None,
    marginals: Marginals | None = None,
    max_rows_per_person: int = 1,
    memory: str = "1GB",
    threads: int | None = None,
    random_state: object = None,
    ledger: Spender | None = None,
    state: StatePath = None,
    announce: Callable[[GeneralizedGaussianMechanism], None] | None = None,
    progress: Progress | None = None,
    dialect: Dialect | None = None,
    **noise: Any,
) -> CountTable:
    """SQL predicates and marginals of Parquet, Arrow or text files in one pass, with bounded memory.

    A line of a text file is a record (see `dplangevin.tables.Dialect`). `announce` is called with the calibrated noise
    before the file's rows are read, `progress` with the rows read.
    """
    texts = _named(queries)
    if marginals is None and not texts:
        raise InvalidParameter("nothing to count: give queries (SQL texts) or marginals.")
    if schema is None:
        raise InvalidParameter(
            "counting in a file needs a schema: the type of a column must not be guessed from private values."
        )
    schema = as_schema(schema)
    if not is_path(path):
        raise InvalidParameter(
            f"count_file reads Parquet, Arrow or text files by their paths, not a {type(path).__name__}; count tables "
            "in memory with count_queries or count_marginals."
        )
    files = Files(path, dialect)
    schema.validate(files.names)
    sql = SqlCounter(files.names, schema, memory=memory, threads=threads) if texts else None
    with sql or nullcontext():
        written = [] if sql is None else [sql.predicate(text) for text in texts.values()]
        names = list(marginals.axes) if marginals is not None else []
        files.require(names)
        mechanism = planned(
            queries=len(written),
            tables=marginals,
            rows_per_person=max_rows_per_person,
            epsilon=epsilon,
            delta=delta,
            **noise,
        )
        if announce is not None:
            announce(mechanism)
        used = list(dict.fromkeys([*names, *([] if sql is None else sql.names)]))

        def counted() -> NDArray[np.int64]:
            return _counted(_told_nothing(files.batches(used)), sql, written, marginals, progress)

        return _released(mechanism, counted, tuple(texts), marginals, random_state, ledger, state)


def _counted(
    tables: Iterator[Table],
    sql: SqlCounter | None,
    written: Sequence[str],
    marginals: Marginals | None,
    progress: Progress | None,
) -> NDArray[np.int64]:
    """Exact counts of predicates and cells, in one pass."""
    found = np.zeros(len(written), np.int64)

    def passed() -> Iterator[Table]:
        done = 0
        for table in tables:
            if sql is not None:
                found[:] += sql.count(table, written)
            yield table
            done += len(table)
            if progress is not None:
                progress(done)

    if marginals is not None:
        cells = marginals.count(passed())  # fills `found` on the way
        return np.concatenate([found, cells])
    for _ in passed():
        pass
    return found


def _told_nothing(tables: Iterator[Table]) -> Iterator[Table]:
    """Errors of the reader may quote values of records, so their text is dropped."""
    try:
        yield from tables
    except DplangevinError:
        raise
    except Exception as error:
        raise InvalidParameter(
            f"the table could not be read ({type(error).__name__}); nothing was released. Check the file by hand."
        ) from None


def planned(
    *,
    queries: int = 0,
    touched_queries: int | None = None,
    tables: Marginals | None = None,
    rows_per_person: int = 1,
    adjacency: Adjacency = "replace-one",
    **noise: Any,
) -> GeneralizedGaussianMechanism:
    """The noise for these counts, for people who own up to r rows.

    A person changes a count by at most r, is in at most r cells of a table (2r when replaced by another), and can
    change every query unless `touched_queries` says how many one row can satisfy.
    """
    if unknown := sorted(set(noise) - {"epsilon", "delta", "objective", "p", "secure"}):
        raise InvalidParameter(
            f"unknown option {', '.join(unknown)}; noise options are objective, p, secure and adjacency."
        )
    rows = _check.count("max_rows_per_person", rows_per_person)
    cells = (2 if adjacency == "replace-one" else 1) * rows
    changed = queries
    if touched_queries is not None:
        changed = min(queries, cells * _check.count("touched_counts", touched_queries))
    sizes = tables.sizes() if tables is not None else ()
    return GeneralizedGaussianMechanism(
        k=queries + sum(sizes),
        sensitivity=float(rows),
        changed_counts=changed + sum(min(size, cells) for size in sizes),
        adjacency=adjacency,
        rows_per_person=rows,
        **noise,
    )


def _released(
    mechanism: GeneralizedGaussianMechanism,
    counted: Callable[[], NDArray[Any]],
    names: tuple[str, ...],
    tables: Marginals | None,
    random_state: object,
    ledger: Spender | None,
    state: StatePath,
) -> CountTable:
    """Charge first, read second, add noise third."""
    release = mechanism.run(counted, random_state, ledger, state)
    return CountTable(
        values=release.values[0],
        mechanism=mechanism,
        seeded=release.seeded,
        names=names,
        tables=tables,
        ledger_head=release.ledger_head,
    )


def _named(queries: Mapping[str, Any] | Sequence[Any] | None) -> dict[str, Any]:
    if queries is None:
        return {}
    if isinstance(queries, Mapping):
        return dict(queries)
    if isinstance(queries, str):
        raise InvalidParameter(
            "queries must be a list or a table of named queries, not one text; use [text]."
        )
    return {text if isinstance(text, str) else f"query {i + 1}": text for i, text in enumerate(queries)}
