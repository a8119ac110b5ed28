"""Public cells for numbers, exact counts of them, and the rule that reads a range off noisy counts.

A number x of a column with public unit u is in the zero cell when |x| < u 2^-20, else in the cell of its sign and its
power of two, up to u 2^44; larger numbers (infinity too) are in the outermost cell, what is no number is in none. The
first release shows which powers of two are populated; a second one counts 64 equal cells between them, so that years
from 1990 to 2020 do not get the range [1024, 2048].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.families.learned_schema.mechanism import Counts
from dplangevin.tables import Table

Floats = NDArray[np.float64]
SMALLEST, OCTAVES, FINE = -20, 64, 64
CELLS = 2 * OCTAVES + 1
DOUBT = 4.5  # noises above 0 that a count must be to show that somebody is there
SEEN = 3.0  # noises above 0 at which the end of a range is no longer taken to be empty
RARE = 0.002  # share of n below which a cell does not widen a range
WINDOWS = (1, 2, 4, 8, 16, 32, 64)
SKEWED = 32.0  # a range with half of its rows below 1/32 of its end is seen on the scale log(1 + x)


@dataclass(frozen=True, kw_only=True)
class Span:
    """A public range of a column, and the scale that it is divided on.

    shown : somebody is surely above it. Of a log scale no finer look cuts off more: an octave is a small part of that
        scale, while its rows, spread over many fine cells, are lost in their noise.
    """

    low: float
    high: float
    log: bool = False
    shown: float = 0.0

    @property
    def edges(self) -> Floats:
        """Of the FINE equal cells."""
        low, high = (np.log1p(self.low), np.log1p(self.high)) if self.log else (self.low, self.high)
        edges = np.linspace(low, high, FINE + 1)
        edges = np.expm1(edges) if self.log else edges
        edges[0], edges[-1] = self.low, self.high
        return np.asarray(edges)


def octaves(unit: float) -> Floats:
    """The edges of the first release: both signs, and a zero cell."""
    powers = unit * 2.0 ** (SMALLEST + np.arange(OCTAVES + 1.0))
    return np.concatenate([-powers[::-1], powers])


def counted(
    table: Table, numbers: Mapping[str, Floats], categories: Mapping[str, bool], *, outer: bool
) -> Counts:
    """Rows of a table by the cells between each number column's edges, and by the label of each category column.

    outer : whether numbers beyond the edges are in the outermost cells, or in none.
    categories : by name, whether texts keep their characters. Every row is read by itself.
    """
    width = len(next(iter(numbers.values()))) - 1 if numbers else 0
    cells = np.zeros((len(numbers), width))
    for row, (name, edges) in zip(cells, numbers.items(), strict=True):
        values = np.asarray(table.column(name).numbers(), np.float64)
        values = values[~np.isnan(values)]
        places = np.searchsorted(edges, values, side="right") - 1
        places[values == edges[-1]] = width - 1
        inside = (places >= 0) & (places < width)
        places = np.clip(places, 0, width - 1) if outer else places[inside]
        row += np.bincount(places, minlength=width)
    found = []
    for name, text in categories.items():
        places, words = table.column(name).labels(text=text)
        counts = np.bincount(places[places >= 0], minlength=len(words))
        labels: dict[str, int] = {}
        for word, count in zip(words, counts.tolist(), strict=True):  # a word may be listed twice
            if count:
                labels[word] = labels.get(word, 0) + count
        found.append(labels)
    return Counts(cells, found)


def added(parts: Sequence[Counts]) -> Counts:
    """The counts of all parts of a table."""
    labels: list[dict[str, int]] = [dict(found) for found in parts[0].labels]
    for part in parts[1:]:
        for total, more in zip(labels, part.labels, strict=True):
            for word, count in more.items():
                total[word] = total.get(word, 0) + count
    return Counts(np.sum([part.cells for part in parts], axis=0), labels)


def populated(noisy: Floats, deviation: float, n: int) -> tuple[int, int] | None:
    """The first and the last cell that are populated, and by more than a few rows; None when none surely is.

    A window of j cells is surely populated when its noisy count, of deviation sqrt(j), exceeds DOUBT such deviations
    and RARE n sqrt(j). Windows of one cell come first, then wider ones (which overlap) outside of what was found.
    """
    sums, size = np.concatenate([[0.0], np.cumsum(noisy)]), len(noisy)

    def sure(windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        least = max(DOUBT * deviation, RARE * n)
        return [(a, b) for a, b in windows if sums[b] - sums[a] >= least * np.sqrt(b - a)]

    first, last = size, 0  # nothing yet
    for width in WINDOWS:
        step, end = max(width // 2, 1), last if first < last else 0
        shown = sure([(a, min(a + width, size)) for a in range(end, size, step)])
        if first < last:
            shown += sure([(max(b - width, 0), b) for b in range(first, 0, -step)])
        first, last = min([first, *(a for a, _ in shown)]), max([last, *(b for _, b in shown)])
    return None if first > last else (first, last - 1)


def coarse_span(noisy: Floats, unit: float, deviation: float, n: int, log: bool | None) -> Span:
    """The span of the populated powers of two; [-unit, unit] when none is surely populated.

    log : whether the column is on the scale log(1 + x); None decides by the counts: no negative numbers, and half of
    the rows below 1/32 of the end.
    """
    edges, ends = octaves(unit), populated(noisy, deviation, n)
    if ends is None:
        return Span(low=-unit if log is not True else 0.0, high=unit, log=bool(log))
    first, last = ends
    low, high = float(edges[first]), float(edges[last + 1])
    zero = OCTAVES
    if first == zero and last > zero:
        low = 0.0
    if last == zero and first < zero:
        high = 0.0
    if log is None:
        small = np.searchsorted(edges, high / SKEWED, side="right") - 1
        below, total = noisy[first:small].sum(), noisy[first : last + 1].sum()
        log = bool(low >= 0 and high >= SKEWED and below >= total / 2)
    if not log:
        return Span(low=low, high=high)
    sums = np.cumsum(noisy[: last + 1][::-1])  # of the windows that end with the last octave
    sure = sums >= max(DOUBT * deviation, RARE * n) * np.sqrt(np.arange(1.0, last + 2))
    shown = float(edges[last - int(np.argmax(sure))]) if sure.any() else 0.0
    return Span(low=max(low, 0.0), high=max(high, unit), log=True, shown=max(shown, 0.0))


def fine_span(noisy: Floats, span: Span, deviation: float, n: int) -> Span:
    """The span without the cells at its ends that look empty; what the noise hides is kept."""
    first, last = _empty(noisy, deviation, n), _empty(noisy[::-1], deviation, n)
    hidden = noisy.sum() < DOUBT * deviation * np.sqrt(len(noisy))  # nobody is surely in the span at all
    if hidden or first + last >= len(noisy):
        return span
    edges = span.edges
    high = max(float(edges[len(noisy) - last]), span.shown)
    return Span(low=float(edges[first]), high=high, log=span.log)


def _empty(noisy: Floats, deviation: float, n: int) -> int:
    """How many cells look empty from this end.

    The first j cells hold somebody once their noisy count exceeds (SEEN deviations + RARE n) sqrt(j). Those who make it
    so came in before: the end goes back to the last count that was within one deviation.
    """
    roots = np.sqrt(np.arange(1.0, len(noisy) + 1))
    sums = np.cumsum(noisy)
    held = np.flatnonzero(sums > (SEEN * deviation + RARE * n) * roots)
    until = int(held[0]) if held.size else len(noisy)
    quiet = np.flatnonzero(sums[:until] <= (deviation + RARE * n) * roots[:until])
    return int(quiet[-1]) + 1 if quiet.size else 0


def as_entry(span: Span) -> dict[str, Any]:
    """The span as in the schema's file format."""
    return {"range": [span.low, span.high], **({"transform": "log1p"} if span.log else {})}
