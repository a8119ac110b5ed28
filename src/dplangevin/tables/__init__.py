"""The reading room: every entry to records, one cell at a time, each by itself."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dplangevin.tables.cells import label, number, plain, shortest
    from dplangevin.tables.columns import MISSING, OTHER, Cells
    from dplangevin.tables.files import Files, is_path
    from dplangevin.tables.room import Table, cells_of, matrix_of, table_of
    from dplangevin.tables.text import Dialect

_HOMES = {
    "label": "cells",
    "number": "cells",
    "plain": "cells",
    "shortest": "cells",
    "MISSING": "columns",
    "OTHER": "columns",
    "Cells": "columns",
    "Files": "files",
    "is_path": "files",
    "Table": "room",
    "cells_of": "room",
    "matrix_of": "room",
    "table_of": "room",
    "Dialect": "text",
}

__all__ = [
    "MISSING",
    "OTHER",
    "Cells",
    "Dialect",
    "Files",
    "Table",
    "cells_of",
    "is_path",
    "label",
    "matrix_of",
    "number",
    "plain",
    "shortest",
    "table_of",
]


def __getattr__(name: str) -> Any:
    """Import at the first use: a schema reads labels without NumPy."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
