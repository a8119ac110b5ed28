"""`dplangevin plan`, `fit` and `predict`: a private model from a table, as a JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin import _files
from dplangevin._progress import watching
from dplangevin.cli.groups import AsJson, Separator, Shown, Spending, StatedTable, grouped
from dplangevin.errors import InvalidParameter

MODELS = {
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
Epsilon = Annotated[float, typer.Option("--epsilon", help="The epsilon to meet.")]
Delta = Annotated[float, typer.Option("--delta", help="The delta to meet; 0 for a pure promise.")]
Divisor = Annotated[
    int | None,
    typer.Option(
        "--n", help="Public divisor under add-remove; by default the number of rows, which is then public."
    ),
]
Adjacency = Annotated[str, typer.Option("--adjacency", help="replace-one or add-remove.")]
Mechanism = Annotated[str, typer.Option("--mechanism", help="auto, or a mechanism by name.")]
Radius = Annotated[float | None, typer.Option("--radius", help="Bound on the norm of the coefficients.")]
Alpha = Annotated[float | None, typer.Option("--alpha", help="Ridge per sample.")]
Secure = Annotated[
    bool, typer.Option("--secure", help="Exact discrete noise, safe against attacks on floating point.")
]
PublicFile = Annotated[
    Path | None, typer.Option("--public", help="Table of public rows with the same columns; NOT protected.")
]
PublicMethod = Annotated[
    str, typer.Option("--public-method", help="mirror, mirror-loss, mix, warm-start or public-only.")
]
Compare = Annotated[bool, typer.Option("--compare", help="Also compare the methods on held-out public rows.")]
ReportFile = Annotated[
    Path | None, typer.Option("--report", help="Also write a report, .html, .md or .json.")
]
SignKey = Annotated[
    Path | None, typer.Option("--sign", help="Private key to sign the file (and the report) with.")
]
CLASSIFIERS = ("logistic", "svc", "additive")
_FITS_AS = {"additive": "logistic", "additive-regression": "ridge"}
Learn = Annotated[
    str | None,
    typer.Option(
        "--learn",
        help="Columns whose ranges and categories are learned inside the promise: age=number,job=category.",
    ),
]
Person = Annotated[str | None, typer.Option("--person", help="Column that says whose a row is; needs --n.")]
RowsPerPerson = Annotated[
    int,
    typer.Option("--max-rows-per-person", help="The promise covers all rows of a person, so many are used."),
]


def plan(
    n: Annotated[int, typer.Option("--n", help="Public number of rows.")],
    p: Annotated[int, typer.Option("--p", help="Number of features.")],
    epsilon: Epsilon,
    delta: Delta = 1e-5,
    model: Model = "logistic",
    data_norm: Annotated[float, typer.Option("--data-norm", help="Stated bound on a row.")] = 1.0,
    adjacency: Adjacency = "replace-one",
    more_rows: Annotated[
        bool,
        typer.Option("--more-rows", help="As `fit --n`: the table may have more than n rows (add-remove)."),
    ] = False,
    mechanism: Mechanism = "auto",
    radius: Radius = None,
    alpha: Alpha = None,
    secure: Secure = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Plan file to write.")] = None,
    sign: SignKey = None,
    as_json: AsJson = False,
) -> None:
    """What a fit would do, why, and what it would promise; no data is needed."""
    from dplangevin.cli import _outputs
    from dplangevin.planner.choose import choose
    from dplangevin.privacy.plan_file import save_plan
    from dplangevin.signing import sign as sign_file

    _known(model)
    _outputs.ready({"--output": output}, sign=sign)
    extra: dict[str, Any] = {"poisson": {"target_bounds": (0.0, 10.0)}}.get(model, {})
    recipe = choose(
        model=_FITS_AS.get(model, model), n=n, n_features=p, epsilon=epsilon, delta=delta, adjacency=adjacency,
        data_norm=data_norm, fit_intercept=True, mechanism=mechanism, radius=radius, alpha=alpha, secure=secure,
        more_rows=more_rows, **extra,
    )  # fmt: skip
    if output is not None:
        save_plan(recipe.plan, output)
        if sign is not None:
            sign_file(output, sign)
    if as_json:
        plain = {
            "mechanism": recipe.plan.schedule.mechanism,
            "reasons": list(recipe.reasons),
            "predicted_excess_risk": recipe.predicted_excess_risk,
            "guarantee": recipe.plan.guarantee.to_dict(),
        }
        typer.echo(json.dumps(plain, indent=1))
    else:
        typer.echo(str(recipe))


@grouped
def fit(
    data: Annotated[Path, typer.Argument(help="Table: .parquet, .feather, .csv or .tsv.")],
    target: Annotated[str, typer.Option("--target", help="Column to predict.")],
    epsilon: Epsilon,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
    *,
    delta: Delta = 1e-5,
    model: Model = "logistic",
    table: StatedTable,
    learn: Learn = None,
    person: Person = None,
    max_rows_per_person: RowsPerPerson = 1,
    adjacency: Adjacency = "replace-one",
    n: Divisor = None,
    mechanism: Mechanism = "auto",
    radius: Radius = None,
    alpha: Alpha = None,
    secure: Secure = False,
    spending: Spending,
    public: PublicFile = None,
    public_method: PublicMethod = "mirror",
    compare: Compare = False,
    report: ReportFile = None,
    sign: SignKey = None,
    shown: Shown,
) -> None:
    """Fit a model under (epsilon, delta) and write it, with its guarantee, to a JSON file."""
    import numpy as np

    from dplangevin import estimators
    from dplangevin.cli import _outputs, _tables

    _known(model)
    outputs = {"--output": output, "--report": report, "--state": spending.state}
    _outputs.ready(outputs, reads=(data, table.schema, public), ledger=spending.ledger, sign=sign)
    stated, bounds = _stated(model, target, table, learn, data)
    paid = spending.budget()
    estimator = getattr(estimators, MODELS[model])(
        epsilon=epsilon, delta=delta, data_norm=table.data_norm, schema=stated, adjacency=adjacency, n=n,
        mechanism=mechanism, radius=radius, alpha=alpha, secure=secure, random_state=spending.seed,
        state=spending.state, ledger=paid, person=person, max_rows_per_person=max_rows_per_person,
        **bounds,
        public_data=_public(public, data, target, table.separator), public_method=public_method, compare=compare,
    )  # fmt: skip
    features, labels = _tables.target(_tables.read(data, table.separator), target)
    with _outputs.delivering(spending) as delivery:
        with _tables.usable(data, stated), watching(quiet=shown.quiet, log=True):
            estimator.fit(features, labels)
        if stated is None:
            estimator.feature_names_in_ = np.array(features.names, dtype=object)
        _deliver(delivery, estimator, output, report, sign)
    _tell(estimator, output, delta, shown)


def _stated(
    model: str, target: str, table: StatedTable, learn: str | None, data: Path
) -> tuple[Any, dict[str, Any]]:
    """What is public about the table: its schema, and the range or the classes of its target."""
    from dplangevin.cli import _tables

    classifier = model in CLASSIFIERS
    numeric = target if table.target_bounds is None and not classifier else None

    def columns() -> list[str]:
        return [name for name in _tables.read(data, table.separator).names if name != target]

    stated = _tables.stated_schema(table.schema, learn, numeric, columns)
    return stated, table.of_target(stated, classifier=classifier)


def _deliver(delivery: Any, estimator: Any, output: Path, report: Path | None, sign: Path | None) -> None:
    from dplangevin.cli import _outputs
    from dplangevin.estimators import model_file
    from dplangevin.report import write
    from dplangevin.signing import Signer

    text = model_file.dumps(estimator)
    if sign is not None:
        text = Signer(sign).signed(text)
    _outputs.put_text(delivery, "the model", output, text)
    if report is not None:
        again = f"`dplangevin report {output} FILE` writes the report again."
        delivery.put("the report", report, lambda path: write(estimator, path, sign=sign), lambda: again)
    delivery.finish()


def _tell(estimator: Any, output: Path, delta: float, shown: Shown) -> None:
    from dplangevin.schema import SchemaToLearn

    promise = estimator.privacy_.to_dict(delta)
    raw = estimator.schema if isinstance(estimator.schema, SchemaToLearn) else None
    if shown.as_json:
        learned = {} if raw is None else {"schema": estimator.schema_.to_dict()}
        typer.echo(json.dumps({"output": str(output), "guarantee": promise, **learned}, indent=1))
    elif not shown.quiet:
        typer.echo(str(estimator.plan_))
        for column in () if raw is None else raw.unknown:
            typer.echo(
                f"Learned {_shown(estimator.schema_.column(column.name).to_dict())} for {column.name}."
            )
        typer.echo(
            f"Wrote {output}: epsilon = {promise['epsilon']:.4g}, delta = {delta:g}, {promise['adjacency']}."
        )


def _shown(entry: dict[str, Any]) -> str:
    """A learned range or list in a line; labels are cut short, and written so that a terminal obeys none of them."""
    if "range" in entry:
        low, high = entry["range"]
        scale = " on the scale log(1 + x)" if entry.get("transform") == "log1p" else ""
        return f"the range {low:.6g} to {high:.6g}{scale}"
    return "the categories " + ", ".join(repr(str(word)[:40]) for word in entry["categories"])


def predict(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    data: Annotated[Path, typer.Argument(help="Table: .parquet, .feather, .csv or .tsv.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a CSV file.")] = None,
    separator: Separator = None,
) -> None:
    """Predictions of a model file for the rows of a table, as CSV."""
    import numpy as np

    from dplangevin.cli import _outputs, _tables
    from dplangevin.estimators import model_file

    _outputs.ready({"--output": output}, reads=(model, data))
    fitted = model_file.load_model(model)
    rows = _tables.read(data, separator)
    if fitted.schema is None:
        rows = _features(fitted, rows)
    with _tables.usable(data, fitted.schema):
        columns = {"prediction": fitted.predict(rows)}
        if hasattr(fitted, "predict_proba"):
            for label, column in zip(fitted.classes_, fitted.predict_proba(rows).T, strict=True):
                columns[f"probability of {label}"] = np.round(column, 6)
    text = _csv(columns)
    if output is None:
        typer.echo(text, nl=False)
    else:
        _files.write_text(output, text)


def _features(fitted: Any, table: Any) -> Any:
    """The columns that the model was fitted on, by name: the table may still hold the target, and more."""
    names = getattr(fitted, "feature_names_in_", None)
    if names is None:  # a file without names: columns by position
        return table
    absent = [name for name in names if name not in table.names]
    if absent:
        raise InvalidParameter(
            f"the table has no column {', '.join(map(repr, absent))}, which the model was fitted on."
        )
    return table.only(*names)


def _csv(columns: dict[str, Any]) -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    return text.getvalue()


def _public(path: Path | None, private: Path, target: str, separator: str | None) -> tuple[Any, Any] | None:
    """The public table; the private file itself is refused, since its rows would have no protection."""
    from dplangevin.cli import _tables

    if path is None:
        return None
    table = _tables.read(path, separator)
    if path.resolve() == private.resolve():
        raise InvalidParameter("--public names the private table itself; its rows would have no protection.")
    return _tables.target(table, target)


def _known(model: str) -> None:
    if model not in MODELS:
        raise InvalidParameter(f"--model must be one of {', '.join(MODELS)}; got {model!r}.")
