"""CountTable: released counts with labels, error and guarantee, and their post-processing, which costs no privacy."""

from __future__ import annotations

import csv
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check, _files
from dplangevin._arrays import Floats
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_answers.noisy_counts import GeneralizedGaussianMechanism
from dplangevin.queries.marginals import Marginals
from dplangevin.queries.sql import import_optional

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
