"""The options that commands share, each written once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin.errors import InvalidParameter

_RUN, _PROBLEM, _PROMISE, _OUTPUT = "The run", "The problem", "The promise", "Output"


def _option(name: str, words: str, panel: str, metavar: str | None = None) -> Any:
    return typer.Option(name, help=words, rich_help_panel=panel, metavar=metavar, show_default=True)


Mechanism = Annotated[
    str | None, _option("--mechanism", "noisy-gd or noisy-sgd; default: from --sampling.", _RUN, "WORD")
]
Sampling = Annotated[
    str | None,
    _option("--sampling", "full (default), cyclic, shuffle, without-replacement or poisson.", _RUN, "WORD"),
]
BatchSize = Annotated[float | None, _option("--batch-size", "Public divisor of a batch.", _RUN, "N")]
Steps = Annotated[
    float, _option("--steps", "Number of steps; inf asks for every number of steps.", _RUN, "N|inf")
]
StepSize = Annotated[float, _option("--step-size", "Step size eta.", _RUN, "X")]
NoiseScale = Annotated[
    float, _option("--noise-scale", "Standard deviation of the noise on the MEAN gradient.", _RUN, "X")
]
SomeSteps = Annotated[
    float | None, _option("--steps", "Find the least noise for so many steps.", _RUN, "N|inf")
]
SomeNoise = Annotated[
    float | None, _option("--noise-scale", "Find the most steps with this noise.", _RUN, "X")
]
Momentum = Annotated[bool, _option("--momentum", "Nesterov momentum (accounted by composition).", _RUN)]

Records = Annotated[float, _option("--n", "Public number of records.", _PROBLEM, "N")]
Lipschitz = Annotated[float, _option("--lipschitz", "Largest gradient norm of one record.", _PROBLEM, "X")]
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
TargetDelta = Annotated[float, _option("--delta", "The delta to meet.", _PROMISE, "X")]
TargetEpsilon = Annotated[float, _option("--epsilon", "The epsilon to meet.", _PROMISE, "X")]
TheoremName = Annotated[
    str | None, _option("--theorem", "Use this theorem and no other, or be refused.", _PROMISE, "NAME")
]

AsJson = Annotated[bool, _option("--json", "Print JSON.", _OUTPUT)]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the number alone.", rich_help_panel=_OUTPUT)
]
Plot = Annotated[
    Path | None,
    _option("--plot", "Also draw epsilon against the number of steps.", _OUTPUT, "FILE.png|.svg|.html"),
]

_NOT_FOR_THE_LIBRARY = {"as_json", "quiet", "plot"}


def for_library(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of the library from a command's parameters; what was left out stays out."""
    chosen = {k: v for k, v in parameters.items() if k not in _NOT_FOR_THE_LIBRARY and v is not None}
    chosen["checkpoints"] = _steps_list(chosen["checkpoints"])
    return chosen


def _steps_list(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in text.split(",") if item.strip())
    except ValueError:
        raise InvalidParameter(f"checkpoints must be steps such as 10,20,30; got {text!r}.") from None
