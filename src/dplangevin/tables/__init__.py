"""The reading room: every entry to records, one cell at a time, each by itself."""

from typing import TYPE_CHECKING

from dplangevin._lazy import attach

if TYPE_CHECKING:
    from dplangevin.tables.cells import (
        label as label,
        labels_of as labels_of,
        number as number,
        plain as plain,
        shortest as shortest,
    )
    from dplangevin.tables.columns import MISSING as MISSING, OTHER as OTHER, Cells as Cells
    from dplangevin.tables.files import Files as Files, is_path as is_path
    from dplangevin.tables.room import (
        Table as Table,
        cells_of as cells_of,
        matrix_of as matrix_of,
        table_of as table_of,
    )
    from dplangevin.tables.text import Dialect as Dialect

# At the first use: a schema reads labels without NumPy.
__getattr__, __dir__, __all__ = attach(__name__)
