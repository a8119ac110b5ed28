"""Reading and writing the tables of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dplangevin.errors import DplangevinError, InvalidParameter


def read(path: Path) -> Any:
    """A CSV or Parquet file as a pandas DataFrame."""
    try:
        import pandas as pd
    except ImportError:
        raise InvalidParameter('tables need pandas: pip install "dplangevin[tables]".') from None
    if not path.exists():
        raise InvalidParameter(f"there is no file {path}.")
    try:
        if path.suffix.lower() == ".parquet":
            return pd.read_parquet(path)
        return pd.read_csv(path)
    except ImportError:
        raise InvalidParameter('Parquet needs pyarrow: pip install "dplangevin[tables]".') from None
    except Exception:  # the parser's own message would show values of the table
        raise InvalidParameter(f"{path} could not be read as a {path.suffix or 'CSV'} table.") from None


def target(table: Any, name: str) -> tuple[Any, Any]:
    """The table without its target column, and the column."""
    if name not in table.columns:
        raise InvalidParameter(
            f"there is no column {name!r}; the table has {', '.join(map(str, table.columns))}."
        )
    return table.drop(columns=name), table[name].to_numpy()


@contextmanager
def usable(path: Path, schema: Any = None) -> Iterator[None]:
    """Errors of other libraries about the table's cells become ours: theirs would show values of the table."""
    try:
        yield
    except DplangevinError:
        raise
    except (ValueError, TypeError, ArithmeticError, KeyError):
        target = "the target must hold one label or number in every row"
        if schema is None:
            target = f"without a schema every feature must be a finite number, and {target}"
        raise InvalidParameter(f"the table {path} cannot be used: {target}.") from None
