"""What commands share: groups of options, tables that are read, and files that are written."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplangevin import _check, _files
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.tables import CellColumn, Dialect, Table, TableFiles, TableQuery
from dplangevin.tables.lazy import copy_lazy_table, query_condition

if TYPE_CHECKING:
    from dplangevin.accounting.delivery import Delivery


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

        options: dict[str, Any] = (
            {} if self.parsed_target_bounds is None else {"target_bounds": self.parsed_target_bounds}
        )
        if classifier:
            options["classes"] = resolve_classes(schema, parse_labels(self.classes))
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


def text_dialect(delimiter: str | None, decimal: str | None = None) -> Dialect | None:
    """Return the dialect of text files with this delimiter; None lets the file's suffix decide."""
    if delimiter is None:
        if decimal is not None:
            raise InvalidParameter("--decimal needs --delimiter too, as in: --delimiter ';' --decimal ,")
        return None
    return Dialect(
        delimiter={"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter),
        decimal="." if decimal is None else decimal,
    )


def read_table(path: Path, dialect: Dialect | None = None) -> Table:
    """Open a Parquet, Arrow or text file as a table whose cells are not parsed yet."""
    try:
        return TableFiles(path, dialect).read_table()
    except DplangevinError:
        raise
    except Exception:  # the parser's own message would show values of the table
        raise InvalidParameter(f"{path} could not be read as a {path.suffix or 'CSV'} table.") from None


def open_query(url: str, sql: str, ledger: Any) -> TableFiles:
    """Open a query to a database; for a strict data set of the ledger it must be a stored table."""
    query = TableQuery(url, sql)
    if getattr(ledger, "strict", False) and query_condition(query) is not None:
        raise InvalidParameter(
            "this data set is strict: --sql must be the name of a stored table, since a statement or a view may mix "
            "records. Nothing was charged."
        )
    files = copy_lazy_table(query)
    assert isinstance(files, TableFiles)
    return files


def split_target(table: Table, name: str) -> tuple[Table, CellColumn]:
    """Return the table without its target column, and the target column."""
    if name not in table.names:
        raise InvalidParameter(
            f"there is no column {name!r}; the table has {_check.describe_columns(table.names)}."
        )
    return table.drop_columns(name), table.column(name)


def parse_labels(text: str | None) -> list[str] | None:
    """Parse the public set of labels, a,b,c."""
    if text is None:
        return None
    values = [part.strip() for part in text.split(",")]
    if len(values) < 2 or not all(values):
        raise InvalidParameter(f"--classes must be a list of labels such as no,yes; got {text!r}.")
    return values


def read_stated_schema(
    path: Path | None,
    learn: str | None,
    numeric_target: str | None,
    feature_names: Callable[[], Iterable[str]],
) -> Any:
    """Return the schema of --schema or of --learn a=number,b=category, or None.

    --learn also learns the range of `numeric_target`. `feature_names` returns the names of the table's columns
    without the target; an error message shows them.
    """
    from dplangevin.schema import Schema, load_schema

    if learn is None:
        return None if path is None else load_schema(path)
    if path is not None:
        raise InvalidParameter('--schema and --learn are both given; a schema file may itself say "learn".')
    kinds = {}
    for part in learn.split(","):
        name, equals, kind = part.partition("=")
        if not equals:
            raise InvalidParameter(
                f"--learn does not say what {part!r} is, number or category, and no type is guessed: fill in --learn "
                f"'{','.join(f'{name}=number|category' for name in feature_names())}', with the columns that "
                "are wanted."
            )
        if not name.strip() or name.strip() in kinds:
            raise InvalidParameter(f"--learn must be like age=number,job=category; got {learn!r}.")
        kinds[name.strip()] = kind.strip()
    target = None if numeric_target is None else {"name": numeric_target, "range": "learn"}
    return Schema.learn(kinds, target=target)


def resolve_classes(schema: Any, classes: list[str] | None) -> Any:
    """Return the stated labels of a classifier, or None where the schema's target lists them.

    Labels are never read from the table.
    """
    if classes is not None:
        return classes
    categories = getattr(getattr(schema, "target", None), "categories", None)
    if categories is None:
        raise InvalidParameter(
            "state the public set of labels with --classes a,b or as the target of --schema: reading it from the "
            "table would publish every label in it."
        )
    return None


@contextmanager
def hide_cell_errors(path: Path | None, schema: Any = None) -> Iterator[None]:
    """Replace errors of other libraries about the table's cells: their messages would show values of the table."""
    try:
        yield
    except DplangevinError:
        raise
    except (ValueError, TypeError, ArithmeticError, KeyError):
        target = "the target must hold one label or number in every row"
        if schema is None:
            target = f"without a schema every feature must be a finite number, and {target}"
        name = "" if path is None else f" {path}"
        raise InvalidParameter(f"the table{name} cannot be used: {target}.") from None


_SQLITE_PREFIX = "sqlite:///"
_PROBE_BYTES = bytes(2**16)  # a small model: a full disk is noticed before the charge
COMMAND_WORDS: ContextVar[Sequence[str]] = ContextVar("dplangevin_command", default=())
"""Arguments of the command line: the same arguments in the same folder are the same command."""


def check_outputs(
    path_by_flag: Mapping[str, Path | None],
    *,
    reads: Iterable[Path | None] = (),
    ledger: str | None = None,
    sign: Path | None = None,
) -> None:
    """Check that outputs (path by flag) can be written, are not also read by the command, and are distinct files.

    The signing key is checked as well.
    """
    used_paths = {
        _resolve_path(path): "a file that the command reads" for path in (*reads, sign) if path is not None
    }
    if sign is not None:
        from dplangevin.signing import Signer

        Signer(sign)
    if ledger is not None and ledger.startswith(_SQLITE_PREFIX):
        used_paths[_resolve_path(Path(ledger.removeprefix(_SQLITE_PREFIX)))] = "the ledger"
    for flag, path in path_by_flag.items():
        if path is None:
            continue
        if flag == "--report":
            from dplangevin.report.document import check_report_path

            check_report_path(path)  # the suffix
        resolved = _resolve_path(path)
        if resolved in used_paths:
            raise InvalidParameter(f"{flag} {str(path)!r} is {used_paths[resolved]}; choose another name.")
        used_paths[resolved] = f"the file of {flag}"
        if path.is_dir():
            raise InvalidParameter(f"{flag} {str(path)!r} is a directory; give the name of a file.")
        if not resolved.parent.is_dir():
            raise InvalidParameter(f"{flag}: the directory of {str(path)!r} does not exist; create it first.")
        if path.exists() and not os.access(path, os.W_OK):
            raise InvalidParameter(f"{flag} {str(path)!r} cannot be written: permission denied.")
        if path.is_file() or not path.exists():  # the file is written under another name, then renamed
            _check_writable(flag, resolved.parent)


def prepare_folder(flag: str, folder: Path | None) -> None:
    """Create a directory and check that files can be written in it."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameter(
            f"{flag}: the directory {str(folder)!r} cannot be created: {error.strerror}."
        ) from None
    _check_writable(flag, folder)


@contextmanager
def deliver_results(budget_options: BudgetOptions) -> Iterator[Delivery]:
    """Yield the delivery of a command's results, after pending results of earlier commands on the same ledger."""
    from dplangevin.accounting.delivery import Delivery, deliver_pending, fingerprint_command

    command_words = COMMAND_WORDS.get()
    fingerprint = fingerprint_command(command_words, os.getcwd())
    display_url = None
    if budget_options.ledger is not None and budget_options.dataset is not None:
        from dplangevin.ledger import Ledger

        ledger = Ledger.open(budget_options.ledger)
        display_url = ledger.display_url
        if deliver_pending(display_url, ledger.dataset, print_note, fingerprint=fingerprint):
            raise typer.Exit
    with Delivery(
        next(iter(command_words), "?"), fingerprint, display_url, budget_options.dataset, print_note
    ) as delivery:
        yield delivery


def print_note(message: str) -> None:
    """Print a note on a result that was already charged: even with --quiet, and never as an error."""
    with suppress(OSError):
        typer.echo(f"note: {message}", err=True)


def deliver_text(delivery: Delivery, name: str, output: Path | None, text: str) -> None:
    """Deliver a text to a file, or to standard output where no file is named."""
    delivery.add_result(name, output, lambda path: _files.write_text(path, text), lambda: text)


def _resolve_path(path: Path) -> Path:
    return path.expanduser().resolve()


def _check_writable(flag: str, folder: Path) -> None:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".dplangevin-") as file:
            file.write(_PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InvalidParameter(
            f"{flag}: nothing can be written in {str(folder)!r}: {error.strerror}."
        ) from None
