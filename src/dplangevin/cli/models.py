"""`dplangevin schema`, `plan`, `fit`, `predict` and `choose-epsilon`: models of a table, stored as JSON files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplangevin import _files
from dplangevin._progress import progress
from dplangevin.cli._io import (
    Adjacency,
    AsJson,
    Decimal,
    Delimiter,
    Delta,
    Epsilon,
    OutputFormat,
    PublicTableOptions,
    ReleaseOptions,
    ReportFile,
    RowsPerPerson,
    Secure,
    SignKey,
    Target,
    expand_option_groups,
)
from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:
    from dplangevin.tables import Dialect


app = typer.Typer(
    name="schema",
    help="Public schemas of tables: draft one, and check it on PUBLIC rows.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command("init")
def init_schema(
    public: Annotated[
        Path | None, typer.Argument(help="PUBLIC rows, .csv or .parquet: their values go into the schema.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Names alone: no table is read.", metavar="A,B,C")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="The column to predict.")] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="New .toml file.", show_default="stdout")
    ] = None,
) -> None:
    """Draft a schema to edit, as TOML. A table given here is treated as PUBLIC: never pass private rows."""
    from dplangevin.cli import _io
    from dplangevin.schema.learned import draft_schema, draft_schema_from_public

    if (public is None) == (columns is None):
        raise InvalidParameter("give either a table of PUBLIC rows or --columns A,B,C.")
    if output is not None and output.suffix.lower() != ".toml":
        raise InvalidParameter(f"--output must end in .toml, got {str(output)!r}.")
    if output is not None and output.exists():
        raise InvalidParameter(f"--output {str(output)!r} exists; remove it, or choose another name.")
    _io.check_outputs({"--output": output})
    if public is None:
        names = [name.strip() for name in (columns or "").split(",") if name.strip()]
        text = draft_schema(names, target)
    else:
        from dplangevin.audit.containers import read_records

        typer.echo(
            f"WARNING: every value of {public} is treated as PUBLIC, and some go into the schema. If these rows are "
            "private, stop here and use --columns.",
            err=True,
        )
        dialect = _io.text_dialect(delimiter, decimal)
        records = read_records(public, dialect=dialect)
        text = draft_schema_from_public(records, target)
    if output is None:
        typer.echo(text, nl=False)
    else:
        _files.write_text(output, text)
        typer.echo(f"Wrote {output}: edit it, then `dplangevin schema check {output} PUBLIC.csv`.", err=True)


@app.command("check")
def check_public_rows(
    schema: Annotated[Path, typer.Argument(help="Schema, .toml or .json.")],
    public: Annotated[Path, typer.Argument(help="PUBLIC rows, .csv or .parquet.")],
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    as_json: AsJson = False,
) -> None:
    """Report categories that never match and ranges that clip, on PUBLIC rows: never pass private ones."""
    from dplangevin.cli import _io
    from dplangevin.estimators.fit_preview import check_schema
    from dplangevin.schema import Schema

    loaded_schema = Schema.load(schema)
    typer.echo(f"WARNING: {public} is treated as PUBLIC; the answer describes its rows.", err=True)
    schema_check = check_schema(loaded_schema, _io.read_table(public, _io.text_dialect(delimiter, decimal)))
    typer.echo(json.dumps(schema_check.to_dict(), indent=1) if as_json else repr(schema_check))


ESTIMATOR_BY_MODEL = {
    "logistic": "DPLogisticRegression",
    "svc": "DPLinearSVC",
    "ridge": "DPRidge",
    "huber": "DPHuberRegressor",
    "quantile": "DPQuantileRegressor",
    "poisson": "DPPoissonRegressor",
    "additive": "DPAdditiveClassifier",
    "additive-regression": "DPAdditiveRegressor",
}

Model = Annotated[
    str,
    typer.Option(
        "--model", help="logistic, svc, ridge, huber, quantile, poisson, additive or additive-regression."
    ),
]
PublicDivisor = Annotated[
    str | None,
    typer.Option(
        "--n-public",
        help="Public divisor under add-remove, or 'learn': release the number of rows with noise. By default the "
        "number of rows, which is then public.",
    ),
]
Mechanism = Annotated[str, typer.Option("--mechanism", help="auto, or a mechanism by name.")]
Radius = Annotated[float | None, typer.Option("--radius", help="Bound on the norm of the coefficients.")]
Alpha = Annotated[float | None, typer.Option("--alpha", help="Ridge per sample.")]
Beta = Annotated[
    float | None,
    typer.Option("--beta", help="With --mechanism langevin: inverse temperature; default: chosen."),
]
Time = Annotated[
    float | None,
    typer.Option("--time", help="With --mechanism langevin: length T of the diffusion; default: chosen."),
]
NSteps = Annotated[
    int | None, typer.Option("--n-steps", help="With --mechanism langevin: number of steps; default: chosen.")
]
Intervals = Annotated[
    bool,
    typer.Option("--intervals", help="Also release what confidence intervals and predict --stability need."),
]
PublicFile = Annotated[
    Path | None, typer.Option("--public", help="Table of public rows with the same columns; NOT protected.")
]
PublicMethod = Annotated[
    str, typer.Option("--public-method", help="mirror, mirror-loss, mix, warm-start or public-only.")
]
Compare = Annotated[bool, typer.Option("--compare", help="Also compare the methods on held-out public rows.")]
CLASSIFIERS = ("logistic", "svc", "additive")
_PLANNED_AS = {"additive": "logistic", "additive-regression": "ridge"}
Learn = Annotated[
    str | None,
    typer.Option(
        "--learn",
        help="Columns whose ranges and categories are learned privately: age=number,job=category.",
    ),
]
Sql = Annotated[
    str | None,
    typer.Option(
        "--sql",
        help="Name of a table, or a SELECT statement, in the database DATA: postgresql://... or a .duckdb file.",
    ),
]
Person = Annotated[
    str | None, typer.Option("--person", help="Column that identifies the owner of a row; needs --n-public.")
]


def plan_model(
    n: Annotated[int, typer.Option("--n", help="Public number of rows.")],
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="The epsilon to meet.")] = None,
    advantage: Annotated[
        float | None,
        typer.Option("--advantage", help="In place of --epsilon: largest TPR - FPR of a membership test."),
    ] = None,
    tpr_at_fpr: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--tpr-at-fpr", help="In place of --epsilon: its largest TPR at this FPR.", metavar="TPR FPR"
        ),
    ] = None,
    n_features: Annotated[
        int | None, typer.Option("--n-features", help="Number of features, without a schema.")
    ] = None,
    delta: Delta = 1e-5,
    model: Model = "logistic",
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help='Plan exactly the fit of this schema; it may say "learn".'),
    ] = None,
    classes: Annotated[
        str | None, typer.Option("--classes", help="With --schema: labels, a,b; default: its target.")
    ] = None,
    target_bounds: Annotated[
        str | None, typer.Option("--target-bounds", help="With --schema: LOW,HIGH; default: its target.")
    ] = None,
    person: Annotated[
        str | None, typer.Option("--person", help="With --schema: column of the owner of a row.")
    ] = None,
    max_rows_per_person: RowsPerPerson = 1,
    intervals: Intervals = False,
    data_norm: Annotated[float, typer.Option("--data-norm", help="Stated bound on a row.")] = 1.0,
    adjacency: Adjacency = "replace-one",
    allow_more_rows: Annotated[
        bool,
        typer.Option(
            "--allow-more-rows", help="As `fit --n-public`: the table may have more than n rows (add-remove)."
        ),
    ] = False,
    mechanism: Mechanism = "auto",
    radius: Radius = None,
    alpha: Alpha = None,
    beta: Beta = None,
    time: Time = None,
    n_steps: NSteps = None,
    secure: Secure = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Plan file to write.")] = None,
    sign: SignKey = None,
    as_json: AsJson = False,
) -> None:
    """Show what a fit would do, why, and its guarantee; no data is needed."""
    from dplangevin.accounting.plan import save_plan
    from dplangevin.cli import _io
    from dplangevin.planner.fit_plan import plan_fit
    from dplangevin.signing import sign_file as sign_file

    _check_model_name(model)
    _io.check_outputs({"--output": output}, sign=sign)
    if sum(value is not None for value in (epsilon, advantage, tpr_at_fpr)) != 1:
        raise InvalidParameter("state one of --epsilon, --advantage and --tpr-at-fpr.")
    if schema is not None:
        if epsilon is None:
            raise InvalidParameter("--schema needs --epsilon; plan the risk with --n-features first.")
        _refuse_with_schema({"--n-features": n_features, "--output": output})
        preview = _preview_schema_fit(
            schema, model, n, PublicTableOptions(classes=classes, target_bounds=target_bounds),
            epsilon=epsilon, delta=delta, adjacency=adjacency, mechanism=mechanism, radius=radius, alpha=alpha,
            mechanism_options=stated_run(beta, time, n_steps), secure=secure, person=person,
            max_rows_per_person=max_rows_per_person, intervals=intervals,
            n_public=n if allow_more_rows or person is not None else None,
        )  # fmt: skip
        typer.echo(json.dumps(preview.to_dict(), indent=1) if as_json else str(preview))
        return
    if n_features is None:
        raise InvalidParameter("state --n-features, the number of columns, or --schema.")
    if any((classes, target_bounds, person, max_rows_per_person != 1, intervals)):
        raise InvalidParameter(
            "--classes, --target-bounds, --person, --max-rows-per-person and --intervals need --schema: without one "
            "the plan is that of a plain fit."
        )
    extra: dict[str, Any] = {"poisson": {"target_bounds": (0.0, 10.0)}}.get(model, {})
    fit_plan = plan_fit(
        model=_PLANNED_AS.get(model, model), n=n, n_features=n_features, delta=delta,
        **({} if epsilon is None else {"epsilon": epsilon}), advantage=advantage, tpr_at_fpr=tpr_at_fpr,
        adjacency=adjacency, data_norm=data_norm, fit_intercept=True, mechanism=mechanism, radius=radius, alpha=alpha,
        mechanism_options=stated_run(beta, time, n_steps), secure=secure, allow_more_rows=allow_more_rows, **extra,
    )  # fmt: skip
    if output is not None:
        save_plan(fit_plan.plan, output)
        if sign is not None:
            sign_file(output, sign)
    if as_json:
        plain = {
            "mechanism": fit_plan.plan.spec.mechanism,
            "reasons": list(fit_plan.reasons),
            "predicted_excess_risk": fit_plan.predicted_excess_risk,
            "guarantee": fit_plan.plan.guarantee.to_dict(),
        }
        typer.echo(json.dumps(plain, indent=1))
    else:
        typer.echo(str(fit_plan))


def stated_run(beta: float | None, time: float | None, n_steps: int | None) -> dict[str, float] | None:
    """Return the stated parameters of a Langevin run as the library takes them; None where none is stated."""
    stated = {"inverse_temperature": beta, "time": time, "n_steps": n_steps}
    return {name: value for name, value in stated.items() if value is not None} or None


def _refuse_with_schema(values: dict[str, object]) -> None:
    for flag, value in values.items():
        if value is not None:
            raise InvalidParameter(f"{flag} does not go with --schema; leave one of them out.")


def _preview_schema_fit(
    path: Path, model: str, n: int, table: PublicTableOptions, *, person: str | None, **options: Any
) -> Any:
    """Return the plan of the fit of a table with this schema."""
    from dplangevin import estimators
    from dplangevin.estimators.fit_preview import preview_fit
    from dplangevin.schema import load_schema

    schema = load_schema(path)
    target = "(target)" if schema.target is None else schema.target.name
    estimator = getattr(estimators, ESTIMATOR_BY_MODEL[model])(
        schema=schema,
        person=person,
        **options,
        **table.target_options(schema, classifier=model in CLASSIFIERS),
    )
    names = [*schema.names, target, *([] if person is None else [person])]
    return preview_fit(estimator, n=n, names=names, target=target)


@expand_option_groups
def fit_model(
    data: Annotated[
        str, typer.Argument(help="Table: .parquet, .feather, .csv or .tsv; with --sql the URL of a database.")
    ],
    target: Target,
    epsilon: Epsilon,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
    *,
    delta: Delta = 1e-5,
    model: Model = "logistic",
    sql: Sql = None,
    table: PublicTableOptions,
    learn: Learn = None,
    person: Person = None,
    max_rows_per_person: RowsPerPerson = 1,
    adjacency: Adjacency = "replace-one",
    n_public: PublicDivisor = None,
    mechanism: Mechanism = "auto",
    radius: Radius = None,
    alpha: Alpha = None,
    beta: Beta = None,
    time: Time = None,
    n_steps: NSteps = None,
    secure: Secure = None,
    intervals: Intervals = False,
    release_options: ReleaseOptions,
    public: PublicFile = None,
    public_method: PublicMethod = "mirror",
    compare: Compare = False,
    report: ReportFile = None,
    sign: SignKey = None,
    output_format: OutputFormat,
) -> None:
    """Fit a model under (epsilon, delta) and write it, with its guarantee, to a JSON file."""
    import numpy as np

    from dplangevin import estimators
    from dplangevin.cli import _io

    _check_model_name(model)
    outputs = {"--output": output, "--report": report, "--checkpoint": release_options.checkpoint}
    file = None if sql is not None else Path(data)
    _io.check_outputs(outputs, reads=(file, table.schema, public), ledger=release_options.ledger, sign=sign)
    budget = release_options.open_budget()
    if file is None:
        records: Any = _io.open_query(data, str(sql), budget)
    elif "://" in data:
        raise InvalidParameter("a database needs --sql, the name of a table or a SELECT statement.")
    else:
        records = _io.read_table(file, table.dialect)
    loaded_schema, target_options = _public_statements(model, target, table, learn, records.names)
    estimator = getattr(estimators, ESTIMATOR_BY_MODEL[model])(
        epsilon=epsilon, delta=delta, data_norm=table.data_norm, schema=loaded_schema, adjacency=adjacency,
        n_public=_read_divisor(n_public), mechanism=mechanism, mechanism_options=stated_run(beta, time, n_steps),
        radius=radius, alpha=alpha, secure=secure,
        intervals=intervals, random_state=release_options.random_state,
        checkpoint=release_options.checkpoint, ledger=budget, person=person, max_rows_per_person=max_rows_per_person,
        **target_options,
        public_data=_read_public_table(public, file, target, table.dialect), public_method=public_method,
        compare=compare,
    )  # fmt: skip
    features, labels = (records, target) if file is None else _io.split_target(records, target)
    with _io.deliver_results(release_options) as delivery:
        with _io.hide_cell_errors(file, loaded_schema), progress(quiet=output_format.quiet):
            estimator.fit(features, labels)
        if loaded_schema is None:
            names = [name for name in records.names if name != target]
            estimator.feature_names_in_ = np.array(names, dtype=object)
        _deliver_model(delivery, estimator, output, report, sign)
    _print_result(estimator, output, delta, output_format)


def _read_divisor(text: str | None) -> int | str | None:
    """Return the public divisor, or "learn"."""
    from dplangevin.schema.schema import LEARN

    if text is None or text == LEARN:
        return text
    if not text.isascii() or not text.isdigit():
        raise InvalidParameter(f"--n-public must be a whole number or {LEARN!r}, got {text!r}.")
    return int(text)


def _public_statements(
    model: str, target: str, table: PublicTableOptions, learn: str | None, names: Sequence[str]
) -> tuple[Any, dict[str, Any]]:
    """Return what is public about the table: its schema, and the range or the classes of its target."""
    from dplangevin.cli import _io

    classifier = model in CLASSIFIERS
    numeric = target if table.target_bounds is None and not classifier else None

    def feature_names() -> list[str]:
        return [name for name in names if name != target]

    schema = _io.read_stated_schema(table.schema, learn, numeric, feature_names)
    return schema, table.target_options(schema, classifier=classifier)


def _deliver_model(
    delivery: Any, estimator: Any, output: Path, report: Path | None, sign: Path | None
) -> None:
    from dplangevin.cli import _io
    from dplangevin.estimators import model_file
    from dplangevin.report import write_report
    from dplangevin.signing import Signer

    text = model_file.model_to_json(estimator)
    if sign is not None:
        text = Signer(sign).sign_text(text)
    _io.deliver_text(delivery, "the model", output, text)
    if report is not None:
        advice = f"`dplangevin report {output} FILE` writes the report again."
        delivery.add_result(
            "the report", report, lambda path: write_report(estimator, path, sign=sign), lambda: advice
        )
    delivery.finish()


def _print_result(estimator: Any, output: Path, delta: float, output_format: OutputFormat) -> None:
    from dplangevin.schema import LearnableSchema

    guarantee = estimator.privacy_.to_dict(delta)
    schema_to_learn = estimator.schema if isinstance(estimator.schema, LearnableSchema) else None
    if output_format.as_json:
        learned = {} if schema_to_learn is None else {"schema": estimator.schema_.to_dict()}
        typer.echo(json.dumps({"output": str(output), "guarantee": guarantee, **learned}, indent=1))
    elif not output_format.quiet:
        typer.echo(str(estimator.plan_))
        for column in () if schema_to_learn is None else schema_to_learn.learned_columns:
            typer.echo(
                f"Learned {describe_learned(estimator.schema_.column(column.name).to_dict())} for {column.name}."
            )
        typer.echo(
            f"Wrote {output}: epsilon = {guarantee['epsilon']:.4g}, delta = {delta:g}, {guarantee['adjacency']}."
        )


def describe_learned(entry: dict[str, Any]) -> str:
    """Return a learned range or list of categories in a line.

    Labels are truncated and escaped, so that a terminal does not interpret control characters in them.
    """
    if "range" in entry:
        low, high = entry["range"]
        scale = " on the scale log(1 + x)" if entry.get("transform") == "log1p" else ""
        return f"the range {low:.6g} to {high:.6g}{scale}"
    return "the categories " + ", ".join(repr(str(category)[:40]) for category in entry["categories"])


def predict_table(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    data: Annotated[Path, typer.Argument(help="Table: .parquet, .feather, .csv or .tsv.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a CSV file.")] = None,
    stability: Annotated[
        bool,
        typer.Option(
            "--stability",
            help="Also the probability that another draw of the noise decides otherwise (fits with --intervals).",
        ),
    ] = False,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
) -> None:
    """Predict the rows of a table with a model file, as CSV."""
    import numpy as np

    from dplangevin.cli import _io
    from dplangevin.estimators import model_file

    _io.check_outputs({"--output": output}, reads=(model, data))
    loaded_model = model_file.load_model(model)
    rows = _io.read_table(data, _io.text_dialect(delimiter, decimal))
    if loaded_model.schema is None:
        rows = _select_features(loaded_model, rows)
    with _io.hide_cell_errors(data, loaded_model.schema):
        columns = {"prediction": loaded_model.predict(rows)}
        if hasattr(loaded_model, "predict_proba"):
            for label, column in zip(loaded_model.classes_, loaded_model.predict_proba(rows).T, strict=True):
                columns[f"probability of {label}"] = np.round(column, 6)
        if stability:
            columns["flip probability"] = np.round(_flip_probability(loaded_model, rows), 6)
    text = _to_csv(columns)
    if output is None:
        typer.echo(text, nl=False)
    else:
        _files.write_text(output, text)


def _flip_probability(model: Any, rows: Any) -> Any:
    """Return the flip probabilities; refuse models that have none."""
    if not hasattr(model, "flip_probability"):
        raise InvalidParameter(
            "--stability is for classifiers of two classes that were fitted with --intervals."
        )
    return model.flip_probability(rows)


def _select_features(model: Any, table: Any) -> Any:
    """Select by name the columns that the model was fitted on: the table may hold others, such as the target."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:  # a file without names: columns by position
        return table
    missing = [name for name in names if name not in table.names]
    if missing:
        raise InvalidParameter(
            f"the table has no column {', '.join(map(repr, missing))}, which the model was fitted on."
        )
    return table.select_columns(*names)


def _to_csv(columns: dict[str, Any]) -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    return text.getvalue()


def _read_public_table(
    path: Path | None, private: Path | None, target: str, dialect: Dialect | None
) -> tuple[Any, Any] | None:
    """Read the public table; the private file itself is refused, since its rows would have no protection."""
    from dplangevin.cli import _io

    if path is None:
        return None
    table = _io.read_table(path, dialect)
    if private is not None and path.resolve() == private.resolve():
        raise InvalidParameter("--public names the private table itself; its rows would have no protection.")
    return _io.split_target(table, target)


def _check_model_name(model: str) -> None:
    if model not in ESTIMATOR_BY_MODEL:
        raise InvalidParameter(f"--model must be one of {', '.join(ESTIMATOR_BY_MODEL)}; got {model!r}.")


PLOT_HELP = "Also draw the curve with its bands."


def choose_epsilon_command(
    n: Annotated[int, typer.Option("--n", help="Public number of rows.")],
    schema: Annotated[Path | None, typer.Option("--schema", help="Public schema, .json or .toml.")] = None,
    n_features: Annotated[
        int | None, typer.Option("--n-features", help="Number of columns, without a schema.")
    ] = None,
    model: Annotated[str, typer.Option("--model", help="logistic or ridge.")] = "logistic",
    accuracy: Annotated[
        float | None, typer.Option("--accuracy", help="Goal: fraction of correct labels.")
    ] = None,
    log_loss: Annotated[float | None, typer.Option("--log-loss", help="Goal: mean log-loss.")] = None,
    excess: Annotated[
        float | None, typer.Option("--excess", help="Goal: excess loss over a fit without noise.")
    ] = None,
    delta: Delta = 1e-6,
    public: Annotated[
        Path | None, typer.Option("--public", help="Table of public rows to simulate on; NOT protected.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="Column to predict, with --public.")] = None,
    n_repeats: Annotated[int, typer.Option("--n-repeats", help="Simulated fits at each epsilon.")] = 6,
    plot: Annotated[Path | None, typer.Option("--plot", help=PLOT_HELP, metavar="FILE.png|.svg")] = None,
    as_json: AsJson = False,
) -> None:
    """Find by simulation the smallest epsilon that reaches a goal.

    The simulation fits models on synthetic data generated from the schema, or on public rows; no private table is read.
    """
    from dplangevin.cli import _io
    from dplangevin.estimators.epsilon_choice import choose_epsilon
    from dplangevin.schema import Schema

    _io.check_outputs({"--plot": plot}, reads=(schema, public))
    rows: Any = None
    if public is not None:
        if target is None or schema is None:
            raise InvalidParameter("--public needs --target, the column to predict, and --schema.")
        features, labels = _io.split_target(_io.read_table(public), target)
        texts = labels.numbers() if model == "ridge" else labels.texts().astype(str)
        rows = (features, texts)
    choice = choose_epsilon(
        model, None if schema is None else Schema.load(schema), n_features=n_features, n=n, accuracy=accuracy,
        log_loss=log_loss, excess=excess, delta=delta, public_data=rows, n_repeats=n_repeats,
    )  # fmt: skip
    if plot is not None:
        choice.plot(plot)
    if as_json:
        curve = [vars(point) for point in choice.curve]
        plain = {
            "epsilon": choice.epsilon,
            "value_without_noise": choice.value_without_noise,
            "curve": curve,
            "epsilon_by_strength": choice.epsilon_by_strength,
        }
        typer.echo(json.dumps(plain, indent=1, default=str))
    else:
        typer.echo(str(choice))
