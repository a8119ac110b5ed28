"""`dplangevin sample`: one private draw from exp(-beta loss) on a table, with its guarantee."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin._progress import progress
from dplangevin.accounting.registry import mechanisms_with
from dplangevin.cli import models as m
from dplangevin.cli._io import (
    Adjacency,
    Delta,
    Epsilon,
    OutputFormat,
    PublicTableOptions,
    ReleaseOptions,
    Target,
    Tier,
    expand_option_groups,
)
from dplangevin.errors import InvalidParameter

AUTO = "auto"
SAMPLED_MODELS = ("logistic", "svc", "ridge", "huber", "quantile")


@expand_option_groups
def sample_coefficients(
    data: Annotated[Path, typer.Argument(help="Table: .parquet, .feather, .csv or .tsv.")],
    target: Target,
    radius: Annotated[float, typer.Option("--radius", help="Bound on the norm of the coefficients.")],
    epsilon: Epsilon,
    *,
    delta: Delta = 0.0,
    model: Annotated[str, typer.Option("--model", help=", ".join(SAMPLED_MODELS) + ".")] = "logistic",
    table: PublicTableOptions,
    alpha: Annotated[float, typer.Option("--alpha", help="Ridge per sample.")] = 0.01,
    adjacency: Adjacency = "replace-one",
    mechanism: Annotated[
        str,
        typer.Option("--mechanism", help="auto, a draw; or langevin, the average of a stated or chosen run."),
    ] = AUTO,
    beta: m.Beta = None,
    time: m.Time = None,
    n_steps: m.NSteps = None,
    tier: Tier = "auto",
    padding: Annotated[
        float, typer.Option("--padding", help="Minimum duration of every run, in seconds.")
    ] = 0.0,
    max_seconds: Annotated[
        float, typer.Option("--max-seconds", help="Refuse runs that would take longer.")
    ] = 3600.0,
    release_options: ReleaseOptions,
    output_format: OutputFormat,
) -> None:
    """Draw coefficients from exp(-beta loss) on a ball under (epsilon, delta), by the cheapest tier that meets it.

    With --mechanism langevin the diffusion towards that law is stopped early, and the average of its steps is released.
    """
    from dplangevin.cli import _io
    from dplangevin.data import ArrayDataset
    from dplangevin.mechanisms.exponential.sampler_plans import plan_sampler, plan_stated_process
    from dplangevin.mechanisms.mechanism import run_plan

    if model not in SAMPLED_MODELS:
        raise InvalidParameter(f"--model must be one of {', '.join(SAMPLED_MODELS)}; got {model!r}.")
    stated = m.stated_run(beta, time, n_steps)
    processes = mechanisms_with("stated_parameters")
    if mechanism not in (AUTO, *processes):
        raise InvalidParameter(f"--mechanism must be {AUTO} or {', '.join(processes)}; got {mechanism!r}.")
    if mechanism == AUTO and stated is not None:
        raise InvalidParameter(f"--beta, --time and --n-steps need --mechanism {', '.join(processes)}.")
    if mechanism != AUTO and (tier not in ("auto", "process") or delta == 0):
        raise InvalidParameter(
            f"--mechanism {mechanism} is private by its own noise: it needs --delta above 0, and has no other --tier."
        )
    _io.check_outputs(
        {"--checkpoint": release_options.checkpoint},
        reads=(data, table.schema),
        ledger=release_options.ledger,
    )
    request = _problem_builder(
        model=model, epsilon=epsilon, delta=delta, adjacency=adjacency, radius=radius, alpha=alpha,
        data_norm=_stated_norm(table.schema, table.data_norm),
    )  # fmt: skip
    features, labels = _read_records(data, target, model, table)
    problem = request(len(labels), features.shape[1], table.schema is None)
    if stated is not None:
        sampler_plan = plan_stated_process(problem, epsilon, delta, **stated)
        typer.echo(str(sampler_plan), err=True)
    else:
        sampler_plan = plan_sampler(
            problem, epsilon, delta, tier if mechanism == AUTO else "process",  # type: ignore[arg-type]
            padding=padding, max_seconds=max_seconds, verbose=not output_format.quiet,
        )  # fmt: skip
    records, budget = ArrayDataset(features, labels, problem), release_options.open_budget()
    with _io.deliver_results(release_options) as delivery:
        with progress(quiet=output_format.quiet):
            release = run_plan(
                sampler_plan.plan,
                records,
                release_options.random_state,
                ledger=budget,
                checkpoint=release_options.checkpoint,
            )
        if output_format.as_json:
            text = json.dumps(_draw_to_plain(sampler_plan, release, delta), indent=1, allow_nan=False)
        else:
            text = " ".join(f"{value:.6g}" for value in release.value)
        _io.deliver_text(delivery, "the draw", None, text + "\n")
        delivery.finish()


def _draw_to_plain(sampler_plan: Any, release: Any, delta: float) -> dict[str, Any]:
    from dplangevin.mechanisms.mechanism import SEEDED_MESSAGE

    guarantee = release.guarantee
    assumptions = [*guarantee.assumptions, "the number of rows is public"]
    if release.seeded:
        assumptions.append(SEEDED_MESSAGE.replace("random_state", "--random-state"))
    return {
        "theta": [float(value) for value in release.value],
        "epsilon": guarantee.epsilon(delta),
        "delta": delta,
        "tier": sampler_plan.tier,
        "theorem": guarantee.theorem,
        "n_gradient_evaluations": sampler_plan.n_gradient_evaluations,
        "expected_seconds": sampler_plan.expected_seconds,
        "excess_risk": sampler_plan.excess_risk,
        "adjacency": guarantee.adjacency,
        "conditions": [condition.to_dict() for condition in guarantee.conditions],
        "assumptions": assumptions,
    }


def _stated_norm(schema: Path | None, data_norm: float | None) -> float:
    if (schema is None) == (data_norm is None):
        raise InvalidParameter("give exactly one of --schema and --data-norm: the stated bound on a row.")
    if data_norm is not None:
        return data_norm
    from dplangevin.schema import Schema

    assert schema is not None
    return Schema.load(schema).row_norm


def _problem_builder(**options: Any) -> Any:
    """Return a function that builds the problem for n rows and p features from public options."""

    def build_problem(n: int, n_features: int, intercept: bool) -> Any:
        from dplangevin.planner.fit_plan import Request

        request = Request(n=n, n_features=n_features, fit_intercept=intercept, **options)
        return request.make_problem(request.needed_clip, 0.0)

    return build_problem


def _read_records(path: Path, target: str, model: str, table: PublicTableOptions) -> tuple[Any, Any]:
    """Return features and labels as the problem takes them: classes as 0 and 1, numbers scaled to [-1, 1]."""
    import numpy as np

    from dplangevin.cli import _io
    from dplangevin.estimators import SchemaEncoder
    from dplangevin.schema import Schema

    schema = None if table.schema is None else Schema.load(table.schema)
    label_codes = (
        _read_label_codes(schema, _io.parse_labels(table.classes)) if model in m.CLASSIFIERS else None
    )
    rows, values = _io.split_target(_io.read_table(path, table.dialect), target)
    features = rows.to_matrix() if schema is None else SchemaEncoder(schema).transform(rows)
    if schema is None and not np.isfinite(features).all():
        raise InvalidParameter("without --schema every feature must be a finite number in every row.")
    if label_codes is not None:
        return features, (values.codes(label_codes[0], text=label_codes[1]) == 1).astype(float)
    low, high = table.parsed_target_bounds or _target_range(schema)
    numbers = np.where(np.isnan(values.numbers()), (low + high) / 2, values.numbers())
    return features, (np.clip(numbers, low, high) - (low + high) / 2) / ((high - low) / 2)


def _read_label_codes(schema: Any, classes: list[str] | None) -> tuple[dict[str, int], bool]:
    """Return the codes of the two labels, and whether labels are compared as text."""
    import numpy as np

    from dplangevin.cli import _io
    from dplangevin.tables import label_indices

    stated_labels = _io.resolve_classes(schema, classes)
    text = stated_labels is None and schema.target.text
    values = np.unique(
        np.asarray(schema.target.categories if stated_labels is None else stated_labels)
    ).tolist()
    codes = label_indices(values, text)
    if len(values) != 2 or len(codes) != 2:
        raise InvalidParameter(f"--model needs two classes, got {len(codes)}; recode the target to 0 and 1.")
    return codes, text


def _target_range(schema: Any) -> tuple[float, float]:
    target = getattr(schema, "target", None)
    if getattr(target, "low", None) is None:
        raise InvalidParameter("a numeric target needs --target-bounds LOW,HIGH or a range in the schema.")
    assert target is not None
    return float(target.low), float(target.high)
