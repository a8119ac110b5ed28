"""`dplangevin ledger`: declare the budget of a data set, and see what is left."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin.cli._io import AsJson, expand_option_groups

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
DatasetName = Annotated[str, typer.Option("--dataset", help="Name of the data set.", metavar="NAME")]
OptionalDatasetName = Annotated[
    str | None, typer.Option("--dataset", help="Only this data set.", metavar="NAME", show_default="all")
]


Epsilon = Annotated[float | None, typer.Option(help="Budget of all releases together.", metavar="X")]
Delta = Annotated[float | None, typer.Option(help="0 admits pure guarantees only.", metavar="X")]
Adjacency = Annotated[
    str | None,
    typer.Option(help="A neighbour: replace-one or add-remove.", metavar="WORD", show_default="replace-one"),
]
MaxRows = Annotated[
    int | None,
    typer.Option(help="The budget covers all rows of a person, at most N.", metavar="N", show_default="1"),
]
Strict = Annotated[
    bool | None,
    typer.Option(
        "--strict/--not-strict",
        help="Refuse guarantees and errors that depend on the data.",
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
        help="What will be released: fits, counts, schemas or mixed; this fixes how the budget is split.",
        metavar="WORD",
        show_default="mixed",
    ),
]
Heads = Annotated[
    list[str] | None,
    typer.Argument(help="Heads, or model files and JSON reports that carry one.", metavar="HEAD_OR_FILE..."),
]
ExpectedHeads = Annotated[
    list[str] | None,
    typer.Option("--expect", help="A head, or a file that carries one.", metavar="HEAD_OR_FILE"),
]


@dataclass(frozen=True, kw_only=True)
class DeclaredBudget:
    """Options that declare the budget of a data set."""

    epsilon: Epsilon = None
    delta: Delta = None
    adjacency: Adjacency = None
    max_rows_per_person: MaxRows = None
    strict: Strict = None
    expects: Expects = None
    part: Parts = None


@app.command("init")
@expand_option_groups
def init_ledger(url: Url, *, dataset: OptionalDatasetName = None, budget: DeclaredBudget) -> None:
    """Create a ledger and, with --dataset, declare its first data set; whoever creates it is its owner."""
    from dplangevin.ledger import Ledger

    ledger = Ledger.create(url)
    typer.echo(f"created {ledger.display_url}")
    if dataset is not None:
        _declare_and_print(ledger, dataset, budget)


@app.command("declare")
@expand_option_groups
def declare_dataset(url: Url, *, dataset: DatasetName, budget: DeclaredBudget) -> None:
    """Declare the budget of a data set, or further parts of it, as the owner."""
    from dplangevin.ledger import Ledger

    _declare_and_print(Ledger.open(url), dataset, budget)


def _declare_and_print(ledger: Any, name: str, declared: DeclaredBudget) -> None:
    options = asdict(declared)
    budget = ledger.declare(name, parts=options.pop("part") or (), **options)
    remaining = budget.remaining()
    typer.echo(
        f"{budget.name}: epsilon = {remaining.epsilon:g}, delta = {remaining.delta:g} ({remaining.adjacency})"
    )


@app.command("show")
def show_budgets(url: Url, dataset: OptionalDatasetName = None, as_json: AsJson = False) -> None:
    """Show the budget of each data set, how many releases were charged to it, and what would still fit."""
    from dplangevin.ledger import Ledger

    ledger = Ledger.open(url)
    remaining_by_name = {name: ledger.dataset(name).remaining() for name in _selected_names(ledger, dataset)}
    if as_json:
        typer.echo(ledger_to_json({name: asdict(each) for name, each in remaining_by_name.items()}))
        return
    if not remaining_by_name:
        typer.echo("no data set yet; declare one with `dplangevin ledger declare`")
    for name, each in remaining_by_name.items():
        typer.echo(
            f"{name}: budget epsilon = {each.epsilon:g}, delta = {each.delta:g} ({each.adjacency}), "
            f"{each.entries} releases charged; would fit: {each.fitting_text()}"
            + (f" ({each.exceptions_text()})" if each.exceptions_text() else "")
        )


@app.command("history")
def show_history(url: Url, dataset: DatasetName, as_json: AsJson = False) -> None:
    """List the charges of a data set, in order."""
    from dplangevin.ledger import Ledger

    entries = Ledger.open(url).dataset(dataset).history()
    if as_json:
        typer.echo(ledger_to_json([entry.to_dict() for entry in entries]))
        return
    costs: dict[Any, float] = {}
    for entry in entries:
        guarantee = entry.guarantee
        delta = guarantee.at_delta or 0.0
        if guarantee not in costs:  # model searches repeat the same guarantee many times
            costs[guarantee] = guarantee.epsilon(delta)
        part_text = f" [{entry.part}]" if entry.part else ""
        release_text = f"release {entry.release_hash[:12]}" if entry.release_hash else "no release came back"
        typer.echo(
            f"{entry.sequence} {entry.created}{part_text} epsilon = {costs[guarantee]:.6g} at delta = {delta:g}, "
            f"{entry.plan.get('mechanism', '?')}, {guarantee.theorem}, {release_text}: {entry.label or 'no label'}"
        )


@app.command("export")
def export_ledger(
    url: Url,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here.", metavar="FILE", show_default="stdout")
    ] = None,
) -> None:
    """Export the whole ledger as JSON, every entry with its guarantee and plan."""
    from dplangevin import _files
    from dplangevin.cli import _io
    from dplangevin.ledger import Ledger

    _io.check_outputs({"--output": output}, ledger=url)
    text = ledger_to_json(Ledger.open(url).export())
    if output is None:
        typer.echo(text)
    else:
        _files.write_text(output, text + "\n")
        typer.echo(f"wrote {output}", err=True)


@app.command("head")
def show_heads(url: Url, dataset: OptionalDatasetName = None, as_json: AsJson = False) -> None:
    """Show the head of each data set's hash chain; store it elsewhere, and `verify` detects an older ledger."""
    from dplangevin.ledger import Ledger

    ledger = Ledger.open(url)
    heads = ledger.heads() if dataset is None else {dataset: ledger.dataset(dataset).head()}
    if as_json:
        typer.echo(ledger_to_json(heads))
        return
    for name, text in heads.items():
        typer.echo(f"{text} {name}")


@app.command("verify")
def verify_ledger(
    url: Url,
    heads: Heads = None,
    head: Annotated[
        list[str] | None, typer.Option("--head", help="The same; may be repeated.", metavar="HEAD_OR_FILE")
    ] = None,
) -> None:
    """Check every entry, and that the ledger contains these heads (or those of the given files)."""
    from dplangevin.ledger import Ledger

    heads_given = [*(heads or ()), *(head or ())]
    now = Ledger.open(url).verify(*_read_heads(heads_given))
    typer.echo(f"every entry of {len(now)} data sets is in its place; {len(heads_given)} heads are held")


@app.command("upgrade")
def upgrade_ledger(url: Url) -> None:
    """Upgrade a ledger of an older version, as the owner; every charge is preserved."""
    from dplangevin.ledger import Ledger

    typer.echo(Ledger.upgrade(url))


@app.command("backup")
def backup_ledger(
    url: Url, output: Annotated[Path, typer.Argument(help="A new file.", metavar="FILE")]
) -> None:
    """Copy an SQLite ledger consistently, even while it is in use (PostgreSQL: pg_dump)."""
    from dplangevin.ledger import Ledger

    ledger = Ledger.open(url)
    typer.echo(f"wrote {ledger.backup(output)}")


@app.command("restore")
def restore_ledger(
    url: Url,
    source: Annotated[Path, typer.Argument(help="A backup.", metavar="FILE")],
    expect: ExpectedHeads = None,
) -> None:
    """Restore a backup where no ledger is; what was charged after it must be entered again."""
    from dplangevin.ledger import Ledger

    ledger = Ledger.restore(url, source, expect=_read_heads(expect))
    typer.echo(
        f"restored {ledger.display_url}; charges after the backup are forgotten: see `dplangevin ledger enter`"
    )


@app.command("pending")
def settle_pending_results(url: Url) -> None:
    """Deliver or report the results of interrupted commands of this user; nothing is charged."""
    from dplangevin.accounting.delivery import deliver_pending
    from dplangevin.cli import _io
    from dplangevin.ledger import Ledger

    ledger = Ledger.open(url)
    deliver_pending(ledger.display_url, ledger.dataset, _io.print_note, everything=True)


@app.command("accept-restore")
def accept_ledger_restore(url: Url) -> None:
    """Accept a ledger that lacks entries you have seen, as its owner: their charges are forgotten."""
    from dplangevin.ledger import Ledger

    for name, what_is_lost in Ledger.open(url).accept_restore().items():
        typer.echo(f"forgotten of {name}: {what_is_lost}")
    typer.echo(
        "accepted, and written into the ledger. Releases whose entries are lost still exist and still count: enter "
        "their model files with `dplangevin ledger enter`."
    )


@app.command("enter")
def enter_release(
    url: Url,
    dataset: DatasetName,
    file: Annotated[Path, typer.Argument(help="A model file.", metavar="FILE")],
    label: Annotated[
        str, typer.Option(help="Label of the entry: who released what.", metavar="TEXT")
    ] = "entered afterwards",
) -> None:
    """Enter the release of a model file that the ledger has forgotten, even if it exceeds the budget."""
    from dplangevin.ledger import Ledger, read_release_file

    guarantee, digest, lost_head = read_release_file(file)
    budget = Ledger.open(url).dataset(dataset, label=label)
    budget.enter_release(guarantee, digest, lost_head=lost_head)
    typer.echo(f"entered {file} in {budget.name}: {budget.head()}")


@app.command("grant")
def grant_role(
    url: Url,
    role: Annotated[str, typer.Option(help="A role of the PostgreSQL server.", metavar="NAME")],
    privilege: Annotated[str, typer.Option("--as", help="spender, reader or nothing.", metavar="WORD")],
) -> None:
    """Let another role of a PostgreSQL server spend or read, as the owner."""
    from dplangevin.ledger import Ledger

    Ledger.open(url).grant(role, privilege)
    typer.echo(f"{role}: {privilege}")


def _read_heads(heads_or_files: list[str] | None) -> list[str]:
    """Return the given heads, and for files the heads that they carry."""
    from dplangevin.ledger import read_head

    return [read_head(Path(each)) if Path(each).is_file() else each for each in heads_or_files or ()]


def _selected_names(ledger: Any, name: str | None) -> tuple[str, ...]:
    return (name,) if name is not None else ledger.dataset_names()


def ledger_to_json(plain: Any) -> str:
    """Return JSON text; an infinite cost, which JSON cannot express, becomes the string "inf"."""
    return json.dumps(_replace_infinity(plain), indent=2, allow_nan=False)


def _replace_infinity(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {name: _replace_infinity(value) for name, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [_replace_infinity(item) for item in plain]
    return "inf" if plain == float("inf") else plain
