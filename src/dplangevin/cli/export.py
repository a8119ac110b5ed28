"""`dplangevin export`: the predictions of a model file in the formats of other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin import _files
from dplangevin.errors import InvalidParameter


def export_model(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; SQL and JSON are printed without it."),
    ] = None,
    as_onnx: Annotated[
        bool, typer.Option("--onnx", help="ONNX graph from raw columns to predictions.")
    ] = False,
    as_sklearn: Annotated[
        bool,
        typer.Option("--sklearn", help="scikit-learn pipeline, as a file of skops, which cannot run code."),
    ] = False,
    as_sql: Annotated[bool, typer.Option("--sql", help="Query that predicts the rows of --table.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Scorecard: values of the score by column, link and guarantee.")
    ] = False,
    table: Annotated[
        str, typer.Option("--table", help="Table that the query reads, with --sql.")
    ] = "records",
    dialect: Annotated[str, typer.Option("--dialect", help="duckdb or postgresql, with --sql.")] = "duckdb",
) -> None:
    """Write a model for other tools, with the same predictions; it costs no privacy budget."""
    from dplangevin.cli import _outputs
    from dplangevin.estimators import model_file

    formats = {"--onnx": as_onnx, "--sklearn": as_sklearn, "--sql": as_sql, "--json": as_json}
    chosen = [flag for flag, is_chosen in formats.items() if is_chosen]
    if len(chosen) != 1:
        raise InvalidParameter(f"choose one of {', '.join(formats)}.")
    if output is None and (as_onnx or as_sklearn):
        raise InvalidParameter(f"{chosen[0]} writes a binary file; name it with --output FILE.")
    _outputs.check_outputs({"--output": output}, reads=(model,))
    content = _export_content(model_file.load_model(model), chosen[0], table, dialect)
    if output is None:
        typer.echo(content, nl=False)
        return
    if isinstance(content, bytes):
        _files.write_bytes(output, content)
    else:
        _files.write_text(output, content)
    typer.echo(f"Wrote {output}.")


def _export_content(model: Any, flag: str, table: str, dialect: str) -> str | bytes:
    if flag == "--sql":
        return str(model.to_sql(table, dialect))
    if flag == "--json":
        return json.dumps(model.to_scorecard(), indent=1, allow_nan=False) + "\n"
    if flag == "--onnx":
        return bytes(model.to_onnx().SerializeToString())
    try:
        import skops.io as skops
    except ImportError:
        raise InvalidParameter(
            "--sklearn needs skops; install it with: pip install 'dplangevin[exports]'."
        ) from None
    return bytes(skops.dumps(model.to_sklearn()))
