"""Histograms and k-way marginals over a public schema."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.queries.axes import DEFAULT_BINS, Axis, Bins, CategoryAxis, Codes, NumericAxis, axis_of
from dplangevin.schema.schema import Schema
from dplangevin.tables import Table

MOST_CELLS = 2**24


@dataclass(frozen=True, kw_only=True, eq=False)
class Marginals:
    """Tables of counts, one per set of columns; a row is in at most one cell of each.

    Parameters
    ----------
    sets : the sets of columns.
    axes : the public cells of every column used.
    """

    sets: tuple[tuple[str, ...], ...]
    axes: Mapping[str, Axis]

    def __post_init__(self) -> None:
        kinds = {type(axis) for axis in self.axes.values()}
        # a class of one's own could put a row in two cells
        if type(self) is not Marginals or kinds - {NumericAxis, CategoryAxis}:
            raise InvalidParameter(
                "marginals are made with Marginals.over(schema), not by a class of one's own."
            )
        if self.size > MOST_CELLS:
            biggest = max(self.sets, key=lambda names: math.prod(self.shape(names)))
            raise InvalidParameter(
                f"the marginals have {self.size} cells, more than {MOST_CELLS} ({', '.join(biggest)} alone has "
                f"{math.prod(self.shape(biggest))}); use fewer columns, fewer bins or fewer ways."
            )

    @classmethod
    def over(
        cls,
        schema: Schema,
        *,
        ways: int = 1,
        columns: Iterable[str | Sequence[str]] | None = None,
        bins: Bins = DEFAULT_BINS,
    ) -> Marginals:
        """All sets of `ways` columns of the schema (and its target), or the sets that are listed."""
        every = [*schema.names, *([schema.target.name] if schema.target is not None else [])]
        if columns is None:
            number = _check.count("ways", ways)
            if number > len(every):
                raise InvalidParameter(
                    f"ways = {number} is more than the {len(every)} columns of the schema."
                )
            sets = tuple(combinations(every, number))
        else:
            sets = tuple((entry,) if isinstance(entry, str) else tuple(entry) for entry in columns)
            if not sets or any(not names or len(set(names)) < len(names) for names in sets):
                raise InvalidParameter("columns must list at least one set of different columns.")
        used = dict.fromkeys(name for names in sets for name in names)
        if isinstance(bins, Mapping) and (unknown := sorted(set(bins) - set(every))):
            raise InvalidParameter(f"bins names {', '.join(unknown)}, which the schema does not have.")
        return cls(sets=sets, axes={name: axis_of(schema, name, bins) for name in used})

    def shape(self, names: Sequence[str]) -> tuple[int, ...]:
        """Cells per column of one table."""
        return tuple(self.axes[name].size for name in names)

    @property
    def size(self) -> int:
        """Number of cells of all tables."""
        return sum(math.prod(self.shape(names)) for names in self.sets)

    def sizes(self) -> tuple[int, ...]:
        """Cells of each table."""
        return tuple(math.prod(self.shape(names)) for names in self.sets)

    def complete(self) -> tuple[bool, ...]:
        """For each table, whether every row falls in one of its cells."""
        return tuple(all(self.axes[name].complete for name in names) for names in self.sets)

    def empty(self) -> NDArray[np.int64]:
        """Counters, all zero."""
        return np.zeros(self.size, np.int64)

    def add(self, counters: NDArray[np.int64], codes: Mapping[str, Codes]) -> None:
        """Count a block of rows, given the cell of each row in each column."""
        start = 0
        for names, size in zip(self.sets, self.sizes(), strict=True):
            place, inside = codes[names[0]], codes[names[0]] >= 0
            for name in names[1:]:
                place = place * self.axes[name].size + codes[name]
                inside = inside & (codes[name] >= 0)
            kept = place if inside.all() else place[inside]
            counters[start : start + size] += np.bincount(kept, minlength=size)
            start += size

    def count(self, tables: Iterable[Table]) -> NDArray[np.int64]:
        """Exact counts of tables, one after the other (private: they never leave the library without noise)."""
        counters = self.empty()
        for table in tables:
            self.add(counters, {name: axis.codes(table) for name, axis in self.axes.items()})
        return counters

    def labels(self, names: Sequence[str]) -> NDArray[np.str_]:
        """The cells of one table in words."""
        parts = [np.array([f"{name}={label}" for label in self.axes[name].labels]) for name in names]
        words = parts[0]
        for part in parts[1:]:
            words = np.char.add(np.char.add(np.repeat(words, part.size), "; "), np.tile(part, words.size))
        return words
