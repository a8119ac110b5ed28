"""At most so many rows of a person: chosen at random, in secret, and without a look at anything but whose they are.

Each person's rows are a uniform subset, drawn independently of all other persons; so who joins or leaves changes
nobody else's rows. Rows whose person is missing are nobody's, and are left out.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.tables import Cells, Files, table_of

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]


def kept_rows(codes: Codes, most: int, rng: np.random.Generator) -> Mask:
    """Which rows are used: of every person (a code from 0 on; below 0 is nobody) a uniform subset of at most `most`."""
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]  # by person; within one, in random order
    ordered = codes[order]
    first = np.searchsorted(ordered, ordered)  # where each person's rows begin
    mask = np.zeros(len(codes), bool)
    mask[order] = (np.arange(len(codes)) - first < most) & (ordered >= 0)
    return mask


class PersonCodes:
    """Codes for persons as their labels are met, part by part."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, cells: Cells) -> Codes:
        """The code of each cell's person (`dplangevin.tables.cells.person`); -1 where it is nobody."""
        places, words = cells.persons()
        table = [self._known.setdefault(word, len(self._known)) for word in words]
        return np.array([*table, -1], np.int64)[places]


def kept_in_files(files: Any, person: str, most: int, rng: np.random.Generator) -> Mask:
    """The rows of files that are used; only the persons' column is read, and held in memory as numbers."""
    codes = PersonCodes()
    read = files if isinstance(files, Files) else Files(files)
    parts = [codes.of(batch.column(person)) for batch in read.batches([person])]
    return kept_rows(np.concatenate([np.empty(0, np.int64), *parts]), most, rng)


def kept_on_dask(frame: Any, person: str, most: int, rng: np.random.Generator) -> Any:
    """A Dask DataFrame of the rows that are used; persons come to the driver as keyed hashes of 128 bits."""
    import dask
    import dask.dataframe as dd

    if not hasattr(frame, "columns") or person not in frame.columns:
        raise InvalidParameter(f"person names no column of the table: {person!r}.")
    key = rng.bytes(32)
    parts = frame.to_delayed()
    hashed = dask.compute(*(dask.delayed(_hashed, pure=False)(part, person, key) for part in parts))
    words, codes = np.unique(np.concatenate(hashed), return_inverse=True)
    codes = np.where(words[codes] == b"", -1, codes).astype(np.int64)
    masks = np.split(kept_rows(codes, most, rng), np.cumsum([len(part) for part in hashed])[:-1])
    kept = [
        dask.delayed(_taken, pure=False)(part, mask, person, key, hashlib.sha256(seen.tobytes()).digest())
        for part, mask, seen in zip(parts, masks, hashed, strict=True)
    ]
    return dd.from_delayed(kept, meta=frame._meta, verify_meta=False)


def _hashed(part: Any, person: str, key: bytes) -> NDArray[Any]:
    """A keyed hash for each row's person, empty where it is missing."""
    places, words = table_of(part).column(person).persons()
    table = [hashlib.blake2b(word.encode(), key=key, digest_size=16).hexdigest().encode() for word in words]
    return np.array([*table, b""], "S32")[places]


def _taken(part: Any, mask: Mask, person: str, key: bytes, seen: bytes) -> Any:
    """The rows of the mask, which was made for these persons in this order: a partition may be computed twice."""
    if hashlib.sha256(_hashed(part, person, key).tobytes()).digest() != seen:
        raise InvalidParameter(
            "a partition had other rows, or another order, when it was computed again; persist the table first. What "
            "was charged stays charged, and nothing was released."
        )
    return part[mask]
