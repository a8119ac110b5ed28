"""`dplangevin calibrate`: the noise that a promise needs, or the steps that it allows."""

from __future__ import annotations

import typer

from dplangevin.cli import options as o


@o.with_run_options
def calibrate_command(
    context: typer.Context,
    epsilon: o.SomeEpsilon = None,
    delta: o.SomeDelta = None,
    rdp: o.TargetRdp = "",
    mu: o.TargetMu = None,
    zcdp: o.TargetZcdp = None,
    steps: o.SomeSteps = None,
    noise_std: o.SomeNoise = None,
) -> None:
    """The least noise that meets a promise for --steps, or the most steps for --noise-std.

    The promise is (epsilon, delta), or --rdp, --mu or --zcdp.

    The answer is rounded to the private side and certified again.
    """
    from dplangevin.report import answer, plain, text

    quiet, as_json = context.params["quiet"], context.params["as_json"]
    found = answer.calibration_answer(
        o.for_library(context),
        reasons=not (quiet or as_json),
        with_lower_bound=not quiet,
        orders=o.orders(context),
    )
    if quiet:
        wanted_noise = noise_std is None
        typer.echo(repr(found.knob[1] if wanted_noise and found.knob else found.steps))
    elif as_json:
        typer.echo(plain.dumps(found))
    else:
        text.show(found)
