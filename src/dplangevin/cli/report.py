"""`dplangevin report`, `keys`, `sign`, `verify`, `export` and `audit`: what is made of a model file, and attacks on it.

Privacy reports, signatures of models, plans and reports, and predictions in the formats of other tools.
"""

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
from dplangevin.cli._io import (
    Adjacency,
    AsJson,
    BudgetOptions,
    Delta,
    Epsilon,
    Quiet,
    RandomState,
    ReportFile,
    expand_option_groups,
)
from dplangevin.cli.models import ESTIMATOR_BY_MODEL, Alpha, Radius
from dplangevin.errors import InvalidParameter


@expand_option_groups
def report_command(
    model: Annotated[Path, typer.Argument(help="Model file or plan file.")],
    output: Annotated[Path, typer.Argument(help="Report to write, .html, .md or .json.")],
    *,
    budget_options: BudgetOptions,
    sign: Annotated[Path | None, typer.Option("--sign", help="Private key to sign the report with.")] = None,
) -> None:
    """Write the privacy report of a model or a plan: its guarantee in plain words, curves, what is protected."""
    from dplangevin.accounting.plan import load_plan
    from dplangevin.cli import _io
    from dplangevin.estimators import model_file
    from dplangevin.report import write_report
    from dplangevin.report.document import check_report_path

    check_report_path(output)
    _io.check_outputs({"the report": output}, reads=(model,), ledger=budget_options.ledger, sign=sign)
    budget = budget_options.open_budget()
    subject = load_plan(model) if _is_plan_file(model) else model_file.load_model(model)
    write_report(subject, output, ledger=budget, sign=sign, source=model)
    typer.echo(f"Wrote {output}.")


def _is_plan_file(path: Path) -> bool:
    """Return whether a file declares itself a plan; the loaders report what is wrong with it."""
    from dplangevin import _files
    from dplangevin.accounting.plan import PLAN_FORMAT

    try:
        plain = _files.read_json(path, "the file")
    except InvalidParameter:
        return False
    return isinstance(plain, dict) and plain.get("format") == PLAN_FORMAT.layout


keys = typer.Typer(help="Keys that sign model files, plans and reports.", no_args_is_help=True)


@keys.callback()
def _keys_group() -> None:
    """Keys that sign model files, plans and reports."""


@keys.command("new")
def make_key(
    path: Annotated[Path, typer.Argument(help="Private key to write; the public one gets .pub.")],
    signer: Annotated[str, typer.Option("--signer", help="The name that signed files show.")] = "",
) -> None:
    """Create a signing key. Keep it secret, and distribute the .pub file."""
    from dplangevin.signing import create_key

    key = create_key(path, signer)
    typer.echo(f"Wrote {path} (keep it secret) and {path}.pub (distribute it): the public key is {key}.")


def sign_command(
    file: Annotated[Path, typer.Argument(help="Model file, plan file or report.")],
    key: Annotated[Path, typer.Option("--key", help="Private key.")],
) -> None:
    """Sign a file in place."""
    from dplangevin import signing

    signing.sign_file(file, key)
    typer.echo(f"{file}: {signing.verify_file(file)}.")


def verify_command(
    file: Annotated[Path, typer.Argument(help="Model file, plan file, report, or export of a ledger.")],
    key: Annotated[
        Path | None, typer.Option("--key", help="Public key of the expected signer.", show_default=False)
    ] = None,
) -> None:
    """Derive the epsilon of a file again with the independent checker, and with --key check who signed it.

    Fails if the file was altered since it was signed, was signed with another key, or states less than is derived.
    """
    from dplangevin import signing

    if key is not None:
        typer.echo(f"{file}: {signing.verify_file(file, key)}.")
    text = _check_independently(file)
    if text is not None:
        typer.echo(f"{file}: {text}.")
    elif key is None:
        raise InvalidParameter(
            f"{str(file)!r} holds no guarantee to derive again; state --key to check who signed it."
        )


def _check_independently(path: Path) -> str | None:
    """Return what the independent checker says of a file; None where it holds no guarantee."""
    import dplangevin_check
    from dplangevin import _files, signing

    if not _files.read_text(path, "the file", max_bytes=signing.MAX_FILE_BYTES).lstrip().startswith("{"):
        return None
    plain = _files.read_json(path, "the file", max_bytes=signing.MAX_FILE_BYTES)
    if not isinstance(plain, dict) or not {"certificate", "guarantee", "datasets", "releases"} & set(plain):
        return None
    try:
        epsilons = dplangevin_check.check(plain)
    except dplangevin_check.NotCovered as error:
        return f"not checked independently: {error}"
    except dplangevin_check.Refused as error:
        raise InvalidParameter(
            f"{str(path)!r} states less than the independent checker derives: {error}."
        ) from None
    return f"checked independently: epsilon = {', '.join(f'{epsilon:.9g}' for epsilon in epsilons)}"


def export_model(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; SQL and JSON are printed without it."),
    ] = None,
    as_onnx: Annotated[
        bool, typer.Option("--onnx", help="ONNX graph from raw columns to predictions.")
    ] = False,
    as_sklearn: Annotated[
        bool,
        typer.Option("--sklearn", help="scikit-learn pipeline, as a file of skops, which cannot run code."),
    ] = False,
    as_sql: Annotated[bool, typer.Option("--sql", help="Query that predicts the rows of --table.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Scorecard: values of the score by column, link and guarantee.")
    ] = False,
    table: Annotated[
        str, typer.Option("--table", help="Table that the query reads, with --sql.")
    ] = "records",
    dialect: Annotated[str, typer.Option("--dialect", help="duckdb or postgresql, with --sql.")] = "duckdb",
) -> None:
    """Write a model for other tools, with the same predictions; it costs no privacy budget."""
    from dplangevin.cli import _io
    from dplangevin.estimators import model_file

    formats = {"--onnx": as_onnx, "--sklearn": as_sklearn, "--sql": as_sql, "--json": as_json}
    chosen = [flag for flag, is_chosen in formats.items() if is_chosen]
    if len(chosen) != 1:
        raise InvalidParameter(f"choose one of {', '.join(formats)}.")
    if output is None and (as_onnx or as_sklearn):
        raise InvalidParameter(f"{chosen[0]} writes a binary file; name it with --output FILE.")
    _io.check_outputs({"--output": output}, reads=(model,))
    content = _export_content(model_file.load_model(model), chosen[0], table, dialect)
    if output is None:
        typer.echo(content, nl=False)
        return
    if isinstance(content, bytes):
        _files.write_bytes(output, content)
    else:
        _files.write_text(output, content)
    typer.echo(f"Wrote {output}.")


def _export_content(model: Any, flag: str, table: str, dialect: str) -> str | bytes:
    if flag == "--sql":
        return str(model.to_sql(table, dialect))
    if flag == "--json":
        return json.dumps(model.to_scorecard(), indent=1, allow_nan=False) + "\n"
    if flag == "--onnx":
        return bytes(model.to_onnx().SerializeToString())
    try:
        import skops.io as skops
    except ImportError:
        raise InvalidParameter(
            "--sklearn needs skops; install it with: pip install 'dplangevin[exports]'."
        ) from None
    return bytes(skops.dumps(model.to_sklearn()))


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
