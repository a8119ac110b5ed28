"""`dplangevin schema`: draft a public schema, and check it on public rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dplangevin import _files
from dplangevin.cli.option_groups import AsJson, Decimal, Delimiter
from dplangevin.errors import InvalidParameter

app = typer.Typer(
    name="schema",
    help="Public schemas of tables: draft one, and check it on PUBLIC rows.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command("init")
def init_schema(
    public: Annotated[
        Path | None, typer.Argument(help="PUBLIC rows, .csv or .parquet: their values go into the schema.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Names alone: no table is read.", metavar="A,B,C")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="The column to predict.")] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="New .toml file.", show_default="stdout")
    ] = None,
) -> None:
    """Draft a schema to edit, as TOML. A table given here is treated as PUBLIC: never pass private rows."""
    from dplangevin.cli import _io
    from dplangevin.schema.draft import draft_schema, draft_schema_from_public

    if (public is None) == (columns is None):
        raise InvalidParameter("give either a table of PUBLIC rows or --columns A,B,C.")
    if output is not None and output.suffix.lower() != ".toml":
        raise InvalidParameter(f"--output must end in .toml, got {str(output)!r}.")
    if output is not None and output.exists():
        raise InvalidParameter(f"--output {str(output)!r} exists; remove it, or choose another name.")
    _io.check_outputs({"--output": output})
    if public is None:
        names = [name.strip() for name in (columns or "").split(",") if name.strip()]
        text = draft_schema(names, target)
    else:
        from dplangevin.audit.containers import read_records

        typer.echo(
            f"WARNING: every value of {public} is treated as PUBLIC, and some go into the schema. If these rows are "
            "private, stop here and use --columns.",
            err=True,
        )
        dialect = _io.text_dialect(delimiter, decimal)
        records = read_records(public, dialect=dialect)
        text = draft_schema_from_public(records, target)
    if output is None:
        typer.echo(text, nl=False)
    else:
        _files.write_text(output, text)
        typer.echo(f"Wrote {output}: edit it, then `dplangevin schema check {output} PUBLIC.csv`.", err=True)


@app.command("check")
def check_public_rows(
    schema: Annotated[Path, typer.Argument(help="Schema, .toml or .json.")],
    public: Annotated[Path, typer.Argument(help="PUBLIC rows, .csv or .parquet.")],
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    as_json: AsJson = False,
) -> None:
    """Report categories that never match and ranges that clip, on PUBLIC rows: never pass private ones."""
    from dplangevin.cli import _io
    from dplangevin.estimators.schema_check import check_schema
    from dplangevin.schema import Schema

    loaded_schema = Schema.load(schema)
    typer.echo(f"WARNING: {public} is treated as PUBLIC; the answer describes its rows.", err=True)
    schema_check = check_schema(loaded_schema, _io.read_table(public, _io.text_dialect(delimiter, decimal)))
    typer.echo(json.dumps(schema_check.to_dict(), indent=1) if as_json else repr(schema_check))
