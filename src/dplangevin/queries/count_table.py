"""Released counts with their labels, their error and their promise."""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.generalized_gaussian import GeneralizedGaussianMechanism
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.queries import postprocess
from dplangevin.queries.optional import optional

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class CountTable:
    """What left: noisy counts. The exact counts are nowhere in it.

    Parameters
    ----------
    labels : for each count its words, column by column.
    values : the released counts, in the order of the labels.
    mechanism : the noise that was added, with its guarantee and its error.
    seeded : the noise came from a user's seed; whoever knows it can undo the noise.
    sizes, complete : the number of counts of each table, where tables were counted, and whether it holds every row.
    processed : the post-processing done, in words.
    """

    labels: dict[str, NDArray[np.str_]] = field(repr=False)
    values: Floats
    mechanism: GeneralizedGaussianMechanism
    seeded: bool
    sizes: tuple[int, ...] = field(default=(), repr=False)
    complete: tuple[bool, ...] = field(default=(), repr=False)
    processed: tuple[str, ...] = ()

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
        wanted = {"totals": totals and any(self.complete), "nonnegative": nonnegative, "rounded": rounded}
        tables = self._tables()
        aims: list[float | None] = [None] * len(tables)
        if wanted["totals"]:
            places = [i for i, whole in enumerate(self.complete) if whole]
            for i, table in zip(
                places, postprocess.consistent_totals([tables[i] for i in places], total), strict=True
            ):
                tables[i], aims[i] = table, max(float(table.sum()), 0.0)
        if nonnegative:
            tables = [postprocess.nonnegative(table, aim) for table, aim in zip(tables, aims, strict=True)]
        if rounded:
            aims = [None if aim is None else float(np.rint(aim)) for aim in aims]
            tables = [postprocess.rounded(table, aim) for table, aim in zip(tables, aims, strict=True)]
        done = tuple(word for word, yes in wanted.items() if yes)
        return replace(self, values=np.concatenate(tables), processed=(*self.processed, *done))

    def _tables(self) -> list[Floats]:
        if not self.sizes:
            return [self.values]
        return np.split(self.values, np.cumsum(self.sizes)[:-1])

    def columns(self) -> dict[str, Any]:
        """Labels and counts, column by column."""
        return {**self.labels, "count": self.values}

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
            "columns": {name: list(map(str, words)) for name, words in self.labels.items()},
            "counts": self.values.tolist(),
            "mechanism": self.mechanism.to_dict(),
            "seeded": self.seeded,
            "processed": list(self.processed),
        }

    def to_pandas(self) -> Any:
        """A pandas DataFrame of labels and counts."""
        return optional("pandas", "a pandas DataFrame").DataFrame(self.columns())

    def write(self, path: str | Path) -> None:
        """Write .parquet, .csv or .json; the promise goes into the JSON and the Parquet metadata."""
        place = Path(path)
        if place.suffix == ".json":
            place.write_text(json.dumps(self.to_dict(), allow_nan=False) + "\n", encoding="utf-8")
        elif place.suffix == ".csv":
            with place.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(self.columns())
                writer.writerows(zip(*self.columns().values(), strict=True))
        elif place.suffix == ".parquet":
            arrow = optional("pyarrow", "writing Parquet")
            note = {
                b"dplangevin": json.dumps(
                    {"mechanism": self.mechanism.to_dict(), "seeded": self.seeded}
                ).encode()
            }
            table = arrow.table({name: arrow.array(values) for name, values in self.columns().items()})
            optional("pyarrow.parquet", "writing Parquet").write_table(
                table.replace_schema_metadata(note), place
            )
        else:
            raise InvalidParameter(f"the output {str(path)!r} must end in .parquet, .csv or .json.")

    def digest(self) -> str:
        """A hash of the released numbers, for the ledger."""
        return hashlib.sha256(np.ascontiguousarray(self.values).tobytes()).hexdigest()
