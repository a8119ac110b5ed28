"""`dplangevin account`: what a run promises."""

from __future__ import annotations

import typer

from dplangevin.cli import options as o


@o.with_run_options
def account_command(
    context: typer.Context,
    noise_std: o.NoiseStd = None,
    steps: o.Steps = None,
    delta: o.Delta = None,
    epsilon: o.Epsilon = None,
    inverse_temperature: o.InverseTemperature = None,
    plot: o.Plot = None,
) -> None:
    """What a run promises: epsilon at a delta, by which theorem, with plain composition beside it."""
    from dplangevin.cli import _outputs
    from dplangevin.report import answer, plain, text

    asked = context.params
    quiet, as_json = asked["quiet"], asked["as_json"]
    question = o.for_library(context)
    if plot is not None:
        from dplangevin.report import plot as picture

        picture.check(plot, question)
        _outputs.ready({"--plot": plot})
    found = answer.account_answer(
        question, reasons=not (quiet or as_json), with_lower_bound=not quiet, orders=o.orders(context)
    )
    if quiet:
        typer.echo(repr(found.delta if epsilon is not None else found.epsilon))
    elif as_json:
        typer.echo(plain.dumps(found))
    else:
        text.show(found)
    if plot is not None:
        picture.write_plot(plot, question)
        typer.echo(f"wrote {plot}", err=True)
