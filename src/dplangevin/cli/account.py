"""`dplangevin account` and `dplangevin calibrate`: the guarantee of a run, and the run that meets a guarantee.

Every parameter of a run is an option here, so that no command has to repeat them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin.accounting.registry import accountable_mechanisms
from dplangevin.cli._io import GUARANTEE_PANEL, OUTPUT_PANEL, Adjacency, AsJson, Quiet
from dplangevin.errors import InvalidParameter

_RUN_PANEL, _PROBLEM_PANEL = "The run", "The problem"


def _panel_option(name: str, help_text: str, panel: str, metavar: str | None = None) -> Any:
    return typer.Option(name, help=help_text, rich_help_panel=panel, metavar=metavar, show_default=True)


Mechanism = Annotated[
    str | None,
    _panel_option(
        "--mechanism",
        f"Noisy gradient steps unless stated, as --sampling says; or one of {', '.join(accountable_mechanisms())}.",
        _RUN_PANEL,
        "WORD",
    ),
]
Sampling = Annotated[
    str | None,
    _panel_option(
        "--sampling", "full (default), cyclic, shuffle, without-replacement or poisson.", _RUN_PANEL, "WORD"
    ),
]
BatchSize = Annotated[
    float | None, _panel_option("--batch-size", "Public divisor of a batch.", _RUN_PANEL, "N")
]
Steps = Annotated[
    float | None,
    _panel_option("--n-steps", "Number of steps; inf: a guarantee for any number.", _RUN_PANEL, "N|inf"),
]
_PER_STEP_HELP = "a number, a formula in the step t such as 0.5/sqrt(t), or a file with one number per step."
StepSize = Annotated[
    str | None, _panel_option("--step-size", f"Step size eta: {_PER_STEP_HELP}", _RUN_PANEL, "X|FORMULA|FILE")
]
NoiseStd = Annotated[
    str | None,
    _panel_option(
        "--noise-std",
        f"Standard deviation of the noise on the MEAN gradient: {_PER_STEP_HELP}",
        _RUN_PANEL,
        "X|FORMULA|FILE",
    ),
]
NoiseMultiplier = Annotated[
    float | None,
    _panel_option(
        "--noise-multiplier",
        "DP-SGD: noise on the SUM of clipped gradients, in units of the clipping norm.",
        _RUN_PANEL,
        "X",
    ),
]
SampleRate = Annotated[
    float | None,
    _panel_option(
        "--sample-rate",
        "DP-SGD: probability of a record to be in a batch; or --n with --batch-size.",
        _RUN_PANEL,
        "X",
    ),
]
Epochs = Annotated[
    float | None,
    _panel_option("--epochs", "DP-SGD: number of steps times the sample rate.", _RUN_PANEL, "X"),
]
SomeSteps = Annotated[
    float | None, _panel_option("--n-steps", "Find the least noise for N steps.", _RUN_PANEL, "N|inf")
]
SomeNoise = Annotated[
    str | None, _panel_option("--noise-std", "Find the most steps with this noise.", _RUN_PANEL, "X")
]
Momentum = Annotated[
    bool, _panel_option("--momentum", "Nesterov momentum (accounted by composition).", _RUN_PANEL)
]

Records = Annotated[float | None, _panel_option("--n", "Public number of records.", _PROBLEM_PANEL, "N")]
Lipschitz = Annotated[
    float | None,
    _panel_option("--lipschitz", "Bound on the norm of a per-record gradient.", _PROBLEM_PANEL, "X"),
]
Smoothness = Annotated[
    float,
    _panel_option(
        "--smoothness", "Smoothness of each loss, ridge included; inf when unknown.", _PROBLEM_PANEL, "X"
    ),
]
StrongConvexity = Annotated[
    float, _panel_option("--strong-convexity", "Strong convexity of the ridge only.", _PROBLEM_PANEL, "X")
]
Diameter = Annotated[
    float,
    _panel_option("--diameter", "Diameter of the set that iterates are projected on.", _PROBLEM_PANEL, "X"),
]

Release = Annotated[
    str,
    _panel_option(
        "--release",
        "What is released: last-iterate, average, checkpoints or trajectory.",
        GUARANTEE_PANEL,
        "WORD",
    ),
]
Checkpoints = Annotated[
    str,
    _panel_option("--checkpoints", "Released steps, with --release checkpoints.", GUARANTEE_PANEL, "N,N,..."),
]
Delta = Annotated[
    float | None, _panel_option("--delta", "Report epsilon at this delta.", GUARANTEE_PANEL, "X")
]
Epsilon = Annotated[
    float | None, _panel_option("--epsilon", "Report delta at this epsilon instead.", GUARANTEE_PANEL, "X")
]
SomeDelta = Annotated[
    float | None, _panel_option("--delta", "The delta to meet, or to report at.", GUARANTEE_PANEL, "X")
]
SomeEpsilon = Annotated[
    float | None, _panel_option("--epsilon", "The epsilon to meet (with --delta).", GUARANTEE_PANEL, "X")
]
Order = Annotated[
    str,
    _panel_option("--order", "Also report the Renyi divergence at these orders.", GUARANTEE_PANEL, "X,X,..."),
]
TargetRdp = Annotated[
    str,
    _panel_option(
        "--rdp", "Meet this Renyi divergence at this order instead.", GUARANTEE_PANEL, "ORDER,VALUE"
    ),
]
TargetMu = Annotated[float | None, _panel_option("--mu", "Meet mu-GDP instead.", GUARANTEE_PANEL, "X")]
TargetZcdp = Annotated[float | None, _panel_option("--zcdp", "Meet rho-zCDP instead.", GUARANTEE_PANEL, "X")]
TheoremName = Annotated[
    str | None,
    _panel_option("--theorem", "Use this theorem only; fail if it does not apply.", GUARANTEE_PANEL, "NAME"),
]

_OTHER_PANEL = "Other mechanisms"
Dimension = Annotated[float | None, _panel_option("--dimension", "Number of parameters.", _OTHER_PANEL, "N")]
HessianRank = Annotated[
    float | None,
    _panel_option("--hessian-rank", "Rank of one record's Hessian (1 for GLMs).", _OTHER_PANEL, "N"),
]
Noise = Annotated[
    str | None, _panel_option("--noise", "Noise of a perturbation: gaussian or gamma.", _OTHER_PANEL, "WORD")
]
Tolerance = Annotated[
    float | None, _panel_option("--tolerance", "Gradient norm at the minimiser.", _OTHER_PANEL, "X")
]
DensityScale = Annotated[
    float | None,
    _panel_option(
        "--density-scale", "s of a perturbation's density exp(-(|b| / s)^q / q).", _OTHER_PANEL, "X"
    ),
]
ReleaseDensityScale = Annotated[
    float | None,
    _panel_option(
        "--release-density-scale", "Scale of the noise that masks the solver's error.", _OTHER_PANEL, "X"
    ),
]
Sigma = Annotated[
    float | None, _panel_option("--sigma", "Scale of the noise on counts, see --p.", _OTHER_PANEL, "X")
]
Scale = Annotated[
    float | None,
    _panel_option("--scale", "Scale of the noise of the L-infinity-norm mechanism.", _OTHER_PANEL, "X"),
]
InverseTemperature = Annotated[
    float | None,
    typer.Option(
        "--inverse-temperature",
        "--beta",
        help="beta of a draw of exp(-beta F), or of Langevin diffusion.",
        rich_help_panel=_OTHER_PANEL,
        metavar="X",
    ),
]
Time = Annotated[
    float | None,
    _panel_option(
        "--time", "Length T of a Langevin diffusion; inf: its stationary law.", _OTHER_PANEL, "X|inf"
    ),
]
TimeStep = Annotated[
    float | None,
    _panel_option("--time-step", "Length eta of a Langevin step, instead of --time.", _OTHER_PANEL, "X"),
]
TemperatureExponent = Annotated[
    float | None,
    _panel_option("--exponent", "beta_t = beta (t / T)^X of a Langevin diffusion.", _OTHER_PANEL, "X"),
]
Convex = Annotated[
    bool,
    typer.Option(
        "--convex/--non-convex",
        rich_help_panel=_PROBLEM_PANEL,
        help="Whether every loss is convex (mechanism langevin).",
    ),
]
LogSobolev = Annotated[
    float | None,
    _panel_option(
        "--log-sobolev",
        "A proved log-Sobolev constant of a Langevin run's laws, for every data set.",
        _OTHER_PANEL,
        "X",
    ),
]
Friction = Annotated[
    float | None, _panel_option("--friction", "Friction of underdamped Langevin.", _OTHER_PANEL, "X")
]
InverseMass = Annotated[
    float | None,
    _panel_option("--inverse-mass", "Velocity variance of underdamped Langevin.", _OTHER_PANEL, "X"),
]
Tier = Annotated[
    str | None, _panel_option("--tier", "Sampler tier: exact, certified or pure.", _OTHER_PANEL, "WORD")
]
NModels = Annotated[
    float | None, _panel_option("--n-models", "Draws from a Rashomon set.", _OTHER_PANEL, "N")
]
Threshold = Annotated[
    float | None, _panel_option("--threshold", "Threshold psi of the Rashomon set.", _OTHER_PANEL, "X")
]
Ramp = Annotated[
    float | None, _panel_option("--ramp", "Width of the score's linear ramp.", _OTHER_PANEL, "X")
]
Excess = Annotated[float | None, _panel_option("--excess", "Bound on sup F - inf F.", _OTHER_PANEL, "X")]
Answers = Annotated[float | None, _panel_option("--answers", "Number of counts.", _OTHER_PANEL, "N")]
Changed = Annotated[
    float | None, _panel_option("--changed", "Counts that one record changes.", _OTHER_PANEL, "N")
]
Sensitivity = Annotated[
    float | None, _panel_option("--sensitivity", "Change of each such count.", _OTHER_PANEL, "X")
]
NoiseExponent = Annotated[
    float | None,
    _panel_option("--p", "Exponent p of the noise density exp(-(|x|_p / sigma)^p).", _OTHER_PANEL, "X"),
]

Plot = Annotated[
    Path | None,
    _panel_option(
        "--plot", "Also draw epsilon against the number of steps.", OUTPUT_PANEL, "FILE.png|.svg|.html"
    ),
]


def _run_options(
    n: Records = None,
    lipschitz: Lipschitz = None,
    step_size: StepSize = None,
    mechanism: Mechanism = None,
    sampling: Sampling = None,
    batch_size: BatchSize = None,
    momentum: Momentum = False,
    noise_multiplier: NoiseMultiplier = None,
    sample_rate: SampleRate = None,
    epochs: Epochs = None,
    smoothness: Smoothness = math.inf,
    strong_convexity: StrongConvexity = 0.0,
    diameter: Diameter = math.inf,
    adjacency: Adjacency = "replace-one",
    release: Release = "last-iterate",
    checkpoints: Checkpoints = "",
    order: Order = "",
    theorem: TheoremName = None,
    dimension: Dimension = None,
    hessian_rank: HessianRank = None,
    noise: Noise = None,
    tolerance: Tolerance = None,
    density_scale: DensityScale = None,
    release_density_scale: ReleaseDensityScale = None,
    friction: Friction = None,
    inverse_mass: InverseMass = None,
    time: Time = None,
    time_step: TimeStep = None,
    exponent: TemperatureExponent = None,
    log_sobolev: LogSobolev = None,
    convex: Convex = True,
    tier: Tier = None,
    n_models: NModels = None,
    threshold: Threshold = None,
    ramp: Ramp = None,
    excess: Excess = None,
    answers: Answers = None,
    changed: Changed = None,
    sensitivity: Sensitivity = None,
    sigma: Sigma = None,
    scale: Scale = None,
    p: NoiseExponent = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Declare the options that describe a run, for every command about one."""


def add_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a run to a command, which finds their values in its context."""
    own = inspect.signature(command, eval_str=True).parameters
    shared = inspect.signature(_run_options, eval_str=True).parameters

    @wraps(command)
    def wrapper(**arguments: Any) -> None:
        command(**{name: arguments[name] for name in own})

    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*shared.values(), *own.values())]
    )
    return wrapper


_OUTPUT_PARAMETERS = {"as_json", "quiet", "plot", "order"}
_MAX_FILE_BYTES = 10**8


def library_arguments(context: typer.Context) -> dict[str, Any]:
    """Return the library's keyword arguments from a command's parameters, without those left at their defaults."""
    arguments = {
        name: value
        for name, value in context.params.items()
        if name not in _OUTPUT_PARAMETERS
        and value is not None
        and getattr(context.get_parameter_source(name), "name", "") != "DEFAULT"
    }
    if "checkpoints" in arguments:
        arguments["checkpoints"] = parse_numbers(
            "checkpoints", arguments["checkpoints"], "steps such as 10,20,30"
        )
    if "rdp" in arguments:
        arguments["rdp"] = parse_numbers("rdp", arguments["rdp"], "an order and a value such as 8,0.5")
    for name in ("step_size", "noise_std"):
        if name in arguments:
            arguments[name] = _parse_per_step(name, arguments[name])
    return arguments


def renyi_orders(context: typer.Context) -> tuple[float, ...]:
    """Return the orders at which the Renyi divergence is reported too."""
    return parse_numbers("order", context.params["order"], "orders such as 2,8,32")


def parse_numbers(name: str, text: str, example: str) -> tuple[float, ...]:
    """Parse numbers separated by commas; an error shows the example."""
    try:
        return tuple(float(item) for item in text.split(",") if item.strip())
    except ValueError:
        raise InvalidParameter(f"{name} must be {example}; got {text!r}.") from None


def _parse_per_step(name: str, text: str) -> float | str | tuple[float, ...]:
    """Return a number, the numbers in a file, or a formula for the library to parse."""
    try:
        return float(text)
    except ValueError:
        path = Path(text)
    if not path.is_file():
        return text
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise InvalidParameter(f"{name}: the file {text!r} is larger than {_MAX_FILE_BYTES:,} bytes.")
    try:
        values = tuple(float(item) for item in path.read_text().replace(",", " ").split())
    except (ValueError, UnicodeDecodeError):
        raise InvalidParameter(
            f"{name}: the file {text!r} must hold numbers, one per step, separated by spaces, commas or line ends."
        ) from None
    return values


@add_run_options
def account_command(
    context: typer.Context,
    noise_std: NoiseStd = None,
    n_steps: Steps = None,
    delta: Delta = None,
    epsilon: Epsilon = None,
    inverse_temperature: InverseTemperature = None,
    plot: Plot = None,
) -> None:
    """Report the guarantee of a run: epsilon at a delta, the theorem, and plain composition for comparison."""
    from dplangevin.cli import _io
    from dplangevin.report import answer

    parameters = context.params
    quiet, as_json = parameters["quiet"], parameters["as_json"]
    question = library_arguments(context)
    if plot is not None:
        from dplangevin.report.answer import check_plot_options, write_plot

        check_plot_options(plot, question)
        _io.check_outputs({"--plot": plot})
    result = answer.answer_account(
        question, reasons=not (quiet or as_json), with_lower_bound=not quiet, orders=renyi_orders(context)
    )
    if quiet:
        typer.echo(repr(result.delta if epsilon is not None else result.epsilon))
    elif as_json:
        typer.echo(answer.answer_to_json(result))
    else:
        answer.print_answer(result)
    if plot is not None:
        write_plot(plot, question)
        typer.echo(f"wrote {plot}", err=True)


@add_run_options
def calibrate_command(
    context: typer.Context,
    epsilon: SomeEpsilon = None,
    delta: SomeDelta = None,
    rdp: TargetRdp = "",
    mu: TargetMu = None,
    zcdp: TargetZcdp = None,
    n_steps: SomeSteps = None,
    noise_std: SomeNoise = None,
) -> None:
    """Find the least noise that meets a guarantee for --n-steps, or the most steps for --noise-std.

    The guarantee is (epsilon, delta), or --rdp, --mu or --zcdp.

    The answer is rounded to the safe side and certified again.
    """
    from dplangevin.report import answer

    quiet, as_json = context.params["quiet"], context.params["as_json"]
    result = answer.answer_calibration(
        library_arguments(context),
        reasons=not (quiet or as_json),
        with_lower_bound=not quiet,
        orders=renyi_orders(context),
    )
    if quiet:
        wanted_noise = noise_std is None and context.params["noise_multiplier"] is None
        parameter = result.calibrated_parameter
        typer.echo(repr(parameter[1] if wanted_noise and parameter else result.steps))
    elif as_json:
        typer.echo(answer.answer_to_json(result))
    else:
        answer.print_answer(result)
