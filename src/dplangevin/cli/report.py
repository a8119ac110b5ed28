"""`dplangevin report`, `keys`, `sign`, `verify` and `export`: what is made of a model file.

Privacy reports, signatures of models, plans and reports, and predictions in the formats of other tools.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin import _files
from dplangevin.cli.option_groups import BudgetOptions, expand_option_groups
from dplangevin.errors import InvalidParameter


@expand_option_groups
def report_command(
    model: Annotated[Path, typer.Argument(help="Model file or plan file.")],
    output: Annotated[Path, typer.Argument(help="Report to write, .html, .md or .json.")],
    *,
    budget_options: BudgetOptions,
    sign: Annotated[Path | None, typer.Option("--sign", help="Private key to sign the report with.")] = None,
) -> None:
    """Write the privacy report of a model or a plan: its guarantee in plain words, curves, what is protected."""
    from dplangevin.accounting.plan import load_plan
    from dplangevin.cli import _io
    from dplangevin.estimators import model_file
    from dplangevin.report import write_report
    from dplangevin.report.document import check_report_path

    check_report_path(output)
    _io.check_outputs({"the report": output}, reads=(model,), ledger=budget_options.ledger, sign=sign)
    budget = budget_options.open_budget()
    subject = load_plan(model) if _is_plan_file(model) else model_file.load_model(model)
    write_report(subject, output, ledger=budget, sign=sign, source=model)
    typer.echo(f"Wrote {output}.")


def _is_plan_file(path: Path) -> bool:
    """Return whether a file declares itself a plan; the loaders report what is wrong with it."""
    from dplangevin import _files
    from dplangevin.accounting.plan import PLAN_FORMAT

    try:
        plain = _files.read_json(path, "the file")
    except InvalidParameter:
        return False
    return isinstance(plain, dict) and plain.get("format") == PLAN_FORMAT.layout


keys = typer.Typer(help="Keys that sign model files, plans and reports.", no_args_is_help=True)


@keys.callback()
def _keys_group() -> None:
    """Keys that sign model files, plans and reports."""


@keys.command("new")
def make_key(
    path: Annotated[Path, typer.Argument(help="Private key to write; the public one gets .pub.")],
    signer: Annotated[str, typer.Option("--signer", help="The name that signed files show.")] = "",
) -> None:
    """Create a signing key. Keep it secret, and distribute the .pub file."""
    from dplangevin.signing import create_key

    key = create_key(path, signer)
    typer.echo(f"Wrote {path} (keep it secret) and {path}.pub (distribute it): the public key is {key}.")


def sign_command(
    file: Annotated[Path, typer.Argument(help="Model file, plan file or report.")],
    key: Annotated[Path, typer.Option("--key", help="Private key.")],
) -> None:
    """Sign a file in place."""
    from dplangevin import signing

    signing.sign_file(file, key)
    typer.echo(f"{file}: {signing.verify_file(file)}.")


def verify_command(
    file: Annotated[Path, typer.Argument(help="Model file, plan file, report, or export of a ledger.")],
    key: Annotated[
        Path | None, typer.Option("--key", help="Public key of the expected signer.", show_default=False)
    ] = None,
) -> None:
    """Derive the epsilon of a file again with the independent checker, and with --key check who signed it.

    Fails if the file was altered since it was signed, was signed with another key, or states less than is derived.
    """
    from dplangevin import signing

    if key is not None:
        typer.echo(f"{file}: {signing.verify_file(file, key)}.")
    text = _check_independently(file)
    if text is not None:
        typer.echo(f"{file}: {text}.")
    elif key is None:
        raise InvalidParameter(
            f"{str(file)!r} holds no guarantee to derive again; state --key to check who signed it."
        )


def _check_independently(path: Path) -> str | None:
    """Return what the independent checker says of a file; None where it holds no guarantee."""
    import dplangevin_check
    from dplangevin import _files, signing

    if not _files.read_text(path, "the file", max_bytes=signing.MAX_FILE_BYTES).lstrip().startswith("{"):
        return None
    plain = _files.read_json(path, "the file", max_bytes=signing.MAX_FILE_BYTES)
    if not isinstance(plain, dict) or not {"certificate", "guarantee", "datasets", "releases"} & set(plain):
        return None
    try:
        epsilons = dplangevin_check.check(plain)
    except dplangevin_check.NotCovered as error:
        return f"not checked independently: {error}"
    except dplangevin_check.Refused as error:
        raise InvalidParameter(
            f"{str(path)!r} states less than the independent checker derives: {error}."
        ) from None
    return f"checked independently: epsilon = {', '.join(f'{epsilon:.9g}' for epsilon in epsilons)}"


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
    from dplangevin.cli import _io
    from dplangevin.estimators import model_file

    formats = {"--onnx": as_onnx, "--sklearn": as_sklearn, "--sql": as_sql, "--json": as_json}
    chosen = [flag for flag, is_chosen in formats.items() if is_chosen]
    if len(chosen) != 1:
        raise InvalidParameter(f"choose one of {', '.join(formats)}.")
    if output is None and (as_onnx or as_sklearn):
        raise InvalidParameter(f"{chosen[0]} writes a binary file; name it with --output FILE.")
    _io.check_outputs({"--output": output}, reads=(model,))
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
