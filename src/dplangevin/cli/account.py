"""`dplangevin account` and `dplangevin calibrate`: the guarantee of a run, and the run that meets a guarantee."""

from __future__ import annotations

import typer

from dplangevin.cli import options as o


@o.add_run_options
def account_command(
    context: typer.Context,
    noise_std: o.NoiseStd = None,
    n_steps: o.Steps = None,
    delta: o.Delta = None,
    epsilon: o.Epsilon = None,
    inverse_temperature: o.InverseTemperature = None,
    plot: o.Plot = None,
) -> None:
    """Report the guarantee of a run: epsilon at a delta, the theorem, and plain composition for comparison."""
    from dplangevin.cli import _outputs
    from dplangevin.report import answer

    parameters = context.params
    quiet, as_json = parameters["quiet"], parameters["as_json"]
    question = o.library_arguments(context)
    if plot is not None:
        from dplangevin.report import plot as picture

        picture.check_plot_options(plot, question)
        _outputs.check_outputs({"--plot": plot})
    result = answer.answer_account(
        question, reasons=not (quiet or as_json), with_lower_bound=not quiet, orders=o.renyi_orders(context)
    )
    if quiet:
        typer.echo(repr(result.delta if epsilon is not None else result.epsilon))
    elif as_json:
        typer.echo(answer.answer_to_json(result))
    else:
        answer.print_answer(result)
    if plot is not None:
        picture.write_plot(plot, question)
        typer.echo(f"wrote {plot}", err=True)


@o.add_run_options
def calibrate_command(
    context: typer.Context,
    epsilon: o.SomeEpsilon = None,
    delta: o.SomeDelta = None,
    rdp: o.TargetRdp = "",
    mu: o.TargetMu = None,
    zcdp: o.TargetZcdp = None,
    n_steps: o.SomeSteps = None,
    noise_std: o.SomeNoise = None,
) -> None:
    """Find the least noise that meets a guarantee for --n-steps, or the most steps for --noise-std.

    The guarantee is (epsilon, delta), or --rdp, --mu or --zcdp.

    The answer is rounded to the safe side and certified again.
    """
    from dplangevin.report import answer

    quiet, as_json = context.params["quiet"], context.params["as_json"]
    result = answer.answer_calibration(
        o.library_arguments(context),
        reasons=not (quiet or as_json),
        with_lower_bound=not quiet,
        orders=o.renyi_orders(context),
    )
    if quiet:
        wanted_noise = noise_std is None and context.params["noise_multiplier"] is None
        parameter = result.calibrated_parameter
        typer.echo(repr(parameter[1] if wanted_noise and parameter else result.steps))
    elif as_json:
        typer.echo(answer.answer_to_json(result))
    else:
        answer.print_answer(result)
