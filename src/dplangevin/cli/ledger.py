"""`dplangevin ledger`: declare the budget of a data set, and see what is left."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin.cli.groups import grouped

app = typer.Typer(
    name="ledger",
    help="The privacy budgets of data sets: declare one, and see what is left.",
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


Epsilon = Annotated[float | None, typer.Option(help="Budget of all releases together.", metavar="X")]
Delta = Annotated[float | None, typer.Option(help="0 admits pure promises only.", metavar="X")]
Adjacency = Annotated[
    str | None,
    typer.Option(help="A neighbour: replace-one or add-remove.", metavar="WORD", show_default="replace-one"),
]
Rows = Annotated[
    int | None,
    typer.Option(
        help="The budget is for all rows of a person, at most so many.", metavar="N", show_default="1"
    ),
]
Strict = Annotated[
    bool | None,
    typer.Option(
        "--strict/--not-strict",
        help="Refuse promises and errors that depend on the data.",
        show_default="not",
    ),
]
Parts = Annotated[
    list[str] | None,
    typer.Option("--part", help="A disjoint part of the data set; may be repeated.", metavar="NAME"),
]
Expects = Annotated[
    str | None,
    typer.Option(
        help="What will be released: fits, counts or mixed; it fixes how the budget is split.",
        metavar="WORD",
        show_default="mixed",
    ),
]
Heads = Annotated[
    list[str] | None,
    typer.Argument(help="Heads, or model files and JSON reports that carry one.", metavar="HEAD_OR_FILE..."),
]
Expected = Annotated[
    list[str] | None,
    typer.Option("--expect", help="A head, or a file that carries one.", metavar="HEAD_OR_FILE"),
]


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The budget of a data set."""

    epsilon: Epsilon = None
    delta: Delta = None
    adjacency: Adjacency = None
    max_rows_per_person: Rows = None
    strict: Strict = None
    expects: Expects = None
    part: Parts = None


@app.command("init")
@grouped
def init(url: Url, *, dataset: SomeName = None, budget: Declared) -> None:
    """Create a ledger, once, and perhaps declare its first data set; who creates it is its owner."""
    from dplangevin.ledger import Ledger

    ledger = Ledger.create(url)
    typer.echo(f"created {ledger.shown}")
    if dataset is not None:
        _declare(ledger, dataset, budget)


@app.command("declare")
@grouped
def declare(url: Url, *, dataset: Name, budget: Declared) -> None:
    """Declare the budget of a data set, or more parts of it, as the owner."""
    from dplangevin.ledger import Ledger

    _declare(Ledger.open(url), dataset, budget)


def _declare(ledger: Any, name: str, stated: Declared) -> None:
    given = asdict(stated)
    budget = ledger.declare(name, parts=given.pop("part") or (), **given)
    left = budget.remaining()
    typer.echo(f"{budget.name}: epsilon = {left.epsilon:g}, delta = {left.delta:g} ({left.adjacency})")


@app.command("show")
def show(url: Url, dataset: SomeName = None, as_json: AsJson = False) -> None:
    """The budget of each data set, how many releases were charged to it, and what would still fit."""
    from dplangevin.ledger import Ledger

    ledger = Ledger.open(url)
    left = {name: ledger.dataset(name).remaining() for name in _names(ledger, dataset)}
    if as_json:
        typer.echo(_text({name: asdict(each) for name, each in left.items()}))
        return
    if not left:
        typer.echo("no data set yet; declare one with `dplangevin ledger declare`")
    for name, each in left.items():
        typer.echo(
            f"{name}: budget epsilon = {each.epsilon:g}, delta = {each.delta:g} ({each.adjacency}), "
            f"{each.entries} releases charged; would fit: {each.would_fit()}"
            + (f" ({each.rule()})" if each.rule() else "")
        )


@app.command("history")
def history(url: Url, dataset: Name, as_json: AsJson = False) -> None:
    """Every charge of a data set, in order."""
    from dplangevin.ledger import Ledger

    entries = Ledger.open(url).dataset(dataset).history()
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
    from dplangevin import _files
    from dplangevin.cli import _outputs
    from dplangevin.ledger import Ledger

    _outputs.ready({"--output": output}, ledger=url)
    text = _text(Ledger.open(url).export())
    if output is None:
        typer.echo(text)
    else:
        _files.write_text(output, text + "\n")
        typer.echo(f"wrote {output}", err=True)


@app.command("head")
def head(url: Url, dataset: SomeName = None, as_json: AsJson = False) -> None:
    """The head of each data set's chain: keep it elsewhere, and `verify` notices an older ledger."""
    from dplangevin.ledger import Ledger

    ledger = Ledger.open(url)
    heads = ledger.heads() if dataset is None else {dataset: ledger.dataset(dataset).head()}
    if as_json:
        typer.echo(_text(heads))
        return
    for name, text in heads.items():
        typer.echo(f"{text} {name}")


@app.command("verify")
def verify(
    url: Url,
    heads: Heads = None,
    head: Annotated[
        list[str] | None, typer.Option("--head", help="The same; may be repeated.", metavar="HEAD_OR_FILE")
    ] = None,
) -> None:
    """Check every entry, and that the ledger is no older than these heads or the files that carry them."""
    from dplangevin.ledger import Ledger

    given = [*(heads or ()), *(head or ())]
    now = Ledger.open(url).verify(*_heads(given))
    typer.echo(f"every entry of {len(now)} data sets is in its place; {len(given)} heads are held")


@app.command("upgrade")
def upgrade(url: Url) -> None:
    """Bring a ledger of an older version to the present one, as the owner; every charge is kept."""
    from dplangevin.ledger import Ledger

    typer.echo(Ledger.upgrade(url))


@app.command("backup")
def backup(url: Url, output: Annotated[Path, typer.Argument(help="A new file.", metavar="FILE")]) -> None:
    """A consistent copy of an SQLite ledger while others spend (PostgreSQL: pg_dump)."""
    from dplangevin.ledger import Ledger

    ledger = Ledger.open(url)
    typer.echo(f"wrote {ledger.backup(output)}")


@app.command("restore")
def restore(
    url: Url,
    source: Annotated[Path, typer.Argument(help="A backup.", metavar="FILE")],
    expect: Expected = None,
) -> None:
    """Put a backup where no ledger is; what was charged after it must be entered again."""
    from dplangevin.ledger import Ledger

    ledger = Ledger.restore(url, source, expect=_heads(expect))
    typer.echo(
        f"restored {ledger.shown}; charges after the backup are forgotten: see `dplangevin ledger enter`"
    )


@app.command("pending")
def pending(url: Url) -> None:
    """Deliver or report what interrupted commands of this user left of the ledger: nothing is charged."""
    from dplangevin.cli import _outputs
    from dplangevin.ledger import Ledger
    from dplangevin.privacy.settlement import settle

    ledger = Ledger.open(url)
    settle(ledger.shown, ledger.dataset, _outputs.note, everything=True)


@app.command("accept-restore")
def accept_restore(url: Url) -> None:
    """Accept a ledger that lacks entries you have seen, as its owner: what they charged is forgotten."""
    from dplangevin.ledger import Ledger

    for name, words in Ledger.open(url).accept_restore().items():
        typer.echo(f"forgotten of {name}: {words}")
    typer.echo(
        "accepted, and written into the ledger. Releases whose entries are lost still exist and still count: enter "
        "their model files with `dplangevin ledger enter`."
    )


@app.command("enter")
def enter(
    url: Url,
    dataset: Name,
    file: Annotated[Path, typer.Argument(help="A model file.", metavar="FILE")],
    label: Annotated[str, typer.Option(help="Who and what.", metavar="WORDS")] = "entered afterwards",
) -> None:
    """Enter the release of a model file that the ledger has forgotten, whether or not it still fits."""
    from dplangevin.ledger import Ledger, entered_file

    guarantee, digest, lost = entered_file(file)
    budget = Ledger.open(url).dataset(dataset, label=label)
    budget.enter(guarantee, digest, lost_head=lost)
    typer.echo(f"entered {file} in {budget.name}: {budget.head()}")


@app.command("grant")
def grant(
    url: Url,
    role: Annotated[str, typer.Option(help="A role of the PostgreSQL server.", metavar="NAME")],
    may: Annotated[str, typer.Option("--as", help="spender, reader or nothing.", metavar="WORD")],
) -> None:
    """Let another role of a PostgreSQL server spend or read, as the owner."""
    from dplangevin.ledger import Ledger

    Ledger.open(url).grant(role, may)
    typer.echo(f"{role}: {may}")


def _heads(given: list[str] | None) -> list[str]:
    """Heads as they are, files by the head they carry."""
    from dplangevin.ledger import head_in

    return [head_in(Path(each)) if Path(each).is_file() else each for each in given or ()]


def _names(ledger: Any, wanted: str | None) -> tuple[str, ...]:
    return (wanted,) if wanted is not None else ledger.names()


def _text(plain: Any) -> str:
    """JSON; the one number that JSON lacks, an infinite cost, is the word "inf"."""
    return json.dumps(_finite(plain), indent=2, allow_nan=False)


def _finite(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {name: _finite(value) for name, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [_finite(item) for item in plain]
    return "inf" if plain == float("inf") else plain
