"""Account for a run from its public values, and calibrate a run to a privacy target.

`account` certifies by the tightest theorem whose hypotheses hold; `calibrate` finds the least noise, or the most
steps, and certifies the result again; `find_plateau` finds the epsilon that holds for every number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dplangevin import _check
from dplangevin._search import bisect_integers, expand_bracket
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec, Spec, certify_plan
from dplangevin.accounting.registry import accountable_mechanisms, option_reader_for
from dplangevin.accounting.target import TARGET_OPTIONS, PrivacyTarget, make_target
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter, NotPrivateError
from dplangevin.mechanisms.noisy_gradient.planning import (
    FAST_TOLERANCE,
    SLOW_TOLERANCE,
    bisect_cost,
    calibrate_noise,
    calibrate_steps,
)
from dplangevin.mechanisms.noisy_gradient.spec import (
    MECHANISMS,
    check_dp_sgd_options,
    read_descent_options,
    translate_dp_sgd_options,
)
from dplangevin.mechanisms.noisy_gradient.theorems.composition import Composition
from dplangevin.mechanisms.options import RunInputs, read_mechanism_options
from dplangevin.problem.constants import Constants


def account(
    *, delta: float | None = None, epsilon: float | None = None, theorem: str | None = None, **options: object
) -> Guarantee:
    """Return the tightest proved guarantee of a run.

    Parameters
    ----------
    delta, epsilon : exactly one of them; the guarantee reports the other at this value.
    theorem : name of the theorem to certify by; None takes the tightest that applies.
    **options : those of `dplangevin account`, with underscores. Noisy gradient runs: n, lipschitz, noise_std,
        step_size (a number, one per step, or a formula such as "0.5/sqrt(t)"), n_steps (a number or infinity),
        mechanism, batch_size, sampling, smoothness, strong_convexity, diameter, adjacency, release, checkpoints,
        momentum. Or in the words of DP-SGD: noise_multiplier, sample_rate (or n and batch_size), and epochs or n_steps;
        add-remove and Poisson batches unless stated.
        Other mechanisms (objective-perturbation, output-perturbation, exponential, gibbs, underdamped,
        rashomon, counting and largest-norm) have the options of their specs; langevin and langevin-diffusion have
        inverse_temperature, time (or time_step), n_steps, exponent and release; langevin takes convex=False too.

    Examples
    --------
    >>> from dplangevin import account
    >>> options = dict(n=10_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, step_size=1.0,
    ...                noise_std=0.012, delta=1e-6)
    >>> short, long = account(n_steps=1000, **options), account(n_steps=float("inf"), **options)
    >>> f"{short.epsilon():.4f} {long.epsilon():.4f} {short.composition.epsilon():.4f}"
    '0.9927 0.9928 2.3885'
    """
    for name in TARGET_OPTIONS:
        if options.get(name) is not None:
            raise InvalidParameter(
                f"{name} is a target of calibrate, not an option of account; leave it out."
            )
    check_dp_sgd_options(options)
    options = translate_dp_sgd_options(options)
    return certify_plan(*read_run_options(options), delta=delta, epsilon=epsilon, theorem=theorem)


def read_run_options(options: Mapping[str, object]) -> tuple[Constants | None, Spec]:
    """Return the constants and the spec of a run from its options."""
    mechanism_names = accountable_mechanisms()
    _check.check_choice(
        "mechanism", options.get("mechanism") or MECHANISMS[0], (*MECHANISMS, *mechanism_names)
    )
    if options.get("mechanism") in mechanism_names:
        return read_mechanism_options(options)
    return read_descent_options(options)


def calibrate(
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rdp: tuple[float, float] | None = None,
    mu: float | None = None,
    zcdp: float | None = None,
    advantage: float | None = None,
    tpr_at_fpr: tuple[float, float] | None = None,
    theorem: str | None = None,
    n_steps: int | float | None = None,
    **options: object,
) -> CertifiedSpec:
    """Return the certified spec with the least noise that meets the target, or, given noise_std, with the most steps.

    Parameters
    ----------
    epsilon, delta, rdp, mu, zcdp, advantage, tpr_at_fpr : the target: (epsilon, delta), rdp = (order, value), mu, zcdp,
        the largest TPR - FPR of a membership test, or tpr_at_fpr = (tpr, fpr), its largest TPR at an FPR. Without
        epsilon, delta is only where epsilon is reported (default 1e-6).
    theorem : name of the theorem to certify by; None takes the best that applies.
    n_steps : number of steps, or infinity; None, with noise_std, asks for the most steps.
    **options : those of `account`, mechanism included. For mechanisms other than noisy gradient descent leave out the
        number to be found: density_scale, sigma, scale or inverse_temperature.

    Examples
    --------
    >>> from dplangevin import calibrate
    >>> plan = calibrate(n=10_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, step_size=1.0,
    ...                  n_steps=float("inf"), epsilon=1.0, delta=1e-6)
    >>> round(plan.spec.noise_std, 6), plan.guarantee.theorem
    (0.011919, 'optimal-shift')
    """
    run: dict[str, Any] = translate_dp_sgd_options({**options, "n_steps": n_steps})
    n_steps, options = run.pop("n_steps", None), run
    mechanism = options.get("mechanism")
    without_steps = mechanism in accountable_mechanisms()
    target_cost = make_target(
        epsilon=epsilon, delta=delta, rdp=rdp, mu=mu, zcdp=zcdp, advantage=advantage, tpr_at_fpr=tpr_at_fpr,
        pure=without_steps,
    )  # fmt: skip
    if without_steps:
        return _calibrate_without_steps(
            target_cost, theorem, options if n_steps is None else {**options, "n_steps": n_steps}
        )
    noise = options.pop("noise_std", None)
    if n_steps is None and noise is None:
        raise InvalidParameter(
            "give n_steps to get the smallest noise_std, or noise_std to get the largest n_steps."
        )
    if n_steps is not None and noise is not None:
        raise InvalidParameter(
            "noise_std and n_steps are both given, so nothing is left to find; use account."
        )
    start = 1.0 if noise is None else noise
    constants, spec = read_descent_options(
        {"noise_std": start, "n_steps": 1 if n_steps is None else n_steps, **options}
    )
    if n_steps is None:
        return calibrate_steps(constants, spec, target_cost, theorem)
    return calibrate_noise(constants, spec, target_cost, theorem)


def _calibrate_without_steps(
    target_cost: PrivacyTarget, theorem: str | None, options: dict[str, object]
) -> CertifiedSpec:
    """Find the least noise (or the highest inverse temperature) of a mechanism without steps."""
    _, calibration_target = option_reader_for(str(options["mechanism"]))
    if options.get(calibration_target.name) is not None:
        raise InvalidParameter(
            f"{calibration_target.name} is what calibrate finds; leave it out, or use account."
        )

    def read_at(factor: float) -> RunInputs:
        return read_mechanism_options(
            {**options, calibration_target.name: calibration_target.value_at(factor)}
        )

    def cost(factor: float) -> float:
        return target_cost.cost(certify_plan(*read_at(factor), delta=target_cost.delta, theorem=theorem))

    high, rounds = 1.0, 0
    spent = cost(high)
    while not spent <= target_cost.goal:
        high, rounds = high * (4 if rounds < 6 else 100), rounds + 1
        if rounds > 25:  # a factor of 1e41; sizes beyond 1e60 are refused
            raise CalibrationFailed(
                f"no {calibration_target.name} reaches {target_cost}; change the bounds or the target."
            )
        spent = cost(high)
    numeric = calibration_target.is_slow or options.get("p", 2) not in (1, 2)
    constants, spec = read_at(
        bisect_cost(cost, high, spent, target_cost.goal, SLOW_TOLERANCE if numeric else FAST_TOLERANCE)
    )
    return CertifiedSpec(spec=spec, delta=target_cost.delta, theorem=theorem, constants=constants)  # type: ignore[arg-type]


Options = Mapping[str, Any]
_TARGET_OPTIONS = ("epsilon", *TARGET_OPTIONS)
_MAX_STEPS = 10**9
_PLATEAU_FRACTION = 0.99


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """The epsilon that holds for every number of steps, its theorem, and about how many steps reach it."""

    epsilon: float
    theorem: str
    n_steps: int | None = None


def has_varying_steps(options: Options) -> bool:
    """Return True when step size or noise is stated per step, which fixes the number of steps."""
    return not all(isinstance(options.get(name), int | float) for name in ("step_size", "noise_std"))


def with_n_steps(options: Options, n_steps: float, delta: float) -> dict[str, Any]:
    """Return the options of the same run with another number of steps, accounted at delta."""
    return {
        **{name: value for name, value in options.items() if name not in _TARGET_OPTIONS},
        "n_steps": n_steps,
        "delta": delta,
    }


def find_plateau(options: Options, delta: float) -> Plateau | None:
    """Return the epsilon that holds for every number of steps, and about where it is reached; None if unbounded."""
    if (
        not 0 < delta < 1
        or options.get("release", "last-iterate") != "last-iterate"
        or has_varying_steps(options)
    ):
        return None
    try:
        guarantee = account(**with_n_steps(options, math.inf, delta))
    except (AssumptionFailed, NotPrivateError):
        return None
    limit = guarantee.epsilon(delta)
    if not math.isfinite(limit):
        return None
    return Plateau(
        epsilon=limit, theorem=guarantee.theorem, n_steps=_find_plateau_start(options, delta, limit)
    )


def _find_plateau_start(options: Options, delta: float, limit: float) -> int | None:
    """Return about the smallest number of steps that costs 99% of the limit; None above 10^9 steps."""
    epoch = steps_per_epoch(options)

    def is_near_limit(count: int) -> bool:
        run = with_n_steps(options, count * epoch, delta)
        if options.get("theorem") is None:
            # composition is cheap to compute and never below the best bound: it often settles the question
            plain = account(**{**run, "theorem": Composition.name})
            if plain.epsilon(delta) < _PLATEAU_FRACTION * limit:
                return False
        return account(**run).epsilon(delta) >= _PLATEAU_FRACTION * limit

    high = expand_bracket(is_near_limit, 1, _MAX_STEPS / epoch, factor=10)
    if high is None:
        return None
    return (
        _round_up_two_digits(
            bisect_integers(is_near_limit, high, max(high // 10, 1), digits=20, geometric=True)
        )
        * epoch
    )


def _round_up_two_digits(count: int) -> int:
    """Return the count rounded up to two significant digits: 5233 -> 5300."""
    unit = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // unit) * unit


def steps_per_epoch(options: Options) -> int:
    """Return the number of steps in which every record takes part once, for partitioned batches; else 1."""
    if options.get("sampling", "full") not in ("cyclic", "shuffle"):
        return 1
    return math.ceil(float(options["n"]) / float(options["batch_size"]))
