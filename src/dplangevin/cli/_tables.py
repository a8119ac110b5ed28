"""Reading and writing the tables of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.tables import Cells, Dialect, Files, Table


def dialect(separator: str | None) -> Dialect | None:
    """The stated dialect of text files; None is the one of the file's suffix."""
    if separator is None:
        return None
    return Dialect(separator={"\\t": "\t", "tab": "\t"}.get(separator, separator))


def read(path: Path, separator: str | None = None) -> Table:
    """A Parquet, Arrow or text file, its cells unread."""
    try:
        return Files(path, dialect(separator)).table()
    except DplangevinError:
        raise
    except Exception:  # the parser's own message would show values of the table
        raise InvalidParameter(f"{path} could not be read as a {path.suffix or 'CSV'} table.") from None


def target(table: Table, name: str) -> tuple[Table, Cells]:
    """The table without its target column, and the column."""
    if name not in table.names:
        raise InvalidParameter(f"there is no column {name!r}; the table has {', '.join(table.names)}.")
    return table.without(name), table.column(name)


def labels(text: str | None) -> list[str] | None:
    """The public set of labels, a,b,c."""
    if text is None:
        return None
    found = [part.strip() for part in text.split(",")]
    if len(found) < 2 or not all(found):
        raise InvalidParameter(f"--classes must be a list of labels such as no,yes; got {text!r}.")
    return found


def stated_schema(
    path: Path | None, learn: str | None, numeric_target: str | None, names: Callable[[], Iterable[str]]
) -> Any:
    """The schema of --schema or of --learn a=number,b=category, which learns the range of a numeric target too.

    names : of the table's columns without the target, for the template.
    """
    from dplangevin.schema import Schema, load_any

    if learn is None:
        return None if path is None else load_any(path)
    if path is not None:
        raise InvalidParameter('--schema and --learn are both given; a schema file may itself say "learn".')
    kinds = {}
    for part in learn.split(","):
        name, said, kind = part.partition("=")
        if not said:
            raise InvalidParameter(
                f"--learn does not say what {part!r} is, number or category, and no type is guessed: fill in --learn "
                f"'{','.join(f'{name}=number|category' for name in names())}', with the columns that are wanted."
            )
        if not name.strip() or name.strip() in kinds:
            raise InvalidParameter(f"--learn must be like age=number,job=category; got {learn!r}.")
        kinds[name.strip()] = kind.strip()
    target = None if numeric_target is None else {"name": numeric_target, "range": "learn"}
    return Schema.learn(kinds, target=target)


def stated_classes(schema: Any, classes: list[str] | None) -> Any:
    """The labels of a classifier, from the command line or the schema's target: never from the table."""
    if classes is not None:
        return classes
    found = getattr(getattr(schema, "target", None), "categories", None)
    if found is None:
        raise InvalidParameter(
            "state the public set of labels with --classes a,b or as the target of --schema: reading it from the "
            "table would publish every label in it."
        )
    return None


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
