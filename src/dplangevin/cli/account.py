"""`dplangevin account`: what a run promises."""

from __future__ import annotations

import math

import typer

from dplangevin.cli import options as o


def account_command(
    context: typer.Context,
    n: o.Records = None,
    lipschitz: o.Lipschitz = None,
    noise_scale: o.NoiseScale = None,
    step_size: o.StepSize = None,
    steps: o.Steps = None,
    mechanism: o.Mechanism = None,
    sampling: o.Sampling = None,
    batch_size: o.BatchSize = None,
    momentum: o.Momentum = False,
    smoothness: o.Smoothness = math.inf,
    strong_convexity: o.StrongConvexity = 0.0,
    diameter: o.Diameter = math.inf,
    adjacency: o.Adjacency = "replace-one",
    release: o.Release = "last-iterate",
    checkpoints: o.Checkpoints = "",
    delta: o.Delta = None,
    epsilon: o.Epsilon = None,
    order: o.Order = "",
    theorem: o.TheoremName = None,
    dimension: o.Dimension = None,
    hessian_rank: o.HessianRank = None,
    noise: o.Noise = None,
    tolerance: o.Tolerance = None,
    release_noise: o.ReleaseNoise = None,
    inverse_temperature: o.InverseTemperature = None,
    tier: o.Tier = None,
    models: o.Models = None,
    threshold: o.Threshold = None,
    ramp: o.Ramp = None,
    excess: o.Excess = None,
    answers: o.Answers = None,
    changed: o.Changed = None,
    sensitivity: o.Sensitivity = None,
    p: o.Power = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    plot: o.Plot = None,
) -> None:
    """What a run promises: epsilon at a delta, by which theorem, with plain composition beside it."""
    _show(context, orders=o.numbers("order", order, "orders such as 2,8,32"))


def _show(context: typer.Context, orders: tuple[float, ...]) -> None:
    from dplangevin.cli import _outputs
    from dplangevin.report import answer, plain, text

    asked = context.params
    quiet, as_json, plot = asked["quiet"], asked["as_json"], asked["plot"]
    question = o.for_library(context)
    if plot is not None:
        from dplangevin.report import plot as picture

        picture.check(plot, question)
        _outputs.ready({"--plot": plot})
    found = answer.account_answer(
        question, reasons=not (quiet or as_json), with_lower_bound=not quiet, orders=orders
    )
    if quiet:
        typer.echo(repr(found.delta if asked["epsilon"] is not None else found.epsilon))
    elif as_json:
        typer.echo(plain.dumps(found))
    else:
        text.show(found)
    if plot is not None:
        picture.write_plot(plot, question)
        typer.echo(f"wrote {plot}", err=True)
