"""Private sums, means and quantiles of columns with stated ranges, in all or by group: one release, one guarantee.

A value is first mapped from its stated range to [0, 1] and clipped. What is released is a list of blocks of answers,
of each of which a row touches at most one, by a number in [0, 1]: rows by group, values present by group, sums of
mapped values by group, and dyadic counts of the values (one block a level). The noise is that of counts, so is its
proof; sums, means, quantiles and their intervals are computed from the released answers (docs/theory/summaries.md).
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mechanism import check_seed
from dplangevin.mechanisms.noisy_answers.mechanism import GeneralizedGaussianMechanism
from dplangevin.mechanisms.run_state import CheckpointPath
from dplangevin.problem.constants import Adjacency
from dplangevin.queries.count import Progress, describe_release, hide_reader_errors, plan_counts
from dplangevin.queries.marginals import Axis, find_feature, make_axis, middle_of_range
from dplangevin.queries.row_queries import import_optional
from dplangevin.schema import Feature, NumericColumn, Schema, as_schema
from dplangevin.tables import Dialect, Table, as_table, is_path, is_streamed, open_files
from dplangevin.tables.lazy import open_stored_table

STATISTICS = ("mean", "sum")
TREE_LEVELS = 7
"""Quantiles are found in 2^TREE_LEVELS bins of equal width on the column's scale."""
LEVEL = 0.95
ALL_ROWS = "all rows"
COLUMNS = ("column", "group", "statistic", "value", "low_95", "high_95")


@dataclass(frozen=True, kw_only=True)
class SummarizedColumn:
    """A column with a stated range, and how its missing cells are read.

    Parameters
    ----------
    feature : of the schema, with a range.
    counts_present : missing cells take no part, and the values that are present are counted; otherwise a missing cell
        is the middle of the range.
    """

    feature: Feature
    counts_present: bool

    @property
    def column(self) -> NumericColumn:
        """The stated range and scale."""
        assert isinstance(self.feature.column, NumericColumn)
        return self.feature.column

    def map_values(self, table: Table) -> tuple[Floats, NDArray[np.int64], NDArray[np.bool_]]:
        """Return values in [0, 1], bins and whether a value takes part, for each row by itself."""
        column = self.column
        values = np.asarray(self.feature.cells(table).numbers(), np.float64)
        absent = np.isnan(values)
        values = np.clip(np.where(absent, middle_of_range(column), values), column.low, column.high)
        units = np.clip((values - column.low) / (column.high - column.low), 0.0, 1.0)
        bins = np.searchsorted(self.edges[1:-1], values, side="right").astype(np.int64)
        return units, bins, ~absent if self.counts_present else np.ones(len(values), bool)

    @property
    def edges(self) -> Floats:
        """Edges of the bins."""
        column, size = self.column, 2**TREE_LEVELS + 1
        if column.transform == "log1p":
            grid = np.expm1(np.linspace(np.log1p(column.low), np.log1p(column.high), size))
        else:
            grid = np.linspace(column.low, column.high, size)
        grid[0], grid[-1] = column.low, column.high
        return np.asarray(grid)


@dataclass(frozen=True, kw_only=True, eq=False)
class SummaryRequest:
    """What is released, decided from public facts alone.

    Parameters
    ----------
    columns : that are summarized.
    groups : cells by which rows are grouped, or None.
    statistics : "mean", "sum", both or none.
    quantiles : probabilities in (0, 1).
    n_rows : the public number of rows (under "replace-one"), or None.
    """

    columns: tuple[SummarizedColumn, ...]
    groups: Axis | None
    statistics: tuple[str, ...]
    quantiles: tuple[float, ...]
    n_rows: int | None

    @property
    def group_labels(self) -> tuple[str, ...]:
        """Names of the groups."""
        return (ALL_ROWS,) if self.groups is None else self.groups.labels

    def size_key(self, column: SummarizedColumn) -> tuple[str, str] | None:
        """Return the block that counts the column's values by group; None where their number is public."""
        if column.counts_present:
            return ("present", column.column.name)
        return ("rows", "") if self.n_rows is None or self.groups is not None else None

    @cached_property
    def blocks(self) -> dict[tuple[str, str], slice]:
        """Positions of each block of answers; a row touches at most one answer of each, by a number in [0, 1]."""
        sizes: dict[tuple[str, str], int] = {}
        n_groups = len(self.group_labels)
        for column in self.columns:
            key = self.size_key(column)
            if key is not None:
                sizes[key] = n_groups
            if self.statistics:
                sizes["total", column.column.name] = n_groups
            if self.quantiles:
                sizes |= {(f"level {i}", column.column.name): 2**i for i in range(1, TREE_LEVELS + 1)}
        ends = np.cumsum(list(sizes.values()))
        return {
            key: slice(end - size, end)
            for (key, size), end in zip(sizes.items(), map(int, ends), strict=True)
        }

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Number of answers of each block."""
        return tuple(place.stop - place.start for place in self.blocks.values())

    @property
    def names(self) -> list[str]:
        """Columns of the table that are read."""
        features = [column.feature for column in self.columns]
        features += [] if self.groups is None else [self.groups.feature]
        return list(dict.fromkeys(feature.source for feature in features))

    def sum_rows(self, tables: Iterable[Table], grid: float | None) -> Floats:
        """Return the exact answers (private); with a grid, a power of two, each row's numbers are rounded to it."""
        answers = np.zeros(sum(self.block_sizes))
        for table in tables:
            groups = np.zeros(len(table), np.int64) if self.groups is None else self.groups.codes(table)
            self._add_cells(answers, ("rows", ""), groups, groups >= 0)
            for column in self.columns:
                units, bins, takes_part = column.map_values(table)
                name, valid = column.column.name, takes_part & (groups >= 0)
                units = units if grid is None else np.rint(units / grid) * grid
                self._add_cells(answers, ("present", name), groups, valid)
                self._add_cells(answers, ("total", name), groups, valid, units)
                for i in range(1, TREE_LEVELS + 1):
                    self._add_cells(answers, (f"level {i}", name), bins >> (TREE_LEVELS - i), valid)
        return answers

    def _add_cells(
        self,
        answers: Floats,
        key: tuple[str, str],
        cells: NDArray[np.int64],
        valid: NDArray[np.bool_],
        weights: Floats | None = None,
    ) -> None:
        place = self.blocks.get(key)
        if place is not None:
            added = None if weights is None else weights[valid]
            answers[place] += np.bincount(cells[valid], added, minlength=place.stop - place.start)


@dataclass(frozen=True, kw_only=True, eq=False)
class SummaryTable:
    """Released sums, means and quantiles with intervals; every number is computed from noisy answers.

    Intervals hold with 95% probability, each by itself, over the noise: they are for the sum, mean or quantile of THIS
    table (of its values clipped to the stated range), and do not include sampling error.

    Parameters
    ----------
    answers : the released answers, in the order of the request's blocks.
    request : what was asked.
    mechanism : the noise that was added, with its guarantee.
    seeded : whether the noise came from a user's seed; whoever knows it can remove the noise.
    ledger_head : head of the ledger's chain after this release was charged; None without a ledger.
    """

    answers: Floats
    request: SummaryRequest
    mechanism: GeneralizedGaussianMechanism
    seeded: bool
    ledger_head: str | None = field(default=None, repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the release."""
        return self.mechanism.guarantee

    @cached_property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """One entry for each statistic: column, group, statistic, value, low_95, high_95."""
        return tuple(
            dict(zip(COLUMNS, row, strict=True))
            for column in self.request.columns
            for row in (*self._group_rows(column), *self._quantile_rows(column))
        )

    def columns(self) -> dict[str, Any]:
        """Return the entries as columns."""
        return {name: np.array([row[name] for row in self.rows]) for name in COLUMNS}

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame of the entries."""
        return import_optional("pandas", "a pandas DataFrame").DataFrame(
            list(self.rows), columns=list(COLUMNS)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {"rows": list(self.rows), "mechanism": self.mechanism.to_dict(), "seeded": self.seeded}

    def to_csv(self, delimiter: str = ",") -> str:
        """Return a header and one line for each entry."""
        text = io.StringIO()
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(
            [f"{cell:.10g}" if isinstance(cell, float) else cell for cell in row.values()]
            for row in self.rows
        )
        return text.getvalue()

    def describe_error(self) -> str:
        """Return sentences on the guarantee and the noise."""
        return describe_release(self.mechanism, self.seeded)

    def to_json(self) -> str:
        """Return the plain data as one line of JSON."""
        return json.dumps(self.to_dict(), allow_nan=False) + "\n"

    def _block(self, kind: str, name: str) -> Floats:
        return self.answers[self.request.blocks[kind, name]]

    def _group_rows(self, column: SummarizedColumn) -> Iterator[tuple[Any, ...]]:
        """Yield the number of values, mean and sum of each group."""
        request, low, name = self.request, column.column.low, column.column.name
        width, margin, rounding = column.column.high - low, self._margin([1.0]), self.mechanism.grid / 2
        key = request.size_key(column)
        for i, group in enumerate(request.group_labels):
            if key is None:
                assert request.n_rows is not None
                size, reach = float(request.n_rows), float(request.n_rows)
            else:
                size = float(self._block(*key)[i])
                reach = (
                    max(size, 0.0) + 8 * margin
                )  # above the true number except with negligible probability
                yield name, group, "rows", size, size - margin, size + margin
            if not request.statistics:
                continue
            total = float(self._block("total", name)[i])
            if "mean" in request.statistics:
                mean_margin = self._margin([1.0] if key is None else [1.0, 1.0])
                ends = (
                    (0.0, 1.0) if size <= 0 else ((total - mean_margin) / size, (total + mean_margin) / size)
                )
                middle = min(max(total / size, 0.0), 1.0) if size > 0 else 0.5
                first, last = max(ends[0] - rounding, 0.0), min(ends[1] + rounding, 1.0)
                first, last = min(first, middle), max(last, middle)
                yield name, group, "mean", low + width * middle, low + width * first, low + width * last
            if "sum" in request.statistics:
                value = low * size + width * total
                half = self._margin([width] if key is None else [width, low]) + width * rounding * reach
                yield name, group, "sum", value, value - half, value + half

    def _quantile_rows(self, column: SummarizedColumn) -> Iterator[tuple[Any, ...]]:
        """Yield the quantiles: the released counts of all levels are reconciled, then the distribution is inverted."""
        request, name, edges = self.request, column.column.name, column.edges
        if not request.quantiles:
            return
        levels = [self._block(f"level {i}", name) for i in range(1, TREE_LEVELS + 1)]
        key = request.size_key(column)
        total = request.n_rows if key is None else float(self._block(*key)[0])
        assert total is not None
        counts, decoder = fit_bin_counts(levels, total, total_is_exact=key is None)
        below = np.concatenate([np.zeros((1, len(counts))), np.tri(len(counts))])  # row j: bins below edge j
        for q in request.quantiles:
            excess = below - q  # times the counts: rows below an edge, less a fraction q of all
            scores = excess @ counts
            margins = self._margins(excess @ decoder)
            # Bin j holds the quantile only if no more than q lies below its lower edge, and no less below its upper.
            is_possible = (scores[:-1] - margins[:-1] <= 0) & (scores[1:] + margins[1:] >= 0)
            is_possible[0] |= not is_possible.any()
            bins = np.flatnonzero(is_possible)
            from scipy.optimize import isotonic_regression  # slow to import

            increasing = np.asarray(isotonic_regression(scores).x)
            value = float(np.clip(np.interp(0.0, increasing, edges), edges[bins[0]], edges[bins[-1] + 1]))
            yield name, ALL_ROWS, f"quantile {q:g}", value, float(edges[bins[0]]), float(edges[bins[-1] + 1])

    def _margin(self, weights: Sequence[float]) -> float:
        """Return the margin of one combination of the noise on different answers."""
        return float(self._margins(np.array([weights], float))[0])

    def _margins(self, weights: Floats) -> Floats:
        """Return for each row of weights a bound that this combination of the noise exceeds in 5% of cases at most."""
        sizes = np.abs(weights)
        rounding = self.mechanism.grid / 2 * sizes.sum(axis=1)
        if self.mechanism.p == 2 or sizes.shape[1] == 1:
            return np.asarray(self.mechanism.margin(LEVEL) * np.linalg.norm(sizes, axis=1) + rounding)
        return np.asarray(self.mechanism.sigma * bound_laplace_sums(sizes, 1 - LEVEL) + rounding)


_RATE_FRACTIONS = 1 - np.geomspace(0.95, 0.01, 12)


def bound_laplace_sums(weights: Floats, beta: float) -> Floats:
    """Return t for each row with Pr[|sum of weights times Laplace(1) noise| > t] <= beta, by Chernoff's bound.

    Examples
    --------
    >>> bound_laplace_sums(np.array([[1.0]]), 0.02).round(2)  # exactly: log(50) = 3.91
    array([6.93])
    """
    largest = np.maximum(weights.max(axis=1), 1e-300)
    bounds = []
    for fraction in _RATE_FRACTIONS:  # every rate below 1 / largest gives a bound
        rates = fraction / largest
        moments = np.log1p(-((rates[:, None] * weights) ** 2)).sum(axis=1)
        bounds.append((math.log(2 / beta) - moments) / rates)
    return np.asarray(np.min(bounds, axis=0))


def fit_bin_counts(levels: Sequence[Floats], total: float, *, total_is_exact: bool) -> tuple[Floats, Floats]:
    """Fit the counts of the finest bins to the noisy counts of all levels, by least squares.

    Return them, and the matrix that takes the noise of all answers to their errors.

    Parameters
    ----------
    levels : noisy counts of 2, 4, 8, ... bins, the noise of each of the same size.
    total : the number of rows. Where it is exact the bins add up to it; otherwise it is one more noisy answer.
    """
    answers = np.concatenate(levels)
    if not total_is_exact:
        decoder = _noisy_total_decoder(len(levels))
        return np.asarray(decoder @ np.append(answers, total)), decoder
    sums_of_bins, decoder = _sums_of_bins(len(levels)), _exact_total_decoder(len(levels))
    even = np.full(2 ** len(levels), total / 2 ** len(levels))
    return np.asarray(even + decoder @ (answers - sums_of_bins @ even)), decoder


@lru_cache(maxsize=8)
def _sums_of_bins(n_levels: int) -> Floats:
    """Return the matrix from the finest bins to the counts of all levels."""
    size = 2**n_levels
    return np.concatenate([np.repeat(np.eye(2**i), size // 2**i, axis=1) for i in range(1, n_levels + 1)])


@lru_cache(maxsize=8)
def _noisy_total_decoder(n_levels: int) -> Floats:
    """Return the least-squares inverse of all levels and the total."""
    return np.asarray(np.linalg.pinv(np.concatenate([_sums_of_bins(n_levels), np.ones((1, 2**n_levels))])))


@lru_cache(maxsize=8)
def _exact_total_decoder(n_levels: int) -> Floats:
    """Return the least-squares inverse of all levels among counts that add up to 0: departures from even counts."""
    basis = np.linalg.svd(np.ones((1, 2**n_levels)))[2][1:].T
    return np.asarray(basis @ np.linalg.pinv(_sums_of_bins(n_levels) @ basis))


def summarize_table(
    table: Any,
    schema: Schema | dict[str, Any],
    columns: Sequence[str] | None = None,
    *,
    epsilon: float,
    delta: float,
    statistics: Sequence[str] = STATISTICS,
    quantiles: Sequence[float] = (),
    by: str | None = None,
    max_rows_per_person: int = 1,
    adjacency: Adjacency = "replace-one",
    secure: bool | None = None,
    random_state: object = None,
    ledger: BudgetAccount | None = None,
    checkpoint: CheckpointPath = None,
    dialect: Dialect | None = None,
    announce: Callable[[GeneralizedGaussianMechanism], None] | None = None,
    progress: Progress | None = None,
) -> SummaryTable:
    """Release means, sums and quantiles of columns with stated ranges, in all or by group, under one guarantee.

    Parameters
    ----------
    table : a table, a file or several (Parquet, Arrow, text), or a query; every cell is read on its own.
    schema : the public ranges; values outside are clipped, so that intervals are for clipped values.
    columns : columns with a range; None: all of them.
    epsilon, delta : the guarantee for everything together; delta = 0 gives Laplace noise.
    statistics : "mean", "sum", both, or none.
    quantiles : probabilities such as (0.25, 0.5, 0.75); not by group.
    by : a column of the schema with categories (or a range, in ten intervals), by which rows are grouped.
    max_rows_per_person : the guarantee covers all rows of a person who owns at most this many.
    secure : None: exact noise where a sampler exists; True refuses what is not exact, and a seed.
    checkpoint : path of a private file from which the same call resumes after a crash, with its noise and its charge.
    announce, progress : called with the calibrated noise before rows are read, and with the number of rows read.

    Privacy
    -------
    The guarantee is that of the returned table's mechanism; the ledger is charged before the table is read. Under
    "replace-one" the number of rows is public. Missing cells take no part, and the values present are counted with
    noise; where the schema declares missing = "middle" or "never", missing cells are the middle of the range.

    Examples
    --------
    >>> from dplangevin.datasets import load_income
    >>> people, schema = load_income(n=20_000)
    >>> summary = summarize_table(people, schema, ["age"], epsilon=1.0, delta=1e-6, random_state=0)
    >>> [row["statistic"] for row in summary.rows]
    ['mean', 'sum']
    >>> bool(summary.rows[0]["low_95"] < people["age"].mean() < summary.rows[0]["high_95"])
    True
    """
    check_seed(secure, random_state)
    schema = as_schema(schema)
    request_columns = _find_columns(schema, columns)
    source: Any
    if is_path(table) or is_streamed(table):
        source = open_files(table, dialect)
        schema.validate(source.names)
    else:
        source = as_table(open_stored_table(table), schema.names)
    request = SummaryRequest(
        columns=request_columns,
        groups=None if by is None else make_axis(schema, by),
        statistics=tuple(_check.check_choice("statistics", name, STATISTICS) for name in statistics),
        quantiles=tuple(_check.check_open_unit("quantiles", q) for q in quantiles),
        n_rows=_count_rows(source) if adjacency == "replace-one" else None,
    )
    if not request.statistics and not request.quantiles:
        raise InvalidParameter("nothing to release: name statistics ('mean', 'sum') or quantiles.")
    if by is not None and quantiles:
        raise InvalidParameter(
            "quantiles are released for all rows, not by group: leave `by` out, or ask for means and sums."
        )
    _require_columns(source, request.names)
    mechanism = plan_counts(
        block_sizes=request.block_sizes,
        rows_per_person=max_rows_per_person,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        secure=secure,
        p=1.0 if delta == 0 else 2.0,
    )
    if announce is not None:
        announce(mechanism)

    def sum_all() -> Floats:
        blocks = source.blocks() if isinstance(source, Table) else source.batches(request.names)
        counted = _report_progress(hide_reader_errors(blocks), progress)
        return request.sum_rows(counted, mechanism.grid if mechanism.secure else None)

    release = mechanism.run(sum_all, random_state, ledger, checkpoint)
    return SummaryTable(
        answers=release.values[0],
        request=request,
        mechanism=mechanism,
        seeded=release.seeded,
        ledger_head=release.ledger_head,
    )


def _find_columns(schema: Schema, columns: Sequence[str] | None) -> tuple[SummarizedColumn, ...]:
    """Return the columns with a range that are named, or all of them."""
    if isinstance(columns, str):
        raise InvalidParameter(f"columns must be a list of names, got the text {columns!r}.")
    if columns is None:
        stated = [*schema.columns, *([] if schema.target is None else [schema.target])]
        columns = [column.name for column in stated if isinstance(column, NumericColumn)]
    if not columns or len(set(columns)) < len(columns):
        raise InvalidParameter("columns must name at least one column with a range, each once.")
    result = []
    for name in columns:
        feature, rule = find_feature(schema, name)
        if not isinstance(feature.column, NumericColumn) or feature.reading is not None:
            raise InvalidParameter(
                f"column {name!r} has no range of numbers, so it has no mean, sum or quantile; count it with "
                "count_marginals, or use it as `by`."
            )
        result.append(SummarizedColumn(feature=feature, counts_present=rule in ("own", None)))
    return tuple(result)


def _count_rows(source: Any) -> int:
    n_rows = len(source) if isinstance(source, Table) else source.count_rows()
    if n_rows < 1:
        raise InvalidParameter("the table has no rows; their number is public under replace-one adjacency.")
    return int(n_rows)


def _require_columns(source: Any, names: Sequence[str]) -> None:
    if not isinstance(source, Table):
        source.require_columns(names)
        return
    for name in names:
        source.column(name)


def _report_progress(tables: Iterable[Table], progress: Progress | None) -> Iterator[Table]:
    n_rows = 0
    for table in tables:
        yield table
        n_rows += len(table)
        if progress is not None:
            progress(n_rows)
