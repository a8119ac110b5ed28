"""`dplangevin report`: the privacy report of a model file or a plan file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dplangevin.cli.groups import Payer, grouped
from dplangevin.errors import InvalidParameter


@grouped
def report(
    model: Annotated[Path, typer.Argument(help="Model file or plan file.")],
    output: Annotated[Path, typer.Argument(help="Report to write, .html, .md or .json.")],
    *,
    payer: Payer,
    sign: Annotated[Path | None, typer.Option("--sign", help="Private key to sign the report with.")] = None,
) -> None:
    """What a model or a plan promises, in one file to hand on: plain words, curves, what is and is not protected."""
    from dplangevin.cli import _outputs
    from dplangevin.estimators import model_file
    from dplangevin.privacy.plan_file import load_plan
    from dplangevin.report import write
    from dplangevin.report.document import checked_path

    checked_path(output)
    _outputs.ready({"the report": output}, reads=(model,), ledger=payer.ledger, sign=sign)
    budget = payer.budget()
    subject = load_plan(model) if _is_plan(model) else model_file.load_model(model)
    write(subject, output, ledger=budget, sign=sign, source=model)
    typer.echo(f"Wrote {output}.")


def _is_plan(path: Path) -> bool:
    """Whether a file says that it is a plan; what is wrong with it is for the loaders to say."""
    from dplangevin import _files
    from dplangevin.privacy.plan_file import FORMAT

    try:
        plain = _files.read_plain(path, "the file")
    except InvalidParameter:
        return False
    return isinstance(plain, dict) and plain.get("format") == FORMAT
