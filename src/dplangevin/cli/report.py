"""`dplangevin report`, `keys`, `sign` and `verify`: privacy reports, and signatures of models, plans and reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    from dplangevin.cli import _outputs
    from dplangevin.estimators import model_file
    from dplangevin.report import write_report
    from dplangevin.report.document import check_report_path

    check_report_path(output)
    _outputs.check_outputs({"the report": output}, reads=(model,), ledger=budget_options.ledger, sign=sign)
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
