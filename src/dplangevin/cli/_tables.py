"""Reading and writing the tables of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.tables import CellColumn, Dialect, Table, TableFiles, TableQuery
from dplangevin.tables.lazy import copy_lazy_table, query_condition


def text_dialect(delimiter: str | None) -> Dialect | None:
    """Return the dialect of text files with this delimiter; None lets the file's suffix decide."""
    if delimiter is None:
        return None
    return Dialect(delimiter={"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter))


def read_table(path: Path, delimiter: str | None = None) -> Table:
    """Open a Parquet, Arrow or text file as a table whose cells are not parsed yet."""
    try:
        return TableFiles(path, text_dialect(delimiter)).read_table()
    except DplangevinError:
        raise
    except Exception:  # the parser's own message would show values of the table
        raise InvalidParameter(f"{path} could not be read as a {path.suffix or 'CSV'} table.") from None


def open_query(url: str, sql: str, ledger: Any) -> TableFiles:
    """Open a query to a database; for a strict data set of the ledger it must be a stored table."""
    query = TableQuery(url, sql)
    if getattr(ledger, "strict", False) and query_condition(query) is not None:
        raise InvalidParameter(
            "this data set is strict: --sql must be the name of a stored table, since a statement or a view may mix "
            "records. Nothing was charged."
        )
    files = copy_lazy_table(query)
    assert isinstance(files, TableFiles)
    return files


def split_target(table: Table, name: str) -> tuple[Table, CellColumn]:
    """Return the table without its target column, and the target column."""
    if name not in table.names:
        raise InvalidParameter(f"there is no column {name!r}; the table has {', '.join(table.names)}.")
    return table.drop_columns(name), table.column(name)


def parse_labels(text: str | None) -> list[str] | None:
    """Parse the public set of labels, a,b,c."""
    if text is None:
        return None
    values = [part.strip() for part in text.split(",")]
    if len(values) < 2 or not all(values):
        raise InvalidParameter(f"--classes must be a list of labels such as no,yes; got {text!r}.")
    return values


def read_stated_schema(
    path: Path | None,
    learn: str | None,
    numeric_target: str | None,
    feature_names: Callable[[], Iterable[str]],
) -> Any:
    """Return the schema of --schema or of --learn a=number,b=category, or None.

    --learn also learns the range of `numeric_target`. `feature_names` returns the names of the table's columns
    without the target; an error message shows them.
    """
    from dplangevin.schema import Schema, load_schema

    if learn is None:
        return None if path is None else load_schema(path)
    if path is not None:
        raise InvalidParameter('--schema and --learn are both given; a schema file may itself say "learn".')
    kinds = {}
    for part in learn.split(","):
        name, equals, kind = part.partition("=")
        if not equals:
            raise InvalidParameter(
                f"--learn does not say what {part!r} is, number or category, and no type is guessed: fill in --learn "
                f"'{','.join(f'{name}=number|category' for name in feature_names())}', with the columns that "
                "are wanted."
            )
        if not name.strip() or name.strip() in kinds:
            raise InvalidParameter(f"--learn must be like age=number,job=category; got {learn!r}.")
        kinds[name.strip()] = kind.strip()
    target = None if numeric_target is None else {"name": numeric_target, "range": "learn"}
    return Schema.learn(kinds, target=target)


def resolve_classes(schema: Any, classes: list[str] | None) -> Any:
    """Return the stated labels of a classifier, or None where the schema's target lists them.

    Labels are never read from the table.
    """
    if classes is not None:
        return classes
    categories = getattr(getattr(schema, "target", None), "categories", None)
    if categories is None:
        raise InvalidParameter(
            "state the public set of labels with --classes a,b or as the target of --schema: reading it from the "
            "table would publish every label in it."
        )
    return None


@contextmanager
def hide_cell_errors(path: Path | None, schema: Any = None) -> Iterator[None]:
    """Replace errors of other libraries about the table's cells: their messages would show values of the table."""
    try:
        yield
    except DplangevinError:
        raise
    except (ValueError, TypeError, ArithmeticError, KeyError):
        target = "the target must hold one label or number in every row"
        if schema is None:
            target = f"without a schema every feature must be a finite number, and {target}"
        name = "" if path is None else f" {path}"
        raise InvalidParameter(f"the table{name} cannot be used: {target}.") from None
