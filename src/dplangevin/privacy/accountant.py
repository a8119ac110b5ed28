"""account: what a noisy gradient run costs, by the tightest theorem whose hypotheses hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dplangevin import _check
from dplangevin.errors import AssumptionFailed, InvalidParameter, NotPrivateError
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.option_names import check_names
from dplangevin.privacy.other_runs import OTHER_MECHANISMS, Described, builder_of
from dplangevin.privacy.registry import theorem_named, theorems_for
from dplangevin.privacy.theorems import generalized_gaussian
from dplangevin.privacy.theorems._units import check_meaningful
from dplangevin.privacy.theorems.generalized_gaussian import NoisyAnswers
from dplangevin.problem.constants import Constants
from dplangevin.schedules import NoisyGradientSchedule, Schedule
from dplangevin.schedules.expression import per_step

MECHANISMS = ("noisy-gd", "noisy-sgd", *OTHER_MECHANISMS)
_QUESTION = ("delta", "epsilon", "theorem", "rdp", "mu", "zcdp")


def describe(
    *,
    n: int,
    lipschitz: float,
    noise_scale: float | str | Sequence[float],
    step_size: float | str | Sequence[float],
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
    """The public values of a run, from the options of the command line.

    noise_scale and step_size may be formulas in the step t, such as "0.5/sqrt(t)".
    """
    steps = _check.count_or_infinity("steps", steps)
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
        step_size=_per_step("step_size", step_size, steps),  # type: ignore[arg-type]
        noise_scale=_per_step("noise_scale", noise_scale, steps),  # type: ignore[arg-type]
        n_steps=steps,
        batch_size=batch_size,
        sampling=sampling,  # type: ignore[arg-type]
        release=release,  # type: ignore[arg-type]
        checkpoints=tuple(checkpoints),
        momentum=momentum,
    )
    check_meaningful(constants, schedule)
    return constants, schedule


def _per_step(name: str, value: float | str | Sequence[float], steps: float) -> float | Sequence[float]:
    return per_step(name, value, steps) if isinstance(value, str) else value


def described(options: Mapping[str, object]) -> tuple[Constants, NoisyGradientSchedule]:
    """`describe`, with errors that name the option of the command line."""
    chosen = check_names(options, describe, _QUESTION)
    _check.choice("mechanism", options.get("mechanism") or "noisy-gd", MECHANISMS)
    try:
        return describe(**chosen)  # type: ignore[arg-type]
    except InvalidParameter as error:
        raise InvalidParameter(str(error).replace("n_steps", "steps")) from None


def described_other(options: Mapping[str, object]) -> Described:
    """The same for a mechanism without steps."""
    build = builder_of(options)
    assert build is not None
    chosen = {name: value for name, value in options.items() if value is not None}
    try:
        return build(**check_names(chosen, build, _QUESTION))
    except InvalidParameter as error:
        raise InvalidParameter(_in_options(str(error))) from None


def _in_options(words: str) -> str:
    return words.replace("n_steps", "steps").replace("n_models", "models").replace("sigma", "noise_scale")


def certify_other(
    constants: Constants | None,
    subject: Schedule | NoisyAnswers,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    theorem: str | None = None,
) -> Guarantee:
    """The guarantee of a mechanism without steps."""
    if isinstance(subject, Schedule):
        assert constants is not None
        return certify(constants, subject, delta=delta, epsilon=epsilon, theorem=theorem)
    if theorem not in (None, generalized_gaussian.NAME):
        raise InvalidParameter(f"theorem = {theorem!r} is unknown; choose {generalized_gaussian.NAME}.")
    if (delta is None) == (epsilon is None):
        raise InvalidParameter(
            "give exactly one of delta and epsilon: delta to get epsilon, or epsilon to get delta."
        )
    if delta is None:
        assert epsilon is not None
        found = generalized_gaussian.certify(subject, delta=0.5).delta(_check.positive("epsilon", epsilon))
        return replace(generalized_gaussian.certify(subject, delta=0.5), at_delta=found)
    if delta != 0:
        _check.open_unit("delta", delta)
    return generalized_gaussian.certify(subject, delta=delta)


def certify(
    constants: Constants,
    schedule: Schedule,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    theorem: str | None = None,
) -> Guarantee:
    """The tightest guarantee of a run at delta (or at epsilon), or the one of a pinned theorem.

    Plain composition of the same run is kept in `composition`, where it is finite. delta = 0 asks for a pure promise.
    """
    if (delta is None) == (epsilon is None):
        raise InvalidParameter(
            "give exactly one of delta and epsilon: delta to get epsilon, or epsilon to get delta."
        )
    if epsilon is not None:
        _check.positive("epsilon", epsilon)
    if isinstance(schedule, NoisyGradientSchedule):
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
        best = min(offers, key=lambda g: (cost(g), g.theorem != "composition"))
    if delta == 0 and math.isinf(cost(best)):
        raise NotPrivateError(
            "this run promises nothing at delta = 0; state delta > 0, or noise with a pure promise."
        )
    reported = delta if delta is not None else cost(best)
    beside = None if best.theorem == "composition" else _composition(constants, schedule)
    if beside is not None:
        beside = replace(beside, at_delta=reported)
    return replace(best, at_delta=reported, composition=beside)


def account(
    *, delta: float | None = None, epsilon: float | None = None, theorem: str | None = None, **options: object
) -> Guarantee:
    """What a run costs: the tightest proved guarantee.

    Options are those of `dplangevin account`, with underscores. Noisy gradient runs: n, lipschitz, noise_scale,
    step_size (numbers, one per step, or formulas such as "0.5/sqrt(t)"), steps (a number or infinity), mechanism,
    batch_size, sampling, smoothness, strong_convexity, diameter, adjacency, release, checkpoints, momentum. Other
    mechanisms, see `privacy.other_runs`: objective-perturbation, output-perturbation, exponential, gibbs, rashomon and
    counting. Exactly one of delta and epsilon; theorem to pin one.

    Examples
    --------
    >>> from dplangevin import account
    >>> options = dict(n=10_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, step_size=1.0,
    ...                noise_scale=0.012, delta=1e-6)
    >>> short, long = account(steps=1000, **options), account(steps=float("inf"), **options)
    >>> f"{short.epsilon():.4f} {long.epsilon():.4f} {short.composition.epsilon():.4f}"
    '0.9927 0.9928 2.3885'
    """
    if builder_of(options) is not None:
        return certify_other(*described_other(options), delta=delta, epsilon=epsilon, theorem=theorem)
    return certify(*described(options), delta=delta, epsilon=epsilon, theorem=theorem)


def refusals(constants: Constants, schedule: Schedule) -> dict[str, str]:
    """Why each theorem that does not apply to this run does not."""
    return _offers(constants, schedule)[1]


def _offers(constants: Constants, schedule: Schedule) -> tuple[list[Guarantee], dict[str, str]]:
    offers: list[Guarantee] = []
    reasons: dict[str, str] = {}
    for name, theorem in theorems_for(schedule).items():
        try:
            offers.append(theorem.certify(constants, schedule))
        except AssumptionFailed as error:
            reasons[name] = str(error)
    return offers, reasons


def _composition(constants: Constants, schedule: Schedule) -> Guarantee | None:
    plain = theorems_for(schedule).get("composition")
    try:
        return None if plain is None else plain.certify(constants, schedule)
    except AssumptionFailed:
        return None
