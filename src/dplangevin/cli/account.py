"""`dplangevin account`: what a run promises."""

from __future__ import annotations

import math

import typer

from dplangevin.cli import options as o


def account_command(
    context: typer.Context,
    n: o.Records,
    lipschitz: o.Lipschitz,
    noise_scale: o.NoiseScale,
    step_size: o.StepSize,
    steps: o.Steps,
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
    theorem: o.TheoremName = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    plot: o.Plot = None,
) -> None:
    """What a run promises: epsilon at a delta, by which theorem, with plain composition beside it."""
    from dplangevin.cli import _outputs
    from dplangevin.report import answer, plain, text

    question = o.for_library(context.params)
    if plot is not None:
        from dplangevin.report import plot as picture

        picture.check(plot, question)
        _outputs.ready({"--plot": plot})
    found = answer.account_answer(question, reasons=not (quiet or as_json), with_lower_bound=not quiet)
    if quiet:
        typer.echo(repr(found.delta if epsilon is not None else found.epsilon))
    elif as_json:
        typer.echo(plain.dumps(found))
    else:
        text.show(found)
    if plot is not None:
        picture.write(plot, question)
        typer.echo(f"wrote {plot}", err=True)
