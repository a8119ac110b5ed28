"""`dplangevin audit`: attack the plan of a model (or, with `pipeline`, your own code), and say what that proves."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dplangevin._progress import watching
from dplangevin.cli.audit_pipeline import pipeline
from dplangevin.cli.groups import AsJson, Quiet, Seed
from dplangevin.cli.models import MODELS, Adjacency, Alpha, Delta, Epsilon, Radius
from dplangevin.errors import InvalidParameter

_REFUTED = 3


class _ModelFirst(TyperGroup):
    """`audit --model ...` is `audit model --model ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in ("--help", *self.commands):
            args = ["model", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="audit",
    cls=_ModelFirst,
    help="Attack a model's plan (`audit --model ...`), or find a record that changes how your code reads others.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("pipeline")(pipeline)


@app.command("model")
def audit(
    model: Annotated[str, typer.Option("--model", help=f"What to attack: {', '.join(MODELS)}.")],
    epsilon: Epsilon,
    n: Annotated[
        int, typer.Option("--n", help="Records of the data set that is attacked; few is sharpest.")
    ] = 1,
    p: Annotated[int, typer.Option("--p", help="Number of features.")] = 1,
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
    confidence: Annotated[float, typer.Option("--confidence", help="Of every statement.")] = 0.95,
    method: Annotated[str, typer.Option("--method", help="many-run, one-run or density.")] = "many-run",
    canary: Annotated[
        str | None, typer.Option("--canary", help="A canary by name; default: the strongest.")
    ] = None,
    search: Annotated[int, typer.Option("--search", help="Random changes of the canary to try.")] = 0,
    sabotage: Annotated[
        float, typer.Option("--sabotage", help="Divide the noise that runs by this; the claim stays.")
    ] = 1.0,
    report: Annotated[Path | None, typer.Option("--report", help="Also write .html, .md or .json.")] = None,
    seed: Seed = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Attack a model's plan with canaries and bound its epsilon from below. Exit code 3 when the claim is refuted."""
    from dplangevin import audit as auditing
    from dplangevin.cli import _outputs
    from dplangevin.families.perturbation.schedule import OutputPerturbationSchedule
    from dplangevin.planner.choose import choose
    from dplangevin.report.audit import plain_text

    if model not in MODELS:
        raise InvalidParameter(f"--model must be one of {', '.join(MODELS)}; got {model!r}.")
    _outputs.ready({"--report": report})
    bounds: dict[str, Any] = {"poisson": {"target_bounds": (0.0, 10.0)}}.get(model, {})
    plan = choose(
        model=model, n=n, n_features=p, epsilon=epsilon, delta=delta, adjacency=adjacency, data_norm=data_norm,
        fit_intercept=False, mechanism=mechanism or OutputPerturbationSchedule.mechanism,
        radius=radius, alpha=alpha, **bounds,
    ).plan  # fmt: skip
    with watching(quiet=quiet, log=True):
        result = auditing.audit(
            _weakened(plan, sabotage), claim=plan.guarantee, delta=delta, canary=canary, method=method, runs=runs,
            confidence=confidence, search=search, random_state=seed,
        )  # fmt: skip
    if report is not None:
        from dplangevin.report import write

        write(result, report)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=1))
    elif quiet:
        typer.echo(f"{result.epsilon_lower:.6g}")
    else:
        typer.echo(plain_text(result))
    if result.refuted:
        raise typer.Exit(_REFUTED)


def _weakened(plan: Any, factor: float) -> Any:
    """The plan with its noise divided by a factor: the fault that an audit must find."""
    if factor == 1:
        return plan
    if not factor > 0:
        raise InvalidParameter(f"--sabotage must be positive, got {factor!r}.")
    noises = [
        part.name for part in fields(plan.schedule) if part.name.endswith(("noise_std", "density_scale"))
    ]
    if not noises:
        raise InvalidParameter(f"--sabotage does not know the noise of {plan.schedule.mechanism}.")
    weaker = {
        name: tuple(x / factor for x in value) if isinstance(value, tuple) else value / factor
        for name, value in ((name, getattr(plan.schedule, name)) for name in noises)
    }
    return replace(plan, schedule=replace(plan.schedule, **weaker), theorem=None)
