"""`dplangevin calibrate`: the noise that a promise needs, or the steps that it allows."""

from __future__ import annotations

import math

import typer

from dplangevin.cli import options as o


def calibrate_command(
    context: typer.Context,
    n: o.Records,
    lipschitz: o.Lipschitz,
    step_size: o.StepSize,
    epsilon: o.TargetEpsilon,
    delta: o.TargetDelta,
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
    theorem: o.TheoremName = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """The least noise that meets (epsilon, delta) for --steps, or the most steps for --noise-scale.

    The answer is rounded to the private side and certified again.
    """
    from dplangevin.report import answer, plain, text

    found = answer.calibration_answer(
        o.for_library(context.params), reasons=not (quiet or as_json), with_lower_bound=not quiet
    )
    if quiet:
        typer.echo(repr(found.noise_scale if noise_scale is None else found.steps))
    elif as_json:
        typer.echo(plain.dumps(found))
    else:
        text.show(found)
