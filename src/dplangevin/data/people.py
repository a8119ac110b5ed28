"""Limit the rows of each person: a secret random subset, drawn from the column of persons alone.

Each person's rows are a uniform subset, drawn independently of all other persons, so that a person who joins or
leaves changes nobody else's rows. Rows whose person is missing belong to nobody and are left out.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.tables import CellColumn, as_table, open_files

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]


def select_person_rows(codes: Codes, max_rows: int, rng: np.random.Generator) -> Mask:
    """Return the mask of a uniform subset of at most `max_rows` rows of every person.

    `codes` are one per row: a person's code from 0 on, or a negative number for nobody, whose rows are left out.
    """
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]  # by person; within one, in random order
    ordered = codes[order]
    first = np.searchsorted(ordered, ordered)  # where each person's rows begin
    mask = np.zeros(len(codes), bool)
    mask[order] = (np.arange(len(codes)) - first < max_rows) & (ordered >= 0)
    return mask


class PersonCodes:
    """Codes of persons, assigned in the order in which their identifiers first occur, over several parts."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def codes_of(self, cells: CellColumn) -> Codes:
        """Return the code of each cell's person (`dplangevin.tables.cells.read_person`); -1 for nobody."""
        indices, persons = cells.persons()
        table = [self._known.setdefault(person, len(self._known)) for person in persons]
        return np.array([*table, -1], np.int64)[indices]


def select_file_rows(files: Any, person: str, max_rows: int, rng: np.random.Generator) -> Mask:
    """Return the mask of the rows of files that are used; only the column of persons is read, and held as codes."""
    codes = PersonCodes()
    tables = open_files(files)
    parts = [codes.codes_of(batch.column(person)) for batch in tables.batches([person])]
    return select_person_rows(np.concatenate([np.empty(0, np.int64), *parts]), max_rows, rng)


def select_dask_rows(frame: Any, person: str, max_rows: int, rng: np.random.Generator) -> Any:
    """Return a Dask DataFrame of the rows that are used; the driver sees persons as keyed hashes of 128 bits."""
    import dask
    import dask.dataframe as dd

    if not hasattr(frame, "columns") or person not in frame.columns:
        raise InvalidParameter(
            f"person must be the name of a column of the table; there is no column {person!r}."
        )
    key = rng.bytes(32)
    parts = frame.to_delayed()
    hashed = dask.compute(*(dask.delayed(_hash_persons, pure=False)(part, person, key) for part in parts))
    distinct, codes = np.unique(np.concatenate(hashed), return_inverse=True)
    codes = np.where(distinct[codes] == b"", -1, codes).astype(np.int64)
    masks = np.split(select_person_rows(codes, max_rows, rng), np.cumsum([len(part) for part in hashed])[:-1])
    selected = [
        dask.delayed(_take_rows, pure=False)(
            part, mask, person, key, hashlib.sha256(hashes.tobytes()).digest()
        )
        for part, mask, hashes in zip(parts, masks, hashed, strict=True)
    ]
    return dd.from_delayed(selected, meta=frame._meta, verify_meta=False)


def _hash_persons(part: Any, person: str, key: bytes) -> NDArray[Any]:
    """Return a keyed hash for each row's person, empty where it is missing."""
    indices, names = as_table(part).column(person).persons()
    table = [hashlib.blake2b(name.encode(), key=key, digest_size=16).hexdigest().encode() for name in names]
    return np.array([*table, b""], "S32")[indices]


def _take_rows(part: Any, mask: Mask, person: str, key: bytes, expected: bytes) -> Any:
    """Return the rows of the mask; raise if a recomputed partition no longer has the persons it was made for."""
    if hashlib.sha256(_hash_persons(part, person, key).tobytes()).digest() != expected:
        raise InvalidParameter(
            "a partition had other rows, or rows in another order, when it was recomputed; persist the table first. "
            "What was charged stays charged, and nothing was released."
        )
    return part[mask]
