"""`dplangevin ledger`: declare the budget of a data set, and see what was spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin.errors import InvalidParameter

app = typer.Typer(
    name="ledger",
    help="The privacy budgets of data sets: declare one, and see what was spent.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Url = Annotated[
    str,
    typer.Option(
        "--ledger",
        help="sqlite:///file.db or postgresql://user@host/database.",
        metavar="URL",
        envvar="DPLANGEVIN_LEDGER",
        show_envvar=True,
    ),
]
Name = Annotated[str, typer.Option("--dataset", help="Name of the data set.", metavar="NAME")]
SomeName = Annotated[
    str | None, typer.Option("--dataset", help="Only this data set.", metavar="NAME", show_default="all")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("init")
def init(
    url: Url,
    dataset: Name,
    epsilon: Annotated[float, typer.Option(help="Budget of all releases together.", metavar="X")],
    delta: Annotated[float, typer.Option(help="0 admits pure promises only.", metavar="X")],
    adjacency: Annotated[
        str, typer.Option(help="A neighbour: replace-one or add-remove.", metavar="WORD")
    ] = "replace-one",
    max_rows_per_person: Annotated[
        int, typer.Option(help="The budget is for all rows of a person, at most so many.", metavar="N")
    ] = 1,
    part: Annotated[
        list[str] | None,
        typer.Option(help="A disjoint part of the data set; may be repeated.", metavar="NAME"),
    ] = None,
) -> None:
    """Declare the budget of a data set; the ledger is made when there is none."""
    from dplangevin.ledger import Ledger

    Ledger.open(url).dataset(
        dataset,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        max_rows_per_person=max_rows_per_person,
        parts=part or (),
    )
    typer.echo(f"{dataset}: epsilon = {epsilon:g}, delta = {delta:g} ({adjacency})")


@app.command("show")
def show(url: Url, dataset: SomeName = None, as_json: AsJson = False) -> None:
    """What each data set has spent, and what would still fit."""
    from dataclasses import asdict

    from dplangevin.ledger import Ledger

    ledger = Ledger.open(url, create=False)
    left = {name: _known(ledger, name).remaining() for name in _names(ledger, dataset)}
    if as_json:
        typer.echo(_text({name: asdict(each) for name, each in left.items()}))
        return
    if not left:
        typer.echo("no data set yet; declare one with `dplangevin ledger init`")
    for name, each in left.items():
        typer.echo(
            f"{name}: budget epsilon = {each.epsilon:g}, delta = {each.delta:g} ({each.adjacency}); "
            f"spent epsilon = {each.spent_epsilon:.6g} in {each.entries} releases; would fit: {each.would_fit()}"
        )


@app.command("history")
def history(url: Url, dataset: Name, as_json: AsJson = False) -> None:
    """Every charge of a data set, in order."""
    from dplangevin.ledger import Ledger

    entries = _known(Ledger.open(url, create=False), dataset).history()
    if as_json:
        typer.echo(_text([entry.to_dict() for entry in entries]))
        return
    costs: dict[Any, float] = {}
    for entry in entries:
        guarantee = entry.guarantee
        delta = guarantee.at_delta or 0.0
        if guarantee not in costs:  # searches repeat the same promise many times
            costs[guarantee] = guarantee.epsilon(delta)
        where = f" [{entry.part}]" if entry.part else ""
        paid = f"release {entry.release_hash[:12]}" if entry.release_hash else "no release came back"
        typer.echo(
            f"{entry.sequence} {entry.created}{where} epsilon = {costs[guarantee]:.6g} at delta = {delta:g}, "
            f"{entry.plan.get('mechanism', '?')}, {guarantee.theorem}, {paid}: {entry.label or 'no label'}"
        )


@app.command("export")
def export(
    url: Url,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here.", metavar="FILE", show_default="stdout")
    ] = None,
) -> None:
    """The whole ledger as JSON, every entry with its guarantee and plan."""
    from dplangevin.cli import _outputs
    from dplangevin.ledger import Ledger

    _outputs.ready({"--output": output}, ledger=url)
    text = _text(Ledger.open(url, create=False).export())
    if output is None:
        typer.echo(text)
    else:
        output.write_text(text + "\n", encoding="utf-8")
        typer.echo(f"wrote {output}", err=True)


def _names(ledger: Any, wanted: str | None) -> tuple[str, ...]:
    return (wanted,) if wanted is not None else ledger.names()


def _known(ledger: Any, name: str) -> Any:
    """The budget of a data set that is there: looking never declares."""
    if name not in ledger.names():
        raise InvalidParameter(
            f"the ledger has no data set {name!r}; it has: {', '.join(ledger.names()) or 'none'}."
        )
    return ledger.dataset(name)


def _text(plain: Any) -> str:
    """JSON; the one number that JSON lacks, an infinite cost, is the word "inf"."""
    return json.dumps(_finite(plain), indent=2, allow_nan=False)


def _finite(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {name: _finite(value) for name, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [_finite(item) for item in plain]
    return "inf" if plain == float("inf") else plain
