"""Groups of options: a command takes a group as one parameter, and the command line shows the group's options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:
    from dplangevin.tables import Dialect

SchemaFile = Annotated[Path | None, typer.Option("--schema", help="Public schema, .json or .toml.")]
DataNorm = Annotated[
    float | None, typer.Option("--data-norm", help="Stated bound on a row, without a schema.")
]
TargetBounds = Annotated[
    str | None, typer.Option("--target-bounds", help="LOW,HIGH of a regression target, without a schema.")
]
Classes = Annotated[
    str | None, typer.Option("--classes", help="Public set of labels, a,b; default: the schema's target.")
]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="Separator of a text file; default: comma, tab for .tsv.")
]
Decimal = Annotated[
    str | None, typer.Option("--decimal", help="The mark in 3,14 in a text file: . or , (default: a point).")
]
RandomState = Annotated[
    int | None, typer.Option("--random-state", help="Seed of the noise; marks the release as seeded.")
]
GUARANTEE_PANEL, OUTPUT_PANEL = "The guarantee", "Output"
Target = Annotated[str, typer.Option("--target", help="Column to predict.")]
Epsilon = Annotated[
    float,
    typer.Option("--epsilon", help="The epsilon to meet.", rich_help_panel=GUARANTEE_PANEL, metavar="X"),
]
Delta = Annotated[
    float,
    typer.Option(
        "--delta",
        help="The delta to meet; 0 for a pure guarantee.",
        rich_help_panel=GUARANTEE_PANEL,
        metavar="X",
    ),
]
Adjacency = Annotated[
    str,
    typer.Option(
        "--adjacency",
        help="A neighbour: replace-one or add-remove.",
        rich_help_panel=GUARANTEE_PANEL,
        metavar="WORD",
    ),
]
RowsPerPerson = Annotated[
    int,
    typer.Option(
        "--max-rows-per-person",
        help="The guarantee covers all rows of a person who owns at most N.",
        rich_help_panel=GUARANTEE_PANEL,
        metavar="N",
    ),
]
Secure = Annotated[
    bool | None,
    typer.Option(
        "--secure/--no-secure",
        help="Exact sums and noise or refused / floating point. Default: exact wherever it is proved.",
        rich_help_panel=GUARANTEE_PANEL,
    ),
]
Tier = Annotated[str, typer.Option("--tier", help="auto, exact, pure, certified or process.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT_PANEL)]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the result.", rich_help_panel=OUTPUT_PANEL)
]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", help="Also write a report, .html, .md or .json.", rich_help_panel=OUTPUT_PANEL),
]
SignKey = Annotated[
    Path | None,
    typer.Option(
        "--sign", help="Private key to sign the file (and the report) with.", rich_help_panel=OUTPUT_PANEL
    ),
]


@dataclass(frozen=True, kw_only=True)
class PublicTableOptions:
    """Options that state what is public about a table, and how its file is read."""

    schema: SchemaFile = None
    data_norm: DataNorm = None
    target_bounds: TargetBounds = None
    classes: Classes = None
    delimiter: Delimiter = None
    decimal: Decimal = None

    @property
    def dialect(self) -> Dialect | None:
        """The dialect of text files; None lets the file's suffix decide."""
        from dplangevin.cli._io import text_dialect

        return text_dialect(self.delimiter, self.decimal)

    @property
    def parsed_target_bounds(self) -> tuple[float, float] | None:
        """Lower and upper bound of --target-bounds."""
        if self.target_bounds is None:
            return None
        try:
            low, high = (float(part) for part in self.target_bounds.split(","))
        except ValueError:
            raise InvalidParameter(f"--target-bounds must be LOW,HIGH, got {self.target_bounds!r}.") from None
        return low, high

    def target_options(self, schema: Any, *, classifier: bool) -> dict[str, Any]:
        """Return the options of an estimator that describe its target: a range, or the classes."""
        from dplangevin.cli import _io

        options: dict[str, Any] = (
            {} if self.parsed_target_bounds is None else {"target_bounds": self.parsed_target_bounds}
        )
        if classifier:
            options["classes"] = _io.resolve_classes(schema, _io.parse_labels(self.classes))
        return options


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """Options that name the budget to charge: a data set in a ledger."""

    ledger: Annotated[str | None, typer.Option("--ledger", help="URL of the budget ledger.")] = None
    dataset: Annotated[str | None, typer.Option("--dataset", help="Name of the data set in the ledger.")] = (
        None
    )

    def open_budget(self, label: str = "") -> Any:
        """Return the data set in the ledger, or None."""
        if self.ledger is None and self.dataset is None:
            return None
        if self.ledger is None or self.dataset is None:
            raise InvalidParameter("--ledger and --dataset go together.")
        from dplangevin.ledger import Ledger

        return Ledger.open(self.ledger).dataset(self.dataset, label=label)


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(BudgetOptions):
    """Options of a release: the budget to charge, the seed of its noise, and its checkpoint."""

    random_state: RandomState = None
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            help="Private file from which the same command resumes after a crash; charged once.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class OutputFormat:
    """Options that say how the result is printed."""

    as_json: AsJson = False
    quiet: Quiet = False


def expand_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command as the command line calls it: with the options of its groups instead of the groups."""
    parameters = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: one.annotation for name, one in parameters.items() if is_dataclass(one.annotation)
    }

    def expanded_parameters() -> Iterator[inspect.Parameter]:
        for name, one in parameters.items():
            group = groups.get(name)
            yield from (
                (one,) if group is None else inspect.signature(group, eval_str=True).parameters.values()
            )

    @wraps(command)
    def wrapper(**arguments: Any) -> None:
        groups_built = {
            name: kind(**{each: arguments.pop(each) for each in _field_names(kind)})
            for name, kind in groups.items()
        }
        command(**arguments, **groups_built)

    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in expanded_parameters()]
    )
    return wrapper


def _field_names(kind: Any) -> list[str]:
    return list(inspect.signature(kind).parameters)
