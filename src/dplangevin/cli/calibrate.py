"""`dplangevin calibrate`: the noise that a promise needs, or the steps that it allows."""

from __future__ import annotations

import math

import typer

from dplangevin.cli import options as o


def calibrate_command(
    context: typer.Context,
    n: o.Records = None,
    lipschitz: o.Lipschitz = None,
    step_size: o.StepSize = None,
    epsilon: o.SomeEpsilon = None,
    delta: o.SomeDelta = None,
    rdp: o.TargetRdp = "",
    mu: o.TargetMu = None,
    zcdp: o.TargetZcdp = None,
    steps: o.SomeSteps = None,
    noise_scale: o.SomeNoise = None,
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
    order: o.Order = "",
    theorem: o.TheoremName = None,
    dimension: o.Dimension = None,
    hessian_rank: o.HessianRank = None,
    noise: o.Noise = None,
    tolerance: o.Tolerance = None,
    release_noise: o.ReleaseNoise = None,
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
) -> None:
    """The least noise that meets a promise for --steps, or the most steps for --noise-scale.

    The promise is (epsilon, delta), or --rdp, --mu or --zcdp.

    The answer is rounded to the private side and certified again.
    """
    _show(context, orders=o.numbers("order", order, "orders such as 2,8,32"))


def _show(context: typer.Context, orders: tuple[float, ...]) -> None:
    from dplangevin.report import answer, plain, text

    quiet, as_json = context.params["quiet"], context.params["as_json"]
    found = answer.calibration_answer(
        o.for_library(context),
        reasons=not (quiet or as_json),
        with_lower_bound=not quiet,
        orders=orders,
    )
    if quiet:
        wanted_noise = context.params["noise_scale"] is None
        typer.echo(repr(found.knob[1] if wanted_noise and found.knob else found.steps))
    elif as_json:
        typer.echo(plain.dumps(found))
    else:
        text.show(found)
