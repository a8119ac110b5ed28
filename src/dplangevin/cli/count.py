"""`dplangevin count` and `summarize`: private counts, means, sums and quantiles of a table on disk."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplangevin import _check
from dplangevin.cli import _io
from dplangevin.cli._io import (
    OUTPUT_PANEL,
    Adjacency,
    Decimal,
    Delimiter,
    Delta,
    Epsilon,
    OutputFormat,
    ReleaseOptions,
    RowsPerPerson,
    SchemaFile,
    Secure,
    expand_option_groups,
)
from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:
    from dplangevin.accounting.delivery import Delivery
    from dplangevin.mechanisms.noisy_answers.mechanism import GeneralizedGaussianMechanism
    from dplangevin.queries import Marginals
    from dplangevin.queries.count import WritableCounts
    from dplangevin.schema import Schema

_COUNTED_PANEL, _RUN_PANEL = "What is counted", "The run"


def _panel_option(name: str, help_text: str, panel: str, metavar: str | None = None, *short: str) -> Any:
    return typer.Option(
        name, *short, help=help_text, rich_help_panel=panel, metavar=metavar, show_default=True
    )


Data = Annotated[
    Path, typer.Argument(help="A .parquet, .csv or .tsv file, or a quoted pattern.", metavar="DATA")
]
MarginalWays = Annotated[
    int, _panel_option("--marginals", "All marginal tables of N columns; 0: none.", _COUNTED_PANEL, "N")
]
Columns = Annotated[
    list[str] | None,
    _panel_option("--columns", "A table of these columns: a,b (repeat).", _COUNTED_PANEL, "A,B"),
]
Where = Annotated[
    list[str] | None,
    _panel_option("--where", "Rows that satisfy a SQL predicate (repeat).", _COUNTED_PANEL, "SQL"),
]
Groups = Annotated[
    str | None,
    _panel_option(
        "--groups", "Common values of these columns, learned: a,b. Needs no schema.", _COUNTED_PANEL, "A,B"
    ),
]
Bins = Annotated[int, _panel_option("--bins", "Intervals per numeric column.", _COUNTED_PANEL, "N")]
Objective = Annotated[
    str, _panel_option("--objective", "The error to minimise: max or rmse.", _RUN_PANEL, "WORD")
]
Memory = Annotated[str, _panel_option("--memory", "Memory for reading the table.", _RUN_PANEL, "SIZE")]
Raw = Annotated[
    bool, _panel_option("--raw", "No post-processing: may be negative or fractional.", OUTPUT_PANEL)
]
Total = Annotated[float | None, _panel_option("--total", "Public number of rows.", OUTPUT_PANEL, "N")]
Output = Annotated[
    Path | None,
    _panel_option("--output", "Write .parquet, .csv or .json; default: print.", OUTPUT_PANEL, "FILE", "-o"),
]
RequiredSchema = Annotated[
    Path, _panel_option("--schema", "The public schema, JSON or TOML.", _COUNTED_PANEL, "FILE")
]
NumericColumns = Annotated[
    str | None, _panel_option("--columns", "Columns with a range: a,b. Default: all.", _COUNTED_PANEL, "A,B")
]
Statistics = Annotated[
    str, _panel_option("--statistics", "mean, sum, both, or '' for none.", _COUNTED_PANEL, "WORDS")
]
Quantiles = Annotated[
    str | None, _panel_option("--quantiles", "Probabilities: .25,.5,.75.", _COUNTED_PANEL, "Q,Q")
]
By = Annotated[
    str | None, _panel_option("--by", "Column of the schema that groups the rows.", _COUNTED_PANEL, "COLUMN")
]
SummaryOutput = Annotated[
    Path | None,
    _panel_option("--output", "Write .csv or .json; default: print.", OUTPUT_PANEL, "FILE", "-o"),
]


@expand_option_groups
def count_table(
    data: Data,
    epsilon: Epsilon,
    delta: Delta,
    *,
    schema: SchemaFile = None,
    marginals: MarginalWays = 0,
    columns: Columns = None,
    where: Where = None,
    groups: Groups = None,
    bins: Bins = 10,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    adjacency: Adjacency = "replace-one",
    objective: Objective = "max",
    max_rows_per_person: RowsPerPerson = 1,
    secure: Secure = None,
    release_options: ReleaseOptions,
    memory: Memory = "1GB",
    raw: Raw = False,
    total: Total = None,
    output: Output = None,
    output_format: OutputFormat,
) -> None:
    """Release counts with the smallest worst-case error: marginal tables, and rows that satisfy SQL predicates.

    The noise and its error are printed before the file is read; the guarantee covers the whole output. `--groups`
    counts the values of columns whose values nobody can list: those that are common enough are released.
    """
    from dplangevin.cli import _io
    from dplangevin.queries import CountTable, GroupCounts, count_file, count_learned_groups
    from dplangevin.schema import Schema

    if groups and (marginals or columns or where or schema or total is not None):
        raise InvalidParameter(
            "--groups is a release of its own, without a schema; leave --marginals, --columns, --where, --schema and "
            "--total to another command."
        )
    if not (marginals or columns or where or groups):
        raise InvalidParameter("nothing to count: give --marginals, --columns, --where or --groups.")
    _check_output(output, data, schema, release_options, total)
    loaded_schema = Schema.load(schema) if schema is not None else None
    is_verbose = not (output_format.quiet or output_format.as_json)
    counts: CountTable | GroupCounts
    with _io.deliver_results(release_options) as delivery:
        if groups:
            counts = count_learned_groups(
                data,
                _split_list(groups),
                epsilon=epsilon,
                delta=delta,
                adjacency=adjacency,  # type: ignore[arg-type]
                max_rows_per_person=max_rows_per_person,
                secure=secure,
                dialect=_io.text_dialect(delimiter, decimal),
                random_state=release_options.random_state,
                ledger=release_options.open_budget("dplangevin count"),
                checkpoint=release_options.checkpoint,
            )
        else:
            counts = count_file(
                data,
                schema=loaded_schema,
                queries=where,
                marginals=_build_marginals(loaded_schema, marginals, columns, bins),
                epsilon=epsilon,
                delta=delta,
                adjacency=adjacency,
                objective=objective,
                max_rows_per_person=max_rows_per_person,
                memory=memory,
                secure=secure,
                dialect=_io.text_dialect(delimiter, decimal),
                random_state=release_options.random_state,
                ledger=release_options.open_budget("dplangevin count"),
                checkpoint=release_options.checkpoint,
                announce=_announce_mechanism if is_verbose else None,
                progress=_print_progress if is_verbose and sys.stderr.isatty() else None,
            )
        _deliver_counts(
            delivery,
            counts.postprocess(total=total) if isinstance(counts, CountTable) and not raw else counts,
            output,
            as_json=output_format.as_json,
        )
    if is_verbose:
        typer.echo(
            counts.describe_error() + (f" Written to {output}." if output is not None else ""), err=True
        )


@expand_option_groups
def summarize_file(
    data: Data,
    epsilon: Epsilon,
    delta: Delta,
    *,
    schema: RequiredSchema,
    columns: NumericColumns = None,
    statistics: Statistics = "mean,sum",
    quantiles: Quantiles = None,
    by: By = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    adjacency: Adjacency = "replace-one",
    max_rows_per_person: RowsPerPerson = 1,
    secure: Secure = None,
    release_options: ReleaseOptions,
    output: SummaryOutput = None,
    output_format: OutputFormat,
) -> None:
    """Release means, sums and quantiles of columns with stated ranges, with intervals, under one guarantee.

    The noise is printed before the file is read; the guarantee covers the whole output.
    """
    from dplangevin.cli import _io
    from dplangevin.queries import summarize_table
    from dplangevin.schema import Schema

    _check_output(output, data, schema, release_options, None, (".csv", ".json"))
    loaded_schema = Schema.load(schema)
    is_verbose = not (output_format.quiet or output_format.as_json)
    with _io.deliver_results(release_options) as delivery:
        summary = summarize_table(
            data,
            loaded_schema,
            _split_list(columns) if columns else None,
            epsilon=epsilon,
            delta=delta,
            statistics=_split_list(statistics),
            quantiles=[_read_quantile(text) for text in _split_list(quantiles or "")],
            by=by,
            adjacency=adjacency,  # type: ignore[arg-type]
            max_rows_per_person=max_rows_per_person,
            secure=secure,
            dialect=_io.text_dialect(delimiter, decimal),
            random_state=release_options.random_state,
            ledger=release_options.open_budget("dplangevin summarize"),
            checkpoint=release_options.checkpoint,
            announce=_announce_mechanism if is_verbose else None,
            progress=_print_progress if is_verbose and sys.stderr.isatty() else None,
        )
        is_json = output.suffix == ".json" if output is not None else output_format.as_json
        text = summary.to_json() if is_json else summary.to_csv("," if output is not None else "\t")
        _io.deliver_text(delivery, "the summary", output, text)
        delivery.finish()
    if output_format.as_json and output is not None:
        short = {"mechanism": summary.mechanism.to_dict(), "output": str(output)}
        typer.echo(json.dumps(short, allow_nan=False))
    if is_verbose:
        typer.echo(
            summary.describe_error() + (f" Written to {output}." if output is not None else ""), err=True
        )


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _read_quantile(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidParameter(
            f"--quantiles must be numbers between 0 and 1, such as .25,.5,.75; got {text!r}."
        ) from None


def _check_output(
    output: Path | None,
    data: Path,
    schema: Path | None,
    release_options: ReleaseOptions,
    total: float | None,
    suffixes: tuple[str, ...] = (".parquet", ".csv", ".json"),
) -> None:
    """Check before the budget is charged what the command needs afterwards."""
    if output is not None and output.suffix not in suffixes:
        raise InvalidParameter(
            f"--output {str(output)!r} must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}."
        )
    _io.check_outputs(
        {"--output": output, "--checkpoint": release_options.checkpoint},
        reads=(data, schema),
        ledger=release_options.ledger,
    )
    if output is not None and output.suffix == ".parquet":
        from dplangevin.queries.row_queries import import_optional

        import_optional("pyarrow", "writing Parquet")
    if total is not None:
        _check.check_nonnegative("--total", total)


def _build_marginals(
    schema: Schema | None, ways: int, columns: list[str] | None, bins: int
) -> Marginals | None:
    from dplangevin.queries import Marginals

    if not ways and not columns:
        return None
    if schema is None:
        raise InvalidParameter("--marginals and --columns need --schema: cells must be public.")
    sets = [tuple(part.strip() for part in entry.split(",")) for entry in columns] if columns else None
    return Marginals.from_schema(schema, ways=ways or 1, columns=sets, bins=bins)


def _deliver_counts(delivery: Delivery, table: WritableCounts, output: Path | None, *, as_json: bool) -> None:
    def json_text() -> str:
        return json.dumps(table.to_dict(), allow_nan=False) + "\n"

    if output is None:
        _io.deliver_text(
            delivery, "the counts", None, json_text() if as_json else _tab_separated_lines(table)
        )
    else:
        delivery.add_result("the counts", output, table.write, json_text)
    delivery.finish()
    if as_json and output is not None:
        short = {"mechanism": table.metadata()["mechanism"], "output": str(output)}
        typer.echo(json.dumps(short, allow_nan=False))


def _tab_separated_lines(table: WritableCounts) -> str:
    rows = zip(*table.columns().values(), strict=True)
    cells = (
        "\t".join(f"{value:.10g}" if isinstance(value, float) else str(value) for value in row)
        for row in rows
    )
    return "".join(f"{line}\n" for line in cells)


def _announce_mechanism(mechanism: GeneralizedGaussianMechanism) -> None:
    typer.echo(f"About to read: {mechanism.describe()}", err=True)


def _print_progress(rows: int) -> None:
    typer.echo(f"\r{rows / 1e6:.1f} million rows read", err=True, nl=False)
