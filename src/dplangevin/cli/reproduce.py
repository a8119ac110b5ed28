"""`dplangevin reproduce`: redraw the papers' figures and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    name: Annotated[str, typer.Argument(help="A figure by name, 'list' to list them, or 'all'.")] = "list",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for picture, CSV and text.")
    ] = Path("gallery"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points and repetitions.")] = False,
) -> None:
    """Redraw a figure or table of the papers: a picture, its numbers as CSV, and what agrees and what does not."""
    from dplangevin.cli import _outputs
    from dplangevin.papers import gallery

    if name.lower() == "list":
        width = max(len(word) for word in gallery.FIGURES)
        for word in gallery.FIGURES:
            typer.echo(f"{word:<{width}}  {gallery.figure(word).TITLE}")
        return
    words = gallery.FIGURES if name.lower() == "all" else (name,)
    for word in words:
        gallery.figure(word)  # an unknown name, before anything is drawn
    _outputs.folder_ready("--output", output)
    for word in words:
        text = gallery.reproduce(word, output, quick=quick)
        typer.echo(f"{word}: {gallery.figure(word).TITLE}\n{text.rstrip()}\nWrote {output / word}.*\n")
