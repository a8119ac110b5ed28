"""Readers of tables and files: every cell is read by itself, by a rule that depends on no other record."""

from typing import TYPE_CHECKING

from dplangevin._lazy import attach_lazy_names

if TYPE_CHECKING:
    from dplangevin.tables.cells import (
        label_indices as label_indices,
        read_label as read_label,
        read_number as read_number,
        shortest_text as shortest_text,
    )
    from dplangevin.tables.columns import MISSING as MISSING, OTHER as OTHER, CellColumn as CellColumn
    from dplangevin.tables.files import Dialect as Dialect, TableFiles as TableFiles, is_path as is_path
    from dplangevin.tables.frames import (
        Table as Table,
        as_column as as_column,
        as_matrix as as_matrix,
        as_table as as_table,
        is_frame as is_frame,
    )
    from dplangevin.tables.lazy import (
        TableQuery as TableQuery,
        is_streamed as is_streamed,
        open_files as open_files,
    )

# Imported at first use: a schema reads labels without NumPy.
__getattr__, __dir__, __all__ = attach_lazy_names(__name__)
