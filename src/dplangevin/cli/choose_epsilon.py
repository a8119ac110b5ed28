"""`dplangevin choose-epsilon`: which epsilon reaches a goal, by simulation; no private table is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin.errors import InvalidParameter

SHOWN = "Also draw the curve with its bands."


def choose_epsilon(
    n: Annotated[int, typer.Option("--n", help="Public number of rows.")],
    schema: Annotated[Path | None, typer.Option("--schema", help="Public schema, .json or .toml.")] = None,
    p: Annotated[int | None, typer.Option("--p", help="Number of columns, without a schema.")] = None,
    model: Annotated[str, typer.Option("--model", help="logistic or ridge.")] = "logistic",
    accuracy: Annotated[float | None, typer.Option("--accuracy", help="Goal: share of right labels.")] = None,
    log_loss: Annotated[float | None, typer.Option("--log-loss", help="Goal: mean log-loss.")] = None,
    excess: Annotated[
        float | None, typer.Option("--excess", help="Goal: loss above that of a fit without noise.")
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="The delta of the promise.")] = 1e-6,
    public: Annotated[
        Path | None, typer.Option("--public", help="Table of public rows to simulate on; NOT protected.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="Column to predict, with --public.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Simulated fits at each epsilon.")] = 6,
    plot: Annotated[Path | None, typer.Option("--plot", help=SHOWN, metavar="FILE.png|.svg")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """The smallest epsilon that reaches a goal on a generated twin of the schema, or on public rows."""
    from dplangevin.cli import _outputs, _tables
    from dplangevin.estimators.epsilon_choice import epsilon_for
    from dplangevin.schema import Schema

    _outputs.ready({"--plot": plot}, reads=(schema, public))
    rows: Any = None
    if public is not None:
        if target is None or schema is None:
            raise InvalidParameter("--public needs --target, the column to predict, and --schema.")
        features, labels = _tables.target(_tables.read(public), target)
        texts = labels.numbers() if model == "ridge" else labels.texts().astype(str)
        rows = (features, texts)
    found = epsilon_for(
        model, None if schema is None else Schema.load(schema), p=p, n=n, accuracy=accuracy, log_loss=log_loss,
        excess=excess, delta=delta, public_data=rows, seeds=seeds,
    )  # fmt: skip
    if plot is not None:
        found.plot(plot)
    if as_json:
        curve = [vars(point) for point in found.curve]
        plain = {"epsilon": found.epsilon, "best": found.best, "curve": curve, "twins": found.twins}
        typer.echo(json.dumps(plain, indent=1, default=str))
    else:
        typer.echo(str(found))
