"""`dplangevin count`: noisy counts of a table on disk."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplangevin import _check
from dplangevin.cli import _outputs, options as o
from dplangevin.cli.groups import Shown, Spending, grouped
from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:
    from dplangevin.families.noisy_answers.generalized_gaussian_mechanism import GeneralizedGaussianMechanism
    from dplangevin.privacy.delivery import Delivery
    from dplangevin.queries import CountTable, Marginals
    from dplangevin.schema import Schema

_COUNTED, _RUN, _OUTPUT = "What is counted", "The run", "Output"


def _option(name: str, words: str, panel: str, metavar: str | None = None, *short: str) -> Any:
    return typer.Option(name, *short, help=words, rich_help_panel=panel, metavar=metavar, show_default=True)


Data = Annotated[
    Path, typer.Argument(help="A .parquet, .csv or .tsv file, or a quoted pattern.", metavar="DATA")
]
SchemaFile = Annotated[Path | None, _option("--schema", "The public schema, JSON or TOML.", _COUNTED, "FILE")]
Ways = Annotated[int, _option("--marginals", "All tables of so many columns; 0: none.", _COUNTED, "N")]
Columns = Annotated[
    list[str] | None, _option("--columns", "A table of these columns: a,b (repeat).", _COUNTED, "A,B")
]
Where = Annotated[
    list[str] | None, _option("--where", "Rows that satisfy a SQL predicate (repeat).", _COUNTED, "SQL")
]
Bins = Annotated[int, _option("--bins", "Intervals per numeric column.", _COUNTED, "N")]
Separator = Annotated[
    str | None, _option("--separator", "Of a text file; default: comma, tab for .tsv.", _COUNTED, "MARK")
]
Objective = Annotated[str, _option("--objective", "The error to make small: max or rmse.", _RUN, "WORD")]
RowsPerPerson = Annotated[
    int, _option("--max-rows-per-person", "Protect people who own so many rows.", _RUN, "N")
]
Secure = Annotated[bool, _option("--secure", "Exact noise, safe against attacks on floating point.", _RUN)]
Memory = Annotated[str, _option("--memory", "Memory for reading the table.", _RUN, "SIZE")]
Raw = Annotated[bool, _option("--raw", "No post-processing: may be negative or fractional.", _OUTPUT)]
Total = Annotated[float | None, _option("--total", "Public number of rows.", _OUTPUT, "N")]
Output = Annotated[
    Path | None, _option("--output", "Write .parquet, .csv or .json; default: print.", _OUTPUT, "FILE", "-o")
]


@grouped
def count(
    data: Data,
    epsilon: o.TargetEpsilon,
    delta: o.TargetDelta,
    *,
    schema: SchemaFile = None,
    marginals: Ways = 0,
    columns: Columns = None,
    where: Where = None,
    bins: Bins = 10,
    separator: Separator = None,
    adjacency: o.Adjacency = "replace-one",
    objective: Objective = "max",
    max_rows_per_person: RowsPerPerson = 1,
    secure: Secure = False,
    spending: Spending,
    memory: Memory = "1GB",
    raw: Raw = False,
    total: Total = None,
    output: Output = None,
    shown: Shown,
) -> None:
    """Counts with the least largest error: tables of the schema's columns, and rows that satisfy SQL predicates.

    The noise and its error are printed before the file is read; the promise is for the whole output.
    """
    from dplangevin.cli import _tables
    from dplangevin.queries import count_file
    from dplangevin.schema import Schema

    if not (marginals or columns or where):
        raise InvalidParameter("nothing to count: give --marginals, --columns or --where.")
    _check_output(output, data, schema, spending, total)
    known = Schema.load(schema) if schema is not None else None
    talk = not (shown.quiet or shown.as_json)
    with _outputs.delivering(spending) as delivery:
        found = count_file(
            data,
            schema=known,
            queries=where,
            marginals=_cells(known, marginals, columns, bins),
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            objective=objective,
            max_rows_per_person=max_rows_per_person,
            memory=memory,
            secure=secure,
            dialect=_tables.dialect(separator),
            random_state=spending.seed,
            ledger=spending.budget("dplangevin count"),
            state=spending.state,
            announce=_announce if talk else None,
            progress=_progress if talk and sys.stderr.isatty() else None,
        )
        _deliver(delivery, found if raw else found.postprocessed(total=total), output, as_json=shown.as_json)
    if talk:
        typer.echo(found.statement() + (f" Written to {output}." if output is not None else ""), err=True)


def _check_output(
    output: Path | None, data: Path, schema: Path | None, spending: Spending, total: float | None
) -> None:
    """Everything that is needed after the charge, before it."""
    if output is not None and output.suffix not in (".parquet", ".csv", ".json"):
        raise InvalidParameter(f"--output {str(output)!r} must end in .parquet, .csv or .json.")
    _outputs.ready(
        {"--output": output, "--state": spending.state}, reads=(data, schema), ledger=spending.ledger
    )
    if output is not None and output.suffix == ".parquet":
        from dplangevin.queries.optional import optional

        optional("pyarrow", "writing Parquet")
    if total is not None:
        _check.nonnegative("--total", total)


def _cells(schema: Schema | None, ways: int, columns: list[str] | None, bins: int) -> Marginals | None:
    from dplangevin.queries import Marginals

    if not ways and not columns:
        return None
    if schema is None:
        raise InvalidParameter("--marginals and --columns need --schema: cells must be public.")
    sets = [tuple(part.strip() for part in entry.split(",")) for entry in columns] if columns else None
    return Marginals.over(schema, ways=ways or 1, columns=sets, bins=bins)


def _deliver(delivery: Delivery, table: CountTable, output: Path | None, *, as_json: bool) -> None:
    def text() -> str:
        return json.dumps(table.to_dict(), allow_nan=False) + "\n"

    if output is None:
        _outputs.put_text(delivery, "the counts", None, text() if as_json else _lines(table))
    else:
        delivery.put("the counts", output, table.write, text)
    delivery.finish()
    if as_json and output is not None:
        short = {"mechanism": table.mechanism.to_dict(), "output": str(output)}
        typer.echo(json.dumps(short, allow_nan=False))


def _lines(table: CountTable) -> str:
    rows = zip(*table.columns().values(), strict=True)
    cells = (
        "\t".join(f"{value:.10g}" if isinstance(value, float) else str(value) for value in row)
        for row in rows
    )
    return "".join(f"{line}\n" for line in cells)


def _announce(mechanism: GeneralizedGaussianMechanism) -> None:
    typer.echo(f"About to read: {mechanism.describe()}", err=True)


def _progress(rows: int) -> None:
    typer.echo(f"\r{rows / 1e6:.1f} million rows read", err=True, nl=False)
