"""The reading room: every entry to records, one cell at a time, each by itself."""

from dplangevin.tables.cells import label, number, plain, shortest
from dplangevin.tables.columns import MISSING, OTHER, Cells
from dplangevin.tables.files import Files, is_path
from dplangevin.tables.room import Table, cells_of, matrix_of, table_of
from dplangevin.tables.text import Dialect

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
