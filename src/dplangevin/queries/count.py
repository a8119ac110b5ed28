"""Private counts: predicates over a table, marginals over a schema, and both over files.

A CountTable holds the released counts with labels, error and guarantee; its post-processing costs no privacy.
"""

from __future__ import annotations

import csv
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin import _check, _files
from dplangevin._arrays import Floats
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.mechanisms.mechanism import check_seed
from dplangevin.mechanisms.noisy_answers.mechanism import GeneralizedGaussianMechanism
from dplangevin.mechanisms.noisy_answers.spec import plan_exact_noise
from dplangevin.mechanisms.run_state import CheckpointPath
from dplangevin.problem.constants import Adjacency
from dplangevin.queries.marginals import DEFAULT_BINS, Bins, Marginals
from dplangevin.queries.row_queries import RowQueries, SqlCounter, import_optional
from dplangevin.schema import Schema, as_schema
from dplangevin.tables import Dialect, Table, as_table, is_streamed, open_files
from dplangevin.tables.lazy import open_stored_table

MARGIN_LEVEL, MARGIN_COLUMN = 0.95, "noise_margin_95"


def clip_nonnegative(values: ArrayLike, total: float | None = None) -> Floats:
    """Clip counts at 0; with a total, return the least-squares projection on counts >= 0 with this total.

    Examples
    --------
    >>> clip_nonnegative([3.0, -1.0, 2.0], total=4.0)
    array([2.5, 0. , 1.5])
    """
    counts = np.asarray(values, float)
    if total is None:
        return np.asarray(np.maximum(counts, 0.0))
    total = _check.check_nonnegative("total", total)
    ordered = np.sort(counts)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, counts.size + 1)
    above = np.flatnonzero(ordered > excess)
    if total == 0 or above.size == 0:
        result = np.zeros_like(counts)
        result[np.argmax(counts)] = total
        return result
    return np.asarray(np.maximum(counts - excess[above[-1]], 0.0))


def round_to_integers(values: ArrayLike, total: float | None = None) -> Floats:
    """Round to whole counts; with a total, round the largest fractions up so that the rounded total is preserved."""
    counts = np.asarray(values, float)
    if total is None:
        return np.asarray(np.rint(counts))
    result = np.floor(counts)
    units = round(total - float(result.sum()))
    order = np.argsort(result - counts, kind="stable")
    if units > 0:
        result[order[: min(units, counts.size)]] += 1
    return np.asarray(result)


def make_totals_consistent(tables: Sequence[ArrayLike], total: float | None = None) -> list[Floats]:
    """Shift each table evenly so that all add up to one total: the least-squares projection of equal-noise counts.

    Without a known total it is sum(T_i / c_i) / sum(1 / c_i), with T_i the sum and c_i the number of cells of table i.
    """
    counts = [np.asarray(table, float) for table in tables]
    if total is None:
        weights = np.array([1 / table.size for table in counts])
        total = float(weights @ np.array([table.sum() for table in counts]) / weights.sum())
    return [table + (total - table.sum()) / table.size for table in counts]


def describe_release(mechanism: GeneralizedGaussianMechanism, seeded: bool) -> str:
    """Return sentences on the guarantee and the error of noisy counts."""
    guarantee = mechanism.guarantee
    seed = (
        " The noise came from a given seed: do not publish the seed, nor the counts if the seed is known."
        if seeded
        else ""
    )
    return (
        f"({guarantee.epsilon():.4g}, {guarantee.at_delta:.4g})-differential privacy for {guarantee.adjacency} "
        f"neighbours. {mechanism.describe()}{seed}"
    )


class WritableCounts(ABC):
    """Released counts that become columns, a data frame or a file: table, cell, count and noise_margin_95.

    noise_margin_95 is the distance within which a count as released, before post-processing, is from the true one with
    95% probability.
    """

    @abstractmethod
    def column_blocks(self) -> Iterator[dict[str, Any]]:
        """Yield table, cell, count and margin, one table at a time: labels take more memory than counts."""

    @abstractmethod
    def metadata(self) -> dict[str, Any]:
        """Return what a file states about the counts: the mechanism with its guarantee, and what followed it."""

    def columns(self) -> dict[str, Any]:
        """Return table, cell, count and margin of all counts, as columns."""
        blocks = list(self.column_blocks())
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {
            "columns": {name: cells.tolist() for name, cells in self.columns().items()},
            **self.metadata(),
        }

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame of tables, cells and counts."""
        return import_optional("pandas", "a pandas DataFrame").DataFrame(self.columns())

    def write(self, path: str | Path) -> None:
        """Write .parquet, .csv or .json; JSON and Parquet metadata contain the guarantee."""
        target = Path(path)
        if target.suffix == ".json":
            _files.write_text(target, json.dumps(self.to_dict(), allow_nan=False) + "\n")
        elif target.suffix == ".csv":
            with (
                _files.replace_atomically(target) as draft,
                draft.open("w", encoding="utf-8", newline="") as file,
            ):
                writer = csv.writer(file)
                writer.writerow(("table", "cell", "count", MARGIN_COLUMN))
                for block in self.column_blocks():
                    writer.writerows(zip(*(values.tolist() for values in block.values()), strict=True))
        elif target.suffix == ".parquet":
            with _files.replace_atomically(target) as draft:
                self._write_parquet(draft)
        else:
            raise InvalidParameter(f"the output {str(path)!r} must end in .parquet, .csv or .json.")

    def _write_parquet(self, path: Path) -> None:
        arrow, parquet = (
            import_optional("pyarrow", "writing Parquet"),
            import_optional("pyarrow.parquet", "writing Parquet"),
        )
        fields = [("table", arrow.string()), ("cell", arrow.string()), ("count", arrow.float64())]
        fields.append((MARGIN_COLUMN, arrow.float64()))
        layout = arrow.schema(fields, metadata={b"dplangevin": json.dumps(self.metadata()).encode()})
        with parquet.ParquetWriter(path, layout) as writer:
            for block in self.column_blocks():
                writer.write_table(arrow.table({n: arrow.array(v) for n, v in block.items()}, schema=layout))


@dataclass(frozen=True, kw_only=True, eq=False)
class CountTable(WritableCounts):
    """Released noisy counts; the exact counts are not stored.

    Parameters
    ----------
    values : the released counts: those of the named queries, then those of the tables.
    mechanism : the noise that was added, with its guarantee and its error.
    seeded : whether the noise came from a user's seed; whoever knows it can remove the noise.
    names : the queries.
    tables : the marginals.
    postprocessing : names of the post-processing steps that were applied.
    ledger_head : head of the ledger's chain after this release was charged; None without a ledger.
    """

    values: Floats
    mechanism: GeneralizedGaussianMechanism
    seeded: bool
    names: tuple[str, ...] = ()
    tables: Marginals | None = None
    postprocessing: tuple[str, ...] = ()
    ledger_head: str | None = field(default=None, repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the release."""
        return self.mechanism.guarantee

    def __len__(self) -> int:
        return int(self.values.size)

    def intervals(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[Floats, Floats]:
        """Return exact confidence intervals (low, high) of the true counts; only before post-processing."""
        if self.postprocessing:
            raise InvalidParameter(
                "intervals are exact for counts as released; compute them before post-processing."
            )
        return self.mechanism.intervals(self.values, level, simultaneous=simultaneous)

    def postprocess(
        self,
        *,
        nonnegative: bool = True,
        round_counts: bool = True,
        totals: bool = True,
        total: float | None = None,
    ) -> CountTable:
        """Return a table with consistent totals (`total`, when public), counts >= 0 and whole numbers.

        This costs no privacy. Tables that ignore some rows (categories with other = "ignore") have no common total and
        keep their own.
        """
        complete = [False] * bool(self.names) + list(
            self.tables.is_complete() if self.tables is not None else ()
        )
        steps = {"totals": totals and any(complete), "nonnegative": nonnegative, "rounded": round_counts}
        blocks = [values for _, values in self._count_blocks()]
        block_totals: list[float | None] = [None] * len(blocks)
        if steps["totals"]:
            indices = [i for i, is_complete in enumerate(complete) if is_complete]
            for i, block in zip(
                indices, make_totals_consistent([blocks[i] for i in indices], total), strict=True
            ):
                blocks[i], block_totals[i] = block, max(float(block.sum()), 0.0)
        if nonnegative:
            blocks = [clip_nonnegative(block, aim) for block, aim in zip(blocks, block_totals, strict=True)]
        if round_counts:
            block_totals = [None if aim is None else float(np.rint(aim)) for aim in block_totals]
            blocks = [round_to_integers(block, aim) for block, aim in zip(blocks, block_totals, strict=True)]
        done = tuple(name for name, is_applied in steps.items() if is_applied)
        return replace(self, values=np.concatenate(blocks), postprocessing=(*self.postprocessing, *done))

    def _count_blocks(self) -> Iterator[tuple[tuple[str, ...] | None, Floats]]:
        """Yield the counts of the queries (named None), then those of each table."""
        start = len(self.names)
        if self.names:
            yield None, self.values[:start]
        if self.tables is not None:
            for names, size in zip(self.tables.sets, self.tables.sizes(), strict=True):
                yield names, self.values[start : start + size]
                start += size

    def column_blocks(self) -> Iterator[dict[str, Any]]:
        """Yield table, cell, count and margin, one table at a time: labels take more memory than counts."""
        margin = self.mechanism.margin(MARGIN_LEVEL)
        for names, values in self._count_blocks():
            if names is None:
                labels = np.array(self.names)
            else:
                assert self.tables is not None
                labels = self.tables.cell_labels(names)
            title = "predicate" if names is None else " x ".join(names)
            yield {
                "table": np.full(values.size, title),
                "cell": labels,
                "count": values,
                MARGIN_COLUMN: np.full(values.size, margin),
            }

    def describe_error(self) -> str:
        """Return sentences on the guarantee and the error."""
        return describe_release(self.mechanism, self.seeded)

    def metadata(self) -> dict[str, Any]:
        """Return the mechanism with its guarantee, and what followed it."""
        return {
            "mechanism": self.mechanism.to_dict(),
            "seeded": self.seeded,
            "processed": list(self.postprocessing),
        }

    def digest(self) -> str:
        """Return a hash of the released numbers, for the ledger."""
        return hashlib.sha256(np.ascontiguousarray(self.values).tobytes()).hexdigest()


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
    ledger: BudgetAccount | None = None,
    checkpoint: CheckpointPath = None,
    **noise: Any,
) -> CountTable:
    """Release how many rows of a table (pandas, polars, Arrow) satisfy each query.

    Parameters
    ----------
    table : the table; every cell is read on its own.
    queries : named (or listed) queries, each a predicate built from `column(...)`, a SQL text over one row (needs
        DuckDB and a schema), a function of one row (a dict of numbers, texts and None) with values in [0, 1], or an
        array of one value in [0, 1] per row; values outside are clipped.
    epsilon, delta : the guarantee for all counts together.
    touched_counts : largest number of queries that one row can satisfy, if known (for example 1 for disjoint queries);
        of a row that satisfies more, only the first so many count.
    max_rows_per_person : the guarantee covers all rows of a person who owns at most this many.
    schema : gives the columns their types for SQL; without it types would depend on the records.
    checkpoint : path of a private file from which the same call resumes after a crash, with its noise and its charge.
    noise : objective, p, adjacency of GeneralizedGaussianMechanism, and secure: None (the default) draws exact noise
        on integers (floating-point noise only where no exact sampler exists), True refuses what is not exact and a
        seed, False allows floating-point noise. With exact noise values are rounded to its public grid row by row.

    Privacy
    -------
    The guarantee is that of the returned table's mechanism; the ledger is charged before the table is read.
    """
    check_seed(noise.get("secure"), random_state)
    schema = None if schema is None else as_schema(schema)
    rows = as_table(open_stored_table(table), None if schema is None else schema.names)
    row_queries = RowQueries.from_queries(queries, rows, schema)
    with row_queries.sql or nullcontext():
        mechanism = plan_counts(
            queries=len(row_queries.names),
            touched_queries=touched_counts,
            rows_per_person=max_rows_per_person,
            epsilon=epsilon,
            delta=delta,
            **noise,
        )
        exact = partial(row_queries.count, mechanism.grid if mechanism.secure else None, touched_counts)
        return _release_counts(mechanism, exact, row_queries.names, None, random_state, ledger, checkpoint)


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
    ledger: BudgetAccount | None = None,
    checkpoint: CheckpointPath = None,
    **noise: Any,
) -> CountTable:
    """Release all `ways`-way marginals of a table (1: histograms), or those of the listed sets of columns.

    The cells come from the schema: categories as listed, ranges divided into `bins` (a number, or edges per column).
    Other parameters are those of `count_queries`.
    """
    check_seed(noise.get("secure"), random_state)
    schema = as_schema(schema)
    rows = as_table(open_stored_table(table), schema.names)
    cells = Marginals.from_schema(schema, ways=ways, columns=columns, bins=bins)
    for name in cells.columns:
        rows.column(name)
    mechanism = plan_counts(
        block_sizes=cells.sizes(), rows_per_person=max_rows_per_person, epsilon=epsilon, delta=delta, **noise
    )
    return _release_counts(
        mechanism, lambda: cells.count(rows.blocks()), (), cells, random_state, ledger, checkpoint
    )


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
    ledger: BudgetAccount | None = None,
    checkpoint: CheckpointPath = None,
    announce: Callable[[GeneralizedGaussianMechanism], None] | None = None,
    progress: Progress | None = None,
    dialect: Dialect | None = None,
    **noise: Any,
) -> CountTable:
    """Release counts of SQL predicates and marginals of Parquet, Arrow or text files, in one pass with bounded memory.

    A line of a text file is a record (see `dplangevin.tables.Dialect`). `announce` is called with the calibrated noise
    before the file's rows are read, `progress` with the number of rows read. Other parameters are those of
    `count_queries`.
    """
    check_seed(noise.get("secure"), random_state)
    texts = _name_queries(queries)
    if marginals is None and not texts:
        raise InvalidParameter("nothing to count: give queries (SQL texts) or marginals.")
    if schema is None:
        raise InvalidParameter(
            "counting in a file needs a schema: the type of a column must not be guessed from private values."
        )
    schema = as_schema(schema)
    if not is_streamed(path):
        raise InvalidParameter(
            f"count_file reads Parquet, Arrow or text files by their paths, not a {type(path).__name__}; count tables "
            "in memory with count_queries or count_marginals."
        )
    files = open_files(path, dialect)
    schema.validate(files.names)
    sql = SqlCounter(files.names, schema, memory=memory, threads=threads) if texts else None
    with sql or nullcontext():
        predicates = [] if sql is None else [sql.check_predicate(text) for text in texts.values()]
        names = list(marginals.columns) if marginals is not None else []
        files.require_columns(names)
        mechanism = plan_counts(
            queries=len(predicates),
            block_sizes=() if marginals is None else marginals.sizes(),
            rows_per_person=max_rows_per_person,
            epsilon=epsilon,
            delta=delta,
            **noise,
        )
        if announce is not None:
            announce(mechanism)
        used_columns = list(dict.fromkeys([*names, *([] if sql is None else sql.names)]))

        def count_all() -> NDArray[np.int64]:
            batches = hide_reader_errors(files.batches(used_columns))
            return _count_exactly(batches, sql, predicates, marginals, progress)

        return _release_counts(
            mechanism, count_all, tuple(texts), marginals, random_state, ledger, checkpoint
        )


def _count_exactly(
    tables: Iterator[Table],
    sql: SqlCounter | None,
    predicates: Sequence[str],
    marginals: Marginals | None,
    progress: Progress | None,
) -> NDArray[np.int64]:
    """Return exact counts of predicates and cells, in one pass."""
    predicate_counts = np.zeros(len(predicates), np.int64)

    def counted_blocks() -> Iterator[Table]:
        n_rows = 0
        for table in tables:
            if sql is not None:
                predicate_counts[:] += sql.count(table, predicates)
            yield table
            n_rows += len(table)
            if progress is not None:
                progress(n_rows)

    if marginals is not None:
        cells = marginals.count(counted_blocks())  # counts the predicates on the way
        return np.concatenate([predicate_counts, cells])
    for _ in counted_blocks():
        pass
    return predicate_counts


def hide_reader_errors(tables: Iterator[Table]) -> Iterator[Table]:
    """Yield the tables; errors of the reader may quote values of records, so their text is dropped."""
    try:
        yield from tables
    except DplangevinError:
        raise
    except Exception as error:
        raise InvalidParameter(
            f"the table could not be read ({type(error).__name__}); nothing was released. Check the file by hand."
        ) from None


def plan_counts(
    *,
    queries: int = 0,
    touched_queries: int | None = None,
    block_sizes: Sequence[int] = (),
    rows_per_person: int = 1,
    adjacency: Adjacency = "replace-one",
    **noise: Any,
) -> GeneralizedGaussianMechanism:
    """Return the calibrated mechanism for queries and blocks of answers, for people who own up to r rows.

    A row adds a number in [0, 1] to each query, and to at most one answer of each block (a table of counts). So a
    person changes an answer by at most r, at most r answers of a block (2r when replaced by another), and every query
    unless `touched_queries` says how many one row can satisfy.
    """
    if unknown := sorted(set(noise) - {"epsilon", "delta", "objective", "p", "secure"}):
        raise InvalidParameter(
            f"unknown option {', '.join(unknown)}; noise options are objective, p, secure and adjacency."
        )
    rows = _check.check_count("max_rows_per_person", rows_per_person)
    cells = (2 if adjacency == "replace-one" else 1) * rows
    changed = queries
    if touched_queries is not None:
        changed = min(queries, cells * _check.check_count("touched_counts", touched_queries))
    return plan_exact_noise(
        lambda exact: GeneralizedGaussianMechanism(
            k=queries + sum(block_sizes),
            sensitivity=float(rows),
            changed_counts=changed + sum(min(size, cells) for size in block_sizes),
            adjacency=adjacency,
            rows_per_person=rows,
            **(noise | {"secure": exact}),
        ),
        noise.get("secure"),
    )


def _release_counts(
    mechanism: GeneralizedGaussianMechanism,
    count_exactly: Callable[[], NDArray[Any]],
    names: tuple[str, ...],
    tables: Marginals | None,
    random_state: object,
    ledger: BudgetAccount | None,
    checkpoint: CheckpointPath,
) -> CountTable:
    """Charge the budget, count, add noise, in this order."""
    release = mechanism.run(count_exactly, random_state, ledger, checkpoint)
    return CountTable(
        values=release.values[0],
        mechanism=mechanism,
        seeded=release.seeded,
        names=names,
        tables=tables,
        ledger_head=release.ledger_head,
    )


def _name_queries(queries: Mapping[str, Any] | Sequence[Any] | None) -> dict[str, Any]:
    if queries is None:
        return {}
    if isinstance(queries, Mapping):
        return dict(queries)
    if isinstance(queries, str):
        raise InvalidParameter(
            "queries must be a list or a mapping of named queries, not one text; use [text]."
        )
    return {text if isinstance(text, str) else f"query {i + 1}": text for i, text in enumerate(queries)}
