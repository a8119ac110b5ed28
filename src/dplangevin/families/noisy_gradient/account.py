"""account: what a noisy gradient run costs, by the tightest theorem whose hypotheses hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.privacy.accountant import certify
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.problem.constants import Constants


def describe(
    *,
    n: int,
    lipschitz: float,
    noise_scale: float | Sequence[float],
    step_size: float | Sequence[float],
    steps: int | float,
    mechanism: str | None = None,
    batch_size: int | None = None,
    sampling: str | None = None,
    smoothness: float = math.inf,
    strong_convexity: float = 0.0,
    diameter: float = math.inf,
    adjacency: str = "replace-one",
    release: str = "last-iterate",
    checkpoints: Sequence[int] = (),
    momentum: bool = False,
) -> tuple[Constants, NoisyGradientSchedule]:
    """The public values of a run, from the options of the command line."""
    if sampling is None:
        if mechanism == "noisy-sgd" or batch_size is not None:
            raise InvalidParameter(
                "sampling is missing; say how batches are drawn: cyclic, shuffle, without-replacement or poisson."
            )
        sampling = "full"
    if mechanism is not None:
        _check.choice("mechanism", mechanism, ("noisy-gd", "noisy-sgd"))
        if (mechanism == "noisy-gd") != (sampling == "full"):
            raise InvalidParameter(
                f"mechanism={mechanism!r} does not fit sampling={sampling!r}; noisy-gd uses the full batch, "
                "noisy-sgd a mini-batch."
            )
    constants = Constants(
        n=n,
        lipschitz=lipschitz,
        smoothness=smoothness,
        strong_convexity=strong_convexity,
        diameter=diameter,
        adjacency=adjacency,  # type: ignore[arg-type]
    )
    schedule = NoisyGradientSchedule(
        step_size=step_size,  # type: ignore[arg-type]
        noise_scale=noise_scale,  # type: ignore[arg-type]
        n_steps=steps,
        batch_size=batch_size,
        sampling=sampling,  # type: ignore[arg-type]
        release=release,  # type: ignore[arg-type]
        checkpoints=tuple(checkpoints),
        momentum=momentum,
    )
    schedule.check_meaningful(constants)
    return constants, schedule


def account(
    *, delta: float | None = None, epsilon: float | None = None, theorem: str | None = None, **options: object
) -> Guarantee:
    """What a noisy (stochastic) gradient run costs: the tightest proved guarantee.

    Options are those of `dplangevin account`, with underscores: n, lipschitz, noise_scale, step_size, steps (a number
    or infinity), mechanism, batch_size, sampling, smoothness, strong_convexity, diameter, adjacency, release,
    checkpoints, momentum; exactly one of delta and epsilon; theorem to pin one.

    Examples
    --------
    >>> from dplangevin import account
    >>> options = dict(n=10_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, step_size=1.0,
    ...                noise_scale=0.012, delta=1e-6)
    >>> short, long = account(steps=1000, **options), account(steps=float("inf"), **options)
    >>> f"{short.epsilon():.4f} {long.epsilon():.4f} {short.composition.epsilon():.4f}"
    '0.9927 0.9928 2.3885'
    """
    constants, schedule = describe(**options)  # type: ignore[arg-type]
    return certify(constants, schedule, delta=delta, epsilon=epsilon, theorem=theorem)
