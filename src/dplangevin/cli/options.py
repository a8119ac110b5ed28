"""The options that commands share, each written once."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin.errors import InvalidParameter
from dplangevin.privacy.registry import option_names

_RUN, _PROBLEM, _PROMISE, _OUTPUT = "The run", "The problem", "The promise", "Output"


def _option(name: str, words: str, panel: str, metavar: str | None = None) -> Any:
    return typer.Option(name, help=words, rich_help_panel=panel, metavar=metavar, show_default=True)


Mechanism = Annotated[
    str | None,
    _option(
        "--mechanism",
        f"Noisy gradient steps unless stated, as --sampling says; or one of {', '.join(option_names())}.",
        _RUN,
        "WORD",
    ),
]
Sampling = Annotated[
    str | None,
    _option("--sampling", "full (default), cyclic, shuffle, without-replacement or poisson.", _RUN, "WORD"),
]
BatchSize = Annotated[float | None, _option("--batch-size", "Public divisor of a batch.", _RUN, "N")]
Steps = Annotated[
    float | None, _option("--steps", "Number of steps; inf asks for every number of steps.", _RUN, "N|inf")
]
_VARYING = "a number, a formula in the step t such as 0.5/sqrt(t), or a file with one number per step."
StepSize = Annotated[str | None, _option("--step-size", f"Step size eta: {_VARYING}", _RUN, "X|FORMULA|FILE")]
NoiseStd = Annotated[
    str | None,
    _option(
        "--noise-std",
        f"Standard deviation of the noise on the MEAN gradient: {_VARYING}",
        _RUN,
        "X|FORMULA|FILE",
    ),
]
SomeSteps = Annotated[
    float | None, _option("--steps", "Find the least noise for so many steps.", _RUN, "N|inf")
]
SomeNoise = Annotated[str | None, _option("--noise-std", "Find the most steps with this noise.", _RUN, "X")]
Momentum = Annotated[bool, _option("--momentum", "Nesterov momentum (accounted by composition).", _RUN)]

Records = Annotated[float | None, _option("--n", "Public number of records.", _PROBLEM, "N")]
Lipschitz = Annotated[
    float | None, _option("--lipschitz", "Largest gradient norm of one record.", _PROBLEM, "X")
]
Smoothness = Annotated[
    float,
    _option("--smoothness", "Smoothness of each loss, ridge included; inf when unknown.", _PROBLEM, "X"),
]
StrongConvexity = Annotated[
    float, _option("--strong-convexity", "Strong convexity of the ridge only.", _PROBLEM, "X")
]
Diameter = Annotated[
    float, _option("--diameter", "Diameter of the set that iterates are projected on.", _PROBLEM, "X")
]

Adjacency = Annotated[
    str, _option("--adjacency", "A neighbour: replace-one or add-remove.", _PROMISE, "WORD")
]
Release = Annotated[
    str,
    _option("--release", "What leaves: last-iterate, average, checkpoints or trajectory.", _PROMISE, "WORD"),
]
Checkpoints = Annotated[
    str, _option("--checkpoints", "Released steps, with --release checkpoints.", _PROMISE, "N,N,...")
]
Delta = Annotated[float | None, _option("--delta", "Report epsilon at this delta.", _PROMISE, "X")]
Epsilon = Annotated[
    float | None, _option("--epsilon", "Report delta at this epsilon instead.", _PROMISE, "X")
]
SomeDelta = Annotated[float | None, _option("--delta", "The delta to meet, or to report at.", _PROMISE, "X")]
SomeEpsilon = Annotated[
    float | None, _option("--epsilon", "The epsilon to meet (with --delta).", _PROMISE, "X")
]
Order = Annotated[
    str, _option("--order", "Also report the Renyi divergence at these orders.", _PROMISE, "X,X,...")
]
TargetRdp = Annotated[
    str, _option("--rdp", "Meet this Renyi divergence at this order instead.", _PROMISE, "ORDER,VALUE")
]
TargetMu = Annotated[float | None, _option("--mu", "Meet mu-GDP instead.", _PROMISE, "X")]
TargetZcdp = Annotated[float | None, _option("--zcdp", "Meet rho-zCDP instead.", _PROMISE, "X")]
TargetDelta = Annotated[float, _option("--delta", "The delta to meet.", _PROMISE, "X")]
TargetEpsilon = Annotated[float, _option("--epsilon", "The epsilon to meet.", _PROMISE, "X")]
TheoremName = Annotated[
    str | None, _option("--theorem", "Use this theorem and no other, or be refused.", _PROMISE, "NAME")
]

_OTHER = "Other mechanisms"
Dimension = Annotated[float | None, _option("--dimension", "Number of parameters.", _OTHER, "N")]
HessianRank = Annotated[
    float | None, _option("--hessian-rank", "Rank of one record's Hessian (1 for GLMs).", _OTHER, "N")
]
Noise = Annotated[str | None, _option("--noise", "Of a perturbation: gaussian or gamma.", _OTHER, "WORD")]
Tolerance = Annotated[float | None, _option("--tolerance", "Gradient norm at the minimiser.", _OTHER, "X")]
DensityScale = Annotated[
    float | None,
    _option("--density-scale", "s of a perturbation's density exp(-(|b| / s)^q / q).", _OTHER, "X"),
]
ReleaseDensityScale = Annotated[
    float | None, _option("--release-density-scale", "Noise that hides the solver's error.", _OTHER, "X")
]
Sigma = Annotated[float | None, _option("--sigma", "Of the noise on counts, see --p.", _OTHER, "X")]
Scale = Annotated[float | None, _option("--scale", "Of the noise of largest-norm.", _OTHER, "X")]
InverseTemperature = Annotated[
    float | None, _option("--inverse-temperature", "beta of a draw of exp(-beta F).", _OTHER, "X")
]
Friction = Annotated[float | None, _option("--friction", "Of underdamped Langevin.", _OTHER, "X")]
InverseMass = Annotated[
    float | None, _option("--inverse-mass", "Of underdamped Langevin: variance of a velocity.", _OTHER, "X")
]
Tier = Annotated[str | None, _option("--tier", "Of a draw: exact, certified or pure.", _OTHER, "WORD")]
Models = Annotated[float | None, _option("--models", "Draws from a Rashomon set.", _OTHER, "N")]
Threshold = Annotated[float | None, _option("--threshold", "Of the Rashomon set.", _OTHER, "X")]
Ramp = Annotated[float | None, _option("--ramp", "Width over which the score bends.", _OTHER, "X")]
Excess = Annotated[float | None, _option("--excess", "Bound on sup F - inf F.", _OTHER, "X")]
Answers = Annotated[float | None, _option("--answers", "Number of counts.", _OTHER, "N")]
Changed = Annotated[float | None, _option("--changed", "Counts that one record changes.", _OTHER, "N")]
Sensitivity = Annotated[float | None, _option("--sensitivity", "By how much each.", _OTHER, "X")]
Power = Annotated[float | None, _option("--p", "Noise density exp(-(|x|_p / sigma)^p).", _OTHER, "X")]

AsJson = Annotated[bool, _option("--json", "Print JSON.", _OUTPUT)]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the number alone.", rich_help_panel=_OUTPUT)
]
Plot = Annotated[
    Path | None,
    _option("--plot", "Also draw epsilon against the number of steps.", _OUTPUT, "FILE.png|.svg|.html"),
]


def _of_a_run(
    n: Records = None,
    lipschitz: Lipschitz = None,
    step_size: StepSize = None,
    mechanism: Mechanism = None,
    sampling: Sampling = None,
    batch_size: BatchSize = None,
    momentum: Momentum = False,
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
    tier: Tier = None,
    models: Models = None,
    threshold: Threshold = None,
    ramp: Ramp = None,
    excess: Excess = None,
    answers: Answers = None,
    changed: Changed = None,
    sensitivity: Sensitivity = None,
    sigma: Sigma = None,
    scale: Scale = None,
    p: Power = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """What describes a run to every command that asks about one."""


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command takes the options of a run as well; it finds their values in its context."""
    own = inspect.signature(command, eval_str=True).parameters
    shared = inspect.signature(_of_a_run, eval_str=True).parameters

    @wraps(command)
    def called(**given: Any) -> None:
        command(**{name: given[name] for name in own})

    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*shared.values(), *own.values())]
    )
    return called


_NOT_FOR_THE_LIBRARY = {"as_json", "quiet", "plot", "order"}
_LONGEST_FILE = 10**8


def for_library(context: typer.Context) -> dict[str, Any]:
    """Keyword arguments of the library from a command's parameters; what was left out stays out."""
    chosen = {
        name: value
        for name, value in context.params.items()
        if name not in _NOT_FOR_THE_LIBRARY
        and value is not None
        and getattr(context.get_parameter_source(name), "name", "") != "DEFAULT"
    }
    if "checkpoints" in chosen:
        chosen["checkpoints"] = numbers("checkpoints", chosen["checkpoints"], "steps such as 10,20,30")
    if "rdp" in chosen:
        chosen["rdp"] = numbers("rdp", chosen["rdp"], "an order and a value such as 8,0.5")
    for name in ("step_size", "noise_std"):
        if name in chosen:
            chosen[name] = _per_step(name, chosen[name])
    return chosen


def orders(context: typer.Context) -> tuple[float, ...]:
    """The orders at which the Renyi divergence is wanted too."""
    return numbers("order", context.params["order"], "orders such as 2,8,32")


def numbers(name: str, text: str, example: str) -> tuple[float, ...]:
    """Numbers between commas."""
    try:
        return tuple(float(item) for item in text.split(",") if item.strip())
    except ValueError:
        raise InvalidParameter(f"{name} must be {example}; got {text!r}.") from None


def _per_step(name: str, text: str) -> float | str | tuple[float, ...]:
    """A number, the numbers in a file, or a formula that the library reads."""
    try:
        return float(text)
    except ValueError:
        path = Path(text)
    if not path.is_file():
        return text
    if path.stat().st_size > _LONGEST_FILE:
        raise InvalidParameter(f"{name}: the file {text!r} is larger than {_LONGEST_FILE:,} bytes.")
    try:
        found = tuple(float(item) for item in path.read_text().replace(",", " ").split())
    except (ValueError, UnicodeDecodeError):
        raise InvalidParameter(
            f"{name}: the file {text!r} must hold numbers, one per step, between spaces, commas or line ends."
        ) from None
    return found
