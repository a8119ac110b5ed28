"""`dplangevin audit pipeline`: does one odd record change how a pipeline reads everybody else?"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin import _files
from dplangevin.cli.groups import AsJson, Quiet
from dplangevin.errors import InvalidParameter

_FAILED = 3


def pipeline(
    pipeline: Annotated[
        str, typer.Argument(help="What to run on a table: MODULE:FUNCTION.", metavar="MODULE:FUNCTION")
    ],
    table: Annotated[Path, typer.Option("--table", help="A few dozen records, .csv or .parquet.")],
    schema: Annotated[Path | None, typer.Option("--schema", help="Public schema, .json or .toml.")] = None,
    container: Annotated[
        list[str] | None,
        typer.Option(
            "--container",
            help="records, numpy, pandas, polars, arrow, csv or parquet (repeat); default: all that run.",
        ),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", help="Only this column (repeat); default: all.")
    ] = None,
    row: Annotated[
        list[int] | None,
        typer.Option("--row", help="Replace this record (repeat); default: the first and the last."),
    ] = None,
    bound: Annotated[
        float | None,
        typer.Option("--bound", help="How far one record may move a result that is not one per row."),
    ] = None,
    norm: Annotated[str, typer.Option("--norm", help="Of --bound: l2, l1 or max.")] = "l2",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the result as JSON.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run your own code on a table and on its neighbours. Exit code 3 when a record changed another's result."""
    from dplangevin.audit import neighbours
    from dplangevin.cli import _outputs
    from dplangevin.schema import Schema

    _outputs.ready({"--output": output}, reads=(table, schema))
    result = neighbours(
        _named(pipeline), table, None if schema is None else Schema.load(schema), containers=container or None,
        columns=column or None, rows=row or (0, -1), bound=bound, norm=norm,  # type: ignore[arg-type]
    )  # fmt: skip
    if output is not None:
        _files.write_text(output, result.to_json() + "\n")
    if as_json:
        typer.echo(result.to_json())
    elif not quiet:
        typer.echo(repr(result))
    if not result.passed:
        raise typer.Exit(_FAILED)


def _named(words: str) -> Any:
    """The object that MODULE:FUNCTION names; modules of the working folder are found as well."""
    module, _, name = words.partition(":")
    if not module or not name:
        raise InvalidParameter(f"the pipeline must be named MODULE:FUNCTION, got {words!r}.")
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidParameter(f"there is no pipeline {words!r}: {error}.") from None
    finally:
        sys.path.remove(folder)
    return found
