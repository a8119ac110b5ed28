"""`dplangevin rashomon`: release many equally good private models, and report where they disagree."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplangevin import _files
from dplangevin._progress import progress
from dplangevin.cli._io import (
    Adjacency,
    Delta,
    Epsilon,
    OutputFormat,
    PublicTableOptions,
    ReleaseOptions,
    ReportFile,
    Target,
    Tier,
    expand_option_groups,
)
from dplangevin.cli.models import CLASSIFIERS, ESTIMATOR_BY_MODEL, Model
from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:
    from dplangevin.tables import Dialect


@dataclass(frozen=True, kw_only=True)
class RashomonOutputs:
    """Public inputs (rows, labels, groups, description of their source), and where results are written."""

    inputs: tuple[Any, Any, Any, str]
    report: Path | None
    output: Path | None
    as_json: bool
    quiet: bool
    delivery: Any


class StagePrinter:
    """Prints stages with the seconds since the start; the stages do not depend on the records."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._start = quiet, time.monotonic()

    def __call__(self, stage: str) -> None:
        if not self._quiet:
            typer.echo(f"[{time.monotonic() - self._start:5.1f} s] {stage}", err=True)


def run_region(region: Any, features: Any, labels: Any, outputs: RashomonOutputs) -> None:
    """Release a region, compare its points on the public inputs, and write the outputs."""
    from dplangevin.cli import _io
    from dplangevin.report.region import region_document

    print_stage = StagePrinter(outputs.quiet)
    rows, truth, groups, inputs_text = outputs.inputs
    region.set_params(public_inputs=rows, public_labels=truth, groups=groups)
    _io.prepare_folder("--output", outputs.output)
    print_stage(f"Releasing a centre, its curvature and one slack number for {len(rows):,} public inputs ...")
    _fit_with_progress(region, features, labels, outputs.quiet)
    print_stage(
        f"Released {region.release_.scales.size:,} certified points; comparing them on the public inputs ..."
    )
    table = region.multiplicity()
    _write_outputs(region, lambda: (region_document(region, table, inputs_text), table), outputs)


def run_sampler(
    sampler: Any,
    features: Any,
    labels: Any,
    outputs: RashomonOutputs,
    labels_as_classes: Callable[[Any, Any], Any],
) -> None:
    """Draw models, compare them on the public inputs, and write the outputs.

    `labels_as_classes(labels, sampler)` converts public labels to the classes of the models.
    """
    from dplangevin.mechanisms.rashomon.planning import format_duration
    from dplangevin.report.rashomon import rashomon_document

    print_stage = StagePrinter(outputs.quiet)
    sampler_plan = sampler.plan_for_records(features, labels)
    if (warning := sampler_plan.warning()) is not None:
        print_stage(warning)
    print_stage(
        f"{sampler_plan.describe_hit_bound()} Drawing takes about "
        f"{format_duration(sampler_plan.expected_seconds)} on this machine (estimate) ..."
    )
    _fit_with_progress(sampler, features, labels, outputs.quiet)
    print_stage("Drawn; comparing the models on the public inputs ...")
    rows, truth, groups, inputs_text = outputs.inputs
    multiplicity = sampler.multiplicity(rows, labels_as_classes(truth, sampler), groups=groups)
    _write_outputs(
        sampler, lambda: (rashomon_document(sampler, multiplicity, inputs_text), multiplicity), outputs
    )


def _fit_with_progress(estimator: Any, features: Any, labels: Any, quiet: bool) -> None:
    from dplangevin.rashomon import RashomonSampler

    with warnings.catch_warnings(), progress(quiet=quiet):
        if isinstance(estimator, RashomonSampler):  # its warning was printed with the plan
            warnings.filterwarnings("ignore", category=UserWarning)
        warnings.filterwarnings("default", message=".*holds the noise of this run")
        estimator.fit(features, labels)


def _write_outputs(
    estimator: Any, build_document: Callable[[], tuple[Any, Any]], outputs: RashomonOutputs
) -> None:
    """Write every requested output to disk before the delivery is recorded."""
    from dplangevin._plain import replace_infinities
    from dplangevin.cli import _io
    from dplangevin.report.document import write_document

    models, delivery = estimator.models_, outputs.delivery
    if outputs.output is not None:
        delivery.add_result(
            "the models",
            outputs.output,
            lambda path: _save_models(models, path),
            lambda: _models_to_text(models),
        )
    document, table = build_document()
    if outputs.report is not None:
        delivery.add_result(
            "the report", outputs.report, lambda path: write_document(document, path), document.to_markdown
        )
    text = ""
    if outputs.as_json:
        text = json.dumps(replace_infinities(document.plain), indent=1) + "\n"
    elif not outputs.quiet:
        text = f"{estimator.plan_}\n{table}\n"
    if text or (outputs.output is None and outputs.report is None):
        _io.deliver_text(delivery, "the comparison", None, text)
    delivery.finish()
    if outputs.report is not None and not outputs.quiet and not outputs.as_json:
        typer.echo(f"Wrote {outputs.report}.")


def _save_models(models: list[Any], folder: Path) -> None:
    """Save all models or none: the folder gets its name when the last one is written."""
    from dplangevin.estimators import model_file

    partial = folder.with_name(f"{folder.name}.part")
    partial.mkdir(parents=True)
    for i, model in enumerate(models):
        _files.write_text(partial / f"model_{i:04d}.json", model_file.model_to_json(model))
    os.replace(partial, folder)
    _files.sync_folder(folder.parent)


def _models_to_text(models: list[Any]) -> str:
    from dplangevin.estimators import model_file

    return "\n".join(map(model_file.model_to_json, models))


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
NModels = Annotated[
    int | None, typer.Option("--n-models", help="How many models to draw; default 100 (region) or 10.")
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
    typer.Option(
        "--outer", help="Region: also bound the predictions of every model in the set (at most 10 columns)."
    ),
]
FlipShares = Annotated[
    list[float] | None,
    typer.Option(
        "--flip-share",
        help="Region: also bound the psi at which this fraction of the inputs is ambiguous (two classes).",
    ),
]
Confidence = Annotated[
    float, typer.Option("--confidence", help="Region: confidence level of all certified numbers.")
]
Folder = Annotated[Path | None, typer.Option("--output", "-o", help="Directory for the model files.")]
OnlyPlan = Annotated[bool, typer.Option("--plan", help="Only print the plan; records are counted, not read.")]


@expand_option_groups
def rashomon_command(
    data: Annotated[Path, typer.Argument(help="Private table, .csv or .parquet.")],
    target: Target,
    threshold: Thresholds,
    epsilon: Epsilon,
    *,
    n_models: NModels = None,
    radius: Radius = None,
    delta: Delta = 0.0,
    model: Model = "logistic",
    table: PublicTableOptions,
    adjacency: Adjacency = "replace-one",
    alpha: Annotated[
        str | None, typer.Option("--alpha", help="Ridge per sample; auto (sampler): by its hit bound.")
    ] = None,
    route: Route = None,
    reference: Reference = "released",
    confidence: Confidence = 0.95,
    outer: Outer = False,
    flip_share: FlipShares = None,
    tier: Tier = "auto",
    public: PublicInputs = None,
    group: Group = None,
    report: ReportFile = None,
    output: Folder = None,
    plan: OnlyPlan = False,
    release_options: ReleaseOptions,
    output_format: OutputFormat,
) -> None:
    """Release the set of equally good models under one guarantee, and show whom they treat differently."""
    from dplangevin.cli import _io

    _io.check_outputs(
        {"--report": report, "--checkpoint": release_options.checkpoint},
        reads=(data, table.schema, public),
        ledger=release_options.ledger,
    )
    loaded_schema, estimator = _build_estimator(model, table, adjacency, alpha)
    chosen_route = _choose_route(route, delta)
    options: dict[str, Any] = {
        "n_models": n_models, "epsilon": epsilon, "delta": delta, "random_state": release_options.random_state,
        "checkpoint": release_options.checkpoint, "ledger": None if plan else release_options.open_budget(),
    }  # fmt: skip
    region_options = {
        "confidence": confidence,
        "reference": reference,
        "outer": outer,
        "flip_shares": flip_share or (),
    }
    if chosen_route == "region":
        rashomon_model = _build_region(estimator, threshold, radius, region_options | options)
    else:
        rashomon_model = _build_sampler(estimator, threshold, radius, chosen_route, tier, options)
    features, labels = _io.split_target(_io.read_table(data, table.dialect), target)
    if plan:
        _print_plan(
            rashomon_model, threshold, radius, options, _table_sizes(features, loaded_schema, estimator)
        )
        return
    inputs = _read_public_inputs(public, loaded_schema, target, group, table.dialect)
    with _io.deliver_results(release_options) as delivery:
        paths: dict[str, Any] = {"report": report, "output": output}
        outputs = RashomonOutputs(inputs=inputs, **paths, **vars(output_format), delivery=delivery)
        _run_route(rashomon_model, features, labels, outputs)


def _run_route(rashomon_model: Any, features: Any, labels: Any, outputs: Any) -> None:

    from dplangevin.rashomon import RashomonRegion

    if isinstance(rashomon_model, RashomonRegion):
        run_region(rashomon_model, features, labels, outputs)
        return
    _rehearse_comparison(rashomon_model, features, labels, outputs.inputs, outputs.output)
    run_sampler(rashomon_model, features, labels, outputs, _labels_as_classes)


def _print_plan(
    rashomon_model: Any,
    thresholds: list[float],
    radius: float | None,
    options: dict[str, Any],
    sizes: tuple[int, int, int],
) -> None:
    """Print the plan, and the recommended route (region or sampler) at these sizes and this budget."""
    from dplangevin.rashomon import recommend_route

    n, columns, classes = sizes
    more = {"epsilon": options["epsilon"], "delta": options["delta"], "n_models": options["n_models"] or 10}
    more |= {"thresholds": thresholds, "radius": radius, "n_classes": classes}
    typer.echo(
        f"{rashomon_model.plan(*sizes)}\n{recommend_route(rashomon_model.estimator, n, columns, **more)}"
    )


def _build_region(
    estimator: Any,
    thresholds: list[float],
    radius: float | None,
    options: dict[str, Any],
) -> Any:
    from dplangevin.rashomon import RashomonRegion

    bounded = estimator if radius is None else estimator.set_params(radius=radius)
    return RashomonRegion(bounded, thresholds=tuple(thresholds), **_stated_options(options, 100))


def _build_sampler(
    estimator: Any,
    thresholds: list[float],
    radius: float | None,
    route: str,
    tier: str,
    options: dict[str, Any],
) -> Any:
    from dplangevin.rashomon import RashomonSampler

    return RashomonSampler(
        estimator,
        thresholds=_single_threshold(thresholds),
        radius=radius,
        route=route,
        tier=tier,
        **_stated_options(options, 10),
    )


def _stated_options(options: dict[str, Any], default_n_models: int) -> dict[str, Any]:
    return {
        "n_models": default_n_models,
        **{name: value for name, value in options.items() if value is not None},
    }


def count_classes(estimator: Any) -> int:
    """Return the number of stated labels; 2 where none are stated, or for a numeric target."""
    stated = estimator.public_targets() if hasattr(estimator, "classes") else None
    return 2 if stated is None else len(stated)


def _choose_route(route: str | None, delta: float) -> str:
    """Return the route: by default the region where delta > 0, which it needs, else the pure sampler."""
    routes = ("region", "pure", "ramp", "trajectory")
    if route is None:
        return "region" if delta > 0 else "pure"
    if route not in routes:
        raise InvalidParameter(f"--route must be one of {', '.join(routes)}; got {route!r}.")
    return route


def _single_threshold(thresholds: list[float]) -> float:
    if len(thresholds) != 1:
        raise InvalidParameter("the sampler draws from one set: give one --threshold, or --route region.")
    return thresholds[0]


def _build_estimator(
    model: str, table: PublicTableOptions, adjacency: str, alpha: str | None
) -> tuple[Any, Any]:
    from dplangevin import estimators
    from dplangevin.schema import Schema

    if model not in ESTIMATOR_BY_MODEL:
        raise InvalidParameter(f"--model must be one of {', '.join(ESTIMATOR_BY_MODEL)}; got {model!r}.")
    schema = None if table.schema is None else Schema.load(table.schema)
    target = table.target_options(schema, classifier=model in CLASSIFIERS)
    estimator = getattr(estimators, ESTIMATOR_BY_MODEL[model])(
        data_norm=table.data_norm, schema=schema, adjacency=adjacency, alpha=_parse_alpha(alpha), **target
    )
    return schema, estimator


def _parse_alpha(text: str | None) -> float | str | None:
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InvalidParameter(f"--alpha must be a number or auto, got {text!r}.") from None


def _table_sizes(features: Any, schema: Any, estimator: Any) -> tuple[int, int, int]:
    """Return the numbers of rows, encoded columns and classes."""
    from dplangevin.estimators import SchemaEncoder

    names = features.names if schema is None else SchemaEncoder(schema).get_feature_names_out()
    return len(features), len(names), count_classes(estimator)


def _read_public_inputs(
    public: Path | None, schema: Any, target: str, group: str | None, dialect: Dialect | None
) -> tuple[Any, Any, Any, str]:
    """Return public rows, their labels and groups where known, and a description of their source."""
    from dplangevin.cli import _io
    from dplangevin.rashomon.region_request import schema_inputs
    from dplangevin.tables import as_table

    if public is None:
        if schema is None:
            raise InvalidParameter(
                "give --public FILE, public inputs to compare the models on, or a --schema to generate some."
            )
        table = as_table(schema_inputs(schema))
        truth, inputs_text = None, "1000 rows drawn uniformly from the schema (no record of the data)"
    else:
        table, inputs_text = _io.read_table(public, dialect), f"the public file {public.name}"
        truth = table.column(target) if target in table.names else None
        table = table.drop_columns(target)
    if group is not None and group not in table.names:
        raise InvalidParameter(f"--group {group!r} is not a column of the public inputs.")
    groups = None if group is None else table.column(group).texts().astype(str)
    return (table.to_matrix() if schema is None else _to_frame(table, schema)), truth, groups, inputs_text


def _to_frame(table: Any, schema: Any) -> Any:
    """Return the public inputs as a DataFrame, each column as the schema parses it."""
    import pandas as pd

    from dplangevin.schema import DateColumn, NumericColumn

    schema.validate(table.names)
    columns: dict[str, Any] = {}
    for column in schema.columns:
        cells = table.column(column.name)
        is_number = isinstance(column, NumericColumn)
        is_text = not isinstance(column, NumericColumn | DateColumn) and column.text
        columns[column.name] = cells.numbers() if is_number else cells.texts(text=is_text)
    return pd.DataFrame(columns)


def _labels_as_classes(truth: Any, sampler: Any) -> Any:
    """Return labels of public rows as classes of the models; an unknown label counts as the first class."""
    import numpy as np

    from dplangevin.tables import label_indices

    if truth is None:
        return None
    if not hasattr(sampler, "classes_"):
        return truth.numbers()
    text = sampler.models_[0]._labels_are_text()
    return sampler.classes_[
        np.maximum(truth.codes(label_indices(sampler.classes_.tolist(), text), text=text), 0)
    ]


def _rehearse_comparison(
    sampler: Any, features: Any, labels: Any, inputs: tuple[Any, Any, Any, str], output: Path | None
) -> None:
    """Compare models of zeros on the public inputs, so that bad inputs are refused before the budget is charged."""
    import numpy as np

    from dplangevin.cli import _io
    from dplangevin.rashomon.estimator_adapter import EstimatorAdapter
    from dplangevin.rashomon.multiplicity import Multiplicity

    adapter = EstimatorAdapter(
        sampler.estimator, sampler.radius, sampler.thresholds, ledger=sampler.ledger, owner=sampler
    )
    outline, target_encoder = adapter.outline(features, labels)
    problem = adapter.build_problem(*outline.shape, target_encoder.n_classes)
    size = problem.n_columns * problem.loss.score_dimension
    model: Any = adapter.build_model(np.zeros(size), problem, None, None)  # type: ignore[arg-type]
    public, truth, groups, _ = inputs
    holder = SimpleNamespace(models_=[model], **{k: v for k, v in vars(model).items() if k == "classes_"})
    Multiplicity.from_models([model, model], public, _labels_as_classes(truth, holder), groups=groups)
    _io.prepare_folder("--output", output)
