"""Release noisy counts of public cells and of labels, and derive ranges and lists of categories from them.

A number x of a column with public unit u is in the zero cell when |x| < u 2^-20, else in the cell of its sign and its
power of two, up to u 2^44; larger numbers (and infinities) are in the outermost cell, values that are not numbers in
none. The first release shows which powers of two are populated; a second one counts 64 equal cells between them, so
that years from 1990 to 2020 do not get the range [1024, 2048].
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.accounting.plan import CertifiedSpec, public_noise_grid
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.learned_schema.spec import LearnedSchemaSpec
from dplangevin.mechanisms.mechanism import ChargedRelease, Mechanism
from dplangevin.mechanisms.run_state import RunState
from dplangevin.sampling.exact_noise import (
    ByteSource,
    add_rounded_noise,
    gaussian_density_scale,
    sample_geometric_noise,
)
from dplangevin.sampling.float_noise import sample_discrete_laplace
from dplangevin.tables import Table


class CellCounts(NamedTuple):
    """Exact counts of each number column's cells [numbers, cells] and of each category column's labels."""

    cells: Floats
    labels: Sequence[Mapping[str, int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedSchemaRelease(ChargedRelease):
    """Noisy counts of cells, and of the selected labels of each category column, sorted by label."""

    cells: Floats
    labels: tuple[Mapping[str, float], ...]

    def digest(self) -> str:
        """Return a hash of the released numbers, for the ledger."""
        content = hashlib.sha256(np.ascontiguousarray(self.cells).tobytes())
        content.update(repr([dict(counts) for counts in self.labels]).encode())
        return content.hexdigest()


class LearnedSchemaMechanism(Mechanism[LearnedSchemaSpec, Callable[[], CellCounts], LearnedSchemaRelease]):
    """Add noise to every cell and to every label that occurs, and omit labels below the threshold."""

    def _check_inputs(self, plan: CertifiedSpec, data: Callable[[], CellCounts]) -> None:
        if not callable(data):
            raise InvalidParameter("learned-schema takes a function that reads the records and counts them.")

    def _release(
        self,
        plan: CertifiedSpec,
        data: Callable[[], CellCounts],
        run_state: RunState | None,
        rng: np.random.Generator,
        seeded: bool,
    ) -> LearnedSchemaRelease:
        spec, exact = cast(LearnedSchemaSpec, plan.spec), data()
        shape = (spec.n_numbers, spec.n_cells if spec.n_numbers else 0)
        if exact.cells.shape != shape or len(exact.labels) != spec.n_categories:
            raise InvalidParameter(
                f"the counts do not have the shape that the guarantee is for, {shape} cells and {spec.n_categories} "
                "category columns; nothing was released."
            )
        if run_state is not None:
            run_state.check_records(lambda salt: hash_counts(exact, salt))
        source = rng.bytes if seeded else os.urandom
        cells = _add_noise(spec, exact.cells, rng, source)
        released_labels = []
        for counts in exact.labels:
            labels = sorted(counts)  # so that the order of the rows does not change which noise a label gets
            noisy = _add_noise(spec, np.array([counts[label] for label in labels], float), rng, source)
            pairs = zip(labels, noisy.tolist(), strict=True)
            released_labels.append(
                {label: count for label, count in pairs if count >= _least_released_count(spec)}
            )
        return LearnedSchemaRelease(cells=cells, labels=tuple(released_labels), plan=plan, seeded=seeded)


def hash_counts(exact: CellCounts, salt: str) -> str:
    """Return a salted hash of exact counts."""
    content = hashlib.sha256(salt.encode())
    content.update(np.ascontiguousarray(exact.cells).tobytes())
    content.update(repr([sorted(counts.items()) for counts in exact.labels]).encode())
    return content.hexdigest()


def _add_noise(
    spec: LearnedSchemaSpec, counts: Floats, rng: np.random.Generator, source: ByteSource
) -> Floats:
    """Return the counts plus noise; exact noise is made from the source of bytes, and rounded with its count."""
    if not spec.secure:
        noise = (
            spec.scale * rng.standard_normal(counts.shape)
            if spec.noise == "gaussian"
            else sample_discrete_laplace(spec.scale, counts.shape, rng)
        )
        return np.asarray(counts + noise)
    whole = counts.astype(np.int64)
    if spec.noise == "geometric":
        return (whole + sample_geometric_noise(spec.scale, whole.size, source).reshape(whole.shape)).astype(
            float
        )
    return add_rounded_noise(whole, 1.0, gaussian_density_scale(spec.scale), 2.0, source)


def _least_released_count(spec: LearnedSchemaSpec) -> float:
    """Return the least noisy count with which a label is released.

    A rounded count is within half a step of the unrounded one, which must reach the threshold itself.
    """
    threshold = spec.threshold or 0.0
    if not spec.secure:
        return threshold
    return threshold + max(1.0, public_noise_grid(gaussian_density_scale(spec.scale))) / 2


MIN_EXPONENT, N_OCTAVES, N_FINE_CELLS = -20, 64, 64
N_COARSE_CELLS = 2 * N_OCTAVES + 1
Z_THRESHOLD = 4.5  # noise standard deviations above 0 from which a count is taken to be positive
EMPTY_Z_THRESHOLD = 3.0  # the same, from which the end of a range is not taken to be empty
MIN_CELL_FRACTION = 0.002  # fraction of n below which a cell does not widen a range
WINDOW_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
LOG_SCALE_RATIO = 32.0  # a range with half of its rows below 1/32 of its upper end gets the scale log(1 + x)


@dataclass(frozen=True, kw_only=True)
class ColumnRange:
    """A public range of a column, and the scale on which it is divided into equal cells.

    Parameters
    ----------
    low, high : the range.
    log_scale : whether it is divided on the scale log(1 + x).
    min_high : a lower bound on the upper end, above which there is significantly a row. On a log scale a finer
        histogram must not cut off more: an octave is a small part of that scale, but its rows, spread over many fine
        cells, are lost in their noise.
    """

    low: float
    high: float
    log_scale: bool = False
    min_high: float = 0.0

    @property
    def edges(self) -> Floats:
        """The edges of the N_FINE_CELLS equal cells."""
        low, high = (np.log1p(self.low), np.log1p(self.high)) if self.log_scale else (self.low, self.high)
        edges = np.linspace(low, high, N_FINE_CELLS + 1)
        edges = np.expm1(edges) if self.log_scale else edges
        edges[0], edges[-1] = self.low, self.high
        return np.asarray(edges)


def octave_edges(unit: float) -> Floats:
    """Return the edges of the first release's cells: powers of two of both signs, and a zero cell between them."""
    powers = unit * 2.0 ** (MIN_EXPONENT + np.arange(N_OCTAVES + 1.0))
    return np.concatenate([-powers[::-1], powers])


def count_cells(
    table: Table, numbers: Mapping[str, Floats], categories: Mapping[str, bool], *, outer: bool
) -> CellCounts:
    """Count the rows of a table in the cells of each number column and by the label of each category column.

    Parameters
    ----------
    numbers : by column name, the edges of the cells.
    categories : by column name, whether texts keep their characters. Every row is read on its own.
    outer : whether numbers beyond the edges are counted in the outermost cells, or not at all.
    """
    width = len(next(iter(numbers.values()))) - 1 if numbers else 0
    cells = np.zeros((len(numbers), width))
    for row, (name, edges) in zip(cells, numbers.items(), strict=True):
        values = np.asarray(table.column(name).numbers(), np.float64)
        values = values[~np.isnan(values)]
        indices = np.searchsorted(edges, values, side="right") - 1
        indices[values == edges[-1]] = width - 1
        inside = (indices >= 0) & (indices < width)
        indices = np.clip(indices, 0, width - 1) if outer else indices[inside]
        row += np.bincount(indices, minlength=width)
    label_counts = []
    for name, text in categories.items():
        indices, names = table.column(name).labels(text=text)
        counts = np.bincount(indices[indices >= 0], minlength=len(names))
        labels: dict[str, int] = {}
        for name_of_label, count in zip(names, counts.tolist(), strict=True):  # a label may be listed twice
            if count:
                labels[name_of_label] = labels.get(name_of_label, 0) + count
        label_counts.append(labels)
    return CellCounts(cells, label_counts)


def add_counts(parts: Sequence[CellCounts]) -> CellCounts:
    """Return the total counts of all parts of a table."""
    labels: list[dict[str, int]] = [dict(counts) for counts in parts[0].labels]
    for part in parts[1:]:
        for total, more in zip(labels, part.labels, strict=True):
            for label, count in more.items():
                total[label] = total.get(label, 0) + count
    return CellCounts(np.sum([part.cells for part in parts], axis=0), labels)


def find_populated_cells(noisy: Floats, deviation: float, n: int) -> tuple[int, int] | None:
    """Return the first and the last significantly populated cell; None when there is none.

    A window of j cells is significant when its noisy count exceeds both Z_THRESHOLD standard deviations (deviation
    sqrt(j)) and MIN_CELL_FRACTION n sqrt(j). Windows of one cell come first, then wider ones (which overlap) outside
    of the cells found so far.
    """
    sums, size = np.concatenate([[0.0], np.cumsum(noisy)]), len(noisy)

    def significant_windows(windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        least = max(Z_THRESHOLD * deviation, MIN_CELL_FRACTION * n)
        return [(a, b) for a, b in windows if sums[b] - sums[a] >= least * np.sqrt(b - a)]

    first, last = size, 0  # first >= last means that no cell is significant yet
    for width in WINDOW_WIDTHS:
        step, end = max(width // 2, 1), last if first < last else 0
        significant = significant_windows([(a, min(a + width, size)) for a in range(end, size, step)])
        if first < last:
            significant += significant_windows([(max(b - width, 0), b) for b in range(first, 0, -step)])
        first, last = min([first, *(a for a, _ in significant)]), max([last, *(b for _, b in significant)])
    return None if first > last else (first, last - 1)


def coarse_range(noisy: Floats, unit: float, deviation: float, n: int, log_scale: bool | None) -> ColumnRange:
    """Return the range of the significantly populated powers of two; [-unit, unit] when there is none.

    Parameters
    ----------
    log_scale : whether the column is on the scale log(1 + x); None decides by the noisy counts: no negative numbers,
        and half of the rows below 1/32 of the upper end.
    """
    edges, ends = octave_edges(unit), find_populated_cells(noisy, deviation, n)
    if ends is None:
        return ColumnRange(low=-unit if log_scale is not True else 0.0, high=unit, log_scale=bool(log_scale))
    first, last = ends
    low, high = float(edges[first]), float(edges[last + 1])
    zero = N_OCTAVES
    if first == zero and last > zero:
        low = 0.0
    if last == zero and first < zero:
        high = 0.0
    if log_scale is None:
        small = np.searchsorted(edges, high / LOG_SCALE_RATIO, side="right") - 1
        below, total = noisy[first:small].sum(), noisy[first : last + 1].sum()
        log_scale = bool(low >= 0 and high >= LOG_SCALE_RATIO and below >= total / 2)
    if not log_scale:
        return ColumnRange(low=low, high=high)
    sums = np.cumsum(noisy[: last + 1][::-1])  # of the windows that end with the last octave
    significant = sums >= max(Z_THRESHOLD * deviation, MIN_CELL_FRACTION * n) * np.sqrt(
        np.arange(1.0, last + 2)
    )
    min_high = float(edges[last - int(np.argmax(significant))]) if significant.any() else 0.0
    return ColumnRange(low=max(low, 0.0), high=max(high, unit), log_scale=True, min_high=max(min_high, 0.0))


def refine_range(noisy: Floats, span: ColumnRange, deviation: float, n: int) -> ColumnRange:
    """Return the range without the cells at its ends whose noisy counts are consistent with 0.

    The whole range is returned when no row is significantly inside.
    """
    first, last = _count_empty_cells(noisy, deviation, n), _count_empty_cells(noisy[::-1], deviation, n)
    is_insignificant = noisy.sum() < Z_THRESHOLD * deviation * np.sqrt(len(noisy))
    if is_insignificant or first + last >= len(noisy):
        return span
    edges = span.edges
    high = max(float(edges[len(noisy) - last]), span.min_high)
    return ColumnRange(low=float(edges[first]), high=high, log_scale=span.log_scale)


def _count_empty_cells(noisy: Floats, deviation: float, n: int) -> int:
    """Return how many cells from this end have noisy counts that are consistent with 0.

    The first j cells are taken to be populated once their noisy count exceeds (EMPTY_Z_THRESHOLD deviation +
    MIN_CELL_FRACTION n) sqrt(j). The rows that make it so may lie in earlier cells, so the end goes back to the last
    count that was within one deviation.
    """
    roots = np.sqrt(np.arange(1.0, len(noisy) + 1))
    sums = np.cumsum(noisy)
    populated = np.flatnonzero(sums > (EMPTY_Z_THRESHOLD * deviation + MIN_CELL_FRACTION * n) * roots)
    until = int(populated[0]) if populated.size else len(noisy)
    empty = np.flatnonzero(sums[:until] <= (deviation + MIN_CELL_FRACTION * n) * roots[:until])
    return int(empty[-1]) + 1 if empty.size else 0


def schema_entry(span: ColumnRange) -> dict[str, Any]:
    """Return the range as an entry of the schema file."""
    return {"range": [span.low, span.high], **({"transform": "log1p"} if span.log_scale else {})}
