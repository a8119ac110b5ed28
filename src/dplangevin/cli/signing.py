"""`dplangevin keys new`, `sign` and `verify`: who stands behind a model file, a plan or a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

keys = typer.Typer(help="Keys that sign model files, plans and reports.", no_args_is_help=True)


@keys.callback()
def _group() -> None:
    """Keys that sign model files, plans and reports."""


@keys.command("new")
def new(
    path: Annotated[Path, typer.Argument(help="Private key to write; the public one gets .pub.")],
    signer: Annotated[str, typer.Option("--signer", help="The name that signed files show.")] = "",
) -> None:
    """Make a key. Keep it to yourself, and hand out the .pub file."""
    from dplangevin.signing import new_key

    key = new_key(path, signer)
    typer.echo(f"Wrote {path} (keep it to yourself) and {path}.pub (hand it out): the public key is {key}.")


def sign(
    file: Annotated[Path, typer.Argument(help="Model file, plan file or report.")],
    key: Annotated[Path, typer.Option("--key", help="Private key.")],
) -> None:
    """Sign a file in its place."""
    from dplangevin import signing

    signing.sign(file, key)
    typer.echo(f"{file}: {signing.verify(file)}.")


def verify(
    file: Annotated[Path, typer.Argument(help="Model file, plan file or report.")],
    key: Annotated[Path, typer.Option("--key", help="Public key of the one who should have signed.")],
) -> None:
    """Say who signed a file; an error when it was altered since, or signed by another key."""
    from dplangevin import signing

    typer.echo(f"{file}: {signing.verify(file, key)}.")
