"""account: what a noisy gradient run costs, by the tightest theorem whose hypotheses hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dplangevin import _check
from dplangevin.errors import AssumptionFailed, InvalidParameter, NotPrivateError
from dplangevin.families.noisy_answers.schedule import AnswerSchedule
from dplangevin.families.noisy_gradient import self_check
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._units import check_meaningful
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.registry import theorem_named, theorems_for
from dplangevin.privacy.schedule import Schedule
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
    check_meaningful(constants, schedule)
    return constants, schedule


def certify(
    constants: Constants | None,
    schedule: Schedule,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    theorem: str | None = None,
) -> Guarantee:
    """The tightest guarantee of a run at delta (or at epsilon), or the one of a pinned theorem.

    Plain composition of the same run is kept in `composition`, where it is finite. delta = 0 asks for a pure promise.
    Noisy answers need no constants.
    """
    if (delta is None) == (epsilon is None):
        raise InvalidParameter(
            "give exactly one of delta and epsilon: delta to get epsilon, or epsilon to get delta."
        )
    if epsilon is not None:
        _check.positive("epsilon", epsilon)
    if constants is None and not isinstance(schedule, AnswerSchedule):
        raise InvalidParameter(f"{schedule.mechanism} needs constants, or a problem that has them.")
    if isinstance(schedule, NoisyGradientSchedule) and constants is not None:
        check_meaningful(constants, schedule)
    if delta is not None and (delta != 0 or isinstance(schedule, NoisyGradientSchedule)):
        _check.open_unit("delta", delta)

    def cost(guarantee: Guarantee) -> float:
        if epsilon is not None:
            return guarantee.delta(epsilon)
        return guarantee.epsilon(delta)

    if theorem is not None:
        best = theorem_named(theorem, schedule).certify(constants, schedule)
    else:
        offers, reasons = _offers(constants, schedule)
        if not offers:
            raise NotPrivateError("no theorem covers this run: " + " ".join(reasons.values()))
        best = offers[0]
        if len(offers) > 1:
            best = min(offers, key=lambda g: (cost(g), g.theorem != "composition"))
    if delta == 0 and math.isinf(cost(best)):
        raise NotPrivateError(
            "this run promises nothing at delta = 0; state delta > 0, or noise with a pure promise."
        )
    reported = delta if delta is not None else cost(best)
    self_check.verify(best, constants, schedule, reported)
    beside = None if best.theorem == "composition" else _composition(constants, schedule)
    if beside is not None:
        beside = replace(beside, at_delta=reported)
    return replace(best, at_delta=reported, composition=beside)


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


def refusals(constants: Constants, schedule: Schedule) -> dict[str, str]:
    """Why each theorem that does not apply to this run does not."""
    return _offers(constants, schedule)[1]


def _offers(constants: Constants | None, schedule: Schedule) -> tuple[list[Guarantee], dict[str, str]]:
    offers: list[Guarantee] = []
    reasons: dict[str, str] = {}
    for name, theorem in theorems_for(schedule).items():
        try:
            offers.append(theorem.certify(constants, schedule))
        except AssumptionFailed as error:
            reasons[name] = str(error)
    return offers, reasons


def _composition(constants: Constants | None, schedule: Schedule) -> Guarantee | None:
    plain = theorems_for(schedule).get("composition")
    try:
        return None if plain is None else plain.certify(constants, schedule)
    except AssumptionFailed:
        return None
