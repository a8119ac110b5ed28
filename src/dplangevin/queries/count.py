"""Front ends: predicates over a DataFrame, marginals over a schema, and both over files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin._rng import generator
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.generalized_gaussian import GeneralizedGaussianMechanism
from dplangevin.privacy.spender import Spender, under_head
from dplangevin.problem.constants import Adjacency
from dplangevin.queries.axes import DEFAULT_BINS, Bins
from dplangevin.queries.count_table import CountTable
from dplangevin.queries.duckdb_table import DuckTable, Progress
from dplangevin.queries.frames import frame_of
from dplangevin.queries.marginals import Marginals
from dplangevin.queries.row_queries import RowQueries
from dplangevin.schema.schema import Schema


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
    **noise: Any,
) -> CountTable:
    """How many rows of a pandas or polars DataFrame satisfy each query, with noise.

    Parameters
    ----------
    table : the DataFrame.
    queries : named (or listed) queries, each a predicate built from `column(...)`, a SQL text over one row (needs
        DuckDB), a function of one row (a dict) with values in [0, 1], or an array of one value in [0, 1] per row.
    touched_counts : the most queries one row can satisfy, when that is known (for example 1 for disjoint ones).
    max_rows_per_person : the promise covers all rows of a person who owns at most so many.
    schema : gives the columns their types for SQL.
    noise : objective, p, adjacency of GeneralizedGaussianMechanism.
    """
    frame = frame_of(table)
    with RowQueries.of(queries, frame, table, schema) as asked:
        mechanism = planned(
            queries=len(asked),
            touched_queries=touched_counts,
            rows_per_person=max_rows_per_person,
            epsilon=epsilon,
            delta=delta,
            **noise,
        )
        return _released(mechanism, asked.count, asked.names, None, random_state, ledger)


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
    **noise: Any,
) -> CountTable:
    """All `ways`-way tables of counts of a DataFrame (1: histograms), or the sets of columns listed, with noise.

    The cells come from the schema: categories as listed, ranges cut into `bins` (a number, or edges per column).
    """
    frame = frame_of(table)
    cells = Marginals.over(schema, ways=ways, columns=columns, bins=bins)
    for name in cells.axes:
        frame.require(name)
    mechanism = planned(
        tables=cells, rows_per_person=max_rows_per_person, epsilon=epsilon, delta=delta, **noise
    )
    return _released(mechanism, lambda: cells.count(frame), (), cells, random_state, ledger)


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
    announce: Callable[[GeneralizedGaussianMechanism], None] | None = None,
    progress: Progress | None = None,
    **noise: Any,
) -> CountTable:
    """SQL predicates and marginals of a Parquet or CSV file, each kind in one pass, with bounded memory.

    `announce` is called with the calibrated noise before the file's rows are read, `progress` with the rows read.
    """
    texts = _named(queries)
    if marginals is None and not texts:
        raise InvalidParameter("nothing to count: give queries (SQL texts) or marginals.")
    if marginals is not None and schema is None:
        raise InvalidParameter("marginals need the schema whose cells they count.")
    with DuckTable(str(path), schema, memory=memory, threads=threads) as table:
        written = [table.predicate(text) for text in texts.values()]
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

        def counted() -> NDArray[np.int64]:
            parts = [table.count_predicates(written)] if written else []
            if marginals is not None:
                parts.append(table.count_marginals(marginals, progress))
            return np.concatenate(parts)

        return _released(mechanism, counted, tuple(texts), marginals, random_state, ledger)


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
    if unknown := sorted(set(noise) - {"epsilon", "delta", "objective", "p"}):
        raise InvalidParameter(
            f"unknown option {', '.join(unknown)}; noise options are objective, p and adjacency."
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
        **noise,
    )


def _released(
    mechanism: GeneralizedGaussianMechanism,
    counted: Callable[[], NDArray[Any]],
    names: tuple[str, ...],
    tables: Marginals | None,
    random_state: object,
    ledger: Spender | None,
) -> CountTable:
    """Charge first, read second, add noise third."""
    rng, seeded = generator(random_state)
    token = ledger.reserve(mechanism) if ledger is not None else None
    values = mechanism.release(counted(), rng)
    found = CountTable(values=values, mechanism=mechanism, seeded=seeded, names=names, tables=tables)
    if ledger is not None and token is not None:
        under_head(found, ledger.commit(token, found.digest()))
    return found


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
