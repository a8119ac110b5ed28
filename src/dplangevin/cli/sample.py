"""`dplangevin sample`: one private draw of exp(-beta loss) from a table, with its guarantee."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin._progress import watching
from dplangevin.cli import models as m
from dplangevin.cli.groups import Shown, Spending, StatedTable, grouped
from dplangevin.errors import InvalidParameter

MODELS = ("logistic", "svc", "ridge", "huber", "quantile")


@grouped
def sample(
    data: Annotated[Path, typer.Argument(help="Table: .parquet, .feather, .csv or .tsv.")],
    target: Annotated[str, typer.Option("--target", help="Column to predict.")],
    radius: Annotated[float, typer.Option("--radius", help="Bound on the norm of the coefficients.")],
    epsilon: m.Epsilon,
    *,
    delta: Annotated[float, typer.Option("--delta", help="The delta to meet; 0 for a pure promise.")] = 0.0,
    model: Annotated[str, typer.Option("--model", help=", ".join(MODELS) + ".")] = "logistic",
    table: StatedTable,
    alpha: Annotated[float, typer.Option("--alpha", help="Ridge per sample.")] = 0.01,
    adjacency: m.Adjacency = "replace-one",
    tier: Annotated[str, typer.Option("--tier", help="auto, exact, pure, certified or process.")] = "auto",
    padding: Annotated[float, typer.Option("--padding", help="Seconds every run takes at least.")] = 0.0,
    max_seconds: Annotated[
        float, typer.Option("--max-seconds", help="Refuse longer runs up front.")
    ] = 3600.0,
    spending: Spending,
    shown: Shown,
) -> None:
    """Draw coefficients from exp(-beta loss) on a ball under (epsilon, delta), by the cheapest tier that meets it."""
    from dplangevin.cli import _outputs
    from dplangevin.data import ArrayDataset
    from dplangevin.families.draws.plan_sampler import plan_sampler
    from dplangevin.families.mechanism import run

    if model not in MODELS:
        raise InvalidParameter(f"--model must be one of {', '.join(MODELS)}; got {model!r}.")
    _outputs.ready({"--state": spending.state}, reads=(data, table.schema), ledger=spending.ledger)
    request = _request(
        model=model, epsilon=epsilon, delta=delta, adjacency=adjacency, radius=radius, alpha=alpha,
        data_norm=_norm(table.schema, table.data_norm),
    )  # fmt: skip
    features, labels = _records(data, target, model, table)
    problem = request(len(labels), features.shape[1], table.schema is None)
    found = plan_sampler(
        problem, epsilon, delta, tier, padding=padding, max_seconds=max_seconds, verbose=not shown.quiet  # type: ignore[arg-type]
    )  # fmt: skip
    records, spender = ArrayDataset(features, labels, problem), spending.budget()
    with _outputs.delivering(spending) as delivery:
        with watching(quiet=shown.quiet, log=True):
            release = run(found.plan, records, spending.seed, ledger=spender, state=spending.state)
        if shown.as_json:
            text = json.dumps(_plain(found, release, delta), indent=1, allow_nan=False)
        else:
            text = " ".join(f"{value:.6g}" for value in release.value)
        _outputs.put_text(delivery, "the draw", None, text + "\n")
        delivery.finish()


def _plain(found: Any, release: Any, delta: float) -> dict[str, Any]:
    from dplangevin.families.release import SEEDED

    promise = release.guarantee
    words = [*promise.assumptions, "the number of rows is public"]
    if release.seeded:
        words.append(SEEDED.replace("random_state", "--seed"))
    return {
        "theta": [float(value) for value in release.value],
        "epsilon": promise.epsilon(delta),
        "delta": delta,
        "tier": found.tier,
        "theorem": promise.theorem,
        "gradient_evaluations": found.gradient_evaluations,
        "expected_seconds": found.seconds,
        "excess_risk": found.excess_risk,
        "adjacency": promise.adjacency,
        "conditions": [condition.to_dict() for condition in promise.conditions],
        "assumptions": words,
    }


def _norm(schema: Path | None, data_norm: float | None) -> float:
    if (schema is None) == (data_norm is None):
        raise InvalidParameter("give exactly one of --schema and --data-norm: the stated bound on a row.")
    if data_norm is not None:
        return data_norm
    from dplangevin.schema import Schema

    assert schema is not None
    return Schema.load(schema).row_norm


def _request(**options: Any) -> Any:
    """The problem for n rows and p features, from public options."""

    def problem(n: int, n_features: int, intercept: bool) -> Any:
        from dplangevin.planner.request import Request

        request = Request(n=n, n_features=n_features, fit_intercept=intercept, **options)
        return request.problem(request.needed_clip, 0.0)

    return problem


def _records(path: Path, target: str, model: str, table: StatedTable) -> tuple[Any, Any]:
    """Features and labels as the problem sees them: classes as 0 and 1, numbers scaled to [-1, 1]."""
    import numpy as np

    from dplangevin.cli import _tables
    from dplangevin.estimators import SchemaEncoder
    from dplangevin.schema import Schema

    stated = None if table.schema is None else Schema.load(table.schema)
    listed = _listed(stated, _tables.labels(table.classes)) if model in m.CLASSIFIERS else None
    rows, values = _tables.target(_tables.read(path, table.separator), target)
    features = rows.matrix() if stated is None else SchemaEncoder(stated).transform(rows)
    if stated is None and not np.isfinite(features).all():
        raise InvalidParameter("without --schema every feature must be a finite number in every row.")
    if listed is not None:
        return features, (values.codes(listed[0], text=listed[1]) == 1).astype(float)
    low, high = table.bounds or _range(stated)
    numbers = np.where(np.isnan(values.numbers()), (low + high) / 2, values.numbers())
    return features, (np.clip(numbers, low, high) - (low + high) / 2) / ((high - low) / 2)


def _listed(stated: Any, classes: list[str] | None) -> tuple[dict[str, int], bool]:
    """The two labels in order, and whether they keep their characters."""
    import numpy as np

    from dplangevin.cli import _tables
    from dplangevin.tables import labels_of

    given = _tables.stated_classes(stated, classes)
    text = given is None and stated.target.text
    values = np.unique(np.asarray(stated.target.categories if given is None else given)).tolist()
    found = labels_of(values, text)
    if len(values) != 2 or len(found) != 2:
        raise InvalidParameter(f"--model needs two classes, got {len(found)}; recode the target to 0 and 1.")
    return found, text


def _range(stated: Any) -> tuple[float, float]:
    target = getattr(stated, "target", None)
    if getattr(target, "low", None) is None:
        raise InvalidParameter("a numeric target needs --target-bounds LOW,HIGH or a range in the schema.")
    assert target is not None
    return float(target.low), float(target.high)
