"""`dplangevin audit`: attack the plan of a model, or check that a pipeline treats each record on its own."""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dplangevin import _files
from dplangevin._progress import progress
from dplangevin.cli.models import ESTIMATOR_BY_MODEL, Alpha, Radius
from dplangevin.cli.option_groups import Adjacency, AsJson, Delta, Epsilon, Quiet, RandomState, ReportFile
from dplangevin.errors import InvalidParameter

_EXIT_FAILED = 3


def audit_pipeline_command(
    pipeline: Annotated[
        str, typer.Argument(help="What to run on a table: MODULE:FUNCTION.", metavar="MODULE:FUNCTION")
    ],
    table: Annotated[Path, typer.Option("--table", help="A few dozen records, .csv or .parquet.")],
    schema: Annotated[Path | None, typer.Option("--schema", help="Public schema, .json or .toml.")] = None,
    container: Annotated[
        list[str] | None,
        typer.Option(
            "--container",
            help="records, numpy, pandas, polars, arrow, csv or parquet (repeat); default: all that run.",
        ),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", help="Only this column (repeat); default: all.")
    ] = None,
    row: Annotated[
        list[int] | None,
        typer.Option("--row", help="Replace this record (repeat); default: the first and the last."),
    ] = None,
    bound: Annotated[
        float | None,
        typer.Option(
            "--bound", help="Bound on the change by one record of a result that is not one per row."
        ),
    ] = None,
    norm: Annotated[str, typer.Option("--norm", help="Norm of --bound: l2, l1 or max.")] = "l2",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the result as JSON.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run your own code on a table and on its neighbours. Exit code 3 if one record changes another's result."""
    from dplangevin.audit import audit_pipeline
    from dplangevin.cli import _io
    from dplangevin.schema import Schema

    _io.check_outputs({"--output": output}, reads=(table, schema))
    result = audit_pipeline(
        _import_object(pipeline), table, None if schema is None else Schema.load(schema), containers=container or None,
        columns=column or None, rows=row or (0, -1), bound=bound, norm=norm,  # type: ignore[arg-type]
    )  # fmt: skip
    if output is not None:
        _files.write_text(output, result.to_json() + "\n")
    if as_json:
        typer.echo(result.to_json())
    elif not quiet:
        typer.echo(repr(result))
    if not result.has_passed:
        raise typer.Exit(_EXIT_FAILED)


def _import_object(spec: str) -> Any:
    """Import the object that MODULE:FUNCTION names; modules in the working directory can be imported as well."""
    module, _, name = spec.partition(":")
    if not module or not name:
        raise InvalidParameter(f"the pipeline must be named MODULE:FUNCTION, got {spec!r}.")
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        imported: Any = importlib.import_module(module)
        for part in name.split("."):
            imported = getattr(imported, part)
    except (ImportError, AttributeError) as error:
        raise InvalidParameter(f"there is no pipeline {spec!r}: {error}.") from None
    finally:
        sys.path.remove(folder)
    return imported


_EXIT_REFUTED = 3


class _DefaultToModel(TyperGroup):
    """A group that reads `audit --model ...` as `audit model --model ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in ("--help", *self.commands):
            args = ["model", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="audit",
    cls=_DefaultToModel,
    help="Attack a model's plan (`audit --model ...`), or find a record that changes how your code treats others.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("pipeline")(audit_pipeline_command)


@app.command("model")
def audit_model(
    model: Annotated[str, typer.Option("--model", help=f"What to attack: {', '.join(ESTIMATOR_BY_MODEL)}.")],
    epsilon: Epsilon,
    n: Annotated[
        int,
        typer.Option("--n", help="Records in the attacked data set; few records give the sharpest bound."),
    ] = 1,
    n_features: Annotated[int, typer.Option("--n-features", help="Number of features.")] = 1,
    delta: Delta = 1e-5,
    data_norm: Annotated[float, typer.Option("--data-norm", help="Stated bound on a row.")] = 1.0,
    adjacency: Adjacency = "replace-one",
    mechanism: Annotated[
        str | None,
        typer.Option("--mechanism", help="auto, or one by name; default: noise on the exact minimiser."),
    ] = None,
    radius: Radius = None,
    alpha: Alpha = None,
    runs: Annotated[int, typer.Option("--runs", help="Runs, both data sets together.")] = 4000,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Confidence level of every bound.")
    ] = 0.95,
    method: Annotated[str, typer.Option("--method", help="many-run, one-run or density.")] = "many-run",
    canary: Annotated[
        str | None, typer.Option("--canary", help="A canary by name; default: the strongest.")
    ] = None,
    search: Annotated[int, typer.Option("--search", help="Random changes of the canary to try.")] = 0,
    noise_divisor: Annotated[
        float,
        typer.Option("--noise-divisor", help="Divide the noise of the run, but not of the claim, by this."),
    ] = 1.0,
    report: ReportFile = None,
    random_state: RandomState = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Attack a model's plan with canaries and bound its epsilon from below. Exit code 3 when the claim is refuted."""
    from dplangevin import audit as auditing
    from dplangevin.cli import _io
    from dplangevin.mechanisms.perturbation.spec import OutputPerturbationSpec
    from dplangevin.planner.fit_plan import plan_fit
    from dplangevin.report.audit import audit_text

    if model not in ESTIMATOR_BY_MODEL:
        raise InvalidParameter(f"--model must be one of {', '.join(ESTIMATOR_BY_MODEL)}; got {model!r}.")
    _io.check_outputs({"--report": report})
    bounds: dict[str, Any] = {"poisson": {"target_bounds": (0.0, 10.0)}}.get(model, {})
    plan = plan_fit(
        model=model, n=n, n_features=n_features, epsilon=epsilon, delta=delta, adjacency=adjacency, data_norm=data_norm,
        fit_intercept=False, mechanism=mechanism or OutputPerturbationSpec.mechanism,
        radius=radius, alpha=alpha, **bounds,
    ).plan  # fmt: skip
    with progress(quiet=quiet):
        result = auditing.audit(
            _weaken_noise(plan, noise_divisor), claim=plan.guarantee, delta=delta, canary=canary, method=method,
            runs=runs, confidence=confidence, search=search, random_state=random_state,
        )  # fmt: skip
    if report is not None:
        from dplangevin.report import write_report

        write_report(result, report)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=1))
    elif quiet:
        typer.echo(f"{result.epsilon_lower:.6g}")
    else:
        typer.echo(audit_text(result))
    if result.refuted:
        raise typer.Exit(_EXIT_REFUTED)


def _weaken_noise(plan: Any, factor: float) -> Any:
    """Return the plan with its noise divided by a factor: a broken variant that an audit must refute."""
    if factor == 1:
        return plan
    if not factor > 0:
        raise InvalidParameter(f"--noise-divisor must be positive, got {factor!r}.")
    noise_fields = [
        field.name for field in fields(plan.spec) if field.name.endswith(("noise_std", "density_scale"))
    ]
    if not noise_fields:
        raise InvalidParameter(f"--noise-divisor does not know the noise of {plan.spec.mechanism}.")
    weaker = {
        name: tuple(x / factor for x in value) if isinstance(value, tuple) else value / factor
        for name, value in ((name, getattr(plan.spec, name)) for name in noise_fields)
    }
    return replace(plan, spec=replace(plan.spec, **weaker), theorem=None)
