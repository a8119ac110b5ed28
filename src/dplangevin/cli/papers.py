"""`dplangevin papers`: the papers behind the library, their statements, and a tour of Langevin diffusion."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dplangevin.errors import InvalidParameter

app = typer.Typer(help="The papers behind the library: list, search, show a statement, take the tour.")


@app.callback(invoke_without_command=True)
def list_papers(context: typer.Context) -> None:
    """List the papers, with the number of their statements."""
    if context.invoked_subcommand is not None:
        return
    from dplangevin.papers.concordance import PAPERS, ROWS

    for paper in PAPERS:
        count = sum(row.paper == paper.key for row in ROWS)
        typer.echo(f"{paper.authors} ({paper.year})\n  {paper.title}\n  {paper.link}, {count} statements")
    typer.echo(
        'Try: dplangevin papers search Rashomon; dplangevin papers show "Theorem F.1"; dplangevin papers tour'
    )


@app.command("search")
def search_statements(
    words: Annotated[list[str], typer.Argument(help="An author, a number or words of a statement.")],
) -> None:
    """Find the statements that have all of these words in author, title, number or text."""
    for row in _find_rows(" ".join(words), everywhere=True):
        typer.echo(f"{_source(row)}, {row.number} [{row.use}]: {row.says}")


@app.command("show")
def show_statement(
    number: Annotated[str, typer.Argument(help='A number such as "Theorem 3.1".')],
    paper: Annotated[str, typer.Option("--paper", help="An author, a year or a word of the title.")] = "",
) -> None:
    """Print a statement: what it says, what was corrected, where it is, and a line to run."""
    for row in _find_rows(number, everywhere=False):
        if paper.lower() not in _source_text(row):
            continue
        lines = [
            f"{_source(row)}, {row.number}",
            f"  says       {row.says}",
            f"  corrected  {row.corrected}" if row.corrected else "",
            f"  use        {row.use}" + (f": {row.note}" if row.note else ""),
            f"  where      {', '.join(place.replace(':', '.') for place in row.where)}",
            f"  try        {row.command}",
        ]
        typer.echo("\n".join(line for line in lines if line))


@app.command("tour")
def print_tour() -> None:
    """Walk along the clock of Langevin diffusion: privacy, risk and measured runs, in a few seconds."""
    from dplangevin.papers.tour import render_tour

    typer.echo(render_tour())


def _paper_of(row: Any) -> Any:
    from dplangevin.papers.concordance import PAPERS

    return next(paper for paper in PAPERS if paper.key == row.paper)


def _source(row: Any) -> str:
    return str(_paper_of(row).heading.split(":")[0])


def _source_text(row: Any) -> str:
    paper = _paper_of(row)
    return f"{paper.authors} {paper.title} {paper.year} {paper.key}".lower()


def _find_rows(text: str, *, everywhere: bool) -> list[Any]:
    """Return the statements whose number holds this text, or, everywhere, whose paper or sentence does."""
    from dplangevin.papers.concordance import ROWS

    wanted = text.lower().split()
    rows = [
        row
        for row in ROWS
        if " ".join(wanted) in row.number.lower()
        or (
            everywhere
            and all(
                word in f"{row.number} {row.says} {row.corrected} {row.note} {_source_text(row)}".lower()
                for word in wanted
            )
        )
    ]
    if not rows:
        raise InvalidParameter(
            f"no statement matches {text!r}; `dplangevin papers search WORD` finds them by words."
        )
    return rows
