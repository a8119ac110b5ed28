"""`dplangevin ui`: a page in the browser, on this machine, from a table on disk to a published private model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve_ui(
    folder: Annotated[
        Path, typer.Option("--folder", help="Folder of the releases; created if absent.", metavar="FOLDER")
    ] = Path("dplangevin-releases"),
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            help="URL of the budget ledger; default: ledger.db in the folder, created with the first budget.",
            metavar="URL",
            envvar="DPLANGEVIN_LEDGER",
        ),
    ] = None,
    start: Annotated[
        Path, typer.Option("--start", help="Folder whose tables are shown first.", metavar="FOLDER")
    ] = Path("."),
    port: Annotated[int, typer.Option("--port", help="Port on loopback; 0 takes a free one.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
) -> None:
    """Open a page in the browser: from a table on disk to a published private model, with nothing to program.

    The page answers on this machine only, to whoever has the address with its token. Nothing is charged before the
    button "Release", and what was charged is delivered even if the page is stopped.
    """
    from dplangevin.ui.server import serve_page

    serve_page(
        folder.expanduser(),
        ledger,
        port,
        start=start.expanduser().absolute(),
        open_browser=browser,
        announce=lambda line: typer.echo(line, err=True),
    )
