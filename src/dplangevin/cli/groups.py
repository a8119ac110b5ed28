"""Options that go together: a command takes a group as one parameter, and its users see the options of the group."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin.errors import InvalidParameter

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
Separator = Annotated[
    str | None, typer.Option("--separator", help="Separator of a text file; default: comma, tab for .tsv.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the noise; marks the release as seeded.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but what was asked.")]


@dataclass(frozen=True, kw_only=True)
class StatedTable:
    """What is public about a table, and how its file is read."""

    schema: SchemaFile = None
    data_norm: DataNorm = None
    target_bounds: TargetBounds = None
    classes: Classes = None
    separator: Separator = None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """--target-bounds as two numbers."""
        if self.target_bounds is None:
            return None
        try:
            low, high = (float(part) for part in self.target_bounds.split(","))
        except ValueError:
            raise InvalidParameter(f"--target-bounds must be LOW,HIGH, got {self.target_bounds!r}.") from None
        return low, high

    def of_target(self, stated: Any, *, classifier: bool) -> dict[str, Any]:
        """The options of an estimator that say what its target is: a range, or the classes."""
        from dplangevin.cli import _tables

        options: dict[str, Any] = {} if self.bounds is None else {"target_bounds": self.bounds}
        if classifier:
            options["classes"] = _tables.stated_classes(stated, _tables.labels(self.classes))
        return options


@dataclass(frozen=True, kw_only=True)
class Payer:
    """Who pays: a data set in a ledger."""

    ledger: Annotated[str | None, typer.Option("--ledger", help="URL of the budget ledger.")] = None
    dataset: Annotated[str | None, typer.Option("--dataset", help="Name of the data set in the ledger.")] = (
        None
    )

    def budget(self, label: str = "") -> Any:
        """The data set in the ledger, or None."""
        if self.ledger is None and self.dataset is None:
            return None
        if self.ledger is None or self.dataset is None:
            raise InvalidParameter("--ledger and --dataset go together.")
        from dplangevin.ledger import Ledger

        return Ledger.open(self.ledger).dataset(self.dataset, label=label)


@dataclass(frozen=True, kw_only=True)
class Spending(Payer):
    """Who pays for a release, its noise, and where it goes on after a crash."""

    seed: Seed = None
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", help="Private file from which the same command goes on after a crash, charged once."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Shown:
    """How the answer is printed."""

    as_json: AsJson = False
    quiet: Quiet = False


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as the command line sees it: options instead of groups."""
    own = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: one.annotation for name, one in own.items() if is_dataclass(one.annotation)
    }

    def options() -> Iterator[inspect.Parameter]:
        for name, one in own.items():
            inside = groups.get(name)
            yield from (
                (one,) if inside is None else inspect.signature(inside, eval_str=True).parameters.values()
            )

    @wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: kind(**{each: given.pop(each) for each in _fields(kind)}) for name, kind in groups.items()
        }
        command(**given, **made)

    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in options()]
    )
    return called


def _fields(kind: Any) -> list[str]:
    return list(inspect.signature(kind).parameters)
