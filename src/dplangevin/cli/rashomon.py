"""`dplangevin rashomon`: many equally good private models, and what they disagree on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from dplangevin.cli.groups import Shown, Spending, StatedTable, grouped
from dplangevin.cli.models import CLASSIFIERS, MODELS, Adjacency, Alpha, Epsilon, Model
from dplangevin.errors import InvalidParameter

PublicInputs = Annotated[
    Path | None,
    typer.Option("--public", help="PUBLIC inputs to compare the models on; default: from the schema."),
]
Group = Annotated[str | None, typer.Option("--group", help="Column of the public inputs for fairness gaps.")]
Thresholds = Annotated[
    list[float],
    typer.Option(
        "--threshold",
        help="psi: models within psi of the released (region) or best (sampler) objective; a region takes several.",
    ),
]
Models = Annotated[
    int | None, typer.Option("--models", help="How many models to draw; default 100 (region) or 10.")
]
Radius = Annotated[
    float | None,
    typer.Option("--radius", help="Bound on the norm of the coefficients; the sampler's routes need it."),
]
Route = Annotated[
    str | None,
    typer.Option(
        "--route", help="region (default for delta > 0), or the sampler's pure (default), ramp, trajectory."
    ),
]
Reference = Annotated[
    str, typer.Option("--reference", help="Region: as good as the released model, or as the best.")
]
Outer = Annotated[
    bool,
    typer.Option("--outer", help="Region: also bound what every model of the set says (at most 10 columns)."),
]
FlipShares = Annotated[
    list[float] | None,
    typer.Option(
        "--flip-share",
        help="Region: also bound the psi at which this share of the inputs is ambiguous (two classes).",
    ),
]
Confidence = Annotated[float, typer.Option("--confidence", help="Region: of all certified numbers.")]
Folder = Annotated[Path | None, typer.Option("--output", "-o", help="Directory for the model files.")]
OnlyPlan = Annotated[
    bool, typer.Option("--plan", help="Only say what would be done; the data is counted, not read.")
]


@grouped
def rashomon(
    data: Annotated[Path, typer.Argument(help="Private table, .csv or .parquet.")],
    target: Annotated[str, typer.Option("--target", help="Column to predict.")],
    threshold: Thresholds,
    epsilon: Epsilon,
    *,
    models: Models = None,
    radius: Radius = None,
    delta: Annotated[float, typer.Option("--delta", help="0 for a pure promise (sampler).")] = 0.0,
    model: Model = "logistic",
    table: StatedTable,
    adjacency: Adjacency = "replace-one",
    alpha: Alpha = None,
    route: Route = None,
    reference: Reference = "released",
    confidence: Confidence = 0.95,
    outer: Outer = False,
    flip_share: FlipShares = None,
    tier: Annotated[str, typer.Option("--tier", help="auto, exact, pure, certified or process.")] = "auto",
    public: PublicInputs = None,
    group: Group = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write .html, .md or .json.")] = None,
    output: Folder = None,
    plan: OnlyPlan = False,
    spending: Spending,
    shown: Shown,
) -> None:
    """Release the set of equally good models under one promise, and show whom they treat differently."""
    from dplangevin.cli import _good_models, _outputs, _tables

    _outputs.ready(
        {"--report": report, "--state": spending.state},
        reads=(data, table.schema, public),
        ledger=spending.ledger,
    )
    stated, template = _template(model, table, adjacency, alpha)
    chosen = _route(route, delta)
    options: dict[str, Any] = {
        "n_models": models, "epsilon": epsilon, "delta": delta, "random_state": spending.seed,
        "state": spending.state, "ledger": None if plan else spending.budget(),
    }  # fmt: skip
    more = {"confidence": confidence, "reference": reference, "outer": outer, "flip_shares": flip_share or ()}
    if chosen == "region":
        made = _region(template, threshold, radius, more | options)
    else:
        made = _sampler(template, threshold, radius, chosen, tier, options)
    features, labels = _tables.target(_tables.read(data, table.separator), target)
    if plan:
        _say_plan(made, threshold, radius, options, _sizes(features, stated, template))
        return
    inputs = _inputs(public, stated, target, group, table.separator)
    with _outputs.delivering(spending) as delivery:
        paths: dict[str, Any] = {"report": report, "output": output}
        wanted = _good_models.Wanted(inputs=inputs, **paths, **vars(shown), delivery=delivery)
        _go(made, features, labels, wanted)


def _go(made: Any, features: Any, labels: Any, wanted: Any) -> None:
    from dplangevin.cli import _good_models

    if hasattr(made, "thresholds"):
        _good_models.region(made, features, labels, wanted)
        return
    _rehearse(made, features, labels, wanted.inputs, wanted.output)
    _good_models.sampler(made, features, labels, wanted, _known)


def _say_plan(
    made: Any,
    thresholds: list[float],
    radius: float | None,
    options: dict[str, Any],
    sizes: tuple[int, int, int],
) -> None:
    """What would be done, and region or sampler at these sizes and this budget."""
    from dplangevin.rashomon import recommend

    n, columns, classes = sizes
    more = {"epsilon": options["epsilon"], "delta": options["delta"], "n_models": options["n_models"] or 10}
    more |= {"thresholds": thresholds, "radius": radius, "n_classes": classes}
    typer.echo(f"{made.plan(*sizes)}\n{recommend(made.estimator, n, columns, **more)}")


def _region(
    template: Any,
    thresholds: list[float],
    radius: float | None,
    options: dict[str, Any],
) -> Any:
    from dplangevin.rashomon import RashomonRegion

    bounded = template if radius is None else template.set_params(radius=radius)
    return RashomonRegion(bounded, thresholds=tuple(thresholds), **_stated(options, 100))


def _sampler(
    template: Any,
    thresholds: list[float],
    radius: float | None,
    route: str,
    tier: str,
    options: dict[str, Any],
) -> Any:
    from dplangevin.rashomon import RashomonSampler

    return RashomonSampler(
        template, threshold=_one(thresholds), radius=radius, route=route, tier=tier, **_stated(options, 10)
    )


def _stated(options: dict[str, Any], models: int) -> dict[str, Any]:
    return {"n_models": models, **{name: value for name, value in options.items() if value is not None}}


def _n_classes(estimator: Any) -> int:
    """How many labels are stated; 2 where none are, or for numbers."""
    stated = estimator.stated_targets() if hasattr(estimator, "classes") else None
    return 2 if stated is None else len(stated)


def _route(route: str | None, delta: float) -> str:
    """The region where it can promise anything, else the sampler."""
    known = ("region", "pure", "ramp", "trajectory")
    if route is None:
        return "region" if delta > 0 else "pure"
    if route not in known:
        raise InvalidParameter(f"--route must be one of {', '.join(known)}; got {route!r}.")
    return route


def _one(thresholds: list[float]) -> float:
    if len(thresholds) != 1:
        raise InvalidParameter("the sampler draws from one set: give one --threshold, or --route region.")
    return thresholds[0]


def _template(model: str, table: StatedTable, adjacency: str, alpha: float | None) -> tuple[Any, Any]:
    from dplangevin import estimators
    from dplangevin.schema import Schema

    if model not in MODELS:
        raise InvalidParameter(f"--model must be one of {', '.join(MODELS)}; got {model!r}.")
    stated = None if table.schema is None else Schema.load(table.schema)
    target = table.of_target(stated, classifier=model in CLASSIFIERS)
    made = getattr(estimators, MODELS[model])(
        data_norm=table.data_norm, schema=stated, adjacency=adjacency, alpha=alpha, **target
    )
    return stated, made


def _sizes(features: Any, schema: Any, estimator: Any) -> tuple[int, int, int]:
    """Rows, encoded columns, classes."""
    from dplangevin.estimators import SchemaEncoder

    names = features.names if schema is None else SchemaEncoder(schema).get_feature_names_out()
    return len(features), len(names), _n_classes(estimator)


def _inputs(
    public: Path | None, schema: Any, target: str, group: str | None, separator: str | None
) -> tuple[Any, Any, Any, str]:
    """Public rows, their labels and groups where known, and where they come from."""
    from dplangevin.cli import _tables
    from dplangevin.rashomon.inputs import schema_inputs
    from dplangevin.tables import table_of

    if public is None:
        if schema is None:
            raise InvalidParameter(
                "give --public FILE, public inputs to compare the models on, or a --schema to make some."
            )
        table = table_of(schema_inputs(schema))
        truth, words = None, "1000 rows drawn uniformly from the schema (no record of the data)"
    else:
        table, words = _tables.read(public, separator), f"the public file {public.name}"
        truth = table.column(target) if target in table.names else None
        table = table.without(target)
    if group is not None and group not in table.names:
        raise InvalidParameter(f"--group {group!r} is not a column of the public inputs.")
    groups = None if group is None else table.column(group).texts().astype(str)
    return (table.matrix() if schema is None else _frame(table, schema)), truth, groups, words


def _frame(table: Any, schema: Any) -> Any:
    """The public inputs as a DataFrame, each column as the schema reads it."""
    import pandas as pd

    from dplangevin.schema import CategoricalColumn

    schema.validate(table.names)
    columns: dict[str, Any] = {}
    for column in schema.columns:
        cells = table.column(column.name)
        listed = isinstance(column, CategoricalColumn)
        columns[column.name] = cells.texts(text=column.text) if listed else cells.numbers()
    return pd.DataFrame(columns)


def _known(truth: Any, sampler: Any) -> Any:
    """Labels of public rows as the models write them; one that is no class counts as the first."""
    import numpy as np

    from dplangevin.tables import labels_of

    if truth is None:
        return None
    if not hasattr(sampler, "classes_"):
        return truth.numbers()
    text = sampler.models_[0]._text()
    return sampler.classes_[np.maximum(truth.codes(labels_of(sampler.classes_.tolist(), text), text=text), 0)]


def _rehearse(
    sampler: Any, features: Any, labels: Any, inputs: tuple[Any, Any, Any, str], output: Path | None
) -> None:
    """The comparison on the public inputs with models of zeros: what cannot be shown is refused before it is paid."""
    import numpy as np

    from dplangevin.cli import _outputs
    from dplangevin.rashomon.multiplicity import Multiplicity
    from dplangevin.rashomon.template import Template

    template = Template(
        sampler.estimator, sampler.radius, sampler.threshold, ledger=sampler.ledger, owner=sampler
    )
    outline, encode = template.outline(features, labels)
    problem = template.problem(*outline.shape, encode.n_classes)
    size = problem.n_columns * problem.loss.score_dimension
    model: Any = template.model(np.zeros(size), problem, None, None)  # type: ignore[arg-type]
    public, truth, groups, _ = inputs
    holder = SimpleNamespace(models_=[model], **{k: v for k, v in vars(model).items() if k == "classes_"})
    Multiplicity.of([model, model], public, _known(truth, holder), groups=groups)
    _outputs.folder_ready("--output", output)
