"""Pairs of columns whose products are columns of the encoded table too."""

from __future__ import annotations

from typing import Any

from dplangevin.errors import InvalidParameter
from dplangevin.schema.columns import Column, NumericColumn


def checked_products(given: Any, columns: tuple[Column, ...]) -> tuple[tuple[str, str], ...]:
    """The pairs, each of two different listed columns and none twice."""
    pairs: list[tuple[str, str]] = []
    known = {column.name: column for column in columns}
    if not isinstance(given, list | tuple):
        raise InvalidParameter(f"products must be a list of pairs of columns, got {given!r}.")
    for pair in given:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or pair[0] == pair[1]:
            raise InvalidParameter(f"products holds {pair!r}; each entry is a pair of two different columns.")
        for name in pair:
            if not isinstance(name, str) or name not in known:
                raise InvalidParameter(f"products names {name!r}, which the schema's columns do not list.")
            column = known[name]
            if isinstance(column, NumericColumn) and column.monotone is not None:
                raise InvalidParameter(
                    f"column {name!r} is monotone and also in products: a product has no one direction; drop one."
                )
        if tuple(pair) in pairs or tuple(pair[::-1]) in pairs:
            raise InvalidParameter(f"products holds {list(pair)} twice; list each pair once.")
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)
