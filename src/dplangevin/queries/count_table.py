"""Released counts with their labels, their error and their promise."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dplangevin import _files
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_answers.generalized_gaussian_mechanism import GeneralizedGaussianMechanism
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.queries import postprocess
from dplangevin.queries.marginals import Marginals
from dplangevin.queries.optional import optional


@dataclass(frozen=True, kw_only=True, eq=False)
class CountTable:
    """What left: noisy counts. The exact counts are nowhere in it.

    Parameters
    ----------
    values : the released counts: those of the named queries, then those of the tables.
    mechanism : the noise that was added, with its guarantee and its error.
    seeded : the noise came from a user's seed; whoever knows it can undo the noise.
    names : the queries.
    tables : the marginals.
    processed : the post-processing done, in words.
    ledger_head : the head of the ledger's chain after this release was charged; None without a ledger.
    """

    values: Floats
    mechanism: GeneralizedGaussianMechanism
    seeded: bool
    names: tuple[str, ...] = ()
    tables: Marginals | None = None
    processed: tuple[str, ...] = ()
    ledger_head: str | None = field(default=None, repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """What was promised."""
        return self.mechanism.guarantee

    def __len__(self) -> int:
        return int(self.values.size)

    def intervals(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[Floats, Floats]:
        """(low, high) for each true count; they are exact for counts as released, so ask before post-processing."""
        if self.processed:
            raise InvalidParameter(
                "intervals are exact for counts as released; ask the table before post-processing."
            )
        return self.mechanism.intervals(self.values, level, simultaneous=simultaneous)

    def postprocessed(
        self,
        *,
        nonnegative: bool = True,
        rounded: bool = True,
        totals: bool = True,
        total: float | None = None,
    ) -> CountTable:
        """Free repairs: complete tables that add up to one total (`total`, when public), counts >= 0, whole numbers.

        Tables that ignore some rows (categories with other = "ignore") have no common total and keep their own.
        """
        complete = [False] * bool(self.names) + list(
            self.tables.complete() if self.tables is not None else ()
        )
        wanted = {"totals": totals and any(complete), "nonnegative": nonnegative, "rounded": rounded}
        blocks = [values for _, values in self._blocks()]
        aims: list[float | None] = [None] * len(blocks)
        if wanted["totals"]:
            places = [i for i, whole in enumerate(complete) if whole]
            for i, block in zip(
                places, postprocess.consistent_totals([blocks[i] for i in places], total), strict=True
            ):
                blocks[i], aims[i] = block, max(float(block.sum()), 0.0)
        if nonnegative:
            blocks = [postprocess.nonnegative(block, aim) for block, aim in zip(blocks, aims, strict=True)]
        if rounded:
            aims = [None if aim is None else float(np.rint(aim)) for aim in aims]
            blocks = [postprocess.rounded(block, aim) for block, aim in zip(blocks, aims, strict=True)]
        done = tuple(word for word, yes in wanted.items() if yes)
        return replace(self, values=np.concatenate(blocks), processed=(*self.processed, *done))

    def _blocks(self) -> Iterator[tuple[tuple[str, ...] | None, Floats]]:
        """The counts of the queries (None), then those of each table."""
        start = len(self.names)
        if self.names:
            yield None, self.values[:start]
        if self.tables is not None:
            for names, size in zip(self.tables.sets, self.tables.sizes(), strict=True):
                yield names, self.values[start : start + size]
                start += size

    def column_blocks(self) -> Iterator[dict[str, Any]]:
        """Table, cell and count, one table at a time: labels of many cells take more room than their counts."""
        for names, values in self._blocks():
            if names is None:
                words = np.array(self.names)
            else:
                assert self.tables is not None
                words = self.tables.labels(names)
            title = "predicate" if names is None else " x ".join(names)
            yield {"table": np.full(values.size, title), "cell": words, "count": values}

    def columns(self) -> dict[str, Any]:
        """Table, cell and count of everything."""
        blocks = list(self.column_blocks())
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}

    def statement(self) -> str:
        """The promise and the error in words."""
        promise = self.guarantee
        seed = (
            " The noise came from a given seed: publish neither the seed nor, if it is known, the counts."
            if self.seeded
            else ""
        )
        return (
            f"({promise.epsilon():.4g}, {promise.at_delta:.4g})-differential privacy for {promise.adjacency} "
            f"neighbours. {self.mechanism.describe()}{seed}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "columns": {name: values.tolist() for name, values in self.columns().items()},
            "mechanism": self.mechanism.to_dict(),
            "seeded": self.seeded,
            "processed": list(self.processed),
        }

    def to_pandas(self) -> Any:
        """A pandas DataFrame of tables, cells and counts."""
        return optional("pandas", "a pandas DataFrame").DataFrame(self.columns())

    def write(self, path: str | Path) -> None:
        """Write .parquet, .csv or .json; the promise goes into the JSON and the Parquet metadata."""
        place = Path(path)
        if place.suffix == ".json":
            _files.write_text(place, json.dumps(self.to_dict(), allow_nan=False) + "\n")
        elif place.suffix == ".csv":
            with _files.replacing(place) as draft, draft.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(("table", "cell", "count"))
                for block in self.column_blocks():
                    writer.writerows(zip(*(values.tolist() for values in block.values()), strict=True))
        elif place.suffix == ".parquet":
            with _files.replacing(place) as draft:
                self._write_parquet(draft)
        else:
            raise InvalidParameter(f"the output {str(path)!r} must end in .parquet, .csv or .json.")

    def _write_parquet(self, place: Path) -> None:
        arrow, parquet = (
            optional("pyarrow", "writing Parquet"),
            optional("pyarrow.parquet", "writing Parquet"),
        )
        note = {"mechanism": self.mechanism.to_dict(), "seeded": self.seeded, "processed": self.processed}
        fields = [("table", arrow.string()), ("cell", arrow.string()), ("count", arrow.float64())]
        layout = arrow.schema(fields, metadata={b"dplangevin": json.dumps(note).encode()})
        with parquet.ParquetWriter(place, layout) as writer:
            for block in self.column_blocks():
                writer.write_table(arrow.table({n: arrow.array(v) for n, v in block.items()}, schema=layout))

    def digest(self) -> str:
        """A hash of the released numbers, for the ledger."""
        return hashlib.sha256(np.ascontiguousarray(self.values).tobytes()).hexdigest()
