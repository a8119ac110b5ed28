"""One column of a table, its cells unread: read as numbers or as labels, faster than cell by cell but equal to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.tables import cells

Codes = NDArray[np.int64]
OTHER, MISSING = -1, -2
PLAIN_DECIMAL = r"\A[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?\z"
"""Of RE2, whose time is linear: decimals of finite size, a part of what `cells.number` reads."""


class Cells(ABC):
    """A column. Whatever a cell holds, reading it raises nothing and depends on no other cell."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of cells."""

    @abstractmethod
    def part(self, rows: slice) -> Cells:
        """Some consecutive cells."""

    @abstractmethod
    def take(self, rows: Codes) -> Cells:
        """The cells with these increasing row numbers."""

    @property
    def numeric(self) -> bool:
        """Whether the stated type of the column holds nothing but numbers (and nulls): public, as its name is."""
        return False

    @abstractmethod
    def numbers(self) -> NDArray[np.floating[Any]]:
        """Every cell as `cells.number` reads it (float32 where the container holds float32)."""

    @abstractmethod
    def labels(self, *, text: bool = False) -> tuple[Codes, Sequence[str]]:
        """Every cell as `cells.label` reads it: places in a list of labels (which may repeat), -1 where missing."""

    @abstractmethod
    def persons(self) -> tuple[Codes, Sequence[str]]:
        """Every cell as `cells.person` reads it: places in a list (which may repeat), -1 where it is nobody."""

    def codes(self, listed: Mapping[str, int], *, text: bool = False) -> Codes:
        """The code of each cell's label; OTHER where it is not listed, MISSING where there is none."""
        places, found = self.labels(text=text)
        table = np.array([*(listed.get(word, OTHER) for word in found), MISSING], np.int64)
        return np.asarray(table[places])

    def texts(self, written: Mapping[str, str] | None = None, *, text: bool = False) -> NDArray[Any]:
        """The labels as Python texts, None where missing; `written` rewrites some of them."""
        places, found = self.labels(text=text)
        words = found if written is None else [written.get(word, word) for word in found]
        return np.array([*words, None], dtype=object)[places]

    def plain(self) -> list[float | str | None]:
        """Every cell as `cells.plain` reads it."""
        numbers, texts = self.numbers(), self.texts()
        return [float(value) if value == value else word for value, word in zip(numbers, texts, strict=True)]


@final
class ArrayCells(Cells):
    """A one-dimensional NumPy array of any type, or Python objects in one.

    typed : whether the type of the array was given. That of a list is nobody's statement: one record may change it.
    """

    def __init__(self, array: NDArray[Any], *, typed: bool = True) -> None:
        self._array, self._typed = array, typed

    def __len__(self) -> int:
        return len(self._array)

    def part(self, rows: slice) -> Cells:
        return ArrayCells(self._array[rows], typed=self._typed)

    def take(self, rows: Codes) -> Cells:
        return ArrayCells(self._array[rows], typed=self._typed)

    @property
    def numeric(self) -> bool:
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
        return np.fromiter(_each(self._array, cells.number), np.float64, len(self))

    def codes(self, listed: Mapping[str, int], *, text: bool = False) -> Codes:
        if self._array.dtype.kind in "biuf":
            return _number_codes(np.asarray(self.numbers(), np.float64), listed)
        return super().codes(listed, text=text)

    def labels(self, *, text: bool = False) -> tuple[Codes, Sequence[str]]:
        if self._array.dtype.kind in "biuf":
            return _number_labels(np.asarray(self.numbers(), np.float64))
        return self._read(lambda cell: cells.label(cell, text=text))

    def persons(self) -> tuple[Codes, Sequence[str]]:
        if self._array.dtype.kind in "biuf":
            read = self.numbers()
            return _number_labels(_sure(np.where(read == self._array, read, cells.NAN)))
        return self._read(cells.person)

    def _read(self, read: Callable[[Any], str | None]) -> tuple[Codes, Sequence[str]]:
        places: dict[str | None, int] = {None: -1}
        found = _each(self._array, read)
        codes = np.fromiter((places.setdefault(word, len(places) - 1) for word in found), np.int64, len(self))
        return codes, [word for word in places if word is not None]


def _each(array: NDArray[Any], read: Callable[[Any], Any]) -> Any:
    """The readings of the cells; each text is read once."""
    known: dict[str, Any] = {}
    for cell in array if array.dtype.kind in "mM" else array.tolist():
        if type(cell) is not str:
            yield read(cell)
            continue
        if cell not in known:
            if len(known) > 1 << 20:  # all texts differ: remembering them would only fill the memory
                known.clear()
            known[cell] = read(cell)
        yield known[cell]


def _sure(values: NDArray[np.floating[Any]]) -> Floats:
    """Numbers that surely tell persons apart; NaN in place of others."""
    wide = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(wide) < cells.SURE, wide, cells.NAN)


def _number_labels(values: Floats) -> tuple[Codes, Sequence[str]]:
    found, places = np.unique(values, return_inverse=True)
    words = [cells.shortest(float(value)) for value in found if value == value]
    return np.where(np.isnan(values), -1, places.reshape(-1)).astype(np.int64), words


def _number_codes(values: Floats, listed: Mapping[str, int]) -> Codes:
    """The codes of numbers: two doubles have one shortest text only if they are equal."""
    known = [(value, code) for word, code in listed.items() if (value := cells.number(word)) == value]
    known = [(value, code) for value, code in known if listed.get(cells.shortest(value)) == code]
    codes = np.full(len(values), OTHER, np.int64)
    if known:
        order = np.argsort([value for value, _ in known])
        ordered = np.array([value for value, _ in known])[order]
        listed_codes = np.array([code for _, code in known])[order]
        spot = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
        codes = np.where(ordered[spot] == values, listed_codes[spot], OTHER)
    return np.asarray(np.where(np.isnan(values), MISSING, codes), np.int64)


@final
class ArrowCells(Cells):
    """An Arrow array, chunked or not, or a list of arrays of any types."""

    def __init__(self, array: Any) -> None:
        import pyarrow as pa

        self._arrow = pa
        if not isinstance(array, list):
            whole = isinstance(array, pa.ChunkedArray)
            array = (array.chunks or [pa.nulls(0, array.type)]) if whole else [array]
        self._chunks = [self._simple(chunk) for chunk in array]

    @property
    def chunks(self) -> list[Any]:
        """The Arrow arrays, which may differ in type."""
        return self._chunks

    def _simple(self, chunk: Any) -> Any:
        """The chunk with its storage in the open, and times of nanoseconds as texts (Python has no shorter ones than
        microseconds)."""
        types = self._arrow.types
        if isinstance(chunk, self._arrow.ExtensionArray):
            return self._simple(chunk.storage)
        if types.is_dictionary(chunk.type):
            values = self._simple(chunk.dictionary)
            if values.type == chunk.type.value_type:
                return chunk
            return self._arrow.DictionaryArray.from_arrays(chunk.indices, values, safe=False)
        if types.is_timestamp(chunk.type) and chunk.type.unit == "ns":
            times = chunk.to_numpy(zero_copy_only=False)
            texts = np.char.add(np.datetime_as_string(times), "Z" if chunk.type.tz else "")
            return self._arrow.array(texts, self._arrow.string(), mask=np.isnat(times))
        if types.is_run_end_encoded(chunk.type):
            import pyarrow.compute as pc

            return self._simple(pc.run_end_decode(chunk))
        if types.is_string_view(chunk.type):
            return chunk.cast(self._arrow.large_string())
        return chunk.cast(self._arrow.large_binary()) if types.is_binary_view(chunk.type) else chunk

    def __len__(self) -> int:
        return sum(len(chunk) for chunk in self._chunks)

    def part(self, rows: slice) -> Cells:
        kept, first = [], 0
        for chunk in self._chunks:
            start, stop = max(rows.start - first, 0), min(rows.stop - first, len(chunk))
            if start < stop:
                kept.append(chunk.slice(start, stop - start))
            first += len(chunk)
        return ArrowCells(kept)

    def take(self, rows: Codes) -> Cells:
        ends = np.cumsum([len(chunk) for chunk in self._chunks])
        pieces = np.split(rows, np.searchsorted(rows, ends[:-1])) if self._chunks else []
        firsts = ends - [len(chunk) for chunk in self._chunks]
        taken = [
            chunk.take(self._arrow.array(piece - first))
            for chunk, piece, first in zip(self._chunks, pieces, firsts, strict=True)
        ]
        return ArrowCells(taken)

    @property
    def numeric(self) -> bool:
        return bool(self._chunks) and all(_typed_number(self._arrow, chunk.type) for chunk in self._chunks)

    def numbers(self) -> NDArray[np.floating[Any]]:
        parts = [self._numbers(chunk) for chunk in self._chunks]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.float32), *parts])

    def labels(self, *, text: bool = False) -> tuple[Codes, Sequence[str]]:
        return self._joined(lambda chunk: self._labels(chunk, text))

    def persons(self) -> tuple[Codes, Sequence[str]]:
        return self._joined(self._persons)

    def _joined(self, read: Callable[[Any], tuple[Codes, list[str]]]) -> tuple[Codes, Sequence[str]]:
        codes = [np.empty(0, np.int64)]
        words: list[str] = []
        for chunk in self._chunks:
            places, found = read(chunk)
            codes.append(np.where(places >= 0, places + len(words), -1))
            words += found
        return np.concatenate(codes), words

    def codes(self, listed: Mapping[str, int], *, text: bool = False) -> Codes:
        parts = [np.empty(0, np.int64)]
        for chunk in self._chunks:
            if _typed_number(self._arrow, chunk.type):
                parts.append(_number_codes(np.asarray(self._numbers(chunk), np.float64), listed))
            else:
                places, found = self._labels(chunk, text)
                table = np.array([*(listed.get(word, OTHER) for word in found), MISSING], np.int64)
                parts.append(table[places])
        return np.concatenate(parts)

    def _numbers(self, chunk: Any) -> NDArray[np.floating[Any]]:
        pa, types, kind = self._arrow, self._arrow.types, chunk.type
        if types.is_dictionary(kind):
            return _gathered(self._numbers(chunk.dictionary), chunk.indices, cells.NAN)
        if types.is_floating(kind):
            stored: NDArray[Any] = chunk.to_numpy(zero_copy_only=False)
            return stored if stored.dtype == np.float32 else stored.astype(np.float64, copy=False)
        if types.is_integer(kind) or types.is_boolean(kind):
            wide = chunk.cast(pa.float64(), safe=False)
            return np.asarray(wide.to_numpy(zero_copy_only=False), np.float64)
        if types.is_null(kind) or types.is_temporal(kind):
            return np.full(len(chunk), cells.NAN)
        if not types.is_string(kind) and not types.is_large_string(kind):
            return self._text_numbers(chunk)
        import pyarrow.compute as pc

        # Where the text is a plain decimal Arrow and Python read it alike, to the nearest double.
        plain = pc.fill_null(pc.match_substring_regex(chunk, PLAIN_DECIMAL), False)
        if pc.all(plain, min_count=0).as_py():
            return np.asarray(chunk.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
        found, mask = np.empty(len(chunk)), plain.to_numpy(zero_copy_only=False)
        found[mask] = chunk.filter(plain).cast(pa.float64()).to_numpy(zero_copy_only=False)
        found[~mask] = self._text_numbers(chunk.filter(pc.invert(plain)))
        return found

    def _text_numbers(self, chunk: Any) -> Floats:
        places, distinct = self._distinct(chunk)
        values = np.fromiter(map(cells.number, distinct), np.float64, len(distinct))
        return np.append(values, cells.NAN)[places]

    def _labels(self, chunk: Any, text: bool) -> tuple[Codes, list[str]]:
        if _typed_number(self._arrow, chunk.type):
            places, words = _number_labels(np.asarray(self._numbers(chunk), np.float64))
            return places, list(words)
        return self._read(chunk, lambda cell: cells.label(cell, text=text))

    def _persons(self, chunk: Any) -> tuple[Codes, list[str]]:
        if _typed_number(self._arrow, chunk.type):
            places, words = _number_labels(_sure(self._numbers(chunk)))
            return places, list(words)
        return self._read(chunk, cells.person)

    def _read(self, chunk: Any, one: Callable[[Any], str | None]) -> tuple[Codes, list[str]]:
        places, distinct = self._distinct(chunk)
        read = [one(cell) for cell in distinct]
        words = [word for word in dict.fromkeys(read) if word is not None]
        order = {word: i for i, word in enumerate(words)}
        table = np.array([*(-1 if word is None else order[word] for word in read), -1], np.int64)
        return table[places], list(words)

    def _distinct(self, chunk: Any) -> tuple[Codes, list[Any]]:
        """Places (-1 for a null) in a list of the different cells."""
        if self._arrow.types.is_dictionary(chunk.type):
            places = _gathered(np.arange(len(chunk.dictionary)), chunk.indices, -1)
            return places.astype(np.int64), _objects(chunk.dictionary)
        try:
            coded = chunk.dictionary_encode()
        except self._arrow.ArrowException:  # lists and the like have no order
            return np.arange(len(chunk)), _objects(chunk)
        places = _gathered(np.arange(len(coded.dictionary)), coded.indices, -1)
        return places.astype(np.int64), _objects(coded.dictionary)


def _typed_number(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _gathered(values: NDArray[Any], indices: Any, absent: float) -> NDArray[Any]:
    """values[indices], `absent` where an index is null or, which Arrow does not look for, beyond the values."""
    places = indices.cast("int64", safe=False).fill_null(len(values)).to_numpy(zero_copy_only=False)
    places = np.where((places >= 0) & (places < len(values)), places, len(values))
    return np.asarray(np.append(values, absent)[places])


def _objects(chunk: Any) -> list[Any]:
    """The cells as Python objects, None for one that Python cannot hold."""
    try:
        return list(chunk.to_pylist())
    except Exception:  # one cell; a message would quote it
        return [_object(chunk, i) for i in range(len(chunk))]


def _object(chunk: Any, place: int) -> Any:
    try:
        return chunk[place].as_py()
    except Exception:
        return None
