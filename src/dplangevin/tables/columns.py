"""Columns of unread cells, read as numbers or labels: faster than cell by cell, with the same result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.tables import cells
from dplangevin.tables.cells import Reading

Codes = NDArray[np.int64]
OTHER, MISSING = -1, -2
PLAIN_DECIMAL = r"\A[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?\z"
"""Pattern of RE2, which runs in linear time: finite decimals, a subset of what `cells.read_number` reads."""
COMMA_DECIMAL = r"\A[ \t]*[+-]?(?:[0-9]+,[0-9]*|,[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*\z"
"""Pattern of RE2: numbers that `cells.read_number` reads once their comma is a point."""


class CellColumn(ABC):
    """Column of unread cells. Whatever a cell holds, reading it raises nothing and depends on no other cell."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of cells."""

    @abstractmethod
    def slice(self, rows: slice) -> CellColumn:
        """Return some consecutive cells."""

    @abstractmethod
    def take(self, rows: Codes) -> CellColumn:
        """Return the cells with these increasing row numbers."""

    @property
    def is_numeric(self) -> bool:
        """Whether the declared type of the column admits only numbers (and nulls); public, like its name."""
        return False

    @abstractmethod
    def numbers(self) -> NDArray[np.floating[Any]]:
        """Return every cell as `cells.read_number` reads it (float32 where the container holds float32)."""

    @abstractmethod
    def labels(self, *, text: bool = False) -> tuple[Codes, Sequence[str]]:
        """Return the labels that `cells.read_label` reads: indices into a list (which may repeat), -1 where missing."""

    @abstractmethod
    def persons(self) -> tuple[Codes, Sequence[str]]:
        """Return the persons that `cells.read_person` reads: indices into a list (which may repeat), -1 for nobody."""

    def codes(self, listed: Mapping[str, int], *, text: bool = False) -> Codes:
        """Return the code of each cell's label by `listed`; OTHER where it is unlisted, MISSING where there is none."""
        indices, labels = self.labels(text=text)
        table = np.array([*(listed.get(label, OTHER) for label in labels), MISSING], np.int64)
        return np.asarray(table[indices])

    def texts(self, written: Mapping[str, str] | None = None, *, text: bool = False) -> NDArray[Any]:
        """Return the labels as Python texts, None where missing; `written` maps labels to the texts to show instead."""
        indices, labels = self.labels(text=text)
        texts = labels if written is None else [written.get(label, label) for label in labels]
        return np.array([*texts, None], dtype=object)[indices]

    def plain_values(self) -> list[float | str | None]:
        """Return every cell without a stated type: a number, a text, or None."""
        numbers, texts = self.numbers(), self.texts()
        return [float(value) if value == value else text for value, text in zip(numbers, texts, strict=True)]


@final
class ArrayColumn(CellColumn):
    """Column in a one-dimensional NumPy array of any type, or of Python objects.

    Parameters
    ----------
    array : the cells.
    typed : whether the dtype was declared; that of a list was inferred, so one record may have changed it.
    """

    def __init__(self, array: NDArray[Any], *, typed: bool = True) -> None:
        self._array, self._typed = array, typed

    def __len__(self) -> int:
        return len(self._array)

    def slice(self, rows: slice) -> CellColumn:
        return ArrayColumn(self._array[rows], typed=self._typed)

    def take(self, rows: Codes) -> CellColumn:
        return ArrayColumn(self._array[rows], typed=self._typed)

    @property
    def is_numeric(self) -> bool:
        return self._typed and self._array.dtype.kind in "biuf"

    def numbers(self) -> NDArray[np.floating[Any]]:
        kind = self._array.dtype.kind
        if self._array.dtype == np.float32:
            return np.asarray(self._array)
        if kind in "biuf":
            with np.errstate(over="ignore"):
                return np.asarray(self._array, np.float64)
        if kind == "c":
            with np.errstate(over="ignore"):
                values = self._array.astype(np.complex128)
            return np.where(values.imag == 0, values.real, cells.NAN)
        if kind in "mM":
            return np.full(len(self), cells.NAN)
        return np.fromiter(_read_each(self._array, cells.read_number), np.float64, len(self))

    def codes(self, listed: Mapping[str, int], *, text: bool = False) -> Codes:
        if self._array.dtype.kind in "biuf":
            return _codes_of_numbers(np.asarray(self.numbers(), np.float64), listed)
        return super().codes(listed, text=text)

    def labels(self, *, text: bool = False) -> tuple[Codes, Sequence[str]]:
        if self._array.dtype.kind in "biuf":
            return _labels_of_numbers(np.asarray(self.numbers(), np.float64))
        return self._read_objects(lambda cell: cells.read_label(cell, text=text))

    def persons(self) -> tuple[Codes, Sequence[str]]:
        if self._array.dtype.kind in "biuf":
            values = self.numbers()
            return _labels_of_numbers(
                _unambiguous_numbers(np.where(values == self._array, values, cells.NAN))
            )
        return self._read_objects(cells.read_person)

    def _read_objects(self, read: Callable[[Any], str | None]) -> tuple[Codes, Sequence[str]]:
        index_by_label: dict[str | None, int] = {None: -1}
        labels = _read_each(self._array, read)
        indices = (index_by_label.setdefault(label, len(index_by_label) - 1) for label in labels)
        codes = np.fromiter(indices, np.int64, len(self))
        return codes, [label for label in index_by_label if label is not None]


@final
class DerivedColumn(CellColumn):
    """Column of values derived from the labels of another column, each from its own label."""

    def __init__(self, source: CellColumn, reading: Reading) -> None:
        self._source, self._reading = source, reading

    def __len__(self) -> int:
        return len(self._source)

    def slice(self, rows: slice) -> CellColumn:
        return DerivedColumn(self._source.slice(rows), self._reading)

    def take(self, rows: Codes) -> CellColumn:
        return DerivedColumn(self._source.take(rows), self._reading)

    def numbers(self) -> NDArray[np.floating[Any]]:
        indices, labels = self._source.labels(text=self._reading.keeps_text)
        values = [cells.NAN if value is None else value for value in map(self._reading.derive, labels)]
        return np.array([*values, cells.NAN], np.float64)[indices]

    def labels(self, *, text: bool = False) -> tuple[Codes, Sequence[str]]:
        return _labels_of_numbers(np.asarray(self.numbers(), np.float64))

    def persons(self) -> tuple[Codes, Sequence[str]]:
        return self.labels()


def _read_each(array: NDArray[Any], read: Callable[[Any], Any]) -> Any:
    """Yield read(cell) for every cell; repeated texts are read once."""
    cache: dict[str, Any] = {}
    for cell in array if array.dtype.kind in "mM" else array.tolist():
        if type(cell) is not str:
            yield read(cell)
            continue
        if cell not in cache:
            if len(cache) > 1 << 20:  # so many distinct texts hardly repeat: bound the memory
                cache.clear()
            cache[cell] = read(cell)
        yield cache[cell]


def _unambiguous_numbers(values: NDArray[np.floating[Any]]) -> Floats:
    """Return the numbers that identify a person unambiguously; NaN in place of the others."""
    wide = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(wide) < cells.MAX_EXACT_INTEGER, wide, cells.NAN)


def _labels_of_numbers(values: Floats) -> tuple[Codes, Sequence[str]]:
    distinct, indices = np.unique(values, return_inverse=True)
    labels = [cells.shortest_text(float(value)) for value in distinct if value == value]
    return np.where(np.isnan(values), -1, indices.reshape(-1)).astype(np.int64), labels


def _codes_of_numbers(values: Floats, listed: Mapping[str, int]) -> Codes:
    """Return the codes of numbers by comparing doubles: only equal doubles have the same shortest text."""
    known = [(value, code) for label, code in listed.items() if (value := cells.read_number(label)) == value]
    known = [(value, code) for value, code in known if listed.get(cells.shortest_text(value)) == code]
    codes = np.full(len(values), OTHER, np.int64)
    if known:
        order = np.argsort([value for value, _ in known])
        ordered = np.array([value for value, _ in known])[order]
        listed_codes = np.array([code for _, code in known])[order]
        index = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
        codes = np.where(ordered[index] == values, listed_codes[index], OTHER)
    return np.asarray(np.where(np.isnan(values), MISSING, codes), np.int64)


@final
class ArrowColumn(CellColumn):
    """Column in an Arrow array, chunked or not, or in a list of arrays of any types.

    Parameters
    ----------
    array : the cells.
    decimal : "," where texts such as 3,14 are numbers; identifiers of persons and texts keep their characters.
    """

    def __init__(self, array: Any, *, decimal: str = ".") -> None:
        import pyarrow as pa

        self._arrow, self.decimal = pa, decimal
        if not isinstance(array, list):
            is_chunked = isinstance(array, pa.ChunkedArray)
            array = (array.chunks or [pa.nulls(0, array.type)]) if is_chunked else [array]
        self._chunks = [self._simplify_chunk(chunk) for chunk in array]

    @property
    def chunks(self) -> list[Any]:
        """Arrow arrays, which may differ in type."""
        return self._chunks

    def _simplify_chunk(self, chunk: Any) -> Any:
        """Return the chunk in a type that the readers know: plain storage, and times in nanoseconds, which Python's
        datetime cannot represent, as texts."""
        types = self._arrow.types
        if isinstance(chunk, self._arrow.ExtensionArray):
            return self._simplify_chunk(chunk.storage)
        if types.is_dictionary(chunk.type):
            values = self._simplify_chunk(chunk.dictionary)
            if values.type == chunk.type.value_type:
                return chunk
            return self._arrow.DictionaryArray.from_arrays(chunk.indices, values, safe=False)
        if types.is_timestamp(chunk.type) and chunk.type.unit == "ns":
            times = chunk.to_numpy(zero_copy_only=False)
            texts = np.char.add(np.datetime_as_string(times), "Z" if chunk.type.tz else "")
            return self._arrow.array(texts, self._arrow.string(), mask=np.isnat(times))
        if types.is_run_end_encoded(chunk.type):
            import pyarrow.compute as pc

            return self._simplify_chunk(pc.run_end_decode(chunk))
        if types.is_string_view(chunk.type):
            return chunk.cast(self._arrow.large_string())
        return chunk.cast(self._arrow.large_binary()) if types.is_binary_view(chunk.type) else chunk

    def __len__(self) -> int:
        return sum(len(chunk) for chunk in self._chunks)

    def slice(self, rows: slice) -> CellColumn:
        chunks, first = [], 0
        for chunk in self._chunks:
            start, stop = max(rows.start - first, 0), min(rows.stop - first, len(chunk))
            if start < stop:
                chunks.append(chunk.slice(start, stop - start))
            first += len(chunk)
        return ArrowColumn(chunks, decimal=self.decimal)

    def take(self, rows: Codes) -> CellColumn:
        ends = np.cumsum([len(chunk) for chunk in self._chunks])
        pieces = np.split(rows, np.searchsorted(rows, ends[:-1])) if self._chunks else []
        firsts = ends - [len(chunk) for chunk in self._chunks]
        chunks = [
            chunk.take(self._arrow.array(piece - first))
            for chunk, piece, first in zip(self._chunks, pieces, firsts, strict=True)
        ]
        return ArrowColumn(chunks, decimal=self.decimal)

    @property
    def is_numeric(self) -> bool:
        return bool(self._chunks) and all(_is_number_type(self._arrow, chunk.type) for chunk in self._chunks)

    def numbers(self) -> NDArray[np.floating[Any]]:
        parts = [self._chunk_numbers(chunk) for chunk in self._chunks]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.float32), *parts])

    def labels(self, *, text: bool = False) -> tuple[Codes, Sequence[str]]:
        return self._join_chunks(lambda chunk: self._chunk_labels(chunk, text))

    def persons(self) -> tuple[Codes, Sequence[str]]:
        return self._join_chunks(self._chunk_persons)

    def _join_chunks(self, read: Callable[[Any], tuple[Codes, list[str]]]) -> tuple[Codes, Sequence[str]]:
        codes = [np.empty(0, np.int64)]
        labels: list[str] = []
        for chunk in self._chunks:
            indices, chunk_labels = read(chunk)
            codes.append(np.where(indices >= 0, indices + len(labels), -1))
            labels += chunk_labels
        return np.concatenate(codes), labels

    def codes(self, listed: Mapping[str, int], *, text: bool = False) -> Codes:
        parts = [np.empty(0, np.int64)]
        for chunk in self._chunks:
            if _is_number_type(self._arrow, chunk.type):
                parts.append(_codes_of_numbers(np.asarray(self._chunk_numbers(chunk), np.float64), listed))
            else:
                indices, labels = self._chunk_labels(chunk, text)
                table = np.array([*(listed.get(label, OTHER) for label in labels), MISSING], np.int64)
                parts.append(table[indices])
        return np.concatenate(parts)

    def _chunk_numbers(self, chunk: Any) -> NDArray[np.floating[Any]]:
        """Return the numbers of one Arrow array, NaN where a cell is not a number."""
        chunk = self._with_points(chunk)
        pa, types, kind = self._arrow, self._arrow.types, chunk.type
        if types.is_dictionary(kind):
            return _gather_values(self._chunk_numbers(chunk.dictionary), chunk.indices, cells.NAN)
        if types.is_floating(kind):
            stored: NDArray[Any] = chunk.to_numpy(zero_copy_only=False)
            return stored if stored.dtype == np.float32 else stored.astype(np.float64, copy=False)
        if types.is_integer(kind) or types.is_boolean(kind):
            wide = chunk.cast(pa.float64(), safe=False)
            return np.asarray(wide.to_numpy(zero_copy_only=False), np.float64)
        if types.is_null(kind) or types.is_temporal(kind):
            return np.full(len(chunk), cells.NAN)
        if not types.is_string(kind) and not types.is_large_string(kind):
            return self._chunk_text_numbers(chunk)
        import pyarrow.compute as pc

        # Arrow and Python both read a plain decimal as the nearest double, so Arrow may read these at once.
        plain = pc.fill_null(pc.match_substring_regex(chunk, PLAIN_DECIMAL), False)
        if pc.all(plain, min_count=0).as_py():
            return np.asarray(chunk.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
        values, mask = np.empty(len(chunk)), plain.to_numpy(zero_copy_only=False)
        values[mask] = chunk.filter(plain).cast(pa.float64()).to_numpy(zero_copy_only=False)
        values[~mask] = self._chunk_text_numbers(chunk.filter(pc.invert(plain)))
        return values

    def _chunk_text_numbers(self, chunk: Any) -> Floats:
        indices, distinct = self._distinct_cells(chunk)
        values = np.fromiter(map(cells.read_number, distinct), np.float64, len(distinct))
        return np.append(values, cells.NAN)[indices]

    def _with_points(self, chunk: Any) -> Any:
        """Return texts in which numbers with a decimal comma have a point, each a function of its own cell."""
        types = self._arrow.types
        if self.decimal == "." or not (types.is_string(chunk.type) or types.is_large_string(chunk.type)):
            return chunk
        import pyarrow.compute as pc

        is_number = pc.fill_null(pc.match_substring_regex(chunk, COMMA_DECIMAL), False)
        return pc.if_else(is_number, pc.replace_substring(chunk, ",", "."), chunk)

    def _chunk_labels(self, chunk: Any, text: bool) -> tuple[Codes, list[str]]:
        chunk = chunk if text else self._with_points(chunk)
        if _is_number_type(self._arrow, chunk.type):
            indices, labels = _labels_of_numbers(np.asarray(self._chunk_numbers(chunk), np.float64))
            return indices, list(labels)
        return self._read_chunk(chunk, lambda cell: cells.read_label(cell, text=text))

    def _chunk_persons(self, chunk: Any) -> tuple[Codes, list[str]]:
        if _is_number_type(self._arrow, chunk.type):
            indices, labels = _labels_of_numbers(_unambiguous_numbers(self._chunk_numbers(chunk)))
            return indices, list(labels)
        return self._read_chunk(chunk, cells.read_person)

    def _read_chunk(self, chunk: Any, read: Callable[[Any], str | None]) -> tuple[Codes, list[str]]:
        indices, distinct = self._distinct_cells(chunk)
        readings = [read(cell) for cell in distinct]
        labels = [label for label in dict.fromkeys(readings) if label is not None]
        order = {label: i for i, label in enumerate(labels)}
        table = np.array([*(-1 if label is None else order[label] for label in readings), -1], np.int64)
        return table[indices], labels

    def _distinct_cells(self, chunk: Any) -> tuple[Codes, list[Any]]:
        """Return indices (-1 for a null) into a list of the distinct cells, and that list."""
        if self._arrow.types.is_dictionary(chunk.type):
            indices = _gather_values(np.arange(len(chunk.dictionary)), chunk.indices, -1)
            return indices.astype(np.int64), _to_objects(chunk.dictionary)
        try:
            coded = chunk.dictionary_encode()
        except self._arrow.ArrowException:  # lists and other nested types cannot be encoded
            return np.arange(len(chunk)), _to_objects(chunk)
        indices = _gather_values(np.arange(len(coded.dictionary)), coded.indices, -1)
        return indices.astype(np.int64), _to_objects(coded.dictionary)


def _is_number_type(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _gather_values(values: NDArray[Any], indices: Any, absent: float) -> NDArray[Any]:
    """Return values[indices], with `absent` where an index is null or out of range, which Arrow does not check."""
    positions = indices.cast("int64", safe=False).fill_null(len(values)).to_numpy(zero_copy_only=False)
    positions = np.where((positions >= 0) & (positions < len(values)), positions, len(values))
    return np.asarray(np.append(values, absent)[positions])


def _to_objects(chunk: Any) -> list[Any]:
    """Return the cells as Python objects, None for a cell that Python cannot represent."""
    try:
        return list(chunk.to_pylist())
    except Exception:  # one cell failed; the message would quote it
        return [_to_object(chunk, i) for i in range(len(chunk))]


def _to_object(chunk: Any, index: int) -> Any:
    try:
        return chunk[index].as_py()
    except Exception:
        return None
